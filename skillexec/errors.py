"""Everything that can go wrong, as one tree.

    SkillexecError                 code              exit
      Usage                        usage                2
        Refused                    refused              2
      ScriptFailed                 failed              10
      TimedOut                     timeout             11
      OutOfMemory                  oom                 12
      OutputLimit                  output_limit        13
      InvalidOutput                invalid_output      14
      Denied                       denied              20
      ConfirmationRequired         confirmation_required  21
      SecretsMissing               secrets_missing     22
      InvalidInput                 invalid_input       23
      SkillError                   skill_invalid       24
        SkillUnknown               skill_unknown       24
        PathRefused                path_refused        24
      InfraError                   infra_error         30
        EngineUnavailable          engine_unavailable  30
        ImageUnavailable           image_unavailable   30
      EngineLost                   engine_lost         31
      StateUnusable                state_unusable      40
        ConfigInvalid              config_invalid      40
        AuditUnusable              audit_unusable      40
      Bug                          bug                 70

The code and the exit status of a class never change: programs depend on them. A message says what
failed; the hint says what to do next, as a command where there is one.
"""

from __future__ import annotations

from typing import ClassVar


class SkillexecError(Exception):
    """An expected failure. `str(error)` is the message; `hint` is the next step."""

    code: ClassVar[str] = "error"
    exit_status: ClassVar[int] = 70

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class Usage(SkillexecError):
    """The command, or a call's arguments, make no sense."""

    code = "usage"
    exit_status = 2


class Refused(Usage):
    """The change would break a rule: a sixth grant, a second root team, a cycle, dependants left behind."""

    code = "refused"


class ScriptFailed(SkillexecError):
    """The script ran and ended with a non-zero exit code or a signal."""

    code = "failed"
    exit_status = 10


class TimedOut(SkillexecError):
    """The run was ended at its deadline."""

    code = "timeout"
    exit_status = 11


class OutOfMemory(SkillexecError):
    """The kernel ended a process of the run for using more memory than its limit."""

    code = "oom"
    exit_status = 12


class OutputLimit(SkillexecError):
    """The run wrote more than it may."""

    code = "output_limit"
    exit_status = 13


class InvalidOutput(SkillexecError):
    """What the script printed does not satisfy the skill's output schema."""

    code = "invalid_output"
    exit_status = 14


class Denied(SkillexecError):
    """The system may not run the skill."""

    code = "denied"
    exit_status = 20


class ConfirmationRequired(SkillexecError):
    """A person has to confirm the run first."""

    code = "confirmation_required"
    exit_status = 21


class SecretsMissing(SkillexecError):
    """A secret that the run needs could not be had. `names` says which; values are never in it."""

    code = "secrets_missing"
    exit_status = 22

    def __init__(self, message: str, *, hint: str = "", names: tuple[str, ...] = ()) -> None:
        super().__init__(message, hint=hint)
        self.names = names


class InvalidInput(SkillexecError):
    """The input does not satisfy the skill's input schema, or a limit."""

    code = "invalid_input"
    exit_status = 23


class SkillError(SkillexecError):
    """The skill can't be used as it is."""

    code = "skill_invalid"
    exit_status = 24


class SkillUnknown(SkillError):
    """There is no such skill."""

    code = "skill_unknown"


class PathRefused(SkillError):
    """A path inside a skill that must not be followed or can't be read."""

    code = "path_refused"


class InfraError(SkillexecError):
    """The run could not be carried out, through no fault of the script."""

    code = "infra_error"
    exit_status = 30


class EngineUnavailable(InfraError):
    """No Docker engine answers, or it refuses us."""

    code = "engine_unavailable"


class ImageUnavailable(InfraError):
    """The image is missing, or is not the one that this version needs."""

    code = "image_unavailable"


class EngineLost(SkillexecError):
    """The engine or the container vanished in mid-run: the script's end is unknown."""

    code = "engine_lost"
    exit_status = 31


class StateUnusable(SkillexecError):
    """The home or its database can't be used safely."""

    code = "state_unusable"
    exit_status = 40


class ConfigInvalid(StateUnusable):
    """The config file or an environment setting is wrong."""

    code = "config_invalid"


class AuditUnusable(StateUnusable):
    """The audit log can't be written or does not verify: nothing is granted, nothing runs."""

    code = "audit_unusable"


class Bug(SkillexecError):
    """A mistake of ours."""

    code = "bug"
    exit_status = 70
