"""The skills that ship with skillexec: valid by the specification, true to their tools, and run in the real sandbox."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import skills_ref
from skilltools import network
from tool_runs import IMAGE, TOOLS, Reply, Site, run, serving

from skillexec.arguments import argument_vector
from skillexec.model import (
    Bundle,
    InputFile,
    Limits,
    Outcome,
    RunRequest,
    Skill,
    Source,
    Status,
    TimeoutClass,
)
from skillexec.plan import make_plan, output_problem, parsed_output
from skillexec.sandbox import Sandbox, SandboxSettings
from skillexec.schemas import violations
from skillexec.shipped import builtin_skills
from skillexec.skills.bundle import take_bundle
from skillexec.skills.discovery import Library
from skillexec.skills.reading import validate_lenient
from skillexec.skills.strict import validate_strict

EXAMPLES = Path(__file__).resolve().parent.parent / "examples" / "skills"
BUILTIN = ("file-reader", "git-readonly-sync", "skillexec-conformance", "web-fetch", "web-search")
OF_TOOLS = tuple(name for name in BUILTIN if name != "skillexec-conformance")
FOLDERS = [*(builtin_skills() / name for name in BUILTIN), EXAMPLES / "word-count"]
LIBRARY = Library([(builtin_skills(), Source.BUILTIN), (EXAMPLES, Source.ORG)])


def _skill(name: str) -> Skill:
    return LIBRARY.get(name)


def _schemas(skill: Skill) -> tuple[Any, Any]:
    assert skill.input_schema is not None and skill.output_schema is not None
    return skill.input_schema, skill.output_schema


# --- as documents ---


def test_these_skills_ship_and_no_others() -> None:
    assert sorted(path.name for path in builtin_skills().iterdir() if path.is_dir()) == sorted(BUILTIN)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_each_is_valid_without_a_word_by_the_reference_and_by_us(folder: Path) -> None:
    assert skills_ref.validate(folder) == []
    assert validate_strict(folder) == []
    assert validate_lenient(folder) == []


def test_each_says_how_it_runs() -> None:
    said = {
        name: (skill.tool, skill.subcommand, skill.required_env, skill.timeout_class, skill.network)
        for name, skill in ((name, _skill(name)) for name in BUILTIN)
    }
    hosts = ("github.com", "gitlab.com", "codeberg.org", "bitbucket.org")
    assert said == {
        "file-reader": ("file-reader", "read", (), TimeoutClass.STANDARD, ()),
        "git-readonly-sync": ("git-readonly-sync", "sync", (), TimeoutClass.LONG, hosts),
        "skillexec-conformance": (None, None, (), TimeoutClass.SHORT, ()),
        "web-fetch": ("web-fetch", "fetch", (), TimeoutClass.STANDARD, ()),
        "web-search": (
            "brave-search",
            "search",
            ("BRAVE_API_KEY",),
            TimeoutClass.SHORT,
            ("api.search.brave.com",),
        ),
    }


@pytest.mark.parametrize("name", OF_TOOLS)
def test_the_input_keys_are_exactly_the_tool_s_options(name: str) -> None:
    skill = _skill(name)
    helped = subprocess.run(
        [sys.executable, str(TOOLS / str(skill.tool)), str(skill.subcommand), "--help"],
        capture_output=True,
        text=True,
    )
    options = set(re.findall(r"^  (--[a-z-]+)", helped.stdout, re.MULTILINE))
    assert {f"--{key.replace('_', '-')}" for key in _schemas(skill)[0]["properties"]} == options


def _examples(folder: Path, heading: str) -> list[Any]:
    body = (folder / "SKILL.md").read_text().split("\n---\n", 1)[1]
    section = body.split(f"\n## {heading}\n", 1)[-1].split("\n## ")[0]
    return [json.loads(text) for text in re.findall(r"```json\n(.*?)```", section, re.DOTALL)]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_examples_in_the_text_satisfy_the_schemas(folder: Path) -> None:
    inputs, outputs = _schemas(_skill(folder.name))
    conformance = folder.name == "skillexec-conformance"
    shown = _examples(folder, "Reading the report" if conformance else "Output")
    assert shown
    assert [output_problem(outputs, example) for example in shown] == [""] * len(shown)
    asked = [] if conformance else _examples(folder, "Input")
    assert asked or conformance
    assert [violations(inputs, example) for example in asked] == [[]] * len(asked)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_link_in_the_text_leads_to_a_file_of_the_skill(folder: Path) -> None:
    links = re.findall(r"\]\(([^)]+)\)", (folder / "SKILL.md").read_text())
    assert [link for link in links if not (folder / link).is_file()] == []
    references = [path for path in folder.glob("references/*") if f"references/{path.name}" not in links]
    assert references == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("web-search", {}),
        ("web-search", {"query": ""}),
        ("web-search", {"query": "x", "endpoint": "http://evil.example/"}),
        ("web-search", {"query": "x", "count": 21}),
        ("web-fetch", {"url": "file:///etc/passwd"}),
        ("web-fetch", {"url": "http://a b"}),
        ("git-readonly-sync", {"url": "https://user:word@example.com/x"}),
        ("git-readonly-sync", {"url": "ext::sh"}),
        ("file-reader", {"offset": -1}),
        ("file-reader", {"path": ["a"]}),
    ],
)
def test_wrong_input_is_caught_before_anything_starts(name: str, value: Any) -> None:
    assert violations(_schemas(_skill(name))[0], value) != []


# --- what the tools print is what the schemas say ---


@pytest.fixture
def site() -> Iterator[Site]:
    with serving() as served:
        yield served


def test_what_web_search_prints_satisfies_its_schema(site: Site) -> None:
    found = {
        "web": {
            "results": [
                {"title": "a", "url": "https://a.example/", "description": "b", "age": "now"},
                {"title": "c"},
            ]
        }
    }
    site.replies["/s"] = Reply(json.dumps(found).encode())
    env = {"BRAVE_API_KEY": "k", "SKILLEXEC_BRAVE_ENDPOINT": f"{site.url}/s", network.LOOPBACK_SETTING: "1"}
    value = {"query": "-x", "count": 3.0, "search_lang": "en", "safesearch": "strict"}
    assert violations(_schemas(_skill("web-search"))[0], value) == []
    ended = run("brave-search", "search", *argument_vector(value), env=env)
    assert output_problem(_schemas(_skill("web-search"))[1], ended.document) == ""
    assert "search_lang=en" in site.requests[0][0]


@pytest.mark.parametrize("media", ["text/plain", "image/png"])
def test_what_web_fetch_prints_satisfies_its_schema(site: Site, media: str) -> None:
    site.replies["/"] = Reply(b"hello", headers={"Content-Type": media})
    value = {"url": f"{site.url}/", "max_chars": 3, "format": "raw", "timeout": 5}
    ended = run("web-fetch", "fetch", *argument_vector(value), env={network.LOOPBACK_SETTING: "1"})
    assert output_problem(_schemas(_skill("web-fetch"))[1], ended.document) == ""


# --- in the sandbox ---


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox.open(SandboxSettings(image=IMAGE, warm=1)) as opened:
        yield opened


def _run(sandbox: Sandbox, name: str, value: Any = None, **details: Any) -> tuple[Outcome, Any]:
    """A skill as the runner would start it; the outcome, and its output as JSON."""
    skill = _skill(name)
    bundle: Bundle = take_bundle(skill.directory)
    env = details.pop("env", {})
    request = RunRequest(skill=name, system="tester", input=value, **details)
    plan = make_plan(skill, bundle, request, limits=Limits(seconds=30))
    outcome = sandbox.execute(
        bundle, plan.command, env=env, limits=plan.limits, stdin=plan.stdin, files=plan.files
    )
    assert outcome.status in (Status.OK, Status.FAILED), outcome
    return outcome, parsed_output(outcome.stdout)


def _report(sandbox: Sandbox, value: Any = None, **details: Any) -> tuple[Outcome, Any]:
    """A conformance run: everything holds, and the report is what the schema says."""
    outcome, report = _run(sandbox, "skillexec-conformance", value, **details)
    assert report is not None, outcome.stderr.text
    assert [check for check in report["checks"] if not check["ok"]] == []
    assert (outcome.status, outcome.exit_code, report["ok"]) == (Status.OK, 0, True)
    assert output_problem(_schemas(_skill("skillexec-conformance"))[1], report) == ""
    assert report["echo"] == value
    return outcome, report


def test_the_conformance_skill_proves_the_sandbox_from_inside(sandbox: Sandbox) -> None:
    given = InputFile("a.bin", bytes(range(256)))
    outcome, report = _report(
        sandbox, {"hello": ["wörld", 1, None]}, script="scripts/check.py", files=(given,)
    )
    assert report["files"] == [
        {"name": "a.bin", "size": 256, "sha256": hashlib.sha256(given.data).hexdigest()}
    ]
    greeting = (builtin_skills() / "skillexec-conformance" / "assets" / "greeting.txt").read_bytes()
    assert [(artifact.name, artifact.data) for artifact in outcome.artifacts] == [
        ("conformance.txt", greeting)
    ]
    documented = (builtin_skills() / "skillexec-conformance" / "references" / "checks.md").read_text()
    assert {check["name"] for check in report["checks"]} == set(
        re.findall(r"^\| `(\w+)`", documented, re.MULTILINE)
    )


@pytest.mark.parametrize(
    ("script", "artifact"), [("check.sh", "from-bash.txt"), ("check.js", "from-node.txt")]
)
@pytest.mark.parametrize("value", [None, {"quote": "\"$(id)' \\ \n"}, 0, "text"])
def test_bash_and_node_see_the_same(sandbox: Sandbox, script: str, artifact: str, value: Any) -> None:
    outcome, _ = _report(sandbox, value, script=f"scripts/{script}")
    assert [artifact.name for artifact in outcome.artifacts] == [artifact]


def test_a_nested_script_and_a_module_start_in_the_skill_s_root(sandbox: Sandbox) -> None:
    _report(sandbox, script="scripts/nested/deep.py")
    _report(sandbox, module="scripts.module_check")


def test_the_conformance_skill_notices_a_container_that_is_not_locked_down() -> None:
    folder = builtin_skills() / "skillexec-conformance"
    packed = subprocess.run(["tar", "-c", "-C", str(folder), "."], capture_output=True, check=True).stdout
    inside = "tar -x -C /skill && mkdir -p /work/in /work/out /work/home && exec python3 scripts/check.py </dev/null"
    places = (
        "HOME=/work/home",
        "TMPDIR=/tmp",
        "SKILLEXEC_IN=/work/in",
        "SKILLEXEC_OUT=/work/out",
        "SKILLEXEC_SKILL=/skill",
    )
    options = [word for place in places for word in ("--env", place)]
    command = [
        "docker",
        "run",
        "--rm",
        "-i",
        "--user",
        "0:0",
        *options,
        "--workdir",
        "/skill",
        IMAGE,
        "sh",
        "-c",
        inside,
    ]
    done = subprocess.run(command, input=packed, capture_output=True, timeout=60)
    report = json.loads(done.stdout)
    assert (done.returncode, report["ok"]) == (1, False)
    failed = {check["name"] for check in report["checks"] if not check["ok"]}
    promises = {
        "skill_read_only",
        "root_read_only",
        "mounts_restricted",
        "not_root",
        "no_capabilities",
        "limits",
    }
    assert promises | {"no_new_privileges", "launcher_out_of_reach"} <= failed
    assert not {"working_folder", "bundle_exact", "artifact_written", "programs"} & failed


def test_file_reader_reads_input_files_in_the_sandbox(sandbox: Sandbox) -> None:
    files = (InputFile("notes.txt", b"one\ntwo\nthree\n"), InputFile("t.csv", b"a,b\n1,2\n"))
    schema = _schemas(_skill("file-reader"))[1]
    for value, key, expected in (
        ({"path": "notes.txt", "offset": 1, "limit": 1}, "content", "two\n"),
        ({"path": "t.csv", "unit": "rows"}, "rows", [["a", "b"], ["1", "2"]]),
        (
            None,
            "entries",
            [{"path": "notes.txt", "kind": "file", "size": 14}, {"path": "t.csv", "kind": "file", "size": 8}],
        ),
    ):
        outcome, document = _run(sandbox, "file-reader", value, files=files)
        assert outcome.status is Status.OK
        assert document[key] == expected
        assert output_problem(schema, document) == ""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("web-search", {"query": "otters"}),
        ("web-fetch", {"url": "https://example.com/"}),
        ("git-readonly-sync", {"url": "https://github.com/a/b"}),
    ],
)
def test_the_networked_skills_say_that_no_network_is_granted(sandbox: Sandbox, name: str, value: Any) -> None:
    outcome, document = _run(
        sandbox, name, value, env={"BRAVE_API_KEY": "k" * 8} if name == "web-search" else {}
    )
    assert (outcome.status, outcome.exit_code) == (Status.FAILED, 3)
    assert document["error"]["code"] == "no_network"
    assert "no network granted" in outcome.stderr.text


def test_the_example_skill_counts_words_and_leaves_its_table(sandbox: Sandbox) -> None:
    outcome, document = _run(sandbox, "word-count", {"text": "To be or not to be", "top": 2})
    assert document == {
        "words": 6,
        "distinct": 4,
        "top": [{"word": "to", "count": 2}, {"word": "be", "count": 2}],
    }
    assert output_problem(_schemas(_skill("word-count"))[1], document) == ""
    assert outcome.artifacts[0].data == b"word,count\r\nto,2\r\nbe,2\r\nor,1\r\nnot,1\r\n"
