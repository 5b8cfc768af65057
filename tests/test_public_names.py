"""What `from skillexec import ...` offers, and that importing the package itself does nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

import skillexec


@pytest.mark.parametrize("name", skillexec.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(skillexec, name).__name__ == name


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = skillexec.no_such_name


def test_importing_the_package_loads_nothing_else_of_ours() -> None:
    program = (
        "import sys, skillexec; print(sorted(name for name in sys.modules if name.startswith('skillexec')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['skillexec']"
