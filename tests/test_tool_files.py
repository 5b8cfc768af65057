"""file-reader: ranges of handed-in files, and nothing but those."""

from __future__ import annotations

import argparse
import base64
import io
import json
import os
import random
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from skilltools import reader
from tool_runs import Ended, run, run_in_image


def _read(folder: Path, path: str, *arguments: str) -> Ended:
    return run("file-reader", "read", "--path", path, *arguments, env={"SKILLEXEC_IN": str(folder)})


# --- ranges ---


def test_lines_are_read_in_ranges_that_say_where_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"line {number}\n" for number in range(10)))
    document = _read(tmp_path, "a.txt", "--offset", "3", "--limit", "2").document
    assert document == {
        "path": "a.txt",
        "kind": "text",
        "media_type": "text/plain",
        "size": 70,
        "encoding": "utf-8",
        "about": {},
        "unit": "lines",
        "offset": 3,
        "returned": 2,
        "total": 10,
        "next_offset": 5,
        "truncated": True,
        "note": None,
        "content": "line 3\nline 4\n",
    }
    assert _read(tmp_path, "a.txt", "--offset", "8").document["next_offset"] is None
    assert _read(tmp_path, "a.txt", "--offset", "99").document["content"] == ""


def _all(path: str, unit: str, limit: int) -> tuple[list[str], list[int]]:
    """Every part of a file, read by following next_offset, in this process."""
    parts, offsets, offset = [], [], 0
    while True:
        asked = argparse.Namespace(path=path, offset=offset, limit=limit, unit=unit, sheet=None)
        document: dict[str, Any] = reader.read(asked)
        parts.append(document["content"])
        offsets.append(document["offset"])
        if document["next_offset"] is None:
            return parts, offsets
        assert document["next_offset"] > offset
        offset = document["next_offset"]


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text(st.characters(exclude_categories=["Cs", "Cc"], include_characters="\n\r\t"), min_size=1),
    unit=st.sampled_from(["bytes", "lines"]),
    limit=st.integers(1, 9),
)
def test_the_parts_of_a_file_add_up_to_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, unit: str, limit: int
) -> None:
    monkeypatch.setenv("SKILLEXEC_IN", str(tmp_path))
    data = text.encode()
    if data.startswith(b"\xef\xbb\xbf"):
        text = text[1:]  # a byte order mark is not part of the text
    (tmp_path / "f").write_bytes(data)
    parts, _ = _all("f", unit, limit)
    assert "".join(parts) == text
    assert all(part.count("\n") <= limit for part in parts) or unit == "bytes"


def test_a_range_that_begins_inside_a_character_begins_after_it(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("aé€b")
    document = _read(tmp_path, "a", "--unit", "bytes", "--offset", "2", "--limit", "1").document
    assert (document["offset"], document["content"], document["next_offset"]) == (3, "€", 6)


@pytest.mark.parametrize("unit", ["lines", "bytes"])
def test_an_answer_always_fits_what_the_sandbox_keeps(tmp_path: Path, unit: str) -> None:
    (tmp_path / "a").write_text("\x1b" * 3_000_000)  # six bytes each in JSON, on one line
    ended = _read(tmp_path, "a", "--unit", unit, "--limit", "9000000")
    assert 600_000 < len(json.dumps(ended.document)) < 900_000
    assert ended.document["truncated"]
    assert (ended.document["note"] is not None) == (unit == "lines")


# --- kinds of files ---


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        ("Grüße\n".encode(), "utf-8"),
        ("Grüße\n".encode("utf-8-sig"), "utf-8-sig"),
        ("Grüße\n".encode("utf-16"), "utf-16"),
        ("Grüße\n".encode("utf-32"), "utf-32"),
        ("Grüße\n".encode("cp1252"), "cp1252"),
    ],
)
def test_text_is_read_in_the_encodings_that_occur(tmp_path: Path, data: bytes, encoding: str) -> None:
    (tmp_path / "a.txt").write_bytes(data)
    document = _read(tmp_path, "a.txt").document
    assert (document["content"], document["encoding"]) == ("Grüße\n", encoding)


