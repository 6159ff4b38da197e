"""Calls of an operator without PyTorch's dispatcher, where it would do nothing but pass them on.

Graphs, exported programs and code that Inductor writes call the overload object. For an operator without gradients the
dispatcher matters to modes, transforms and subclasses of tensors; where there are none, and no profiler, the call goes
straight to what it would come to; after the first time all of that is machine code (`launch/native/operators.py`). An
operator that may have gradients looks at its tensors by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

import torch
from torch._ops import OpOverload, OpOverloadPacket

from tilewright.base.errors import DeviceError
from tilewright.hl.runtime.tracer_slot import transform

_dispatch_modes: Callable[[], int] = torch._C._len_torch_dispatch_stack
_function_modes: Callable[[], int] = torch._C._len_torch_function_stack
_profiled: Callable[[], bool] = torch._C._autograd._profiler_enabled
_autocast: Callable[[], bool] = torch._C._is_any_autocast_enabled
_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter, int, float, bool})


AtOnce = Callable[[Callable[..., None]], Callable[..., None] | None]


class DirectOverload(OpOverload):  # type: ignore[misc]  # torch is not checked
    """An overload that is called without the dispatcher where nobody observes it.

    Attributes:
        direct: what the dispatcher would call.
        at_once: makes both of them in machine code; None when that was tried.
    """

    __module__ = OpOverload.__module__  # graphs and caches write the name of the class down
    direct: Callable[..., Any]
    at_once: AtOnce | None

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if kwargs or _dispatch_modes() or _function_modes() or transform() is not None or _profiled():
            return self._op(*args, **kwargs)
        if _PLAIN.issuperset(map(type, args)):
            try:
                found = self.direct(*args)
            except DeviceError:  # before anything was launched: tensors of several devices, or on "meta"
                return self._op(*args)
            if self.at_once is not None:
                self._quicken()
            return found
        return self._op(*args)

    def _quicken(self) -> None:
        """Be called by machine code from now on, which is the method of a class of its own."""
        make, self.at_once = self.at_once, None
        call = None if make is None else make(MethodType(DirectOverload.__call__, self))
        if call is not None:
            self.__class__ = type(DirectOverload.__name__, (DirectOverload,), {"__call__": call})


def make_direct(overload: OpOverload, direct: Callable[..., Any], at_once: AtOnce | None = None) -> None:
    """Have `overload` call `direct` where nobody observes it.

    Args:
        overload: of an operator without gradients, with one implementation for all devices.
        direct: that implementation.
        at_once: makes what calls it, or its argument where somebody observes it, in machine code.
    """
    overload.__class__ = DirectOverload
    overload.direct, overload.at_once = direct, at_once


Quick = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
"""Does a call, or makes it by its first argument, which goes by the dispatcher: `quick(otherwise, args, kwargs)`."""


class QuickOverload(OpOverload):  # type: ignore[misc]  # torch is not checked
    """An overload that asks `quick` where no function mode, autocast or profiler is on."""

    __module__ = OpOverload.__module__
    quick: Quick

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if _function_modes() or _autocast() or _profiled():
            return self._op(*args, **kwargs)
        return self.quick(self._op, args, kwargs)


class QuickPacket(OpOverloadPacket):  # type: ignore[misc]  # torch is not checked
    """`torch.ops.library.name` of a `QuickOverload`."""

    __module__ = OpOverloadPacket.__module__
    __call__ = QuickOverload.__call__
    quick: Quick


def make_quick(packet: OpOverloadPacket, quick: Quick) -> None:
    """Have `torch.ops.library.name`, and its only overload, ask `quick` first.

    Args:
        packet: `torch.ops.library.name`.
        quick: sees to it itself that no dispatch mode and no transform is on.
    """
    for called, kind in ((packet, QuickPacket), (packet.default, QuickOverload)):
        called.__class__ = kind
        called.quick = quick
