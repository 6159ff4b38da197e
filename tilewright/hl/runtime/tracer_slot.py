"""The slot of the tracers: who is asked when a kernel is called where somebody looks on.

A library that records calls instead of making them (`tilewright.torch`) puts a function here. It is asked where
`torch.compile` traces, where a mode or a transform is active, and for tensors of classes of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._subclasses import FakeTensor
from torch.compiler import is_dynamo_compiling
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from tilewright.hl import exc
from tilewright.hl.trace.carried import leaves

Tracer = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]

modes: Callable[[], int] = torch._C._len_torch_dispatch_stack
transform: Callable[[], Any] = torch._C._functorch.peek_interpreter_stack
PLAIN = frozenset((torch.Tensor, torch.nn.Parameter, torch.nn.Buffer))
"""Classes of tensors that take no part in what is done with them."""
_tracer: Tracer | None = None


def install(found: Tracer | None) -> None:
    """Put `found` in the slot, or nobody. It is called with the kernel and the arguments of a call."""
    global _tracer
    _tracer = found


def is_observed(args: Sequence[Any]) -> bool:
    """Whether a call with these arguments is somebody else's affair."""
    if (modes() and any(map(_records, _get_current_dispatch_mode_stack()))) or transform() is not None:
        return _tracer is not None
    return any(isinstance(leaf, torch.Tensor) and type(leaf) not in PLAIN for _, leaf in leaves(args))


def _records(mode: Any) -> bool:
    """Whether a dispatch mode does more with calls than to look on."""
    return not getattr(mode, "only_looks_on", False)


def traced(kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What the tracer makes of a call.

    Raises:
        TracerNeeded: nobody is in the slot.
        UnsupportedPythonType: nor is anybody needed but for the class of a tensor.
    """
    if _tracer is None and not is_dynamo_compiling():
        classes = {type(leaf) for _, leaf in leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)} - PLAIN
        if classes - {FakeTensor} and not modes() and transform() is None:
            raise exc.UnsupportedPythonType(
                f"an argument is of the class {', '.join(sorted(kind.__qualname__ for kind in classes))}, which may "
                "take part in what is done with it",
                hint="pass x.as_subclass(torch.Tensor), or import tilewright.torch first: then the class is asked",
            )
    if _tracer is None:
        if is_dynamo_compiling():  # which cannot raise our exceptions itself: it shows this, or leaves it to Python
            torch._dynamo.graph_break(msg="import tilewright.torch first: then a kernel is an operator to PyTorch")
        raise exc.TracerNeeded(
            "a kernel is called where PyTorch traces: under torch.compile or torch.export, or on tensors without data",
            hint="import tilewright.torch first: then a kernel is an operator to PyTorch",
        )
    return _tracer(kernel, args, kwargs)
