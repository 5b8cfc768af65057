"""web-fetch: one web page, as what a reader would want of it."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence

from skilltools import markup, page, web
from skilltools.program import (
    OUTPUT_BUDGET,
    NotFound,
    Program,
    RateLimited,
    ToolError,
    Upstream,
    deadline,
    fitting,
    integer,
)

MAX_BYTES = 5 << 20
MAX_LINKS = 200
_LINKS_BUDGET = 100_000
_HTML = frozenset({"text/html", "application/xhtml+xml"})
_TEXTUAL = re.compile(
    r"text/.*|application/(.*\+)?(json|xml|yaml|javascript|x-ndjson|toml|rtf)|image/svg\+xml"
)


def _media_type(answer: web.Answer) -> tuple[str, str]:
    """The content type, or a guess where none is given, and its charset."""
    stated, _, parameters = answer.headers.get("content-type", "").partition(";")
    match = re.search(r"charset=[\"']?([^\"';\s]+)", parameters, re.IGNORECASE)
    media = stated.strip().lower()
    if not media:
        start = answer.body[:1024].lstrip().lower()
        media = "text/html" if start.startswith((b"<!doctype html", b"<html")) else "application/octet-stream"
        media = "text/plain" if media != "text/html" and b"\0" not in answer.body else media
    return media, match.group(1) if match else ""


def _failure(answer: web.Answer) -> ToolError:
    said = f"{answer.url} answered {answer.status}"
    if answer.status in {404, 410}:
        return NotFound(said, status=answer.status)
    if answer.status == 429:
        wait = answer.headers.get("retry-after", "").strip()
        return RateLimited(said, status=429, retry_after=float(wait) if wait.isdigit() else None)
    return Upstream(said, status=answer.status)


def _rendered(text: str, form: str, base: str) -> tuple[str, str, list[dict[str, str]]]:
    """Title, content and links of an HTML page."""
    found = page.extract(text)
    links = markup.links(found.root, base, MAX_LINKS)
    if form == "html":
        return found.title, found.html, links
    return found.title, markup.Writer(base, marks=form == "markdown").document(found.root), links


def _affordable(links: list[dict[str, str]]) -> list[dict[str, str]]:
    kept, spent = [], 0
    for link in links:
        spent += len(link["url"].encode()) + 6 * len(link["text"]) + 32
        if spent > _LINKS_BUDGET:
            break
        kept.append(link)
    return kept


def _content(answer: web.Answer, form: str) -> tuple[str, str | None, list[dict[str, str]]]:
    """Title, content (none for what is not text) and links."""
    media, declared = _media_type(answer)
    if media not in _HTML and _TEXTUAL.fullmatch(media) is None:
        return "", None, []
    text = answer.body.decode(page.charset(answer.body, declared), "replace")
    return _rendered(text, form, answer.url) if media in _HTML and form != "raw" else ("", text, [])


def fetch(options: argparse.Namespace) -> dict[str, object]:
    """Fetches a page and returns its content, shortened to what was asked for."""
    with deadline(options.timeout):
        accept = {"Accept": "text/html,application/xhtml+xml,text/*;q=0.9,*/*;q=0.5"}
        answer = web.get(options.url, headers=accept, timeout=options.timeout, max_bytes=MAX_BYTES)
        if answer.status >= 300:
            raise _failure(answer)
        title, content, links = _content(answer, options.format)
    shown = (
        None if content is None else fitting(content[: options.max_chars], OUTPUT_BUDGET - 2 * _LINKS_BUDGET)
    )
    return {
        "url": options.url,
        "final_url": answer.url,
        "status": answer.status,
        "media_type": _media_type(answer)[0],
        "title": title[:1000],
        "format": options.format,
        "content": shown,
        "binary": content is None,
        "bytes": len(answer.body),
        "chars": len(content or ""),
        "truncated": answer.truncated or len(shown or "") < len(content or ""),
        "links": _affordable(links),
    }


def _program() -> Program:
    program = Program(
        "web-fetch",
        "Fetches one web page over http or https and prints its main text as JSON.",
        epilog="Only public addresses are reached, also after redirects (5 at most). At most 5 MiB of a page are read.",
    )
    add = program.command("fetch", "fetch one page", fetch).add_argument
    add("--url", required=True, metavar="URL", help="http:// or https://, without credentials")
    add(
        "--max-chars",
        type=integer(1, 400_000),
        default=50_000,
        metavar="N",
        help="longest content, in characters (default 50000)",
    )
    add(
        "--format",
        choices=("markdown", "text", "html", "raw"),
        default="markdown",
        help="markdown, text and html give the main part of a page, raw its source (default markdown)",
    )
    add(
        "--timeout",
        type=integer(1, 55),
        default=20,
        metavar="SECONDS",
        help="for everything together (default 20)",
    )
    return program


def main(arguments: Sequence[str] | None = None) -> int:
    return _program().main(arguments)
