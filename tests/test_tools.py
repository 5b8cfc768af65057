"""The image's tools: what they promise in common, web search and web pages. Files and git have files of their own."""

from __future__ import annotations

import gzip
import ipaddress
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skilltools import network, page, program
from tool_runs import IMAGE, NAMES, TOOLS, Ended, Reply, Site, run, run_in_image, serving

KEY = "BSA-canary-4711"


@pytest.fixture
def site() -> Iterator[Site]:
    with serving() as served:
        yield served


# --- every tool ---


@pytest.mark.parametrize("tool", NAMES)
def test_every_tool_has_a_shebang_is_executable_and_explains_itself(tool: str) -> None:
    path = TOOLS / tool
    assert path.read_text().startswith("#!/usr/bin/python3\n")
    assert os.access(path, os.X_OK)
    helped = subprocess.run([sys.executable, path, "--help"], capture_output=True, text=True)
    assert helped.returncode == 0
    assert helped.stdout.startswith(f"usage: {tool} ")
    version = subprocess.run([sys.executable, path, "--version"], capture_output=True, text=True)
    assert version.stdout == f"{tool} {program.VERSION}\n"


@pytest.mark.parametrize("tool", NAMES)
@pytest.mark.parametrize("arguments", [(), ("nonsense",), ("--nonsense",)])
def test_a_wrong_command_is_a_usage_error_in_json(tool: str, arguments: tuple[str, ...]) -> None:
    ended = run(tool, *arguments)
    assert (ended.status, ended.error["code"]) == (2, "usage")
    assert ended.stderr.startswith(f"{tool}: ")
    assert ended.stderr.count("\n") == 1


def test_a_value_that_looks_like_an_option_stays_a_value(tmp_path: Path) -> None:
    (tmp_path / "--help").write_text("found")
    ended = run("file-reader", "read", "--path", "--help", env={"SKILLEXEC_IN": str(tmp_path)})
    assert ended.document["content"] == "found"


def test_a_repeated_or_abbreviated_option_is_not_guessed(tmp_path: Path) -> None:
    assert run("file-reader", "read", "--pat", "x", env={"SKILLEXEC_IN": str(tmp_path)}).status == 2


def test_options_are_taken_with_underscores_too(site: Site) -> None:
    site.replies["/"] = Reply(b"abcdef", headers={"Content-Type": "text/plain"})
    assert _fetch(site.url + "/", "--max_chars", "3").document["content"] == "abc"


def test_every_error_has_its_own_exit_status() -> None:
    kinds = program.ToolError.__subclasses__()
    assert len({kind.exit_status for kind in kinds}) == len({kind.code for kind in kinds}) == len(kinds) == 10


def test_an_unforeseen_error_is_json_and_quotes_nothing(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    def broken(_options: object) -> dict[str, object]:
        raise RuntimeError(f"the key is {KEY}")

    tool = program.Program("broken", "breaks", epilog="")
    tool.command("do", "break", broken)
    assert tool.main(["do"]) == 70
    captured = capfdbinary.readouterr()
    assert json.loads(captured.out)["error"]["code"] == "bug"
    assert KEY.encode() not in captured.out + captured.err


@given(st.text(), st.integers(2, 300))
def test_cut_text_fits_its_budget_and_is_as_long_as_can_be(text: str, budget: int) -> None:
    kept = program.fitting(text, budget)
    assert text.startswith(kept)
    assert program.json_size(kept) <= budget
    assert kept == text or program.json_size(text[: len(kept) + 1]) > budget


# --- where tools may connect to ---

PRIVATE = """127.0.0.1 10.0.0.1 172.16.9.9 192.168.1.1 169.254.169.254 0.0.0.0 100.64.0.1 224.0.0.1 255.255.255.255
 192.0.2.1 198.18.0.1 240.0.0.1 ::1 :: fe80::1 fc00::1 ff02::1 2001:db8::1 ::ffff:127.0.0.1 ::ffff:10.0.0.1
 2002:7f00:1:: 64:ff9b::7f00:1 64:ff9b::a00:1 64:ff9b:1::1"""


@pytest.mark.parametrize("address", PRIVATE.split())
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    assert not network.is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
)
def test_a_public_address_is_allowed(address: str) -> None:
    assert network.is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://127.1/",
        "http://2130706433/",
        "http://0x7f.0.0.1/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://169.254.169.254/latest/meta-data/",
        "https://user:word@example.com/",
        "file:///etc/passwd",
        "ftp://example.com/",
        "gopher://example.com/",
    ],
)
def test_web_fetch_refuses_private_addresses_other_schemes_and_credentials(url: str) -> None:
    ended = run("web-fetch", "fetch", "--url", url)
    assert (ended.status, ended.error["code"]) == (4, "refused")


