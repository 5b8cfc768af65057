"""What crosses the borders between modules: frozen, typed values, and nothing that does any work."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Teams and systems. Rejected, never normalised (DESIGN 5).
IDENTIFIER = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
# A skill that can be granted and run; more names than these can be read.
SKILL_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
SKILL_NAME_MAX = 64
MAX_ORIGINS = 8  # above a system; Casbin's role manager follows ten names at most
# The name of a secret: an environment variable that the script will see.
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
# What the launcher, the loader, shells and interpreters read for themselves. Under such a name a secret would change
# what is run, or turn up in messages: refused where names are declared and where they are mapped.
RESERVED_ENV = re.compile(
    r"PATH|HOME|TMPDIR|LANG|LANGUAGE|(LC|LD|MALLOC|SKILLEXEC)_.*|PYTHON[A-Z0-9]*|NODE_(OPTIONS|PATH|EXTRA_CA_CERTS)"
    r"|BASH_ENV|BASH_FUNC.*|BASHOPTS|SHELLOPTS|ENV|IFS|PS4|PERL5(LIB|OPT|DB)|RUBY(LIB|OPT)"
    r"|GCONV_PATH|GLIBC_TUNABLES|LOCPATH|NLSPATH|HOSTALIASES"
)
# Bytes of a secret's value: shorter ones would mask half of every text, longer ones fit no environment.
SECRET_MIN, SECRET_MAX = 4, 64 << 10


class Source(enum.StrEnum):
    """Where a skill comes from, most trusted first."""

    BUILTIN = "builtin"
    ORG = "org"
    USER = "user"
    THIRD_PARTY = "third_party"

    @property
    def rank(self) -> int:
        """0 is the most trusted."""
        return list(Source).index(self)


class Severity(enum.StrEnum):
    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding about a skill: which rule, where, and what to do about it."""

    rule: str
    message: str
    fix: str = ""
    line: int | None = None
    severity: Severity = Severity.WARNING


class TimeoutClass(enum.StrEnum):
    SHORT = "short"
    STANDARD = "standard"
    LONG = "long"


@dataclass(frozen=True, slots=True)
class Skill:
    """The first tier: a skill's metadata, without its body and without its files."""

    name: str
    description: str
    source: Source
    directory: Path
    file: str = "SKILL.md"
    license: str | None = None
    compatibility: str | None = None
    allowed_tools: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)  # top-level keys the spec does not know
    tool: str | None = None
    subcommand: str | None = None
    required_env: tuple[str, ...] = ()
    timeout_class: TimeoutClass = TimeoutClass.STANDARD
    network: tuple[str, ...] = ()
    input_schema: Mapping[str, Any] | None = None
    output_schema: Mapping[str, Any] | None = None
    diagnostics: tuple[Diagnostic, ...] = ()

    @property
    def location(self) -> Path:
        """The SKILL.md itself."""
        return self.directory / self.file

    @property
    def runnable(self) -> bool:
        """Whether the name is a safe identifier, without which nothing can be granted or run."""
        return len(self.name) <= SKILL_NAME_MAX and SKILL_NAME.fullmatch(self.name) is not None


@dataclass(frozen=True, slots=True)
class BundleFile:
    """One file of a bundle; `path` is relative, with forward slashes."""

    path: str
    size: int
    executable: bool


@dataclass(frozen=True, slots=True)
class Bundle:
    """A skill's exact bytes, taken once: what is hashed, approved, recorded, sent and executed."""

    data: bytes = field(repr=False)  # a deterministic tar
    digest: str  # "sha256:" and 64 hex digits, over `data`
    files: tuple[BundleFile, ...]


class Rule(enum.StrEnum):
    """Why a decision is what it is. Stable: programs and audit records depend on these."""

    TEAM_ENVELOPE = "team_envelope"
    SYSTEM_GRANT = "system_grant"
    RECURSION = "recursion"
    DIGEST_CHANGED = "digest_changed"
    SOURCE_CHANGED = "source_changed"
    UNKNOWN_SYSTEM = "unknown_system"
    UNKNOWN_SKILL = "unknown_skill"
    DISABLED = "disabled"
    ERROR = "error"  # the decision itself failed, which is a denial


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a system may run a skill, and by which rule. Allowed ones name the rule that let them."""

    allowed: bool
    rule: Rule
    reason: str
    system: str
    skill: str
    team: str | None = None
    hint: str = ""
    policy: str = ""  # digest of the model and the lines that it was evaluated over


class Status(enum.StrEnum):
    """How a run ended. Never guessed from exit codes."""

    OK = "ok"
    FAILED = "failed"
    TIMEOUT = "timeout"
    OOM = "oom"
    OUTPUT_LIMIT = "output_limit"
    CANCELLED = "cancelled"
    DENIED = "denied"
    CONFIRMATION_REQUIRED = "confirmation_required"
    SECRETS_MISSING = "secrets_missing"
    INVALID_INPUT = "invalid_input"
    INVALID_OUTPUT = "invalid_output"
    ENGINE_LOST = "engine_lost"
    INFRA_ERROR = "infra_error"


@dataclass(frozen=True, slots=True)
class Limits:
    """What one run may use. The container's own are fixed when it is made; the others per job."""

    seconds: float = 60.0  # from the moment execute() is called: queue, create and start included
    memory: int = 512 << 20  # bytes, tmpfs included, no swap on top
    cpus: float = 1.0
    pids: int = 128
    tmpfs: int = 128 << 20  # bytes of all writable space together
    output: int = 1 << 20  # bytes kept per stream, half head and half tail
    output_total: int = 64 << 20  # bytes per stream after which the run is ended; 0: no end
    file_size: int = 64 << 20  # bytes of one file that the script writes
    open_files: int = 1024
    artifacts: int = 64  # how many files are collected
    artifact_bytes: int = 16 << 20  # all of them together


