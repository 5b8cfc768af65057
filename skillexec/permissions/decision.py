"""May this system run this skill? One query, one evaluation by Casbin, and a reason that a person can act on."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from skillexec.model import Decision, Rule, Source
from skillexec.permissions.explain import Question, Step, examine
from skillexec.permissions.facts import Link, chain_of
from skillexec.permissions.lines import Line, lines_for
from skillexec.permissions.names import is_digest, is_identifier, is_skill
from skillexec.shipped import shipped

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from skillexec.permissions.evaluator import Evaluator
    from skillexec.statements import AnyConnection

_NO_DIGEST = "-"
_BROKEN_HINT = "run `skillexec doctor`; nothing is allowed while decisions fail"


@dataclass(frozen=True, slots=True)
class Explanation:
    """A decision and the steps that led to it."""

    decision: Decision
    steps: tuple[Step, ...]


def model_file() -> Path:
    """The Casbin model that this installation decides with."""
    return shipped("policies") / "model.conf"


def _denied(question: Question, step: Step, *, team: str | None = None, policy: str = "") -> Explanation:
    decision = Decision(
        allowed=False,
        rule=step.rule,
        reason=step.fact,
        system=question.system,
        skill=question.skill,
        team=team,
        hint=step.hint,
        policy=policy,
    )
    return Explanation(decision, (step,))


def _malformed(question: Question) -> Step | None:
    """What is wrong with the names themselves. They are rejected, never normalised."""
    if not is_identifier(question.system):
        return Step(
            False, Rule.UNKNOWN_SYSTEM, f"{question.system!r} can't be a system", "`skillexec system list`"
        )
    if not is_skill(question.skill):
        return Step(
            False, Rule.UNKNOWN_SKILL, f"{question.skill!r} can't be a skill", "`skillexec skill list`"
        )
    if question.digest is not None and not is_digest(question.digest):
        return Step(False, Rule.ERROR, f"{question.digest!r} is not a digest", _BROKEN_HINT)
    return None


def _unknown(question: Question) -> Step:
    name = question.system
    return Step(False, Rule.UNKNOWN_SYSTEM, f"no system {name}", f"`skillexec system add {name} --team TEAM`")


def _allowing(chain: tuple[Link, ...]) -> tuple[Rule, str]:
    link = chain[0]
    if link.origin is not None:
        how = "inherited" if not link.granted else "granted"
        return Rule.RECURSION, f"{how}, and {link.origin}, the origin of team {link.team}, may run it"
    within = "the root team" if link.is_root else f"the envelope of team {link.team}"
    return Rule.SYSTEM_GRANT, f"granted to {link.system}, within {within}"


def _unbound(link: Link, question: Question) -> Link:
    """The link without the conditions that the question leaves open."""
    if question.digest is None and link.pin is not None:
        link = link._replace(pin=None)
    if question.source is None and link.source is not None:
        link = link._replace(source=str(Source.THIRD_PARTY))
    return link


def _lines(chain: tuple[Link, ...], question: Question) -> list[Line]:
    if question.digest is None or question.source is None:
        chain = tuple(_unbound(link, question) for link in chain)
    return [line for link in chain for line in lines_for(link, question.skill)]


class Decider:
    """Decides with one Casbin model. Safe to share between threads: each has an enforcer of its own."""

    def __init__(self, model: Path | None = None) -> None:
        self._model = model or model_file()
        self._local = threading.local()

    def decide(
        self,
        connection: AnyConnection,
        *,
        system: str,
        skill: str,
        digest: str | None = None,
        source: Source | None = None,
    ) -> Decision:
        """The decision, by the state that the connection sees. A run always gives digest and source.

        Without a digest pins are not looked at, without a source sources are not: for listings only.
        """
        return self.explain(connection, Question(system, skill, digest, source)).decision

    def explain(self, connection: AnyConnection, question: Question) -> Explanation:
        """The decision with its steps. Whatever goes wrong on the way is a denial."""
        try:
            return self._explain(connection, question)
        except Exception as error:  # noqa: BLE001 - fail closed: no failure of ours or of Casbin's may allow
            fact = f"the decision failed: {type(error).__name__}: {error}"
            return _denied(question, Step(False, Rule.ERROR, fact, _BROKEN_HINT))

    def permitted(self, connection: Connection, system: str) -> tuple[str, ...]:
        """The skills that the system may run, pins and sources aside, in order of name."""
        from sqlalchemy import select

        from skillexec.schema import grants

        if not is_identifier(system):
            return ()
        chain = [link.system for link in chain_of(connection, system=system, skill="")]
        held = select(grants.c.skill).where(grants.c.system.in_(chain)).distinct().order_by(grants.c.skill)
        candidates = connection.execute(held).scalars().all()
        return tuple(
            skill for skill in candidates if self.decide(connection, system=system, skill=skill).allowed
        )

    def _explain(self, connection: AnyConnection, question: Question) -> Explanation:
        malformed = _malformed(question)
        if malformed is not None:
            return _denied(question, malformed)
        chain = chain_of(connection, system=question.system, skill=question.skill)
        if not chain:
            return _denied(question, _unknown(question))
        return self._judge(chain, question)

    def _judge(self, chain: tuple[Link, ...], question: Question) -> Explanation:
        lines = _lines(chain, question)
        evaluator, model_digest = self._evaluator()
        allowed = evaluator.allows(
            lines,
            system=question.system,
            skill=question.skill,
            digest=question.digest or _NO_DIGEST,
            source=str(question.source or Source.THIRD_PARTY),
        )
        steps = examine(chain, question)
        policy = _digest(model_digest, lines)
        if allowed != steps[-1].ok:
            fact = f"the model {self._model.name} and the rules disagree: {steps[-1].fact}"
            return _denied(
                question, Step(False, Rule.ERROR, fact, _BROKEN_HINT), team=chain[0].team, policy=policy
            )
        if not allowed:
            denial = _denied(question, steps[-1], team=chain[0].team, policy=policy)
            return Explanation(denial.decision, steps)
        rule, reason = _allowing(chain)
        decision = Decision(
            allowed=True,
            rule=rule,
            reason=reason,
            system=question.system,
            skill=question.skill,
            team=chain[0].team,
            policy=policy,
        )
        return Explanation(decision, steps)

    def _evaluator(self) -> tuple[Evaluator, bytes]:
        """This thread's enforcer, made at its first decision, and the digest of the model that it read."""
        made: tuple[Evaluator, bytes] | None = getattr(self._local, "made", None)
        if made is None:
            from skillexec.permissions.evaluator import Evaluator

            made = (Evaluator(self._model), hashlib.sha256(self._model.read_bytes()).digest())
            self._local.made = made
        return made


def _digest(model_digest: bytes, lines: list[Line]) -> str:
    """What was evaluated, as one digest for the audit log: the model's, then each line as CSV."""
    text = "\n".join([", ".join((key, *values)) for key, values in lines])
    return "sha256:" + hashlib.sha256(model_digest + text.encode()).hexdigest()
