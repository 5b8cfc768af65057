"""git-readonly-sync, against git's own HTTP server: what it fetches, and what a hostile repository can't do."""

from __future__ import annotations

import http.server
import os
import stat
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from skilltools import network
from tool_runs import Ended, Reply, Site, run, serving

ALLOWED = {network.LOOPBACK_SETTING: "1"}
AUTHOR = ("-c", "user.name=a", "-c", "user.email=a@b.example", "-c", "init.defaultBranch=main")


def _git(folder: Path, *arguments: str, text: str = "") -> str:
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        ["git", *AUTHOR, "-C", str(folder), *arguments],
        env=env,
        input=text,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@dataclass
class Remote:
    """A repository behind `git http-backend`, and what clients asked of it."""

    url: str
    folder: Path
    commits: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)


def _handler(remote: Remote) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._backend(b"")

        def do_POST(self) -> None:
            self._backend(self.rfile.read(int(self.headers["Content-Length"])))

        def _backend(self, body: bytes) -> None:
            remote.asked.append(f"{self.command} {self.path}")
            path, _, query = self.path.partition("?")
            env = {
                "PATH": os.environ["PATH"],
                "GIT_PROJECT_ROOT": str(remote.folder.parent),
                "GIT_HTTP_EXPORT_ALL": "1",
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "REQUEST_METHOD": self.command,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "CONTENT_LENGTH": str(len(body)),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            }
            answer = subprocess.run(["git", "http-backend"], env=env, input=body, capture_output=True).stdout
            head, _, content = answer.partition(b"\r\n\r\n")
            headers = [line.split(": ", 1) for line in head.decode().split("\r\n")]
            status = next((value for name, value in headers if name == "Status"), "200 OK")
            self.send_response(int(status.split()[0]))
            for name, value in headers:
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def _fill(folder: Path) -> list[str]:
    """Two commits; the second holds what a hostile repository would try."""
    folder.mkdir()
    _git(folder, "init", "-q")
    (folder / "README.md").write_text("# First\n")
    _git(folder, "add", ".")
    _git(folder, "commit", "-q", "-m", "first")
    _git(folder, "tag", "v1")
    (folder / "README.md").write_text("# Second\n")
    (folder / "src").mkdir()
    (folder / "src" / "main.py").write_text("print('hi')\n")
    (folder / "src" / "link").symlink_to("/etc/passwd")
    (folder / ".gitattributes").write_text("*.py filter=lfs diff=lfs\n*.md filter=evil\n")
    (folder / ".gitmodules").write_text(
        '[submodule "sub"]\n\tpath = sub\n\turl = https://evil.example/x.git\n'
    )
    _git(folder, "add", ".")
    _git(folder, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},sub")
    _git(folder, "commit", "-q", "-m", "second")
    return _git(folder, "rev-list", "--reverse", "HEAD").split()


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    remote = Remote("", tmp_path_factory.mktemp("git") / "demo")
    remote.commits = _fill(remote.folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(remote)) as server:
        remote.url = f"http://127.0.0.1:{server.server_address[1]}/demo"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield remote
        server.shutdown()
        thread.join()


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def _sync(out: Path, url: str, *arguments: str, **env: str) -> Ended:
    return run(
        "git-readonly-sync",
        "sync",
        "--url",
        url,
        *arguments,
        env={**ALLOWED, "SKILLEXEC_OUT": str(out), **env},
    )


def test_the_files_of_the_newest_commit_are_written(repository: Remote, out: Path) -> None:
    ended = _sync(out, repository.url)
    assert ended.status == 0, ended
    document = ended.document
    assert (document["commit"], document["ref"], document["output"]) == (
        repository.commits[1],
        "HEAD",
        "demo",
    )
    assert (document["files"], document["links"], document["submodules"]) == (5, 1, ["sub"])
    written = out / "demo"
    assert (written / "README.md").read_text() == "# Second\n"
    assert {"path": "src/main.py", "size": 12} in document["listing"]
    on_disk = [path for path in written.rglob("*") if path.is_file()]
    assert len(on_disk) == 5
    assert document["bytes"] == sum(path.stat().st_size for path in on_disk)
    assert not (written / ".git").exists()


@pytest.mark.parametrize("ref", ["v1", "refs/tags/v1", "COMMIT"])
def test_a_tag_or_a_commit_can_be_asked_for(repository: Remote, out: Path, ref: str) -> None:
    _git(repository.folder, "config", "uploadpack.allowAnySHA1InWant", "true")
    document = _sync(out, repository.url, "--ref", ref.replace("COMMIT", repository.commits[0])).document
    assert document["commit"] == repository.commits[0]
    assert (out / "demo" / "README.md").read_text() == "# First\n"


def test_only_a_folder_of_it_can_be_asked_for(repository: Remote, out: Path) -> None:
    document = _sync(out, repository.url, "--path", "./src/").document
    assert (document["path"], document["files"]) == ("src", 2)
    assert sorted(path.name for path in (out / "demo").rglob("*")) == ["link", "main.py", "src"]


