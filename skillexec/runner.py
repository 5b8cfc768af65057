"""The one path from a request to a recorded result. Every front door calls `Runner.run`; nothing else runs a script.

load       the skill, and its exact bytes
authorize  the decision, by envelope and grant
plan       the command, the input held to its schema, the limits, where secrets come from
confirm    a person's word, where nobody vouches for the skill
resolve    the secrets, all or none
intend     on the record, durable, before a container gets the job
execute    in a fresh locked-down container
conclude   the outcome on the record, whatever it was
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skillexec.attempt import Attempt
from skillexec.config import Config, limits_for, load_config
from skillexec.errors import (
    ConfigInvalid,
    ConfirmationRequired,
    Denied,
    SecretsMissing,
    SkillexecError,
    StateUnusable,
    Usage,
)
from skillexec.home import Home, find_home
from skillexec.model import (
    Confirmation,
    Decision,
    Limits,
    Rule,
    RunRequest,
    RunResult,
    Source,
)
from skillexec.plan import make_plan
from skillexec.redact import Masker
from skillexec.result import problem_of, refusal_status
from skillexec.sandbox import Cancel, Sandbox, SandboxSettings, check_limits

if TYPE_CHECKING:
    from skillexec.journal import Journal
    from skillexec.permissions.decision import Decider
    from skillexec.sandbox.execution import OnOutput
    from skillexec.sandbox.lease import Lease
    from skillexec.skills.discovery import Library
    from skillexec.state import State
    from skillexec.vault import Backend, Values, Vault

Confirm = Callable[[Confirmation], bool]
OnStart = Callable[[Limits], None]
_VOUCHED_FOR = (Source.BUILTIN, Source.ORG)


def _limits(config: Config) -> Limits:
    """What the settings let a run use. Beyond the bounds the settings are wrong, not what the caller asked for."""
    limits = limits_for(config, config.timeouts.standard)
    try:
        check_limits(limits)
    except Usage as error:
        raise ConfigInvalid(f"in the settings, {error.message}", hint=error.hint) from error
    return limits


class Runner:
    """Runs skills for systems. Open it once and keep it: its waiting containers make runs fast."""

    def __init__(
        self,
        *,
        config: Config,
        state: State,
        library: Library,
        decider: Decider,
        vault: Vault,
        sandbox: Sandbox,
        journal: Journal,
        once: bool = False,
    ) -> None:
        self._config = config
        self._once = once
        self._state = state
        self._library = library
        self._decider = decider
        self._vault = vault
        self._sandbox = sandbox
        self._journal = journal

    @classmethod
    def open(
        cls,
        home: str | PathLike[str] | None = None,
        *,
        warm: int | None = None,
        once: bool = False,
        actor: str = "",
        project: Path | None = None,
        backend: Backend | None = None,
    ) -> Runner:
        """A runner on a home. `project` adds that folder's skills; `backend` is asked for secrets in 1Password's place.

        `once` is for a process that runs one thing and ends: one container is started now and none is kept warm.
        Records as abandoned what earlier processes left without an end.
        """
        place = find_home(home)
        place.check()
        config = load_config(place.config_file)
        limits = _limits(config)
        sandbox = Sandbox.open(_sandbox_settings(config, warm=0 if once else warm))
        try:
            # In the background, while the rest is loaded.
            sandbox.start_ahead(limits) if once else sandbox.warm_up(limits)
            return cls._on(
                place, config, sandbox, actor=actor or "api", project=project, backend=backend, once=once
            )
        except BaseException:
            sandbox.close()
            raise

    @classmethod
    def _on(
        cls,
        home: Home,
        config: Config,
        sandbox: Sandbox,
        *,
        actor: str,
        project: Path | None,
        backend: Backend | None,
        once: bool,
    ) -> Runner:
        from skillexec.catalog import library_for
        from skillexec.journal import Journal
        from skillexec.permissions.decision import Decider
        from skillexec.state import State
        from skillexec.vault import OnePassword, Vault

        state = State.open(home.state_file)
        journal = Journal(state, actor=actor)
        journal.sweep()
        source = backend or OnePassword(account=config.secrets.account)
        return cls(
            config=config,
            state=state,
            library=library_for(config, home, project=project),
            decider=Decider(),
            vault=Vault(source, deadline=config.secrets.deadline, ttl=config.secrets.ttl),
            sandbox=sandbox,
            journal=journal,
            once=once,
        )

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the waiting containers and forget every secret."""
        try:
            self._sandbox.close(patiently=not self._once)
        finally:
            self._vault.close()
            self._state.close()

    def waiting(self) -> int:
        """How many containers wait for a run."""
        return self._sandbox.waiting()

    def run(
        self,
        request: RunRequest | str,
        *,
        system: str = "",
        confirm: Confirm | None = None,
        on_start: OnStart | None = None,
        on_output: OnOutput | None = None,
        cancel: Cancel | None = None,
        **details: Any,
    ) -> RunResult:
        """Carry out a request, or refuse it; either way it is on the record. Raises only where nothing can be
        recorded (StateUnusable; Usage for a run id that was used before), and passes on what interrupts it.

        `details` are the fields of RunRequest, for callers that name a skill and a system instead. `confirm` is asked
        where nobody vouches for the skill, `on_start` is told the limits when the script is about to start, `on_output`
        gets each piece of output, masked.
        """
        run = Attempt(_as_request(request, system, details))
        if run.request.run_id:
            self._journal.check(run.id)
        try:
            self._load(run)
            self._authorize(run)
            self._plan(run)
            self._confirm(run, confirm)
            secrets = self._resolve(run)
            if run.confirmation == "once" or run.references:
                self._look_again(run)
            lease = self._sandbox.prepare(run.plan.limits if run.plan else None)
        except SkillexecError as error:
            return self._refuse(run, error)
        except BaseException as error:
            self._break_off(run, error)
            raise
        return self._carry_out(run, secrets, lease, on_start=on_start, on_output=on_output, cancel=cancel)

    async def run_async(self, request: RunRequest | str, **arguments: Any) -> RunResult:
        """The same for asyncio, in a thread of its own. Cancelling the task ends the run."""
        from skillexec.sandbox.asynchronous import in_thread

        cancel = arguments.pop("cancel", None) or Cancel()
        return await in_thread(lambda: self.run(request, cancel=cancel, **arguments), cancel.cancel)

    def _load(self, run: Attempt) -> None:
        from skillexec.skills.bundle import take_bundle
        from skillexec.skills.reading import skill_in

        with run.watch.step("load"):
            run.skill = self._library.get(run.request.skill)
            run.bundle = take_bundle(run.skill.directory)
            run.skill = skill_in(run.bundle, run.skill)

    def _authorize(self, run: Attempt) -> None:
        assert run.skill is not None and run.bundle is not None
        with run.watch.step("authorize"):
            run.decision = self._decide(run, digest=run.bundle.digest, source=run.skill.source)
        if not run.decision.allowed:
            raise Denied(run.decision.reason, hint=run.decision.hint)

    def _decide(self, run: Attempt, *, digest: str | None, source: Source | None) -> Decision:
        with self._state.quick_read() as connection:
            return self._decider.decide(
                connection, system=run.request.system, skill=run.request.skill, digest=digest, source=source
            )

    def _plan(self, run: Attempt) -> None:
        assert run.skill is not None and run.bundle is not None
        with run.watch.step("plan"):
            seconds = getattr(self._config.timeouts, run.skill.timeout_class)
            limits = limits_for(self._config, seconds)
            run.plan = make_plan(run.skill, run.bundle, run.request, limits=limits)
            run.references = self._references(run)

    def _references(self, run: Attempt) -> dict[str, str]:
        """Where each secret comes from: what the skill declares and what the operator binds to it, nothing else."""
        from skillexec.secrets import references

        assert run.skill is not None and run.decision is not None
        with self._state.quick_read() as connection:
            return references(connection, run.skill, team=run.decision.team or "")

    def _confirm(self, run: Attempt, confirm: Confirm | None) -> None:
        """builtin and org skills run; others need an approval of these bytes, or a person's word for this once."""
        assert run.skill is not None
        if run.skill.source in _VOUCHED_FOR:
            return
        with run.watch.step("confirm"):
            if self._approved(run):
                run.confirmation = "approval"
            elif confirm is not None and confirm(run.question()):
                run.confirmation = "once"
            else:
                raise ConfirmationRequired(
                    f"{run.skill.name} comes from source {run.skill.source}: somebody has to confirm it",
                    hint=f"`skillexec approve {run.skill.name} --as {run.request.system}`, or run it with --yes",
                )

    def _approved(self, run: Attempt) -> bool:
        from skillexec.permissions.facts import approval_for

        assert run.bundle is not None
        with self._state.quick_read() as connection:
            found = approval_for(
                connection,
                system=run.request.system,
                skill=run.request.skill,
                digest=run.bundle.digest,
                now=datetime.now(UTC),
            )
        return found is not None

    def _resolve(self, run: Attempt) -> Values:
        with run.watch.step("resolve"):
            secrets = self._vault.resolve(run.references)
            run.masker = Masker(secrets)
            return secrets

    def _look_again(self, run: Attempt) -> None:
        """A person or a vault took their time: a grant or an approval may be gone by now."""
        self._authorize(run)
        if run.confirmation == "approval":
            self._confirm(run, None)

    def _refuse(self, run: Attempt, error: SkillexecError) -> RunResult:
        """Nothing was started. A state that can't be used can't record anything either: that is raised."""
        if isinstance(error, StateUnusable):
            raise error
        if run.decision is None:
            run.decision = self._undecided(run, error)
        result = run.result(refusal_status(error), error=problem_of(error))
        names = error.names if isinstance(error, SecretsMissing) else ()
        with run.watch.step("conclude"):
            self._journal.refuse(run.id, result, skill=run.skill, bundle=run.bundle, names=names)
        return result

    def _undecided(self, run: Attempt, error: SkillexecError) -> Decision:
        """A skill that can't be loaded: the system's own denial comes first, so that nobody learns more by asking."""
        decision = self._decide(run, digest=None, source=None)
        if not decision.allowed:
            return decision
        return replace(
            decision, allowed=False, rule=Rule.UNKNOWN_SKILL, reason=error.message, hint=error.hint
        )

    def _break_off(self, run: Attempt, error: BaseException) -> None:
        """Nothing was started: Ctrl-C at a question or while the vault is silent, or a bug. It is on the record."""
        if run.decision is None:
            run.decision = self._decide(run, digest=None, source=None)
        result = run.broken_off(error)
        self._journal.refuse(run.id, result, skill=run.skill, bundle=run.bundle, names=())

    def _carry_out(
        self,
        run: Attempt,
        secrets: Values,
        lease: Lease,
        *,
        on_start: OnStart | None,
        on_output: OnOutput | None,
        cancel: Cancel | None,
    ) -> RunResult:
        assert run.plan is not None and run.bundle is not None
        with lease:
            with run.watch.step("intend"):
                self._intend(run)
            try:
                if on_start is not None:
                    on_start(run.plan.limits)
                with run.watch.step("execute"):
                    outcome = lease.run(
                        run.bundle,
                        run.plan.command,
                        env=secrets,
                        stdin=run.plan.stdin,
                        files=run.plan.files,
                        on_output=on_output,
                        cancel=cancel,
                        sieve=run.sieve,
                    )
                ended = run.ended(outcome)
            except BaseException as error:
                ended = run.broken_off(error)
                raise
            finally:
                with run.watch.step("conclude"):
                    self._journal.conclude(run.id, ended)
        return ended

    def _intend(self, run: Attempt) -> None:
        assert run.skill is not None and run.bundle is not None
        assert run.decision is not None and run.plan is not None
        self._journal.intend(
            run.id,
            skill=run.skill,
            bundle=run.bundle,
            decision=run.decision,
            plan=run.plan,
            secrets=tuple(run.references),
            confirmation=run.confirmation,
        )


def _as_request(request: RunRequest | str, system: str, details: dict[str, Any]) -> RunRequest:
    if isinstance(request, str):
        return RunRequest(skill=request, system=system, **details)
    if system or details:
        ignored = ", ".join(filter(None, ("system" if system else "", *details)))
        raise Usage(f"a request is given, and besides it {ignored}", hint="put it into the RunRequest")
    return request


def _sandbox_settings(config: Config, *, warm: int | None = None) -> SandboxSettings:
    """The sandbox as the settings say; `warm` in its place where the caller knows better."""
    box = config.sandbox
    return SandboxSettings(
        image=box.image,
        runtime=box.runtime,
        concurrent=box.concurrent,
        warm=box.warm if warm is None else warm,
        idle_seconds=box.idle_seconds,
        fork_python=box.fork_python,
    )
