"""The bundle: the same bytes everywhere, different when anything that matters differs, and nothing from elsewhere."""

from __future__ import annotations

import hashlib
import io
import os
import random
import socket
import tarfile
import threading
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from skill_folders import write_skill

from skillexec.errors import PathRefused, SkillError
from skillexec.skills import beneath
from skillexec.skills import bundle as bundling
from skillexec.skills.bundle import LEFT_OUT, bundle_contents, take_bundle
from skillexec.skills.dependencies import find_dependencies

NAME = st.binary(min_size=1, max_size=60).filter(
    lambda raw: (
        not set(raw) & {0, ord("/")} and raw not in (b".", b"..") and raw.decode("latin-1") not in LEFT_OUT
    )
)
TREE = st.dictionaries(
    st.lists(NAME, min_size=1, max_size=4).map(b"/".join),
    st.tuples(st.binary(max_size=2000), st.booleans()),
    max_size=8,
)
Tree = dict[bytes, tuple[bytes, bool]]


def _possible(tree: Tree) -> bool:
    """Whether no path is a file and a folder at once."""
    return not any(other.startswith(path + b"/") for path in tree for other in tree)


def _plant(base: Path, tree: Tree, *, seed: int = 0, umask: int = 0o022) -> Path:
    """The tree on disk, made in some order, at some time, under some umask."""
    chance = random.Random(seed)
    paths = list(tree)
    chance.shuffle(paths)
    before = os.umask(umask)
    try:
        for path in paths:
            data, executable = tree[path]
            place = os.path.join(os.fsencode(base), path)
            os.makedirs(os.path.dirname(place), mode=0o777, exist_ok=True)
            with open(place, "wb") as file:
                file.write(data)
            os.chmod(place, (os.stat(place).st_mode & 0o666) | (0o100 if executable else 0))
            os.utime(place, (chance.randrange(2**31), chance.randrange(2**31)))
            if os.geteuid() == 0:
                os.chown(place, chance.randrange(60_000), chance.randrange(60_000))
    finally:
        os.umask(before)
    return base


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=TREE, seed=st.integers(0, 2**16))
def test_the_same_files_give_the_same_bytes_whatever_order_time_owner_and_umask(
    tmp_path_factory: pytest.TempPathFactory, tree: Tree, seed: int
) -> None:
    assume(_possible(tree))
    one = take_bundle(_plant(tmp_path_factory.mktemp("one"), tree, seed=1, umask=0o022))
    other = take_bundle(_plant(tmp_path_factory.mktemp("other"), tree, seed=seed, umask=0o077))
    assert one == other
    assert one.digest == "sha256:" + hashlib.sha256(one.data).hexdigest()


@settings(max_examples=100, deadline=None)
@given(tree=TREE)
def test_tar_reads_back_exactly_the_files(tmp_path_factory: pytest.TempPathFactory, tree: Tree) -> None:
    assume(_possible(tree))
    bundle = take_bundle(_plant(tmp_path_factory.mktemp("tree"), tree))
    with tarfile.open(fileobj=io.BytesIO(bundle.data)) as archive:
        members = archive.getmembers()
        read = {os.fsencode(one.name): (archive.extractfile(one), one.mode) for one in members}
        found = {path: (file.read() if file else None, mode == 0o755) for path, (file, mode) in read.items()}
    assert found == tree
    assert [os.fsencode(file.path) for file in bundle.files] == sorted(tree)
    assert {(one.uid, one.gid, one.mtime, one.uname, one.gname) for one in members} <= {(0, 0, 0, "", "")}
    assert {os.fsencode(path): data for path, data in bundle_contents(bundle)} == {
        p: tree[p][0] for p in tree
    }


