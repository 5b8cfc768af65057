"""brave-search: web search through the Brave Search API.

The key goes to one host. No argument can name another one, redirects are not followed, and the setting that
tests use accepts loopback addresses only: an agent can't have the key sent anywhere else.
"""

from __future__ import annotations

import argparse
import html
import json
import os
import re
import time
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any

from skilltools import network, web
from skilltools.program import (
    Program,
    RateLimited,
    Refused,
    ToolError,
    Unauthorized,
    Upstream,
    Usage,
    deadline,
    integer,
)

ENDPOINT = "https://api.search.brave.com/res/v1/web/search"
ENDPOINT_SETTING = "SKILLEXEC_BRAVE_ENDPOINT"  # for tests; loopback only
KEY = "BRAVE_API_KEY"
SECONDS = 20
_MAX_BYTES = 4 << 20
# The free plan allows one request a second: waiting that long once is kinder than failing.
_PATIENCE = 2.0
_FRESHNESS = re.compile(r"pd|pw|pm|py|\d{4}-\d{2}-\d{2}to\d{4}-\d{2}-\d{2}")
_COUNTRY = re.compile(r"[A-Za-z]{2}|ALL")
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")


def _matching(pattern: re.Pattern[str], example: str) -> Any:
    def parse(text: str) -> str:
        if pattern.fullmatch(text) is None:
            raise argparse.ArgumentTypeError(f"{text!r} (for example {example})")
        return text

    return parse


def _endpoint() -> str:
    override = os.environ.get(ENDPOINT_SETTING)
    if not override:
        return ENDPOINT
    if network.target(override).host not in {"127.0.0.1", "::1"}:
        raise Refused(f"{ENDPOINT_SETTING} may only name a loopback address")
    return override


def _key() -> str:
    key = os.environ.get(KEY, "")
    if not key:
        raise Unauthorized(
            f"{KEY} is not set", hint=f"an operator maps it: skillexec secret map {KEY} op://..."
        )
    if not key.isascii() or not key.isprintable() or " " in key:
        # http.client would refuse such a header too, but with the value in its message.
        raise Unauthorized(f"{KEY} has characters that no key has (a line break at its end, perhaps)")
    return key


def _plain(text: object) -> str:
    """Without the marks that the service puts around matching words."""
    return html.unescape(_TAG.sub("", text)).strip() if isinstance(text, str) else ""


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait: what the server says, or until every window of its that is used up has passed."""
    stated = headers.get("retry-after", "").strip()
    if stated.isdigit():
        return float(stated)
    resets = headers.get("x-ratelimit-reset", "").split(",")
    remaining = headers.get("x-ratelimit-remaining", "").split(",")
    used_up = [
        float(reset)
        for reset, left in zip(resets, remaining, strict=False)
        if left.strip() == "0" and reset.strip().isdigit()
    ]
    # The longest: with the month's quota gone, a second's wait does not help.
    return max(used_up, default=None)


def _failure(answer: web.Answer) -> ToolError:
    """The error that an answer other than 200 stands for."""
    try:
        error = json.loads(answer.body)["error"]
        reason, detail = str(error.get("code", "")), str(error.get("detail", ""))
    except (ValueError, KeyError, TypeError, AttributeError):
        reason, detail = "", ""
    said = f"Brave Search answered {answer.status}" + (f" {reason}: {detail}" if reason else "")
    if answer.status == 429:
        return RateLimited(said, status=429, retry_after=_retry_after(answer.headers))
    # An unknown key is a 422, as a wrong parameter is; only the code tells them apart.
    if answer.status in {401, 403} or reason == "SUBSCRIPTION_TOKEN_INVALID":
        return Unauthorized(said, status=answer.status, hint=f"check the value of {KEY}")
    if answer.status in {400, 422}:
        return Usage(said, status=answer.status)
    return Upstream(said, status=answer.status)


def _ask(url: str, key: str) -> web.Answer:
    headers = {"Accept": "application/json", "X-Subscription-Token": key}
    return web.get(url, headers=headers, timeout=SECONDS, max_bytes=_MAX_BYTES, redirects=0)


def _patiently(url: str, key: str) -> web.Answer:
    answer = _ask(url, key)
    wait = _retry_after(answer.headers) if answer.status == 429 else None
    if wait is None or wait > _PATIENCE:
        return answer
    time.sleep(wait)
    return _ask(url, key)


def _document(answer: web.Answer) -> Mapping[str, Any]:
    if answer.status != 200:
        raise _failure(answer)
    try:
        document = json.loads(answer.body)
    except ValueError:
        raise Upstream("Brave Search answered with something that is not JSON", status=200) from None
    if not isinstance(document, dict):
        raise Upstream("Brave Search answered with something unexpected", status=200)
    return document


def _results(document: Mapping[str, Any]) -> list[dict[str, object]]:
    section = document.get("web")
    found = section.get("results") if isinstance(section, dict) else None
    return [
        {
            "title": _plain(entry.get("title")),
            "url": str(entry.get("url", "")),
            "description": _plain(entry.get("description")),
            "age": entry.get("age") if isinstance(entry.get("age"), str) else None,
        }
        for entry in (found if isinstance(found, list) else [])
        if isinstance(entry, dict)
    ]


def search(options: argparse.Namespace) -> dict[str, object]:
    """Asks, and maps the answer to what an agent needs of it."""
    query = options.query.strip()
    if not query or len(query) > 400 or len(query.split()) > 50:
        raise Usage("a query has 1 to 400 characters and at most 50 words")
    names = ("count", "offset", "freshness", "country", "search_lang", "safesearch")
    asked = {"q": query, "text_decorations": "false"}
    asked |= {name: str(getattr(options, name)) for name in names if getattr(options, name) is not None}
    with deadline(SECONDS):
        answer = _patiently(f"{_endpoint()}?{urllib.parse.urlencode(asked)}", _key())
    document = _document(answer)
    more = document.get("query")
    return {
        "query": query,
        "results": _results(document)[: options.count],
        "more": bool(more.get("more_results_available")) if isinstance(more, dict) else False,
    }


def _program() -> Program:
    program = Program(
        "brave-search",
        "Searches the web with the Brave Search API and prints titles, addresses and descriptions as JSON.",
        epilog=f"The key is taken from {KEY}. Needs a network that reaches api.search.brave.com.",
    )
    add = program.command("search", "search the web", search).add_argument
    add("--query", required=True, metavar="TEXT", help="what to look for; 400 characters, 50 words at most")
    add(
        "--count", type=integer(1, 20), default=10, metavar="N", help="how many results, 1 to 20 (default 10)"
    )
    add("--offset", type=integer(0, 9), metavar="N", help="pages to skip, 0 to 9 (default 0)")
    add(
        "--freshness",
        type=_matching(_FRESHNESS, "pw"),
        metavar="AGE",
        help="pd, pw, pm, py (past day, week, month, year) or 2026-01-01to2026-03-31 (default any)",
    )
    add(
        "--country",
        type=_matching(_COUNTRY, "DE"),
        metavar="CC",
        help="two letters, or ALL (default the plan's)",
    )
    add(
        "--search-lang",
        type=_matching(re.compile(r"[a-z]{2}(-[a-z]{2,4})?"), "en"),
        metavar="LANG",
        help="such as en",
    )
    add("--safesearch", choices=("off", "moderate", "strict"), help="filter adult content (default moderate)")
    return program


def main(arguments: Sequence[str] | None = None) -> int:
    return _program().main(arguments)
