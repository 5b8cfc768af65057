"""Every benchmark, one after the other: `make bench`. Name some to run only those."""

from __future__ import annotations

import sys
from importlib import import_module

TOPICS = ("skills", "sandbox", "permissions", "audit", "redact", "run")


def main(names: list[str]) -> None:
    unknown = sorted(set(names) - set(TOPICS))
    if unknown:
        sys.exit(f"no benchmark {unknown[0]}; there are {', '.join(TOPICS)}")
    for topic in names or TOPICS:
        import_module(f"benchmarks.{topic}").main()


if __name__ == "__main__":
    main(sys.argv[1:])
