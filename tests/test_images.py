"""The shared image, built, looked at and checked on the real engine."""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import hashlib
import http.server
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import pytest

from skillexec import images
from skillexec.config import Sandbox
from skillexec.errors import EngineUnavailable, ImageUnavailable, Usage
from skillexec.images import base, building, context, engine, probe
from skillexec.images.progress import Journal, Step
from skillexec.sandbox import frames
from skillexec.shipped import shipped

CURRENT = Sandbox().image
# Where a registry answers nobody needs mmdebstrap, and a build there does not install it.
needs_mmdebstrap = pytest.mark.skipif(
    not shutil.which("mmdebstrap") and (os.geteuid() != 0 or not shutil.which("apt-get")),
    reason="mmdebstrap is not installed, and we may not install it",
)


@pytest.fixture(scope="module", autouse=True)
def _current(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What `make image` does: nothing, where it was run before the tests."""
    log = tmp_path_factory.mktemp("image") / "log"
    images.build(tag=CURRENT, if_needed=True, log=log, progress=lambda _step: None)


@pytest.fixture
def api() -> Iterator[docker.APIClient]:
    with engine.engine() as client:
        yield client


@pytest.fixture
def tag(api: docker.APIClient) -> Iterator[str]:
    """A tag of our own, which is gone afterwards."""
    name = f"skillexec-test/{uuid.uuid4().hex[:12]}:x"
    yield name
    with contextlib.suppress(docker.errors.APIError):
        api.remove_image(name, force=True)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    path = tmp_path / "build.log"
    with path.open("w") as file:
        yield Journal(path, file, lambda _step: None)


def _derive(api: docker.APIClient, tag: str, *lines: str) -> None:
    """An image made from the current one."""
    text = "\n".join([f"FROM {CURRENT}", *lines])
    events = list(api.build(fileobj=io.BytesIO(text.encode()), tag=tag, rm=True, forcerm=True, decode=True))
    assert not [event["error"] for event in events if "error" in event]


def _import(api: docker.APIClient, tag: str, files: dict[str, bytes], *changes: str) -> None:
    """An image that holds just these files."""
    repository, _, version = tag.partition(":")
    api.import_image_from_data(_tar(files), repository=repository, tag=version, changes=list(changes))


def _tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def _cli(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "skillexec", "image", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})


# --- what goes in


def test_the_digest_covers_names_modes_and_bytes() -> None:
    file = context.File("a", b"1")
    digests = {
        context.Context(files, protocol=1).digest
        for files in (
            (file,),
            (context.File("a", b"2"),),
            (context.File("b", b"1"),),
            (context.File("tools/a", b"1"),),
            (file, context.File("b", b"")),
            (context.File("a", b""), context.File("b", b"1")),
        )
    }
    assert len(digests) == 6


def test_the_context_holds_recipe_tools_and_launcher_and_no_leftovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = images.gather()
    copy = tmp_path / "images"
    shutil.copytree(shipped("images"), copy)
    (copy / "cli-tools" / "tools" / "__pycache__").mkdir(exist_ok=True)
    (copy / "cli-tools" / "tools" / "__pycache__" / "x.pyc").write_bytes(b"x")
    for path in copy.rglob("*"):
        path.chmod(0o755)  # a wheel does not keep modes
    monkeypatch.setattr(context, "shipped", lambda _name: copy)
    assert images.gather().digest == before.digest
    assert {"Dockerfile", "packages.txt", "launcher/launcher.py", "launcher/frames.py"} <= {
        file.name for file in before.files
    }
    assert set(before.tools) == {"brave-search", "file-reader", "git-readonly-sync", "web-fetch"}


def test_the_same_files_make_the_same_tar_with_tools_that_can_be_executed() -> None:
    first, second = images.gather().tar(), images.gather().tar()
    assert first == second
    with tarfile.open(fileobj=io.BytesIO(first)) as archive:
        assert archive.getmember("tools/file-reader").mode == 0o755
        assert archive.getmember("launcher/launcher.py").mode == 0o644
        assert {entry.mtime for entry in archive} == {0}


def test_the_readme_names_exactly_the_packages_that_are_installed() -> None:
    folder = shipped("images")
    listed = re.sub(r"#.*", "", (folder / "cli-tools" / "packages.txt").read_text()).split()
    described = re.findall(r"^\| ([a-z0-9-]+) \| [\d.]+ \|", (folder / "README.md").read_text(), re.MULTILINE)
    assert described == listed


def test_an_installation_without_the_launcher_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "LAUNCHER_FILES", ("not-there.py",))
    with pytest.raises(ImageUnavailable, match=r"not-there\.py"):
        images.gather()


# --- the base


@pytest.mark.parametrize(
    "choice", ["debian:bookworm-slim", "debian", "debian@sha256:abc", "", "../x@sha256:" + "0" * 64]
)
def test_a_base_without_a_digest_is_refused_before_anything_is_asked(choice: str, tmp_path: Path) -> None:
    with pytest.raises(Usage, match="no digest"):
        images.build(tag="a:b", base=choice, log=tmp_path / "log", progress=lambda _step: None)


@needs_mmdebstrap
def test_two_builds_of_the_base_give_the_same_root_filesystem(
    api: docker.APIClient, journal: Journal, tmp_path: Path
) -> None:
    """The first is the one that the image stands on; where Debian has updated since, both are made here."""
    made = engine.inspect(api, base.BOOTSTRAPPED)
    built = base.bootstrap(tmp_path, journal)
    if made is None or made["RootFS"]["Layers"] != [built.digest]:
        again = tmp_path / "again"
        again.mkdir()
        assert base.bootstrap(again, journal).digest == built.digest


class _Registry(http.server.BaseHTTPRequestHandler):
    """As much of a registry as a pull by digest needs."""

    objects: dict[str, tuple[str, bytes]]

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        name = self.path.rpartition("/")[2]
        kind, data = ("application/json", b"{}") if self.path == "/v2/" else self.objects.get(name, ("", b""))
        self.send_response(200 if kind else 404)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Docker-Content-Digest", name)
        self.end_headers()
        if with_body:
            self.wfile.write(data)

    def log_message(self, *_arguments: object) -> None:
        pass


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _published(layer: bytes) -> tuple[str, dict[str, tuple[str, bytes]]]:
    """An image as a registry holds it: the digest of its manifest, and its parts by digest."""
    packed = gzip.compress(layer, mtime=0)
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        }
    ).encode()
    kinds = (
        "application/vnd.docker.distribution.manifest.v2+json",
        "application/vnd.docker.container.image.v1+json",
    )
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": kinds[0],
            "config": {"mediaType": kinds[1], "size": len(config), "digest": _digest(config)},
            "layers": [
                {
                    "mediaType": "application/vnd.docker.image.rootfs.diff.tar.gzip",
                    "size": len(packed),
                    "digest": _digest(packed),
                }
            ],
        }
    ).encode()
    parts = {_digest(manifest): (kinds[0], manifest), _digest(config): (kinds[1], config)}
    return _digest(manifest), {**parts, _digest(packed): ("application/octet-stream", packed)}


@pytest.fixture
def published(api: docker.APIClient) -> Iterator[str]:
    """The reference of an image that a registry on this machine offers."""
    digest, objects = _published(_tar({"hello": uuid.uuid4().bytes}))
    handler = type("Registry", (_Registry,), {"objects": objects})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    reference = f"127.0.0.1:{server.server_port}/some/debian@{digest}"
    yield reference
    server.shutdown()
    thread.join()
    server.server_close()
    with contextlib.suppress(docker.errors.APIError):
        api.remove_image(reference, force=True)


def test_a_base_is_pulled_by_its_digest_and_then_found_here(published: str, journal: Journal) -> None:
    first = base.find_base(published, journal)
    assert first.origin == published
    assert "pulling" in journal.path.read_text()
    written = journal.path.stat().st_size
    assert base.find_base(published, journal) == first
    assert journal.path.stat().st_size == written, "the second time nothing is pulled"


def test_a_digest_that_the_registry_does_not_have_is_an_error(published: str, journal: Journal) -> None:
    unknown = published[:-64] + "0" * 64
    with pytest.raises(ImageUnavailable, match="can't be pulled"):
        base.find_base(unknown, journal)


@needs_mmdebstrap
def test_a_registry_that_stays_silent_is_given_up_and_mmdebstrap_used(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        reference = f"127.0.0.1:{silent.getsockname()[1]}/debian@sha256:{'0' * 64}"
        monkeypatch.setattr(base, "REGISTRY", reference)
        monkeypatch.setattr(base, "_PULL_SECONDS", 1)
        found = base.find_base(base.AUTO, journal)
    assert found.origin.startswith("mmdebstrap bookworm sha256:")
    assert "using mmdebstrap instead" in journal.notes[0]


def test_without_mmdebstrap_and_without_root_the_error_says_what_to_install(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ImageUnavailable) as caught:
        base.bootstrap(tmp_path, journal)
    assert "apt-get install mmdebstrap" in caught.value.hint


# --- building


def test_a_build_tells_its_steps_and_carries_its_labels(
    api: docker.APIClient, tag: str, tmp_path: Path
) -> None:
    steps: list[Step] = []
    built = images.build(tag=tag, from_image=CURRENT, log=tmp_path / "log", progress=steps.append)
    image = engine.require(api, tag)
    numbered = [step.number for step in steps if step.number]
    assert numbered == list(range(1, len(numbered) + 1))
    assert steps[-1].total == numbered[-1]
    assert built.built and built.image == image["Id"] and built.log and "Step 1/" in built.log.read_text()
    labels = engine.labels_of(image)
    assert labels == {**labels, **building.labels_for(images.gather(), built.base)}
    assert built.base.startswith(f"{CURRENT} sha256:")
    assert images.check(tag).fit


def test_a_build_that_is_not_needed_does_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    built = images.build(tag=CURRENT, if_needed=True, log=log, progress=lambda step: pytest.fail(step.text))
    assert not built.built
    assert not log.exists()


def test_a_build_is_needed_when_what_goes_in_has_changed(
    tag: str, api: docker.APIClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = context.File("Dockerfile", b'ARG BASE\nFROM ${BASE}\nRUN : "other"; true')
    other = context.Context((recipe,), protocol=1)
    repository, _, version = tag.partition(":")
    api.tag(CURRENT, repository, version)
    monkeypatch.setattr(building, "gather", lambda: other)
    built = images.build(
        tag=tag, if_needed=True, from_image=CURRENT, log=tmp_path / "log", progress=lambda _step: None
    )
    assert built.built
    assert built.reason == "what goes into it has changed"


def test_a_failed_build_says_why_and_names_the_log(
    tag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = b"ARG BASE\nFROM ${BASE}\nRUN echo before; echo 'E: Unable to locate package x' >&2; exit 3"
    monkeypatch.setattr(
        building, "gather", lambda: context.Context((context.File("Dockerfile", recipe),), protocol=1)
    )
    log = tmp_path / "log"
    with pytest.raises(ImageUnavailable, match="Unable to locate package x") as caught:
        images.build(tag=tag, from_image=CURRENT, log=log, progress=lambda _step: None)
    assert str(log) in caught.value.hint
    assert "before" in log.read_text()


INTERRUPTED = """
import sys
from pathlib import Path
from skillexec import images
from skillexec.images import building, context

marker, log, current = sys.argv[1:]
recipe = f"ARG BASE\\nFROM ${{BASE}}\\nRUN : {marker}; echo running; sleep 300".encode()
building.gather = lambda: context.Context((context.File("Dockerfile", recipe),), protocol=1)
images.build(tag="skillexec-test/never:x", from_image=current, log=Path(log), progress=lambda _step: None)
"""


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_an_interrupted_build_leaves_nothing_running(api: docker.APIClient, tmp_path: Path) -> None:
    marker, log = uuid.uuid4().hex, tmp_path / "log"
    command = [sys.executable, "-c", INTERRUPTED, marker, str(log), CURRENT]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as build:
        _until(lambda: log.exists() and "\nrunning" in log.read_text())
        assert marker in str(api.containers())
        build.send_signal(signal.SIGINT)
        assert build.wait(60) != 0
    _until(lambda: marker not in str(api.containers(all=True)))


@pytest.mark.parametrize("wrong", ["", "UPPER:x", "a b:c", "-a:b", "name", "name:tag:tag"])
def test_a_tag_that_the_engine_would_not_take_is_refused(wrong: str, tmp_path: Path) -> None:
    with pytest.raises(Usage, match="no image tag"):
        images.build(tag=wrong, log=tmp_path / "log", progress=lambda _step: None)


def test_an_image_that_is_not_like_debian_can_not_be_built_on(
    api: docker.APIClient, tag: str, tmp_path: Path
) -> None:
    _import(api, tag, {"etc/os-release": b"ID=alpine\n"})
    with pytest.raises(ImageUnavailable, match="not like Debian"):
        images.build(
            tag="skillexec-test/never:x", from_image=tag, log=tmp_path / "log", progress=lambda _step: None
        )


def test_an_image_with_volumes_can_not_be_built_on(api: docker.APIClient, tag: str, tmp_path: Path) -> None:
    _import(api, tag, {"etc/os-release": b"ID=debian\n"}, "VOLUME /data")
    with pytest.raises(ImageUnavailable, match=r"declares volumes \(/data\)"):
        images.build(
            tag="skillexec-test/never:x", from_image=tag, log=tmp_path / "log", progress=lambda _step: None
        )


def test_an_image_that_is_not_here_is_not_pulled_to_build_on(tmp_path: Path) -> None:
    with pytest.raises(ImageUnavailable, match="no image debian:unheard-of here"):
        images.build(
            tag="a:b", from_image="debian:unheard-of", log=tmp_path / "log", progress=lambda _step: None
        )


# --- looking


def test_show_says_what_the_image_is_and_what_is_in_it() -> None:
    facts = images.show(CURRENT)
    versions = {program.name: program.version for program in facts.programs}
    installed = {package.name: package for package in facts.packages}
    assert facts.digest.startswith("sha256:") and facts.current and facts.protocol == str(frames.PROTOCOL)
    assert 0 <= facts.age_days < 3650 and facts.size > 100_000_000
    assert installed["pandoc"].size > 100_000_000
    assert (
        versions["python3"].startswith("3.")
        and versions["jq"][0].isdigit()
        and int(versions["node"][:2]) >= 18
    )
    assert all(versions.values())


def test_show_and_check_of_a_missing_image_say_how_to_make_it() -> None:
    for look in (images.show, images.check):
        with pytest.raises(ImageUnavailable) as caught:
            look("skillexec-test/missing:x")
        assert "skillexec image build" in caught.value.hint


# --- checking


def test_the_built_image_is_fit() -> None:
    verdict = images.check(CURRENT)
    assert verdict.fit, [finding for finding in verdict.findings if not finding.ok]


SPOILED = (
    "USER root",
    "RUN chmod u+s /usr/bin/env && mkdir -m 0700 /var/closed && cp /bin/true /var/closed/t && chmod g+s /var/closed/t",
    "RUN echo '#' >>/usr/lib/skillexec/launcher.py && rm /usr/local/bin/web-fetch",
    "RUN touch /etc/open && chmod 0666 /etc/open",
    """RUN python3 -c "import os; os.setxattr('/usr/bin/jq', 'security.capability', """
    """bytes.fromhex('0100000200040000000000000000000000000000'))" """,
    "LABEL skillexec.context=sha256:other",
    "VOLUME /data",
)


