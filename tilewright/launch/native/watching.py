"""How machine code finds out whether a tracer of torch would see a launch (`launch/door.py`).

It calls the C++ functions behind `torch._C._len_torch_dispatch_stack` and `peek_interpreter_stack`, and counts changes
of tensors where torch has their version counters. Each is tried first: a mode and a transform are turned on, and
counters are compared with `_version`. Where one is not as it must be, every launch goes to the tracer.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable
from typing import Any

from tilewright.backends.llvm.calls import tables as t
from tilewright.launch import door
from tilewright.launch.native.libtorch import address_of, torch_library

_MODES = "_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv"  # int64_t c10::impl::TorchDispatchModeTLS::stack_len()
_LAYERS = "_ZN2at9functorch20getDynamicLayerStackEv"  # const std::vector<DynamicLayer>& at::functorch::...()
_VERSION = "_ZN5torch8autograd4impl15version_counterERKN2at6TensorE"  # const c10::VariableVersion& ...(const Tensor&)
_NUMBERS = (16, 24)  # where a counter may have its number: behind its class, and one or two counts of references


def attend(shared: Any, over: Callable[..., Any], knows_torch: Callable[[Any], bool]) -> None:
    """Keep `shared` told of the tracer at the door, and the tracer of `over`.

    Args:
        shared: the words of the process.
        over: `over(kernel, grid, *args, **kwargs)` in machine code.
        knows_torch: finds out where tensors are; says whether it could.
    """

    def changed() -> None:
        watch = door.watch
        door.over = None if watch is None else over
        places = (0, 0, 0, 0)
        if watch is not None:
            objects = {
                t.SHARED_TRACED: watch.traced, t.SHARED_DOING: watch.doing, t.SHARED_DOING_NAME: _NAME,
                t.SHARED_USUAL: watch.usual, t.SHARED_JUDGE: watch.judge,
            }  # fmt: skip
            for word, thing in objects.items():
                shared[word] = id(thing)
            _kept.append(watch)  # a launch may be in there
            if knows_torch(shared) and shared[t.SHARED_DATA]:
                places = _places(shared[t.SHARED_CDATA]) or places
            watch.followed(over)
        for index, place in enumerate(places):
            shared[t.SHARED_MODES + index] = place

    door.listeners.append(changed)
    changed()


_NAME = sys.intern("doing")
_kept: list[Any] = []


@functools.cache
def _places(cdata: int) -> tuple[int, int, int, int] | None:
    """The words from SHARED_MODES on; None where torch is not as expected.

    Args:
        cdata: where a tensor object has its tensor.
    """
    try:
        library = torch_library()
        modes, layers, version = (getattr(library, name) for name in (_MODES, _LAYERS, _VERSION))
        modes.restype, layers.restype = ctypes.c_int64, ctypes.c_void_p
        version.restype, version.argtypes = ctypes.c_void_p, (ctypes.c_void_p,)
        if not _sees_modes(modes) or not _sees_transforms(layers):
            return None
        counters = _counters(version, cdata)
    except (StopIteration, OSError, AttributeError):  # a compiler that names C++ functions otherwise, or another torch
        return None
    return None if counters is None else (address_of(modes), address_of(layers), *counters)


def _sees_modes(modes: Any) -> bool:
    torch = sys.modules["torch"]
    before = modes()
    with torch.utils._python_dispatch.TorchDispatchMode():
        inside = modes()
    return bool(before == torch._C._len_torch_dispatch_stack() and inside == before + 1)


def _sees_transforms(layers: Any) -> bool:
    functorch = sys.modules["torch"]._C._functorch

    def depth() -> int:
        begin, end = (ctypes.c_size_t * 2).from_address(layers())
        return int(end - begin)

    before = depth()
    functorch._grad_increment_nesting()
    try:
        inside = depth()
    finally:
        functorch._grad_decrement_nesting()
    return (before == 0) is (functorch.peek_interpreter_stack() is None) and inside > before


def _counters(version: Any, cdata: int) -> tuple[int, int] | None:
    """Where a tensor has its version counter, and where that has its number."""
    torch = sys.modules["torch"]
    with torch.inference_mode(False), torch.no_grad():
        probes = [torch.zeros(3), torch.zeros(4)[1:], torch.nn.Parameter(torch.zeros(2)), torch.zeros(2)]
        for count, probe in enumerate(probes):
            for _ in range(3 * count + 1):
                probe.zero_()
    places = {version(id(probe) + cdata) - probe._cdata for probe in probes}
    if len(places) != 1:
        return None
    (place,) = places
    for number in _NUMBERS:
        counters = [ctypes.c_size_t.from_address(probe._cdata + place).value for probe in probes]
        if all(
            counter and ctypes.c_uint32.from_address(counter + number).value == probe._version
            for counter, probe in zip(counters, probes, strict=True)
        ):
            return place, number
    return None