@pytest.mark.parametrize(
    "url", ["http://", "http://a b/", "http://a/\r\nX-Evil: 1", "http://[::1", "http://a:99999/"]
)
def test_web_fetch_tells_what_is_no_url(url: str) -> None:
    assert run("web-fetch", "fetch", "--url", url).status == 2


def test_the_loopback_setting_opens_loopback_and_nothing_else() -> None:
    ended = run("web-fetch", "fetch", "--url", "http://10.0.0.1/", env={network.LOOPBACK_SETTING: "1"})
    assert ended.status == 4


def test_a_name_that_leads_to_a_private_address_is_refused_after_resolving() -> None:
    command = ("sh", "-c", "web-fetch fetch --url http://intranet.example/ || true")
    # With the engine's own network: without one, the tool would not even resolve the name.
    answer = run_in_image(*command, options=("--add-host", "intranet.example:10.1.2.3"))
    assert answer["error"]["code"] == "refused"
    assert "10.1.2.3" in answer["error"]["message"]


# --- no network ---

ASKING = {
    "brave-search": "search --query otters",
    "web-fetch": "fetch --url https://example.com/",
    "git-readonly-sync": "sync --url https://example.com/a/b.git",
}
IN_NO_NETWORK = """
import json, os, subprocess, sys, time
ended = {}
os.makedirs("/work/out")
env = {**os.environ, "BRAVE_API_KEY": "k", "SKILLEXEC_OUT": "/work/out"}
for tool, arguments in json.loads(sys.argv[1]).items():
    began = time.monotonic()
    done = subprocess.run([tool, *arguments.split()], env=env, capture_output=True)
    ended[tool] = [done.returncode, json.loads(done.stdout), time.monotonic() - began]
print(json.dumps(ended))
"""


def test_without_a_network_each_tool_ends_at_once_and_says_so() -> None:
    ended = run_in_image("python3", "-", json.dumps(ASKING), stdin=IN_NO_NETWORK)
    assert sorted(ended) == sorted(ASKING)
    for status, document, seconds in ended.values():
        assert (status, document["error"]["code"]) == (3, "no_network")
        assert "no network granted" in document["error"]["message"]
        assert seconds < 8  # a name that times out takes longer


# --- brave-search ---

FOUND = {
    "query": {"original": "otters", "more_results_available": True},
    "web": {
        "results": [
            {
                "title": "Otters &amp; <strong>rivers</strong>",
                "url": "https://a.example/",
                "description": "1 < 2",
                "age": "May 2",
            },
            {"title": "Sea otter", "url": "https://b.example/", "description": None},
            "not an object",
        ]
    },
}


def _search(site: Site, *arguments: str, key: str = KEY) -> Ended:
    env = {
        "BRAVE_API_KEY": key,
        "SKILLEXEC_BRAVE_ENDPOINT": f"{site.url}/search",
        network.LOOPBACK_SETTING: "1",
    }
    ended = run("brave-search", "search", *(arguments or ("--query", "otters")), env=env)
    assert KEY not in json.dumps(ended.document) + ended.stderr
    return ended


