"""Launches as records of `tilewright.launch`, by a launch hook that is there only while somebody wants them.

The level of the logger is asked for when a kernel is launched for the first time, and when the knob `runtime.logs` is
set; a launch that is known asks nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.base.grids import Grid
from tilewright.base.hooks import LazyDict, settings_changed
from tilewright.base.knobs import knobs
from tilewright.base.library import logging, logs

_MOST_LETTERS = 60
_shown: list[str] = [""]  # what the knob said when it was last followed


def follow_launches() -> None:
    """Have launches recorded if the logger is at DEBUG now."""
    chain = knobs.runtime.launch_enter_hook
    if logs.launching.isEnabledFor(logging.DEBUG) and _record not in chain.calls:
        chain.add(_record)


def record_interpreted(name: str, arguments: Mapping[str, Any], grid: Grid) -> None:
    """Record a launch that runs as Python, which no hook hears of."""
    if logs.launching.isEnabledFor(logging.DEBUG):
        logs.launching.debug("%s[%s] interpreted: %s", name, _text(grid), _arguments(arguments))


def _record(facts: LazyDict) -> None:
    subject = facts.subject
    if subject is None:
        logs.launching.debug("%s", facts.data.get("name"))
        return
    logs.launching.debug("%s[%s]: %s", facts.data["name"], _text(subject.grid), _arguments(subject.arguments),
                         extra={"kernel": facts.data["name"]})  # fmt: skip


def _arguments(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_text(value)}" for name, value in arguments.items())


def _text(value: Any) -> str:
    """An argument in a few letters: type and shape of an array, else what Python shows."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    text = ", ".join(map(str, value)) if isinstance(value, tuple) else repr(value)
    return text if len(text) <= _MOST_LETTERS else text[: _MOST_LETTERS - 1] + "…"


def _follow_knob() -> None:
    wanted = knobs.runtime.logs
    if wanted != _shown[0]:
        _shown[0] = wanted
        logs.show(wanted)
        if logs.launching.isEnabledFor(logging.DEBUG):
            follow_launches()
        else:
            knobs.runtime.launch_enter_hook.remove(_record)


settings_changed.add(_follow_knob)
_follow_knob()
