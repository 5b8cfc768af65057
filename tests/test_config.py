"""Settings are validated once; what can't be understood stops the command."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillexec.config import Config, Root, limits_for, load_config, moved, save_roots, save_trusted
from skillexec.errors import ConfigInvalid, Usage
from skillexec.model import Source


def _load(tmp_path: Path, text: str, **environment: str) -> Config:
    path = tmp_path / "config.toml"
    path.write_text(text)
    return load_config(path, environment=environment)


def test_a_missing_file_means_the_defaults(tmp_path: Path) -> None:
    assert load_config(tmp_path / "none.toml", environment={}) == Config()


def test_sizes_can_be_written_as_people_do(tmp_path: Path) -> None:
    config = _load(tmp_path, '[sandbox]\nmemory = "256m"\noutput = 1024\ntmpfs = "1 GiB"\n')
    assert (config.sandbox.memory, config.sandbox.output, config.sandbox.tmpfs) == (256 << 20, 1024, 1 << 30)


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    config = _load(
        tmp_path,
        "[timeouts]\nshort = 5\n",
        SKILLEXEC_TIMEOUTS_SHORT="7.5",
        SKILLEXEC_SANDBOX_FORK_PYTHON="no",
    )
    assert config.timeouts.short == 7.5
    assert config.sandbox.fork_python is False


def test_limits_come_from_the_settings(tmp_path: Path) -> None:
    limits = limits_for(_load(tmp_path, '[sandbox]\npids = 77\nmemory = "1g"'), 12.0)
    assert (limits.seconds, limits.pids, limits.memory) == (12.0, 77, 1 << 30)


@pytest.mark.parametrize(
    "text",
    [
        "not toml at all [",
        "surprise = 1",
        "[sandbox]\nmemmory = 1",
        "[sandbox]\nmemory = 'lots'",
        "[sandbox]\nmemory = -1",
        "[sandbox]\nmemory = 0",
        "[sandbox]\nfork_python = 'perhaps'",
        "[sandbox]\npids = 1.5",
        "[timeouts]\nshort = nan",
        "[timeouts]\nlong = inf",
        "[timeouts]\nlong = true",
        "sandbox = 3",
        "[trust]\nallowed_tools = 'maybe'",
        "roots = 1",
        "[[roots]]\npath = '/x'",
        "[[roots]]\npath = '/x'\nsource = 'friend'",
        "[[roots]]\npath = 'relative'\nsource = 'org'",
        "trusted = ['relative']",
        "trusted = [1]",
    ],
)
def test_a_config_that_can_not_be_understood_stops_the_command(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigInvalid):
        _load(tmp_path, text)


def test_a_variable_that_can_not_be_understood_stops_the_command(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="SKILLEXEC_SANDBOX_PIDS"):
        _load(tmp_path, "", SKILLEXEC_SANDBOX_PIDS="many")


def test_a_variable_of_a_section_that_is_no_setting_stops_the_command(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="SKILLEXEC_SANDBOX_MEMRY") as caught:
        _load(tmp_path, "", SKILLEXEC_SANDBOX_MEMRY="64m")
    assert "SKILLEXEC_SANDBOX_MEMORY" in caught.value.hint


def test_invalid_utf8_stops_the_command(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(b"trusted = ['/\xff']")
    with pytest.raises(ConfigInvalid):
        load_config(path, environment={})


def test_saving_roots_keeps_the_operators_comments_and_settings(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("# ours, do not touch\n[timeouts]\nshort = 9  # because\n")
    roots = (Root(Path("/a"), Source.ORG), Root(Path("/b c"), Source.USER))
    save_roots(path, roots)
    save_trusted(path, (Path("/project"),))
    assert "# ours, do not touch" in path.read_text()
    assert "# because" in path.read_text()
    config = load_config(path, environment={})
    assert (config.roots, config.trusted, config.timeouts.short) == (roots, (Path("/project"),), 9)


def test_roots_are_taken_most_trusted_first_whatever_their_order(tmp_path: Path) -> None:
    roots = tuple(Root(Path(f"/{source}"), source) for source in reversed(Source))
    assert [root.source for root in Config(roots=roots).ordered_roots()] == list(Source)


def test_a_root_can_be_moved_and_an_unknown_one_can_not() -> None:
    a, b, c = (Root(Path(f"/{name}"), Source.ORG) for name in "abc")
    assert moved((a, b, c), Path("/c"), 1) == (c, a, b)
    assert moved((a, b, c), Path("/a"), 99) == (b, c, a)
    with pytest.raises(Usage):
        moved((a, b, c), Path("/nowhere"), 1)