def _brave_error(status: int, code: str, **headers: str) -> Reply:
    body = {"type": "ErrorResponse", "error": {"status": status, "code": code, "detail": "as it says"}}
    return Reply(
        json.dumps(body).encode(), status, {name.replace("_", "-"): value for name, value in headers.items()}
    )


def test_search_maps_results_and_sends_the_key_as_a_header(site: Site) -> None:
    site.replies["/search"] = Reply(json.dumps(FOUND).encode())
    ended = _search(
        site, "--query", "-site:x otters & more", "--count", "5", "--freshness", "pw", "--country", "DE"
    )
    assert ended.document == {
        "query": "-site:x otters & more",
        "results": [
            {"title": "Otters & rivers", "url": "https://a.example/", "description": "1 < 2", "age": "May 2"},
            {"title": "Sea otter", "url": "https://b.example/", "description": "", "age": None},
        ],
        "more": True,
    }
    path, headers = site.requests[0]
    assert headers["x-subscription-token"] == KEY
    assert "q=-site%3Ax+otters+%26+more" in path
    assert "count=5&freshness=pw&country=DE" in path
    assert KEY not in path


def test_search_understands_a_packed_answer(site: Site) -> None:
    site.replies["/search"] = Reply(
        gzip.compress(json.dumps(FOUND).encode()), headers={"Content-Encoding": "gzip"}
    )
    assert len(_search(site).document["results"]) == 2


@pytest.mark.parametrize(
    ("reply", "status", "code"),
    [
        (_brave_error(401, "UNAUTHORIZED"), 6, "unauthorized"),
        (_brave_error(422, "SUBSCRIPTION_TOKEN_INVALID"), 6, "unauthorized"),
        (_brave_error(422, "VALIDATION"), 2, "usage"),
        (_brave_error(500, "INTERNAL"), 8, "upstream"),
        (Reply(b"<html>", 503), 8, "upstream"),
        (Reply(b"<html>not json"), 8, "upstream"),
        (Reply(b"[]"), 8, "upstream"),
    ],
)
def test_search_tells_the_service_s_refusals_apart(site: Site, reply: Reply, status: int, code: str) -> None:
    site.replies["/search"] = reply
    ended = _search(site)
    assert (ended.status, ended.error["code"]) == (status, code)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry_After": "60"}, 60),
        ({"X_RateLimit_Remaining": "1, 0", "X_RateLimit_Reset": "1, 1419704"}, 1419704),
    ],
)
def test_search_reports_how_long_to_wait_and_asks_once(
    site: Site, headers: dict[str, str], seconds: float
) -> None:
    site.replies["/search"] = _brave_error(429, "RATE_LIMITED", **headers)
    ended = _search(site)
    assert (ended.status, ended.error["code"], ended.error["retry_after"]) == (7, "rate_limited", seconds)
    assert len(site.requests) == 1


def test_search_waits_out_a_one_second_limit_once(site: Site) -> None:
    limited = _brave_error(
        429, "RATE_LIMITED", X_RateLimit_Remaining="0, 1985", X_RateLimit_Reset="1, 1419704"
    )
    site.replies["/search"] = [limited, Reply(json.dumps(FOUND).encode())]
    assert _search(site).status == 0
    assert len(site.requests) == 2


def test_search_never_takes_the_key_to_another_address(site: Site) -> None:
    with serving() as elsewhere:
        site.replies["/search"] = Reply(status=302, headers={"Location": f"{elsewhere.url}/search"})
        assert _search(site).status == 8
        assert elsewhere.requests == []


def test_search_takes_no_endpoint_from_arguments_nor_a_distant_one_from_the_setting() -> None:
    assert run("brave-search", "search", "--query", "x", "--endpoint", "http://a.example/").status == 2
    env = {
        "BRAVE_API_KEY": KEY,
        "SKILLEXEC_BRAVE_ENDPOINT": "http://a.example/",
        network.LOOPBACK_SETTING: "1",
    }
    assert run("brave-search", "search", "--query", "x", env=env).status == 4


