"""What the environment says of settings: our variables, and Helion's in a process that poses as it.

There too, texts that users paste name the package `helion`, as `hl` is the language in such programs.
"""

from __future__ import annotations

import os

_package = ["hl"]

HELION_NAMES = {
    "dot_precision": "TRITON_F32_DEFAULT",
    "ref_mode": "HELION_INTERPRET",
}
"""Helion's variable by a setting, where it is not `HELION_` and the name in capitals."""


def package() -> str:
    """The name under which programs know `hl`: "hl", or "helion"."""
    return _package[0]


def pose_as(name: str) -> None:
    """Have names that are written out begin with another package; "helion" lets its variables stand in for ours."""
    _package[0] = name


def read(setting: str) -> tuple[str, str | None]:
    """The variable of a setting that is set, and its text; None where there is none."""
    own = f"TILEWRIGHT_HL_{setting.upper()}"
    theirs = HELION_NAMES.get(setting, f"HELION_{setting.upper()}")
    if own not in os.environ and package() == "helion" and os.environ.get(theirs):
        return theirs, os.environ[theirs]
    return own, os.environ.get(own)
