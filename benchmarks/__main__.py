"""Every benchmark, one after the other: `make bench`. Name some to run only those."""

from __future__ import annotations

import sys
from importlib import import_module

from benchmarks.measure import bars_line

# The sandbox first: it measures by how much this process grows, which an earlier, larger topic would hide.
TOPICS = ("sandbox", "skills", "permissions", "audit", "redact", "run")


def main(names: list[str]) -> None:
    unknown = sorted(set(names) - set(TOPICS))
    if unknown:
        sys.exit(f"no benchmark {unknown[0]}; there are {', '.join(TOPICS)}")
    wanted = [topic for topic in TOPICS if topic in names or not names]
    tables = {topic: import_module(f"benchmarks.{topic}").main() for topic in wanted}
    print(f"\n{bars_line(tables)}")


if __name__ == "__main__":
    main(sys.argv[1:])
