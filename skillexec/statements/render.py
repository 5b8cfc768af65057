"""Writes `sqlite.py`: `python -m skillexec.statements.render`."""

from __future__ import annotations

import re
from pathlib import Path

from sqlalchemy.dialects.sqlite import dialect

from skillexec.schema import VERSION
from skillexec.statements.core import statements

FILE = Path(__file__).with_name("sqlite.py")
_HEAD = '''"""Made by `python -m skillexec.statements.render` from core.py: change it there."""

VERSION = {version}  # of the tables that these statements are made for
'''


def _text(statement: object) -> str:
    compiled = statement.compile(dialect=dialect(paramstyle="named"))  # type: ignore[attr-defined]
    known = [name for name, value in compiled.params.items() if value is not None]
    if known:
        raise ValueError(f"constants have to be literals in the statement: {known}")
    return re.sub(r"[ \t]*\n[ \t]*", "\n    ", str(compiled).strip())


def rendered() -> str:
    """The text of the file."""
    made = [f'{name} = """\n    {_text(statement)}\n"""\n' for name, statement in statements().items()]
    return "\n".join([_HEAD.format(version=VERSION), *made])


if __name__ == "__main__":
    FILE.write_text(rendered())
