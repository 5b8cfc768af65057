"""What an exit frame means. The only way to `ok` is a frame that says so, on a stream that came to its end."""

from __future__ import annotations

from dataclasses import dataclass

from skillexec.model import Limits, Status
from skillexec.sandbox.session import Exit

DOCTOR = "run `skillexec doctor`"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A status, and for people what it means and what to do."""

    status: Status
    error: str = ""
    hint: str = ""


def judge(end: Exit, limits: Limits) -> Verdict:
    """The verdict on a script whose end is known."""
    if end.reason == "cancelled":
        return cancelled()
    if end.oom_kills:
        return out_of_memory(limits)
    if end.reason == "timeout":
        return timed_out(limits)
    if end.reason == "output_limit":
        return Verdict(
            Status.OUTPUT_LIMIT,
            f"the script wrote more than {limits.output_total:,} bytes to one stream",
            "let it write less, or raise sandbox.output_total",
        )
    if end.reason == "refused":
        return Verdict(Status.FAILED, end.error or "the launcher could not start the script")
    return Verdict(Status.OK if end.exit_code == 0 else Status.FAILED)


def cancelled() -> Verdict:
    return Verdict(Status.CANCELLED, "the run was cancelled")


def timed_out(limits: Limits) -> Verdict:
    return Verdict(
        Status.TIMEOUT,
        f"the run was ended after {limits.seconds:g} s",
        "let it do less, or give it longer: --timeout, as far as the skill's timeout_class goes",
    )


def out_of_memory(limits: Limits) -> Verdict:
    return Verdict(
        Status.OOM,
        f"a process was ended for more memory than {limits.memory >> 20:,} MiB",
        "let it use less, or raise sandbox.memory",
    )


def crowded(limits: Limits, concurrent: int) -> Verdict:
    return Verdict(
        Status.TIMEOUT,
        f"no turn came within {limits.seconds:g} s: {concurrent} runs are at work at once",
        "try again, or raise sandbox.concurrent",
    )


def not_started(limits: Limits) -> Verdict:
    return Verdict(
        Status.INFRA_ERROR,
        f"the Docker engine gave no container within {limits.seconds:g} s",
        DOCTOR,
    )


def lost(what: str) -> Verdict:
    return Verdict(
        Status.ENGINE_LOST,
        f"{what}: how the script ended is unknown",
        "run `skillexec doctor`, and check what the script may have done before you run it again",
    )


def unfinished(ruling: Verdict, limits: Limits) -> Verdict:
    """The script ended in time and its files did not arrive in time: no success without all of them."""
    if ruling.status is not Status.OK:
        return ruling
    return Verdict(
        Status.TIMEOUT,
        f"the script's files could not be collected within {limits.seconds:g} s",
        "let it leave fewer, or give the skill a longer timeout_class",
    )
