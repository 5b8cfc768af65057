"""Input and output against the skill's JSON Schemas: nothing is fetched, nothing can hang.

References to other places are refused, and patterns do not backtrack. That is not enough: nested references double the
work at every level, `(x{200}){200}` takes seconds for a short text, and a list of a million violations takes gigabytes.
So this process only asks light schemas for a yes; everything else is evaluated in a process of its own, which is ended
at a deadline and has little memory.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, NoReturn

DEADLINE = 5.0  # seconds, for what is evaluated apart
MEMORY = 1 << 30  # bytes of address space for it
MOST_VIOLATIONS = 50
# Work that may be done in this process: about 0.1 s at worst, measured with the worst schemas that we could think of.
_LIGHT = 5e7
_LEAST_VALUE = 256  # characters: compiling a schema costs something even where the value is short
_PATTERN_COST = 50  # one step of a pattern, compared with looking at one part of a schema
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_COUNT = re.compile(r"(.?)\{(\d+),?(\d*)\}")
_MULTIPLYING = (")", "}", "*", "+", "?")  # what a count repeats as a whole, with the counts inside it


@dataclass(frozen=True, slots=True)
class Violation:
    """One place where a value does not satisfy its schema. The value itself is not repeated: it may be a secret."""

    path: str  # "$", "$.query", "$.items[3]"
    message: str


class SchemaUnusable(Exception):
    """The schema itself is wrong, reaches outside, or takes too long."""


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"references outside the schema are not followed: {uri}")


def _path(parts: list[Any]) -> str:
    return "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)


def _pattern_weight(pattern: str) -> float:
    """At least as many steps as one character can cost: how long the pattern is with its counts written out."""
    length, factor = float(len(pattern)), 1.0
    for before, least, most in _COUNT.findall(pattern):
        count = max(float(least), float(most or 0), 1.0)
        if before in _MULTIPLYING:
            factor *= count
        else:
            length += count
    return length * factor * _PATTERN_COST


def _weight(schema: Any) -> float:
    """How much work a schema can be, for each character of the value. References can be any amount of it."""
    if isinstance(schema, Mapping):
        if any(key in schema for key in _REFERENCES):
            return math.inf
        patterns = [schema["pattern"]] if isinstance(schema.get("pattern"), str) else []
        if isinstance(schema.get("patternProperties"), Mapping):
            patterns += map(str, schema["patternProperties"])
        return sum(map(_pattern_weight, patterns), 1.0) + sum(map(_weight, schema.values()))
    return sum(map(_weight, schema), 1.0) if isinstance(schema, list) else 1.0


def _validator(schema: Mapping[str, Any]) -> Any:
    import jsonschema_rs

    try:
        return jsonschema_rs.validator_for(
            dict(schema),
            retriever=_refuse,
            pattern_options=jsonschema_rs.RegexOptions(),
            mask="the value",
        )
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        raise SchemaUnusable(str(error).splitlines()[0]) from error


def _evaluate(schema: Mapping[str, Any], value: Any) -> list[Violation]:
    validator = _validator(schema)
    try:
        errors = islice(validator.iter_errors(value), MOST_VIOLATIONS)
        return [Violation(_path(error.instance_path), error.message) for error in errors]
    except ValueError as error:
        return [Violation("$", str(error).splitlines()[0])]  # nested too deep


def _evaluate_apart(asked: bytes) -> list[Violation]:
    """The same, in a process that is ended at the deadline. -P: nothing is imported from the working folder."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "skillexec.schemas"],
            input=asked,
            capture_output=True,
            timeout=DEADLINE,
            check=False,
            env={},
        )
    except subprocess.TimeoutExpired as error:
        raise SchemaUnusable(f"the schema could not be evaluated within {DEADLINE:g} s") from error
    if done.returncode < 0:
        raise SchemaUnusable("the schema takes too much memory for this value")
    if done.returncode != 0:
        # The last line: of a traceback (nested too deep, out of memory) the rest is about our own files.
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise SchemaUnusable(said[-1] if said else "the schema could not be evaluated")
    return [Violation(**item) for item in json.loads(done.stdout)]


def violations(schema: Mapping[str, Any], value: Any) -> list[Violation]:
    """Every violation with its path; none where the value is fine. SchemaUnusable where it can't be told.

    The value is JSON: what json.loads gives.
    """
    try:
        text = json.dumps(value)
    except RecursionError:
        return [Violation("$", "it is nested too deep")]
    if _weight(schema) * max(len(text), _LEAST_VALUE) <= _LIGHT and _fits(schema, value):
        return []
    return _evaluate_apart(f"[{json.dumps(schema)}, {text}]".encode())


def _fits(schema: Mapping[str, Any], value: Any) -> bool:
    try:
        return bool(_validator(schema).is_valid(value))
    except ValueError:  # nested too deep: the other process says so
        return False


def _main() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    schema, value = json.load(sys.stdin)
    try:
        found = _evaluate(schema, value)
    except SchemaUnusable as error:
        sys.exit(str(error))
    json.dump([{"path": item.path, "message": item.message} for item in found], sys.stdout)


if __name__ == "__main__":
    _main()
