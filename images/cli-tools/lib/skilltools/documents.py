"""Files as text: what kind a file is, and its text as one UTF-8 stream, whatever it came from."""

from __future__ import annotations

import codecs
import csv
import io
import json
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO, cast
from xml.etree import ElementTree

from skilltools.program import NotFound, TooLarge, Unsupported

_SAMPLE = 64 << 10
# Taken into memory, several times over while it is converted: a fraction of what a container has.
MEMORY_MAX = 24 << 20
_JSON_MAX = 8 << 20
_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16: its mark begins with UTF-16's
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_TEXT_BYTES = frozenset({*range(32, 256), 9, 10, 12, 13, 27})


@dataclass(frozen=True)
class Document:
    """`stream` is the text in UTF-8, and none for what has no text; `about` what else is known."""

    kind: str  # text, csv, json, pdf, docx, xlsx, binary
    stream: BinaryIO | None = None
    encoding: str | None = None
    about: Mapping[str, object] = field(default_factory=dict)


def _encoding(sample: bytes) -> str | None:
    """How a file's text is encoded; none where it is not text."""
    for mark, name in _BOMS:
        if sample.startswith(mark):
            return name
    if not _TEXT_BYTES.issuperset(sample):
        return None
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)  # a sample may end inside a character
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"


def _bounded(source: BinaryIO, what: str) -> bytes:
    data = source.read(MEMORY_MAX + 1)
    if len(data) > MEMORY_MAX:
        raise TooLarge(f"{what} has more than {MEMORY_MAX} bytes", max_bytes=MEMORY_MAX)
    return data


def _as_utf8(file: BinaryIO, encoding: str) -> BinaryIO:
    """The file itself where it is UTF-8 already, of any size; else a converted copy."""
    if encoding == "utf-8":
        return file
    return io.BytesIO(_bounded(file, f"{encoding} text").decode(encoding, "replace").encode())


def _csv_about(sample: bytes) -> dict[str, object]:
    text = sample.decode("utf-8", "replace")
    try:
        delimiter = csv.Sniffer().sniff(text[:8192], ",;\t|").delimiter
        columns = next(csv.reader(io.StringIO(text), delimiter=delimiter), [])
    except csv.Error:
        delimiter, columns = ",", []
    return {"delimiter": delimiter, "columns": [column[:200] for column in columns[:200]]}


def _json_about(stream: BinaryIO) -> dict[str, object]:
    data = stream.read(_JSON_MAX + 1)
    if len(data) > _JSON_MAX:
        return {}
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        return {"valid": False, "problem": str(error)[:200]}
    names = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}
    about: dict[str, object] = {"valid": True, "type": names.get(type(value), "number")}
    if isinstance(value, dict):
        about["keys"] = [key[:200] for key in list(value)[:200]]
    return about | ({"length": len(value)} if isinstance(value, (dict, list)) else {})


def _text(file: BinaryIO, name: str, encoding: str) -> Document:
    stream = _as_utf8(file, encoding)
    suffix = name.lower().rpartition(".")[2]
    about: dict[str, object] = {}
    if suffix in {"csv", "tsv"}:
        about = _csv_about(stream.read(_SAMPLE))
    elif suffix == "json":
        about = _json_about(stream)
    stream.seek(0)
    kinds = {"csv": "csv", "tsv": "csv", "json": "json"}
    return Document(kinds.get(suffix, "text"), stream, encoding, about)


def _pdf(file: BinaryIO) -> Document:
    # The deadline of the program kills it: nothing here waits for ever. Handed in as stdin, no path is followed.
    text = tempfile.TemporaryFile()  # noqa: SIM115 - the reader reads from it, and it ends with the program
    try:
        done = subprocess.run(
            ["pdftotext", "-layout", "-enc", "UTF-8", "-", "-"],
            stdin=file,
            stdout=text,
            stderr=subprocess.PIPE,
            check=False,
        )
    except FileNotFoundError:
        raise Unsupported("pdftotext is not in this image") from None
    if done.returncode != 0:
        problem = done.stderr.decode("utf-8", "replace").strip().split("\n")[0]
        raise Unsupported(f"the PDF can't be read: {problem or done.returncode}")
    text.seek(0)
    pages = sum(block.count(b"\f") for block in iter(lambda: text.read(_SAMPLE), b""))
    text.seek(0)
    return Document("pdf", cast("BinaryIO", text), "utf-8", {"pages": pages})


