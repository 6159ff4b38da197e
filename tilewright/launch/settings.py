"""Settings of one kernel that count from the next launch on: its hooks, and whether it is interpreted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.base.knobs import knobs
from tilewright.launch.bind import Binder


class KernelSettings:
    """What of a kernel may be changed between launches.

    Attributes:
        pre_run_hooks: called with the arguments of every launch, before it.
    """

    pre_run_hooks: list[Callable[..., Any]]
    _binder: Binder | None
    _interpret: bool | None

    def add_pre_run_hook(self, hook: Callable[..., Any]) -> None:
        """Have `hook(*args, **kwargs)` called before every launch, and before `warmup`."""
        self.pre_run_hooks.append(hook)

    def _hooks_changed(self) -> None:
        if self._binder is not None:
            self._binder.hook(self._run_hooks if self.pre_run_hooks else None)

    def _run_hooks(self, *args: Any, **kwargs: Any) -> None:
        for hook in self.pre_run_hooks:
            hook(*args, **kwargs)

    @property
    def interpret(self) -> bool | None:
        """Whether launches run the function as Python; None leaves it to the knob `runtime.interpret`."""
        return self._interpret

    @interpret.setter
    def interpret(self, wanted: bool | None) -> None:
        self._interpret = wanted
        if self._binder is not None:
            self._binder.forget()

    @property
    def is_interpreted(self) -> bool:
        """Whether a launch now would run the function as Python."""
        return knobs.runtime.interpret if self.interpret is None else self.interpret
