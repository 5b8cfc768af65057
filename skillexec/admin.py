"""What an operator does: each operation is one transaction in which the change and its audit records commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from skillexec import audit
from skillexec.permissions import approvals, grants, references, teams
from skillexec.permissions.change import Change, Changes
from skillexec.permissions.decision import Decider, Explanation
from skillexec.permissions.explain import Question
from skillexec.permissions.facts import approval_for
from skillexec.permissions.snapshot import Snapshot, load_snapshot

if TYPE_CHECKING:
    from skillexec.permissions.facts import Approval, Mapped
    from skillexec.permissions.grants import Wish
    from skillexec.permissions.policy_apply import Finder
    from skillexec.permissions.policy_file import Policy
    from skillexec.state import State


class _TakenBack(Exception):
    """Ends the transaction of a plan, so that nothing of it stays."""


def _event(change: Change, actor: str) -> audit.Event:
    return audit.Event(
        change.event,
        actor,
        system=change.system,
        team=change.team,
        skill=change.skill,
        data={key: value for key, value in change.data.items() if value is not None},
    )


def _summary(changes: Changes, actor: str, digest: str) -> audit.Event:
    signs = [str(change)[0] for change in changes]
    counts = {"added": signs.count("+"), "removed": signs.count("-"), "changed": signs.count("~")}
    return audit.Event("policy.applied", actor, data={"policy": digest, **counts})


class Admin:
    """The operator's operations on one home. Each returns what really changed: nothing where it was so already."""

    def __init__(self, state: State, *, actor: str, decider: Decider | None = None) -> None:
        self._state = state
        self._actor = actor
        self._decider = decider or Decider()

    def _change(self, operation: Callable[..., Changes], *args: Any, **named: Any) -> Changes:
        with self._state.write() as connection:
            changes = operation(connection, *args, **named)
            for change in changes:
                audit.append(connection, _event(change, self._actor))
        return changes

    @contextmanager
    def recorded(self, event: str, **data: str | int) -> Iterator[None]:
        """For a change outside the database (the config): it is made inside the transaction that records it."""
        with self._state.write() as connection:
            audit.append(connection, audit.Event(event, self._actor, data=data))
            yield

    # -- teams and systems

    def add_team(self, name: str, *, root: bool = False) -> Changes:
        return self._change(teams.add_team, name, root=root)

    def remove_team(self, name: str, *, cascade: bool = False) -> Changes:
        return self._change(teams.remove_team, name, cascade=cascade)

    def set_team_disabled(self, name: str, disabled: bool) -> Changes:
        return self._change(teams.set_team_disabled, name, disabled)

    def recurse(self, team: str, *, origin: str, inherit: bool = True) -> Changes:
        return self._change(teams.recurse, team, origin=origin, inherit=inherit)

    def detach(self, team: str) -> Changes:
        return self._change(teams.detach, team)

    def add_system(self, name: str, *, team: str) -> Changes:
        return self._change(teams.add_system, name, team=team)

    def remove_system(self, name: str, *, cascade: bool = False) -> Changes:
        return self._change(teams.remove_system, name, cascade=cascade)

    def set_system_disabled(self, name: str, disabled: bool) -> Changes:
        return self._change(teams.set_system_disabled, name, disabled)

    # -- envelopes and grants

    def add_to_envelope(self, team: str, skills: Iterable[str]) -> Changes:
        return self._change(grants.add_to_envelope, team, skills)

    def remove_from_envelope(self, team: str, skills: Iterable[str]) -> Changes:
        return self._change(grants.remove_from_envelope, team, skills)

    def set_envelope(self, team: str, skills: Iterable[str]) -> Changes:
        return self._change(grants.set_envelope, team, skills)

    def add_grants(self, system: str, wishes: Sequence[Wish]) -> Changes:
        return self._change(grants.add_grants, system, wishes)

    def remove_grants(self, system: str, skills: Iterable[str]) -> Changes:
        return self._change(grants.remove_grants, system, skills)

    def set_grants(self, system: str, wishes: Sequence[Wish]) -> Changes:
        return self._change(grants.set_grants, system, wishes)

    # -- policies

    def plan(self, policy: Policy, *, find: Finder, prune: bool = False) -> Changes:
        """What `apply` would change: it is done, and taken back."""
        from skillexec.permissions.policy_apply import apply_policy

        changes: Changes = ()
        try:
            with self._state.write() as connection:
                changes = apply_policy(connection, policy, find=find, prune=prune)
                raise _TakenBack
        except _TakenBack:
            return changes

    def apply(self, policy: Policy, *, digest: str, find: Finder, prune: bool = False) -> Changes:
        """Make the state what the policy says. `digest` is that of the file, for the record."""
        from skillexec.permissions.policy_apply import apply_policy

        with self._state.write() as connection:
            changes = apply_policy(connection, policy, find=find, prune=prune)
            for change in changes:
                audit.append(connection, _event(change.because("policy.applied"), self._actor))
            if changes:
                audit.append(connection, _summary(changes, self._actor, digest))
        return changes

    def export_yaml(self) -> str:
        from skillexec.permissions.policy_export import as_yaml

        return as_yaml(self.snapshot())

    def export_casbin(self) -> str:
        from skillexec.permissions.policy_export import as_casbin, casbin_lines

        return as_casbin(casbin_lines(self.snapshot()))

    # -- approvals

    def approve(
        self, system: str, skill: str, digest: str, *, network: bool = False, expires: datetime | None = None
    ) -> Changes:
        return self._change(
            approvals.approve,
            system=system,
            skill=skill,
            digest=digest,
            network=network,
            expires=expires,
            actor=self._actor,
            now=datetime.now(UTC),
        )

    def revoke_approvals(self, system: str, skill: str | None = None, digest: str | None = None) -> Changes:
        return self._change(approvals.revoke_approvals, system=system, skill=skill, digest=digest)

    def approval_for(self, system: str, skill: str, digest: str) -> Approval | None:
        with self._state.glance() as connection:
            return approval_for(connection, system=system, skill=skill, digest=digest, now=datetime.now(UTC))

    def approvals(self, system: str | None = None) -> tuple[Approval, ...]:
        with self._state.glance() as connection:
            return approvals.list_approvals(connection, system=system)

    # -- where secrets come from

    def map_secret(self, name: str, reference: str, *, team: str = "", skill: str = "") -> Changes:
        """Say where a secret comes from. Whether the reference is well formed is the vault's to say, before."""
        return self._change(references.map_secret, name=name, reference=reference, team=team, skill=skill)

    def unmap_secret(self, name: str, *, team: str = "", skill: str = "") -> Changes:
        return self._change(references.unmap_secret, name=name, team=team, skill=skill)

    def secret_mappings(self, *, team: str | None = None, skill: str | None = None) -> tuple[Mapped, ...]:
        with self._state.glance() as connection:
            return references.secret_mappings(connection, team=team, skill=skill)

    # -- looking

    def snapshot(self) -> Snapshot:
        with self._state.read() as connection:
            return load_snapshot(connection)

    def permitted(self, system: str) -> tuple[str, ...]:
        """The skills that the system may run, pins and sources aside."""
        with self._state.read() as connection:
            return self._decider.permitted(connection, system)

    def explain(self, question: Question) -> Explanation:
        with self._state.glance() as connection:
            return self._decider.explain(connection, question)
