"""Every benchmark, one after the other: `make bench`. Name some to run only those."""

from __future__ import annotations

import sys
from importlib import import_module

from benchmarks.measure import bars_line

TOPICS = ("skills", "sandbox", "permissions", "audit", "redact", "run")


def main(names: list[str]) -> None:
    unknown = sorted(set(names) - set(TOPICS))
    if unknown:
        sys.exit(f"no benchmark {unknown[0]}; there are {', '.join(TOPICS)}")
    tables = {topic: import_module(f"benchmarks.{topic}").main() for topic in names or TOPICS}
    print(f"\n{bars_line(tables)}")


if __name__ == "__main__":
    main(sys.argv[1:])
