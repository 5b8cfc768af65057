"""Masks secrets in a stream of bytes, whatever the chunking, in every form of DESIGN 6.

The forms of all secrets go into one Aho-Corasick automaton, so that the cost per byte does not depend on how many
there are. All matches are found, overlapping ones too, and their union is replaced: two secrets that share bytes are
both gone. What this can't do: stop a script that means to transform a secret. No network does.
"""

from __future__ import annotations

import base64
import bisect
import json
import re
import string
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_from_bytes

from skillexec.errors import SecretsMissing
from skillexec.model import SECRET_MIN

if TYPE_CHECKING:
    from ahocorasick_rs import BytesAhoCorasick

SHORTEST = SECRET_MIN
_PREFERRED_MASK = b"[redacted]"
# Beyond this, finding out what could be the beginning of a secret costs more than showing output a little later.
_LONG = 4096
# How many characters of a base64 text belong to 0, 1 or 2 bytes that stand before the secret in the same group.
_BASE64_LEAD = (0, 2, 3)
# What is left as it is by: RFC 3986, Python's quote, and JavaScript's encodeURIComponent, the same in a URL's query,
# encodeURI, and forms (which also escape "~", as escape() does).
_URL_SAFE = ("", "/", "!'()*", "!()*", ";/?:@&=+$,#!'()*", "*", "@*+/")
# What Go and others escape so that JSON can stand in a web page.
_SAFE_IN_HTML = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def _base64_forms(value: bytes) -> Iterator[bytes]:
    """What of the secret's base64 does not depend on its neighbours, at each of the three alignments."""
    for lead, skip in enumerate(_BASE64_LEAD):
        own = (lead + len(value)) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(bytes(lead) + value)[skip:own]


def _wrapped_forms(value: bytes) -> Iterator[bytes]:
    """What `base64`, `openssl base64` and `xxd -p` make of a long secret: lines."""
    encoded = base64.b64encode(value)[
        : len(value) * 8 // 6
    ]  # what padding or a newline behind it would not change
    for text, width in ((encoded, 76), (encoded, 64), (value.hex().encode(), 60)):
        if len(text) > width:
            yield b"\n".join(text[start : start + width] for start in range(0, len(text), width))


def _url_forms(value: bytes) -> Iterator[bytes]:
    for safe in _URL_SAFE:
        escaped = quote_from_bytes(value, safe=safe)
        lowered = re.sub("%..", lambda match: match[0].lower(), escaped)
        for form in (escaped, lowered, escaped.replace("~", "%7E")):
            yield form.encode()
            yield form.replace("%20", "+").encode()


def _json_forms(value: bytes) -> Iterator[bytes]:
    text = value.decode("utf-8", "surrogateescape")
    for ascii_only in (True, False):
        form = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
        for spelling in (form, form.replace("/", "\\/"), form.translate(_SAFE_IN_HTML)):
            yield spelling.encode("utf-8", "surrogateescape")
            yield re.sub(r"\\u....", lambda match: "\\u" + match[0][2:].upper(), spelling).encode(
                "utf-8", "surrogateescape"
            )


def _shown_forms(value: bytes) -> Iterator[bytes]:
    """Inside quotes, as Python and node show text and bytes: in tracebacks, in printed dicts, in our own notes."""
    text = value.decode("utf-8", "surrogateescape")
    kept = "".join(
        character if character.isprintable() and character != "\\" else ascii(character)[1:-1]
        for character in text
    )
    spellings = (
        kept.encode("utf-8", "surrogateescape"),
        text.encode("unicode_escape"),
        value.decode("latin-1").encode("unicode_escape"),
    )
    for shown in spellings:
        yield shown
        yield shown.replace(b"'", b"\\'")


def forms(value: bytes) -> frozenset[bytes]:
    """Every spelling of a secret that is masked: itself, its lines, base64, hex, URL- and JSON-escaped, quoted."""
    wholes = {value, value.strip(), *(line.strip() for line in value.splitlines())}
    found: set[bytes] = set()
    for whole in wholes:
        spellings: Iterable[bytes] = (
            whole,
            whole.hex().encode(),
            whole.hex().upper().encode(),
            *_base64_forms(whole),
            *_wrapped_forms(whole),
            *_url_forms(whole),
            *_json_forms(whole),
            *_shown_forms(whole),
        )
        found.update(form for form in spellings if len(form) >= SHORTEST)
    return frozenset(found)


def _touches(mask: bytes, needle: bytes) -> bool:
    """Whether a secret could be read out of the mask, or out of the mask and what stands beside it."""
    if needle in mask or mask in needle:
        return True
    return any(needle.endswith(mask[:n]) or needle.startswith(mask[-n:]) for n in range(1, len(mask)))


