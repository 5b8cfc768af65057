"""What a system gets to see of its skills: names, instructions, files. Only what it may run, and on the record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skillexec.audit import Event, append, named
from skillexec.errors import Denied, PathRefused, SkillError
from skillexec.model import Bundle, Decision, Rule, Skill
from skillexec.skills.bundle import take_bundle
from skillexec.skills.reading import skill_in
from skillexec.skills.resources import LIMIT, Body, Resource, body_in, resource_in

if TYPE_CHECKING:
    from skillexec.permissions.decision import Decider
    from skillexec.skills.discovery import Library
    from skillexec.state import State


PATH_MAX = 1024  # characters that a record has room for


class Disclosure:
    """The three tiers, as a system may see them."""

    def __init__(self, state: State, library: Library, decider: Decider, *, actor: str) -> None:
        self._state = state
        self._library = library
        self._decider = decider
        self._actor = actor

    def offered(self, system: str) -> list[Skill]:
        """The skills that the system may run as they are now: also by pin and by source."""
        with self._state.read() as connection:
            decision = self._decider.decide(connection, system=system, skill="any")
            names = self._decider.permitted(connection, system)
        if decision.rule is Rule.UNKNOWN_SYSTEM:
            raise Denied(decision.reason, hint=decision.hint)
        return [skill for name in names if (skill := self._usable(system, name)) is not None]

    def _usable(self, system: str, name: str) -> Skill | None:
        try:
            skill, _, decision = self._decide(system, name)
        except SkillError:
            return None  # granted, but not here or not sound: it can't be run, so it is not offered
        return skill if decision.allowed else None

    def activate(self, system: str, name: str, *, limit: int = LIMIT) -> Body:
        """A skill's instructions, for a system that may run it."""
        skill, bundle, decision = self._permitted(system, name, "activate")
        body = body_in(bundle, skill, limit=limit)
        self._record(
            "skill.activated", skill, bundle, decision, bytes=len(body.text.encode("utf-8", "replace"))
        )
        return body

    def read(self, system: str, name: str, path: str, *, limit: int = LIMIT) -> Resource:
        """One file of a skill, for a system that may run it."""
        skill, bundle, decision = self._permitted(system, name, "read")
        if not (path.isprintable() and len(path) <= PATH_MAX):
            raise PathRefused(f"{path[:80]!r} can't be put on the record", hint="rename the file")
        found = resource_in(bundle, skill, path, limit=limit)
        self._record(
            "resource.read",
            skill,
            bundle,
            decision,
            file=found.path,
            bytes=found.size,
            truncated=found.truncated,
        )
        return found

    def _decide(self, system: str, name: str) -> tuple[Skill, Bundle, Decision]:
        found = self._library.get(name)
        bundle = take_bundle(found.directory)
        with self._state.quick_read() as connection:
            decision = self._decider.decide(
                connection, system=system, skill=name, digest=bundle.digest, source=found.source
            )
        return skill_in(bundle, found), bundle, decision

    def _permitted(self, system: str, name: str, operation: str) -> tuple[Skill, Bundle, Decision]:
        try:
            skill, bundle, decision = self._decide(system, name)
        except SkillError:
            # The system's own denial comes first, so that nobody learns by asking which skills there are.
            self._refuse_ungranted(system, name, operation)
            raise
        if not decision.allowed:
            self._record("decision.denied", skill, bundle, decision, outcome="denied", operation=operation)
            raise Denied(decision.reason, hint=decision.hint)
        return skill, bundle, decision

    def _refuse_ungranted(self, system: str, name: str, operation: str) -> None:
        with self._state.quick_read() as connection:
            decision = self._decider.decide(connection, system=system, skill=name)
        if not decision.allowed:
            self._record("decision.denied", None, None, decision, outcome="denied", operation=operation)
            raise Denied(decision.reason, hint=decision.hint)

    def _record(
        self,
        event: str,
        skill: Skill | None,
        bundle: Bundle | None,
        decision: Decision,
        *,
        outcome: str | None = None,
        **data: Any,
    ) -> None:
        said: dict[str, Any] = {"rule": str(decision.rule), **data}
        if skill is not None and bundle is not None:
            said |= {"digest": bundle.digest, "source": str(skill.source)}
        with self._state.quick_write() as connection:
            append(
                connection,
                Event(
                    event,
                    self._actor,
                    system=named(decision.system),
                    team=decision.team,
                    skill=named(decision.skill),
                    outcome=outcome,
                    data=said,
                ),
            )