@pytest.mark.parametrize("key", ["", f"{KEY}\n", f"{KEY}\r\nX-Evil: 1", "schlüssel"])
def test_search_refuses_a_missing_or_impossible_key_without_quoting_it(site: Site, key: str) -> None:
    ended = _search(site, key=key)
    assert (ended.status, ended.error["code"]) == (6, "unauthorized")
    assert site.requests == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("--query", " "),
        ("--query", "x" * 401),
        ("--query", "x", "--count", "21"),
        ("--query", "x", "--freshness", "yesterday"),
        ("--query", "x", "--country", "Germany"),
        ("--count", "3"),
    ],
)
def test_search_refuses_what_the_service_would_not_take(site: Site, arguments: tuple[str, ...]) -> None:
    assert _search(site, *arguments).status == 2
    assert site.requests == []


# --- web-fetch: transport ---


def _fetch(url: str, *arguments: str) -> Ended:
    return run("web-fetch", "fetch", "--url", url, *arguments, env={network.LOOPBACK_SETTING: "1"})


def test_fetch_gives_text_as_it_is(site: Site) -> None:
    site.replies["/a"] = Reply(
        "Grüße".encode("latin-1"), headers={"Content-Type": "text/plain; charset=ISO-8859-1"}
    )
    document = _fetch(f"{site.url}/a?q=ü#part").document
    assert document["content"] == "Grüße"
    assert (document["status"], document["media_type"], document["truncated"]) == (200, "text/plain", False)
    assert site.requests[0][0] == "/a?q=%C3%BC"


def test_fetch_reports_what_is_not_text(site: Site) -> None:
    site.replies["/i"] = Reply(b"\x89PNG\0\0", headers={"Content-Type": "image/png"})
    document = _fetch(f"{site.url}/i").document
    assert (document["binary"], document["content"], document["bytes"]) == (True, None, 6)


def test_fetch_gives_the_source_when_asked_for_raw(site: Site) -> None:
    site.replies["/r"] = Reply(b"<html><p>Hi", headers={"Content-Type": "text/html"})
    assert _fetch(f"{site.url}/r", "--format", "raw").document["content"] == "<html><p>Hi"


def test_fetch_follows_redirects_and_names_the_last_address(site: Site) -> None:
    site.replies["/1"] = Reply(status=301, headers={"Location": "/2?a=b c"})
    site.replies["/2"] = Reply(b"there", headers={"Content-Type": "text/plain"})
    document = _fetch(f"{site.url}/1").document
    assert (document["content"], document["final_url"]) == ("there", f"{site.url}/2?a=b%20c")


@pytest.mark.parametrize(
    "location", ["http://10.0.0.1/", "http://169.254.169.254/", "file:///etc/passwd", "/loop"]
)
def test_fetch_checks_every_redirect_again(site: Site, location: str) -> None:
    site.replies["/loop"] = Reply(status=302, headers={"Location": location})
    ended = _fetch(f"{site.url}/loop")
    assert (ended.status, ended.error["code"]) == (4, "refused")
    assert len(site.requests) == (6 if location == "/loop" else 1)


@pytest.mark.parametrize(
    ("reply", "status", "code"),
    [
        (Reply(b"", 404), 5, "not_found"),
        (Reply(b"", 410), 5, "not_found"),
        (Reply(b"", 403), 8, "upstream"),
        (Reply(b"", 500), 8, "upstream"),
        (Reply(b"", 429, {"Retry-After": "7"}), 7, "rate_limited"),
        (Reply(b"", 302), 8, "upstream"),
        (Reply(b"x", headers={"Content-Encoding": "br"}), 8, "upstream"),
        (Reply(b"not packed", headers={"Content-Encoding": "gzip"}), 8, "upstream"),
        (Reply(b"short", headers={"Content-Length": "99"}), 8, "upstream"),
    ],
)
def test_fetch_tells_failures_apart(site: Site, reply: Reply, status: int, code: str) -> None:
    site.replies["/x"] = reply
    ended = _fetch(f"{site.url}/x")
    assert (ended.status, ended.error["code"]) == (status, code)


