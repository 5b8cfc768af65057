"""Discovery: who wins, what is listed instead of used, and an index that is never believed too far."""

from __future__ import annotations

import os
import time
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from skill_folders import settle, write_skill

from skillexec.errors import SkillError, SkillUnknown
from skillexec.model import Source
from skillexec.skills import discovery, index, root
from skillexec.skills.discovery import Library, Skills

RICH = """license: MIT
compatibility: Python 3
allowed-tools: Bash(git:*) Read
version: 3
metadata:
  author: me
  deep: {a: [1, 2]}
  cyberagent: {timeout_class: long, required_env: [TOKEN], network: [example.org], tool: jq}
input_schema: {type: object, properties: {q: {type: string, maxLength: 3}}, required: [q]}
"""


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def org(tmp_path: Path) -> Path:
    (tmp_path / "org").mkdir()
    return tmp_path / "org"


@pytest.fixture
def other(tmp_path: Path) -> Path:
    (tmp_path / "other").mkdir()
    return tmp_path / "other"


def everything(found: Skills) -> tuple[object, ...]:
    """A scan's result, whichever way it was reached."""
    return dict(found.skills), list(found.skills), found.collisions, found.broken, found.problems


# --- who wins -----------------------------------------------------------------------------------------


def test_the_more_trusted_root_wins_whatever_the_order_and_the_other_is_a_collision(
    org: Path, other: Path
) -> None:
    write_skill(other, "same", description="the stranger's")
    write_skill(org, "same", description="ours")
    found = Library([(other, Source.THIRD_PARTY), (org, Source.ORG)]).scan()
    assert found.skills["same"].description == "ours"
    assert [(one.kept.directory, one.shadowed.directory) for one in found.collisions] == [
        (org / "same", other / "same")
    ]


def test_among_roots_of_one_source_the_operators_order_decides(org: Path, other: Path) -> None:
    write_skill(other, "same")
    write_skill(org, "same")
    assert Library([(other, Source.ORG), (org, Source.ORG)]).get("same").directory == other / "same"
    assert Library([(org, Source.ORG), (other, Source.ORG)]).get("same").directory == org / "same"


def test_a_claim_from_another_folder_of_a_more_trusted_root_wins_too(org: Path, other: Path) -> None:
    write_skill(org, "renamed", name="target")
    write_skill(other, "target")
    found = Library([(org, Source.ORG), (other, Source.THIRD_PARTY)]).scan()
    assert found.skills["target"].directory == org / "renamed"
    assert "renamed" in found.skills["target"].diagnostics[0].message


def test_within_one_root_the_folder_that_bears_the_name_comes_first(org: Path) -> None:
    write_skill(org, "a-copy", name="tool")
    write_skill(org, "tool")
    found = Library([(org, Source.ORG)]).scan()
    assert found.skills["tool"].directory == org / "tool"
    assert [one.shadowed.directory for one in found.collisions] == [org / "a-copy"]


@pytest.mark.parametrize("folder", [".skillexec/skills", ".agents/skills", ".claude/skills"])
def test_a_projects_skills_are_strangers_until_the_project_is_trusted(tmp_path: Path, folder: str) -> None:
    write_skill(tmp_path / folder, "local")
    assert Library([], project=tmp_path).get("local").source is Source.THIRD_PARTY
    assert Library([], project=tmp_path, trusted=[tmp_path]).get("local").source is Source.USER
    assert Library([], project=tmp_path, trusted=[tmp_path.parent]).get("local").source is Source.THIRD_PARTY


def test_a_project_folder_that_links_out_of_the_project_is_left_out_and_said(
    tmp_path: Path, org: Path
) -> None:
    write_skill(org, "private")
    project = tmp_path / "project"
    (project / ".claude").mkdir(parents=True)
    (project / ".claude/skills").symlink_to(org)
    found = Library([], project=project, trusted=[project]).scan()
    assert not found.skills
    assert "root add" in found.problems[0].hint


def test_a_folder_named_as_two_roots_counts_once(org: Path, tmp_path: Path) -> None:
    write_skill(org, "once")
    (tmp_path / "alias").symlink_to(org)
    found = Library([(org, Source.ORG), (tmp_path / "alias", Source.THIRD_PARTY)]).scan()
    assert found.skills["once"].source is Source.ORG
    assert not found.collisions


def test_skill_md_in_lower_case_is_found_and_upper_case_goes_first(org: Path) -> None:
    directory = write_skill(org, "lower", description="upper")
    (directory / "skill.md").write_text("---\nname: lower\ndescription: small\n---\n")
    assert Library([(org, Source.ORG)]).get("lower").description == "upper"
    (directory / "SKILL.md").unlink()
    found = Library([(org, Source.ORG)]).get("lower")
    assert (found.description, found.file) == ("small", "skill.md")


