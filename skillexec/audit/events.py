"""What may be on the record: every event, and which fields each may carry.

The table below is the whole vocabulary. A field that is not in it can't be recorded, and each field's kind says
what its value may look like: digests, codes, counts, and names. So a secret, an input or an output has no place
to go, whatever a caller does.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from types import MappingProxyType
from typing import TypeAlias

from skillexec import errors
from skillexec.errors import Bug, Usage
from skillexec.model import ENV_NAME, IDENTIFIER, Rule, Source, Status

Json: TypeAlias = "str | int | bool | list[Json] | tuple[Json, ...] | Mapping[str, Json] | None"

NAME_MAX = 64
ACTOR_MAX = 128
TEXT_MAX = 1024
# Past this, languages that read numbers as doubles would read another number.
INTEGER_MAX = 2**53 - 1

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_HEX = re.compile(r"[0-9a-f]{12,64}")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_VERSION = re.compile(r"\d+(\.\w{1,16}){1,5}(\+\w{1,32})?", re.ASCII)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|\+00:00)")


def _matches(pattern: re.Pattern[str]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, str) and pattern.fullmatch(value) is not None


def _one_of(words: Iterable[str]) -> Callable[[object], bool]:
    known = frozenset(words)
    return lambda value: isinstance(value, str) and value in known


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= INTEGER_MAX


def _is_count(value: object) -> bool:
    return _is_integer(value) and isinstance(value, int) and value >= 0


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= TEXT_MAX and value.isprintable()


def _list_of(one: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list | tuple) and len(value) <= 256 and all(map(one, value))


def _is_steps(value: object) -> bool:
    if not isinstance(value, Mapping):
        return False
    return all(key in STEPS and _is_count(number) for key, number in value.items())


def _error_codes() -> Iterator[str]:
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, errors.SkillexecError):
            yield kind.code


# The steps of a run, as it is timed.
STEPS = frozenset({"load", "authorize", "plan", "confirm", "resolve", "intend", "execute", "conclude"})

# The kinds of value. Those that end in "name" and "names" are the only ones that can hold words of somebody's
# choosing; the words of all others are ours.
KINDS: Mapping[str, Callable[[object], bool]] = MappingProxyType(
    {
        "digest": _matches(_DIGEST),
        "rule": _one_of(Rule),
        "source": _one_of(Source),
        "error": _one_of([*_error_codes(), *Status]),
        "event": lambda value: isinstance(value, str) and value in EVENTS,
        "operation": _one_of(("run", "read", "activate", "list")),
        "consent": _one_of(("approval", "once")),
        "version": _matches(_VERSION),
        "uuid": _matches(_UUID),
        "hex": _matches(_HEX),
        "time": _matches(_TIME),
        "integer": _is_integer,
        "count": _is_count,
        "flag": lambda value: isinstance(value, bool),
        "name": _is_name,
        "system_name": _matches(IDENTIFIER),
        "secret_name": _matches(ENV_NAME),
        "secret_names": _list_of(_matches(ENV_NAME)),
        "steps": _is_steps,
    }
)

# What each field is. The same field means the same in every event.
FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "added": "count",  # how many things a policy added
        "arguments": "digest",  # of the script's arguments
        "artifacts": "count",
        "boot": "uuid",  # the host's boot id, with `pid` and `pid_start` the process that owns a run
        "bytes": "count",
        "cause": "event",  # the event that brought this one about
        "changed": "count",
        "command": "name",  # the script, module or tool that was started
        "confirmation": "consent",  # how a person's word was had, where it was needed: once, or approval
        "container": "hex",
        "count": "count",  # records under a checkpoint
        "cpu_us": "count",
        "digest": "digest",  # of the skill's bundle
        "duration_us": "count",
        "error": "error",  # the code of errors.py
        "exit_code": "integer",
        "expires": "time",
        "file": "name",  # a resource of the skill, by its relative path
        "files": "count",  # how many files were handed in
        "folder": "name",  # of a root or a project
        "head": "hex",  # the hash of the newest record under a checkpoint
        "image": "digest",
        "inherit": "flag",
        "input": "digest",  # of the input, never the input
        "key": "hex",  # the id of the key that signs checkpoints
        "limit_us": "count",  # how long the run may take
        "memory": "count",  # how much it may use
        "names": "secret_names",  # of the secrets, never their values
        "network": "flag",
        "operation": "operation",  # what was asked for: run, read, activate, list
        "origin": "system_name",  # the system that a team is spawned from
        "peak_memory": "count",
        "pid": "count",
        "pid_namespace": "count",
        "pid_start": "count",
        "pin": "digest",
        "policy": "digest",  # of the rules that the decision was taken from
        "position": "count",
        "redactions": "count",  # how often a secret was masked in what came out
        "reference": "digest",  # of the op:// reference, never a value
        "removed": "count",
        "root": "flag",
        "rule": "rule",  # of model.Rule
        "secret": "secret_name",
        "signal": "integer",
        "slot": "count",
        "source": "source",  # of model.Source
        "stderr_bytes": "count",
        "stdout_bytes": "count",
        "steps": "steps",  # microseconds of each step of a run
        "tag": "name",  # of an image
        "truncated": "flag",
        "version": "version",  # of skillexec
        "warm": "flag",
    }
)


def _fields(names: str) -> frozenset[str]:
    found = frozenset(names.split())
    assert found <= FIELDS.keys(), found - FIELDS.keys()
    return found


# Every event, and which fields it may carry besides system, team, skill, outcome and run.
EVENTS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "home.created": _fields("version key"),
        "team.added": _fields("root cause"),
        "team.removed": _fields("cause"),
        "team.recursed": _fields("origin inherit cause"),
        "team.detached": _fields("origin cause"),
        "team.rooted": _fields("cause"),
        "team.unrooted": _fields("cause"),
        "team.disabled": _fields("cause"),
        "team.enabled": _fields("cause"),
        "system.added": _fields("cause"),
        "system.removed": _fields("cause"),
        "system.disabled": _fields("cause"),
        "system.enabled": _fields("cause"),
        "envelope.added": _fields("cause"),
        "envelope.removed": _fields("cause"),
        "grant.added": _fields("slot source pin cause"),
        "grant.revoked": _fields("slot source pin cause"),
        "grant.pinned": _fields("slot source pin cause"),
        "grant.unpinned": _fields("slot source pin cause"),
        "grant.sourced": _fields("slot source pin cause"),
        "policy.applied": _fields("policy added removed changed"),
        "approval.added": _fields("digest source network expires"),
        "approval.revoked": _fields("digest source cause"),
        "secret.mapped": _fields("secret reference"),
        "secret.unmapped": _fields("secret reference"),
        "root.added": _fields("folder source position"),
        "root.removed": _fields("folder source position"),
        "root.moved": _fields("folder source position"),
        "project.trusted": _fields("folder"),
        "project.untrusted": _fields("folder"),
        "skill.installed": _fields("digest source bytes files"),
        "skill.removed": _fields("digest source"),
        "decision.allowed": _fields("rule operation digest source policy"),
        "decision.denied": _fields("rule operation digest source policy"),
        "skill.activated": _fields("rule digest source bytes"),
        "resource.read": _fields("rule digest source file bytes truncated"),
        "run.started": _fields(
            "rule digest source policy image input arguments command files names network confirmation limit_us memory"
            " boot pid pid_namespace pid_start"
        ),
        "run.ended": _fields(
            "digest image container exit_code signal error duration_us cpu_us peak_memory stdout_bytes"
            " stderr_bytes truncated artifacts redactions names warm steps"
        ),
        "run.abandoned": _fields("boot pid pid_namespace pid_start"),
        "image.built": _fields("image tag bytes duration_us"),
        "checkpoint.made": _fields("count head key"),
    }
)

# What --outcome filters by: how a run ended, and what a decision was.
OUTCOMES = frozenset({str(status) for status in Status} | {"allowed", "abandoned"})


@dataclass(frozen=True, slots=True)
class Event:
    """Something to put on the record. Checks itself against the vocabulary when it is made."""

    event: str
    actor: str
    _: KW_ONLY
    system: str | None = None
    team: str | None = None
    skill: str | None = None
    outcome: str | None = None
    run: str | None = None
    data: Mapping[str, Json] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_words(self)
        _check_names(self)
        _check_data(self)


def _check_words(event: Event) -> None:
    if event.event not in EVENTS:
        raise Bug(f"no audit event is called {event.event!r}")
    if event.outcome is not None and event.outcome not in OUTCOMES:
        raise Bug(f"no outcome is called {event.outcome!r}")


def _check_names(event: Event) -> None:
    if not (0 < len(event.actor) <= ACTOR_MAX and event.actor.isprintable()):
        raise Usage(
            f"an actor's name is 1 to {ACTOR_MAX} printable characters",
            hint="name another with --actor or $SKILLEXEC_ACTOR",
        )
    for what in ("system", "team", "skill", "run"):
        value = getattr(event, what)
        if value is not None and not is_name(value):
            raise Usage(f"a {what}'s name is 1 to {NAME_MAX} printable characters without spaces")


def _check_data(event: Event) -> None:
    for key, value in event.data.items():
        if key not in EVENTS[event.event]:
            raise Bug(f"the audit event {event.event} has no field {key!r}")
        if value is not None and not KINDS[FIELDS[key]](value):
            # The value itself stays out of the message: it may be the secret that has no business here.
            raise Bug(f"the field {key!r} of the audit event {event.event} is no {FIELDS[key]}")


def is_name(value: str) -> bool:
    """Whether the text can stand in a record as the name of a system, a team, a skill or a run."""
    return 0 < len(value) <= NAME_MAX and value.isprintable() and " " not in value


def named(value: str) -> str:
    """The text where it is a name; otherwise a digest of it, so that a request for nonsense can be recorded."""
    if is_name(value):
        return value
    return "sha256-" + hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:32]
