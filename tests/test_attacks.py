"""What hostile agents, authors and scripts and clumsy operators tried with success, once. Each stays closed."""

from __future__ import annotations

import base64
import os
import shlex
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import run_python
from running import SYSTEM, TEAM, Place

from skillexec.audit import Event, append, open_runs
from skillexec.audit.verify import verify
from skillexec.catalog import library_for
from skillexec.cli.context import App
from skillexec.cli.root import _save
from skillexec.config import Root, load_config
from skillexec.disclosure import Disclosure
from skillexec.errors import Denied, PathRefused, StateUnusable, Usage
from skillexec.home import Home, find_home
from skillexec.init import create_home
from skillexec.model import Decision, RunRequest, Skill, Source, Status
from skillexec.permissions.decision import Decider
from skillexec.permissions.grants import Wish
from skillexec.redact import Masker
from skillexec.runner import Runner
from skillexec.sandbox import Sandbox
from skillexec.schemas import Violation, violations
from skillexec.skills.bundle import take_bundle
from skillexec.skills.discovery import Library
from skillexec.state import State
from skillexec.testing import FakeVault
from skillexec.vault import Answer

HELLO = {"run.py": "print('hello')\n"}
LOOK = {"run.py": "import os\nprint('API_TOKEN' in os.environ)\n"}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def runner(place: Place) -> Iterator[Runner]:
    place.skill("hello", HELLO)
    with place.runner() as opened:
        yield opened


# --- an author who changes the folder at the right moment


class _Swapped(Library):
    """A library whose answer is out of date when it arrives: the author writes another SKILL.md at that moment."""

    def __init__(self, library: Library, swap: dict[Path, str]) -> None:
        super().__init__(library.roots, cache=library.cache)
        self.swap = swap

    def get(self, name: str) -> Skill:
        found = super().get(name)
        for path, text in self.swap.items():
            path.write_text(text)
        return found


def test_how_a_skill_runs_comes_from_the_bytes_that_were_pinned(place: Place) -> None:
    folder = place.skill("look", LOOK)
    pinned, innocent = take_bundle(folder), (folder / "SKILL.md").read_text()
    with place.admin() as admin:
        admin.add_grants(SYSTEM, [Wish("look", Source.ORG, pin=pinned.digest)])
    place.map_secret("API_TOKEN", "op://vault/item/field")
    place.skill("look", {}, extension={"required_env": ["API_TOKEN"]}, grant=False)
    with place.runner(backend=FakeVault({"op://vault/item/field": "a-real-secret"})) as runner:
        runner._library = _Swapped(runner._library, {folder / "SKILL.md": innocent})
        result = runner.run("look", system=SYSTEM)
    assert (result.digest, result.stdout.text) == (pinned.digest, "False\n")


def test_a_skill_that_takes_another_name_while_it_is_loaded_is_denied(place: Place) -> None:
    folder = place.skill("look", LOOK)
    renamed = (folder / "SKILL.md").read_text().replace("name: look", "name: other")
    with place.runner() as runner:
        runner._library = _Swapped(runner._library, {folder / "SKILL.md": renamed})
        assert runner.run("look", system=SYSTEM).status is Status.DENIED


class _Slow(Decider):
    """Decides, and by then the author has changed the files."""

    folder: Path

    def decide(self, *args: Any, **named: Any) -> Decision:
        decision = super().decide(*args, **named)
        (self.folder / "notes.md").write_text("Swapped.\n")
        (self.folder / "SKILL.md").write_text("---\nname: hello\ndescription: d\n---\nSwapped.\n")
        return decision


def test_what_is_shown_is_what_was_decided_on(place: Place) -> None:
    folder = place.skill("hello", {**HELLO, "notes.md": "Notes.\n"})
    decider = _Slow()
    decider.folder = folder
    library = library_for(load_config(place.home.config_file), place.home)
    with State.open(place.home.state_file) as state:
        disclosure = Disclosure(state, library, decider, actor="tester")
        assert disclosure.read(SYSTEM, "hello", "notes.md").text == "Notes.\n"
        place.skill("hello", {}, grant=False)
        assert disclosure.activate(SYSTEM, "hello").text == "Body."


