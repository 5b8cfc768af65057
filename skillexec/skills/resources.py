"""The second and third tier: the body of a skill, and its other files one by one, each up to a limit.

A path is relative to the skill's folder and is taken literally: `%2e%2e` and backslashes are characters like any
others. Refused are absolute paths, `..`, NUL, links that leave the folder, and whatever is not a regular file. What a
bundle leaves out (bundle.LEFT_OUT) can't be read either: `.git/config` may hold somebody's token.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from shlex import quote

from skillexec.errors import PathRefused, Usage
from skillexec.model import Bundle, BundleFile, Skill
from skillexec.skills.beneath import FOLDER, open_beneath, read_exactly, read_settled, regular
from skillexec.skills.bundle import LEFT_OUT, file_in, take_bundle

LIMIT = 64 << 10  # bytes of text returned, where the caller does not say
MAX_LIMIT = 16 << 20


@dataclass(frozen=True, slots=True)
class Resource:
    """One file of a skill. `text` is None where it is binary."""

    path: str
    size: int
    mime: str
    text: str | None
    truncated: bool = False
    notice: str = ""

    @property
    def binary(self) -> bool:
        return self.text is None


@dataclass(frozen=True, slots=True)
class Body:
    """What SKILL.md says after its frontmatter."""

    text: str
    truncated: bool = False
    notice: str = ""


def _checked_limit(limit: int) -> int:
    if not 0 < limit <= MAX_LIMIT:
        raise Usage(f"a limit of {limit} bytes makes no sense", hint=f"give 1 to {MAX_LIMIT}")
    return limit


def _parts(path: str) -> list[str]:
    """The steps of a relative path, or a refusal that says which rule it breaks."""
    if "\0" in path:
        raise PathRefused("the path holds a NUL character")
    if path.startswith("/"):
        raise PathRefused(f"{path!r} is absolute", hint="give it relative to the skill's folder")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if not parts:
        raise PathRefused(f"{path!r} names no file")
    if ".." in parts:
        raise PathRefused(f"{path!r} holds '..'", hint="give it relative to the skill's folder")
    return parts


def _refuse_left_out(path: str) -> None:
    hidden = LEFT_OUT.intersection(path.split("/"))
    if hidden:
        raise PathRefused(f"{path!r}: {min(hidden)} is no part of a skill")


@contextmanager
def _opened(skill: Skill, path: str) -> Iterator[int]:
    """The file, open: found beneath the skill's folder, without leaving it."""
    relative = "/".join(_parts(path))
    try:
        folder = os.open(skill.directory, FOLDER | os.O_NOFOLLOW)
        try:
            descriptor, resolved = open_beneath(folder, relative, base=skill.directory)
        finally:
            os.close(folder)
    except OSError as error:
        hint = f"`skillexec skill show {quote(skill.name)}` lists its files"
        raise PathRefused(f"can't read {path!r} of {skill.name}: {error.strerror}", hint=hint) from error
    try:
        _refuse_left_out(relative)
        _refuse_left_out(resolved)
        yield descriptor
    finally:
        os.close(descriptor)


def _decoded(data: bytes, *, whole: bool) -> str | None:
    """The text; None where it is none. A character that the limit cuts is left out."""
    if b"\0" in data:
        return None
    try:
        return codecs.getincrementaldecoder("utf-8-sig")().decode(data, final=whole)
    except UnicodeDecodeError:
        return None


def _mime(path: str, text: str | None) -> str:
    import mimetypes

    known = mimetypes.MimeTypes().guess_type(path)[0]  # by the name, and the same on every machine
    return known or ("application/octet-stream" if text is None else "text/plain")


def _notice(shown: int, size: int, command: str) -> str:
    return f"[truncated: the first {shown} of {size} bytes; `{command} --limit {min(size, MAX_LIMIT)}` shows more]"


def read_resource(skill: Skill, path: str, *, limit: int = LIMIT) -> Resource:
    """One file of a skill: its text up to `limit` bytes, or that it is binary."""
    _checked_limit(limit)
    with _opened(skill, path) as descriptor:
        size = regular(descriptor, path).st_size
        data = read_exactly(descriptor, min(size, limit))
    return _resource(skill, path, data, size)


def resource_in(bundle: Bundle, skill: Skill, path: str, *, limit: int = LIMIT) -> Resource:
    """The same out of a skill's bundle: the bytes that a decision was about, whatever the folder holds by now."""
    _checked_limit(limit)
    data = file_in(bundle, "/".join(_parts(path)))
    if data is None:
        hint = f"`skillexec skill show {quote(skill.name)}` lists its files"
        raise PathRefused(f"{skill.name} has no file {path!r}", hint=hint)
    return _resource(skill, path, data[:limit], len(data))


def _resource(skill: Skill, path: str, data: bytes, size: int) -> Resource:
    truncated = size > len(data)
    text = _decoded(data, whole=not truncated)
    if text is None or not truncated:
        return Resource(path, size, _mime(path, text), text)
    notice = _notice(len(data), size, f"skillexec skill read {quote(skill.name)} {quote(path)}")
    return Resource(path, size, _mime(path, text), text, True, notice)


def load_body(skill: Skill, *, limit: int = LIMIT) -> Body:
    """The instructions of a skill, up to `limit` bytes of text."""
    from skillexec.skills.frontmatter import PREFIX_BYTES
    from skillexec.skills.reading import read_body

    _checked_limit(limit)
    with _opened(skill, skill.file) as descriptor:
        data, info = read_settled(descriptor, skill.file, limit=PREFIX_BYTES + limit)
    return _body(skill, read_body(data), limit, size=info.st_size, whole=info.st_size == len(data))


def body_in(bundle: Bundle, skill: Skill, *, limit: int = LIMIT) -> Body:
    """The same out of a skill's bundle, as with `resource_in`."""
    from skillexec.skills.reading import read_body

    _checked_limit(limit)
    data = file_in(bundle, skill.file) or b""
    return _body(skill, read_body(data), limit, size=len(data), whole=True)


def _body(skill: Skill, text: str, limit: int, *, size: int, whole: bool) -> Body:
    raw = text.encode("utf-8", "surrogatepass")
    if whole and len(raw) <= limit:
        return Body(text)
    shown = raw[:limit].decode("utf-8", "ignore")
    return Body(shown, True, _notice(limit, size, f"skillexec skill load {quote(skill.name)}"))


def list_files(skill: Skill) -> tuple[BundleFile, ...]:
    """The files of a skill, as its bundle has them."""
    return take_bundle(skill.directory).files