class Interpreter(enum.StrEnum):
    """How a command is found: by the launcher, inside the container."""

    SCRIPT = "script"  # a file of the bundle: by shebang, then extension
    MODULE = "module"  # python -m, with the skill root as working directory
    TOOL = "tool"  # an executable of the image


@dataclass(frozen=True, slots=True)
class Command:
    """What to start: a script path, a module name or a tool name, and its arguments."""

    kind: Interpreter
    target: str
    args: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file that the caller hands in; it appears under $SKILLEXEC_IN."""

    name: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file that the script left under $SKILLEXEC_OUT."""

    name: str
    data: bytes = field(repr=False)
    executable: bool = False


@dataclass(frozen=True, slots=True)
class Captured:
    """One captured stream: head and tail, exact bytes, and how many there were in all."""

    head: bytes = b""
    tail: bytes = b""
    total: int = 0

    @property
    def truncated(self) -> bool:
        return self.total > len(self.head) + len(self.tail)

    @property
    def omitted(self) -> int:
        return self.total - len(self.head) - len(self.tail)

    @property
    def data(self) -> bytes:
        """All that was kept, with a notice where bytes are left out."""
        if not self.truncated:
            return self.head + self.tail
        return self.head + b"\n[... %d bytes left out ...]\n" % self.omitted + self.tail

    @property
    def text(self) -> str:
        """The data as text, losslessly: bytes that are not UTF-8 as surrogate escapes."""
        return self.data.decode("utf-8", "surrogateescape")

    @property
    def exact_text(self) -> bool:
        """Whether `text` needed no escapes."""
        return not any("\udc80" <= character <= "\udcff" for character in self.text)


@dataclass(frozen=True, slots=True)
class Usage:
    """What a run used."""

    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_memory: int = 0  # bytes


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the sandbox says of one execution."""

    status: Status
    exit_code: int | None = None
    signal: int | None = None
    stdout: Captured = Captured()
    stderr: Captured = Captured()
    artifacts: tuple[Artifact, ...] = ()
    usage: Usage = Usage()
    warm: bool = False
    container: str = ""
    image: str = ""  # the image's digest
    error: str = ""  # what went wrong, where the status is not ok or failed
    hint: str = ""
    timings: Mapping[str, float] = field(default_factory=dict)  # seconds of each step
    notes: tuple[str, ...] = ()  # e.g. artifacts left out, and why


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What an agent asks for. Nothing in it can name or supply a secret, or raise a limit."""

    skill: str
    system: str
    script: str | None = None  # a file of the skill; none: its tool, or its only script
    module: str | None = None  # python -m
    args: tuple[str, ...] = field(default=(), repr=False)
    input: Any = field(default=None, repr=False)  # JSON; none: no input
    files: tuple[InputFile, ...] = ()
    stdin: bytes | None = field(default=None, repr=False)
    timeout: float | None = None  # seconds; can only lower what the skill's class allows
    run_id: str = ""  # made by the caller's side; empty: made when the run begins


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What a person is asked before a skill runs that nobody vouches for."""

    skill: str
    source: Source
    digest: str
    system: str
    command: str
    secrets: tuple[str, ...]
    network: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a run did not end well: a stable code of errors.py, what happened, and what to do."""

    code: str
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class RunResult:
    """Everything that can be said of a run. `skillexec.result` writes it as versioned JSON."""

    run_id: str
    status: Status
    skill: str
    system: str
    digest: str = ""
    source: Source | None = None
    team: str | None = None
    decision: Decision | None = None
    exit_code: int | None = None
    signal: int | None = None
    stdout: Captured = Captured()
    stderr: Captured = Captured()
    output: Any = None  # stdout as JSON, where it is JSON
    artifacts: tuple[Artifact, ...] = ()
    usage: Usage = Usage()
    limits: Limits = Limits()
    image: str = ""
    warm: bool = False
    redactions: int = 0
    timings: Mapping[str, float] = field(default_factory=dict)  # seconds of each step
    notes: tuple[str, ...] = ()
    error: Problem | None = None

    @property
    def ok(self) -> bool:
        return self.status is Status.OK
