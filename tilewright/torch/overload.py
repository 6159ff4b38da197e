"""Calls of an operator without PyTorch's dispatcher, where it would do nothing but pass them on.

Graphs, exported programs and code that Inductor writes call the overload object. For an operator without gradients the
dispatcher matters to modes, transforms and subclasses of tensors; where there are none, and no profiler, the call goes
straight to what it would come to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload

from tilewright.base.errors import DeviceError

_dispatch_modes: Callable[[], int] = torch._C._len_torch_dispatch_stack
_function_modes: Callable[[], int] = torch._C._len_torch_function_stack
_transform: Callable[[], Any] = torch._C._functorch.peek_interpreter_stack
_profiled: Callable[[], bool] = torch._C._autograd._profiler_enabled
_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter, int, float, bool})


class DirectOverload(OpOverload):  # type: ignore[misc]  # torch is not checked
    """An overload that is called without the dispatcher where nobody observes it.

    Attributes:
        direct: what the dispatcher would call.
    """

    __module__ = OpOverload.__module__  # graphs and caches write the name of the class down
    direct: Callable[..., None]

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if kwargs or _dispatch_modes() or _function_modes() or _transform() is not None or _profiled():
            return self._op(*args, **kwargs)
        if _PLAIN.issuperset(map(type, args)):
            try:
                return self.direct(*args)
            except DeviceError:  # before anything was launched: tensors of several devices, or on "meta"
                pass
        return self._op(*args)


def make_direct(overload: OpOverload, direct: Callable[..., None]) -> None:
    """Have `overload` call `direct` where nobody observes it.

    Args:
        overload: of an operator without gradients, with one implementation for all devices.
        direct: that implementation.
    """
    overload.__class__ = DirectOverload
    overload.direct = direct
