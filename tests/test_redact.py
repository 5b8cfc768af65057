"""Secrets never come out, in any form, whatever the chunking; and nothing else is touched."""

from __future__ import annotations

import base64
import itertools
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillexec.errors import SecretsMissing
from skillexec.redact import SHORTEST, Masker, forms

SECRET = "hunter2-Corr3ct/Horse+Battery"
values = st.one_of(
    st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=SHORTEST, max_size=60),
    st.text(alphabet="ab", min_size=SHORTEST, max_size=12),
    st.text(alphabet="[redact]*#", min_size=SHORTEST, max_size=12),
).filter(lambda value: len(value.strip().encode().strip()) >= SHORTEST)


def _in_chunks(masker: Masker, data: bytes, cuts: list[int]) -> bytes:
    stream = masker.stream()
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    shown = b"".join(stream.feed(data[a:b]) for a, b in itertools.pairwise(places))
    return shown + stream.finish()


def _spellings(value: str) -> list[bytes]:
    raw = value.encode()
    return [
        raw,
        raw.hex().encode(),
        raw.hex().upper().encode(),
        quote(value, safe="").encode(),
        quote_plus(value).encode(),
        json.dumps(value)[1:-1].encode(),
        json.dumps(value, ensure_ascii=False)[1:-1].encode(),
        repr(value)[1:-1].encode(),
        ascii(value)[1:-1].encode(),
        repr(raw)[2:-1].encode(),
    ]


@settings(max_examples=5000, deadline=None)
@given(
    secrets=st.lists(values, min_size=1, max_size=4),
    noise=st.lists(st.binary(max_size=20), min_size=2, max_size=6),
    cuts=st.lists(st.integers(min_value=0, max_value=10_000), max_size=12),
    pick=st.integers(min_value=0),
)
def test_no_spelling_of_a_secret_survives_any_chunking(
    secrets: list[str], noise: list[bytes], cuts: list[int], pick: int
) -> None:
    masker = Masker({f"S{i}": secret for i, secret in enumerate(secrets)})
    spellings = [form for secret in secrets for form in _spellings(secret)]
    data = b"".join(part + spellings[(pick + i) % len(spellings)] for i, part in enumerate(noise))
    shown = _in_chunks(masker, data, cuts)
    for form in spellings:
        assert form not in shown
    assert shown == masker.mask(data), "the chunking must not matter"


@settings(max_examples=1000, deadline=None)
@given(
    before=st.binary(max_size=9), after=st.binary(max_size=9), cuts=st.lists(st.integers(0, 500), max_size=6)
)
def test_base64_at_every_alignment_is_masked(before: bytes, after: bytes, cuts: list[int]) -> None:
    masker = Masker({"TOKEN": SECRET})
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        encoded = encode(before + SECRET.encode() + after)
        assert masker.mask_bytes in _in_chunks(masker, encoded, cuts)
        # What is left of the secret's own characters is at most one at each end.
        own = len(before) * 8 // 6 + 1, (len(before) + len(SECRET)) * 8 // 6 - 1
        assert encoded[own[0] + 1 : own[1]] not in _in_chunks(masker, encoded, cuts)


@given(data=st.text(alphabet="xyz \n", max_size=400), cuts=st.lists(st.integers(0, 500), max_size=8))
def test_text_without_secrets_comes_out_unchanged(data: str, cuts: list[int]) -> None:
    assert _in_chunks(Masker({"TOKEN": SECRET}), data.encode(), cuts) == data.encode()


@given(data=st.binary(max_size=400))
def test_without_secrets_every_byte_passes(data: bytes) -> None:
    assert Masker({}).mask(data) == data


