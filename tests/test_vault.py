"""Every way in which a secret can't be had is a refusal that names names, and never a value."""

from __future__ import annotations

import base64
import json
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator

import pytest

from skillexec.errors import SecretsMissing, Usage
from skillexec.testing import FakeVault
from skillexec.vault import TOKEN_VARIABLE, OnePassword, Vault, validate_reference

REFERENCE = "op://agents/search/key"
OTHER = "op://agents/mail/password"


def _well_formed_token() -> str:
    """Has the shape of a service account token and belongs to nobody."""
    body = {
        "signInAddress": "nobody.invalid",
        "userAuth": {"method": "SRPg-4096", "alg": "PBES2g-HS256", "iterations": 650000, "salt": "A" * 22},
        "email": "nobody@1passwordserviceaccounts.com",
        "srpX": "0" * 63 + "1",
        "muk": {
            "alg": "A256GCM",
            "ext": True,
            "k": "A" * 43,
            "key_ops": ["encrypt", "decrypt"],
            "kty": "oct",
            "kid": "mp",
        },
        "secretKey": "A3-C4ZJMN-PQTZTL-HGL84-G64M7-KVZRN-4ZVP6",
        "deviceUuid": "abcdefghijklmnopqrstuvwxyz",
    }
    return "ops_" + base64.urlsafe_b64encode(json.dumps(body).encode()).decode().rstrip("=")


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)


@pytest.fixture
def real() -> Iterator[Vault]:
    """The real SDK, up to its network."""
    with Vault(OnePassword(), deadline=8.0) as vault:
        yield vault


def _refusal(vault: Vault, references: dict[str, str]) -> SecretsMissing:
    with pytest.raises(SecretsMissing) as refused:
        vault.resolve(references)
    return refused.value


def test_values_are_resolved_in_one_call() -> None:
    fake = FakeVault({REFERENCE: "value-one", OTHER: "value-two"})
    with Vault(fake) as vault:
        assert vault.resolve({"A": REFERENCE, "B": OTHER, "C": REFERENCE}) == {
            "A": "value-one",
            "B": "value-two",
            "C": "value-one",
        }
    assert fake.asked == [(OTHER, REFERENCE)]


def test_nothing_is_asked_when_nothing_is_needed() -> None:
    fake = FakeVault()
    with Vault(fake) as vault:
        assert vault.resolve({}) == {}
    assert fake.asked == []


def test_the_sdk_refuses_without_a_token_and_says_what_to_set(real: Vault) -> None:
    refusal = _refusal(real, {"KEY": REFERENCE})
    assert refusal.names == ("KEY",)
    assert TOKEN_VARIABLE in refusal.message


def test_the_sdk_refuses_a_token_that_is_garbage_without_repeating_it(
    real: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "ops_garbage")
    refusal = _refusal(real, {"KEY": REFERENCE})
    assert "invalid service account token" in refusal.message
    assert "ops_garbage" not in refusal.message + refusal.hint


def test_the_sdk_fails_closed_when_the_network_does_not_answer(
    real: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, _well_formed_token())
    refusal = _refusal(real, {"KEY": REFERENCE})
    assert "error sending request" in refusal.message
    assert refusal.names == ("KEY",)


def test_the_sdk_talking_to_a_silent_peer_is_ended_by_our_own_deadline() -> None:
    """The SDK has no time-out: a proxy that accepts and says nothing would hang it for ever."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_accept_and_stay_silent, args=(server,), daemon=True).start()
        proxy = f"http://127.0.0.1:{server.getsockname()[1]}"
        program = (
            "import time; from skillexec.vault import *\n"
            "from skillexec.errors import SecretsMissing\n"
            "began = time.monotonic()\n"
            "try:\n"
            f"    Vault(OnePassword(), deadline=1.0).resolve({{'KEY': {REFERENCE!r}}})\n"
            "except SecretsMissing as error:\n"
            "    print(error.names, 'within' in error.message, time.monotonic() - began < 6)\n"
        )
        environment = {TOKEN_VARIABLE: _well_formed_token(), "HTTPS_PROXY": proxy, "https_proxy": proxy}
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert done.stdout == "('KEY',) True True\n", done.stderr


def _accept_and_stay_silent(server: socket.socket) -> None:
    held = []
    while True:
        try:
            held.append(server.accept())
        except OSError:
            return


@pytest.mark.parametrize(
    "backend",
    [
        pytest.param(FakeVault(unreachable="1Password's rate limit is used up"), id="rate limit"),
        pytest.param(FakeVault({}), id="missing item"),
        pytest.param(FakeVault({REFERENCE: ""}), id="empty value"),
        pytest.param(FakeVault({REFERENCE: "canary\ud800canary"}), id="no Unicode text"),
        pytest.param(FakeVault(problems={REFERENCE: "tooManyItems"}), id="ambiguous"),
        pytest.param(FakeVault(silent=True), id="silence"),
    ],
)
def test_a_secret_that_can_not_be_had_refuses_and_names_it(backend: FakeVault) -> None:
    with Vault(backend, deadline=0.3) as vault:
        refusal = _refusal(vault, {"KEY": REFERENCE})
    assert refusal.names == ("KEY",)
    assert "KEY" in refusal.message
    assert "canary" not in "".join(traceback.format_exception(refusal)) + repr(refusal.__context__)


def test_a_failure_that_all_names_share_is_said_once() -> None:
    with Vault(FakeVault(unreachable="no token")) as vault:
        refusal = _refusal(vault, {"B": OTHER, "A": REFERENCE})
    assert refusal.names == ("A", "B")
    assert refusal.message.count("no token") == 1
    assert "A, B: no token" in refusal.message


def test_two_failures_at_once_are_both_named_and_the_value_that_came_is_not() -> None:
    fake = FakeVault({REFERENCE: "value-one"}, problems={OTHER: "itemNotFound"})
    with Vault(fake) as vault:
        refusal = _refusal(vault, {"GOOD": REFERENCE, "BAD": OTHER, "WORSE": "op://a/b/c"})
    assert refusal.names == ("BAD", "WORSE")
    assert "value-one" not in refusal.message + refusal.hint


def test_a_value_is_cached_for_a_short_while_only() -> None:
    fake = FakeVault({REFERENCE: "value-one"})
    with Vault(fake, ttl=1.0) as vault:
        vault.resolve({"A": REFERENCE})
        vault.resolve({"A": REFERENCE})
        assert len(fake.asked) == 1
        time.sleep(1.1)
        vault.resolve({"A": REFERENCE})
        assert len(fake.asked) == 2


def test_an_expired_value_is_never_used_when_the_vault_fails() -> None:
    fake = FakeVault({REFERENCE: "value-one"})
    with Vault(fake, ttl=1.0) as vault:
        vault.resolve({"A": REFERENCE})
        fake.unreachable = "gone"
        time.sleep(1.1)
        assert _refusal(vault, {"A": REFERENCE}).names == ("A",)


@pytest.mark.parametrize(
    "reference", ["", "hunter2", "op://", "op://vault", "op://vault/item", "https://vault/item/x"]
)
def test_what_is_not_a_reference_is_refused_offline(reference: str) -> None:
    with pytest.raises(Usage, match="not a secret reference"):
        validate_reference(reference)


def test_a_reference_is_accepted_offline() -> None:
    validate_reference(REFERENCE)
    validate_reference("op://vault/item/section/field")


def test_the_vault_shows_no_value_when_printed() -> None:
    fake = FakeVault({REFERENCE: "value-one"})
    with Vault(fake) as vault:
        vault.resolve({"A": REFERENCE})
        assert "value-one" not in repr(vault)
