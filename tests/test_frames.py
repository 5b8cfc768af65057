"""Frames: what goes in comes out, however it is cut, and nothing else does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillexec.sandbox import frames
from skillexec.sandbox.frames import Decoder, Frame, FrameError

KINDS = [kind for kind, limit in frames.FROM_HOST.items() if limit]
FRAMES = st.lists(st.builds(Frame, st.sampled_from(KINDS), st.binary(max_size=300)), max_size=8)


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    pieces = []
    for size in sizes:
        pieces.append(data[:size])
        data = data[size:]
    return [*pieces, data]


@given(FRAMES, st.lists(st.integers(0, 40), max_size=60))
def test_frames_survive_any_cutting_of_their_bytes(sent: list[Frame], sizes: list[int]) -> None:
    decoder = Decoder(frames.FROM_HOST)
    stream = b"".join(frames.encode(*frame) for frame in sent)
    received = [frame for piece in cut(stream, sizes) for frame in decoder.feed(piece)]
    assert received == sent
    assert decoder.pending == 0


@given(st.lists(st.binary(max_size=64), max_size=20))
def test_arbitrary_bytes_give_frames_or_a_frame_error_and_are_not_hoarded(pieces: list[bytes]) -> None:
    decoder = Decoder(frames.FROM_LAUNCHER)
    try:
        for piece in pieces:
            for frame in decoder.feed(piece):
                assert frame.kind in frames.FROM_LAUNCHER
                assert len(frame.payload) <= frames.FROM_LAUNCHER[frame.kind]
    except FrameError:
        return
    assert decoder.pending <= sum(map(len, pieces))


def test_a_frame_that_is_too_long_is_refused_by_its_header_before_any_of_it_is_held() -> None:
    header = frames.READY + (5 << 10).to_bytes(4, "big")
    with pytest.raises(FrameError, match="longer than"):
        list(Decoder(frames.FROM_LAUNCHER).feed(header))


def test_a_frame_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(FrameError, match="no place"):
        list(Decoder(frames.FROM_LAUNCHER).feed(frames.encode(b"?", b"")))


def test_a_frame_that_nobody_would_accept_is_not_sent() -> None:
    with pytest.raises(FrameError):
        frames.encode(frames.STDOUT, bytes(frames.PAYLOAD_MAX + 1))


@pytest.mark.parametrize(
    "name", ["report.pdf", "a/b/c.txt", "Übersicht.txt", "with space", "-", "…", "a" * 1024, "emoji-👩‍💻"]
)
def test_ordinary_names_of_artifacts_are_accepted(name: str) -> None:
    assert frames.acceptable_name(name)


@pytest.mark.parametrize(
    "name",
    ["", "/etc/passwd", "../x", "a/../b", "a//b", "a/", "./a", ".", "..", "a\0b", "a\nb", "\x1b[2J", "\x7f", "\udc80",
     "a" * 1025],
)  # fmt: skip
def test_names_that_lead_elsewhere_or_hide_something_are_not(name: str) -> None:
    assert not frames.acceptable_name(name)
