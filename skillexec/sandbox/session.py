"""The host's half of the protocol: a job as bytes, and a launcher's bytes as typed events.

Pure: no engine, no clock, no files. Nothing that a container sends is believed: every violation of
order, size or type is a ProtocolError and nothing else, and memory stays bounded whatever arrives.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from skillexec.errors import InfraError, InvalidInput
from skillexec.model import Artifact, Command, InputFile, Limits
from skillexec.sandbox import frames

CANCEL = frames.encode(frames.CANCEL)

REASONS = frozenset({"exited", "timeout", "output_limit", "cancelled", "refused"})
TEXT_MAX = 8 << 10  # characters of an error or a note
NOTES_MAX = 64
TIMINGS_MAX = 32
KEY_MAX = 64
COUNTER_MAX = (1 << 63) - 1


class ProtocolError(InfraError):
    """The container sent what no launcher sends."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run, as the launcher is told of it. The repr shows neither secrets nor content."""

    command: Command
    bundle: bytes = field(repr=False)  # a tar
    seconds: float  # what is left of the deadline
    limits: Limits = field(default_factory=Limits)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    files: tuple[InputFile, ...] = ()
    stdin: bytes | None = field(default=None, repr=False)  # None: /dev/null
    fork_python: bool = True


@dataclass(frozen=True, slots=True)
class Ready:
    """The launcher waits for its job."""

    landlock: int  # the ABI that the script will be held by; 0: none
    fork_python: bool  # whether the launcher's own interpreter may stand in for a fresh one
    network: tuple[str, ...] = ("unknown",)  # what it sees of a network beyond `lo`; a sandbox has none


@dataclass(frozen=True, slots=True)
class Output:
    """What the script wrote, in the order in which the launcher read it."""

    stream: str  # "stdout" or "stderr"
    data: bytes


@dataclass(frozen=True, slots=True)
class Exit:
    """How the script ended. `reason` says who ended it; code and signal are what the kernel said."""

    reason: str
    exit_code: int | None
    signal: int | None
    oom_kills: int
    cpu_us: int
    wall_us: int
    peak_memory: int
    error: str
    timings: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ArtifactDone:
    """A collected file, complete."""

    artifact: Artifact


@dataclass(frozen=True, slots=True)
class End:
    """Nothing follows."""

    notes: tuple[str, ...]


Event = Ready | Output | Exit | ArtifactDone | End


def encode_job(job: Job) -> Iterator[bytes]:
    """The job as frames, the go included, in pieces that are each fit for one write."""
    yield _header(job)
    yield from _chunks(frames.BUNDLE, job.bundle)
    for file in job.files:
        yield from _chunks(frames.FILE, file.data)
    yield from _chunks(frames.STDIN, job.stdin or b"")
    yield frames.encode(frames.GO)


def _header(job: Job) -> bytes:
    limits = job.limits
    header = {
        "protocol": frames.PROTOCOL,
        "kind": job.command.kind.value,
        "target": job.command.target,
        "args": list(job.command.args),
        "env": dict(job.env),
        "seconds": job.seconds,
        "output_total": limits.output_total,
        "artifacts": limits.artifacts,
        "artifact_bytes": limits.artifact_bytes,
        "file_size": limits.file_size,
        "open_files": limits.open_files,
        "fork_python": job.fork_python,
        "bundle": len(job.bundle),
        "files": [{"name": file.name, "size": len(file.data)} for file in job.files],
        "stdin": None if job.stdin is None else len(job.stdin),
    }
    payload = json.dumps(header, allow_nan=False).encode("ascii")
    if len(payload) > frames.PAYLOAD_MAX:
        raise InvalidInput(
            f"arguments, environment and file names take {len(payload):,} bytes of at most {frames.PAYLOAD_MAX:,}",
            hint="pass long values on stdin or as an input file",
        )
    return frames.encode(frames.JOB, payload)


