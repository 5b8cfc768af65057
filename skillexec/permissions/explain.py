"""The rules of DESIGN 5 in words: each step of a decision, whether it holds, and what to do where it does not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from skillexec.model import MAX_ORIGINS, Rule, Source
from skillexec.permissions.facts import Link


@dataclass(frozen=True, slots=True)
class Question:
    """May the system run the skill? Without a digest or a source, pins or sources are not looked at."""

    system: str
    skill: str
    digest: str | None = None
    source: Source | None = None


class Step(NamedTuple):
    """One thing that must hold: the fact that was found, and the next command where it does not hold."""

    ok: bool
    rule: Rule
    fact: str
    hint: str = ""


def _enabled(link: Link) -> Step:
    if link.team_disabled:
        hint = f"`skillexec team enable {link.team}`"
        return Step(False, Rule.DISABLED, f"team {link.team} is disabled", hint)
    if link.system_disabled:
        hint = f"`skillexec system enable {link.system}`"
        return Step(False, Rule.DISABLED, f"system {link.system} is disabled", hint)
    return Step(True, Rule.DISABLED, f"system {link.system} of team {link.team} is enabled")


def _envelope(link: Link, skill: str) -> Step:
    if link.is_root:
        return Step(True, Rule.TEAM_ENVELOPE, f"team {link.team} is the root team, which needs no envelope")
    if link.in_envelope:
        return Step(True, Rule.TEAM_ENVELOPE, f"{skill} is in the envelope of team {link.team}")
    return Step(
        False,
        Rule.TEAM_ENVELOPE,
        f"{skill} is not in the envelope of team {link.team}",
        f"`skillexec envelope add {link.team} {skill}`",
    )


def _top(link: Link, skill: str) -> Step:
    """The step about what bounds the last link of the chain, which has no origin unless the chain was cut."""
    if link.origin is None:
        return _envelope(link, skill)
    return Step(
        False,
        Rule.RECURSION,
        f"the origins of team {link.team} go deeper than {MAX_ORIGINS}",
        f"`skillexec team show {link.team}` draws them",
    )


def _origin(link: Link, skill: str) -> Step:
    return Step(
        True, Rule.RECURSION, f"team {link.team} was spawned from {link.origin}, which may run {skill}"
    )


def _grant(link: Link, skill: str) -> Step:
    if link.granted:
        return Step(True, Rule.SYSTEM_GRANT, f"{skill} is granted to {link.system}")
    if link.origin is not None and link.inherit:
        return Step(True, Rule.SYSTEM_GRANT, f"{link.system} inherits {skill} from {link.origin}")
    return Step(
        False,
        Rule.SYSTEM_GRANT,
        f"{skill} is not granted to {link.system}",
        f"`skillexec grant add {link.system} {skill}`",
    )


def _source(link: Link, question: Question) -> Step:
    covered = question.source is None or question.source.rank <= Source(link.source or "").rank
    found = "" if question.source is None else f", and it comes from {question.source}"
    return Step(
        covered,
        Rule.SOURCE_CHANGED,
        f"the grant of {link.system} covers {question.skill} from {link.source}{found}",
        "" if covered else f"look at the skill, then `skillexec grant add {link.system} {question.skill}`",
    )


def _pin(link: Link, question: Question) -> Step:
    same = question.digest is None or question.digest == link.pin
    found = "" if question.digest is None else ", which it is" if same else f", and it is {question.digest}"
    return Step(
        same,
        Rule.DIGEST_CHANGED,
        f"the grant of {link.system} is pinned to {link.pin}{found}",
        "" if same else f"look at the skill, then `skillexec grant add {link.system} {question.skill} --pin`",
    )


def _steps_of(link: Link, question: Question, *, top: bool) -> Iterator[Step]:
    yield _enabled(link)
    yield _top(link, question.skill) if top else _origin(link, question.skill)
    yield _grant(link, question.skill)
    if link.granted:
        yield _source(link, question)
    if link.pin is not None:
        yield _pin(link, question)


def _as_origin(step: Step) -> Step:
    """A right that is missing above is, for the system below, a matter of recursion."""
    missing = not step.ok and step.rule in (Rule.TEAM_ENVELOPE, Rule.SYSTEM_GRANT)
    return step._replace(rule=Rule.RECURSION) if missing else step


def examine(chain: tuple[Link, ...], question: Question) -> tuple[Step, ...]:
    """The steps from the top of the chain down to the system that asks, as far as the first that fails."""
    steps: list[Step] = []
    for depth in reversed(range(len(chain))):
        for step in _steps_of(chain[depth], question, top=depth == len(chain) - 1):
            steps.append(_as_origin(step) if depth else step)
            if not step.ok:
                return tuple(steps)
    return tuple(steps)
