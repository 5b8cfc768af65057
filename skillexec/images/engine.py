"""The connection to the Docker engine, and what its failures mean here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from skillexec.errors import EngineUnavailable, ImageUnavailable

if TYPE_CHECKING:
    import docker

ANSWER_SECONDS = 30  # for one answer of a healthy engine; a stream's pieces may each take as long


def _explained(error: Exception) -> EngineUnavailable:
    where = os.environ.get("DOCKER_HOST") or "its usual socket"
    text = str(error)
    if "PermissionError" in text or "Permission denied" in text:
        return EngineUnavailable(
            f"the Docker engine at {where} is not open to you",
            hint="add yourself to its group (`sudo usermod -aG docker $USER`, then log in again)",
        )
    refused = "FileNotFoundError" in text or "ConnectionRefusedError" in text
    return EngineUnavailable(
        f"no Docker engine answers at {where}" + ("" if refused else f": {text}"),
        hint="start Docker (in a checkout: `make engine`), or set DOCKER_HOST to where it is",
    )


def _connect(seconds: float) -> docker.APIClient:
    import docker
    from docker.utils import kwargs_from_env

    class Impatient(docker.APIClient):
        """The SDK gives pulls and builds no time-out at all: an engine that hangs would hang us."""

        def send(self, request: Any, **options: Any) -> Any:
            options["timeout"] = options.get("timeout") or seconds
            return super().send(request, **options)

    return Impatient(version="auto", timeout=int(seconds), **kwargs_from_env())


@contextmanager
def engine(*, seconds: float = ANSWER_SECONDS) -> Iterator[docker.APIClient]:
    """A connection that is closed again. What the engine or the way to it lacks becomes EngineUnavailable."""
    import docker.errors
    import requests.exceptions

    api = None
    try:
        api = _connect(seconds)
        yield api
    except docker.errors.APIError as error:
        raise EngineUnavailable(f"the Docker engine refused: {error.explanation or error}") from error
    except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
        raise _explained(error) from error
    finally:
        if api is not None:
            api.close()


def inspect(api: docker.APIClient, image: str) -> dict[str, Any] | None:
    """What the engine knows of a local image; None where there is none. Never pulls."""
    import docker.errors

    try:
        found: dict[str, Any] = api.inspect_image(image)  # type: ignore[no-untyped-call]
    except docker.errors.ImageNotFound:
        return None
    return found


def require(api: docker.APIClient, image: str) -> dict[str, Any]:
    """Like `inspect`, for an image that has to be there."""
    found = inspect(api, image)
    if found is None:
        raise ImageUnavailable(f"there is no image {image}", hint="`skillexec image build` makes it")
    return found


def labels_of(image: dict[str, Any]) -> dict[str, str]:
    """The labels of an inspected image."""
    labels: dict[str, str] = image["Config"].get("Labels") or {}
    return labels
