"""Secrets on the real path: they reach the script and nobody else, and without them nothing runs."""

from __future__ import annotations

import base64
import json
import os
import secrets as random_secrets
import subprocess
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from conftest import containers
from running import SYSTEM, TEAM, Place

from skillexec.cli import boundary
from skillexec.cli.live import Live
from skillexec.errors import SkillError, Usage
from skillexec.model import RunResult, Status
from skillexec.result import as_document, exit_status
from skillexec.runner import Runner
from skillexec.sandbox import Cancel
from skillexec.sandbox.spec import LABEL_OWNER
from skillexec.testing import FakeVault
from skillexec.vault import Answer

KEY, OTHER = "op://agents/search/key", "op://agents/mail/password"
PLAIN = "canary" + random_secrets.token_hex(12)
AWKWARD = f'{PLAIN[6:18]}/"q"+ü% &<{PLAIN[18:]}'
NAMES = {"required_env": ["API_KEY"]}

SPELL = r"""
import base64, json, os, sys, time, urllib.parse
value = os.environ["API_KEY"]
raw = value.encode()
forms = [raw, raw.hex().encode(), raw.hex().upper().encode(), urllib.parse.quote(value, safe="").encode(),
         urllib.parse.quote_plus(value).encode(), json.dumps(value).encode()]
forms += [json.dumps(value, ensure_ascii=False).encode()]
forms += [base64.b64encode(b"x" * lead + raw + b"yz") for lead in range(3)]
forms += [base64.urlsafe_b64encode(b"x" * lead + raw) for lead in range(3)]
for form in forms:
    for stream in (1, 2):
        os.write(stream, b"<" + form[:7]); time.sleep(0.002); os.write(stream, form[7:] + b">\n")
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    made = Place(tmp_path_factory.mktemp("secrets"))
    made.skill("spell", {"run.py": SPELL}, extension=NAMES)
    made.skill("shell", {"run.sh": 'eval "$1"\n'}, extension=NAMES)
    made.skill("open", {"run.sh": 'eval "$1"\n'})
    made.skill("two", {"run.py": "print('ran')"}, extension={"required_env": ["API_KEY", "SECOND"]})
    made.skill("lone", {"run.py": "print('ran')"}, extension={"required_env": ["NOBODY_MAPPED_ME"]})
    made.map_secret("API_KEY", KEY)
    made.map_secret("SECOND", OTHER)
    return made


@pytest.fixture(scope="module")
def runner(place: Place) -> Iterator[Runner]:
    with place.runner(backend=FakeVault({KEY: AWKWARD, OTHER: PLAIN}), warm=2) as opened:
        yield opened


def _python(runner: Runner, code: str, **request: Any) -> RunResult:
    """Python code as the shell skill's own process would see the world."""
    return runner.run("shell", system=SYSTEM, args=(f"exec python3 -c '{code}'",), **request)


def _spellings(value: str) -> list[bytes]:
    raw = value.encode()
    shifted = [base64.b64encode(b"\0" * lead + raw + b"\0\0")[4:-8] for lead in range(3)]
    return [
        raw,
        raw.hex().encode(),
        quote(value, safe="").encode(),
        json.dumps(value)[1:-1].encode(),
        *shifted,
    ]


def _assert_clean(data: bytes, value: str) -> None:
    assert [form for form in _spellings(value) if form in data] == []


# -- where a value goes


def test_the_value_reaches_the_script_in_its_environment(runner: Runner) -> None:
    result = _python(runner, 'import os; print(len(os.environ["API_KEY"].encode()))')
    assert (result.status, result.stdout.text) == (Status.OK, f"{len(AWKWARD.encode())}\n"), result.error


def test_no_other_secret_of_the_mapping_is_there(runner: Runner) -> None:
    result = _python(runner, "import os; print(sorted(os.environ))")
    assert "'API_KEY'" in result.stdout.text
    assert "SECOND" not in result.stdout.text


def test_every_form_is_masked_in_both_streams_live_and_kept_and_counted(runner: Runner) -> None:
    seen: list[bytes] = []
    result = runner.run("spell", system=SYSTEM, on_output=lambda _, data: seen.append(data))
    assert result.status is Status.OK, result.error
    for data in (result.stdout.data, result.stderr.data, b"".join(seen)):
        _assert_clean(data, AWKWARD)
        assert b"[redacted]" in data
    assert result.redactions >= 2 * 13
    _assert_clean(json.dumps(as_document(result)).encode(), AWKWARD)


