"""The host's half: a container may send what it likes, and gets nowhere with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillexec.errors import InvalidInput
from skillexec.model import Artifact, Command, InputFile, Interpreter, Limits
from skillexec.sandbox import frames, session
from skillexec.sandbox.session import ArtifactDone, End, Event, Exit, Job, Output, ProtocolError, Ready, Reply

LIMITS = Limits(output_total=1000, artifacts=3, artifact_bytes=100)
READY = {"protocol": 1, "landlock": 7, "fork_python": True, "network": []}
EXIT = {
    "reason": "exited",
    "exit_code": 0,
    "signal": None,
    "oom_kills": 0,
    "cpu_us": 1,
    "wall_us": 2,
    "peak_memory": 3,
    "error": "",
    "timings": {"run": 5},
}


def frame(kind: bytes, value: Any) -> bytes:
    payload = value if isinstance(value, bytes) else json.dumps(value).encode()
    return frames.encode(kind, payload)


def artifact(name: str, size: int, **more: Any) -> bytes:
    return frame(frames.ARTIFACT, {"name": name, "size": size, "executable": False, **more})


STREAM = [
    frame(frames.READY, READY),
    frame(frames.STDOUT, b"hello"),
    frame(frames.STDERR, b"\xff\0"),
    frame(frames.EXIT, EXIT),
    artifact("out/a.bin", 5),
    frame(frames.DATA, b"123"),
    frame(frames.DATA, b"45"),
    artifact("empty", 0),
    frame(frames.END, {"notes": ["left out 'x': too big"]}),
]


def events(data: bytes, limits: Limits = LIMITS) -> list[Event]:
    return list(Reply(limits).feed(data))


def before_the_error(pieces: list[bytes]) -> tuple[list[Event], str]:
    reply, seen = Reply(LIMITS), []
    try:
        for piece in pieces:
            for event in reply.feed(piece):
                seen.append(event)
    except ProtocolError as error:
        return seen, str(error)
    return seen, ""


def test_a_whole_reply_is_read_event_by_event() -> None:
    assert events(b"".join(STREAM)) == [
        Ready(7, True, ()),
        Output("stdout", b"hello"),
        Output("stderr", b"\xff\0"),
        Exit("exited", 0, None, 0, 1, 2, 3, "", {"run": 5}),
        ArtifactDone(Artifact("out/a.bin", b"12345")),
        ArtifactDone(Artifact("empty", b"")),
        End(("left out 'x': too big",)),
    ]


@given(st.lists(st.integers(1, 60), max_size=40))
def test_the_cutting_of_the_stream_changes_nothing(sizes: list[int]) -> None:
    data, pieces = b"".join(STREAM), []
    for size in sizes:
        pieces.append(data[:size])
        data = data[size:]
    assert before_the_error([*pieces, data]) == (events(b"".join(STREAM)), "")


@given(st.lists(st.binary(max_size=80), max_size=10), st.booleans())
def test_arbitrary_bytes_are_events_or_a_protocol_error(pieces: list[bytes], after_ready: bool) -> None:
    before_the_error([STREAM[0], *pieces] if after_ready else pieces)  # raises anything else: the test fails


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A good stream with frames dropped, doubled or swapped, and bytes overwritten."""
    parts = draw(st.permutations(STREAM)) if draw(st.booleans()) else list(STREAM)
    parts = [part for part in parts for _ in range(draw(st.integers(0, 2)))] if draw(st.booleans()) else parts
    data = bytearray(b"".join(parts))
    for _ in range(draw(st.integers(0, 4))):
        if data:
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data)


@given(mutated(), st.lists(st.integers(1, 50), max_size=20))
def test_a_mutated_stream_gives_the_same_events_and_the_same_error_however_cut(
    data: bytes, sizes: list[int]
) -> None:
    pieces, rest = [], data
    for size in sizes:
        pieces.append(rest[:size])
        rest = rest[size:]
    assert before_the_error([*pieces, rest]) == before_the_error([data])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


@given(st.sampled_from(sorted(EXIT)), JSON)
def test_an_exit_with_any_field_replaced_is_well_formed_or_refused(name: str, value: Any) -> None:
    seen, error = before_the_error([STREAM[0], frame(frames.EXIT, {**EXIT, name: value})])
    assert error or isinstance(seen[-1], Exit)