def _chunks(kind: bytes, data: bytes) -> Iterator[bytes]:
    view = memoryview(data)
    for start in range(0, len(view), frames.CHUNK):
        yield frames.encode(kind, bytes(view[start : start + frames.CHUNK]))


class Fields:
    """A JSON object from a container, read field by field with types and ranges checked."""

    def __init__(self, payload: bytes) -> None:
        try:
            value = json.loads(payload.decode("ascii"), parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise ProtocolError(f"the launcher sent no JSON: {type(error).__name__}") from None
        if not isinstance(value, dict):
            raise ProtocolError("the launcher sent JSON that is no object")
        self._value: dict[str, Any] = value

    def integer(self, name: str, low: int = 0, high: int = COUNTER_MAX) -> int:
        value = self._value.get(name)
        if type(value) is not int or not low <= value <= high:
            raise self._wrong(name)
        return value

    def optional(self, name: str, low: int, high: int) -> int | None:
        if self._value.get(name, 0) is None:
            return None
        return self.integer(name, low, high)

    def flag(self, name: str) -> bool:
        value = self._value.get(name)
        if type(value) is not bool:
            raise self._wrong(name)
        return value

    def text(self, name: str) -> str:
        value = self._value.get(name)
        if type(value) is not str or len(value) > TEXT_MAX:
            raise self._wrong(name)
        return value

    def prose(self, name: str) -> str:
        """Text for people: lone surrogates, which can't be printed, are spelt out."""
        return _printable(self.text(name))

    def texts(self, name: str, default: tuple[str, ...] | None = None) -> tuple[str, ...]:
        value = self._value.get(name, None if default is None else list(default))
        if type(value) is not list or len(value) > NOTES_MAX:
            raise self._wrong(name)
        if not all(type(item) is str and len(item) <= TEXT_MAX for item in value):
            raise self._wrong(name)
        return tuple(_printable(item) for item in value)

    def counters(self, name: str) -> Mapping[str, int]:
        value = self._value.get(name)
        if type(value) is not dict or len(value) > TIMINGS_MAX:
            raise self._wrong(name)
        for key, count in value.items():
            if len(key) > KEY_MAX or type(count) is not int or not 0 <= count <= COUNTER_MAX:
                raise self._wrong(name)
        return {_printable(key): count for key, count in value.items()}

    def _wrong(self, name: str) -> ProtocolError:
        return ProtocolError(f"the launcher's {name!r} is missing or wrong")


def _printable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


@dataclass(slots=True)
class _Arriving:
    """An artifact of which not all bytes are here."""

    name: str
    size: int
    executable: bool
    data: bytearray = field(default_factory=bytearray)


_STREAMS = {frames.STDOUT: "stdout", frames.STDERR: "stderr"}


class Reply:
    """What one container answers, from its first byte to its last.

    `feed` gives events as far as the bytes are good and then raises ProtocolError; after that the
    container can only be thrown away.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._decoder = frames.Decoder(frames.FROM_LAUNCHER)
        self._totals = dict.fromkeys(_STREAMS, 0)
        self._names: set[str] = set()
        self._artifact_bytes = 0
        self._arriving: _Arriving | None = None
        self.ready: Ready | None = None
        self.exit: Exit | None = None
        self.ended = False

    def feed(self, data: bytes) -> Iterator[Event]:
        """The events that `data` completes."""
        try:
            for frame in self._decoder.feed(data):
                event = self._event(frame)
                if event is not None:
                    yield event
            if self.ended and self._decoder.pending:
                raise ProtocolError("the launcher went on after its end")
        except frames.FrameError as error:
            raise ProtocolError(f"the launcher broke the protocol: {error}") from None

    def _event(self, frame: frames.Frame) -> Event | None:
        kind, payload = frame
        if self.ended:
            raise ProtocolError("the launcher went on after its end")
        if self.ready is None:
            return self._on_ready(kind, payload)
        if self.exit is None:
            return self._on_running(kind, payload)
        if self._arriving is not None:
            return self._on_data(kind, payload, self._arriving)
        return self._on_after_exit(kind, payload)

    def _on_ready(self, kind: bytes, payload: bytes) -> Event:
        if kind != frames.READY:
            raise _unexpected(kind, "before it was ready")
        fields = Fields(payload)
        protocol = fields.integer("protocol")
        if protocol != frames.PROTOCOL:
            raise ProtocolError(
                f"the image's launcher speaks protocol {protocol}, this is {frames.PROTOCOL}",
                hint="skillexec image build",
            )
        self.ready = Ready(
            fields.integer("landlock", 0, 1000),
            fields.flag("fork_python"),
            fields.texts("network", ("unknown",)),
        )
        return self.ready

    def _on_running(self, kind: bytes, payload: bytes) -> Event:
        if kind in _STREAMS:
            return self._on_output(kind, payload)
        if kind != frames.EXIT:
            raise _unexpected(kind, "while the script ran")
        self.exit = _exit(Fields(payload))
        return self.exit

    def _on_output(self, kind: bytes, payload: bytes) -> Event:
        self._totals[kind] += len(payload)
        limit = self._limits.output_total
        if not payload or (limit and self._totals[kind] > limit):
            raise ProtocolError("the launcher relayed more output than it may, or none at all")
        return Output(_STREAMS[kind], payload)

    def _on_after_exit(self, kind: bytes, payload: bytes) -> Event | None:
        if kind == frames.END:
            self.ended = True
            return End(Fields(payload).texts("notes"))
        if kind != frames.ARTIFACT:
            raise _unexpected(kind, "after the exit")
        self._arriving = self._artifact(Fields(payload))
        return self._complete(self._arriving)

    def _artifact(self, fields: Fields) -> _Arriving:
        name, size = fields.text("name"), fields.integer("size")
        if not frames.acceptable_name(name) or name in self._names:
            raise ProtocolError(f"the launcher collected a file of an impossible name: {name[:80]!a}")
        self._names.add(name)
        self._artifact_bytes += size
        if len(self._names) > self._limits.artifacts or self._artifact_bytes > self._limits.artifact_bytes:
            raise ProtocolError("the launcher collected more than it may")
        return _Arriving(name, size, fields.flag("executable"))

    def _on_data(self, kind: bytes, payload: bytes, arriving: _Arriving) -> Event | None:
        if kind != frames.DATA:
            raise _unexpected(kind, "in the midst of an artifact")
        if not payload or len(arriving.data) + len(payload) > arriving.size:
            raise ProtocolError("an artifact's data is not of the size that was announced")
        arriving.data += payload
        return self._complete(arriving)

    def _complete(self, arriving: _Arriving) -> Event | None:
        if len(arriving.data) < arriving.size:
            return None
        self._arriving = None
        return ArtifactDone(Artifact(arriving.name, bytes(arriving.data), arriving.executable))


def _exit(fields: Fields) -> Exit:
    reason = fields.text("reason")
    code, signal = fields.optional("exit_code", 0, 255), fields.optional("signal", 1, 127)
    if reason not in REASONS or (code is not None and signal is not None):
        raise ProtocolError("the launcher's exit makes no sense")
    if reason == "exited" and code is None and signal is None:
        raise ProtocolError("the launcher says that the script exited, and not how")
    return Exit(
        reason=reason,
        exit_code=code,
        signal=signal,
        oom_kills=fields.integer("oom_kills"),
        cpu_us=fields.integer("cpu_us"),
        wall_us=fields.integer("wall_us"),
        peak_memory=fields.integer("peak_memory"),
        error=fields.prose("error"),
        timings=fields.counters("timings"),
    )


def _unexpected(kind: bytes, when: str) -> ProtocolError:
    return ProtocolError(f"the launcher sent a frame {kind!r} {when}")