def test_the_parsed_output_is_masked_even_where_json_hides_the_value_behind_escapes(runner: Runner) -> None:
    code = (
        'import os, json; v = os.environ["API_KEY"]; e = "".join("\\\\u%04x" % ord(c) for c in v); '
        'print("[\\"%s\\", {\\"%s\\": [\\"\\\\ud800\\", 1]}]" % (e, e))'
    )
    result = _python(runner, code)
    assert result.output == ["[redacted]", {"[redacted]": ["\ud800", 1]}]
    _assert_clean(repr(result.output).encode(), AWKWARD)


def test_output_nested_without_end_is_no_output_and_no_crash(runner: Runner) -> None:
    result = _python(runner, 'print("[" * 900 + "]" * 900)')
    assert result.status is Status.OK


def test_artifact_names_and_notes_and_errors_are_masked(place: Place, runner: Runner) -> None:
    place.skill("named", {"run.py": "print(1)"}, extension=NAMES, grant=False)
    place.system("namer", "named", "two")
    with place.runner(backend=FakeVault({KEY: PLAIN, OTHER: PLAIN[::-1]}), warm=1) as other:
        result = other.run(
            "shell", system=SYSTEM, args=('echo x > "$SKILLEXEC_OUT/report-$API_KEY.txt"; kill -9 $$',)
        )
    assert [artifact.name for artifact in result.artifacts] == ["report-[redacted].txt"]
    document = json.dumps(as_document(result, with_artifacts=True)).encode()
    _assert_clean(document, PLAIN)


def test_a_note_on_what_was_left_out_shows_no_value_though_it_spells_names_in_ascii(place: Place) -> None:
    value = "n\u00e9e's \\ p\u00e4ss"
    with place.runner(backend=FakeVault({KEY: value, OTHER: value}), warm=0) as other:
        result = other.run("shell", system=SYSTEM, args=('ln -s /x "$SKILLEXEC_OUT/$API_KEY"',))
    assert result.status is Status.OK, result.error
    assert ["[redacted]" in note for note in result.notes] == [True]
    _assert_clean(json.dumps(as_document(result)).encode(), value)


def test_an_output_schema_violation_does_not_repeat_a_value(place: Place) -> None:
    strict = {"type": "object", "additionalProperties": False, "properties": {"n": {"type": "integer"}}}
    code = 'import json, os; print(json.dumps({os.environ["API_KEY"]: 1, "n": os.environ["API_KEY"]}))'
    place.skill("strict", {"run.py": code}, extension={**NAMES, "output_schema": strict}, grant=False)
    place.system("strict-one", "strict")
    with place.runner(backend=FakeVault({KEY: PLAIN}), warm=0) as other:
        result = other.run("strict", system="strict-one")
    assert result.status is Status.INVALID_OUTPUT
    assert result.error is not None
    _assert_clean(json.dumps(as_document(result)).encode(), PLAIN)


# -- where a value is not


def _grep(paths: list[str], value: str) -> list[str]:
    """Files below the paths that hold the value or its base64; the patterns are in nobody's arguments."""
    known = [path for path in paths if Path(path).exists()]
    patterns = b"\n".join(form for form in _spellings(value))
    found = subprocess.run(
        ["grep", "-r", "-l", "-a", "-s", "-F", "-f", "-", "--devices=skip", *known],
        input=patterns,
        capture_output=True,
        check=False,
    )
    return found.stdout.decode().splitlines()


def _engine_folders(container: str) -> list[str]:
    """What engine and runtime keep of one container, outside of image layers."""
    root = subprocess.run(
        ["docker", "info", "--format", "{{.DockerRootDir}}"], capture_output=True, text=True, check=True
    ).stdout.strip()
    beneath = [f"{root}/containers", f"{root}/containerd", "/run/docker", "/run/containerd"]
    found = subprocess.run(
        ["find", *beneath, "-xdev", "-name", f"*{container}*", "-prune"],
        capture_output=True,
        text=True,
        check=False,
    )
    return found.stdout.split()


def _bundle_files(folders: list[str]) -> list[str]:
    """The regular files of those folders; a mounted root file system is not descended into."""
    found = subprocess.run(
        ["find", *folders, "-xdev", "-type", "f"], capture_output=True, text=True, check=False
    )
    return found.stdout.split()


