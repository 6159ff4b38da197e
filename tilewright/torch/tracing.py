"""Launches while somebody traces: `kernel[grid](...)` becomes a call of the kernel's operator.

::

    kernel[grid] -> Dynamo traces, or a mode or transform is active, or an argument is no plain tensor
                      yes: flatten the arguments, evaluate the grid once per configuration, call the operator
                      no:  launch; then version counters, and the rule of gradients (gradients.py)

`Recorder.__call__` runs under Dynamo. What Dynamo need not see (analysis, definition of the operator) is behind
`assume_constant_result`: constants in, constants out, keyed by the number of the kernel, on which Dynamo guards.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch

from tilewright.base.callable import by_number
from tilewright.base.errors import ArgumentError, DeviceError, GridError
from tilewright.compile.specialize import Path
from tilewright.devices.host_descriptor import TensorDescriptor
from tilewright.launch.jit import JITFunction
from tilewright.torch import gradients
from tilewright.torch.arguments import Token, constant, flatten, untraced
from tilewright.torch.memory import increment_version
from tilewright.torch.operators import operator_for
from tilewright.torch.signature import Signature, autotuner_of, base_of, layers
from tilewright.torch.state import state
from tilewright.tuning.autotune import Heuristics

_Tensor, _Parameter = torch.Tensor, torch.nn.Parameter
_PLAIN = frozenset({int, float, bool, str, type(None)})
_dispatch_modes: Callable[[], int] = torch._C._len_torch_dispatch_stack
_transform: Callable[[], Any] = torch._C._functorch.peek_interpreter_stack


def tracer(kernel: Any, grid: Any) -> Callable[..., Any]:
    """What `kernel[grid]` gives: see `launch/door.py`."""
    if torch.compiler.is_dynamo_compiling():
        return Recorder(kernel, grid)
    if not state.recording:
        return functools.partial(_launch, kernel, grid)
    if _dispatch_modes() or _transform() is not None:
        return Recorder(kernel, grid)
    return functools.partial(_launch_unless_traced, kernel, grid)


def _launch_unless_traced(kernel: Any, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
    """A launch, unless an argument is a tensor of some tracer."""
    wants_gradient = False
    for value in (*args, *kwargs.values()) if kwargs else args:
        cls = value.__class__
        if cls is _Tensor or cls is _Parameter:
            if value.requires_grad:
                wants_gradient = True
        elif cls not in _PLAIN and isinstance(value, _Tensor):
            return Recorder(kernel, grid)(*args, **kwargs)
    if wants_gradient and torch.is_grad_enabled() and kernel.__class__ is JITFunction and not state.operators:
        gradients.advise(kernel)
    try:
        return _launch(kernel, grid, *args, **kwargs)
    except DeviceError:
        if any(isinstance(value, _Tensor) and value.is_meta for value in (*args, *kwargs.values())):
            return Recorder(kernel, grid)(*args, **kwargs)  # which checks, and launches nothing
        raise


def _launch(kernel: Any, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
    """A launch, counted as a change of what it writes; wrappers of kernels launch through the door again."""
    compiled = kernel.launcher(grid)(*args, **kwargs)
    if kernel.__class__ is JITFunction:
        if state.operators:
            state.operators[-1].launched(kernel)
        changed = _changed(kernel, compiled, args, kwargs)
        if changed:
            increment_version(changed)
    return compiled


_written: dict[str, tuple[Path, ...] | None] = {}  # by the hash of a compiled kernel; None is everything


def _changed(kernel: JITFunction, compiled: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The tensors that a launch may have written; all of them where that is not known."""
    places = None
    if compiled is not None:  # what is interpreted has no analysis
        try:
            places = _written[compiled.hash]
        except KeyError:
            places = _written[compiled.hash] = _places_written(compiled)
    if places is None:
        return [value for value in (*args, *kwargs.values()) if isinstance(value, _Tensor)]
    found = []
    for path in places:
        index = path[0]
        value = args[index] if index < len(args) else kwargs.get(kernel.params[index].name)
        for step in path[1:]:
            value = value.base if isinstance(value, TensorDescriptor) else value[step]  # type: ignore[index]
        if isinstance(value, _Tensor):
            found.append(value)
    return found


def _places_written(compiled: Any) -> tuple[Path, ...] | None:
    """Paths of the arguments that a compiled kernel writes; None where that is not known."""
    if compiled.metadata["stores_anywhere"]:
        return None
    paths = compiled.specialization.runtime_paths
    return tuple(paths[slot] for slot in compiled.metadata["stored"])


