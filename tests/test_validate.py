"""`skill validate`: strict as the reference validator is, and what the command says of it.

The first part holds every behaviour that the published tests of `skills-ref` assert of the version that we compare
with, in our own words, with the reference itself beside us.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from skill_folders import write_skill
from skills_ref.validator import validate as reference

from skillexec.cli.context import App
from skillexec.cli.validate import validate
from skillexec.model import Severity
from skillexec.skills.comparison import Verdict, compare
from skillexec.skills.reading import validate_lenient
from skillexec.skills.rules import Finding
from skillexec.skills.strict import validate_strict

BASIC = "name: my-skill\ndescription: A test skill\n"

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(
        yaml: str = BASIC, folder: str = "my-skill", file: str = "SKILL.md", raw: bytes | None = None
    ) -> Path:
        directory = tmp_path / folder
        directory.mkdir(exist_ok=True)
        (directory / file).write_bytes(f"---\n{yaml}---\nBody\n".encode() if raw is None else raw)
        return directory

    return written


def errors(directory: Path) -> list[Finding]:
    return [found for found in validate_strict(directory) if found.severity is Severity.ERROR]


def rules(directory: Path) -> list[str]:
    return [found.rule for found in errors(directory)]


# --- what the reference validator's own tests assert


@pytest.mark.parametrize(
    ("yaml", "folder"),
    [
        (BASIC, "my-skill"),
        (BASIC + "license: MIT\nmetadata:\n  author: Test\n  version: 1.0\n", "my-skill"),
        (BASIC + "allowed-tools: Bash(jq:*) Bash(git:*)\n", "my-skill"),
        (BASIC + "allowed-tools:\n  - Read\n  - Bash\n", "my-skill"),
        (BASIC + "compatibility: Requires Python 3.11+\n", "my-skill"),
        ("name: 技能\ndescription: b\n", "技能"),
        ("name: мой-навык\ndescription: b\n", "мой-навык"),
        ("name: cafe\u0301\ndescription: b\n", "caf\u00e9"),
        ("name: caf\u00e9\ndescription: b\n", "cafe\u0301"),
    ],
)
def test_a_valid_skill_is_accepted_as_the_reference_accepts_it(write: Write, yaml: str, folder: str) -> None:
    directory = write(yaml, folder)
    assert reference(directory) == []
    assert validate_strict(directory) == []


@pytest.mark.parametrize(
    ("yaml", "folder", "rule", "line"),
    [
        ("name: MySkill\ndescription: b\n", "MySkill", "name-case", 2),
        ("name: НАВЫК\ndescription: b\n", "НАВЫК", "name-case", 2),
        (f"name: {'a' * 70}\ndescription: b\n", "a" * 70, "name-long", 2),
        ("name: -my-skill\ndescription: b\n", "-my-skill", "name-hyphen", 2),
        ("name: my-skill-\ndescription: b\n", "my-skill-", "name-hyphen", 2),
        ("name: my--skill\ndescription: b\n", "my--skill", "name-hyphen", 2),
        ("name: my_skill\ndescription: b\n", "my_skill", "name-character", 2),
        ("name: correct-name\ndescription: b\n", "wrong-name", "name-folder", 2),
        (BASIC + "unknown_field: x\n", "my-skill", "key-unknown", 4),
        (BASIC + f"compatibility: {'x' * 550}\n", "my-skill", "compatibility-long", 4),
        (f"name: my-skill\ndescription: {'x' * 1100}\n", "my-skill", "description-long", 3),
        ("description: b\n", "my-skill", "name-missing", 1),
        ("name: my-skill\n", "my-skill", "description-missing", 1),
        ("name: my-skill\ndescription:\n", "my-skill", "description-text", 3),
        ("name:\n  a: b\ndescription: b\n", "my-skill", "name-text", 2),
        (BASIC + "compatibility:\n- a\n", "my-skill", "compatibility-text", 4),
        ("name: [invalid\ndescription: broken\n", "my-skill", "yaml-flow", 2),
        (BASIC + "allowed-tools: [Read, Write]\n", "my-skill", "yaml-flow", 4),
        ("- just\n- a\n- list\n", "my-skill", "frontmatter", 1),
    ],
)
def test_an_invalid_skill_is_rejected_as_the_reference_rejects_it(
    write: Write, yaml: str, folder: str, rule: str, line: int
) -> None:
    directory = write(yaml, folder)
    assert reference(directory)
    (found,) = errors(directory)
    assert (found.file, found.rule, found.line) == (directory / "SKILL.md", rule, line)
    assert found.message
    assert found.fix


@pytest.mark.parametrize("raw", [b"# No frontmatter here", b"---\nname: my-skill\ndescription: b\n"])
def test_missing_or_unclosed_frontmatter_is_rejected(write: Write, raw: bytes) -> None:
    directory = write(raw=raw)
    assert reference(directory)
    assert rules(directory) == ["skill-broken"]


def test_a_missing_path_a_file_and_an_empty_folder_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "file.txt").write_text("text")
    (tmp_path / "empty").mkdir()
    for name, said in (("none", "there is no"), ("file.txt", "not a folder"), ("empty", "no SKILL.md")):
        assert reference(tmp_path / name)
        (found,) = errors(tmp_path / name)
        assert said in found.message


def test_the_upper_case_file_is_preferred_and_the_lower_case_one_accepted(write: Write) -> None:
    directory = write(file="skill.md")
    assert (reference(directory), validate_strict(directory)) == ([], [])
    write("name: other\ndescription: b\n")
    assert reference(directory)
    assert errors(directory)[0].file.name == "SKILL.md"


def test_all_that_is_wrong_is_said_at_once(write: Write) -> None:
    directory = write("name: My_Skill-\nversion: 1\n", "other")
    expected = [
        "key-unknown",
        "name-case",
        "name-hyphen",
        "name-character",
        "name-folder",
        "description-missing",
    ]
    assert rules(directory) == expected
    assert len(reference(directory)) == len(expected)


# --- the YAML that strictyaml refuses


@pytest.mark.parametrize(
    ("tail", "rule"),
    [
        ("metadata: {}\n", "yaml-flow"),
        ("license: !!str x\n", "yaml-tag"),
        ("license: &x y\n", "yaml-anchor"),
        ("license: *x\n", "yaml-alias"),
        ("license: MIT\nlicense: MIT\n", "key-duplicate"),
        ("metadata:\n  a: b\n  'a': c\n", "key-duplicate"),
        ("metadata:\n  a:\n    b: c\n  d:\n     e: f\n", "yaml-indentation"),
        ("metadata:\n  ? a: b\n  : c\n", "yaml-key"),
        ("metadata:\n  <<: a\n", "yaml-merge"),
        ("license: a: b\n", "yaml-syntax"),
        ("license: x\t# note\n", "yaml-syntax"),
        ("\tlicense: x\n", "yaml-syntax"),
        ("license: @x\n", "yaml-syntax"),
        ("...\n...\n", "yaml-documents"),
        ("%YAML 1.2\n", "yaml-syntax"),
    ],
)
def test_yaml_that_the_reference_does_not_read_is_rejected_with_its_rule(
    write: Write, tail: str, rule: str
) -> None:
    directory = write(BASIC + tail)
    assert reference(directory)
    (found,) = errors(directory)
    assert found.rule == rule
    assert (found.line or 0) >= 3
    assert found.fix


@pytest.mark.parametrize(
    "tail",
    [
        "license: 2024-01-01\n",
        "license: =\n",
        "license: <<\n",
        "metadata:\n  <<:\n    a: b\n  c: d\n",
        "metadata:\n  : b\n",
        "metadata:\n\n\ta: b\n",
        "? license\n: x\n",
        "# note\n\nlicense: |+ # note\n  a\n\n\n# note\n",
        "...\n",
        "license: \u2028x\n",
    ],
)
def test_odd_yaml_that_the_reference_reads_is_accepted(write: Write, tail: str) -> None:
    directory = write(BASIC + tail)
    assert reference(directory) == []
    assert errors(directory) == []


@pytest.mark.parametrize(
    ("raw", "rule"),
    [
        (b"---\nname: my-skill\ndescription: b\n---\nBody \xff\n", "encoding"),
        (b"---\nname: my-skill\ndescription: \x00\n---\n", "yaml-control"),
        (b"---\nname: my-skill\ndescription: b\nmetadata:\n  " + b"- " * 1000 + b"x\n---\n", "yaml-depth"),
        (b"---\nname: my-skill\ndescription: b\nmetadata: " + b"[" * 30000 + b"\n---\n", "yaml-flow"),
        (b"---\nname: my-skill\ndescription: " + b"x" * (10 << 20) + b"\n---\n", "skill-broken"),
        (b"---\nname: my-skill\ndescription: " + b"x" * 64000 + b"\n---\n", "description-long"),
        (b"---\nname: my-skill\ndescription: b\nmetadata:\n" + b"  # x\n\n" * 8000 + b"  a: b\n---\n", None),
    ],
)
def test_hostile_input_gets_a_strict_verdict_within_a_second(
    write: Write, raw: bytes, rule: str | None
) -> None:
    directory = write(raw=raw)
    started = time.process_time()
    assert rules(directory) == ([rule] if rule else [])
    assert time.process_time() - started < 1.0


@pytest.mark.parametrize("check", [validate_strict, validate_lenient])
def test_a_pipe_a_folder_and_a_dangling_link_are_refused_without_waiting(
    tmp_path: Path, check: Callable[[Path], list[Finding]]
) -> None:
    for name, make in (
        ("pipe", os.mkfifo),
        ("folder", os.mkdir),
        ("link", lambda path: os.symlink("/nowhere", path)),
    ):
        (tmp_path / name).mkdir()
        make(tmp_path / name / "SKILL.md")
        (found,) = check(tmp_path / name)
        assert found.severity is Severity.ERROR


def test_a_link_that_leads_nowhere_does_not_hide_the_other_file(write: Write) -> None:
    directory = write(file="skill.md")
    (directory / "SKILL.md").symlink_to("nowhere")
    assert (reference(directory), validate_strict(directory)) == ([], [])


# --- the command


def run(*arguments: object) -> Result:
    return CliRunner().invoke(validate, [str(argument) for argument in arguments], obj=App())


def test_a_valid_skill_ends_with_0_and_a_summary(write: Write) -> None:
    result = run(write(), "--strict")
    assert (result.exit_code, result.output) == (0, "1 skill: 1 valid, 0 invalid, 0 warnings\n")


def test_a_finding_is_one_line_with_file_line_rule_and_fix(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = write(BASIC + "version: 1\n")
    monkeypatch.chdir(directory.parent)
    result = run("my-skill", "--strict")
    first, summary = result.output.splitlines()
    assert first == (
        "my-skill/SKILL.md:4: error key-unknown: `version` is not a key of the specification"
        " (fix: move it beneath `metadata`, or remove it)"
    )
    assert (result.exit_code, summary) == (24, "1 skill: 0 valid, 1 invalid, 0 warnings")


def test_without_strict_what_can_be_loaded_is_valid_with_warnings(write: Write) -> None:
    result = run(write(BASIC + "version: 1\n"))
    assert result.exit_code == 0
    assert "warning key-unknown" in result.output
    assert "1 valid, 0 invalid, 1 warning" in result.output


@pytest.mark.parametrize(
    "yaml", ["name: my-skill\n", "name: My Skill\ndescription: b\n", BASIC + "metadata:\n  cyberagent: x\n"]
)
def test_without_strict_what_can_not_be_loaded_or_run_is_invalid(write: Write, yaml: str) -> None:
    result = run(write(yaml))
    assert result.exit_code == 24
    assert ": error " in result.output


def test_a_path_can_be_the_file_the_folder_a_folder_of_skills_or_a_dot(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = write()
    write("name: other\ndescription: b\n", "other")
    (directory.parent / "no-skill").mkdir()
    monkeypatch.chdir(directory)
    for path, count in ((".", 1), ("SKILL.md", 1), (directory, 1), ("..", 2), (directory.parent, 2)):
        result = run(path, "--strict")
        assert (result.exit_code, result.output) == (
            0,
            f"{count} skill{'s' * (count > 1)}: {count} valid, 0 invalid, 0 warnings\n",
        )


def test_a_path_that_is_not_there_is_invalid(tmp_path: Path) -> None:
    result = run(tmp_path / "none")
    assert result.exit_code == 24
    assert "there is no" in result.output


CLOSED = """
import os, sys
from click.testing import CliRunner
from skillexec.cli.validate import validate
CliRunner().invoke(validate, sys.argv[1:])  # loads every module, while all of them can be read
if os.geteuid() == 0:  # permissions do not stop root
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
for path in sys.argv[1], sys.argv[1] + "/closed":
    print(CliRunner().invoke(validate, [path]).output)
