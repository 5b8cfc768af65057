"""The frame of every tool: arguments in, exactly one JSON object on stdout, a distinct exit status.

    ToolError        code            exit
      Usage          usage              2
      NoNetwork      no_network         3
      Refused        refused            4
      NotFound       not_found          5
      Unauthorized   unauthorized       6
      RateLimited    rate_limited       7
      Upstream       upstream           8
      TimedOut       timeout            9
      TooLarge       too_large         10
      Unsupported    unsupported       11
      (our mistake)  bug               70

A failure is `{"error": {"code", "message", ...}}` on stdout, because that is the stream which a caller parses,
and one line on stderr for people. Codes and statuses never change: skills and agents depend on them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, NoReturn

VERSION = "1.0.0"
# The sandbox keeps 1 MiB of stdout: a larger object would arrive with its middle cut out, and not be JSON.
OUTPUT_BUDGET = 900_000


class ToolError(Exception):
    """An expected failure; `details` become members of the error object."""

    code: ClassVar[str] = "error"
    exit_status: ClassVar[int] = 70

    def __init__(self, message: str, **details: object) -> None:
        super().__init__(message)
        self.message = message
        self.details = {key: value for key, value in details.items() if value is not None}

    def document(self) -> dict[str, object]:
        return {"error": {"code": self.code, "message": self.message, **self.details}}


class Usage(ToolError):
    """The arguments make no sense."""

    code = "usage"
    exit_status = 2


class NoNetwork(ToolError):
    """The run has no network."""

    code = "no_network"
    exit_status = 3


class Refused(ToolError):
    """What was asked for is not allowed: a scheme, an address, a path."""

    code = "refused"
    exit_status = 4


class NotFound(ToolError):
    """There is no such file, page or reference."""

    code = "not_found"
    exit_status = 5


class Unauthorized(ToolError):
    """A key is missing or was not accepted."""

    code = "unauthorized"
    exit_status = 6


class RateLimited(ToolError):
    """The service wants fewer requests."""

    code = "rate_limited"
    exit_status = 7


class Upstream(ToolError):
    """The other side could not be reached, failed, or answered with something unusable."""

    code = "upstream"
    exit_status = 8


class TimedOut(ToolError):
    """The tool's own time limit passed."""

    code = "timeout"
    exit_status = 9


class TooLarge(ToolError):
    """More than the tool takes in."""

    code = "too_large"
    exit_status = 10


class Unsupported(ToolError):
    """A format, or a damaged file, that the tool can't read."""

    code = "unsupported"
    exit_status = 11


class _Parser(argparse.ArgumentParser):
    """Reports mistakes as errors of ours, and takes no abbreviations: they would change meaning with a release."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        raise Usage(f"{self.prog}: {message}", hint=f"{self.prog} --help")


def _joined(arguments: Sequence[str], with_value: frozenset[str]) -> Iterator[str]:
    """`--key value` as `--key=value`, and `--a_b` as `--a-b`.

    The value comes from an agent's input and may begin with a dash: joined, it can never become an option.
    """
    pending = iter(arguments)
    for argument in pending:
        name, equals, value = argument.partition("=")
        if not name.startswith("--"):
            yield argument
            continue
        name = name.replace("_", "-")
        following = next(pending, None) if name in with_value and not equals else None
        yield f"{name}={following}" if following is not None else name + equals + value


def integer(minimum: int, maximum: int) -> Callable[[str], int]:
    """An argument type: a whole number within bounds."""

    def parse(text: str) -> int:
        try:
            value = int(text.removesuffix(".0"))  # JSON's 5.0 is an integer, too
        except ValueError:
            raise argparse.ArgumentTypeError(f"not a whole number: {text!r}") from None
        if not minimum <= value <= maximum:
            raise argparse.ArgumentTypeError(f"{value} is not within {minimum} to {maximum}")
        return value

    return parse


Run = Callable[[argparse.Namespace], "dict[str, object]"]


class Program:
    """A tool with subcommands: `command` declares one, `main` runs the one that was asked for."""

    def __init__(self, name: str, description: str, *, epilog: str) -> None:
        self._name = name
        self._parser = _Parser(
            prog=name,
            description=description,
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self._parser.add_argument("--version", action="version", version=f"{name} {VERSION}")
        self._commands = self._parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(self, name: str, summary: str, run: Run) -> argparse.ArgumentParser:
        """A subcommand, to which the caller adds its options (long ones only)."""
        parser: argparse.ArgumentParser = self._commands.add_parser(name, help=summary, description=summary)
        parser.set_defaults(run=run)
        return parser

    def _with_value(self) -> frozenset[str]:
        parsers = self._commands.choices.values()
        actions = (action for parser in parsers for action in parser._actions)
        return frozenset(
            option for action in actions if action.nargs is None for option in action.option_strings
        )

    def _answer(self, arguments: Sequence[str]) -> dict[str, object]:
        parsed = self._parser.parse_args(list(_joined(arguments, self._with_value())))
        run: Run = parsed.run
        return run(parsed)

    def main(self, arguments: Sequence[str] | None = None) -> int:
        """Runs one command; the exit status."""
        try:
            emit(self._answer(sys.argv[1:] if arguments is None else arguments))
            return 0
        except ToolError as error:
            return self._failed(error.document(), error.message, error.exit_status)
        except Exception as error:  # noqa: BLE001 - the boundary: a caller that parses stdout gets JSON, always
            # The text of an unforeseen error may quote anything, a key too: only its type is told.
            message = f"mistake in {self._name}: {type(error).__name__}"
            return self._failed({"error": {"code": "bug", "message": message}}, message, 70)

    def _failed(self, document: dict[str, object], message: str, status: int) -> int:
        emit(document)
        sys.stderr.write(f"{self._name}: {' '.join(message.split())}\n")
        return status


def emit(document: dict[str, object]) -> None:
    """The one JSON object, as UTF-8. A lone surrogate (a file name's stray byte) becomes a JSON escape."""
    data = json.dumps(document, ensure_ascii=False).encode("utf-8", "backslashreplace")
    sys.stdout.buffer.write(data + b"\n")
    sys.stdout.buffer.flush()


def json_size(text: str) -> int:
    """How many bytes `text` takes as a JSON string."""
    return len(json.dumps(text, ensure_ascii=False).encode("utf-8", "backslashreplace"))


def fitting(text: str, budget: int) -> str:
    """The longest beginning of `text` that takes at most `budget` bytes as JSON."""
    low, high = 0, min(len(text), budget)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if json_size(text[:middle]) <= budget else (low, middle - 1)
    return text[:low]


@contextlib.contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Ends whatever is inside after so many seconds: connecting, a body that trickles, a slow page."""

    def expire(_signal: int, _frame: object) -> None:
        raise TimedOut(f"not done within {seconds:g} seconds", seconds=seconds)

    previous = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def folder(variable: str) -> str:
    """The folder that the sandbox names in its environment."""
    path = os.environ.get(variable, "")
    if not path or not os.path.isdir(path):
        raise Refused(f"{variable} names no folder: this tool runs inside the sandbox")
    return path
