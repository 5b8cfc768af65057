"""Reading a SKILL.md from its text, for tests of what its frontmatter says."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillexec.errors import SkillError
from skillexec.model import Skill, Source
from skillexec.skills.reading import read_skill

BASIC = "name: my-skill\ndescription: Reads files.\n"


def read(yaml: str | bytes, folder: str = "my-skill") -> Skill:
    data = yaml if isinstance(yaml, bytes) else f"---\n{yaml}---\nBody\n".encode()
    return read_skill(data, directory=Path("/skills") / folder, file="SKILL.md", source=Source.ORG)


def reason(yaml: str | bytes) -> str:
    with pytest.raises(SkillError) as caught:
        read(yaml)
    return caught.value.message


def rules(skill: Skill) -> list[str]:
    return [diagnostic.rule for diagnostic in skill.diagnostics]
