"""The shared CLI tools image: build it, look at it, check that it is fit. Nothing here prints.

build   base (registry digest, mmdebstrap or a local image), packages, tools, launcher -> Built
show    what an image is and what is in it -> Facts
check   whether runs may rely on it -> Verdict
"""

from __future__ import annotations

from skillexec.images.base import AUTO, MMDEBSTRAP, REGISTRY
from skillexec.images.building import Built, build
from skillexec.images.context import Context, gather, seccomp_profile
from skillexec.images.facts import Facts, Package, Program, show
from skillexec.images.fitness import Finding, Verdict, check
from skillexec.images.progress import Progress, Step

__all__ = [
    "AUTO",
    "MMDEBSTRAP",
    "REGISTRY",
    "Built",
    "Context",
    "Facts",
    "Finding",
    "Package",
    "Program",
    "Progress",
    "Step",
    "Verdict",
    "build",
    "check",
    "gather",
    "seccomp_profile",
    "show",
]
