"""An HTML tree as Markdown or as plain text."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

_SPACE = re.compile(r"[ \t\r\n\f]+")
_DROPPED = re.compile(
    "script|style|noscript|template|head|iframe|object|embed|svg|canvas|form|button|input|select|textarea"
)
_BLOCK = re.compile(
    "address|article|aside|blockquote|body|center|dd|details|div|dl|dt|fieldset|figcaption|figure|footer|h[1-6]|header"
    "|hr|html|li|main|nav|ol|p|pre|section|summary|table|tbody|td|tfoot|th|thead|tr|ul"
)
_MARKS = {"strong": "**", "b": "**", "em": "*", "i": "*", "del": "~~", "s": "~~"}

Element = Any  # an lxml element; lxml ships no types


def _tag(element: Element) -> str:
    """Its name; "" for a comment or processing instruction, whose tag is a function."""
    return element.tag.lower() if isinstance(element.tag, str) else ""


def _fence(text: str, least: int) -> str:
    """Backquotes, more of them than stand together anywhere in the text."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    return "`" * max(least, longest + 1)


def _indented(text: str, first: str) -> str:
    lines = text.split("\n")
    return "\n".join([first + lines[0], *(" " * len(first) + line if line else "" for line in lines[1:])])


@dataclass(frozen=True)
class Writer:
    """Writes a tree: with Markdown's marks, or without any. Addresses are made absolute against `base`."""

    base: str
    marks: bool

    def document(self, root: Element) -> str:
        return "\n\n".join(self._blocks(root)).strip()

    def _blocks(self, element: Element) -> Iterator[str]:
        """The blocks inside an element; text that stands between them is a paragraph of its own."""
        loose = [element.text or ""]
        for child in element:
            tag = _tag(child)
            if _BLOCK.fullmatch(tag):
                yield from self._paragraph(loose)
                yield from (block for block in self._block(child, tag) if block.strip())
                loose = []
            else:
                loose.append(self._inline(child, tag))
            loose.append(child.tail or "")
        yield from self._paragraph(loose)

    @staticmethod
    def _paragraph(pieces: list[str]) -> Iterator[str]:
        lines = (_SPACE.sub(" ", line).strip() for line in "".join(pieces).split("\v"))
        text = "\n".join(lines).strip()
        if text:
            yield text

    def _block(self, element: Element, tag: str) -> Iterator[str]:
        special: dict[str, Callable[[Element], Iterator[str]]] = {
            "pre": self._pre,
            "ul": self._list,
            "ol": self._list,
            "table": self._table,
            "blockquote": self._quote,
        }
        if tag in special:
            return special[tag](element)
        if tag == "hr":
            return iter(["---"] if self.marks else [])
        if len(tag) == 2 and tag[0] == "h" and tag[1].isdigit():
            return self._heading(element, int(tag[1]))
        return self._blocks(element)

    def _heading(self, element: Element, level: int) -> Iterator[str]:
        text = " ".join(self.document(element).split())
        if text:
            yield f"{'#' * level} {text}" if self.marks else text

    def _pre(self, element: Element) -> Iterator[str]:
        text = "".join(element.itertext()).strip("\n")
        fence = _fence(text, 3)
        yield f"{fence}\n{text}\n{fence}" if self.marks else text

    def _quote(self, element: Element) -> Iterator[str]:
        text = self.document(element)
        yield "\n".join(f"> {line}".rstrip() for line in text.split("\n")) if self.marks else text

    def _list(self, element: Element) -> Iterator[str]:
        items = [
            self.document(child) for child in element if _tag(child) and not _DROPPED.fullmatch(_tag(child))
        ]
        ordered = _tag(element) == "ol"
        labels = (f"{number}. " if ordered else "- " for number in range(1, len(items) + 1))
        yield "\n".join(_indented(item, label) for label, item in zip(labels, items, strict=True) if item)

    def _table(self, element: Element) -> Iterator[str]:
        rows = [self._cells(row) for row in element.iter("tr")]
        rows = [row for row in rows if any(row)]
        if not rows:
            return
        width = max(map(len, rows))
        if width == 1 or not self.marks:  # one column is layout, not data
            yield "\n".join("\t".join(row) for row in rows)
            return
        lines = ["| " + " | ".join(row + [""] * (width - len(row))) + " |" for row in rows]
        yield "\n".join([lines[0], "|" + " --- |" * width, *lines[1:]])

    def _cells(self, row: Element) -> list[str]:
        cells = (" ".join(self.document(cell).split()) for cell in row if _tag(cell) in {"td", "th"})
        return [cell.replace("|", "\\|") if self.marks else cell for cell in cells]

    def _inline(self, element: Element, tag: str) -> str:
        if not tag or _DROPPED.fullmatch(tag):
            return ""
        if tag == "br":
            return "\v"  # a line break that survives the folding of white space
        if tag == "img":
            return self._image(element)
        if tag == "code":
            return self._code(element)
        text = self._run(element)
        if tag == "a":
            return self._link(element, text)
        mark = _MARKS.get(tag, "") if self.marks and text.strip() else ""
        return f"{mark}{text.strip()}{mark}" if mark else text

    def _run(self, element: Element) -> str:
        """The text inside an inline element; a block within it, which browsers allow, is set off by breaks."""
        pieces = [element.text or ""]
        for child in element:
            tag = _tag(child)
            pieces.append(
                f"\v{self.document(child)}\v" if _BLOCK.fullmatch(tag) else self._inline(child, tag)
            )
            pieces.append(child.tail or "")
        return "".join(pieces)

    def _code(self, element: Element) -> str:
        text = "".join(element.itertext())
        fence = _fence(text, 1)
        return f"{fence}{text}{fence}" if self.marks and text else text

    def _image(self, element: Element) -> str:
        alt, source = (element.get("alt") or "").strip(), absolute(self.base, element.get("src"))
        return f"![{alt}]({source})" if self.marks and alt and source else alt

    def _link(self, element: Element, text: str) -> str:
        address = absolute(self.base, element.get("href"))
        label = " ".join(text.replace("\v", " ").split())
        return f"[{label}]({address})" if self.marks and address and label else text


def absolute(base: str, address: str | None) -> str:
    """An http(s) address made absolute; "" for anything else (a script, an inline image, a bad one)."""
    try:
        joined = urllib.parse.urljoin(base, (address or "").strip())
        scheme = urllib.parse.urlsplit(joined).scheme
    except ValueError:
        return ""
    usable = bool(address) and not (address or "").startswith("#") and scheme in {"http", "https"}
    return urllib.parse.quote(joined, safe="/?#%:@!$&'*+,;=~-._[]") if usable else ""


def links(root: Element, base: str, limit: int) -> list[dict[str, str]]:
    """The links of a tree, each address once, in order."""
    found: dict[str, str] = {}
    for anchor in root.iter("a"):
        address = absolute(base, anchor.get("href"))
        label = " ".join("".join(anchor.itertext()).split())
        if address and label:
            found.setdefault(address, label[:200])
        if len(found) >= limit:
            break
    return [{"text": label, "url": address} for address, label in found.items()]
