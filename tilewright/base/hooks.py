"""Chains of functions that the user wants called at certain moments, and the facts that they are given.

`knobs.runtime` holds the chains; whoever reaches the moment calls the chain. An empty chain is false, so that a
moment that nobody asked for costs one test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tilewright.base.errors import KnobError


class AnnouncedList(list[Any]):
    """A list of functions that says when it changes, whoever changes it; what cannot be called is not taken.

    Args:
        on_change: called after each change.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        super().__init__()
        self._on_change = on_change

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)


def _announced(name: str) -> Callable[..., Any]:
    method = getattr(list, name)

    def change(self: AnnouncedList, *args: Any) -> Any:
        before = list(self)
        result = method(self, *args)
        for function in self:
            if not callable(function):
                list.__setitem__(self, slice(None), before)
                raise KnobError(
                    f"a hook is a function, not {function!r}", hint="pass the function itself, without calling it"
                )
        self._on_change()
        return result

    return change


for _name in ("append", "extend", "insert", "remove", "pop", "clear", "__setitem__", "__delitem__", "__iadd__"):
    setattr(AnnouncedList, _name, _announced(_name))


class HookChain:
    """Functions called one after the other.

    Args:
        reverse: call the one that was added last first (for what closes what another chain opened).
        on_change: called when the chain changes.

    Attributes:
        calls: the functions, in the order in which they were added.
    """

    def __init__(self, reverse: bool = False, on_change: Callable[[], None] | None = None) -> None:
        self._reverse, self._on_change = reverse, on_change
        self.calls: list[Callable[..., Any]] = AnnouncedList(self._changed)

    def add(self, function: Callable[..., Any]) -> None:
        """Add `function` once.

        Raises:
            KnobError: it cannot be called.
        """
        if function not in self.calls:
            self.calls.append(function)

    def remove(self, function: Callable[..., Any]) -> None:
        """Take `function` off the chain; nothing happens if it is not on it."""
        if function in self.calls:
            self.calls.remove(function)

    def _changed(self) -> None:
        if self._on_change is not None:
            self._on_change()

    def __deepcopy__(self, memo: dict[int, Any]) -> HookChain:
        """A chain of its own, with the same functions, that tells nobody."""
        made = HookChain(self._reverse)
        made.calls.extend(self.calls)
        return made

    def __bool__(self) -> bool:
        return bool(self.calls)

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        for function in reversed(self.calls) if self._reverse else list(self.calls):
            function(*args, **kwargs)


settings_changed = HookChain()
"""Called when a knob or a chain of launch hooks changes: what a launch remembers may depend on it."""


class Launched(NamedTuple):
    """A launch, the subject of what hooks around it are given.

    Args:
        fn: the kernel.
        kernel: the variant that is launched.
        arguments: what was passed, by parameter name.
        grid: numbers of programs, as the user gave them.
    """

    fn: Any
    kernel: Any
    arguments: dict[str, Any]
    grid: Any


class LazyDict:
    """Facts of which some are computed only if a hook asks.

    Args:
        data: facts that are known.
        device: number of the GPU that a launch goes to, or None for the CPU.

    Attributes:
        subject: the launch, for tools of this package; None where a library tells hooks of a launch of its own.
    """

    def __init__(self, data: Mapping[str, Any], device: int | None = None) -> None:
        self.data, self.device = dict(data), device
        self.subject: Launched | None = None
        self._pending: list[tuple[Callable[..., Mapping[str, Any]], tuple[Any, ...]]] = []

    def add(self, compute: Callable[..., Mapping[str, Any]], args: tuple[Any, ...]) -> None:
        """Have `compute(*args)` give more facts when somebody asks."""
        self._pending.append((compute, args))

    def get(self) -> dict[str, Any]:
        """All facts."""
        while self._pending:
            compute, args = self._pending.pop(0)
            self.data.update(compute(*args))
        return self.data
