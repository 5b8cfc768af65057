"""A tool's input as an argument vector: never a shell string, and no value can pose as an option."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from skillexec.errors import InvalidInput

_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


def _word(key: str, value: Any) -> str:
    if isinstance(value, str):
        if "\0" in value:
            raise InvalidInput(f"the value of {key} holds a NUL byte", hint="take it out")
        return value
    if isinstance(value, int | float):
        return repr(value)
    raise InvalidInput(
        f"{key} can't become an argument: it is a {type(value).__name__}",
        hint="use text, numbers, true/false or lists",
    )


def _option(key: str, value: Any) -> Iterator[str]:
    if _KEY.fullmatch(key) is None:
        raise InvalidInput(
            f"{key!r} can't become an option", hint="use letters, digits, - and _ in input keys"
        )
    name = "--" + key.replace("_", "-")
    if value is None or value is False:
        return
    if value is True:
        yield name
        return
    for item in value if isinstance(value, list | tuple) else [value]:
        if isinstance(item, bool):
            raise InvalidInput(
                f"{key} can't become an argument: a list of true/false", hint="use text or numbers"
            )
        word = _word(key, item)
        # "--key" "-x" would be read as two options.
        yield from [f"{name}={word}"] if word.startswith("-") else [name, word]


def argument_vector(value: Any) -> tuple[str, ...]:
    """`--key value` for each key in order; booleans as flags, lists repeated, null left out."""
    if not isinstance(value, Mapping):
        raise InvalidInput("the input of a tool is an object", hint='give --input \'{"key": "value"}\'')
    return tuple(word for key, item in value.items() for word in _option(key, item))
