"""Counts words: input as JSON on stdin, result as JSON on stdout, the whole table as an artifact."""

from __future__ import annotations

import collections
import csv
import json
import os
import re
import sys
from pathlib import Path

WORD = re.compile(r"\w+(?:['’]\w+)*")


def counted(text: str) -> list[tuple[str, int]]:
    """Words and how often they occur, most frequent first, then in order of appearance."""
    return collections.Counter(WORD.findall(text.casefold())).most_common()


def write_table(counts: list[tuple[str, int]], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("word", "count"), *counts])


def main() -> None:
    asked = json.load(sys.stdin)
    counts = counted(asked["text"])
    write_table(counts, Path(os.environ["SKILLEXEC_OUT"], "counts.csv"))
    top = [{"word": word, "count": count} for word, count in counts[: asked.get("top", 5)]]
    print(json.dumps({"words": sum(count for _, count in counts), "distinct": len(counts), "top": top}))


if __name__ == "__main__":
    main()