def test_a_scripts_name_cannot_forge_lines_of_the_question_that_a_person_is_asked(place: Place) -> None:
    forged = "a\n  secrets  none\x1b[2J.py"
    place.skill("forger", {forged: "print(1)\n"}, source=Source.USER)
    asked: list[Any] = []

    def confirm(question: object) -> bool:
        asked.append(question)
        return True

    with place.runner() as runner:
        result = runner.run("forger", system=SYSTEM, confirm=confirm)
    assert (result.status, asked) == (Status.INVALID_INPUT, [])
    assert place.story(result.run_id)[-1] == ("run.ended", "invalid_input")


def test_a_command_that_a_hint_suggests_is_one_command_whatever_a_folder_is_called(place: Place) -> None:
    project, outside = place.folder / "project", place.folder / "x'; touch pwned; '"
    outside.mkdir()
    (project / ".claude").mkdir(parents=True)
    (project / ".claude" / "skills").symlink_to(outside)
    config = load_config(place.home.config_file)
    (problem,) = library_for(config, place.home, project=project).scan().problems
    assert shlex.split(problem.hint.strip("`"))[3:] == [str(outside), "--source", "user"]


def test_a_file_whose_name_cannot_be_recorded_is_not_shown_to_a_system(place: Place) -> None:
    place.skill("hello", {**HELLO, "no\nte.md": "x"})
    library = library_for(load_config(place.home.config_file), place.home)
    with State.open(place.home.state_file) as state, pytest.raises(PathRefused, match="on the record"):
        Disclosure(state, library, Decider(), actor="tester").read(SYSTEM, "hello", "no\nte.md")


