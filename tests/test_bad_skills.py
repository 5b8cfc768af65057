"""Bad input: each gives a diagnostic within a second, and the other skills still load."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from skill_folders import open_files, write_skill

from skillexec.errors import PathRefused, SkillError
from skillexec.model import Source
from skillexec.skills import beneath
from skillexec.skills.discovery import Library, Skills
from skillexec.skills.root import Broken

HEAD = b"---\nname: bad\ndescription: Does it.\n"


def scan(root: Path) -> Skills:
    """A scan that has to be done within a second of work, however busy the machine is, and never waits."""
    write_skill(root, "a-good-one")
    write_skill(root, "z-good-one")
    started, worked = time.monotonic(), time.thread_time()
    found = Library([(root, Source.ORG)]).scan()
    assert time.thread_time() - worked < 1
    assert time.monotonic() - started < 20
    assert {"a-good-one", "z-good-one"} <= set(found.skills)
    return found


def the_broken_one(root: Path, content: bytes) -> Broken:
    (root / "bad").mkdir()
    (root / "bad/SKILL.md").write_bytes(content)
    found = scan(root)
    assert len(found.skills) == 2
    assert len(found.broken) == 1
    assert found.broken[0].directory == root / "bad"
    return found.broken[0]


def _bomb() -> bytes:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    return HEAD + "\n".join(lines).encode() + b"\n---\n"


def _deep_json(key: str, levels: int) -> bytes:
    """JSON in a text, as deep as Python's decoder takes it and deeper than whoever reads the value could bear."""
    deep = '{"a":' * levels + "1" + "}" * levels
    lines = {
        "input_schema": f"input_schema: '{deep}'",
        "metadata.cyberagent": f"metadata:\n  cyberagent: '{{\"input_schema\": {deep}}}'",
    }
    return HEAD + lines[key].encode() + b"\n---\n"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(_bomb(), "alias", id="alias bomb"),
        pytest.param(
            HEAD + b"x: " + b"y" * (10 << 20) + b"\n---\n", "longer than", id="10 MB of frontmatter"
        ),
        pytest.param(HEAD + b"x: " + b"[" * 1000 + b"]" * 1000 + b"\n---\n", "deep", id="1,000 levels, flow"),
        pytest.param(
            HEAD + b"".join(b" " * n + b"k:\n" for n in range(300)) + b"---\n",
            "deep",
            id="300 levels, indented",
        ),
        *(
            pytest.param(_deep_json(key, levels), "deep", id=f"{levels} levels, JSON in {key}")
            for key in ("input_schema", "metadata.cyberagent")
            for levels in (300, 600, 900)
        ),
        pytest.param(b"---\nname: bad\ndescription: caf\xe9\n---\n", "UTF-8", id="invalid UTF-8"),
        pytest.param(b"---\nname: bad\ndescription: a\0b\n---\n", "", id="NUL in a value"),
        pytest.param(b"---\nname: bad\nname: good\ndescription: x\n---\n", "twice", id="duplicate name"),
        pytest.param(b"\0" * 5000, "frontmatter", id="only NULs"),
        pytest.param(b"", "frontmatter", id="empty"),
        pytest.param(b"---\n", "not closed", id="never closed"),
        pytest.param(b"---\nname: bad\n---\n", "description", id="no description"),
        pytest.param(b"---\n- a\n- b\n---\n", "", id="a list"),
    ],
)
def test_a_file_that_cant_be_read_is_listed_with_its_reason(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    broken = the_broken_one(tmp_path, content)
    assert reason in broken.reason
    assert broken.reason


@pytest.mark.parametrize(
    "name",
    [
        "two\\nlines",
        "com,ma",
        "аdmin",
        "..",
        "%2e%2e",
        "../../etc",
        "a/b",
        "UPPER",
        "-dash",
        "a--b",
        "x" * 65,
        "\\e[31m",
    ],
)
def test_a_hostile_name_is_never_runnable_and_always_said(tmp_path: Path, name: str) -> None:
    write_skill(tmp_path, "bad", name=f'"{name}"')
    found = scan(tmp_path)
    others = [skill for skill in found.skills.values() if not skill.directory.name.endswith("good-one")]
    assert len(others) + len(found.broken) == 1
    for skill in others:
        assert not skill.runnable
        assert skill.diagnostics
        assert skill.directory == tmp_path / "bad"


@pytest.mark.parametrize("folder", ["..x", "%2e%2e", "line\nfeed", "com,ma", "\x1b[31m", "ünïcode", "-rf"])
def test_a_hostile_folder_name_is_only_a_name(tmp_path: Path, folder: str) -> None:
    write_skill(tmp_path, folder, name="fine")
    assert scan(tmp_path).skills["fine"].directory == tmp_path / folder


def test_a_folder_name_that_is_not_text_is_only_a_name(tmp_path: Path) -> None:
    place = os.fsencode(tmp_path) + b"/\xff\xfe"
    os.mkdir(place)
    with open(place + b"/SKILL.md", "wb") as file:
        file.write(HEAD + b"---\n")
    found = scan(tmp_path)
    assert os.fsencode(found.skills["bad"].directory) == place


def _fifo(place: Path) -> None:
    os.mkfifo(place)


def _device(place: Path) -> None:
    place.symlink_to("/dev/zero")


def _folder(place: Path) -> None:
    place.mkdir()


def _loop(place: Path) -> None:
    place.symlink_to(place.name)


def _link(place: Path) -> None:
    place.symlink_to("/etc/passwd")


@pytest.mark.parametrize(
    ("make", "reason"),
    [(_fifo, "FIFO"), (_device, "link"), (_folder, "folder"), (_loop, "link"), (_link, "link")],
    ids=["fifo", "link to a device", "folder", "loop", "link out"],
)
def test_what_is_called_skill_md_and_is_no_file_is_named_for_what_it_is(
    tmp_path: Path, make: Callable[[Path], None], reason: str
) -> None:
    (tmp_path / "bad").mkdir()
    make(tmp_path / "bad/SKILL.md")
    (broken,) = scan(tmp_path).broken
    assert reason in broken.reason


def test_a_device_is_refused_without_being_read() -> None:
    folder = os.open("/dev", os.O_RDONLY)
    descriptor, _ = beneath.open_beneath(folder, "zero", base=Path("/dev"))
    try:
        with pytest.raises(PathRefused, match="device"):
            beneath.read_settled(descriptor, "zero", limit=10)
    finally:
        os.close(descriptor)
        os.close(folder)


@pytest.mark.parametrize("target", ["loop", "../outside", "/etc", "inside/../../outside"])
def test_a_skill_folder_that_links_out_of_the_root_or_in_a_circle_is_broken(
    tmp_path: Path, target: str
) -> None:
    root = tmp_path / "root"
    write_skill(tmp_path, "outside")
    (root / "inside").mkdir(parents=True)
    (root / "loop").symlink_to(target)
    (broken,) = scan(root).broken
    assert broken.directory == root / "loop"
    assert "leaves" in broken.reason or "circle" in broken.reason


@pytest.mark.parametrize("absolute", [False, True])
def test_a_link_that_stays_in_the_root_is_followed(tmp_path: Path, absolute: bool) -> None:
    write_skill(tmp_path / ".store", "tool-1.2", name="tool")
    (tmp_path / "tool").symlink_to(tmp_path / ".store/tool-1.2" if absolute else ".store/tool-1.2")
    (tmp_path / "again").symlink_to("a-good-one")
    found = scan(tmp_path)
    assert found.skills["tool"].directory == tmp_path / ".store/tool-1.2"
    assert not found.broken
    assert not found.collisions


def test_a_root_that_vanished_or_is_no_folder_is_a_problem_and_the_rest_loads(tmp_path: Path) -> None:
    write_skill(tmp_path / "there", "fine")
    (tmp_path / "file").touch()
    roots = [(tmp_path / name, Source.ORG) for name in ("gone", "file", "there")]
    found = Library(roots).scan()
    assert list(found.skills) == ["fine"]
    assert [one.path.name for one in found.problems] == ["gone", "file"]
    assert all("root remove" in one.hint for one in found.problems)


def test_a_root_that_vanishes_between_two_scans_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir(mode=0o700)
    write_skill(tmp_path / "root", "fine")
    library = Library([(tmp_path / "root", Source.ORG)], cache=tmp_path / "cache")
    assert library.scan().skills
    (tmp_path / "root").rename(tmp_path / "moved")
    assert library.scan().problems
    assert not library.scan().skills


UNREADABLE = """
import os, sys
from pathlib import Path
from skillexec.model import Source
from skillexec.skills.discovery import Library
library = Library([(Path(sys.argv[1]), Source.ORG)])
library.scan()  # loads every module that reading needs, while all of them can be read
if os.geteuid() == 0:  # permissions do not stop root
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
found = library.scan()
print(sorted(found.skills))
print(sorted((one.directory.name, one.reason) for one in found.broken))
"""


def test_folders_and_files_without_permission_are_broken_and_the_rest_loads() -> None:
    with tempfile.TemporaryDirectory() as made:  # pytest's own folder is closed to others
        root = Path(made)
        root.chmod(0o755)
        write_skill(root, "fine")
        write_skill(root, "no-folder").chmod(0o000)
        write_skill(root, "no-search").chmod(0o644)
        (write_skill(root, "no-file") / "SKILL.md").chmod(0o000)
        answer = subprocess.run(
            [sys.executable, "-c", UNREADABLE, made], capture_output=True, text=True, timeout=30, check=True
        )
        for name in ("no-folder", "no-search"):
            (root / name).chmod(0o755)
    skills, broken = answer.stdout.splitlines()
    assert skills == "['fine']"
    assert broken.count("Permission denied") == 3


CLOSED_PROJECT = """
import os, sys
from pathlib import Path
from skillexec.model import Source
from skillexec.skills.discovery import Library
root, project = map(Path, sys.argv[1:])
Library([(root, Source.ORG)], project=project).scan()  # loads every module, while all of them can be read
if os.geteuid() == 0:  # permissions do not stop root
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
found = Library([(root, Source.ORG)], project=project).scan()
print(sorted(found.skills))
print([(one.path.name, one.message) for one in found.problems])
"""


@pytest.mark.parametrize(
    ("closed", "named"), [(".", "project"), (".claude", "skills"), (".claude/skills", "skills")]
)
def test_a_project_that_cant_be_looked_into_is_a_problem_and_the_rest_loads(closed: str, named: str) -> None:
    with tempfile.TemporaryDirectory() as made:  # pytest's own folder is closed to others
        Path(made).chmod(0o755)
        root, project = Path(made, "root"), Path(made, "project")
        write_skill(root, "fine")
        write_skill(project / ".claude/skills", "hidden")
        (project / closed).chmod(0o000)
        answer = subprocess.run(
            [sys.executable, "-c", CLOSED_PROJECT, root, project],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        (project / closed).chmod(0o755)
    assert answer.returncode == 0, answer.stderr
    skills, problems = answer.stdout.splitlines()
    assert skills == "['fine']"
    assert problems.count(f"('{named}', ") == problems.count("('") == 1


def test_a_file_that_never_stops_growing_is_broken_and_bounded(tmp_path: Path) -> None:
    file = write_skill(tmp_path, "bad") / "SKILL.md"
    stop = threading.Event()

    def grow() -> None:
        with open(file, "ab", buffering=0) as out:
            while not stop.is_set():
                out.write(b"x")

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        answers = [scan(tmp_path) for _ in range(20)]
    finally:
        stop.set()
        thread.join()
    for found in answers:  # read between two writes, or refused: never half of it
        if "bad" in found.skills:
            assert found.skills["bad"].description == "Does it."
        else:
            assert "changing" in found.broken[0].reason
    assert scan(tmp_path).skills["bad"]


def test_a_read_that_overlaps_a_write_is_done_again_and_then_refused(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"0123456789")
    descriptor = os.open(file, os.O_RDONLY)
    reads = []
    real = os.pread

    def writing(number: int, size: int, offset: int) -> bytes:
        reads.append(size)
        with open(file, "ab") as out:
            out.write(b"more")
        return real(number, size, offset)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(SkillError, match="keeps changing"):
        patch.setattr(os, "pread", writing)
        beneath.read_settled(descriptor, "f", limit=100)
    os.close(descriptor)
    assert len(reads) == 3


def test_an_endless_file_is_read_to_its_limit_only(tmp_path: Path) -> None:
    file = write_skill(tmp_path, "sparse") / "SKILL.md"
    with open(file, "r+b") as out:
        out.truncate(1 << 40)
    assert scan(tmp_path).skills["sparse"].description == "Does it."


def test_no_scan_leaves_descriptors_open(tmp_path: Path) -> None:
    (tmp_path / "fifo").mkdir()
    _fifo(tmp_path / "fifo/SKILL.md")
    (tmp_path / "out").symlink_to("/etc")
    (tmp_path / "loop").symlink_to("loop")
    before = open_files()
    for _ in range(5):
        scan(tmp_path)
    assert open_files() == before