def test_only_immediate_subfolders_are_skills(org: Path) -> None:
    write_skill(org / "group", "nested")
    (org / "SKILL.md").write_text("---\nname: org\ndescription: no\n---\n")
    assert not Library([(org, Source.ORG)]).scan().skills


def test_an_unknown_name_says_what_was_probably_meant(org: Path) -> None:
    write_skill(org, "web-search")
    with pytest.raises(SkillUnknown) as caught:
        Library([(org, Source.ORG)]).get("web-serch")
    assert "web-search" in caught.value.hint


def test_asking_for_a_broken_skill_says_why_it_is_broken(org: Path) -> None:
    (org / "bad").mkdir()
    (org / "bad/SKILL.md").write_text("no frontmatter")
    with pytest.raises(SkillError, match="frontmatter") as caught:
        Library([(org, Source.ORG)]).get("bad")
    assert not isinstance(caught.value, SkillUnknown)


def test_too_many_folders_are_said_and_bounded(org: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(6):
        write_skill(org, f"s{number}")
    monkeypatch.setattr(root, "MAX_FOLDERS", 4)
    found = Library([(org, Source.ORG)]).scan()
    assert len(found.skills) == 4
    assert "more than 4" in found.problems[0].message


def test_too_many_bytes_are_said_and_bounded(org: Path) -> None:
    for number in range(6):
        write_skill(org, f"s{number}", body="x" * 1000)
    folder = os.open(org, os.O_RDONLY)
    scanner = root._Scanner(folder, org, Source.ORG, {}, bytes_left=3500)
    rows = list(scanner.rows())
    os.close(folder)
    assert len(rows) == 3
    assert "left out" in scanner.problems[0].message


# --- the index ----------------------------------------------------------------------------------------


def test_the_second_scan_says_exactly_what_the_first_said(org: Path, cache: Path) -> None:
    write_skill(org, "rich", more=RICH)
    write_skill(org, "Odd Name", name="Not Matching", description="text: with a colon")
    write_skill(org, "twin", name="rich")
    (org / "bad").mkdir()
    (org / "bad/SKILL.md").write_text("nothing")
    settle()
    library = Library([(org, Source.ORG)], cache=cache)
    first, second = library.scan(), library.scan()
    assert everything(first) == everything(second) == everything(Library([(org, Source.ORG)]).scan())
    assert all(one.fresh for one in first.listed)
    assert not any(one.fresh for one in second.listed)
    assert second.skills["rich"].timeout_class.name == "LONG"


def test_what_comes_goes_or_changes_is_seen_at_the_next_scan(org: Path, cache: Path) -> None:
    write_skill(org, "kept")
    write_skill(org, "gone")
    write_skill(org, "changed", description="old")
    settle()
    library = Library([(org, Source.ORG)], cache=cache)
    library.scan()
    (org / "gone/SKILL.md").unlink()
    write_skill(org, "changed", description="new")
    write_skill(org, "new")
    found = library.scan()
    assert sorted(found.skills) == ["changed", "kept", "new"]
    assert found.skills["changed"].description == "new"


def test_an_edit_of_the_same_size_with_its_time_put_back_is_seen(org: Path, cache: Path) -> None:
    file = write_skill(org, "sly", description="AAAA") / "SKILL.md"
    settle()
    library = Library([(org, Source.ORG)], cache=cache)
    library.scan()
    before = file.stat()
    file.write_text(file.read_text().replace("AAAA", "BBBB"))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.stat().st_size == before.st_size
    assert library.get("sly").description == "BBBB"
    assert library.scan().skills["sly"].description == "BBBB"


def test_a_file_from_the_future_is_remembered_and_its_changes_are_seen(org: Path, cache: Path) -> None:
    file = write_skill(org, "ahead", description="AAAA") / "SKILL.md"
    tomorrow = time.time_ns() + 86_400 * 10**9
    os.utime(file, ns=(tomorrow, tomorrow))
    settle()
    library = Library([(org, Source.ORG)], cache=cache)
    library.scan()
    assert library.scan().listed[0].fresh is None
    file.write_text(file.read_text().replace("AAAA", "BBBB"))
    os.utime(file, ns=(tomorrow, tomorrow))
    assert library.scan().skills["ahead"].description == "BBBB"


def test_two_edits_within_one_tick_of_the_clock_are_not_missed(org: Path, cache: Path) -> None:
    library = Library([(org, Source.ORG)], cache=cache)
    for number in range(60):
        write_skill(org, "fast", description=f"v{number:02}")
        assert library.scan().skills["fast"].description == f"v{number:02}"


def test_an_upper_case_file_that_appears_later_takes_over(org: Path, cache: Path) -> None:
    directory = write_skill(org, "case", description="upper")
    (directory / "SKILL.md").rename(directory / "skill.md")
    settle()
    library = Library([(org, Source.ORG)], cache=cache)
    assert library.scan().skills["case"].file == "skill.md"
    write_skill(org, "case", description="upper")
    assert library.get("case").file == "SKILL.md"
    assert library.scan().skills["case"].file == "SKILL.md"


def _index(cache: Path) -> Path:
    return next(cache.iterdir())


def _forge(org: Path, cache: Path) -> Path:
    """An index that says something else than the file, to see whether it is believed."""
    file = write_skill(org, "honest", description="true") / "SKILL.md"
    settle()
    Library([(org, Source.ORG)], cache=cache).scan()
    with (
        index.Index.open(_index(cache), root=str(org), reader=index.reader_version())
        or pytest.fail() as known
    ):
        about, rows = known.about, known.rows()
    index.write_index(_index(cache), about, [rows[0]._replace(text="forged")])
    assert file.exists()
    return _index(cache)


def test_an_index_of_ours_is_believed_about_metadata(org: Path, cache: Path) -> None:
    _forge(org, cache)  # the control for the tests below
    library = Library([(org, Source.ORG)], cache=cache)
    assert library.scan().skills["honest"].description == "forged"
    assert library.get("honest").description == "forged"


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_an_index_that_others_may_write_is_ignored_and_replaced(org: Path, cache: Path, mode: int) -> None:
    file = _forge(org, cache)
    file.chmod(mode)
    library = Library([(org, Source.ORG)], cache=cache)
    assert library.get("honest").description == "true"
    assert library.scan().skills["honest"].description == "true"
    assert file.stat().st_mode & 0o777 == 0o600


def test_an_index_of_another_user_is_ignored(org: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _forge(org, cache)
    somebody_else = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: somebody_else)
    assert Library([(org, Source.ORG)], cache=cache).scan().skills["honest"].description == "true"


def test_an_index_that_is_a_link_is_ignored(org: Path, cache: Path, tmp_path: Path) -> None:
    file = _forge(org, cache)
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    assert Library([(org, Source.ORG)], cache=cache).scan().skills["honest"].description == "true"
    assert not file.is_symlink()


def test_an_index_of_other_code_is_ignored(org: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _forge(org, cache)
    monkeypatch.setattr(index, "__version__", "0.0.0")
    assert Library([(org, Source.ORG)], cache=cache).scan().skills["honest"].description == "true"


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_index_changes_nothing_but_the_time_it_takes(tmp_path: Path, data: st.DataObject) -> None:
    org, cache = tmp_path / "org", tmp_path / "cache"
    if not org.exists():
        cache.mkdir(mode=0o700)
        for number in range(5):
            write_skill(org, f"skill-{number}", more=RICH)
        settle()
    library = Library([(org, Source.ORG)], cache=cache)
    expected = everything(library.scan())
    raw = bytearray(_index(cache).read_bytes())
    position = data.draw(st.integers(0, len(raw) - 1))
    if data.draw(st.booleans()):
        raw[position] ^= data.draw(st.integers(1, 255))
    else:
        del raw[position:]
    _index(cache).write_bytes(raw)
    assert [one.name for one in library.find(["skill-3", "skill-0"])] == ["skill-3", "skill-0"]
    _index(cache).write_bytes(raw)
    assert everything(library.scan()) == expected
    assert everything(library.scan()) == expected


def test_a_cache_that_cant_be_written_is_no_error(org: Path, tmp_path: Path) -> None:
    write_skill(org, "fine")
    cache = tmp_path / "cache"
    cache.mkdir()
    library = Library([(org, Source.ORG)], cache=cache)
    cache.rmdir()
    cache.write_text("not a folder any more")
    assert list(library.scan().skills) == ["fine"]


def test_indexes_of_forgotten_projects_do_not_pile_up(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "MAX_FILES", 3)
    for number in range(8):
        write_skill(tmp_path / f"root{number}", "one")
        Library([(tmp_path / f"root{number}", Source.ORG)], cache=cache).scan()
    assert len(list(cache.iterdir())) == 3


# --- lookups by name ----------------------------------------------------------------------------------


@pytest.fixture
def two_roots(org: Path, other: Path, cache: Path) -> Library:
    for number in range(20):
        write_skill(org, f"ours-{number}")
        write_skill(other, f"theirs-{number}")
    settle()
    library = Library([(org, Source.ORG), (other, Source.THIRD_PARTY)], cache=cache)
    library.scan()
    return library


def _forbid_scans(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("scanned")

    monkeypatch.setattr(discovery, "scan_root", refuse)


def test_a_lookup_in_unchanged_roots_scans_nothing(
    two_roots: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [two_roots.scan().skills[name] for name in ("theirs-7", "ours-3")]
    _forbid_scans(monkeypatch)
    assert two_roots.find(["theirs-7", "ours-3"]) == expected


def test_a_lookup_sees_the_change_of_the_file_asked_for(two_roots: Library, org: Path) -> None:
    write_skill(org, "ours-3", description="other")
    assert two_roots.get("ours-3").description == "other"


def test_a_lookup_sees_that_the_skill_asked_for_calls_itself_something_else(
    two_roots: Library, org: Path
) -> None:
    write_skill(org, "ours-3", name="new-name")
    with pytest.raises(SkillUnknown):
        two_roots.get("ours-3")
    assert two_roots.get("new-name").directory == org / "ours-3"


def test_a_lookup_sees_a_more_trusted_skill_of_that_name(two_roots: Library, org: Path) -> None:
    write_skill(org, "theirs-7", description="ours now")
    assert two_roots.get("theirs-7").source is Source.ORG


def test_a_lookup_sees_a_more_trusted_skill_in_a_folder_that_was_there(
    org: Path, other: Path, cache: Path
) -> None:
    (org / "tool").mkdir()  # without a SKILL.md yet: the root folder itself will not change any more
    write_skill(other, "tool")
    settle()
    library = Library([(org, Source.ORG), (other, Source.THIRD_PARTY)], cache=cache)
    assert library.get("tool").source is Source.THIRD_PARTY
    write_skill(org, "tool")
    assert library.get("tool").source is Source.ORG


def test_a_lookup_sees_a_removed_folder(two_roots: Library, org: Path) -> None:
    (org / "ours-3/SKILL.md").unlink()
    (org / "ours-3").rmdir()
    with pytest.raises(SkillUnknown):
        two_roots.get("ours-3")


def test_a_lookup_never_lets_a_less_trusted_skill_take_a_name_over(two_roots: Library, other: Path) -> None:
    write_skill(other, "theirs-1", name="ours-3")
    write_skill(other, "ours-3")
    assert two_roots.get("ours-3").source is Source.ORG


def test_a_lookup_sees_another_folder_of_a_more_trusted_root_claim_the_name_within_a_minute(
    two_roots: Library, org: Path, cache: Path
) -> None:
    write_skill(org, "ours-3", name="theirs-7")
    for file in cache.iterdir():
        past = file.stat().st_mtime - discovery.FRESH_SECONDS - 1
        os.utime(file, (past, past))
    assert two_roots.get("theirs-7").directory == org / "ours-3"


def test_a_lookup_sees_a_root_come_back(two_roots: Library, org: Path) -> None:
    org.rename(org.with_name("away"))
    with pytest.raises(SkillUnknown):
        two_roots.get("ours-3")
    assert two_roots.get("theirs-7").source is Source.THIRD_PARTY
    org.with_name("away").rename(org)
    assert two_roots.get("ours-3").source is Source.ORG


NAMES = st.sampled_from(["a", "b", "c"])
STEPS = st.one_of(
    st.tuples(st.just("write"), st.sampled_from(["org", "other"]), NAMES, NAMES),
    st.tuples(st.just("remove"), st.sampled_from(["org", "other"]), NAMES, NAMES),
    st.tuples(st.just("rename"), st.sampled_from(["org", "other"]), NAMES, NAMES),
)


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(STEPS, max_size=12))
def test_with_an_index_every_scan_says_what_one_without_says(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, str, str]]
) -> None:
    base = tmp_path_factory.mktemp("scan")
    roots = [(base / "org", Source.ORG), (base / "other", Source.THIRD_PARTY)]
    for path in (base / "org", base / "other", base / "cache"):
        path.mkdir()
    for step, (verb, place, folder, name) in enumerate(steps):
        target = base / place / folder
        if verb == "write":
            write_skill(base / place, folder, name=name, description="x" * (step + 1))
        elif verb == "remove" and (target / "SKILL.md").exists():
            (target / "SKILL.md").unlink()
        elif verb == "rename" and target.exists() and not (base / place / name).exists():
            target.rename(base / place / name)
        # Each step leaves another size, so that even changes within one tick of the clock may be remembered.
        with mock.patch.object(root, "_RACY_NS", 0):
            indexed = Library(roots, cache=base / "cache").scan()
        assert everything(indexed) == everything(Library(roots).scan())