def test_a_value_nested_too_deep_for_its_schema_is_refused_in_few_words() -> None:
    deep: Any = 1
    for _ in range(200_000):
        deep = [deep]
    schema = {"$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}}
    assert violations(schema, deep) == [Violation("$", "it is nested too deep")]


# --- an agent


def test_nobody_learns_by_asking_which_skills_there_are(place: Place) -> None:
    place.skill("closed", HELLO, grant=False)
    library = library_for(load_config(place.home.config_file), place.home)
    answers = []
    with State.open(place.home.state_file) as state:
        disclosure = Disclosure(state, library, Decider(), actor="tester")
        for name in ("closed", "clozed"):
            with pytest.raises(Denied) as denied:
                disclosure.activate(SYSTEM, name)
            answers.append(f"{denied.value.message} {denied.value.hint}".replace(name, "NAME"))
    assert answers[0] == answers[1]
    assert [record.skill for record in place.records(event="decision.denied")] == ["closed", "clozed"]


def test_a_request_cannot_write_into_the_story_of_another_run(place: Place, runner: Runner) -> None:
    runner.run("hello", system=SYSTEM, run_id="mine")
    story = place.story("mine")
    for wrong in (
        RunRequest("hello", "nobody"),
        RunRequest("hello", SYSTEM, "none.py"),
        RunRequest("hello", SYSTEM),
    ):
        with pytest.raises(Usage, match="started before"):
            runner.run(replace(wrong, run_id="mine"))
    assert place.story("mine") == story


def test_a_run_that_is_going_on_cannot_be_ended_on_the_record_by_another(place: Place) -> None:
    with State.open(place.home.state_file) as state:
        with state.write() as connection:
            append(connection, Event("run.started", "a", system=SYSTEM, run="r"))
        with pytest.raises(Usage), state.write() as connection:
            append(connection, Event("decision.allowed", "b", system=SYSTEM, run="r", outcome="allowed"))
            append(connection, Event("run.ended", "b", system=SYSTEM, run="r", outcome="invalid_input"))
        with state.read() as connection:
            assert [run.run for run in open_runs(connection)] == ["r"]


@pytest.mark.parametrize("run_id", ["a b", "a\nb", "\x1b[2J", "x" * 65])
def test_nothing_is_done_for_a_run_of_an_impossible_id(place: Place, run_id: str) -> None:
    place.skill("look", LOOK, extension={"required_env": ["API_TOKEN"]})
    place.map_secret("API_TOKEN", "op://vault/item/field")
    vault = FakeVault({"op://vault/item/field": "a-real-secret"})
    with place.runner(backend=vault) as runner, pytest.raises(Usage, match="id"):
        runner.run("look", system=SYSTEM, run_id=run_id)
    assert vault.asked == []


@pytest.mark.parametrize(
    "wrong",
    [{"timeout": 1e-9}, {"args": ("\ud800",)}, {"module": "a" * 2000}, {"input": {"k": "\ud800"}}],
    ids=["no time at all", "half a surrogate pair", "a module's name of 2000", "half a pair in the input"],
)
def test_a_request_that_makes_no_sense_is_refused_on_the_record(
    place: Place, runner: Runner, wrong: dict[str, Any]
) -> None:
    result = runner.run("hello", system=SYSTEM, **wrong)
    assert result.status is Status.INVALID_INPUT
    assert place.story(result.run_id) == [("decision.allowed", "allowed"), ("run.ended", "invalid_input")]


def test_input_without_an_end_is_refused(place: Place) -> None:
    place.skill("hello", HELLO)
    deep = place.folder / "deep.json"
    deep.write_text("[" * 200_000 + "]" * 200_000)
    for words in (("--input", f"@{deep}"), ("--file", "/dev/zero:x")):
        done = place.command("run", "hello", "--as", SYSTEM, *words)
        assert done.returncode == 23, done.stderr


def test_a_grant_that_is_revoked_while_a_person_is_asked_is_gone(place: Place) -> None:
    place.skill("hello", HELLO, source=Source.USER)

    def confirm(_question: object) -> bool:
        with place.admin() as admin:
            admin.remove_grants(SYSTEM, ["hello"])
        return True

    with place.runner() as runner:
        result = runner.run("hello", system=SYSTEM, confirm=confirm)
    assert (result.status, place.story(result.run_id)) == (Status.DENIED, [("decision.denied", "denied")])


def test_an_approval_that_is_revoked_while_the_vault_answers_is_gone(place: Place) -> None:
    folder = place.skill("hello", HELLO, source=Source.USER, extension={"required_env": ["TOKEN"]})
    place.map_secret("TOKEN", "op://vault/item/field")
    with place.admin() as admin:
        admin.approve(SYSTEM, "hello", take_bundle(folder).digest)

    class Slow(FakeVault):
        async def fetch(self, references: Sequence[str]) -> Mapping[str, Answer]:
            with place.admin() as admin:
                admin.revoke_approvals(SYSTEM)
            return await super().fetch(references)

    with place.runner(backend=Slow({"op://vault/item/field": "a-long-value"})) as runner:
        result = runner.run("hello", system=SYSTEM)
    assert result.status is Status.CONFIRMATION_REQUIRED
    assert "run.started" not in dict(place.story(result.run_id))


# --- a script


@pytest.mark.parametrize(
    "call",
    [
        "resource.prlimit(1, resource.RLIMIT_NOFILE, (0, 0))",
        "resource.prlimit(1, resource.RLIMIT_DATA, (0, 0))",
        "os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0))",
        "os.setpriority(os.PRIO_PROCESS, 1, 19)",
        "os.setpriority(os.PRIO_USER, 0, 19)",
        # The kernel reads 32 bits of a process number; a filter that compares 64 sees another one.
        "raw(302, 1 << 32 | 1, 7, pointer, 0)",
    ],
)
def test_a_script_cannot_starve_the_launcher_that_reports_on_it(sandbox: Sandbox, call: str) -> None:
    code = f"""
        import ctypes, os, resource
        libc = ctypes.CDLL(None, use_errno=True)
        libc.syscall.argtypes = [ctypes.c_long] * 5
        limits = (ctypes.c_ulong * 2)(0, 0)
        pointer = ctypes.addressof(limits)
        def raw(*numbers):
            if libc.syscall(*numbers):
                raise PermissionError(ctypes.get_errno())
        try:
            {call}
        except PermissionError:
            print("refused")
    """
    outcome = run_python(sandbox, code)
    assert (outcome.status, outcome.stdout.text) == (Status.OK, "refused\n")


def test_a_script_can_still_lower_its_own_limits(sandbox: Sandbox) -> None:
    code = "import os, resource\nresource.prlimit(0, resource.RLIMIT_CORE, (0, 0))\nprint(os.nice(3))\n"
    assert run_python(sandbox, code).stdout.text == "3\n"


def _lines(text: bytes, width: int) -> bytes:
    return b"\n".join(text[start : start + width] for start in range(0, len(text), width))


def test_a_long_secret_is_masked_in_the_lines_that_encoders_make_of_it() -> None:
    secret = "sk-live-" + "0123456789abcdefghijklmnopqrstuvwxyz" * 4
    masker = Masker({"KEY": secret})
    for behind in ("", "\n"):
        raw = (secret + behind).encode()
        encoded = base64.b64encode(raw)
        for text in (_lines(encoded, 76), _lines(encoded, 64), _lines(raw.hex().encode(), 60)):
            # What is left over stands for the newline behind, and padding.
            assert len(masker.mask(text)) < len(masker.mask_bytes) + 6, text


def test_a_fifo_in_the_folder_for_artifacts_is_not_waited_for(place: Place) -> None:
    code = "import os\nopen(os.environ['SKILLEXEC_OUT'] + '/x', 'w').write('1')\n"
    place.skill("writer", {"run.py": code})
    out = place.folder / "out"
    out.mkdir()
    os.mkfifo(out / "x")
    done = place.command("run", "writer", "--as", SYSTEM, "--out", str(out), timeout=30)
    assert done.returncode == 2 and "can't write artifacts" in done.stderr


# --- an operator, and whoever has the database


@pytest.mark.parametrize("name", ["a?b=c", "a%20b", "a#b", "a\nb", "a;b", "a@b:c"])
def test_a_homes_state_lies_in_that_home_whatever_it_is_called(tmp_path: Path, name: str) -> None:
    home = Home(tmp_path / name)
    create_home(home, actor="tester", config="")
    with State.open(home.state_file) as state, state.read():
        pass
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert home.state_file.stat().st_size


def test_a_home_of_nobody_is_refused() -> None:
    with pytest.raises(StateUnusable):
        find_home("~no-such-user/home")


def test_a_user_without_a_name_can_act(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME", "SKILLEXEC_ACTOR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    assert App().actor == "uid-54321"


def test_a_root_that_was_added_meanwhile_is_not_lost(place: Place) -> None:
    app = App()
    app.home_option = str(place.home.path)
    before = app.config().ordered_roots()
    added, late = place.folder / "added", place.folder / "late"
    for folder in (added, late):
        folder.mkdir()
    assert place.command("root", "add", str(added), "--source", "org").returncode == 0
    new = Root(late, Source.ORG)
    with pytest.raises(Usage, match="meanwhile"):
        _save(app, (*before, new), "root.added", new, before=before)
    assert added in {root.path for root in app.config().roots}
    assert [record.data["folder"] for record in place.records(event="root.added")] == [str(added)]


def test_a_root_that_cannot_be_recorded_is_refused(place: Place) -> None:
    (place.folder / "new\nline").mkdir()
    done = place.command("root", "add", str(place.folder / "new\nline"), "--source", "org")
    assert done.returncode == 2 and "on the record" in done.stderr


def test_a_trigger_that_changes_grants_behind_the_record_is_found(place: Place) -> None:
    with sqlite3.connect(place.home.state_file) as connection:
        connection.execute(
            f"CREATE TRIGGER quiet AFTER INSERT ON envelopes BEGIN DELETE FROM envelopes WHERE team = '{TEAM}'; END"
        )
    with State.open(place.home.state_file) as state, state.read() as connection:
        assert ["quiet" in finding.problem for finding in verify(connection).findings] == [True]


def test_an_approval_cannot_end_beyond_time(place: Place) -> None:
    place.skill("hello", HELLO, source=Source.USER)
    done = place.command("approve", "hello", "--as", SYSTEM, "--until", "9999-12-31T23:59:59-14:00")
    assert done.returncode == 2 and "is no time" in done.stderr
