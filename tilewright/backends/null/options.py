"""What the list of back ends knows of the null back end."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.base.options import Options
from tilewright.base.target import Target


@dataclass(frozen=True, slots=True)
class NullOptions(Options):
    """Options that change tile IR: those that all targets share."""


def parse_arch(text: str) -> Target | None:
    """The one target there is; its text is `null:` or `null:any`."""
    return Target("null", "any") if text in ("", "any") else None