def test_each_fault_of_an_image_is_found_and_says_what_to_do(api: docker.APIClient, tag: str) -> None:
    _derive(api, tag, *SPOILED)
    verdict = images.check(tag)
    wrong = {finding.name: finding for finding in verdict.findings if not finding.ok}
    assert set(wrong) == {
        "labels",
        "launcher",
        "user",
        "volumes",
        "setuid",
        "capabilities",
        "writable",
        "web-fetch",
    }
    assert not verdict.fit
    assert all(finding.fix for finding in wrong.values())
    assert "/usr/bin/env" in wrong["setuid"].detail
    assert "/var/closed/t" in wrong["setuid"].detail, "also where only root can look"
    assert "/usr/bin/jq" in wrong["capabilities"].detail
    assert "launcher.py" in wrong["launcher"].detail


def test_an_image_in_which_nothing_runs_is_an_error_that_says_so(api: docker.APIClient, tag: str) -> None:
    _import(api, tag, {"hello": b"x"})
    with pytest.raises(ImageUnavailable, match="nothing useful runs inside"):
        images.check(tag)


# --- the containers that look inside


PRIVILEGES = """
import json, os, socket
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
def fails(call):
    try: call()
    except OSError: return True
    return False
print(json.dumps({
    "uid": os.getuid(), "capabilities": int(status["CapEff"], 16), "bounding": int(status["CapBnd"], 16),
    "no_new_privs": status["NoNewPrivs"], "seccomp": status["Seccomp"],
    "root": fails(lambda: open("/x", "w")), "interfaces": [name for _, name in socket.if_nameindex()]
        if not fails(socket.if_nameindex) else os.listdir("/sys/class/net"),
}))
"""