def _choose_mask(needles: Iterable[bytes]) -> bytes:
    """A mask that shares no border with any secret, so that masking can't spell one anew."""
    singles = [character.encode() * 3 for character in "*#~^_=" + string.digits + string.ascii_letters]
    candidates = [_PREFERRED_MASK, *singles, *(bytes([byte]) * 3 for byte in range(256))]
    listed = list(needles)
    for mask in candidates:
        if not any(_touches(mask, needle) for needle in listed):
            return mask
    # Secrets that use every byte value at their borders; nothing safe can be put in their place.
    raise SecretsMissing("the secrets can't be masked: they begin and end with every possible byte")


def _union(matches: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The stretches that the matches cover together; ones that merely touch stay apart."""
    start = end = 0
    for left, right in sorted(matches):
        if left >= end:
            if end:
                yield start, end
            start, end = left, right
        else:
            end = max(end, right)
    if end:
        yield start, end


class Masker:
    """Masks a fixed set of secrets. Safe to share between threads; each stream has its own state."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self._needles: list[bytes] = []
        self._automaton: BytesAhoCorasick | None = None
        self.mask_bytes = _PREFERRED_MASK
        for name, value in secrets.items():
            raw = value.encode("utf-8", "surrogateescape")
            if len(raw.strip()) < SHORTEST:
                raise SecretsMissing(
                    f"the value of {name} is shorter than {SHORTEST} bytes: it can't be masked in output",
                    hint=f"store a longer value for {name}, or unmap it: `skillexec secret unmap {name}`",
                    names=(name,),
                )
            self._needles.extend(forms(raw))
        if self._needles:
            self._build()
        self.longest = max(map(len, self._needles), default=0)
        self._needles.sort()
        self._heads = frozenset(needle[:SHORTEST] for needle in self._needles)

    def _build(self) -> None:
        from ahocorasick_rs import BytesAhoCorasick, Implementation

        self._automaton = BytesAhoCorasick(self._needles, implementation=Implementation.DFA)
        self.mask_bytes = _choose_mask(self._needles)

    def __repr__(self) -> str:
        return f"Masker({len(self._needles)} forms)"  # never a value

    def stretches(self, data: bytes) -> list[tuple[int, int]]:
        """Where secrets stand in the data, merged."""
        if self._automaton is None:
            return []
        matches = self._automaton.find_matches_as_indexes(data, overlapping=True)
        return list(_union((start, end) for _, start, end in matches)) if matches else []

    def open_from(self, data: bytes, start: int) -> int:
        """The first place, not before `start`, from which the data's end could be the beginning of a secret."""
        if self.longest > _LONG:
            return start
        for place in range(start, len(data)):
            # Most places are ruled out by their first bytes alone.
            if (
                len(data) - place < SHORTEST or data[place : place + SHORTEST] in self._heads
            ) and self._begins(data[place:]):
                return place
        return len(data)

    def _begins(self, part: bytes) -> bool:
        """Whether a secret begins with this part, and goes on."""
        place = bisect.bisect_right(self._needles, part)
        return place < len(self._needles) and self._needles[place].startswith(part)

    def stream(self) -> MaskStream:
        """The state for one stream of bytes."""
        return MaskStream(self)

    def mask(self, data: bytes) -> bytes:
        """The data with every secret replaced."""
        stream = self.stream()
        return stream.feed(data) + stream.finish()

    def text(self, value: str) -> str:
        """The text with every secret replaced, undecodable bytes kept."""
        if self._automaton is None:
            return value
        return self.mask(value.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")

    def value(self, value: Any) -> Any:
        """A JSON value with the secrets in its texts and keys replaced: parsing undoes escapes that no form has."""
        if self._automaton is None:
            return value
        if isinstance(value, str):
            # JSON can spell halves of surrogate pairs, which no UTF-8 has.
            raw = value.encode("utf-8", "surrogatepass")
            return self.mask(raw).decode("utf-8", "surrogatepass") if self.stretches(raw) else value
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, dict):
            return {self.value(key): self.value(item) for key, item in value.items()}
        return value


class MaskStream:
    """One stream: feed it chunks, then finish. Holds back only what might be the beginning of a secret."""

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self._held = b""
        self._covered = 0  # how much of what is held was masked already, and is kept only to be matched
        self.count = 0

    def feed(self, data: bytes) -> bytes:
        """What can be shown by now."""
        if not self._masker.longest:
            return data
        buffer = self._held + data
        # A match that begins before this place lies wholly inside the buffer.
        whole = max(len(buffer) - self._masker.longest + 1, 0)
        return self._emit(buffer, settled=self._masker.open_from(buffer, whole))

    def finish(self) -> bytes:
        """The rest."""
        return self._emit(self._held, settled=len(self._held))

    def _emit(self, buffer: bytes, *, settled: int) -> bytes:
        parts: list[bytes] = []
        position = self._covered
        for start, end in self._masker.stretches(buffer):
            if start >= settled:
                break
            if start >= position:
                parts += [buffer[position:start], self._masker.mask_bytes]
                self.count += 1
            position = max(position, end)
        parts.append(buffer[position:settled])
        self._held = buffer[settled:]
        self._covered = max(position - settled, 0)
        return b"".join(parts)
