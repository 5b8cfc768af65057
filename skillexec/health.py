"""What works here and what does not, with the next step for each: what `skillexec doctor` shows."""

from __future__ import annotations

import enum
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skillexec.config import Config, load_config
from skillexec.errors import InfraError, SkillexecError
from skillexec.home import Home
from skillexec.model import RunResult, Source
from skillexec.vault import TOKEN_VARIABLE

# Below these runc lets a container out: CVE-2025-31133, CVE-2025-52565, CVE-2025-52881.
_FIXED_RUNC = ((1, 2, 8), (1, 3, 3))


class Mark(enum.StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Check:
    """One finding: about what, how it is, and what to do about it."""

    subject: str
    mark: Mark
    finding: str
    hint: str = ""
    exit_status: int = 0

    def as_json(self) -> dict[str, str]:
        return {"subject": self.subject, "mark": str(self.mark), "finding": self.finding, "hint": self.hint}


def _failed(subject: str, error: SkillexecError) -> Check:
    return Check(subject, Mark.FAILED, error.message, error.hint, error.exit_status)


def _version(text: str) -> tuple[int, ...]:
    """The leading numbers of a version like 1.1.5+ds1."""
    found = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def _runc_is_fixed(version: tuple[int, ...]) -> bool:
    return version >= _FIXED_RUNC[1] or (version[:2] == (1, 2) and version >= _FIXED_RUNC[0])


def _engine() -> Iterator[Check]:
    from skillexec.sandbox.engine import Engine

    about = Engine().about()
    runtime = f"{about.runtime} {about.runtime_version}".strip()
    yield Check("engine", Mark.OK, f"Docker {about.version}, {runtime}, cgroup v{about.cgroup}")
    if about.runtime == "runc" and not _runc_is_fixed(_version(about.runtime_version)):
        yield Check(
            "engine",
            Mark.WARNING,
            f"{runtime} lacks the fixes of 2025 against container escapes",
            "upgrade runc to 1.2.8, 1.3.3 or newer, or use gVisor: sandbox.runtime",
        )
    if not about.seccomp:
        yield Check(
            "engine", Mark.FAILED, "the engine has no seccomp", "use a kernel and an engine with it", 30
        )


def _image(config: Config) -> Iterator[Check]:
    from skillexec import images

    verdict = images.check(config.sandbox.image)
    wrong = [finding for finding in verdict.findings if not finding.ok]
    if not wrong:
        yield Check(
            "image", Mark.OK, f"{verdict.tag} {verdict.digest[:19]}, {len(verdict.findings)} checks passed"
        )
    for finding in wrong:
        yield Check(
            "image", Mark.FAILED, f"{finding.name}: {finding.detail}", finding.fix, InfraError.exit_status
        )


def _state(home: Home) -> Iterator[Check]:
    from skillexec.audit import head
    from skillexec.state import State

    home.check()
    with State.open(home.state_file) as state, state.read() as connection:
        records = head(connection).seq
    yield Check("state", Mark.OK, f"{home.path}, {records} audit records")
    if not home.audit_key.exists():
        yield Check("state", Mark.FAILED, f"no key at {home.audit_key}", "restore it from a backup", 40)


def _skills(home: Home, config: Config) -> Iterator[Check]:
    from skillexec.catalog import library_for

    found = library_for(config, home).scan()
    yield Check("skills", Mark.OK, f"{len(found.skills)} found")
    for broken in found.broken:
        yield Check(
            "skills", Mark.WARNING, f"{broken.directory}: {broken.reason}", "`skillexec skill list --broken`"
        )
    for problem in found.problems:
        yield Check("skills", Mark.WARNING, f"{problem.path}: {problem.message}", problem.hint)


def _secrets(home: Home, config: Config) -> Iterator[Check]:
    from skillexec.permissions.references import secret_mappings
    from skillexec.state import State

    with State.open(home.state_file) as state, state.read() as connection:
        mapped = len(secret_mappings(connection))
    if not mapped:
        yield Check("secrets", Mark.OK, "none mapped; `skillexec secret map` when a skill needs one")
    elif os.environ.get(TOKEN_VARIABLE) or config.secrets.account:
        yield Check("secrets", Mark.OK, f"{mapped} mapped; `skillexec secret check` asks for them")
    else:
        yield Check(
            "secrets", Mark.WARNING, f"{mapped} mapped, and no 1Password token", f"set {TOKEN_VARIABLE}"
        )


def checks(home: Home) -> Iterator[Check]:
    """Each check as it is done. A failure of one does not keep the others from being done."""
    try:
        config = load_config(home.config_file)
    except SkillexecError as error:
        yield _failed("config", error)
        return
    parts = (
        ("engine", _engine()),
        ("image", _image(config)),
        ("state", _state(home)),
        ("skills", _skills(home, config)),
        ("secrets", _secrets(home, config)),
    )
    for subject, part in parts:
        try:
            yield from part
        except SkillexecError as error:
            yield _failed(subject, error)


_CONFORMANCE = "skillexec-conformance"
_SCRIPTS = ("scripts/check.py", "scripts/check.sh", "scripts/check.js")


def _make_conforming(home: Home) -> None:
    """A home with nothing in it but the grant to run the conformance skill."""
    from skillexec.admin import Admin
    from skillexec.init import create_home
    from skillexec.permissions.grants import Wish
    from skillexec.state import State

    create_home(home, actor="doctor", config="")
    with State.open(home.state_file) as state:
        admin = Admin(state, actor="doctor")
        admin.add_team("doctor", root=True)
        admin.add_system("doctor", team="doctor")
        admin.add_grants("doctor", [Wish(_CONFORMANCE, Source.BUILTIN)])


def deep_checks(home: Home) -> Iterator[Check]:
    """Run the conformance skill by the real path, in a home of its own that is gone afterwards."""
    try:
        load_config(home.config_file)  # of which that home gets a copy
        yield from _run_conformance(home)
    except SkillexecError as error:
        yield _failed("deep", error)


def _run_conformance(home: Home) -> Iterator[Check]:
    from skillexec.model import InputFile
    from skillexec.runner import Runner

    with tempfile.TemporaryDirectory(prefix="skillexec-doctor-") as folder:
        apart = Home(Path(folder) / "home")
        _make_conforming(apart)
        if home.config_file.is_file():
            shutil.copy(home.config_file, apart.config_file)
        with Runner.open(apart.path, warm=1, actor="doctor") as runner:
            for script in _SCRIPTS:
                result = runner.run(
                    _CONFORMANCE,
                    system="doctor",
                    script=script,
                    input={"echo": "skillexec"},
                    files=(InputFile("sample.txt", b"skillexec\n"),),
                )
                yield _conformance(script, result)


def _conformance(script: str, result: RunResult) -> Check:
    if result.ok:
        passed = len(result.output.get("checks", ())) if isinstance(result.output, dict) else 0
        return Check("deep", Mark.OK, f"{script}: {passed} checks passed inside the sandbox")
    problem = result.error.message if result.error else str(result.status)
    hint = (result.error.hint if result.error else "") or "run `skillexec image build`"
    return Check("deep", Mark.FAILED, f"{script}: {problem}{_failed_inside(result.output)}", hint, 30)


def _failed_inside(output: Any) -> str:
    checks = output.get("checks", ()) if isinstance(output, dict) else ()
    wrong = [f"{item['name']} ({item.get('detail', '')})" for item in checks if not item.get("ok")]
    return f": {', '.join(wrong)}" if wrong else ""


def verdict(shown: Iterable[Check]) -> int:
    """The exit status: that of the worst finding."""
    return max((check.exit_status for check in shown), default=0)
