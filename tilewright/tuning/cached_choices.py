"""Launches of an autotuner whose choice is known, made by machine code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.base.lazy import lazy_module
from tilewright.launch.inline_cache import remember_autotuned
from tilewright.launch.jit import JITFunction
from tilewright.tuning.launch import ConfiguredLaunch

if TYPE_CHECKING:
    from tilewright.launch.native import builtin
else:  # loaded at the first launch
    builtin = lazy_module("tilewright.launch.native.builtin")


class CachedChoices:
    """The calls of one autotuner that machine code knows: each asks at its launch whether it is still the choice.
    A copy knows none, as they are its original's."""

    def __init__(self) -> None:
        self._builtin: builtin.Builtin | None = None
        self._hopeless: set[Any] = set()

    def __reduce__(self) -> tuple[type[CachedChoices], tuple[()]]:
        return CachedChoices, ()

    def remember(self, tuner: Any, key: tuple[Any, ...], launch: ConfiguredLaunch) -> None:
        """Have machine code make launches like this one, as long as its configuration is the choice for `key`.

        Args:
            tuner: the autotuner.
            key: its tuning key of the call.
            launch: what it has launched.
        """
        config, args, kwargs = launch.config, launch.asked.args, launch.asked.kwargs
        form = (key, *map(type, args), *kwargs)
        if not isinstance(tuner.fn, JITFunction) or config.pre_hook is not None or form in self._hopeless:
            return
        if self._builtin is None:
            self._builtin = builtin.make_builtin(tuner._launch_over)
            if self._builtin is not None:
                tuner.become(self._builtin.call)

        def is_chosen() -> bool:
            if tuner.choice(key) is not config:
                return False
            tuner.best_config = config
            return True

        known = self._builtin
        if known is not None and not remember_autotuned(
            tuner.fn, known, args, kwargs, config.all_kwargs(), tuner.keys, is_chosen
        ):
            self._hopeless.add(form)