def test_fetch_stops_reading_an_endless_page(site: Site) -> None:
    site.replies["/"] = Reply(headers={"Content-Type": "text/plain"}, chunks=itertools.repeat(b"y\n" * 32768))
    document = _fetch(f"{site.url}/", "--max-chars", "10").document
    assert (document["bytes"], document["content"], document["truncated"]) == (5 << 20, "y\n" * 5, True)


def test_fetch_stops_unpacking_a_bomb(site: Site) -> None:
    bomb = gzip.compress(bytes(200 << 20), 1)
    site.replies["/"] = Reply(bomb, headers={"Content-Type": "text/plain", "Content-Encoding": "gzip"})
    document = _fetch(f"{site.url}/", "--max-chars", "400000").document
    assert (document["bytes"], document["truncated"]) == (5 << 20, True)
    assert len(json.dumps(document, ensure_ascii=False)) < 1 << 20  # NULs take six bytes each in JSON


def _trickle() -> Iterator[bytes]:
    while True:
        yield b"."
        time.sleep(0.05)


def test_fetch_ends_a_page_that_trickles_in(site: Site) -> None:
    site.replies["/"] = Reply(headers={"Content-Type": "text/plain"}, chunks=_trickle())
    ended = _fetch(f"{site.url}/", "--timeout", "1")
    assert (ended.status, ended.error["code"]) == (9, "timeout")


def test_fetch_reports_a_host_that_does_not_answer() -> None:
    with serving() as gone:
        url = gone.url
    assert _fetch(url).error["code"] == "upstream"


@pytest.mark.parametrize(
    ("body", "declared", "found"),
    [
        (b"\xef\xbb\xbfa", "latin-1", "utf-8-sig"),
        (b"\xff\xfea\0", "", "utf-16"),
        (b"a", "no-such-charset", "utf-8"),
        (b"<meta charset='shift_jis'>", "", "shift_jis"),
        (b"<meta http-equiv=x content='text/html; charset=gbk'>", "", "gbk"),
        ("é".encode()[:1], "", "utf-8"),
        (b"caf\xe9 au lait", "", "cp1252"),
        (b"caf\xe9", "us-ascii", "cp1252"),
    ],
)
def test_the_charset_of_a_page_is_found_as_browsers_do(body: bytes, declared: str, found: str) -> None:
    assert page.charset(body, declared) == found


# --- web-fetch: pages, with readability, which the image has ---

FILLER = "Otters are playful animals, and they live in rivers, lakes and along coasts. " * 6
ARTICLE = f"""<!doctype html><html><head><title>Otters | A Site</title><script>evil()</script></head><body>
<nav><a href="/menu">Menu entry</a></nav><article><h1>Otters</h1>
<p>{FILLER}<b>Very</b> <em>much</em> so.<br>Next line.</p>
<h2>Where <code>they</code> live</h2>
<p>See <a href="/rivers?x=1#y">rivers</a>, <a href="javascript:evil()">not this</a>.
{FILLER}</p><ul><li>fish</li><li>crabs<ul><li>small ones</li></ul></li></ul><ol><li>one<li>two</ol>
<pre>a = 1
b = ```2```</pre><blockquote><p>Quoted.</p></blockquote>
<table><tr><th>Name</th><th>Weight</th></tr><tr><td>Sea|otter</td><td>45&nbsp;kg</td></tr></table>
<p><img src="o.jpg" alt="An otter">{FILLER}</p></article><footer>Imprint</footer></body></html>"""
LINKS = (
    "<html><title>List</title><body>"
    + "".join(f"<a href='/{n}'>Entry {n}</a> " for n in range(300))
    + "</body></html>"
)
PAGES = {
    "/article": ARTICLE,
    "/list": LINKS,
    "/empty": "",
    "/deep": "<div>" * 5000 + "deep down" + "</div>" * 5000,
    "/declared": '<?xml version="1.0" encoding="utf-8"?><html><body><p>Grüße, declared.</p></body></html>',
}
IN_IMAGE = """
import http.server, json, subprocess, sys, threading
pages, cases = json.loads(sys.argv[1])
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(pages[self.path].encode())
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "SKILLEXEC_ALLOW_LOOPBACK": "1"}
ended = {}
for path, form in cases:
    command = ["web-fetch", "fetch", "--url", "http://127.0.0.1:8000" + path, "--format", form]
    done = subprocess.run(command, env=env, capture_output=True)
    ended[path + " " + form] = [done.returncode, json.loads(done.stdout), done.stderr.decode()]
print(json.dumps(ended))
"""


