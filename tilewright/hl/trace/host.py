"""Tracing a kernel: arguments become meta tensors and symbols, host statements run on them, loops become graphs."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from tilewright import errors
from tilewright.hl import exc
from tilewright.hl.constexpr import ConstExpr
from tilewright.hl.dims import Axis
from tilewright.hl.graph.nodes import Graph, walk
from tilewright.hl.graph.text import graph_text, node_text
from tilewright.hl.symbols import Sym, number_needed, set_hooks, show, substitute
from tilewright.hl.trace import branches, builtins, loops, statements
from tilewright.hl.trace.modes import DispatchMode, FunctionMode
from tilewright.hl.trace.samples import Sampling, literals
from tilewright.hl.trace.source import Source
from tilewright.hl.trace.state import Trace, current, tracing
from tilewright.hl.trace.statements import Interpreter

statements.provide("run", loops.run_loop)
statements.provide("if", branches.run_if)
statements.provide("while", branches.run_while)


@dataclass
class Traced:
    """What a binding knows of a kernel.

    Args:
        source: the kernel's text.
        graphs: one per top-level loop, in order.
        axes: every axis.
        slots: the axes that the configuration sizes.
        folded: host `if` statements that hold loops, with the arm that was taken.
        scope: names that the function sees besides its own.
        constants: results of calls that the launcher has constants for, in order.
        guards: (expression of the arguments, what it must be).
        device: the device of the kernel's tensors.
        tunables: choices that the program itself leaves to the configuration, by name.
    """

    source: Source
    graphs: list[Graph]
    axes: list[Axis]
    slots: list[Axis]
    folded: dict[int, list[ast.stmt]]
    scope: dict[str, Any]
    constants: list[Any]
    guards: list[tuple[str, Any]]
    device: Any
    tunables: dict[str, Any] = field(default_factory=dict)


class _Equal(Exception):
    """Two expressions of the host are equal: the trace starts again with one sample for both."""

    def __init__(self, left: str, right: str) -> None:
        super().__init__(left, right)
        self.pair = left, right


def trace_kernel(source: Source, scope: dict[str, Any], arguments: dict[str, Any], options: Any) -> Traced:
    """Trace a kernel twice, with other samples.

    Args:
        source: the kernel's text.
        scope: names that the kernel's module defines.
        arguments: the values of the parameters.
        options: settings; `static_shapes` and `check_trace` are read.

    Raises:
        LeakedSample: the two traces differ.
    """
    constants = set(source.integers())
    for argument in arguments.values():
        constants.update(_integers(argument))
    equal: dict[str, str] = {}
    first = _settled(source, scope, arguments, options, constants, equal, 0)
    if options.check_trace:
        _compare(first, _settled(source, scope, arguments, options, constants, equal, 1))
    return first


def _settled(
    source: Source,
    scope: dict[str, Any],
    arguments: dict[str, Any],
    options: Any,
    constants: set[int],
    equal: dict[str, str],
    round: int,
) -> Traced:
    """A trace in which every size that the host found equal to another one is that one."""
    while True:
        try:
            return _trace(source, scope, arguments, options, Sampling(constants, round), equal)
        except _Equal as found:
            left, right = found.pair
            equal[right] = equal.get(left, left)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Samples are small: waiting for other threads would cost more than the work of all operations together."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _integers(argument: Any) -> list[int]:
    if isinstance(argument, torch.Tensor):
        return list(literals(tuple(argument.shape), argument.stride()))
    if isinstance(argument, dict):
        return [n for item in argument.values() for n in _integers(item)]
    if isinstance(argument, list | tuple):
        return [n for item in argument for n in _integers(item)]
    return list(literals(argument))


def _trace(
    source: Source,
    scope: dict[str, Any],
    arguments: dict[str, Any],
    options: Any,
    sampling: Sampling,
    equal: dict[str, str],
) -> Traced:
    device = device_of(arguments)
    trace = Trace(sampling, device)
    trace.equal = equal
    trace.guards = [(f"{left} == {right}", True) for right, left in equal.items()]
    names = {name: value for name, value in scope.items() if name not in source.locals}
    names["__builtins__"] = builtins.scope()
    with tracing(trace), torch.no_grad(), _one_thread():
        for name, argument in arguments.items():
            names[name] = _argument(trace, argument, name, options)
        interpreter = Interpreter(trace, source, names)
        with FunctionMode(trace), DispatchMode(trace):
            interpreter.run(source.tree.body)
    if not trace.graphs:
        raise exc.NoDeviceLoopsInKernel(
            f"{source.name} has no loop over tiles",
            source.location(source.tree),
            hint="write `for tile in hl.tile(x.size(0)):` around the work of the device",
        )
    guards = list(dict.fromkeys(trace.guards))
    left = trace.graphs, trace.axes, trace.slots
    return Traced(source, *left, interpreter.folded, scope, trace.constants, guards, device, trace.tunables)


def device_of(arguments: Any) -> Any:
    """The device of the first tensor in nested arguments.

    Raises:
        NoTensorArgs: there is none.
    """
    found = _first_device(arguments)
    if found is None:
        raise exc.NoTensorArgs(
            "no argument is a tensor, so there is no device to run on",
            hint="pass a tensor, or a torch.device as an argument",
        )
    return found


def _first_device(tree: Any) -> Any:
    if isinstance(tree, torch.Tensor):
        return tree.device
    if isinstance(tree, torch.device):
        return tree
    items = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list | tuple) else ()
    return next((found for found in map(_first_device, items) if found is not None), None)


def _argument(trace: Trace, argument: Any, name: str, options: Any) -> Any:
    """What host code sees for an argument."""
    if isinstance(argument, torch.Tensor):
        return _meta(trace, argument, name, options.static_shapes)
    if isinstance(argument, ConstExpr):
        return argument.value
    if isinstance(argument, int) and not isinstance(argument, bool):
        return trace.host_symbol(name, name, argument)
    if isinstance(argument, dict):
        items = {key: _argument(trace, item, f"{name}_{key}", options) for key, item in argument.items()}
        return type(argument)(items)
    if isinstance(argument, list | tuple) and not isinstance(argument, torch.Size):
        parts = [_argument(trace, item, f"{name}_{at}", options) for at, item in enumerate(argument)]
        return type(argument)(*parts) if hasattr(argument, "_fields") else type(argument)(parts)
    return argument


def _meta(trace: Trace, tensor: Any, name: str, static: bool) -> Any:
    with trace.silence():
        if static:
            return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
        shape = [
            trace.host_symbol(f"{name}_size_{dim}", f"{name}.size({dim})", extent).sample
            for dim, extent in enumerate(tensor.shape)
        ]
        order = sorted(range(tensor.dim()), key=lambda dim: (tensor.stride(dim), -dim))
        strides, step = [0] * tensor.dim(), 1
        for dim in order:
            strides[dim] = step if tensor.stride(dim) else 0
            step *= shape[dim]
        return torch.empty_strided(shape, strides, dtype=tensor.dtype, device="meta")


def _compare(first: Traced, second: Traced) -> None:
    for one, other in zip(first.graphs, second.graphs, strict=True):
        if graph_text(one) == graph_text(other):
            continue
        pairs = zip(walk(one.region), walk(other.region), strict=False)
        texts = ((node.line, node_text(node), node_text(twin)) for node, twin in pairs)
        line, ours, theirs = next((item for item in texts if item[1] != item[2]), (one.line, "", ""))
        raise exc.LeakedSample(
            f"a size or value that the trace invented got into the code:\n  {ours}\n  {theirs}",
            errors.Location(first.source.file, line, function=first.source.name),
            hint="use sizes through x.shape, x.size() and tile.block_size, not through C code",
        )


# --- symbols while tracing -----------------------------------------------------------------------------


def _compare_symbols(op: str, left: Any, right: Any) -> Any:
    trace = current()
    if trace is None:
        raise number_needed(left if isinstance(left, Sym) else right)
    if trace.region is None:
        return _host_compare(trace, op, left, right)
    with trace.silence():
        made = torch.full((), True)
    return trace.record("compare", (op, left, right), made)


_TRUTH: dict[str, Callable[[int, int], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _host_compare(trace: Trace, op: str, left: Any, right: Any) -> bool:
    """A comparison on the host: what it is in the call that binds; calls where it differs bind anew."""
    pair = [substitute(item, trace.actual.get) for item in (left, right)]
    if any(isinstance(item, Sym) for item in pair):
        raise number_needed(left if isinstance(left, Sym) else right)
    truth = _TRUTH[op](*pair)
    trace.guards.append((f"({show(left)}) {op} ({show(right)})", truth))
    if truth == (op == "==") and op in ("==", "!=") and all(_is_atom(item) for item in (left, right)):
        raise _Equal(show(left), show(right))
    return truth


def _is_atom(value: Any) -> bool:
    return isinstance(value, Sym) and len(value.terms) == 1 and value.constant == 0 and 1 in value.terms.values()


def _divide_symbols(left: Any, right: Any) -> Any:
    trace = current()
    if trace is None or trace.region is None:
        raise number_needed(left if isinstance(left, Sym) else right)
    pair = [trace.scalar(one) if isinstance(one, Sym) else one for one in (left, right)]
    return pair[0] / pair[1] if isinstance(pair[0], torch.Tensor) else pair[1].reciprocal() * pair[0]


set_hooks(_compare_symbols, _divide_symbols)
