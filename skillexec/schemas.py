"""Input and output against the skill's JSON Schemas: nothing is fetched, nothing can hang.

References to other places are refused, patterns run in linear time, and a schema that refers to itself is evaluated in
a process of its own under a deadline, since nested references can double the work at every level.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, NoReturn

DEADLINE = 5.0  # seconds, for schemas with references
MOST_VIOLATIONS = 50
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


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


def _has_references(schema: Any) -> bool:
    if isinstance(schema, Mapping):
        return any(key in schema for key in _REFERENCES) or any(_has_references(v) for v in schema.values())
    return isinstance(schema, list) and any(_has_references(item) for item in schema)


def _evaluate(schema: Mapping[str, Any], value: Any) -> list[Violation]:
    import jsonschema_rs

    try:
        validator = jsonschema_rs.validator_for(
            dict(schema),
            retriever=_refuse,
            pattern_options=jsonschema_rs.RegexOptions(),
            mask="the value",
        )
        errors = islice(validator.iter_errors(value), MOST_VIOLATIONS)
        found = [Violation(_path(error.instance_path), error.message) for error in errors]
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        raise SchemaUnusable(str(error).splitlines()[0]) from error
    return found


def _evaluate_apart(schema: Mapping[str, Any], value: Any) -> list[Violation]:
    """The same, in a process that is ended at the deadline. -P: nothing is imported from the working folder."""
    try:
        asked = json.dumps([schema, value]).encode()
    except RecursionError as error:
        raise SchemaUnusable("the value is nested too deep") from error
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
    if done.returncode != 0:
        # The last line: of a traceback (nested too deep, out of memory) the rest is about our own files.
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise SchemaUnusable(said[-1] if said else "the schema could not be evaluated")
    return [Violation(**item) for item in json.loads(done.stdout)]


def violations(schema: Mapping[str, Any], value: Any) -> list[Violation]:
    """Every violation with its path; none where the value is fine. SchemaUnusable where it can't be told."""
    return _evaluate_apart(schema, value) if _has_references(schema) else _evaluate(schema, value)


def _main() -> None:
    schema, value = json.load(sys.stdin)
    try:
        found = _evaluate(schema, value)
    except SchemaUnusable as error:
        sys.exit(str(error))
    json.dump([{"path": item.path, "message": item.message} for item in found], sys.stdout)


if __name__ == "__main__":
    _main()
