"""What a reader would call the page: its title and main text, found with readability."""

from __future__ import annotations

import codecs
import logging
import re
from dataclasses import dataclass
from typing import Any

from skilltools.program import Unsupported

_META = re.compile(rb"""<meta[^>]+charset=["']?\s*([A-Za-z0-9_:.-]+)""", re.IGNORECASE)
_BOMS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
# What an article's shortest useful extract has; below it, readability has picked the wrong part of the page.
_TOO_SHORT = 200


@dataclass(frozen=True)
class Page:
    title: str
    root: Any  # an lxml element: the main part
    html: str


def _known(name: str) -> str | None:
    try:
        return codecs.lookup(name).name
    except (LookupError, ValueError):
        return None


def charset(body: bytes, declared: str) -> str:
    """The encoding of a body: its byte order mark, what the server says, what the page says, or what fits."""
    for mark, name in _BOMS:
        if body.startswith(mark):
            return name
    meta = _META.search(body[:4096])
    stated = _known(declared) or (_known(meta.group(1).decode("ascii")) if meta else None)
    if stated:
        return "cp1252" if stated in {"ascii", "iso8859-1"} else stated  # as every browser reads them
    try:
        codecs.getincrementaldecoder("utf-8")().decode(body)  # a cut-off last character is no objection
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"


def _text_length(root: Any) -> int:
    return len(" ".join("".join(root.itertext()).split()))


def _whole(html: str) -> Any:
    import lxml.html

    parser = lxml.html.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True)
    root = lxml.html.document_fromstring(html.encode("utf-8", "replace"), parser=parser)
    for element in list(root.iter("script", "style", "noscript", "template", "nav")):
        element.drop_tree()
    body = root.find("body")
    return root if body is None else body


def _keep_short_parts(document: Any) -> None:
    """Has readability clean the main part without dropping lists and tables below 25 characters as clutter.

    That length serves two ends in it; only where it is used for cleaning is it set aside.
    """
    clean, length = document.sanitize, document.min_text_length

    def gently(node: Any, candidates: Any) -> Any:
        document.min_text_length = 0
        try:
            return clean(node, candidates)
        finally:
            document.min_text_length = length

    document.sanitize = gently


def extract(html: str) -> Page:
    """The main part of a page; the whole body where readability finds next to nothing, as in lists of links."""
    import lxml.etree
    import lxml.html
    import readability

    html = html if html.strip() else "<html><body></body></html>"  # lxml takes emptiness for an error
    logging.disable(logging.CRITICAL)  # readability logs what it can't parse to stderr, with a traceback
    try:
        document = readability.Document(html)
        _keep_short_parts(document)
        title, summary = document.title(), document.summary(html_partial=True)
        root, whole = lxml.html.fragment_fromstring(summary, create_parent="div"), _whole(html)
    except (lxml.etree.LxmlError, readability.readability.Unparseable, ValueError, TypeError) as error:
        raise Unsupported(f"the page can't be parsed: {type(error).__name__}") from None
    if _text_length(root) < _TOO_SHORT and _text_length(root) < _text_length(whole):
        root, summary = whole, lxml.html.tostring(whole, encoding="unicode")
    return Page("" if title == "[no-title]" else title, root, summary)