def refusals() -> Iterator[tuple[str, list[bytes]]]:
    ready, exit_, end = STREAM[0], STREAM[3], STREAM[8]
    yield "output before ready", [STREAM[1]]
    yield "exit before ready", [exit_]
    yield "ready twice", [ready, ready]
    yield "another protocol", [frame(frames.READY, {**READY, "protocol": 2})]
    yield "artifact before exit", [ready, artifact("a", 0)]
    yield "end before exit", [ready, end]
    yield "exit twice", [ready, exit_, exit_]
    yield "output after exit", [ready, exit_, STREAM[1]]
    yield "data without artifact", [ready, exit_, frame(frames.DATA, b"x")]
    yield "more data than announced", [ready, exit_, artifact("a", 1), frame(frames.DATA, b"xy")]
    yield "end amid an artifact", [ready, exit_, artifact("a", 1), end]
    yield "artifact amid an artifact", [ready, exit_, artifact("a", 1), artifact("b", 1)]
    yield "empty data for ever", [ready, exit_, artifact("a", 1), frame(frames.DATA, b"")]
    yield "empty output for ever", [ready, frame(frames.STDOUT, b"")]
    yield "the same name twice", [ready, exit_, artifact("a", 0), artifact("a", 0)]
    yield "too many artifacts", [ready, exit_, *(artifact(name, 0) for name in "abcd")]
    yield "too large an artifact", [ready, exit_, artifact("a", 101)]
    yield (
        "too large together",
        [ready, exit_, artifact("a", 60), frame(frames.DATA, bytes(60)), artifact("b", 60)],
    )
    yield "a name that leaves", [ready, exit_, artifact("../a", 0)]
    yield "an absolute name", [ready, exit_, artifact("/a", 0)]
    yield "a name with a NUL", [ready, exit_, artifact("a\0", 0)]
    yield "a negative size", [ready, exit_, artifact("a", -1)]
    yield "a size that is true", [ready, exit_, artifact("a", True)]
    yield "too much output", [ready, frame(frames.STDOUT, bytes(1001))]
    yield "bytes after the end", [ready, exit_, end + b"Z"]
    yield "a frame after the end", [ready, exit_, end, end]
    yield "frames of the host", [ready, frame(frames.GO, b"")]
    yield "no JSON", [frame(frames.READY, b"{")]
    yield "no object", [frame(frames.READY, b"[]")]
    yield "not ASCII", [frame(frames.READY, json.dumps({**READY, "é": "é"}, ensure_ascii=False).encode())]
    yield "NaN", [ready, frame(frames.EXIT, json.dumps({**EXIT, "cpu_us": float("nan")}).encode())]
    yield "a nesting bomb", [ready, frame(frames.EXIT, b"[" * 60000)]
    yield "a digit bomb", [ready, frame(frames.EXIT, b'{"cpu_us":' + b"9" * 60000 + b"}")]
    yield "a huge counter", [ready, frame(frames.EXIT, {**EXIT, "cpu_us": 1 << 63})]
    yield "exit code and signal", [ready, frame(frames.EXIT, {**EXIT, "signal": 9})]
    yield "exited, and not how", [ready, frame(frames.EXIT, {**EXIT, "exit_code": None})]
    yield "an exit code of 256", [ready, frame(frames.EXIT, {**EXIT, "exit_code": 256})]
    yield "an unknown reason", [ready, frame(frames.EXIT, {**EXIT, "reason": "ok"})]
    yield "endless notes", [ready, exit_, frame(frames.END, {"notes": ["x"] * 65})]


@pytest.mark.parametrize("pieces", [pytest.param(pieces, id=name) for name, pieces in refusals()])
def test_a_launcher_can_not_get_away_with(pieces: list[bytes]) -> None:
    seen, error = before_the_error(pieces)
    assert error, seen


def test_what_came_before_a_violation_is_kept() -> None:
    seen, error = before_the_error([STREAM[0] + STREAM[1] + b"garbage"])
    assert error
    assert seen == [Ready(7, True, ()), Output("stdout", b"hello")]


def test_another_protocol_says_what_to_do() -> None:
    with pytest.raises(ProtocolError) as caught:
        events(frame(frames.READY, {**READY, "protocol": 2}))
    assert caught.value.hint == "skillexec image build"


def test_a_launcher_that_does_not_say_what_network_it_sees_is_not_taken_to_see_none() -> None:
    silent = {name: value for name, value in READY.items() if name != "network"}
    assert events(frame(frames.READY, silent)) == [Ready(7, True, ("unknown",))]


def test_text_for_people_can_always_be_printed() -> None:
    seen = events(STREAM[0] + frame(frames.EXIT, {**EXIT, "error": "\ud800 bad"}))
    assert isinstance(seen[1], Exit)
    assert seen[1].error.encode() == b"\\ud800 bad"


def test_an_unlimited_output_is_not_limited() -> None:
    many = STREAM[0] + frame(frames.STDOUT, bytes(5000)) * 3
    assert len(events(many, Limits(output_total=0))) == 4


def test_a_job_is_frames_in_order_of_exactly_the_announced_sizes() -> None:
    job = Job(
        command=Command(Interpreter.SCRIPT, "scripts/x.py", ("a", "\udcff")),
        bundle=bytes(150_000),
        seconds=1.5,
        limits=LIMITS,
        env={"TOKEN": "s3cret"},
        files=(InputFile("a", b"12"), InputFile("b", b""), InputFile("c", b"345")),
        stdin=b"in",
    )
    sent = list(frames.Decoder(frames.FROM_HOST).feed(b"".join(session.encode_job(job))))
    assert [item.kind for item in sent] == [b"J", b"B", b"B", b"B", b"F", b"F", b"I", b"G"]
    header = json.loads(sent[0].payload)
    assert (header["bundle"], header["stdin"], header["args"]) == (150_000, 2, ["a", "\udcff"])
    assert header["files"] == [{"name": "a", "size": 2}, {"name": "b", "size": 0}, {"name": "c", "size": 3}]
    assert b"".join(item.payload for item in sent if item.kind == b"F") == b"12345"
    assert "s3cret" not in repr(job)


def test_a_job_without_stdin_is_told_from_one_with_an_empty_stdin() -> None:
    for stdin, size in ((None, None), (b"", 0)):
        job = Job(Command(Interpreter.TOOL, "jq"), b"", 1.0, stdin=stdin)
        assert json.loads(next(session.encode_job(job))[5:])["stdin"] == size


def test_arguments_that_fit_no_frame_are_invalid_input_and_say_what_to_do() -> None:
    job = Job(Command(Interpreter.TOOL, "jq", ("x" * (1 << 20),)), b"", 1.0)
    with pytest.raises(InvalidInput) as caught:
        list(session.encode_job(job))
    assert "stdin" in caught.value.hint
