"""Functions at once where nobody in PyTorch looks on: `tw_operator`, and what it must know of torch.

Who looks on is asked by C++ functions of torch. Each is tried with its observer on and off, in a thread of its own,
before the first use; where one answers otherwise than expected, or is not there, everything stays in Python.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tilewright.backends.llvm.calls import tables as t
from tilewright.base.cache_layers import SmallObjects
from tilewright.launch.native.libtorch import address_of, torch_library
from tilewright.launch.native.machine import machine

_QUESTIONS: dict[int, tuple[str, Any, list[Any]]] = {
    t.OPERATOR_MODES: ("_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv", ctypes.c_int64, []),
    t.OPERATOR_INCLUDED: (
        "_ZN3c104impl28tls_is_dispatch_key_includedENS_11DispatchKeyE",
        ctypes.c_bool,
        [ctypes.c_uint16],
    ),
    t.OPERATOR_FUNCTIONS: ("_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv", ctypes.c_int64, []),
    t.OPERATOR_EXCLUDED: (
        "_ZN3c104impl31tls_is_dispatch_keyset_excludedENS_14DispatchKeySetE",
        ctypes.c_bool,
        [ctypes.c_uint64],
    ),
    t.OPERATOR_SET_RECORDS: ("aoti_torch_grad_mode_set_enabled", None, [ctypes.c_bool]),
}
"""Words of an operator: torch's functions, what they give and take."""


@functools.cache
def _answers() -> dict[int, int] | None:
    """The words of an operator that say who looks on; None where torch cannot be asked."""
    found: list[dict[int, int]] = []

    def ask() -> None:
        try:
            found.extend(_tried())
        except (AttributeError, OSError, TypeError):  # another torch, a compiler that names C++ functions otherwise
            return

    thread = threading.Thread(target=ask)  # in which nobody looks on
    thread.start()
    thread.join()
    return found[0] if found else None


def _tried() -> Iterable[dict[int, int]]:
    torch = sys.modules["torch"]
    functions: dict[int, Any] = {}
    for word, (name, result, arguments) in _QUESTIONS.items():
        functions[word] = getattr(torch_library(), name)
        functions[word].restype, functions[word].argtypes = result, arguments
    transform = int(torch._C.DispatchKey.FuncTorchDynamicLayerFrontMode)
    autocast = torch._C._dispatch_tls_local_exclude_set().raw_repr()

    def seen() -> tuple[bool, ...]:
        return (
            functions[t.OPERATOR_MODES]() != 0,
            functions[t.OPERATOR_INCLUDED](transform),
            functions[t.OPERATOR_FUNCTIONS]() != 0,
            not functions[t.OPERATOR_EXCLUDED](autocast),
        )

    def under(context: Any) -> tuple[bool, ...]:
        with context:
            return seen()

    contexts = (
        torch.utils._python_dispatch.TorchDispatchMode(),
        _transform(torch._C._functorch),
        torch.overrides.TorchFunctionMode(),
        torch.autocast("cpu"),
    )
    answers = [seen(), *map(under, contexts)]
    functions[t.OPERATOR_SET_RECORDS](False)
    recording = torch.is_grad_enabled()
    functions[t.OPERATOR_SET_RECORDS](True)
    expected = [tuple(place == on for place in range(4)) for on in (None, 0, 1, 2, 3)]
    if answers == expected and not recording and torch.is_grad_enabled():
        addresses = {word: address_of(function) for word, function in functions.items()}
        yield {**addresses, t.OPERATOR_TRANSFORM: transform, t.OPERATOR_AUTOCAST: autocast}


@contextlib.contextmanager
def _transform(functorch: Any) -> Iterator[None]:
    functorch._vmap_increment_nesting(1, "error")
    try:
        yield
    finally:
        functorch._vmap_decrement_nesting()


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
        during: (holder, name, value): an attribute while the function runs.

    Attributes:
        call: both of them in one built-in function; None where it cannot be made.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        observed: Callable[..., Any],
        floats: Iterable[int],
        during: tuple[Any, str, Any],
    ) -> None:
        self.call: Callable[..., Any] | None = None
        code = machine(SmallObjects())
        if code is None or not code.reads_torch or any(at > 62 for at in floats):
            return
        words = _answers()
        if words is None:
            return
        holder, name, value = during
        name = sys.intern(name)
        torch = sys.modules["torch"]
        classes = (torch.Tensor, torch.nn.Parameter, int, float, bool, str, type(None), torch.dtype, torch.device)
        assert tuple(kind.__name__ for kind in classes) == t.OPERATOR_KINDS
        self._words = (ctypes.c_uint64 * t.OPERATOR_WORDS)()
        for word, number in words.items():
            self._words[word] = number
        state = _State(ctypes.addressof(self._words))
        state.kept = [self._words, code, function, observed, holder, name, value]
        things = {
            t.OPERATOR_OBSERVED: observed, t.OPERATOR_FUNCTION: function, t.OPERATOR_HOLDER: holder,
            t.OPERATOR_NAME: name, t.OPERATOR_DURING: value,
        } | {t.OPERATOR_CLASSES + index: kind for index, kind in enumerate(classes)}  # fmt: skip
        for word, thing in things.items():
            self._words[word] = id(thing)
        self._words[t.OPERATOR_SHARED] = ctypes.addressof(code.shared)
        self._words[t.OPERATOR_FLOATS] = sum(1 << at for at in floats)
        self.call = code.builtin(code.operator, state)

    def allow(self, at_once: bool) -> None:
        """Whether `function` may be called at all; at the start it may not."""
        if self.call is not None:
            self._words[t.OPERATOR_READY] = int(at_once)
