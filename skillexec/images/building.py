"""Building: base, then packages, user, tools and launcher on top, with labels that say what it was made of."""

from __future__ import annotations

import io
import re
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skillexec.errors import ImageUnavailable, Usage
from skillexec.images import engine
from skillexec.images.base import AUTO, Base, check_choice, find_base, local_base, proxies
from skillexec.images.context import Context, gather
from skillexec.images.engine import labels_of
from skillexec.images.progress import Journal, Progress
from skillexec.sandbox import spec

if TYPE_CHECKING:
    import docker

CONTEXT_LABEL = "skillexec.context"
BASE_LABEL = "skillexec.base"

_TAG = re.compile(r"[a-z0-9]+(?:[._/-][a-z0-9]+)*(?::\d+/[a-z0-9._/-]+)?:[\w][\w.-]{0,127}")
_STEP = re.compile(r"Step (\d+)/(\d+) : (.*)", re.DOTALL)
_BUSY = re.compile(r"((?:Unpacking|Setting up) [^ :]+)")  # what apt says while it installs
_SILENCE_SECONDS = 600  # a package's installation may print nothing for long, but not for this long


@dataclass(frozen=True, slots=True)
class Built:
    """What a build did, for the record."""

    image: str  # the image's digest
    tag: str
    base: str  # where the base comes from
    context: str  # the digest of what went in
    built: bool  # False: it was up to date already
    reason: str  # why it was built, or why not
    seconds: float = 0.0
    size: int = 0
    log: Path | None = None
    notes: tuple[str, ...] = ()


def labels_for(context: Context, base: str) -> dict[str, str]:
    """The labels of an image that is made of this."""
    return {
        spec.LABEL_PROTOCOL: str(context.protocol),
        spec.LABEL_LAUNCHER: spec.launcher_digest(),
        CONTEXT_LABEL: context.digest,
        BASE_LABEL: base,
    }


def _stale(image: dict[str, Any] | None, context: Context, base: Base | None) -> str:
    if image is None:
        return "there was none"
    if labels_of(image).get(CONTEXT_LABEL) != context.digest:
        return "what goes into it has changed"
    if base is not None and labels_of(image).get(BASE_LABEL) != base.origin:
        return "its base has changed"
    return ""


def _up_to_date(tag: str, image: dict[str, Any]) -> Built:
    labels = labels_of(image)
    return Built(
        image=image["Id"],
        tag=tag,
        base=labels.get(BASE_LABEL, ""),
        context=labels[CONTEXT_LABEL],
        built=False,
        reason="it is up to date",
        size=image["Size"],
    )


def _complaint(error: str, last: Iterable[str]) -> str:
    """The engine says which command failed; what that command complained of is more to the point."""
    complaints = [line for line in last if line.startswith(("E: ", "ERROR", "error:", "fatal:"))]
    first_line = error.strip().splitlines()[0][:200]
    return f"{complaints[-1]} ({first_line})" if complaints else first_line


def _follow(events: Iterable[dict[str, Any]], journal: Journal) -> str:
    """Tell the steps, log all of it, and return the id of the image that came out."""
    image, last = "", deque[str](maxlen=20)
    for event in events:
        text = event.get("stream", "")
        journal.write(text)
        last.extend(text.splitlines())
        if match := _STEP.match(text):
            journal.step(" ".join(match[3].split()), number=int(match[1]), total=int(match[2]))
        elif busy := _BUSY.match(text):
            journal.detail(busy[1])
        if "error" in event:
            journal.write(event["error"] + "\n")
            raise ImageUnavailable(
                f"the image could not be built: {_complaint(event['error'], last)}",
                hint=f"the whole log is in {journal.path}",
            )
        image = event.get("aux", {}).get("ID", image)
    if not image:
        raise ImageUnavailable(
            "the engine ended the build without an image", hint=f"the log is in {journal.path}"
        )
    return image


def _run(
    api: docker.APIClient, context: Context, base: Base, *, tag: str, fresh: bool, journal: Journal
) -> str:
    events = api.build(
        fileobj=io.BytesIO(context.tar()),
        custom_context=True,
        tag=tag,
        buildargs={"BASE": base.image, **proxies()},  # proxies are build arguments that no image keeps
        labels=labels_for(context, base.origin),
        nocache=fresh,
        pull=False,  # the base is here, by its id
        rm=True,
        forcerm=True,  # also the containers of a step that failed
        decode=True,
        timeout=_SILENCE_SECONDS,
    )
    return _follow(events, journal)


def _check_debian_like(api: docker.APIClient, base: Base) -> None:
    """A clear word before a build that would fail on its first line."""
    from skillexec.images.probe import run_inside

    script = "command -v apt-get >/dev/null && . /etc/os-release && echo $ID $ID_LIKE"
    done = run_inside(api, base.image, ["/bin/sh", "-c", script], seconds=20)
    words = done.stdout.decode(errors="replace").split()
    if done.exit_code != 0 or not {"debian", "ubuntu"} & set(words):
        raise ImageUnavailable(
            f"{base.origin.split()[0]} is not like Debian: it lacks apt-get, or says it is something else",
            hint="give an image made from Debian or Ubuntu",
        )


def _build(context: Context, base: Base, *, tag: str, fresh: bool, journal: Journal) -> tuple[str, int]:
    with engine.engine(seconds=_SILENCE_SECONDS) as api:
        image = _run(api, context, base, tag=tag, fresh=fresh, journal=journal)
        return image, engine.require(api, image)["Size"]


def _check_tag(tag: str) -> None:
    if not _TAG.fullmatch(tag):
        raise Usage(f"{tag!r} is no image tag", hint="name:tag, like skillexec/cli-tools:current")


def _from(image: str) -> Base:
    base = local_base(image)
    with engine.engine() as api:
        _check_debian_like(api, base)
    return base


def build(
    *,
    tag: str,
    log: Path,
    progress: Progress,
    base: str = AUTO,
    from_image: str | None = None,
    if_needed: bool = False,
    fresh: bool = False,
) -> Built:
    """Build the image and give it the tag. The whole output goes to `log`; `progress` hears of each step.

    With `if_needed` nothing happens where the tagged image is made of the same files. `fresh` uses nothing that
    was cached, so that Debian's newest packages come in. `from_image` stands the tools on that local image.
    """
    started = time.monotonic()
    _check_tag(tag)
    check_choice(base)
    context = gather()
    chosen = _from(from_image) if from_image else None
    with engine.engine() as api:
        found = engine.inspect(api, tag)
    reason = _stale(found, context, chosen)
    if if_needed and found is not None and not reason:
        return _up_to_date(tag, found)
    with log.open("w") as file:
        journal = Journal(log, file, progress)
        used = chosen or find_base(base, journal, fresh=fresh)
        image, size = _build(context, used, tag=tag, fresh=fresh, journal=journal)
    return Built(
        image=image,
        tag=tag,
        base=used.origin,
        context=context.digest,
        built=True,
        reason=reason or "it was asked for",
        seconds=time.monotonic() - started,
        size=size,
        log=log,
        notes=tuple(journal.notes),
    )
