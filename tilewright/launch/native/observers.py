"""Who looks on in PyTorch: dispatch modes, function modes, transforms, autocast; and whether autograd records.

Each is asked by a C++ function of torch, which is tried with its observer on and off, in a thread of its own, before
the first use.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from tilewright.backends.llvm.calls import tables as t
from tilewright.launch.native.libtorch import address_of, torch_library

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
def answers() -> dict[int, int] | None:
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


@functools.cache
def profiled() -> int:
    """Address of torch's function that tells whether a profiler is on in this thread; 0 where there is none."""
    try:
        function = torch_library()._ZN5torch8profiler4impl15profilerEnabledEv
    except (StopIteration, AttributeError, OSError):
        return 0
    function.restype, function.argtypes = ctypes.c_bool, ()
    return address_of(function) if function() is sys.modules["torch"]._C._autograd._profiler_enabled() else 0


@contextlib.contextmanager
def _transform(functorch: Any) -> Iterator[None]:
    functorch._vmap_increment_nesting(1, "error")
    try:
        yield
    finally:
        functorch._vmap_decrement_nesting()
