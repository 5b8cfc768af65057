"""Inputs are held to their schemas, and a hostile schema can neither fetch nor hang."""

from __future__ import annotations

import contextlib
import resource
import socket
import sys
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillexec.arguments import argument_vector
from skillexec.errors import InvalidInput
from skillexec.schemas import DEADLINE, SchemaUnusable, violations

QUERY: dict[str, Any] = {
    "type": "object",
    "properties": {"query": {"type": "string"}, "count": {"type": "integer", "maximum": 20}},
    "required": ["query"],
    "additionalProperties": False,
}


def test_every_violation_is_listed_with_its_path() -> None:
    found = violations(QUERY, {"count": 21, "extra": 1})
    assert {item.path for item in found} == {"$", "$.count"}
    assert len(found) == 3


def test_a_value_that_fits_has_no_violations() -> None:
    assert violations(QUERY, {"query": "x", "count": 3}) == []


def test_a_violation_does_not_repeat_the_value() -> None:
    assert all("canary" not in item.message for item in violations({"type": "integer"}, "canary"))


def test_a_remote_reference_is_refused_and_nothing_is_fetched() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.3)
        address = f"http://127.0.0.1:{server.getsockname()[1]}/schema.json"
        with pytest.raises(SchemaUnusable, match="not followed"):
            violations({"$ref": address}, 1)
        with pytest.raises(TimeoutError):
            server.accept()


def test_a_file_reference_is_refused() -> None:
    with pytest.raises(SchemaUnusable, match="not followed"):
        violations({"$ref": "file:///etc/passwd"}, 1)


def test_catastrophic_patterns_do_not_hang() -> None:
    began = time.monotonic()
    assert violations({"pattern": "^(a+)+$"}, "a" * 50_000 + "!")
    assert time.monotonic() - began < DEADLINE


def test_a_pattern_that_could_backtrack_is_refused_as_unusable() -> None:
    with pytest.raises(SchemaUnusable):
        violations({"pattern": r"(a)\1"}, "aa")


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
    ],
)
def test_cyclic_references_end(schema: dict[str, Any]) -> None:
    violations(schema, {"any": "thing"})


def test_references_that_double_the_work_are_ended_at_the_deadline() -> None:
    steps = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(60)}
    with pytest.raises(SchemaUnusable, match="within"):
        violations({"$defs": {**steps, "d60": {"type": "string"}}, "$ref": "#/$defs/d0"}, "x")


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"allOf": [{"pattern": "^(?:[a-z]{1,200}){1,200}$"}] * 100}, "a" * 9000 + "!"),
        ({"patternProperties": {"^([a-z]{1,200}){1,200}$": {}}}, {"a" * 30_000 + "!": 1}),
        ({"pattern": "^a{1,99}{1,99}{1,99}$"}, "a" * 100_000 + "!"),
        ({"items": {"enum": [{"a": [number]} for number in range(2000)]}}, [{"a": ["x"]}] * 40_000),
    ],
    ids=["counted", "counted-names", "counts-of-counts", "violations-that-repeat-the-schema"],
)
def test_a_small_schema_that_takes_for_ever_or_all_memory_is_ended_and_this_process_is_spared(
    schema: dict[str, Any], value: Any
) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF)
    began = time.monotonic()
    with contextlib.suppress(SchemaUnusable):
        assert violations(schema, value)
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert time.monotonic() - began < DEADLINE + 3
    assert after.ru_utime - before.ru_utime < 1
    assert after.ru_maxrss - before.ru_maxrss < 100 << 10


def test_a_value_that_fits_a_light_schema_needs_no_other_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent")
    schema = {"properties": {"query": {"pattern": "^[a-z]{1,64}$", "maxLength": 64}}}
    assert violations(schema, {"query": "words"}) == []


def _nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


def test_a_value_nested_too_deep_is_a_violation_and_no_fault_of_the_schema() -> None:
    assert [item.path for item in violations({"const": 1}, _nested(500))] == ["$"]
    assert [item.path for item in violations({"type": "array"}, _nested(100_000))] == ["$"]


def test_a_reference_inside_the_schema_works() -> None:
    schema = {"$defs": {"n": {"type": "integer"}}, "properties": {"n": {"$ref": "#/$defs/n"}}}
    assert [item.path for item in violations(schema, {"n": "x"})] == ["$.n"]


def test_a_schema_that_is_none_is_unusable() -> None:
    with pytest.raises(SchemaUnusable):
        violations({"type": "no-such-type"}, 1)


def test_input_becomes_options_in_order() -> None:
    value = {
        "query": "a b; rm -rf /",
        "max_results": 3,
        "safe": True,
        "raw": False,
        "site": ["a", "b"],
        "none": None,
    }
    assert argument_vector(value) == (
        *("--query", "a b; rm -rf /"),
        *("--max-results", "3"),
        "--safe",
        *("--site", "a", "--site", "b"),
    )


@given(st.text().filter(lambda text: "\0" not in text))
def test_no_value_can_pose_as_an_option(text: str) -> None:
    vector = argument_vector({"query": text})
    assert [word for word in vector if word.startswith("-")] == [vector[0]]


@pytest.mark.parametrize(
    "value", [{"a b": 1}, {"": 1}, {"-x": 1}, {"a": {"b": 1}}, {"a": "\0"}, [1], "x", {"a=b": 1}]
)
def test_what_can_not_be_an_argument_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput):
        argument_vector(value)