def test_a_stray_byte_past_the_sample_is_shown_as_replaced(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a" * 70_000 + b"\xff" + b"b")
    assert _read(tmp_path, "a", "--unit", "bytes", "--offset", "69999").document["content"] == "a�b"


def test_binary_is_reported_and_not_shown(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    document = _read(tmp_path, "a.png").document
    assert (document["kind"], document["content"], document["size"]) == ("binary", None, 108)
    assert document["media_type"] == "image/png"


def test_a_table_is_read_by_rows_and_names_its_columns(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('name;note\nann;"two\nlines"\nbob;x\n')
    document = _read(tmp_path, "t.csv", "--unit", "rows", "--offset", "1").document
    assert document["rows"] == [["ann", "two\nlines"], ["bob", "x"]]
    assert document["about"] == {"delimiter": ";", "columns": ["name", "note"]}
    assert document["total"] == 3


def test_rows_of_what_is_no_table_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    assert _read(tmp_path, "a.txt", "--unit", "rows").error["code"] == "unsupported"


@pytest.mark.parametrize(
    ("text", "about"),
    [
        ('{"a": 1, "b": 2}', {"valid": True, "type": "object", "keys": ["a", "b"], "length": 2}),
        ("[1]", {"valid": True, "type": "array", "length": 1}),
        ("true", {"valid": True, "type": "boolean"}),
        ("1.5", {"valid": True, "type": "number"}),
    ],
)
def test_json_is_described(tmp_path: Path, text: str, about: dict[str, object]) -> None:
    (tmp_path / "a.json").write_text(text)
    document = _read(tmp_path, "a.json").document
    assert (document["about"], document["content"], document["kind"]) == (about, text, "json")


@pytest.mark.parametrize("text", ["{", "[" * 100_000])
def test_broken_json_is_still_read_as_text(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    document = _read(tmp_path, "a.json").document
    assert not document["about"]["valid"]
    assert document["content"] == text


WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def _docx(body: str, prolog: str = "") -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        xml = f'{prolog}<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>'
        archive.writestr("word/document.xml", xml)
    return packed.getvalue()


def test_a_word_document_becomes_text(tmp_path: Path) -> None:
    body = (
        '<w:p><w:pPr><w:pStyle w:val="Heading2"/></w:pPr><w:r><w:t>Title</w:t></w:r></w:p>'
        "<w:p><w:r><w:t>One</w:t><w:tab/><w:t>two</w:t><w:br/><w:t>three</w:t></w:r></w:p>"
        "<w:tbl><w:tr><w:tc><w:p><w:r><w:t>a</w:t></w:r></w:p></w:tc><w:tc><w:p><w:r><w:t>b</w:t></w:r></w:p></w:tc></w:tr></w:tbl>"
        "<w:sdt><w:sdtContent><w:p><w:r><w:t>inside</w:t></w:r></w:p></w:sdtContent></w:sdt>"
    )
    (tmp_path / "a.docx").write_bytes(_docx(body))
    document = _read(tmp_path, "a.docx").document
    assert (document["kind"], document["content"]) == (
        "docx",
        "## Title\n\nOne\ttwo\nthree\n\na\tb\n\ninside\n",
    )


@pytest.mark.parametrize(
    "data",
    [
        b"PK\x03\x04 and then nothing",
        _docx("<w:p>"),
        _docx(
            "&lol9;",
            "<!DOCTYPE x ["
            + "".join(f'<!ENTITY lol{n} "{f"&lol{n - 1};" * 10 if n else "ha" * 99}">' for n in range(10))
            + "]>",
        ),
    ],
)
def test_a_damaged_or_hostile_document_is_unsupported(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.docx").write_bytes(data)
    assert _read(tmp_path, "a.docx").error["code"] == "unsupported"


def test_a_document_that_unpacks_to_too_much_is_refused(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", bytes(30 << 20))
    (tmp_path / "a.docx").write_bytes(packed.getvalue())
    assert _read(tmp_path, "a.docx").error["code"] == "too_large"


def test_an_archive_that_is_no_document_is_binary(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a", "b")
    (tmp_path / "a.zip").write_bytes(packed.getvalue())
    assert _read(tmp_path, "a.zip").document["kind"] == "binary"


# --- PDF and Excel: with what the image has ---

STREAM = b"BT /F1 24 Tf 72 700 Td (Hello from page %d) Tj ET"


def _pdf() -> bytes:
    """Two pages, written by hand; readers rebuild the missing table of offsets."""
    pages = b"".join(
        b"%d 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents %d 0 R"
        b"/Resources<</Font<</F1 5 0 R>>>>>>endobj\n"
        b"%d 0 obj<</Length %d>>stream\n%s\nendstream endobj\n"
        % (3 + 10 * n, 4 + 10 * n, 4 + 10 * n, len(STREAM % n), STREAM % n)
        for n in (1, 2)
    )
    return (
        b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n"
        b"2 0 obj<</Type/Pages/Kids[13 0 R 23 0 R]/Count 2>>endobj\n"
        b"5 0 obj<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>endobj\n"
        + pages
        + b"trailer<</Root 1 0 R>>\n%%EOF\n"
    )


IN_IMAGE = """
import base64, datetime, json, os, subprocess, sys
import openpyxl
os.makedirs("/work/in")
for name, data in json.loads(sys.argv[1]).items():
    open("/work/in/" + name, "wb").write(base64.b64decode(data))
book = openpyxl.Workbook()
book.active.title = "First"
book.active.append(["name", "when", "how much"])
book.active.append(["ann", datetime.date(2026, 1, 2), 1.5])
book.create_sheet("Second").append(["other"])
book.save("/work/in/book.xlsx")
cases = {
    "pdf": ["--path", "a.pdf"],
    "not a pdf": ["--path", "broken.pdf"],
    "rows": ["--path", "book.xlsx", "--unit", "rows"],
    "lines": ["--path", "book.xlsx", "--offset", "1"],
    "second": ["--path", "book.xlsx", "--sheet", "Second"],
    "no sheet": ["--path", "book.xlsx", "--sheet", "Third"],
    "folder": [],
}
env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "SKILLEXEC_IN": "/work/in"}
ended = {}
for name, arguments in cases.items():
    done = subprocess.run(["file-reader", "read", *arguments], env=env, capture_output=True)
    ended[name] = json.loads(done.stdout)
print(json.dumps(ended))
"""


@pytest.fixture(scope="module")
def in_image() -> dict[str, Any]:
    noise = random.Random(1).randbytes(500)
    files = {"a.pdf": _pdf(), "broken.pdf": b"%PDF-1.7\n" + noise}
    packed = {name: base64.b64encode(data).decode() for name, data in files.items()}
    ended: dict[str, Any] = run_in_image("python3", "-", json.dumps(packed), stdin=IN_IMAGE)
    return ended


def test_a_pdf_becomes_text(in_image: dict[str, Any]) -> None:
    document = in_image["pdf"]
    assert (document["kind"], document["about"]) == ("pdf", {"pages": 2})
    assert [line.strip() for line in document["content"].split("\f")[:2]] == [
        "Hello from page 1",
        "Hello from page 2",
    ]
    assert in_image["not a pdf"]["error"]["code"] == "unsupported"


def test_a_workbook_is_read_as_a_table_by_sheet(in_image: dict[str, Any]) -> None:
    assert in_image["rows"]["rows"] == [["name", "when", "how much"], ["ann", "2026-01-02T00:00:00", "1.5"]]
    assert in_image["rows"]["about"]["sheets"] == ["First", "Second"]
    assert in_image["lines"]["content"] == "ann,2026-01-02T00:00:00,1.5\n"
    assert in_image["second"]["content"] == "other\n"
    assert in_image["no sheet"]["error"]["code"] == "not_found"


def test_the_installed_reader_lists_its_input_folder(in_image: dict[str, Any]) -> None:
    assert [entry["path"] for entry in in_image["folder"]["entries"]] == ["a.pdf", "book.xlsx", "broken.pdf"]


# --- what is not read ---


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("outside")
    folder = tmp_path / "in"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "a.txt").write_text("inside")
    (folder / "link").symlink_to("sub/a.txt")
    (folder / "out").symlink_to("..")
    os.mkfifo(folder / "pipe")
    return folder


def test_a_folder_is_listed_with_what_each_entry_is(inputs: Path) -> None:
    listed = run("file-reader", "list", env={"SKILLEXEC_IN": str(inputs)}).document
    assert listed["entries"] == [
        {"path": "link", "kind": "link", "size": 0},
        {"path": "out", "kind": "link", "size": 0},
        {"path": "pipe", "kind": "other", "size": 0},
        {"path": "sub", "kind": "folder", "size": 0},
        {"path": "sub/a.txt", "kind": "file", "size": 6},
    ]
    assert _read(inputs, "sub").document["entries"] == [{"path": "sub/a.txt", "kind": "file", "size": 6}]


@pytest.mark.parametrize(
    "path", ["../secret", "sub/../../secret", "/etc/passwd", "link", "out/secret", "pipe"]
)
def test_nothing_outside_the_folder_is_read_and_no_link_followed(inputs: Path, path: str) -> None:
    ended = _read(inputs, path)
    assert (ended.status, ended.error["code"]) == (4, "refused")


def test_the_folder_s_own_path_may_stand_before_a_name(inputs: Path) -> None:
    assert _read(inputs, f"{inputs}/sub/a.txt").document["content"] == "inside"
    assert _read(inputs, f"{inputs}-other").error["code"] == "refused"


@pytest.mark.parametrize("path", ["nothing", "sub/nothing", "sub/a.txt/x"])
def test_a_missing_file_is_told(inputs: Path, path: str) -> None:
    assert _read(inputs, path).error["code"] == "not_found"


def test_a_name_that_is_not_text_can_be_listed(tmp_path: Path) -> None:
    os.close(os.open(os.fsencode(tmp_path) + b"/bad-\xff", os.O_CREAT))
    listed = run("file-reader", "list", env={"SKILLEXEC_IN": str(tmp_path)}).document
    assert os.fsencode(listed["entries"][0]["path"]) == b"bad-\xff"


def test_a_long_listing_says_that_there_is_more(tmp_path: Path) -> None:
    for number in range(1001):
        (tmp_path / f"{number:04}").touch()
    listed = run("file-reader", "list", env={"SKILLEXEC_IN": str(tmp_path)}).document
    assert (len(listed["entries"]), listed["truncated"]) == (1000, True)


def test_outside_the_sandbox_it_says_so() -> None:
    assert run("file-reader", "list").error["code"] == "refused"
