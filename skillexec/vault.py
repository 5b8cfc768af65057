"""Secret names to values, through 1Password, or a refusal that names what is missing (DESIGN 6).

One client on one background loop, since the SDK never releases a client and has no time-out of its own. Values live
in this process's memory, for a short while, and nowhere else.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from skillexec.errors import SecretsMissing, Usage
from skillexec.model import SECRET_MAX, SECRET_MIN

if TYPE_CHECKING:
    import asyncio

    from onepassword.client import Client

TOKEN_VARIABLE = "OP_SERVICE_ACCOUNT_TOKEN"  # noqa: S105 - the name of a variable, not a token
_INTEGRATION = "skillexec"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the vault says of one reference: a value, or a problem in words."""

    value: str | None = field(default=None, repr=False)
    problem: str = ""


class VaultUnreachable(Exception):
    """The vault as a whole gave no answer. The text names no value; the hint says what to do."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class Backend(Protocol):
    """What can be asked for secrets. The one seam of this module; `skillexec.testing.FakeVault` is another."""

    async def fetch(self, references: Sequence[str]) -> Mapping[str, Answer]:
        """One answer per reference, or VaultUnreachable."""


def validate_reference(reference: str) -> None:
    """Refuse what is not a secret reference. Works offline."""
    from onepassword.client import Secrets

    try:
        Secrets.validate_secret_reference(reference)
    except Exception as error:  # the SDK raises bare exceptions; each is a refusal
        raise Usage(
            f"not a secret reference: {reference!r} ({_words(error)})",
            hint="write op://VAULT/ITEM/FIELD or op://VAULT/ITEM/SECTION/FIELD",
        ) from error


def _words(error: BaseException) -> str:
    return str(getattr(error, "message", "") or getattr(error, "msg", "") or error).strip().rstrip(".")


class OnePassword:
    """1Password, by a service account token or by the desktop app."""

    def __init__(self, *, account: str = "") -> None:
        self._account = account
        self._client: Client | None = None
        self._token = ""

    @cached_property
    def _one_at_a_time(self) -> asyncio.Lock:
        """Runs that begin together make one client, since none is ever released."""
        import asyncio

        return asyncio.Lock()

    async def fetch(self, references: Sequence[str]) -> Mapping[str, Answer]:
        token = os.environ.get(TOKEN_VARIABLE, "")
        try:
            async with self._one_at_a_time:
                client = await self._authenticated(token)
            response = await client.secrets.resolve_all(list(references))
        except Exception as error:  # noqa: BLE001 - the SDK's errors are bare; each of them is a refusal
            raise self._unreachable(error, token) from None  # the cause may quote what was sent
        return {reference: _answer(part) for reference, part in response.individual_responses.items()}

    async def _authenticated(self, token: str) -> Client:
        if self._client is not None and token == self._token:
            return self._client
        from onepassword.client import Client
        from onepassword.defaults import DesktopAuth

        if not token and not self._account:
            raise VaultUnreachable(
                "there is no 1Password token",
                hint=f"set {TOKEN_VARIABLE}, or secrets.account in the config to use the desktop app",
            )
        from skillexec import __version__

        auth = token or DesktopAuth(self._account)
        self._client = await Client.authenticate(
            auth=auth, integration_name=_INTEGRATION, integration_version=__version__
        )
        self._token = token
        return self._client

    def _unreachable(self, error: Exception, token: str) -> VaultUnreachable:
        if isinstance(error, VaultUnreachable):
            return error
        from onepassword.errors import RateLimitExceededException

        if isinstance(error, RateLimitExceededException):
            return VaultUnreachable(
                "1Password's rate limit is used up", hint="wait, or use another service account"
            )
        words = _words(error)
        if token:
            words = words.replace(token, "[token]")
        return VaultUnreachable(
            f"1Password gave no secrets: {words}",
            hint=f"check {TOKEN_VARIABLE} and the network, then try again",
        )


def _answer(part: object) -> Answer:
    content = getattr(part, "content", None)
    if content is not None:
        return Answer(value=content.secret)
    error = getattr(part, "error", None)
    kind = getattr(error, "type", "")
    return Answer(problem=str(getattr(kind, "value", kind) or "no answer for this reference"))


class Values(dict[str, str]):
    """Secret names and their values. Shows the names only, also to what prints the locals of a traceback."""

    def __repr__(self) -> str:
        return f"Values({', '.join(self)})"


class Vault:
    """Resolves names, all or none. Safe to share between threads; close it, or use it with `with`."""

    def __init__(self, backend: Backend, *, deadline: float = 10.0, ttl: float = 30.0) -> None:
        self._backend = backend
        self._deadline = deadline
        self._ttl = ttl
        self._lock = threading.Lock()
        self._cache: dict[str, tuple[float, str]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def __repr__(self) -> str:
        return f"Vault({type(self._backend).__name__})"  # never a value

    def __enter__(self) -> Vault:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Forget every value and end the background loop."""
        with self._lock:
            self._cache.clear()
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)

    def resolve(self, references: Mapping[str, str]) -> Values:
        """The value of every name, or SecretsMissing with the names and the fix."""
        if not references:
            return Values()
        answers = self._answers(sorted(set(references.values())))
        failed = {name: problem for name, ref in references.items() if (problem := _problem(answers[ref]))}
        if failed:
            raise _missing(failed)
        return Values((name, answers[ref].value or "") for name, ref in references.items())

    def problems(self, references: Mapping[str, str]) -> dict[str, str]:
        """For each name what is wrong with it, or "" where its value can be had."""
        answers = self._answers(sorted(set(references.values())))
        return {name: _problem(answers[reference]) for name, reference in references.items()}

    def _answers(self, references: Sequence[str]) -> dict[str, Answer]:
        known = self._fresh(references)
        wanted = [reference for reference in references if reference not in known]
        if not wanted:
            return known
        fetched = self._fetch(wanted)
        answers = {reference: fetched.get(reference, Answer(problem="no answer")) for reference in wanted}
        self._remember(answers)
        return known | answers

    def _fresh(self, references: Sequence[str]) -> dict[str, Answer]:
        now = time.monotonic()
        with self._lock:
            # What has expired is forgotten, so that no error can bring it back.
            self._cache = {ref: entry for ref, entry in self._cache.items() if entry[0] > now}
            return {ref: Answer(value=self._cache[ref][1]) for ref in references if ref in self._cache}

    def _remember(self, answers: Mapping[str, Answer]) -> None:
        expires = time.monotonic() + self._ttl
        with self._lock:
            for reference, answer in answers.items():
                if answer.value:
                    self._cache[reference] = (expires, answer.value)

    def _fetch(self, references: Sequence[str]) -> Mapping[str, Answer]:
        """One call, under our own deadline. A failure as a whole is a problem of each reference."""
        import asyncio  # takes longer than a run without secrets has time for

        future = asyncio.run_coroutine_threadsafe(self._backend.fetch(references), self._running_loop())
        try:
            return future.result(timeout=self._deadline)
        except TimeoutError:
            future.cancel()
            problem = f"the vault did not answer within {self._deadline:g} s (check the network)"
        except VaultUnreachable as error:
            problem = f"{error} ({error.hint})"
        except Exception as error:  # noqa: BLE001 - whatever a backend raises is a refusal; its text may hold anything
            problem = f"the vault failed ({type(error).__name__})"
        return {reference: Answer(problem=problem) for reference in references}

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        import asyncio

        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(
                    target=_run_loop, args=(self._loop,), name="skillexec-vault", daemon=True
                ).start()
            return self._loop


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(_end_tasks())
        loop.close()


