"""The --source of a root and of a grant."""

from __future__ import annotations

from typing import Any

import click

from skillexec.model import Source


class SourceType(click.Choice[str]):
    """One of the sources. `third-party` and `third_party` are the same."""

    def __init__(self) -> None:
        super().__init__([str(source).replace("_", "-") for source in Source])

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Source:
        return Source(super().convert(str(value).replace("_", "-"), param, ctx).replace("-", "_"))

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None) -> str:  # noqa: ARG002
        return f"Choose from {', '.join(self.choices)}."
