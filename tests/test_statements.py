"""The statements of a run are shipped as SQL: it is what SQLAlchemy Core makes of them, and it fits the tables."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from skillexec.state import State
from skillexec.statements import driver, sqlite
from skillexec.statements.core import statements
from skillexec.statements.render import FILE, rendered


def test_the_shipped_sql_is_what_core_renders() -> None:
    assert FILE.read_text() == rendered(), "run: python -m skillexec.statements.render"


def test_every_statement_is_one_that_the_database_of_a_new_home_takes(tmp_path: Path) -> None:
    with State.open(tmp_path / "state.db", create=True) as state, state.quick_read() as connection:
        for name in statements():
            assert connection.execute("EXPLAIN " + getattr(sqlite, name), _Anything()).fetchall(), name


class _Anything(dict[str, None]):
    def __missing__(self, _name: str) -> None:
        return None


def test_what_a_run_asks_never_reads_a_whole_table(tmp_path: Path) -> None:
    with State.open(tmp_path / "state.db", create=True) as state, state.quick_read() as connection:
        for name in ("CHAIN", "APPROVAL", "HEAD", "BEFORE", "KNOWN_RUN", "CLOSE_RUN"):
            rows = connection.execute("EXPLAIN QUERY PLAN " + getattr(sqlite, name), _Anything())
            scans = [row[3] for row in rows if row[3].startswith("SCAN") and "chain" not in row[3]]
            assert not [scan for scan in scans if "CONSTANT ROW" not in scan], (name, scans)


def test_the_drivers_connection_is_in_the_same_transaction(tmp_path: Path) -> None:
    with State.open(tmp_path / "state.db", create=True) as state:
        with state.write() as connection:
            driver(connection).execute("INSERT INTO teams (name) VALUES ('inside')")
            assert connection.exec_driver_sql("SELECT name FROM teams").scalars().all() == ["inside"]
            connection.connection.rollback()
            driver(connection).execute("BEGIN")
        with state.quick_read() as quick:
            assert driver(quick) is quick
            assert quick.execute("SELECT name FROM teams").fetchall() == []


def test_a_run_from_the_shell_loads_no_sqlalchemy(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from skillexec.__main__ import main\n"
        f"home = {str(tmp_path / 'home')!r}\n"
        "def call(*words):\n"
        "    try: main(['--home', home, *words])\n"
        "    except SystemExit: pass\n"
        "call('init')\n"
        "for name in [name for name in sys.modules if name.partition('.')[0] in ('sqlalchemy', 'skillexec')]:\n"
        "    del sys.modules[name]\n"
        "from skillexec.__main__ import main\n"
        "call('run', 'file-reader', '--as', 'nobody', '--json')\n"
        "print('sqlalchemy' in sys.modules, 'casbin' in sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert '"rule": "unknown_system"' in done.stdout
    assert done.stderr.strip() == "False False"