def _processes_with(value: str) -> set[int]:
    """The processes of this machine that show the value in their arguments or environment."""
    hits = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            for part in ("cmdline", "environ"):
                try:
                    data = (folder / part).read_bytes()
                except OSError:
                    continue  # it ended, or is a kernel's own
                if any(form in data for form in _spellings(value)):
                    hits.add(int(folder.name))
    return hits


def _of_container(container: str) -> dict[int, int]:
    """The container's processes: number here -> number inside."""
    found = {}
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and container in (folder / "cgroup").read_text():
                status = (folder / "status").read_text()
                inside = next(line for line in status.splitlines() if line.startswith("NSpid:")).split()[-1]
                found[int(folder.name)] = int(inside)
        except OSError:
            continue
    return found


class Spy:
    """Looks around while the script runs, then ends it."""

    def __init__(self, runner: Runner) -> None:
        self.cancel = Cancel()
        self.runner = runner
        self.hits: list[str] = []
        self.looked_at: list[str] = []
        self.own: set[int] = set()

    def look(self, _stream: str, _data: bytes) -> None:
        owner = f"label={LABEL_OWNER}={self.runner._sandbox._owner}"
        (container,) = containers(owner, "status=running")
        inspected = subprocess.run(["docker", "inspect", container], capture_output=True, check=True).stdout
        self.hits += ["inspect"] if any(form in inspected for form in _spellings(PLAIN)) else []
        self.looked_at = _bundle_files(_engine_folders(container))
        self.hits += _grep(self.looked_at, PLAIN)
        inside = _of_container(container)
        hit = _processes_with(PLAIN)
        self.own = {number for number in hit if inside.get(number, 1) != 1}
        self.hits += [f"process {number}" for number in hit - self.own]
        self.cancel.cancel()


@pytest.fixture(scope="module")
def spied(place: Place) -> Iterator[tuple[Spy, RunResult]]:
    with place.runner(backend=FakeVault({KEY: PLAIN}), warm=0) as runner:
        spy = Spy(runner)
        code = "echo up; sleep 55"
        yield spy, runner.run("shell", system=SYSTEM, args=(code,), on_output=spy.look, cancel=spy.cancel)


def test_while_it_runs_the_value_is_in_the_scripts_own_processes_and_nowhere_else(
    spied: tuple[Spy, RunResult],
) -> None:
    spy, result = spied
    assert result.status is Status.CANCELLED
    assert spy.own, "the search finds nothing at all: it proves nothing"
    assert any(path.endswith("config.v2.json") for path in spy.looked_at)  # the engine's own
    assert any(path.endswith("/config.json") for path in spy.looked_at)  # the runtime's
    assert spy.hits == []


def test_the_search_would_find_a_value_that_an_engine_was_given(tmp_path: Path) -> None:
    """The same search, over a container whose environment holds the value: the way we do not go."""
    image = os.environ.get("SKILLEXEC_SANDBOX_IMAGE", "skillexec/cli-tools:current")
    started = subprocess.run(
        ["docker", "run", "-d", "--rm", "--network", "none", "-e", f"API_KEY={PLAIN}", image, "sleep", "60"],
        capture_output=True,
        text=True,
        check=True,
    )
    container = started.stdout.strip()
    try:
        found = _grep(_bundle_files(_engine_folders(container)), PLAIN)
    finally:
        subprocess.run(["docker", "kill", container], capture_output=True, check=True)
    assert any(path.endswith("config.v2.json") for path in found)
    assert any(path.endswith("/config.json") for path in found)


def test_after_the_run_nothing_on_disk_and_no_process_holds_it(
    place: Place, spied: tuple[Spy, RunResult]
) -> None:
    _, result = spied
    assert _processes_with(PLAIN) == set()
    exported = place.command("audit", "export")
    assert result.run_id in exported.stdout, exported.stderr
    _assert_clean(exported.stdout.encode(), PLAIN)
    assert (
        _grep([str(place.folder)], PLAIN) == []
    )  # the home with its database, WAL, logs and caches; the skills