def test_an_archive_is_one_artifact(repository: Remote, out: Path) -> None:
    document = _sync(out, repository.url, "--format", "archive", "--path", "src").document
    assert os.listdir(out) == [document["output"]]
    with tarfile.open(out / document["output"]) as archive:
        names = archive.getnames()
    assert document["output"] == f"demo-{repository.commits[1][:12]}.tar.gz"
    assert "demo/src/main.py" in names
    assert "demo/README.md" not in names


def test_links_are_written_as_files_that_lead_nowhere(repository: Remote, out: Path) -> None:
    _sync(out, repository.url)
    link = out / "demo" / "src" / "link"
    assert stat.S_ISREG(link.lstat().st_mode)
    assert link.read_text() == "/etc/passwd"


def test_nothing_of_the_caller_s_git_setup_has_a_say(repository: Remote, out: Path, tmp_path: Path) -> None:
    """Filters, hooks and helpers that would leave a mark, by every way that git takes settings in."""
    mark = tmp_path / "mark"
    evil = f"touch {mark}; cat"
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(f'[filter "evil"]\n\tsmudge = {evil}\n[core]\n\tfsmonitor = {evil}\n')
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    (hooks / "post-checkout").write_text(f"#!/bin/sh\n{evil}\n")
    (hooks / "post-checkout").chmod(0o755)
    env = {
        "HOME": str(home),
        "GIT_CONFIG_COUNT": "3",
        "GIT_CONFIG_KEY_0": "core.hooksPath",
        "GIT_CONFIG_VALUE_0": str(hooks),
        "GIT_CONFIG_KEY_1": "filter.evil.smudge",
        "GIT_CONFIG_VALUE_1": evil,
        "GIT_CONFIG_KEY_2": "credential.helper",
        "GIT_CONFIG_VALUE_2": f"!{evil}",
        "GIT_EXTERNAL_DIFF": evil,
        "GIT_PROXY_COMMAND": evil,
        "GIT_TRACE": str(mark),
        "http_proxy": "http://127.0.0.1:1",
    }
    assert _sync(out, repository.url, **env).status == 0
    assert not mark.exists()


def test_only_the_reading_service_is_ever_asked_for(repository: Remote, out: Path) -> None:
    repository.asked.clear()
    assert _sync(out, repository.url).status == 0
    assert repository.asked
    assert all("upload-pack" in request for request in repository.asked)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--ref", "no-such-branch"), "not_found"),
        (("--ref", "2" * 40), "not_found"),
        (("--path", "no/such"), "not_found"),
        (("--path", "../x"), "refused"),
        (("--path", "/etc"), "refused"),
        (("--ref", "--upload-pack=touch /tmp/x"), "usage"),
        (("--ref", "a..b"), "usage"),
        (("--ref", "HEAD:refs/heads/x"), "usage"),
        (("--ref", "a b"), "usage"),
        (("--depth", "0"), "usage"),
        (("--path", ":(glob)**"), "not_found"),
    ],
)
def test_what_is_not_there_or_not_allowed_is_told(
    repository: Remote, out: Path, arguments: tuple[str, ...], code: str
) -> None:
    assert _sync(out, repository.url, *arguments).error["code"] == code
    assert os.listdir(out) == []


def test_a_repository_that_is_not_there_is_not_found(repository: Remote, out: Path) -> None:
    assert _sync(out, repository.url.replace("/demo", "/other")).error["code"] == "not_found"


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc",
        "/etc",
        "ssh://git@example.com/a.git",
        "git@example.com:a/b.git",
        "ext::sh -c touch% /tmp/x",
        "git://example.com/a.git",
        "--upload-pack=x",
        "https://user:word@example.com/a.git",
        "https://127.1/a.git",
        "https://10.0.0.1/a.git",
        "http://example.com/a.git",
    ],
)
def test_only_public_https_repositories_are_fetched(out: Path, url: str) -> None:
    ended = run("git-readonly-sync", "sync", "--url", url, env={"SKILLEXEC_OUT": str(out)})
    assert ended.error["code"] in {"refused", "usage"}
    assert os.listdir(out) == []


@pytest.fixture
def site() -> Iterator[Site]:
    with serving() as served:
        yield served


def test_a_redirect_is_not_followed(repository: Remote, site: Site, out: Path) -> None:
    repository.asked.clear()
    site.replies["/r.git/info/refs"] = Reply(status=302, headers={"Location": f"{repository.url}/info/refs"})
    assert _sync(out, f"{site.url}/r.git").error["code"] == "upstream"
    assert repository.asked == []


def test_a_repository_that_wants_a_password_is_not_asked_for_one(site: Site, out: Path) -> None:
    site.replies["/r.git/info/refs"] = Reply(status=401, headers={"WWW-Authenticate": 'Basic realm="x"'})
    ended = _sync(out, f"{site.url}/r.git")
    assert (ended.status, ended.error["code"]) == (6, "unauthorized")
