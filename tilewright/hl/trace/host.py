"""Tracing a kernel: arguments become meta tensors and symbols, host statements run on them, loops become graphs."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from tilewright import errors
from tilewright.hl import exc
from tilewright.hl.dims import Axis
from tilewright.hl.graph.nodes import Graph, walk
from tilewright.hl.graph.text import graph_text, node_text
from tilewright.hl.symbols import Atom, Sym, number_needed, set_hooks, show, substitute
from tilewright.hl.trace import branches, builtins, carried, loops, statements
from tilewright.hl.trace.arguments import device_of, has_numbers, host_view, integers
from tilewright.hl.trace.effects import Effects, effects_of
from tilewright.hl.trace.messages import named
from tilewright.hl.trace.modes import DispatchMode, FunctionMode
from tilewright.hl.trace.numbers import OPERATIONS, combined
from tilewright.hl.trace.outside import Read
from tilewright.hl.trace.samples import Sampling
from tilewright.hl.trace.source import Source
from tilewright.hl.trace.state import Place, Trace, current, tracing
from tilewright.hl.trace.statements import Interpreter, Left, has_loop

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
        captured: tensors from outside that the launcher has under names of its own.
        device: the device of the kernel's tensors.
        tunables: choices that the program itself leaves to the configuration, by name.
        effects: what a call does besides returning.
        why_constant: which numbers among the arguments are constants of the code, and why; "" where all are arguments.
        read: names of the numbers that the host reads from tensors, by the place of the expression.
        actual: what symbols of the host are in the call that binds.
        kept: lines of the statements of the host that are the same for every configuration, by their place.
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
    captured: dict[str, Any] = field(default_factory=dict)
    tunables: dict[str, Any] = field(default_factory=dict)
    effects: Effects = field(default_factory=Effects)
    why_constant: str = ""
    read: dict[Place, str] = field(default_factory=dict)
    actual: dict[Atom, int | None] = field(default_factory=dict)
    kept: dict[tuple[int, int], list[str]] = field(default_factory=dict)


class _Equal(Exception):
    """Two expressions of the host are equal: the trace starts again with one sample for both."""

    def __init__(self, left: str, right: str) -> None:
        super().__init__(left, right)
        self.pair = left, right


@dataclass(frozen=True)
class _Request:
    """What is traced: the same for every sampling."""

    source: Source
    scope: dict[str, Any]
    arguments: dict[str, Any]
    options: Any
    outside: list[Read]
    constants: set[int]
    equal: dict[str, str] = field(default_factory=dict)
    floats: bool = True
    integers: bool = False

    @property
    def constant(self) -> tuple[type, ...]:
        """The types of arguments that are constants of the compiled code."""
        return (float,) * self.floats + (int,) * self.integers


def trace_kernel(
    source: Source, scope: dict[str, Any], arguments: dict[str, Any], options: Any, outside: list[Read]
) -> Traced:
    """Trace a kernel twice, with other samples.

    Args:
        source: the kernel's text.
        scope: names that the kernel's module defines.
        arguments: the values of the parameters.
        options: settings; `static_shapes`, `check_trace` and `index_dtype` are read.
        outside: what the kernel reads besides its arguments.

    Raises:
        LeakedSample: the two traces differ.
    """
    found = list(arguments.values()) + [read.value for read in outside]
    constants = {*source.integers, *(n for item in found for n in integers(item))}
    request = _Request(source, scope, arguments, options, outside, constants)
    try:
        return _with_numbers(request)
    except Exception as error:
        # PyTorch refused a size that is made of an invented number, or the kernel is wrong with its own numbers as well
        if isinstance(error, exc.Error) or not any(has_numbers(one, int) for one in arguments.values()):
            raise
        reason = error
    made = _checked(replace(request, equal={}, integers=True), 0)
    made.why_constant = f"numbers that are arguments are constants: {_first_line(reason)}"
    return made


def _with_numbers(request: _Request) -> Traced:
    """A trace in which arguments that are numbers stay arguments: integers, and where it can be floating-point ones."""
    if not (request.options.check_trace and any(has_numbers(one, float) for one in request.arguments.values())):
        return _with_constants(request)
    try:
        return _checked(replace(request, equal={}, floats=False), 0)
    except Exception as error:  # whatever code of the user and of PyTorch raises for a value that is not the right one
        reason = error
    made = _with_constants(request)
    made.why_constant = f"floating-point arguments are constants: {_first_line(reason)}"
    return made


def _first_line(error: Exception) -> str:
    lines = str(getattr(error, "message", error)).splitlines()
    return lines[0] if lines else type(error).__name__


def _with_constants(request: _Request) -> Traced:
    """A trace in which floating-point arguments are constants."""
    try:
        return _checked(request, 0)
    except exc.Error as error:
        # A number that the host or a `cat` computed may be one of the primes; with others it is not.
        try:
            return _checked(request, 2)
        except exc.Error:
            raise error from error.__cause__


def _checked(request: _Request, round: int) -> Traced:
    """A trace that agrees with the next one."""
    first = _settled(request, round)
    if request.options.check_trace:
        _compare(first, _settled(request, round + 1))
    return first


def _settled(request: _Request, round: int) -> Traced:
    """A trace in which every size that the host found equal to another one is that one."""
    while True:
        try:
            return _trace(request, Sampling(request.constants, round))
        except _Equal as found:
            left, right = (request.equal.get(text, text) for text in found.pair)
            for text, first in request.equal.items():
                if first == right:
                    request.equal[text] = left
            request.equal[right] = left


@contextmanager
def _one_thread() -> Iterator[None]:
    """Samples are small: waiting for other threads would cost more than the work of all operations together."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _trace(request: _Request, sampling: Sampling) -> Traced:
    source, scope = request.source, request.scope
    trace = Trace(sampling, device_of(request.arguments))
    trace.equal, trace.file = request.equal, source.file
    trace.index_dtype = request.options.index_dtype
    trace.guards = [(f"{left} == {right}", True) for right, left in request.equal.items()]
    tensors = [read for read in request.outside if isinstance(read.value, torch.Tensor)]
    trace.outside = {id(read.value): read for read in tensors}
    names = {name: value for name, value in scope.items() if name not in source.locals}
    names["__builtins__"] = builtins.scope()
    elsewhere = torch.get_default_device().type != "cpu"  # samples are on the CPU whatever the user's default
    with tracing(trace), torch.no_grad(), _one_thread(), torch.device("cpu") if elsewhere else nullcontext():
        for name, argument in request.arguments.items():
            names[name] = host_view(trace, argument, (name,), request.options.static_shapes, request.constant)
        views = {name: carried.copied(names[name]) for name in request.arguments}
        interpreter = Interpreter(trace, source, names)
        with FunctionMode(trace), DispatchMode(trace), suppress(Left):
            interpreter.run(source.tree.body)
    if not trace.graphs and not has_loop(interpreter, source.tree.body):
        raise exc.NoDeviceLoopsInKernel(
            f"{source.name} has no loop over tiles",
            source.location(source.tree),
            hint="write `for tile in hl.tile(x.size(0)):` around the work of the device",
        )
    guards = list(dict.fromkeys(trace.guards))
    left = trace.graphs, trace.axes, trace.slots
    made = Traced(source, *left, interpreter.folded, scope, trace.constants, guards, trace.device)
    made.captured, made.tunables, made.read, made.actual = trace.captured, trace.tunables, trace.read, trace.actual
    made.effects = effects_of(trace, views)
    return made


