"""Whether an image is fit to run skills in: not what its labels claim, but what is found inside."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from skillexec.images import engine
from skillexec.images.building import BASE_LABEL, CONTEXT_LABEL, labels_for
from skillexec.images.context import LAUNCHER, Context, gather
from skillexec.images.engine import labels_of
from skillexec.images.facts import created_at
from skillexec.images.probe import ask
from skillexec.sandbox.spec import USER

if TYPE_CHECKING:
    import docker

REBUILD = "run `skillexec image build`"
_OLD_DAYS = 30


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `fix` says what to do where it is not as it should be."""

    name: str
    ok: bool
    detail: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """All findings about one image."""

    tag: str
    digest: str
    findings: tuple[Finding, ...]

    @property
    def fit(self) -> bool:
        return all(finding.ok for finding in self.findings)


def _some(paths: list[str]) -> str:
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return ", ".join(paths[:3]) + more


def _labels(image: dict[str, Any], context: Context) -> Finding:
    has = labels_of(image)
    wanted = labels_for(context, has.get(BASE_LABEL, ""))
    wrong = [name for name, value in wanted.items() if has.get(name) != value]
    if not wrong:
        return Finding("labels", True, f"made of what this version makes it of ({has[CONTEXT_LABEL][:19]})")
    return Finding(
        "labels", False, f"made by another version, or by hand: {', '.join(wrong)} differ", REBUILD
    )


def _launcher(api: docker.APIClient, image: str, context: Context) -> Finding:
    inside = ask(api, image, "launcher")["files"]
    wanted = {file.name.removeprefix(LAUNCHER): file.digest for file in context.launcher}
    wrong = [name for name, digest in wanted.items() if inside.get(name) != digest]
    if wrong:
        return Finding("launcher", False, f"missing or different: {', '.join(wrong)}", REBUILD)
    return Finding("launcher", True, f"protocol {context.protocol}, the same bytes as this version's")


def _user(api: docker.APIClient, image: dict[str, Any]) -> Finding:
    inside = ask(api, image["Id"], "user")
    configured = image["Config"].get("User", "")
    if configured != USER:
        return Finding("user", False, f"the image starts as {configured or 'root'}, not as {USER}", REBUILD)
    if inside["missing"]:
        return Finding("user", False, f"missing folders: {', '.join(inside['missing'])}", REBUILD)
    return Finding("user", True, f"{inside['name'] or 'nameless'} ({USER}), with no other group")


def _files(api: docker.APIClient, image: str) -> Iterator[Finding]:
    # Root without any right but to read: a folder that is closed to the user may hold something, too.
    inside = ask(api, image, "files", user="0:0", capabilities=["DAC_READ_SEARCH"])
    for name, what in (
        ("setuid", "setuid or setgid"),
        ("capabilities", "with file capabilities"),
        ("writable", "that anyone may write"),
    ):
        paths = inside[name]
        yield Finding(
            name,
            not paths,
            f"{what}: {_some(paths)}" if paths else f"no file {what}",
            REBUILD if paths else "",
        )


def _tools(api: docker.APIClient, image: str, context: Context) -> Iterator[Finding]:
    answers = ask(api, image, "tools", context.tools)["tools"]
    for name, answer in answers.items():
        said = "answers --help" if answer["ok"] else f"does not answer --help: {answer['said'][:100]}"
        yield Finding(name, answer["ok"], said, "" if answer["ok"] else REBUILD)


def _age(image: dict[str, Any]) -> Finding:
    days = (datetime.now(UTC) - created_at(image)).days
    old = days > _OLD_DAYS
    update = "`skillexec image build --no-cache` takes in Debian's security updates"
    return Finding("age", True, f"{days} days", update if old else "")


def _volumes(image: dict[str, Any]) -> Finding:
    volumes = sorted(image["Config"].get("Volumes") or {})
    detail = f"declares {_some(volumes)}" if volumes else "declares none"
    return Finding("volumes", not volumes, detail, "build on an image without VOLUME" if volumes else "")


def check(tag: str) -> Verdict:
    """Look at everything that a run relies on. The image's own programs run in locked-down containers only."""
    context = gather()
    with engine.engine() as api:
        image = engine.require(api, tag)
        findings = (
            _labels(image, context),
            _launcher(api, image["Id"], context),
            _user(api, image),
            _volumes(image),
            *_files(api, image["Id"]),
            *_tools(api, image["Id"], context),
            _age(image),
        )
    return Verdict(tag=tag, digest=image["Id"], findings=findings)