@pytest.fixture
def faked(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line of this process asks a vault in memory in 1Password's place."""
    original = Runner.open

    def opened(*arguments: Any, **options: Any) -> Runner:
        return original(*arguments, **options, backend=FakeVault({KEY: PLAIN}))

    monkeypatch.setattr(Runner, "open", opened)
    monkeypatch.setenv("SKILLEXEC_HOME", str(place.home.path))


@pytest.mark.usefixtures("faked")
def test_the_command_line_shows_no_value_as_text_or_as_json(capfd: pytest.CaptureFixture[str]) -> None:
    for option in ([], ["--json"]):
        with pytest.raises(SystemExit) as ended:
            boundary.main(
                ["run", "shell", "--as", SYSTEM, *option, "--", 'echo "<$API_KEY>"; echo "$API_KEY" >&2']
            )
        shown = "".join(capfd.readouterr())
        assert ended.value.code == 0, shown
        assert "<[redacted]>" in shown
        _assert_clean(shown.encode(), PLAIN)


@pytest.mark.usefixtures("faked")
def test_a_traceback_of_ours_holds_no_value(
    place: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def explode(_self: Live, _stream: str, data: bytes) -> None:
        raise ValueError(f"a bug while showing {data!r}")

    monkeypatch.setattr(Live, "show", explode)
    with pytest.raises(SystemExit) as ended:
        boundary.main(["run", "shell", "--as", SYSTEM, "--", 'echo "$API_KEY"; sleep 20'])
    shown = "".join(capfd.readouterr())
    assert ended.value.code == 70
    (written,) = place.home.logs.glob("bug-*.txt")
    assert "a bug while showing" in written.read_text()
    _assert_clean(written.read_bytes() + shown.encode(), PLAIN)
    assert place.records(event="run.ended")[-1].data["error"] == "bug"


def test_what_is_resolved_does_not_show_itself(runner: Runner) -> None:
    """To a debugger, a crash reporter or pytest --showlocals."""
    values = runner._vault.resolve({"API_KEY": KEY})
    assert values["API_KEY"] == AWKWARD
    try:
        raise RuntimeError
    except RuntimeError as error:
        told = "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())
    assert "values = Values(API_KEY)" in told
    _assert_clean(told.encode(), AWKWARD)


# -- without them nothing runs


class Broken:
    """A backend with a mistake."""

    async def fetch(self, references: Any) -> dict[str, Answer]:
        raise KeyError(PLAIN)


@pytest.mark.parametrize(
    ("backend", "words"),
    [
        (FakeVault(), "itemNotFound"),
        (FakeVault({KEY: ""}), "empty"),
        (FakeVault({KEY: PLAIN}, problems={KEY: "vaultNotFound"}), "vaultNotFound"),
        (FakeVault({KEY: PLAIN}, unreachable="1Password did not answer"), "did not answer"),
        (FakeVault({KEY: PLAIN}, silent=True), "within 0.5 s"),
        (FakeVault({KEY: "xyz"}), "shorter than 4"),
        (FakeVault({KEY: " \n\t x "}), "shorter than 4"),
        (FakeVault({KEY: f"{PLAIN}\0{PLAIN}"}), "NUL"),
        (FakeVault({KEY: PLAIN * 4000}), "longer than"),
        (Broken(), "KeyError"),
    ],
    ids=["missing", "empty", "refused", "unreachable", "silent", "short", "blank", "nul", "long", "broken"],
)
def test_a_secret_that_can_not_be_had_refuses_the_run_on_the_record(
    place: Place, monkeypatch: pytest.MonkeyPatch, backend: Any, words: str
) -> None:
    monkeypatch.setenv("SKILLEXEC_SECRETS_DEADLINE", "0.5")
    seen: list[bytes] = []
    with place.runner(backend=backend, warm=0) as other:
        result = other.run("shell", system=SYSTEM, args=("echo ran",), on_output=lambda *_: seen.append(b""))
    assert (result.status, exit_status(result), seen) == (Status.SECRETS_MISSING, 22, [])
    assert result.error is not None
    assert "API_KEY" in result.error.message
    assert words in result.error.message
    assert PLAIN not in result.error.message + result.error.hint
    assert "xyz" not in result.error.message
    decided, ended = place.records(run=result.run_id)
    assert (decided.event, ended.event, ended.outcome) == ("decision.allowed", "run.ended", "secrets_missing")
    assert ended.data["names"] == ["API_KEY"]


def test_two_failures_at_once_are_both_named_and_the_value_that_came_goes_nowhere(place: Place) -> None:
    for backend in (FakeVault(), FakeVault({KEY: "abc", OTHER: "x\0yzzy"})):
        with place.runner(backend=backend, warm=0) as other:
            result = other.run("two", system=SYSTEM)
        assert result.status is Status.SECRETS_MISSING
        assert place.records(run=result.run_id)[-1].data["names"] == ["API_KEY", "SECOND"]
    with place.runner(backend=FakeVault({KEY: PLAIN}), warm=0) as other:
        result = other.run("two", system=SYSTEM)
    assert result.error is not None
    assert "SECOND" in result.error.message
    assert PLAIN not in json.dumps(as_document(result))
    assert place.records(run=result.run_id)[-1].data["names"] == ["SECOND"]


def test_a_name_that_nobody_mapped_refuses_and_says_what_to_type(place: Place, runner: Runner) -> None:
    result = runner.run("lone", system=SYSTEM)
    assert (result.status, exit_status(result)) == (Status.SECRETS_MISSING, 22)
    assert result.error is not None
    assert "skillexec secret map NOBODY_MAPPED_ME op://" in result.error.hint
    assert place.records(run=result.run_id)[-1].data["names"] == ["NOBODY_MAPPED_ME"]


# -- who names a secret


def test_the_hosts_environment_supplies_nothing(
    place: Place, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOBODY_MAPPED_ME", "from-the-host")
    monkeypatch.setenv("API_KEY", "from-the-host")
    assert runner.run("lone", system=SYSTEM).status is Status.SECRETS_MISSING
    shown = runner.run("open", system=SYSTEM, args=("env",))
    assert shown.status is Status.OK
    assert "from-the-host" not in shown.stdout.text
    shown = runner.run("shell", system=SYSTEM, args=("env",))
    assert "API_KEY=[redacted]" in shown.stdout.text
    assert "from-the-host" not in shown.stdout.text


def test_an_agents_arguments_and_input_name_no_secret(runner: Runner) -> None:
    sent = ("env", "API_KEY", KEY, "--env=API_KEY", "required_env")
    result = runner.run(
        "open", system=SYSTEM, args=sent, input={"required_env": ["API_KEY"], "env": {"A": KEY}}
    )
    assert result.status is Status.OK
    assert "API_KEY" not in result.stdout.text
    assert result.redactions == 0


def test_the_operator_can_add_a_name_that_the_skill_does_not_declare(place: Place) -> None:
    place.skill("silent", {"run.sh": "env"}, grant=False)
    place.system("added", "silent", "open")
    place.map_secret("ADDED_TOKEN", OTHER, skill="silent")
    with place.runner(backend=FakeVault({OTHER: PLAIN}), warm=0) as other:
        result = other.run("silent", system="added")
        unbound = other.run("open", system="added", args=("env",))
    assert "ADDED_TOKEN=[redacted]" in result.stdout.text
    assert "ADDED_TOKEN" not in unbound.stdout.text
    started = next(record for record in place.records(run=result.run_id) if record.event == "run.started")
    assert started.data["names"] == ["ADDED_TOKEN"]


def test_a_teams_own_mapping_wins_and_another_teams_is_never_used(place: Place) -> None:
    place.skill(
        "shared",
        {"run.py": "import os; print(os.environ['TEAM_KEY'][::-1])"},
        extension={"required_env": ["TEAM_KEY"]},
        grant=False,
    )
    place.system("ours", "shared")
    place.system("theirs", "shared", team="others")
    place.system("strangers", "shared", team="third")
    place.map_secret("TEAM_KEY", "op://t/ours/key", team=TEAM)
    place.map_secret("TEAM_KEY", "op://t/others/key", team="others")
    backend = FakeVault(
        {
            "op://t/ours/key": "value-of-ours",
            "op://t/others/key": "value-of-others",
            "op://t/all/key": "value-of-all",
        }
    )
    with place.runner(backend=backend, warm=1) as other:
        assert other.run("shared", system="ours").stdout.text[::-1].strip() == "value-of-ours"
        assert other.run("shared", system="theirs").stdout.text[::-1].strip() == "value-of-others"
        assert other.run("shared", system="strangers").status is Status.SECRETS_MISSING
        place.map_secret("TEAM_KEY", "op://t/all/key")
        assert other.run("shared", system="strangers").stdout.text[::-1].strip() == "value-of-all"
        assert other.run("shared", system="ours").stdout.text[::-1].strip() == "value-of-ours"


RESERVED = [
    "PATH",
    "HOME",
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "NODE_OPTIONS",
    "BASH_ENV",
]
RESERVED += ["SKILLEXEC_OUT", "SKILLEXEC_SKILL", "LC_ALL", "IFS", "TMPDIR", "GLIBC_TUNABLES", "PERL5OPT"]


@pytest.mark.parametrize("name", RESERVED)
def test_a_name_that_programs_read_for_themselves_can_not_become_a_secret(place: Place, name: str) -> None:
    with pytest.raises(Usage, match="read it for themselves"):
        place.map_secret(name, KEY, skill="open")
    skill = f"reserved-{name.lower().replace('_', '-')}"
    place.skill(skill, {"run.py": "print(1)"}, extension={"required_env": ["FINE", name]}, grant=False)
    with place.runner(warm=0) as other, pytest.raises(SkillError, match=name):
        other._library.get(skill)


@pytest.mark.parametrize(
    "name", ["PYTHON_API_TOKEN", "NODE_TOKEN", "PATHS", "MY_PATH", "GITHUB_TOKEN", "HOME_TOKEN"]
)
def test_names_that_only_look_alike_are_fine(place: Place, name: str) -> None:
    place.map_secret(name, KEY, team=TEAM)
    with place.admin() as admin:
        assert admin.unmap_secret(name=name, team=TEAM)


# -- the commands, with the real SDK up to its network


def test_map_list_and_unmap_by_command(place: Place) -> None:
    mapped = place.command("secret", "map", "MAIL_PASSWORD", OTHER, "--team", TEAM, "--skill", "open")
    assert mapped.returncode == 0, mapped.stderr
    listed = json.loads(place.command("secret", "list", "--json").stdout)
    line = {"name": "MAIL_PASSWORD", "reference": OTHER, "team": TEAM, "skill": "open"}
    assert line in listed["secrets"]
    assert place.command("secret", "unmap", "MAIL_PASSWORD").stdout.startswith("MAIL_PASSWORD was not mapped")
    unmapped = place.command("secret", "unmap", "MAIL_PASSWORD", "--team", TEAM, "--skill", "open")
    assert unmapped.stdout.startswith("MAIL_PASSWORD is no longer mapped")
    assert line not in json.loads(place.command("secret", "list", "--json").stdout)["secrets"]
    assert [record.event for record in place.records()[-2:]] == ["secret.mapped", "secret.unmapped"]


@pytest.mark.parametrize("reference", ["hunter2", "op://vault", "https://example.org/x", ""])
def test_what_is_no_reference_is_refused_with_the_form_to_write(place: Place, reference: str) -> None:
    done = place.command("secret", "map", "API_KEY", reference)
    assert done.returncode == 2
    assert "op://VAULT/ITEM/FIELD" in done.stderr


def test_secret_check_without_a_token_says_no_for_each_and_what_to_set(place: Place) -> None:
    for words in (["secret", "check"], ["secret", "check", "two"]):
        done = place.command(*words)
        assert done.returncode == 22
        assert "API_KEY" in done.stdout
        assert "SECOND" in done.stdout
        assert "OP_SERVICE_ACCOUNT_TOKEN" in done.stdout
    document = json.loads(place.command("secret", "check", "lone", "--json").stdout)
    assert document["ok"] is False
    assert document["secrets"][0]["problem"] == "it is not mapped"
    assert place.command("secret", "check", "file-reader").stdout == "file-reader needs no secrets\n"


def test_secret_check_for_a_team_asks_for_its_own_and_everybodys_only(place: Place) -> None:
    place.map_secret("OURS", KEY, team=TEAM)
    with place.admin() as admin:
        admin.add_team("strangers")
    checked = json.loads(place.command("secret", "check", "--team", "strangers", "--json").stdout)["secrets"]
    assert "OURS" not in [line["name"] for line in checked]
    checked = json.loads(place.command("secret", "check", "--team", TEAM, "--json").stdout)["secrets"]
    assert "OURS" in [line["name"] for line in checked]
    for words in (["secret", "check"], ["secret", "check", "two"]):
        unknown = place.command(*words, "--team", "no-such-team")
        assert (unknown.returncode, unknown.stdout) == (2, "")
        assert "no team no-such-team" in unknown.stderr


def test_a_run_by_command_without_a_token_ends_with_22_and_what_to_set(place: Place) -> None:
    done = place.command("run", "shell", "--as", SYSTEM, "--", "echo ran")
    assert (done.returncode, done.stdout) == (22, "")
    assert "API_KEY" in done.stderr
    assert "OP_SERVICE_ACCOUNT_TOKEN" in done.stderr


def test_a_garbage_token_is_refused_and_not_repeated(place: Place) -> None:
    token = "ops_" + PLAIN
    done = place.command(
        "run", "shell", "--as", SYSTEM, "--", "echo ran", env={"OP_SERVICE_ACCOUNT_TOKEN": token}
    )
    assert done.returncode == 22
    assert PLAIN not in done.stdout + done.stderr
