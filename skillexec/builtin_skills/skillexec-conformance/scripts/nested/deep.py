"""A script below `scripts/`: it starts in the skill's root all the same, and finds its neighbours on its own path."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def verdict() -> dict[str, object]:
    """Whether the working folder is the skill's root."""
    return {
        "name": "working_folder",
        "ok": os.getcwd() == os.environ["SKILLEXEC_SKILL"],
        "detail": os.getcwd(),
    }


def main() -> int:
    own = Path(__file__).resolve().parent
    checks = [verdict(), {"name": "own_folder_on_path", "ok": sys.path[0] == str(own), "detail": sys.path[0]}]
    ok = all(check["ok"] for check in checks)
    report = {"skill": "skillexec-conformance", "script": "deep.py", "ok": ok, "checks": checks, "echo": None}
    print(json.dumps(report))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
