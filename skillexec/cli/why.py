"""skillexec why."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from skillexec.cli.changes import operating
from skillexec.cli.context import App, Command, pass_app
from skillexec.errors import SkillError
from skillexec.model import Rule

if TYPE_CHECKING:
    from skillexec.permissions.decision import Explanation
    from skillexec.permissions.explain import Question


def _question(app: App, system: str, skill: str) -> tuple[Question, SkillError | None]:
    """The question a run would ask: about the bytes that are there now. Without the skill, about the rest."""
    from skillexec.cli.lookup import digest_of, find_skills
    from skillexec.permissions.explain import Question

    try:
        found = find_skills(app, (skill,))[0]
        return Question(system, skill, digest_of(found), found.source), None
    except SkillError as error:
        return Question(system, skill), error


def _without_skill(explanation: Explanation, error: SkillError) -> Explanation:
    """What a run would be told: the system's own denial comes first, and then that there is nothing to run."""
    from skillexec.permissions.decision import Explanation
    from skillexec.permissions.explain import Step

    if not explanation.decision.allowed:
        return explanation
    denial = replace(
        explanation.decision,
        allowed=False,
        rule=Rule.UNKNOWN_SKILL,
        reason=error.message,
        hint=error.hint,
    )
    step = Step(False, Rule.UNKNOWN_SKILL, error.message, error.hint)
    return Explanation(denial, (*explanation.steps, step))


def _print(explanation: Explanation, *, looked: bool) -> None:
    for step in explanation.steps:
        mark = click.style("yes", fg="green") if step.ok else click.style("no ", fg="red")
        click.echo(f"  {mark}  {step.fact}")
    if not looked:
        click.echo("   -   the skill can't be loaded here: its bytes and its source were not looked at")
    decision = explanation.decision
    verdict = "may run" if decision.allowed else "may not run"
    click.echo(f"{decision.system} {verdict} {decision.skill}: {decision.reason} [{decision.rule}]")
    if decision.hint:
        click.echo(f"next: {decision.hint}")


@click.command(cls=Command)
@click.argument("system")
@click.argument("skill")
@pass_app
def why(app: App, system: str, skill: str) -> None:
    """Explain, step by step, why SYSTEM may or may not run SKILL."""
    question, problem = _question(app, system, skill)
    with operating(app) as admin:
        explanation = admin.explain(question)
    if problem is not None:
        explanation = _without_skill(explanation, problem)
    decision = explanation.decision
    document = {
        "system": system,
        "skill": skill,
        "allowed": decision.allowed,
        "rule": str(decision.rule),
        "reason": decision.reason,
        "hint": decision.hint,
        "team": decision.team,
        "digest": question.digest,
        "source": question.source,
        "steps": [
            {"ok": step.ok, "rule": str(step.rule), "fact": step.fact, "hint": step.hint}
            for step in explanation.steps
        ],
    }
    told = explanation.decision.rule == Rule.UNKNOWN_SKILL
    app.answer(document, lambda: _print(explanation, looked=told or question.digest is not None))