@pytest.fixture(scope="module")
def fetched() -> dict[str, Any]:
    """Each page as the image's own web-fetch gives it, from a server in the same container: no network."""
    cases = [(path, "markdown") for path in PAGES] + [("/article", "text"), ("/article", "html")]
    ended = run_in_image("python3", "-", json.dumps([PAGES, cases]), stdin=IN_IMAGE)
    for case, (status, _document, stderr) in ended.items():
        assert (status, stderr) == (0, ""), case
    return {case: document for case, (_, document, _) in ended.items()}


def test_the_image_holds_the_tools_of_this_checkout() -> None:
    """Else what the tests below say would be about other programs: `make image` brings it up to date."""
    listed = subprocess.run(
        [
            "docker",
            "run",
            "--rm",
            "--network",
            "none",
            IMAGE,
            "sha256sum",
            *(f"/usr/local/bin/{name}" for name in NAMES),
        ],
        capture_output=True,
        text=True,
    )
    here = subprocess.run(["sha256sum", *(TOOLS / name for name in NAMES)], capture_output=True, text=True)
    assert [line.split()[0] for line in listed.stdout.splitlines()] == [
        line.split()[0] for line in here.stdout.splitlines()
    ]


def test_a_page_becomes_markdown_of_its_main_part(fetched: dict[str, Any]) -> None:
    document = fetched["/article markdown"]
    content = document["content"]
    assert document["title"] == "Otters | A Site"
    for expected in (
        "**Very** *much* so.\nNext line.",
        "## Where `they` live",
        "[rivers](http://127.0.0.1:8000/rivers?x=1#y), not this.",
        "- fish\n- crabs\n\n  - small ones",
        "1. one\n2. two",
        "````\na = 1\nb = ```2```\n````",
        "> Quoted.",
        "| Name | Weight |\n| --- | --- |\n| Sea\\|otter | 45 kg |",
        "![An otter](http://127.0.0.1:8000/o.jpg)",
    ):
        assert expected in content.replace("\xa0", " ")
    assert "evil" not in content
    assert "Imprint" not in content
    assert {"text": "rivers", "url": "http://127.0.0.1:8000/rivers?x=1#y"} in document["links"]


def test_a_page_becomes_text_without_marks(fetched: dict[str, Any]) -> None:
    content = fetched["/article text"]["content"]
    assert "Very much so.\nNext line." in content
    assert [mark for mark in ("**", "](", "##", "| ---") if mark in content] == []
    assert "<article" not in content
    assert "<p>" in fetched["/article html"]["content"]


def test_a_list_of_links_is_kept_whole_where_readability_finds_no_article(fetched: dict[str, Any]) -> None:
    document = fetched["/list markdown"]
    assert "[Entry 299](http://127.0.0.1:8000/299)" in document["content"]
    assert len(document["links"]) == 200


def test_odd_pages_neither_crash_nor_hang_the_reader(fetched: dict[str, Any]) -> None:
    assert fetched["/empty markdown"]["content"] == ""
    assert "Grüße, declared." in fetched["/declared markdown"]["content"]
    assert isinstance(fetched["/deep markdown"]["content"], str)
