"""From a request to what will be started: the command, its input held to the schema, and the limits."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any, NoReturn

from skillexec.arguments import argument_vector
from skillexec.errors import InvalidInput, SkillError
from skillexec.model import Bundle, Captured, Command, InputFile, Interpreter, Limits, RunRequest, Skill
from skillexec.schemas import SchemaUnusable, Violation, violations

INPUT_MAX = 8 << 20  # bytes of JSON
FILES_MAX = 64
FILES_BYTES_MAX = 64 << 20
LABEL_MAX = 1000  # characters
SECONDS_MIN = 0.01
ARGS_MAX = 1024
ARGS_BYTES_MAX = 128 << 10
_SCRIPTS = (".py", ".sh", ".bash", ".js", ".mjs", ".cjs", ".ts")


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that the sandbox needs, except secrets."""

    command: Command = field(repr=False)
    label: str  # what is started, without its arguments: fit for a record
    stdin: bytes | None = field(repr=False)
    files: tuple[InputFile, ...]
    limits: Limits
    input_digest: str | None
    arguments_digest: str | None


def digest_of(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def _only_script(skill: Skill, bundle: Bundle) -> str:
    """The skill's one script; where there are several, the caller has to say which."""
    paths = [PurePosixPath(file.path) for file in bundle.files]
    found = [path for path in paths if path.suffix in _SCRIPTS and path.parts[0] == "scripts"]
    found = found or [path for path in paths if path.suffix in _SCRIPTS and len(path.parts) == 1]
    if len(found) == 1:
        return str(found[0])
    if not found:
        raise SkillError(
            f"{skill.name} has nothing to run: no tool and no script",
            hint=f"`skillexec skill show {skill.name}`",
        )
    listed = ", ".join(map(str, found[:10])) + (", ..." if len(found) > 10 else "")
    raise InvalidInput(f"{skill.name} has several scripts", hint=f"name one with --script: {listed}")


def _script(skill: Skill, bundle: Bundle, script: str) -> str:
    path = str(PurePosixPath(script))
    if path not in {file.path for file in bundle.files}:
        raise InvalidInput(
            f"{skill.name} has no file {script!r}", hint=f"`skillexec skill show {skill.name}` lists them"
        )
    return path


def _module(skill: Skill, module: str) -> str:
    if not all(part.isidentifier() for part in module.split(".")):
        raise InvalidInput(
            f"{module!r} is not a module name",
            hint=f"give one like scripts.main; `skillexec skill show {skill.name}`",
        )
    return module


def _command(skill: Skill, bundle: Bundle, request: RunRequest) -> Command:
    if request.script is not None and request.module is not None:
        raise InvalidInput("both a script and a module are named", hint="name one of them")
    if request.module is not None:
        return Command(Interpreter.MODULE, _module(skill, request.module), request.args)
    if request.script is not None:
        return Command(Interpreter.SCRIPT, _script(skill, bundle, request.script), request.args)
    if skill.tool is not None:
        options = argument_vector({} if request.input is None else request.input)
        subcommand = (skill.subcommand,) if skill.subcommand else ()
        return Command(Interpreter.TOOL, skill.tool, (*subcommand, *options, *request.args))
    return Command(Interpreter.SCRIPT, _only_script(skill, bundle), request.args)


def _label(skill: Skill, command: Command) -> str:
    """One line of text, as people are asked about it and as it is recorded: a name that is more is refused."""
    subcommand = (skill.subcommand,) if command.kind is Interpreter.TOOL and skill.subcommand else ()
    label = " ".join((str(command.kind), command.target, *subcommand))
    if len(label) > LABEL_MAX or not label.isprintable():
        raise InvalidInput(
            f"{label[:80]!r} can't be put on the record", hint=f"rename it: printable, at most {LABEL_MAX}"
        )
    return label


def _listed(found: list[Violation]) -> str:
    return "; ".join(f"{item.path}: {item.message}" for item in found)


def _check_input(skill: Skill, request: RunRequest) -> None:
    if skill.input_schema is None:
        return
    try:
        found = violations(skill.input_schema, {} if request.input is None else request.input)
    except SchemaUnusable as error:
        raise SkillError(
            f"the input schema of {skill.name} can't be used: {error}", hint="mend the skill"
        ) from error
    if found:
        raise InvalidInput(
            f"the input does not fit {skill.name}: {_listed(found)}",
            hint=f"`skillexec skill show {skill.name}`",
        )


def _encoded(value: Any) -> bytes:
    try:
        data = json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8", "surrogateescape")
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(
            f"the input is not JSON: {error}", hint="give objects, lists, text and numbers"
        ) from error
    if len(data) > INPUT_MAX:
        raise InvalidInput(
            f"the input is {len(data)} bytes of JSON", hint=f"at most {INPUT_MAX}: hand it in as a file"
        )
    return data


def _stdin(request: RunRequest, command: Command, encoded: bytes | None) -> bytes | None:
    """A script gets its input as JSON; a tool has got it as options by now."""
    if encoded is None or command.kind is Interpreter.TOOL:
        return request.stdin
    if request.stdin is not None:
        raise InvalidInput(
            "both input and stdin are given", hint="a script gets its input on stdin: give one of them"
        )
    return encoded


def _length(text: str, what: str) -> int:
    """How many bytes it is for the system. Halves of surrogate pairs, which JSON can spell, are none at all."""
    try:
        return len(text.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{what} is not Unicode text: {text[:80]!r}", hint="give valid text") from error


def _check_types(request: RunRequest) -> None:
    """Programs hand in what they like. `args="ab"` would be two arguments."""
    if type(request.args) not in (tuple, list) or not isinstance(request.stdin, bytes | None):
        raise InvalidInput(
            "args is a sequence of text, and stdin is bytes", hint='args=("a", "b"), stdin=b"c"'
        )
    named = (request.script, request.module)
    if not all(isinstance(text, str) for text in (*named, *request.args) if text is not None):
        raise InvalidInput("a script, a module and arguments are text", hint="give str")
    if not all(isinstance(file, InputFile) for file in request.files):
        raise InvalidInput("an input file is a name and its bytes", hint="give InputFile(name, data)")
    if not isinstance(request.timeout, int | float | None):
        raise InvalidInput("a time-out is a number of seconds", hint="give one, or none")


def _check_args(args: tuple[str, ...]) -> None:
    if any("\0" in arg for arg in args):
        raise InvalidInput("an argument holds a NUL byte", hint="take it out")
    if len(args) > ARGS_MAX or sum(_length(arg, "an argument") for arg in args) > ARGS_BYTES_MAX:
        raise InvalidInput(
            "too many arguments", hint=f"at most {ARGS_MAX}, {ARGS_BYTES_MAX} bytes together: use a file"
        )


def _check_files(files: tuple[InputFile, ...]) -> None:
    names = [file.name for file in files]
    for name in names:
        if name in ("", ".", "..") or "/" in name or "\0" in name or _length(name, "a file's name") > 255:
            raise InvalidInput(f"{name!r} can't be the name of an input file", hint="use a plain file name")
    if len(set(names)) != len(names):
        raise InvalidInput("two input files have the same name", hint="rename one: --file PATH:NAME")
    if len(files) > FILES_MAX or sum(len(file.data) for file in files) > FILES_BYTES_MAX:
        raise InvalidInput(
            "too many input files", hint=f"at most {FILES_MAX} files and {FILES_BYTES_MAX >> 20} MiB"
        )


def _limits(limits: Limits, request: RunRequest) -> Limits:
    """A caller can lower the time, never raise it."""
    if request.timeout is None:
        return limits
    if not request.timeout >= SECONDS_MIN:
        raise InvalidInput(f"a time-out of {request.timeout} s", hint=f"give at least {SECONDS_MIN}")
    return replace(limits, seconds=min(limits.seconds, request.timeout))


def make_plan(skill: Skill, bundle: Bundle, request: RunRequest, *, limits: Limits) -> Plan:
    """The plan, or InvalidInput with everything that is wrong. `limits` are the skill's own."""
    _check_types(request)
    _check_args(request.args)
    _check_files(request.files)
    encoded = None if request.input is None else _encoded(request.input)
    _check_input(skill, request)
    command = _command(skill, bundle, request)
    return Plan(
        command=command,
        label=_label(skill, command),
        stdin=_stdin(request, command, encoded),
        files=request.files,
        limits=_limits(limits, request),
        input_digest=None if encoded is None else digest_of(encoded),
        arguments_digest=digest_of(json.dumps(request.args).encode()) if request.args else None,
    )


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def parsed_output(stdout: Captured) -> Any:
    """Stdout as JSON, where all of it was kept and it is JSON; otherwise none."""
    if stdout.truncated or not stdout.total:
        return None
    try:
        return json.loads(stdout.data, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None


def output_problem(schema: Mapping[str, Any], value: Any) -> str:
    """What is wrong with the output, or nothing."""
    if value is None:
        return "stdout is not JSON"
    try:
        return _listed(violations(schema, value))
    except SchemaUnusable as error:
        return f"the output schema can't be used: {error}"