@pytest.mark.parametrize(
    ("value", "spelling"),
    [
        pytest.param("p!ss w(o)rd*~&'<x>", "p!ss%20w(o)rd*~%26'%3Cx%3E", id="encodeURIComponent"),
        pytest.param("p!ss w(o)rd*~&'<x>", "p!ss%20w(o)rd*~&'%3Cx%3E", id="encodeURI"),
        pytest.param("p!ss w(o)rd*~&'<x>", "p%21ss+w%28o%29rd*%7E%26%27%3Cx%3E", id="URLSearchParams"),
        pytest.param("p!ss w(o)rd*~&'<x>", "p!ss%20w(o)rd*~%26%27%3Cx%3E", id="URL.href"),
        pytest.param("p!ss w(o)rd*~&'<x>", "p%21ss%20w%28o%29rd*%7E%26%27%3Cx%3E", id="escape"),
        pytest.param("p!ss w(o)rd*~&'<x>", "p!ss w(o)rd*~\\u0026'\\u003cx\\u003e", id="JSON for web pages"),
        pytest.param("née/dire", "n\\u00E9e/dire", id="JSON with large digits"),
        pytest.param('it\'s "q" \\ ¤', 'it\'s "q" \\\\ ¤', id="node's console.log of an object"),
        pytest.param('it\'s "q" \\ ¤', 'it\\\'s "q" \\\\ \\xa4', id="Python's ascii"),
        pytest.param('it\'s "q" \\ ¤', 'it\\\'s "q" \\\\ \\xc2\\xa4', id="Python's bytes"),
    ],
)
def test_spellings_that_programs_of_the_image_really_print_are_masked(value: str, spelling: str) -> None:
    assert Masker({"TOKEN": value}).mask(spelling.encode()) == b"[redacted]"


def test_secrets_that_are_prefixes_of_each_other_leave_no_rest() -> None:
    masker = Masker({"A": "abcd", "B": "abcdefgh"})
    assert masker.mask(b"-abcdefgh-abcd-") == b"-[redacted]-[redacted]-"


def test_overlapping_secrets_are_both_gone_even_across_chunks() -> None:
    masker = Masker({"A": "abcdef", "B": "defghi"})
    for cut in range(12):
        assert _in_chunks(masker, b"<abcdefghi>", [cut]) == b"<[redacted]>"


def test_each_line_of_a_multi_line_secret_is_masked_alone() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADAN\nBgkqhkiG9w0B\n-----END KEY-----\n"
    shown = Masker({"KEY": key}).mask(b"line: MIIEvQIBADAN!")
    assert shown == b"line: [redacted]!"


def test_a_value_below_four_bytes_is_refused_with_the_name_and_without_the_value() -> None:
    with pytest.raises(SecretsMissing, match="PIN") as refusal:
        Masker({"PIN": "z9q"})
    assert "z9q" not in refusal.value.message + refusal.value.hint


def test_the_mask_itself_never_spells_a_secret() -> None:
    masker = Masker({"ODD": "[redacted]", "EVEN": "x[red"})
    assert b"[redacted]" not in masker.mask(b"[redacted]")
    assert b"x[red" not in masker.mask(b"x[redacted]")


def test_a_masker_does_not_show_its_secrets() -> None:
    assert SECRET not in repr(Masker({"TOKEN": SECRET}))


def test_redactions_are_counted() -> None:
    stream = Masker({"TOKEN": SECRET}).stream()
    stream.feed(f"{SECRET} and {SECRET}".encode())
    stream.finish()
    assert stream.count == 2


def test_forms_hold_nothing_too_short_to_mask() -> None:
    assert all(len(form) >= SHORTEST for form in forms(b"a\nbc\nlonger line"))


def test_what_can_not_be_the_beginning_of_a_secret_is_shown_at_once() -> None:
    stream = Masker({"KEY": "hunter2-hunter2"}).stream()
    assert stream.feed(b"up\n") == b"up\n"
    assert stream.feed(b"the key is hunter2-hunter2") == b"the key is [redacted]"
    assert stream.feed(b"then hunt") == b"then "
    assert stream.feed(b"ing\n") == b"hunting\n"
    assert stream.feed(b"hunter2-") + stream.feed(b"hunter2!") == b"[redacted]!"


def test_a_very_long_secret_is_masked_across_chunks_too() -> None:
    value = "".join(f"line {n} of a long key\n" for n in range(400))
    stream = Masker({"KEY": value}).stream()
    shown = b"".join(stream.feed(value.encode()[at : at + 1000]) for at in range(0, len(value), 1000))
    assert b"of a long key" not in shown + stream.finish()
