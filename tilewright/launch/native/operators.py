"""Functions at once where nobody in PyTorch looks on: `tw_operator`, and what it must know of torch.

Where who looks on cannot be asked (`observers.py`) everything stays in Python.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterable
from typing import Any

from tilewright.backends.llvm.calls import tables as t
from tilewright.base.cache_layers import SmallObjects
from tilewright.launch.native.machine import machine
from tilewright.launch.native.observers import answers


class _State(int):
    """The address of a table of words; keeps everything alive that is reached from there."""

    kept: list[Any]


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
        code = machine(SmallObjects())
        if code is None or not code.reads_torch or any(at > 62 for at in floats):
            return
        words = answers()
        if words is None:
            return
        torch = sys.modules["torch"]
        classes = (torch.Tensor, torch.nn.Parameter, int, float, bool, str, type(None), torch.dtype, torch.device)
        assert tuple(kind.__name__ for kind in classes) == t.OPERATOR_KINDS
        self._words = (ctypes.c_uint64 * t.OPERATOR_WORDS)()
        for word, number in words.items():
            self._words[word] = number
        state = _State(ctypes.addressof(self._words))
        state.kept = [self._words, code, function, observed]
        things: dict[int, Any] = {t.OPERATOR_OBSERVED: observed, t.OPERATOR_FUNCTION: function}
        things |= {t.OPERATOR_CLASSES + index: kind for index, kind in enumerate(classes)}
        for word, thing in things.items():
            self._words[word] = id(thing)
        self._words[t.OPERATOR_SHARED] = ctypes.addressof(code.shared)
        self._words[t.OPERATOR_FLOATS] = sum(1 << at for at in floats)
        self.call = code.builtin(code.operator, state)

    def allow(self, at_once: bool) -> None:
        """Whether `function` may be called at all; at the start it may not."""
        if self.call is not None:
            self._words[t.OPERATOR_READY] = int(at_once)
