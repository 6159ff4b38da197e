"""`kernel[grid]` with this package imported: recorded where somebody traces, launched where nobody does.

::

    kernel[grid] -> Dynamo traces, or a mode or transform is active, or an argument is no plain tensor
                      yes: recording.py, the kernel's operator is called
                      no:  launch; then version counters, and the rule of gradients (gradients.py)

Machine code asks the same and makes launches that it knows by itself (`launch/native/watching.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.compiler import is_dynamo_compiling

from tilewright.base.errors import DeviceError, TilewrightError
from tilewright.base.grids import Grid
from tilewright.base.tracebacks import shorten_traceback
from tilewright.compile.specialize import Path
from tilewright.devices.host_descriptor import TensorDescriptor
from tilewright.hl.runtime.tracer_slot import transform
from tilewright.launch import tracer_slot
from tilewright.launch.jit import JITFunction
from tilewright.torch import gradients, operators
from tilewright.torch.aliasing import increment_version
from tilewright.torch.recording import described, record
from tilewright.torch.signature import Signature, base_of
from tilewright.torch.state import state
from tilewright.torch.unguarded import unguarded

_PLAIN = frozenset({int, float, bool, str, type(None)})
_TENSORS = frozenset({torch.Tensor, torch.nn.Parameter})
_dispatch_modes: Callable[[], int] = torch._C._len_torch_dispatch_stack
_TRACERS = tuple(getattr(torch._C._TorchDispatchModeKey, name) for name in ("FAKE", "PROXY", "FUNCTIONAL"))


def _graph_is_made() -> bool:
    """Whether a graph is made of what runs, or nothing runs; modes of users (counters, loggers) only look on."""
    return transform() is not None or any(torch._C._get_dispatch_mode(key) is not None for key in _TRACERS)


def _outside_dynamo(kernel: Any, grid: Grid, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A launch, unless somebody else traces, or an argument is a tensor of some tracer."""
    recording, operator, trial = state.doing
    if trial is not None:
        return trial(kernel, grid, args, kwargs)
    if recording:
        if transform() is not None:
            gradients.refuse_transforms(kernel, (*args, *kwargs.values()))
        if _dispatch_modes() > tracer_slot.onlookers.count or transform() is not None:
            try:
                return record(kernel, grid, args, kwargs)
            except operators.NoEffectError:
                if _graph_is_made():
                    raise
        wants_gradient = False
        for value in (*args, *kwargs.values()) if kwargs else args:
            cls = value.__class__
            if cls in _TENSORS:
                if value.requires_grad:
                    wants_gradient = True
            elif cls not in _PLAIN and isinstance(value, torch.Tensor):
                return record(kernel, grid, args, kwargs)
        if wants_gradient and torch.is_grad_enabled() and kernel.__class__ is JITFunction and operator is None:
            gradients.advise(kernel)
    try:
        compiled = kernel.launcher(grid)(*args, **kwargs)
    except DeviceError:
        if any(isinstance(value, torch.Tensor) and value.is_meta for value in (*args, *kwargs.values())):
            return record(kernel, grid, args, kwargs)  # which checks, and launches nothing
        raise
    if kernel.__class__ is JITFunction:  # autotuners and heuristics launch by way of the slot again
        if operator is not None and kernel.number not in operator.known:
            operator.launched(kernel)
        changed = _changed(kernel, compiled, args, kwargs)
        if changed:
            increment_version(changed)
    return compiled


_written: dict[str, tuple[Path, ...] | None] = {}  # by the hash of a compiled kernel; None is everything


def _changed(kernel: JITFunction, compiled: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The tensors that a launch may have written; all of them where that is not known."""
    if compiled is None:
        return _changed_by_interpreter(kernel, args, kwargs)
    try:
        places = _written[compiled.hash]
    except KeyError:
        places = _written[compiled.hash] = _places_written(compiled)
    if places is None:
        return [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
    found = []
    for path in places:
        index = path[0]
        value = args[index] if index < len(args) else kwargs.get(kernel.params[index].name)
        for step in path[1:]:
            if hasattr(value, "tma_desc_cpu_ptr"):  # a map of the host says where its tensor lies, not which it is
                break
            value = value.base if isinstance(value, TensorDescriptor) else value[step]  # type: ignore[index]
        if isinstance(value, torch.Tensor):
            found.append(value)
    return found


def _changed_by_interpreter(kernel: JITFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The same where a kernel was interpreted: what its analysis says, or everything if it cannot be compiled."""
    try:
        with torch.no_grad():
            signature, values = described(kernel, 1, args, kwargs)
        if signature not in _interpreted:
            _interpreted[signature] = tuple(operators.described(Signature(*signature)).written)
        found = [values[place] for place in _interpreted[signature]]
    except (TilewrightError, TypeError, AttributeError):  # numpy arrays have no description here
        found = [*args, *kwargs.values()]
    return [value for value in found if isinstance(value, torch.Tensor)]


_interpreted: dict[Any, tuple[int, ...]] = {}


def _places_written(compiled: Any) -> tuple[Path, ...] | None:
    """Paths of the arguments that a compiled kernel writes; None where that is not known."""
    if compiled.metadata["stores_anywhere"]:
        return None
    paths = compiled.specialization.runtime_paths
    return tuple(paths[slot] for slot in compiled.metadata["stored"])


class Launch:
    """What `kernel[grid]` is where machine code cannot make it: under Dynamo, and ahead of the first launch.

    Args:
        kernel: a kernel, or an autotuner or heuristics around one.
        grid: as the user wrote it.
    """

    def __init__(self, kernel: Any, grid: Grid) -> None:
        self.kernel = kernel
        self.grid = grid

    @unguarded
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Record the launch, or make it."""
        if is_dynamo_compiling():
            return record(self.kernel, self.grid, args, kwargs)
        try:
            if tracer_slot.over is not None:
                return tracer_slot.over(self.kernel, self.grid, *args, **kwargs)
            return _outside_dynamo(self.kernel, self.grid, args, kwargs)
        except Exception as error:
            shorten_traceback(error)
            raise


@unguarded
def launch_over(kernel: Any, grid: Grid) -> Any:
    """`kernel[grid]`: see `launch/tracer_slot.py`."""
    if is_dynamo_compiling() or tracer_slot.over is None:
        return Launch(kernel, grid)
    return partial(tracer_slot.over, kernel, grid)


def _traced(kernel: Any, grid: Grid, /, *args: Any, **kwargs: Any) -> Any:
    try:
        return _outside_dynamo(kernel, grid, args, kwargs)
    except Exception as error:
        shorten_traceback(error)
        raise


def _is_unseen(kernel: Any) -> bool:
    """Whether a launch in the body of an operator, or where recording is switched off, is one like many before it."""
    recording, operator, trial = state.doing
    return trial is None and not recording and (operator is None or base_of(kernel).number in operator.known)


def _let_dynamo_follow(over: Any) -> None:
    """Have Dynamo record a launch `over(kernel, grid, ...)` that was prepared before it came."""

    @unguarded
    def followed(kernel: Any, grid: Grid, *args: Any, **kwargs: Any) -> Any:
        return record(kernel, grid, args, kwargs)

    if not _followed:
        _followed.append(over)
        torch.compiler.substitute_in_graph(over, skip_signature_check=True)(followed)


_followed: list[Any] = []
WATCH = tracer_slot.Watch(_traced, state, state.doing, _is_unseen, _let_dynamo_follow)