class Recorder:
    """`kernel[grid]` while somebody traces.

    Args:
        kernel: a kernel, or an autotuner or heuristics around one.
        grid: as the user wrote it.
    """

    def __init__(self, kernel: Any, grid: Any) -> None:
        self.kernel = kernel
        self.grid = grid

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Call the operator of these arguments."""
        kernel = self.kernel
        number = kernel.number
        bound, options = _bind(number, args, kwargs)
        tokens = []
        values: list[Any] = []
        for name, value, is_constexpr in bound:
            tokens.append((name, constant(value, name) if is_constexpr else flatten(value, name, values)))
        meta = {name: value for name, value, _ in bound}
        grids: list[Any] = []
        computed: list[tuple[tuple[str, Token], ...]] = []
        for config in _configurations(number):
            found, rest = _heuristics(kernel, {**meta, **dict(config)}) if _is_wrapped(number) else (meta, ())
            grids.extend(_grid3(self.grid, found))
            computed.append(rest)
        if torch.is_grad_enabled() and _requires_grad(values):
            _advise(number)
        name = _operator(number, tuple(tokens), options, tuple(computed))
        getattr(torch.ops.tilewright_kernels, name).default(*values, *grids)


# --- traced by Dynamo ---------------------------------------------------------------------------------------------


def _bind(number: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], tuple[Any, ...]]:
    """(name, value, is it a constant) of each argument in order, and the keywords that are no parameters."""
    bound = []
    position = 0
    names = []
    for name, is_constexpr, is_variadic, default in _parameters(number):
        names.append(name)
        if is_variadic:
            bound.append((name, tuple(args[position:]), is_constexpr))
            position = len(args)
        elif position < len(args):
            bound.append((name, args[position], is_constexpr))
            position += 1
        elif name in kwargs:
            bound.append((name, kwargs[name], is_constexpr))
        elif default == _GIVEN_LATER:
            continue
        elif default == _MISSING:
            _refuse(number, f"missing argument `{name}`")
        else:
            bound.append((name, default[0], is_constexpr))
    if position < len(args):
        _refuse(number, f"{len(args) - position} positional arguments too many")
    return bound, tuple([(name, value) for name, value in kwargs.items() if name not in names])


def _heuristics(kernel: Any, meta: dict[str, Any]) -> tuple[dict[str, Any], tuple[tuple[str, Token], ...]]:
    """`meta` with what heuristics compute of it, and that alone as tokens."""
    found = []
    layer = kernel
    while not isinstance(layer, JITFunction):
        if isinstance(layer, Heuristics):
            for name, compute in layer.values.items():
                meta = {**meta, name: compute(meta)}
                found.append((name, constant(meta[name], name)))
        layer = layer.fn
    return meta, tuple(found)


def _grid3(grid: Any, meta: dict[str, Any]) -> tuple[Any, ...]:
    """The grid as three integers, symbolic ones among them."""
    if callable(grid):
        grid = grid(meta)
    if not isinstance(grid, (tuple, list)):
        grid = (grid,)
    if not 1 <= len(grid) <= 3:
        _refuse_grid(len(grid))
    return (*grid, 1, 1)[:3]


def _requires_grad(values: list[Any]) -> bool:
    return any(isinstance(value, torch.Tensor) and value.requires_grad for value in values)


# --- not traced: constants in, constants out ----------------------------------------------------------------------

_GIVEN_LATER, _MISSING = "later", "missing"


@untraced
def _parameters(number: str) -> tuple[tuple[str, bool, bool, Any], ...]:
    """(name, is constexpr, is variadic, default) of the parameters of a kernel; a default stands in a tuple."""
    kernel = by_number(number)
    later = {name for layer in layers(kernel) if isinstance(layer, Heuristics) for name in layer.values}
    tuner = autotuner_of(kernel)
    later |= {name for config in tuner.configs for name in config.kwargs} if tuner is not None else set()
    rows = []
    for param in base_of(kernel).params:
        default = (param.default,) if param.has_default else _MISSING
        variadic = param.kind is inspect.Parameter.VAR_POSITIONAL
        rows.append((param.name, param.is_constexpr, variadic, _GIVEN_LATER if param.name in later else default))
    return tuple(rows)


@untraced
def _configurations(number: str) -> tuple[tuple[tuple[str, Any], ...], ...]:
    """The parameters that each configuration of an autotuner gives; one empty one for a kernel without."""
    tuner = autotuner_of(by_number(number))
    return ((),) if tuner is None else tuple(tuple(config.kwargs.items()) for config in tuner.configs)


@untraced
def _is_wrapped(number: str) -> bool:
    return not isinstance(by_number(number), JITFunction)


@untraced
def _operator(number: str, tokens: Any, options: Any, computed: Any) -> str:
    """Name of the operator of a launch."""
    if state.operators:
        state.operators[-1].launched(base_of(by_number(number)))
    return operator_for(Signature(number, tokens, options, computed))


@untraced
def _advise(number: str) -> None:
    if not state.operators:
        gradients.advise(base_of(by_number(number)))


@untraced
def _refuse(number: str, message: str) -> None:
    raise ArgumentError(f"{base_of(by_number(number)).fn.__name__}: {message}")


@untraced
def _refuse_grid(rank: int) -> None:
    raise GridError(f"a grid has 1 to 3 dimensions, got {rank}", hint="write kernel[(x, y, z)](...)")