def _compare(first: Traced, second: Traced) -> None:
    for one, other in zip(first.graphs, second.graphs, strict=True):
        if graph_text(one) == graph_text(other):
            continue
        pairs = zip(walk(one.region), walk(other.region), strict=False)
        texts = ((node.line, node_text(node), node_text(twin)) for node, twin in pairs)
        line, ours, theirs = next((item for item in texts if item[1] != item[2]), (one.line, "", ""))
        raise exc.LeakedSample(
            named(first.axes, f"a size or value that the trace invented got into the code:\n  {ours}\n  {theirs}"),
            errors.Location(first.source.file, line, function=first.source.name),
            hint="use sizes through x.shape, x.size() and tile.block_size, not through C code; "
            "write n * 0.5, not 0.5 * n",
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
    return isinstance(value, Sym) and value.atom is not None


def _divide_symbols(left: Any, right: Any) -> Any:
    return _mixed("/", left, right)


def _mixed(op: str, left: Any, right: Any) -> Any:
    """Arithmetic of a symbol whose result is a floating-point number: the launcher's, or the device's."""
    trace = current()
    made = combined(op, left, right) if trace is not None else NotImplemented
    if made is not NotImplemented:
        return made
    if trace is None or trace.region is None:
        raise number_needed(left if isinstance(left, Sym) else right)
    pair = [trace.scalar(one) if isinstance(one, Sym) else one for one in (left, right)]
    if not isinstance(pair[0], torch.Tensor):
        pair[0] = trace.number(pair[0])
    return OPERATIONS[op](*pair)


set_hooks(_compare_symbols, _divide_symbols, _mixed)
