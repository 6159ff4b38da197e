"""Functions, and launches of one kernel, at once where nobody in PyTorch looks on: `tw_operator` and `tw_launched`, and
what they must know of torch.

Where who looks on cannot be asked (`observers.py`) everything stays in Python.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tilewright.backends.llvm.calls import tables as t
from tilewright.base.cache_layers import SmallObjects
from tilewright.launch.native.machine import Machine, machine
from tilewright.launch.native.observers import answers, profiled
from tilewright.launch.subscript import Subscript


class State(int):
    """The address of a table of words; keeps everything alive that is reached from there."""

    kept: list[Any]

    @classmethod
    def of(cls, code: Machine, size: int, words: dict[int, int], observed: Callable[..., Any]) -> tuple[State, Any]:
        """The state of a function of so many words, and the words, with what all such functions have filled in."""
        table = (ctypes.c_uint64 * size)()
        for word, number in words.items():
            table[word] = number
        table[t.OPERATOR_SHARED], table[t.OPERATOR_OBSERVED] = ctypes.addressof(code.shared), id(observed)
        state = cls(ctypes.addressof(table))
        state.kept = [table, code, observed]
        return state, table


def told() -> tuple[Machine | None, dict[int, int]]:
    """The machine code, and the words that say who looks on; no code where one of them cannot be had."""
    code = machine(SmallObjects())
    words = None if code is None or not code.reads_torch else answers()
    return (None, {}) if words is None else (code, words)


class Unobserved:
    """A function of tensors that is called at once, with gradients off, where nobody in PyTorch looks on.

    Args:
        function: takes tensors, numbers, strings, types and devices.
        observed: called with the same arguments where somebody looks on, an argument is of another class, or gradients
            are to be recorded.
        floats: numbers of the arguments that PyTorch makes floats of.

    Attributes:
        call: both of them in one built-in function; None where it cannot be made.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        observed: Callable[..., Any],
        floats: Iterable[int],
    ) -> None:
        self.call: Callable[..., Any] | None = None
        code, words = told()
        if code is None or any(at > 62 for at in floats):
            return
        torch = sys.modules["torch"]
        classes = (torch.Tensor, torch.nn.Parameter, int, float, bool, str, type(None), torch.dtype, torch.device)
        assert tuple(kind.__name__ for kind in classes) == t.OPERATOR_KINDS
        state, self._words = State.of(code, t.OPERATOR_WORDS, words, observed)
        state.kept.append(function)
        self._words[t.OPERATOR_FUNCTION] = id(function)
        for index, kind in enumerate(classes):
            self._words[t.OPERATOR_CLASSES + index] = id(kind)
        self._words[t.OPERATOR_FLOATS] = sum(1 << at for at in floats)
        self.call = code.builtin(code.operator, state)

    def allow(self, at_once: bool) -> None:
        """Whether `function` may be called at all; at the start it may not."""
        if self.call is not None:
            self._words[t.OPERATOR_READY] = int(at_once)


Place = tuple[str, int, Any]
"""An argument of a launch: its keyword or "", its number among the values of the operator, or -1 and a constant."""


class Launched:
    """The operator of one kernel, `(*values, *grid)`: launched at once where nobody in PyTorch looks on.

    Args:
        observed: called with the same arguments where somebody looks on, or the kernel does not know the call.
        values: how many values it takes ahead of the grid.
        rank: how many axes the grid has.

    Attributes:
        call: both of them in one built-in function; None where it cannot be made.
    """

    def __init__(self, observed: Callable[..., None], values: int, rank: int) -> None:
        self.call: Callable[..., None] | None = None
        self._made: Callable[..., None] | None = None
        code, words = told()
        address = profiled()
        if code is None or not address:
            return
        self._state, self._words = State.of(code, t.LAUNCHED_WORDS, words, observed)
        self._words[t.LAUNCHED_LEAVES], self._words[t.LAUNCHED_RANK] = values, rank
        self._words[t.LAUNCHED_PROFILED], self._words[t.LAUNCHED_NONE] = address, id(None)
        self._made = code.builtin(code.launched, self._state)

    def launch(self, kernel: Subscript, arguments: Sequence[Place]) -> None:
        """Launch this kernel from now on.

        Args:
            kernel: launches are told apart by its own table, as if it was called in Python.
            arguments: of the launch, keywords at the end.
        """
        if self._made is None or len(arguments) > t.MOST_COLUMNS:
            return
        names = tuple(sys.intern(name) for name, _, _ in arguments if name)
        rows = [word for _, place, value in arguments for word in (place, id(value) if place < 0 else 0)]
        places = (ctypes.c_int64 * max(len(rows), 1))(*rows)
        self._state.kept.append((kernel, names, list(arguments), places))  # for good: a launch may be under way
        self._words[t.LAUNCHED_COUNT] = len(arguments)
        self._words[t.LAUNCHED_POSITIONAL] = 1 + len(arguments) - len(names)
        self._words[t.LAUNCHED_NAMES] = id(names) if names else 0
        self._words[t.LAUNCHED_PLACES] = ctypes.addressof(places)
        self._words[t.OPERATOR_FUNCTION] = id(kernel)
        self.call = self._made
