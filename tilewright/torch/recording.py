"""A launch while somebody traces: the call of an operator.

`record` runs under Dynamo and everything else that traces. What need not be traced (binding, analysis,
definition of the operator) is behind `untraced`: constants in, constants out, keyed by the number of the kernel, on
which Dynamo guards; on nothing else of this package (`unguarded.py`).
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch.compiler import is_dynamo_compiling

from tilewright.base.callable import by_number
from tilewright.base.errors import ArgumentError, GridError, UnsupportedError
from tilewright.base.grids import Grid
from tilewright.launch.gradient import Gradient
from tilewright.launch.jit import JITFunction
from tilewright.torch import gradients
from tilewright.torch.arguments import Token, constant, flatten, untraced
from tilewright.torch.operators import Overloads, operator_for
from tilewright.torch.signature import Signature, autotuner_of, base_of, layers
from tilewright.torch.state import state
from tilewright.torch.unguarded import unguarded
from tilewright.tuning.autotune import Heuristics

Row = tuple[str, bool, str, Any]
"""Name of a parameter, whether it is constexpr, and where its argument comes from: see `_bind`."""
_POSITION, _REST, _KEYWORD, _DEFAULT = "position", "rest", "keyword", "default"

# --- not traced: constants in, constants out ----------------------------------------------------------------------


@untraced
def _bind(number: str, count: int, keywords: tuple[str, ...]) -> tuple[tuple[Row, ...], tuple[str, ...], bool]:
    """The arguments of a launch in order of the parameters, the keywords that are no parameters, and whether there is
    anything around the kernel.

    Args:
        number: of what is launched.
        count: how many positional arguments there are.
        keywords: names of the others.

    Returns:
        Rows ending in ("position", index), ("rest", first index), ("keyword", name) or ("default", (value, token)); the
        token of one that is no compile-time constant is None. Dynamo of PyTorch 2.11 reads no attributes of values that
        come from here, such as types of elements.

    Raises:
        ArgumentError: an argument is missing, or there are too many.
    """
    kernel = by_number(number)
    name, params = base_of(kernel).fn.__name__, base_of(kernel).params
    later = _given_later(kernel)
    rows: list[Row] = []
    taken = 0
    for param in params:
        if param.kind is inspect.Parameter.VAR_POSITIONAL:
            rows.append((param.name, param.is_constexpr, _REST, taken))
            taken = count
        elif taken < count:
            rows.append((param.name, param.is_constexpr, _POSITION, taken))
            taken += 1
        elif param.name in keywords:
            rows.append((param.name, param.is_constexpr, _KEYWORD, param.name))
        elif param.name in later:
            continue
        elif param.has_default:
            token = constant(param.default, param.name) if param.is_constexpr else None
            rows.append((param.name, param.is_constexpr, _DEFAULT, (param.default, token)))
        else:
            raise ArgumentError(f"{name}: missing argument `{param.name}`")
    if taken < count:
        raise ArgumentError(f"{name}: {count - taken} positional arguments too many")
    known = {param.name for param in params}
    return tuple(rows), tuple(word for word in keywords if word not in known), not isinstance(kernel, JITFunction)


def _given_later(kernel: Any) -> set[str]:
    """Parameters whose arguments come from heuristics or from configurations."""
    later = {name for layer in layers(kernel) if isinstance(layer, Heuristics) for name in layer.values}
    tuner = autotuner_of(kernel)
    return later | ({name for config in tuner.configs for name in config.kwargs} if tuner is not None else set())


@untraced
def _configurations(number: str) -> tuple[tuple[tuple[str, Any], ...], ...]:
    """The parameters that each configuration of an autotuner gives; one empty one for a kernel without."""
    tuner = autotuner_of(by_number(number))
    return ((),) if tuner is None else tuple(tuple(config.kwargs.items()) for config in tuner.configs)


@untraced
def _operator(number: str, *signature: Any) -> str:
    """Name of the operator of a launch."""
    if state.doing.operator is not None:
        state.doing.operator.launched(base_of(by_number(number)))
    return operator_for(Signature(number, *signature))


@untraced
def _advise(number: str) -> None:
    if state.doing.operator is None:
        gradients.advise(base_of(by_number(number)))


@untraced
def _refuse_grid(rank: int) -> None:
    raise GridError(f"a grid has 1 to 3 dimensions, got {rank}", hint="write kernel[(x, y, z)](...)")


# --- traced by Dynamo ---------------------------------------------------------------------------------------------


@unguarded
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


@unguarded
def _grid(grid: Grid, meta: dict[str, Any]) -> tuple[Any, ...]:
    """The grid as one to three integers, symbolic ones among them."""
    sizes = grid(meta) if callable(grid) else grid
    found = tuple(sizes) if isinstance(sizes, (tuple, list)) else (sizes,)
    if not 1 <= len(found) <= 3:
        _refuse_grid(len(found))
    return found


@unguarded
def described(kernel: Any, grid: Grid, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, list[Any]]:
    """A launch in constants (the fields of its `Signature`), and its run-time values, with the grid at the end.

    Args:
        kernel: a kernel, or an autotuner or heuristics around one.
        grid: as the user wrote it.
        args, kwargs: of the launch.
    """
    number = kernel.number
    rows, others, is_wrapped = _bind(number, len(args), tuple(kwargs))
    tokens: list[Any] = []
    values: list[Any] = []
    meta: dict[str, Any] = {}
    for name, is_constexpr, source, where in rows:
        if source == _POSITION:
            value = args[where]
        elif source == _KEYWORD:
            value = kwargs[where]
        else:
            value = args[where:] if source == _REST else where[0]
        meta[name] = value
        if is_constexpr:
            tokens.append((name, where[1] if source == _DEFAULT else constant(value, name)))
        else:
            tokens.append((name, flatten(value, name, values)))
    grids: list[Any] = []
    computed: list[tuple[tuple[str, Token], ...]] = []
    for config in _configurations(number):
        for name, value in config:
            meta[name] = value
        found, rest = _heuristics(kernel, meta) if is_wrapped else (meta, ())
        grids.append(_grid(grid, found))
        computed.append(rest)
    if torch.is_grad_enabled() and any(isinstance(v, torch.Tensor) and v.requires_grad for v in values):
        _advise(number)
    rank = max([len(programs) for programs in grids])
    for programs in grids:
        values.extend((*programs, 1, 1)[:rank])
    options = tuple((name, kwargs[name]) for name in others)
    return (number, tuple(tokens), options, tuple(computed), rank), values


@unguarded
def record(kernel: Any, grid: Grid, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Call the operator of a launch; the arguments are those of `described`.

    Raises:
        UnsupportedError: the launch is of a gradient.
    """
    if isinstance(kernel, Gradient):
        raise UnsupportedError(
            f"the gradient of `{kernel.kernel.fn.__name__}` was launched where PyTorch traces, which cannot record it",
            hint="launch the kernel in a triton_op(..., autograd=True), or the gradient in a torch.library.custom_op",
        )
    if not is_dynamo_compiling() and not hasattr(kernel, "number"):  # there a guard of every call
        raise UnsupportedError(
            f"`{type(kernel).__name__}` launches kernels in a way of its own, which PyTorch's tracers cannot follow",
            hint="make the launch in a torch.library.custom_op, or launch the kernel inside of it",
        )
    signature, values = described(kernel, grid, args, kwargs)
    getattr(Overloads, _operator(*signature))(*values)
