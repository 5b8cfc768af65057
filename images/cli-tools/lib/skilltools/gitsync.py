"""git-readonly-sync: the files of a repository at one commit, fetched and never pushed.

A repository is hostile input. Git gets an environment of its own, no configuration but what stands here, and no
way to run anything: no hooks, filters, helpers, submodules, links, or transport other than https.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from skilltools import network
from skilltools.program import (
    NotFound,
    Program,
    Refused,
    ToolError,
    Unauthorized,
    Upstream,
    Usage,
    deadline,
    folder,
    integer,
)

SECONDS = 170
LIST_MAX = 1000
_REF = re.compile(r"(?!.*(\.\.|@\{|//|\.lock(/|$)))[A-Za-z0-9_][A-Za-z0-9._/+-]{0,199}(?<![./])")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_SETTINGS: Mapping[str, str] = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",  # else a setting that names a program
    "core.symlinks": "false",  # links become small files that hold their target
    "core.attributesFile": "/dev/null",
    "credential.helper": "",  # empties the list of helpers
    "protocol.allow": "never",
    "protocol.https.allow": "always",
    "http.followRedirects": "false",  # the address was checked for this host, not for another
    "transfer.fsckObjects": "true",
    "submodule.recurse": "false",
    "fetch.recurseSubmodules": "false",
    "filter.lfs.smudge": "",
    "filter.lfs.process": "",
    "filter.lfs.required": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "advice.detachedHead": "false",
}
_FAILURES: tuple[tuple[str, type[ToolError]], ...] = (
    ("couldn't find remote ref", NotFound),
    ("not our ref", NotFound),
    ("unadvertised object", NotFound),
    ("did not match any file", NotFound),
    ("repository not found", NotFound),
    ("returned error: 404", NotFound),
    ("' not found", NotFound),
    ("could not read username", Unauthorized),
    ("authentication failed", Unauthorized),
    ("returned error: 401", Unauthorized),
    ("returned error: 403", Unauthorized),
)


@dataclass(frozen=True)
class Repository:
    """A bare repository in a scratch folder, and how git is called on it."""

    scratch: str
    settings: Mapping[str, str]

    def _environment(self) -> dict[str, str]:
        # Nothing is inherited: no proxy, askpass, trace file or GIT_ variable of the caller's.
        return {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": self.scratch,
            "LC_ALL": "C",
            "GIT_DIR": os.path.join(self.scratch, "repository"),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "/bin/false",
            "GIT_LFS_SKIP_SMUDGE": "1",
        }

    def git(self, *arguments: str, work_tree: str | None = None) -> bytes:
        """Runs git and returns what it printed; its failure as the error that it stands for."""
        given = [part for key, value in self.settings.items() for part in ("-c", f"{key}={value}")]
        place = ["--work-tree", work_tree] if work_tree else []
        done = subprocess.run(
            ["git", *given, *place, *arguments],
            env=self._environment(),
            cwd=work_tree or self.scratch,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        if done.returncode != 0:
            raise _failure(arguments[0], done.stderr.decode("utf-8", "replace"))
        return done.stdout


def _failure(command: str, said: str) -> ToolError:
    lowered = said.lower()
    kind = next((kind for text, kind in _FAILURES if text in lowered), Upstream)
    return kind(f"git {command} failed: {' '.join(said.split())[-500:]}")


def _settings(target: network.Target) -> dict[str, str]:
    """Git's settings, with the addresses that were checked: git does not resolve the name again."""
    found = network.addresses(target.host, target.port)
    pinned = ",".join(f"[{address}]" if ":" in address else address for address in found)
    settings = {**_SETTINGS, "http.curloptResolve": f"{target.host}:{target.port}:{pinned}"}
    if target.scheme == "http":
        settings["protocol.http.allow"] = "always"  # a loopback address of a test: see _target
    return settings


def _target(url: str) -> network.Target:
    target = network.target(url)
    if target.scheme != "https" and not (network.loopback_allowed() and target.host == "127.0.0.1"):
        raise Refused("only https:// repositories are fetched")
    return target


def _ref(text: str) -> str:
    if text != "HEAD" and _REF.fullmatch(text) is None:
        raise Usage(f"not a branch, tag or commit: {text!r}")
    return text


def _subfolder(text: str | None) -> str | None:
    parts = [part for part in (text or "").split("/") if part not in {"", "."}]
    if text and (text.startswith("/") or ".." in parts or "\0" in text):
        raise Refused(f"a path stays inside the repository: {text}")
    return "/".join(parts) or None