@settings(max_examples=100, deadline=None)
@given(tree=TREE.filter(bool), data=st.data())
def test_any_change_of_a_byte_a_name_or_the_executable_bit_changes_the_digest(
    tmp_path_factory: pytest.TempPathFactory, tree: Tree, data: st.DataObject
) -> None:
    assume(_possible(tree))
    path = data.draw(st.sampled_from(sorted(tree)))
    content, executable = tree[path]
    changed = data.draw(
        st.sampled_from(
            [
                {**tree, path: (content + b"\0", executable)},
                {**tree, path: (bytes([byte ^ 1 for byte in content]) or b"x", executable)},
                {**tree, path: (content, not executable)},
                {**{p: v for p, v in tree.items() if p != path}, path + b"x": (content, executable)},
                {p: v for p, v in tree.items() if p != path},
            ]
        )
    )
    assume(_possible(changed))
    before = take_bundle(_plant(tmp_path_factory.mktemp("before"), tree)).digest
    assert take_bundle(_plant(tmp_path_factory.mktemp("after"), changed)).digest != before


def test_the_digest_of_a_known_skill_never_changes(tmp_path: Path) -> None:
    directory = write_skill(tmp_path, "known")
    (directory / "scripts").mkdir()
    (directory / "scripts/run.sh").write_text("#!/bin/sh\necho hello\n")
    (directory / "scripts/run.sh").chmod(0o755)
    # Pins, approvals and audit records hold digests: a change of this number breaks all of them.
    assert (
        take_bundle(directory).digest
        == "sha256:4b387d6bf9305281d9eb61463ab5265e1c64cae3769069c62a51a765f2b2a94d"
    )


@pytest.mark.parametrize("length", [99, 100, 101, 155, 156, 250, 255, 256, 257, 600])
def test_paths_of_any_length_come_back(tmp_path: Path, length: int) -> None:
    path = ""
    while len(path) < length:
        path += "x" * min(49, length - len(path))
        path += "/" if len(path) < length - 1 else ""
    path = path.ljust(length, "y")
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_bytes(b"deep")
    bundle = take_bundle(tmp_path)
    with tarfile.open(fileobj=io.BytesIO(bundle.data)) as archive:
        assert archive.getnames() == [path]
    assert dict(bundle_contents(bundle)) == {path: b"deep"}


@pytest.mark.parametrize("name", sorted(LEFT_OUT))
def test_what_tools_leave_behind_is_no_part_of_a_skill(tmp_path: Path, name: str) -> None:
    directory = write_skill(tmp_path, "clean")
    before = take_bundle(directory).digest
    (directory / "scripts" / name).mkdir(parents=True)
    (directory / "scripts" / name / "config").write_text("token")
    (directory / "empty").mkdir()
    assert take_bundle(directory).digest == before


def test_links_are_refused_by_name_wherever_they_lead(tmp_path: Path) -> None:
    directory = write_skill(tmp_path, "linked")
    for target in ("SKILL.md", "/etc/passwd", "nowhere", "."):
        (directory / "link").symlink_to(target)
        with pytest.raises(PathRefused, match="link is a link"):
            take_bundle(directory)
        (directory / "link").unlink()


def test_devices_fifos_and_sockets_are_refused_at_once(tmp_path: Path) -> None:
    fifo, sock = write_skill(tmp_path, "fifo"), write_skill(tmp_path, "sock")
    os.mkfifo(fifo / "pipe")
    with pytest.raises(PathRefused, match="pipe is a FIFO"):
        take_bundle(fifo)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(sock / "s"))
        with pytest.raises(PathRefused, match="s is a socket"):
            take_bundle(sock)
    with pytest.raises(PathRefused, match="a device"):
        take_bundle(Path("/dev/pts"))


def test_a_skill_folder_that_became_a_link_is_refused(tmp_path: Path) -> None:
    write_skill(tmp_path, "real")
    (tmp_path / "swapped").symlink_to(tmp_path / "real")
    with pytest.raises(SkillError):
        take_bundle(tmp_path / "swapped")


def test_a_folder_swapped_for_a_link_while_it_is_read_never_lets_anything_else_in(tmp_path: Path) -> None:
    directory = write_skill(tmp_path, "victim")
    (directory / "data").mkdir()
    (directory / "data/file").write_text("inside")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("SECRET")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            (directory / "data").rename(tmp_path / "aside")
            (directory / "data").symlink_to(outside)
            (directory / "data").unlink()
            (tmp_path / "aside").rename(directory / "data")

    thread = threading.Thread(target=swap)
    thread.start()
    seen: set[bool | None] = set()
    tries: list[int] = []
    try:
        end = time.monotonic() + 60
        while len(tries) < 1500 or (None not in seen and time.monotonic() < end):
            tries.append(1)
            try:
                seen.add(b"SECRET" in take_bundle(directory).data)
            except SkillError:
                seen.add(None)
    finally:
        stop.set()
        thread.join()
    assert True not in seen
    assert None in seen  # the swap was met, and refused


