"""docs/settings.md names every setting and the bounds that are in force."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from skillexec.config import Config, Sandbox
from skillexec.sandbox import BOUNDS

PAGE = (Path(__file__).parent.parent / "docs" / "settings.md").read_text()
_UNITS = {"": 1, "MiB": 1 << 20, "GiB": 1 << 30}


def _number(text: str) -> float:
    amount, unit = re.fullmatch(r"([\d.]+) ?(\w*)", text.strip()).groups()  # type: ignore[union-attr]
    return float(amount) * _UNITS[unit]


@pytest.mark.parametrize("section", ["timeouts", "sandbox", "secrets", "trust"])
def test_every_setting_is_on_the_page(section: str) -> None:
    for setting in fields(getattr(Config(), section)):
        assert re.search(rf"`(\[{section}\] )?{setting.name}`", PAGE), setting.name


@pytest.mark.parametrize("name", [name for name in BOUNDS if name != "seconds"])
def test_the_bounds_on_the_page_are_those_in_force(name: str) -> None:
    row = re.search(rf"^\| `{name}` \| (.*?) \| (.*?) \| (.*?) \|$", PAGE, re.MULTILINE)
    assert row, name
    assert (_number(row[2]), _number(row[3])) == BOUNDS[name]
    stated = re.match(r"[\d.]+( [MG]iB)?", row[1])
    assert stated
    assert _number(stated[0]) == getattr(Sandbox(), name)
