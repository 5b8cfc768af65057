"""Strict validation agrees with the reference validator on generated files, differences explained one by one.

CI compares 1,500 files, always the same. For a wider search, with new files every time:

    SKILLEXEC_PROPERTY_CASES=10000 python -m pytest -q tests/test_strict_property.py

The reference is the real `skills_ref`. Where the two may differ, the expected verdict is the reference's own, with
just that one bug repaired (`_repaired`), so that an explained difference is checked as closely as an agreement.
"""

from __future__ import annotations

import os
import re
import tempfile
import unicodedata
import warnings
from pathlib import Path

import pytest
import strictyaml
from hypothesis import HealthCheck, example, given, settings
from skill_files import BOM, NAME, documents, mutants
from skills_ref.validator import validate, validate_metadata

from skillexec.errors import SkillError
from skillexec.model import Severity
from skillexec.skills import frontmatter
from skillexec.skills.strict import validate_strict

CASES = int(os.environ.get("SKILLEXEC_PROPERTY_CASES", "0"))
SETTINGS = settings(
    max_examples=(CASES or 1500) // 2,  # of each of two kinds
    derandomize=not CASES,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
ACCEPT, REJECT, CRASH = "accept", "reject", "crash"


def _verdict(errors: object) -> str:
    return REJECT if errors else ACCEPT


def _ours(directory: Path) -> str:
    return _verdict([found for found in validate_strict(directory) if found.severity is Severity.ERROR])


def _crash(error: Exception) -> str:
    """A crash over something that no reader could accept has to be a rejection; one over comments tells nothing."""
    refusal = (
        isinstance(error, AttributeError | UnicodeDecodeError | AssertionError)
        or "Duplicate" in type(error).__name__
    )
    return REJECT if refusal or "unhashable" in str(error) else CRASH


def _reference(directory: Path) -> str:
    try:
        return _verdict(validate(directory))
    except Exception as error:  # whatever it is, it reaches the reference's user as a traceback
        return _crash(error)


def _universal(data: bytes) -> str:
    return data.decode().replace("\r\n", "\n").replace("\r", "\n")


def _slices(data: bytes) -> tuple[str | None, str | None]:
    """The frontmatter as the reference cuts it, at any `---`, and as a line that is `---` ends it."""
    text = _universal(data).removeprefix(BOM)
    parts = text.split("---", 2)
    theirs = parts[1] if text.startswith("---") and len(parts) == 3 else None
    try:
        ours = frontmatter.split(text.encode()).yaml.decode()
    except SkillError:
        ours = None
    return theirs, ours


def _explained(data: bytes) -> bool:
    """Whether one of the reference's own bugs is at work, other than a crash."""
    theirs, ours = _slices(data)
    return data.decode().startswith(BOM) or theirs != ours


def _repaired(data: bytes, directory: Path) -> str:
    """The reference's verdict on the frontmatter, had it not cut it wrongly nor minded the mark."""
    _, yaml = _slices(data)
    if yaml is None:
        return REJECT
    try:
        metadata = strictyaml.load(yaml).data
        return _verdict(not isinstance(metadata, dict) or validate_metadata(metadata, directory))
    except strictyaml.YAMLError:
        return REJECT
    except Exception as error:
        return _crash(error)


def _compare(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as parent, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # strictyaml warns of reused anchors before it refuses them
        directory = Path(parent) / NAME
        directory.mkdir()
        (directory / "SKILL.md").write_bytes(data)
        expected = _repaired(data, directory) if _explained(data) else _reference(directory)
        if expected != CRASH:
            assert _ours(directory) == expected, validate_strict(directory)
        _accepted_is_readable(directory, data)


def _accepted_is_readable(directory: Path, data: bytes) -> None:
    """What passes is YAML that the lenient reading understands too, and in the same way."""
    if _ours(directory) == REJECT or _libyaml_differs(data):
        return
    values = frontmatter.parse(frontmatter.split(data)).values
    assert unicodedata.normalize("NFKC", values["name"].strip()) == NAME
    assert values["description"].strip()


def _libyaml_differs(data: bytes) -> bool:
    """libyaml has other line ends, no empty keys, no tabs in indentation, no half characters; nobody writes these."""
    _, yaml = _slices(data)
    return bool(re.search("[\x85\u2028\u2029\t]|^[ -]*(: |:$)|\\\\ud800", yaml or "", re.MULTILINE))


@SETTINGS
@given(documents())
@example(f"---\nname: {NAME}\ndescription: a --- b\n---\n".encode())
@example(f"{BOM}---\nname: {NAME}\ndescription: b\n---\n".encode())
@example(f"---\nname: {NAME}\ndescription: b\nmetadata:\n\n\ta: b\n---\n".encode())
def test_strict_agrees_with_the_reference_on_files_from_the_grammar(data: bytes) -> None:
    _compare(data)


@SETTINGS
@given(mutants())
def test_strict_agrees_with_the_reference_on_damaged_files(data: bytes) -> None:
    _compare(data)


def _written(parent: Path, data: bytes) -> Path:
    directory = parent / NAME
    directory.mkdir()
    (directory / "SKILL.md").write_bytes(data)
    return directory


HEAD = f"---\nname: {NAME}\ndescription: Reads files.\n"


def test_dashes_inside_a_value_end_the_frontmatter_for_the_reference_only(tmp_path: Path) -> None:
    directory = _written(tmp_path, f"---\nname: {NAME}\ndescription: 'before --- after'\n---\n".encode())
    assert (_reference(directory), _ours(directory)) == (REJECT, ACCEPT)


def test_dashes_that_hide_an_unknown_key_do_not_hide_it_from_us(tmp_path: Path) -> None:
    directory = _written(tmp_path, f"{HEAD}license: a---b\nunknown: x\n---\n".encode())
    assert (_reference(directory), _ours(directory)) == (ACCEPT, REJECT)


def test_a_byte_order_mark_is_rejected_by_the_reference_only(tmp_path: Path) -> None:
    directory = _written(tmp_path, f"{BOM}{HEAD}---\n".encode())
    assert (_reference(directory), _ours(directory)) == (REJECT, ACCEPT)


def test_nested_metadata_passes_both_and_gets_a_warning_from_us(tmp_path: Path) -> None:
    directory = _written(tmp_path, f"{HEAD}metadata:\n  a:\n    b: c\n---\n".encode())
    assert (_reference(directory), _ours(directory)) == (ACCEPT, ACCEPT)
    assert [found.rule for found in validate_strict(directory)] == ["metadata-nested"]


@pytest.mark.parametrize(
    ("tail", "verdict", "rule"),
    [
        (b"license: \xff\n", REJECT, "encoding"),
        (b"license: a\x07\n", REJECT, "yaml-control"),
        (b"metadata:\n  ? - a\n  : b\n", REJECT, "yaml-key"),
        (b"metadata:\n  <<:\n    a: b\n  <<:\n    a: b\n", REJECT, "yaml-merge"),
        (b"metadata:\n\n\n-\n  # note\n- a\n", ACCEPT, None),
    ],
)
def test_what_crashes_the_reference_gets_a_verdict_from_us(
    tmp_path: Path, tail: bytes, verdict: str, rule: str | None
) -> None:
    directory = _written(tmp_path, HEAD.encode() + tail + b"---\n")
    with pytest.raises(Exception):  # noqa: B017 - of five different kinds, none of them meant
        validate(directory)
    assert _ours(directory) == verdict
    assert rule is None or rule in [found.rule for found in validate_strict(directory)]