def _name(target: network.Target) -> str:
    last = target.path.partition("?")[0].rstrip("/").rpartition("/")[2]
    name = last[:-4] if last.endswith(".git") else last
    return name if _NAME.fullmatch(name) else "repository"


@dataclass(frozen=True)
class Tree:
    """What a commit holds, from git's own listing."""

    files: tuple[tuple[str, int], ...]
    links: int
    submodules: tuple[str, ...]


def _tree(repository: Repository, commit: str, path: str | None) -> Tree:
    only = [path] if path else []
    listed = repository.git(
        "--literal-pathspecs", "ls-tree", "-r", "-l", "-z", "--full-tree", commit, "--", *only
    )
    files, links, submodules = [], 0, []
    for record in listed.decode("utf-8", "surrogateescape").split("\0"):
        described, _, name = record.partition("\t")
        if not name:
            continue
        mode, kind, _object, size = described.split()
        links += mode == "120000"
        if kind == "commit":
            submodules.append(name)
        else:
            files.append((name, int(size)))
    return Tree(tuple(files), links, tuple(submodules))


def _write_files(repository: Repository, commit: str, path: str | None, destination: str) -> str:
    os.makedirs(destination)
    repository.git("--literal-pathspecs", "checkout", "-q", commit, "--", path or ".", work_tree=destination)
    return os.path.basename(destination)


def _write_archive(repository: Repository, commit: str, path: str | None, destination: str) -> str:
    archive = f"{destination}-{commit[:12]}.tar.gz"
    prefix = f"--prefix={os.path.basename(destination)}/"
    only = [path] if path else []
    repository.git(
        "--literal-pathspecs", "archive", "--format=tar.gz", f"--output={archive}", prefix, commit, *only
    )
    return os.path.basename(archive)


def sync(options: argparse.Namespace) -> dict[str, object]:
    """Fetches one commit and writes its files, or an archive of them, to $SKILLEXEC_OUT."""
    target, ref, path = _target(options.url), _ref(options.ref), _subfolder(options.path)
    destination = os.path.join(folder("SKILLEXEC_OUT"), _name(target))
    with deadline(SECONDS), tempfile.TemporaryDirectory(prefix="git-") as scratch:
        repository = Repository(scratch, _settings(target))
        repository.git("init", "-q", "--bare", "--template=")
        repository.git("fetch", "-q", f"--depth={options.depth}", "--no-tags", "--", target.url, ref)
        commit = repository.git("rev-parse", "--verify", "FETCH_HEAD^{commit}").decode().strip()
        tree = _tree(repository, commit, path)
        if not tree.files:
            raise NotFound(f"no files at {path or 'the root'} of {commit[:12]}", path=path)
        write = _write_archive if options.format == "archive" else _write_files
        written = write(repository, commit, path, destination)
    return {
        "url": target.url,
        "ref": ref,
        "commit": commit,
        "path": path,
        "format": options.format,
        "output": written,
        "files": len(tree.files),
        "bytes": sum(size for _, size in tree.files),
        "links": tree.links,
        "submodules": list(tree.submodules[:LIST_MAX]),
        "listing": [{"path": name, "size": size} for name, size in tree.files[:LIST_MAX]],
        "listing_truncated": len(tree.files) > LIST_MAX,
    }


def _program() -> Program:
    program = Program(
        "git-readonly-sync",
        "Fetches the files of a public git repository at one commit into $SKILLEXEC_OUT, and never pushes.",
        epilog="https only, public addresses only. Hooks, filters, submodules, links and credentials are not used.",
    )
    add = program.command("sync", "fetch one commit and write its files", sync).add_argument
    add("--url", required=True, metavar="URL", help="https://host/owner/repository(.git)")
    add("--ref", default="HEAD", metavar="REF", help="branch, tag or full commit id (default HEAD)")
    add(
        "--depth",
        type=integer(1, 1000),
        default=1,
        metavar="N",
        help="commits of history to fetch (default 1)",
    )
    add("--path", metavar="SUBDIR", help="only this folder or file (default all)")
    add(
        "--format",
        choices=("files", "archive"),
        default="files",
        help="files: a folder; archive: one .tar.gz, for many files (default files)",
    )
    return program


def main(arguments: Sequence[str] | None = None) -> int:
    return _program().main(arguments)