def _paragraph(element: ElementTree.Element) -> str:
    pieces = {f"{_WORD}tab": "\t", f"{_WORD}br": "\n", f"{_WORD}cr": "\n"}
    text = "".join(
        (part.text or "") if part.tag == f"{_WORD}t" else pieces.get(part.tag, "") for part in element.iter()
    )
    style = element.find(f"{_WORD}pPr/{_WORD}pStyle")
    name = "" if style is None else style.get(f"{_WORD}val", "")
    level = name[7:] if name.startswith("Heading") else ""
    return f"{'#' * int(level)} {text}" if level in set("123456") and text else text


def _word_blocks(parent: ElementTree.Element) -> Iterator[str]:
    for element in parent:
        if element.tag == f"{_WORD}p":
            yield _paragraph(element)
        elif element.tag == f"{_WORD}tbl":
            rows = (row.iter(f"{_WORD}tc") for row in element.iter(f"{_WORD}tr"))
            cells = ([" ".join(" ".join(_word_blocks(cell)).split()) for cell in row] for row in rows)
            yield "\n".join("\t".join(row) for row in cells)
        elif element.tag in {f"{_WORD}sdt", f"{_WORD}sdtContent"}:
            yield from _word_blocks(element)


def _docx(archive: zipfile.ZipFile) -> Document:
    with archive.open("word/document.xml") as part:
        data = _bounded(cast("BinaryIO", part), "the document")
    # expat itself stops entity amplification, and this runs in a container of its own.
    body = ElementTree.fromstring(data).find(f"{_WORD}body")  # noqa: S314
    text = "\n\n".join(
        block for block in _word_blocks(body if body is not None else ElementTree.Element("none")) if block
    )
    return Document("docx", io.BytesIO((text + "\n").encode()), "utf-8")


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _xlsx(file: BinaryIO, archive: zipfile.ZipFile, sheet: str | None) -> Document:
    import openpyxl

    unpacked = sum(member.file_size for member in archive.infolist())
    if unpacked > 4 * MEMORY_MAX:
        raise TooLarge(f"the workbook unpacks to {unpacked} bytes", max_bytes=4 * MEMORY_MAX)
    book = openpyxl.load_workbook(file, read_only=True, data_only=True)
    name = sheet if sheet is not None else book.sheetnames[0]
    if name not in book.sheetnames:
        raise NotFound(f"no such sheet: {name}", sheets=book.sheetnames)
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    for row in book[name].iter_rows(values_only=True):
        table.writerow([_cell(value) for value in row])
    about = {"sheets": book.sheetnames, "sheet": name, "delimiter": ","}
    return Document("xlsx", io.BytesIO(text.getvalue().encode()), "utf-8", about)


def _zipped(file: BinaryIO, sheet: str | None) -> Document:
    try:
        with zipfile.ZipFile(file) as archive:
            names = set(archive.namelist())
            if "word/document.xml" in names:
                return _docx(archive)
            if "xl/workbook.xml" in names:
                return _xlsx(file, archive, sheet)
    except (
        zipfile.BadZipFile,
        ElementTree.ParseError,
        KeyError,
        ValueError,
        RuntimeError,
        EOFError,
    ) as error:
        # RuntimeError is what zipfile raises for a part that needs a password.
        raise Unsupported(f"the document is damaged or protected: {error}") from None
    return Document("binary")


def read(file: BinaryIO, name: str, sheet: str | None) -> Document:
    """A file as a document, by what its first bytes are; its name only tells CSV and JSON from other text."""
    sample = file.read(_SAMPLE)
    file.seek(0)
    if sample.startswith(b"%PDF-"):
        return _pdf(file)
    if sample.startswith(b"PK\x03\x04"):
        return _zipped(file, sheet)
    encoding = _encoding(sample)
    return Document("binary") if encoding is None else _text(file, name, encoding)