async def _end_tasks() -> None:
    """Whoever still waits for the vault waits no longer; a moment to go, for what does not heed a cancel."""
    import asyncio

    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=1.0)


def _problem(answer: Answer) -> str:
    if answer.problem:
        return answer.problem
    if not answer.value:
        return "its value is empty"
    try:
        raw = answer.value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # which holds the value: it must not go on
        return "its value is not Unicode text"
    return _unfit(raw)


def _unfit(raw: bytes) -> str:
    """Why a value can't be an environment variable that is masked in output, or "" where it can."""
    if b"\0" in raw:
        return "its value holds a NUL byte, which no environment variable can"
    if len(raw.strip()) < SECRET_MIN:
        return f"its value is shorter than {SECRET_MIN} bytes: it can't be masked in output"
    if len(raw) > SECRET_MAX:
        return f"its value is longer than {SECRET_MAX} bytes: no environment variable holds it"
    return ""


def _missing(failed: Mapping[str, str]) -> SecretsMissing:
    """Names with the same problem stand together: where the vault is down, all of them."""
    alike = {
        problem: [name for name in sorted(failed) if failed[name] == problem] for problem in failed.values()
    }
    details = "; ".join(f"{', '.join(names)}: {problem}" for problem, names in alike.items())
    return SecretsMissing(
        f"secrets missing: {details}",
        hint="mend them, then see `skillexec secret check`",
        names=tuple(sorted(failed)),
    )
