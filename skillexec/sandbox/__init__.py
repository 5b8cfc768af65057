"""The sandbox: a fresh locked-down container per run, as fast as no container at all (DESIGN 7).

It knows nothing of permissions or secrets: `Sandbox.execute(bundle, command, ...) -> Outcome`.
"""

from skillexec.sandbox.box import Checked, Sandbox, SandboxSettings
from skillexec.sandbox.cancel import Cancel
from skillexec.sandbox.execution import OnOutput, Sieve
from skillexec.sandbox.lease import Lease
from skillexec.sandbox.spec import BOUNDS, check_limits, launcher_digest

__all__ = [
    "BOUNDS",
    "Cancel",
    "Checked",
    "Lease",
    "OnOutput",
    "Sandbox",
    "SandboxSettings",
    "Sieve",
    "check_limits",
    "launcher_digest",
]