def test_a_file_that_grows_while_it_is_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = write_skill(tmp_path, "growing")
    real = beneath.regular

    def grow(descriptor: int, name: str) -> os.stat_result:
        info = real(descriptor, name)
        with open(directory / "SKILL.md", "a") as file:
            file.write("more")
        return info

    monkeypatch.setattr(bundling, "regular", grow)
    with pytest.raises(SkillError, match="changed while it was read"):
        take_bundle(directory)


def test_count_size_and_depth_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many, large, deep = (write_skill(tmp_path, name) for name in ("many", "large", "deep"))
    for number in range(bundling.MAX_FILES):
        (many / f"{number}").touch()
    with pytest.raises(SkillError, match="more than 2000 files"):
        take_bundle(many)
    with open(large / "sparse", "wb") as file:
        file.truncate(bundling.MAX_BYTES + 1)
    with pytest.raises(SkillError, match="more than 64 MiB"):
        take_bundle(large)
    (deep / "/".join(["d"] * 40)).mkdir(parents=True)
    with pytest.raises(SkillError, match="deeper than 32"):
        take_bundle(deep)
    folders = write_skill(tmp_path, "folders")
    for number in range(bundling.MAX_ENTRIES):
        (folders / f"{number}").mkdir()
    with pytest.raises(SkillError, match="more than 4000 files and folders"):
        take_bundle(folders)


def test_dependencies_are_found_where_scripts_state_them(tmp_path: Path) -> None:
    directory = write_skill(tmp_path, "needy")
    (directory / "scripts/node_modules/x").mkdir(parents=True)
    (directory / "scripts/run.py").write_text(
        '#!/usr/bin/env python3\n# /// script\n# requires-python = ">=3.11"\n# dependencies = [\n'
        '#   "requests<3",\n#   "rich",\n# ]\n# ///\nprint()\n'
    )
    (directory / "scripts/twice.py").write_text("# /// script\n# ///\n\n# /// script\n# ///\n")
    (directory / "scripts/bad.py").write_text("# /// script\n# dependencies = [\n# ///\n")
    (directory / "scripts/open.py").write_text("# /// script\n# dependencies = []\nprint()\n")
    (directory / "requirements.txt").write_text("# all\nlxml>=5 # fast\n\n-r more.txt\n")
    (directory / "package.json").write_text('{"dependencies": {"docx": "^9"}, "devDependencies": {"x": "1"}}')
    (directory / "scripts/node_modules/x/package.json").write_text('{"dependencies": {"hidden": "1"}}')
    found = {one.file: one for one in find_dependencies(take_bundle(directory))}
    assert sorted(found) == [
        "package.json",
        "requirements.txt",
        "scripts/bad.py",
        "scripts/run.py",
        "scripts/twice.py",
    ]
    assert found["scripts/run.py"].requires == ("requests<3", "rich")
    assert found["scripts/run.py"].python == ">=3.11"
    assert found["requirements.txt"].requires == ("lxml>=5", "-r more.txt")
    assert found["package.json"].requires == ("docx ^9",)
    assert "more than one" in found["scripts/twice.py"].problem
    assert found["scripts/bad.py"].problem


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("huge.py", f"# /// script\n# x = {'1' * 5000}\n# ///\n"),
        ("date.py", "# /// script\n# x = 2024-13-45\n# ///\n"),
        ("deep.py", f"# /// script\n# x = {'[' * 5000}{']' * 5000}\n# ///\n"),
        ("package.json", f'{{"x": {"1" * 5000}}}'),
        ("package.json", "[" * 100_000),
    ],
)
def test_dependencies_that_cant_be_understood_are_a_problem_of_their_file(
    tmp_path: Path, file: str, text: str
) -> None:
    directory = write_skill(tmp_path, "needy")
    (directory / file).write_text(text)
    found = find_dependencies(take_bundle(directory))
    assert [one.file for one in found if one.problem] == [file]