"""


def test_a_folder_that_cant_be_looked_into_is_said_and_not_passed_over() -> None:
    with tempfile.TemporaryDirectory() as made:  # pytest's own folder is closed to others
        Path(made).chmod(0o755)
        for name in ("open", "closed"):
            write_skill(Path(made), name)
        Path(made, "closed").chmod(0o000)
        answer = subprocess.run(
            [sys.executable, "-c", CLOSED, made], capture_output=True, text=True, timeout=30, check=True
        )
        Path(made, "closed").chmod(0o755)
    assert "2 skills: 1 valid, 1 invalid" in answer.stdout
    assert answer.stdout.count("closed can't be looked into") == 2


def test_json_holds_every_finding(write: Write) -> None:
    result = run(write(BASIC + "version: 1\n"), "--strict", "--json")
    document = json.loads(result.output)
    assert (result.exit_code, document["version"], document["valid"]) == (24, 1, False)
    (finding,) = document["skills"][0]["findings"]
    assert (finding["rule"], finding["line"], finding["severity"]) == ("key-unknown", 4, "error")


def test_control_characters_of_a_file_do_not_reach_the_terminal(write: Write) -> None:
    directory = write(BASIC + '"\\e[31mred\\n": x\n', "my-skill\x1b[31m")
    for arguments in ((), ("--strict",)):
        assert "\x1b" not in run(directory, *arguments).output.replace("\n", "")


def test_the_reference_beside_us_agrees_or_its_bug_is_named(write: Write) -> None:
    said = {
        write(folder="my-skill"): "skills-ref accepts it too",
        write("name: x\ndescription: b\n", "y"): "skills-ref rejects it too",
        write(
            "name: dashes\ndescription: 'a --- b'\n", "dashes"
        ): "accepts (known: skills-ref ends the frontmatter at any",
        write(
            raw=b"\xef\xbb\xbf---\nname: mark\ndescription: b\n---\n", folder="mark"
        ): "rejects a byte order mark",
        write(
            raw=b"---\nname: bytes\ndescription: \xff\n---\n", folder="bytes"
        ): "skills-ref crashes, --strict rejects",
        write(
            f"name: long\ndescription: b\nlicense: {'x' * 70_000}\n", "long"
        ): "skills-ref was not asked, --strict rejects (known: --strict reads at most 64 KiB",
    }
    for directory, line in said.items():
        assert line in run(directory, "--with-skills-ref").output


@pytest.mark.parametrize("kind", ["pipe", "device", "10 MB"])
def test_the_reference_is_not_asked_about_what_would_keep_it_busy_for_ever(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "my-skill/SKILL.md"
    file.parent.mkdir()
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "device":
        file.symlink_to("/dev/zero")
    else:
        file.write_text(f"---\n{BASIC}{'x: y' * 2_500_000}\n---\n")
    started = time.monotonic()
    result = run(file.parent, "--strict", "--with-skills-ref")
    assert time.monotonic() - started < 1
    assert result.exit_code == 24
    assert "skills-ref was not asked, --strict rejects" in result.output


def test_a_difference_that_has_no_known_reason_asks_for_a_report(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = write()
    monkeypatch.setattr(
        "skills_ref.validator.MAX_DESCRIPTION_LENGTH", 1
    )  # a reference that is stricter than today's
    comparison = compare(directory)
    assert (comparison.ours, comparison.theirs) == (Verdict.ACCEPTS, Verdict.REJECTS)
    assert "please report it" in comparison.why


def test_without_the_reference_installed_the_way_to_install_it_is_shown(write: Write) -> None:
    program = "import sys; sys.modules['skills_ref'] = None; sys.modules['skills_ref.validator'] = None\n"
    program += "from skillexec.skills.comparison import compare; from pathlib import Path\n"
    program += f"compare(Path({str(write())!r}))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "skills-ref is not installed" in ran.stderr


def test_strict_validation_does_not_need_the_reference(write: Write) -> None:
    program = "import sys; sys.modules['skills_ref'] = sys.modules['strictyaml'] = None\n"
    program += "from skillexec.skills.strict import validate_strict; from pathlib import Path\n"
    program += f"print(validate_strict(Path({str(write())!r})))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
