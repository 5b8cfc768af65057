"""The masker beside a plain copy: megabytes a second through ten secrets."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable

from benchmarks.measure import Row, at_least, in_turns, print_rows
from skillexec.redact import Masker

CHUNK = 64 << 10
CHUNKS = 640  # 40 MiB
ROUNDS = 5


def _all_chunks(pass_on: Callable[[bytes], object], chunk: bytes) -> Callable[[], None]:
    def work() -> None:
        for _ in range(CHUNKS):
            pass_on(chunk)

    return work


def _copy(chunk: bytes) -> bytes:
    return bytes(bytearray(chunk))


def _row(name: str, chunk: bytes, values: dict[str, str]) -> Row:
    feed = Masker(values).stream().feed
    times = in_turns({"mask": _all_chunks(feed, chunk), "copy": _all_chunks(_copy, chunk)}, rounds=ROUNDS)
    speed, copy = (CHUNKS * len(chunk) / times[one].p50 / 1e6 for one in ("mask", "copy"))
    figure = f"{speed:.0f} MB/s (a plain copy: {copy:.0f})"
    return at_least(f"masking, ten secrets, {name}", speed, 200, figure=figure, unit=" MB/s")


def main() -> list[Row]:
    values = {f"SECRET_{i}": secrets.token_urlsafe(30) for i in range(10)}
    line = b'{"level": "info", "message": "an ordinary line of a log", "count": 12345}\n'
    texts = {"log lines": (line * (CHUNK // len(line) + 1))[:CHUNK], "random bytes": os.urandom(CHUNK)}
    rows = [_row(name, chunk, values) for name, chunk in texts.items()]
    print_rows("Masking", rows)
    return rows


if __name__ == "__main__":
    main()