def test_a_probe_has_no_network_no_capabilities_and_no_writable_root(api: docker.APIClient) -> None:
    done = probe.run_inside(api, CURRENT, ["/usr/bin/python3", "-c", PRIVILEGES], seconds=20)
    assert json.loads(done.stdout) == {
        "uid": 65532,
        "capabilities": 0,
        "bounding": 0,
        "no_new_privs": "1",
        "seccomp": "2",
        "root": True,
        "interfaces": ["lo"],
    }


def test_a_probe_that_hangs_or_floods_is_ended_and_leaves_no_container(api: docker.APIClient) -> None:
    hung = probe.run_inside(api, CURRENT, ["/bin/sleep", "600"], seconds=1)
    flood = probe.run_inside(api, CURRENT, ["/usr/bin/yes"], seconds=20)
    assert hung.timed_out and hung.exit_code == 137
    assert not flood.timed_out and len(flood.stdout) < 8 << 20
    assert not api.containers(all=True, filters={"label": "skillexec.role=probe", "ancestor": CURRENT})


# --- without an engine, and the command line


@pytest.mark.parametrize("look", [images.show, images.check])
def test_without_an_engine_the_error_says_how_to_start_one(
    look: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    assert callable(look)
    with pytest.raises(EngineUnavailable) as caught:
        look(CURRENT)
    assert "start Docker" in caught.value.hint


def test_the_command_line_exits_30_without_an_engine_and_says_so_in_json() -> None:
    done = _cli("build", "--json", DOCKER_HOST="unix:///nonexistent/docker.sock")
    assert done.returncode == EngineUnavailable.exit_status
    assert json.loads(done.stdout)["error"]["code"] == "engine_unavailable"


def test_the_command_line_prints_one_json_object_for_each_verb() -> None:
    built, shown, checked = (
        json.loads(_cli(*verb, "--json").stdout) for verb in (("build", "--if-needed"), ("show",), ("check",))
    )
    assert built["image"]["built"] is False
    assert shown["image"]["digest"] == built["image"]["image"] == checked["image"]["digest"]
    assert checked["image"]["fit"] is True
    assert {built["version"], shown["version"], checked["version"]} == {1}


def test_the_command_line_says_of_an_unfit_image_what_to_do_and_exits_30(
    api: docker.APIClient, tag: str
) -> None:
    _derive(api, tag, "USER root")
    done = _cli("check", "--tag", tag)
    assert done.returncode == ImageUnavailable.exit_status
    assert "not ok  user" in done.stdout and "skillexec image build" in done.stdout


def test_two_ways_to_say_what_to_build_on_are_refused() -> None:
    done = _cli("build", "--from", "a", "--base", "mmdebstrap")
    assert done.returncode == Usage.exit_status


def test_a_step_of_the_dockerfile_is_told_in_words() -> None:
    from skillexec.cli.image import _title

    recipe = (shipped("images") / "cli-tools" / "Dockerfile").read_text()
    runs = [line for line in recipe.splitlines() if line.startswith("RUN")]
    assert runs and all(_title(Step(line, 1, 2)) and ";" not in _title(Step(line, 1, 2)) for line in runs)
    assert _title(Step("ENV A=b", 1, 2)) == ""
    assert dataclasses.is_dataclass(Step)
