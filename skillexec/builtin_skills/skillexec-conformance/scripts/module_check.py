"""Run as `python -m scripts.module_check`: the skill's root is on the path, so that its folders can be imported."""

from __future__ import annotations

import json
import os
import sys

from scripts.nested import deep


def main() -> int:
    checks = [
        deep.verdict(),
        {
            "name": "run_as_module",
            "ok": __spec__ is not None and __spec__.name == "scripts.module_check",
            "detail": __name__,
        },
        {"name": "root_on_path", "ok": sys.path[0] in {"", os.getcwd()}, "detail": repr(sys.path[0])},
    ]
    ok = all(check["ok"] for check in checks)
    report = {
        "skill": "skillexec-conformance",
        "script": "module_check",
        "ok": ok,
        "checks": checks,
        "echo": None,
    }
    print(json.dumps(report))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
