"""How machine code finds out whether a tracer of torch would see a launch (`launch/tracer_slot.py`).

It asks for modes and transforms (`observers.py`), and counts changes of tensors where torch has their version counters,
which are compared with `_version` first. Where one is not as it must be, every launch goes to the tracer.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable
from typing import Any

from tilewright.backends.llvm.calls import tables as t
from tilewright.launch import tracer_slot
from tilewright.launch.native.libtorch import torch_library
from tilewright.launch.native.observers import answers

_VERSION = "_ZN5torch8autograd4impl15version_counterERKN2at6TensorE"  # const c10::VariableVersion& ...(const Tensor&)
_NUMBERS = (16, 24)  # where a counter may have its number: behind its class, and one or two counts of references


def attend(shared: Any, over: Callable[..., Any], knows_torch: Callable[[Any], bool]) -> None:
    """Keep `shared` told of the tracer in the slot, and the tracer of `over`.

    Args:
        shared: the words of the process.
        over: `over(kernel, grid, *args, **kwargs)` in machine code.
        knows_torch: finds out where tensors are; says whether it could.
    """

    def changed() -> None:
        watch = tracer_slot.watch
        tracer_slot.over = None if watch is None else over
        places: tuple[int, ...] = (0,) * (t.SHARED_LAYOUT - t.SHARED_MODES)
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

    tracer_slot.listeners.append(changed)
    changed()


_NAME = sys.intern("doing")
_kept: list[Any] = []


@functools.cache
def _places(cdata: int) -> tuple[int, ...] | None:
    """The words from SHARED_MODES on; None where torch is not as expected.

    Args:
        cdata: where a tensor object has its tensor.
    """
    try:
        version = getattr(torch_library(), _VERSION)
    except (StopIteration, OSError, AttributeError):  # a compiler that names C++ functions otherwise, or another torch
        return None
    version.restype, version.argtypes = ctypes.c_void_p, (ctypes.c_void_p,)
    words, counters = answers(), _counters(version, cdata)
    if words is None or counters is None:
        return None
    return (words[t.OPERATOR_MODES], words[t.OPERATOR_INCLUDED], words[t.OPERATOR_TRANSFORM], *counters)


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
