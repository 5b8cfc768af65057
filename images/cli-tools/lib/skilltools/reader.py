"""file-reader: ranges of the files that a caller handed in, documents as text.

Offsets count in the text's UTF-8 form. For a UTF-8 file those are the file's own bytes and lines; for everything
else (UTF-16, PDF, Word, a sheet) those of the text that was taken from it.
"""

from __future__ import annotations

import argparse
import csv
import io
import itertools
import json
import mimetypes
import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from skilltools import documents, inputs
from skilltools.program import (
    OUTPUT_BUDGET,
    Program,
    Unsupported,
    deadline,
    fitting,
    folder,
    integer,
    json_size,
)

SECONDS = 50
CONTENT_BUDGET = OUTPUT_BUDGET - 200_000  # the rest is for names, columns and keys
_LIMITS = {"lines": 2000, "bytes": 65_536, "rows": 500}
_HUGE = 1 << 53  # what JSON numbers carry exactly


@dataclass(frozen=True)
class Window:
    """A part of a text: `returned` units from `offset`, of `total`."""

    offset: int
    returned: int
    total: int
    content: str | None = None
    rows: list[list[str]] | None = None
    note: str | None = None

    def document(self) -> dict[str, object]:
        end = self.offset + self.returned
        part = {"rows": self.rows} if self.rows is not None else {"content": self.content}
        return {
            "offset": self.offset,
            "returned": self.returned,
            "total": self.total,
            "next_offset": end if end < self.total else None,
            "truncated": end < self.total or self.note is not None,
            "note": self.note,
            **part,
        }


def _shown(text: str) -> str:
    """Bytes that are not UTF-8, carried as surrogates so that they can be counted, as replacement characters."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _lines(stream: BinaryIO, offset: int, limit: int) -> Window:
    kept: list[str] = []
    spent, total, note, full = 0, 0, None, False
    for total, line in enumerate(stream, 1):  # to the end: its last value is the count
        if total <= offset or len(kept) == limit or full:
            continue
        text = _shown(line.decode("utf-8", "surrogateescape"))
        spent += json_size(text)
        full = spent > CONTENT_BUDGET
        if full and not kept:
            kept.append(fitting(text, CONTENT_BUDGET))
            note = f"line {offset} is longer than fits: read it with --unit bytes"
        elif not full:
            kept.append(text)
    return Window(offset, len(kept), total, "".join(kept), note=note)


def _is_inside_character(byte: int) -> bool:
    return byte & 0xC0 == 0x80


def _bytes(stream: BinaryIO, offset: int, limit: int) -> Window:
    """A range of bytes, widened to whole characters: its end may lie up to three bytes further, its start too."""
    total = stream.seek(0, io.SEEK_END)
    stream.seek(min(offset, total))
    data = stream.read(limit + 6)
    start = len(list(itertools.takewhile(_is_inside_character, data[:3])))
    end = start + limit
    end += len(list(itertools.takewhile(_is_inside_character, data[end : end + 3])))
    text = fitting(data[start:end].decode("utf-8", "surrogateescape"), CONTENT_BUDGET)
    return Window(offset + start, len(text.encode("utf-8", "surrogateescape")), total, _shown(text))


def _fitting_rows(rows: Iterable[list[str]]) -> list[list[str]]:
    kept, spent = [], 0
    for row in rows:
        spent += len(json.dumps(row)) + 2
        if spent > CONTENT_BUDGET:
            break
        kept.append(row)
    return kept


def _rows(stream: BinaryIO, offset: int, limit: int, delimiter: str) -> Window:
    text = io.TextIOWrapper(stream, "utf-8", "replace", newline="")
    table = csv.reader(text, delimiter=delimiter)
    try:
        skipped = sum(1 for _ in itertools.islice(table, offset))
        wanted = list(itertools.islice(table, limit))
        total = skipped + len(wanted) + sum(1 for _ in table)
    except csv.Error as error:
        raise Unsupported(f"not a table: line {table.line_num}: {error}") from None
    kept = _fitting_rows(wanted)
    note = f"row {offset} is longer than fits: read it with --unit bytes" if wanted and not kept else None
    return Window(offset, len(kept), total, rows=kept, note=note)


def _window(document: documents.Document, stream: BinaryIO, options: argparse.Namespace) -> dict[str, object]:
    limit = options.limit or _LIMITS[options.unit]
    if options.unit == "bytes":
        window = _bytes(stream, options.offset, limit)
    elif options.unit == "lines":
        window = _lines(stream, options.offset, limit)
    elif "delimiter" in document.about:
        window = _rows(stream, options.offset, limit, str(document.about["delimiter"]))
    else:
        raise Unsupported(
            f"only tables (csv, tsv, xlsx) have rows, and this is {document.kind}: use --unit lines"
        )
    return {"unit": options.unit, **window.document()}


def _file(descriptor: int, options: argparse.Namespace) -> dict[str, object]:
    with os.fdopen(descriptor, "rb") as file, deadline(SECONDS):
        document = documents.read(file, options.path, options.sheet)
        described = {
            "path": options.path,
            "kind": document.kind,
            "media_type": mimetypes.guess_type(options.path)[0],
            "size": os.fstat(descriptor).st_size,
            "encoding": document.encoding,
            "about": dict(document.about),
        }
        if document.stream is None:
            return {**described, "content": None, "note": "not text: only its size and kind are told"}
        return {**described, **_window(document, document.stream, options)}


def _folder(descriptor: int, path: str, root: str) -> dict[str, object]:
    prefix = "".join(f"{part}/" for part in inputs.relative(path, root))
    try:
        entries, more = inputs.listing(descriptor, prefix)
    finally:
        os.close(descriptor)
    return {
        "path": path,
        "kind": "folder",
        "entries": [{"path": entry.path, "kind": entry.kind, "size": entry.size} for entry in entries],
        "truncated": more,
    }


def read(options: argparse.Namespace) -> dict[str, object]:
    """A range of a file, or what is in a folder."""
    root = folder("SKILLEXEC_IN")
    descriptor = inputs.open_inside(root, options.path)
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        return _folder(descriptor, options.path, root)
    return _file(descriptor, options)


def _program() -> Program:
    program = Program(
        "file-reader",
        "Reads the files that were handed to the run: text, CSV, JSON, PDF, Word and Excel, in ranges, as JSON.",
        epilog="Paths are relative to $SKILLEXEC_IN. Links are not followed, and nothing outside is read.",
    )
    add = program.command("read", "read a range of a file, or list a folder", read).add_argument
    add(
        "--path",
        default=".",
        metavar="PATH",
        help="a file or folder below the input folder (default the folder itself)",
    )
    add("--offset", type=integer(0, _HUGE), default=0, metavar="N", help="units to skip (default 0)")
    add(
        "--limit",
        type=integer(1, _HUGE),
        metavar="N",
        help="units to return, as far as the answer has room (default 2000 lines, 65536 bytes, 500 rows)",
    )
    add(
        "--unit",
        choices=("lines", "bytes", "rows"),
        default="lines",
        help="rows: of csv, tsv and xlsx (default lines)",
    )
    add("--sheet", metavar="NAME", help="which sheet of a workbook (default the first)")
    lister = program.command("list", "list the input folder, or one below it", read)
    lister.add_argument("--path", default=".", metavar="PATH", help="a folder (default the input folder)")
    lister.set_defaults(offset=0, limit=1, unit="lines", sheet=None)
    return program


def main(arguments: Sequence[str] | None = None) -> int:
    return _program().main(arguments)
