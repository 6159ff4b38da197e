"""Tracing a kernel: arguments become meta tensors and symbols, host statements run on them, loops become graphs."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from tilewright import errors
from tilewright.hl import exc
from tilewright.hl.constexpr import in_kernels, plain
from tilewright.hl.dims import Axis, Factors
from tilewright.hl.graph.nodes import Graph, walk
from tilewright.hl.graph.text import graph_text, node_text
from tilewright.hl.settings import RefMode
from tilewright.hl.symbols import Atom, ConfiguredTruth, Sym, is_chosen, number_needed, set_hooks, show, substitute
from tilewright.hl.trace import branches, builtins, carried, loops, rewrite, statements
from tilewright.hl.trace.arguments import device_of, has_numbers, host_view, integers
from tilewright.hl.trace.call_effects import Effects, effects_of
from tilewright.hl.trace.choices import Choices
from tilewright.hl.trace.divided import Divided
from tilewright.hl.trace.equal import Equal, take_for_one
from tilewright.hl.trace.even import Even
from tilewright.hl.trace.messages import named
from tilewright.hl.trace.modes import DispatchMode, FunctionMode
from tilewright.hl.trace.numbers import OPERATIONS, Number, combined
from tilewright.hl.trace.outside import Read
from tilewright.hl.trace.rounded import RoundUp
from tilewright.hl.trace.samples import Sampling
from tilewright.hl.trace.source import Source
from tilewright.hl.trace.state import Fixed, Place, Restart, Trace, current, tracing
from tilewright.hl.trace.statements import Interpreter, Left, has_loop
from tilewright.hl.trace.stops import noted_breakpoints

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
        constants: results of calls that the launcher has constants for, by their places.
        guards: (expression of the arguments, what it must be).
        captured: tensors from outside that the launcher has under names of its own.
        device: the device of the kernel's tensors.
        tunables: choices that the program itself leaves to the configuration, by name.
        effects: what a call does besides returning.
        why_constant: which numbers among the arguments are constants of the code, and why; "" where all are arguments.
        read: names of the numbers that the host reads from tensors, by the place of the expression.
        actual: what symbols of the host are in the call that binds.
        kept: lines of the statements of the host that are the same for every configuration, by their place.
        factors: what the primes of the trace stand for.
        sampling: the inventions of the trace.
        stop: where the first `breakpoint()` stands; such a kernel runs as a reference only.
        rounds: whether powers of two are rows where they are extents.
        ignored: classes of warnings that are not given.
    """

    source: Source
    graphs: list[Graph]
    axes: list[Axis]
    slots: list[Axis]
    folded: dict[int, list[ast.stmt]]
    scope: dict[str, Any]
    constants: dict[Place | None, Any]
    guards: list[tuple[str, Any]]
    device: Any
    captured: dict[str, Any] = field(default_factory=dict)
    tunables: dict[str, Any] = field(default_factory=dict)
    effects: Effects = field(default_factory=Effects)
    why_constant: str = ""
    read: dict[Place, str] = field(default_factory=dict)
    actual: dict[Atom, int | None] = field(default_factory=dict)
    kept: dict[tuple[int, int], list[str]] = field(default_factory=dict)
    factors: Factors = field(default_factory=Factors)
    sampling: Sampling | None = None
    stop: Place | None = None
    rounds: bool = False
    ignored: Sequence[type[Warning]] = ()


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
    fixed: dict[str, int] = field(default_factory=dict)
    multiples: dict[str, int] = field(default_factory=dict)
    even: set[str] = field(default_factory=set)
    rounds: bool = False
    floats: bool = True
    integers: bool = False
    whole: bool = False

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
        # An operation wants a number of Python for an option, PyTorch refused a size that is made of an invented
        # number, or the kernel is wrong with its own numbers as well.
        if not any(has_numbers(one, int) for one in arguments.values()):
            raise
        reason = error
    try:
        made = _checked(replace(request, equal={}, fixed={}, integers=True), 0)
    except exc.Error:
        if isinstance(reason, exc.Error):  # which speaks of the kernel as it is written
            raise reason from reason.__cause__
        raise
    made.why_constant = f"numbers that are arguments are constants: {_first_line(reason)}"
    return made


def trace_whole(
    source: Source, scope: dict[str, Any], arguments: dict[str, Any], options: Any, outside: list[Read]
) -> tuple[Traced, Traced]:
    """Two traces, with other samples, that hold PyTorch's calls as they are: what gradients are derived from.

    Sizes and floating-point arguments are constants in them.

    Args:
        source: the kernel's text.
        scope: names that the kernel's module defines.
        arguments: the values of the parameters.
        options: settings, as of `trace_kernel`.
        outside: what the kernel reads besides its arguments.

    Raises:
        LeakedSample: the two traces differ.
    """
    found = list(arguments.values()) + [read.value for read in outside]
    constants = {*source.integers, *(n for item in found for n in integers(item))}
    request = _Request(source, scope, arguments, options, outside, constants, whole=True)
    try:
        first = _settled(request, 0)
    except Exception:
        if not any(has_numbers(one, int) for one in arguments.values()):
            raise
        request = replace(request, equal={}, fixed={}, integers=True)
        first = _settled(request, 0)
    second = _settled(request, 1)
    _compare(first, second)
    return first, second


def _with_numbers(request: _Request) -> Traced:
    """A trace in which arguments that are numbers stay arguments: integers, and where it can be floating-point ones."""
    if not (request.options.check_trace and any(has_numbers(one, float) for one in request.arguments.values())):
        return _with_constants(request)
    try:
        return _checked(replace(request, equal={}, fixed={}, floats=False), 0)
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
    """A trace that agrees with the next one; where sizes got into the code as numbers, they are constants of it."""
    first = _settled(request, round)
    if not request.options.check_trace:
        return first
    try:
        _compare(first, _settled(request, round + 1))
    except exc.LeakedSample as error:
        fixed = _sizes(request, first.actual)
        if not fixed:
            raise
        first = _checked(replace(request, fixed={**request.fixed, **fixed}), round)
        first.why_constant = first.why_constant or f"sizes are constants: {_first_line(error)}"
    return first


def _sizes(request: _Request, actual: dict[Atom, int | None]) -> dict[str, int]:
    """The sizes that are no constants yet, as they are in the call that binds."""
    known = {request.equal.get(atom.text, atom.text): number for atom, number in actual.items()}
    numbers = {text: number for text, number in known.items() if number is not None and text not in request.fixed}
    return {text: number for text, number in numbers.items() if ".size(" in text}


def _settled(request: _Request, round: int) -> Traced:
    """A trace in which every size that the host found equal to another one is that one, and constants are constants."""
    while True:
        try:
            return _trace(request, Sampling(request.constants, round))
        except Equal as found:
            left, right = (request.equal.get(text, text) for text in found.pair)
            for text, first in request.equal.items():
                if first == right:
                    request.equal[text] = left
            request.equal[right] = left
            if right in request.fixed:
                request.fixed[left] = request.fixed.pop(right)
        except RoundUp:
            request = replace(request, rounds=True)
        except Divided as block:
            request.multiples[block.block] = math.lcm(request.multiples.get(block.block, 1), block.by)
        except Even as found:
            request.even.update(found.blocks)
        except Fixed as found:
            request.fixed[request.equal.get(found.text, found.text)] = found.value
        except _Refused as refused:
            sizes = _sizes(request, refused.actual)
            if not sizes:
                raise refused.error from refused.error.__cause__
            request.fixed.update(sizes)


class _Refused(Exception):
    """PyTorch refused what the kernel does with samples: it may be right with the sizes of the call that binds."""

    def __init__(self, error: Exception, actual: dict[Atom, int | None]) -> None:
        super().__init__(error, actual)
        self.error, self.actual = error, actual


@contextmanager
def _with_samples(trace: Trace) -> Iterator[None]:
    """Catch what is no error of ours."""
    try:
        yield
    except (exc.Error, Restart, Left):
        raise
    except Exception as error:
        raise _Refused(error, trace.actual) from None


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
    trace.whole = trace.detaches = request.whole
    trace.index_dtype, trace.static = request.options.index_dtype, request.options.static_shapes
    trace.reference = not request.whole and request.options.ref_mode is not RefMode.OFF
    trace.guards = [(f"{left} == {right}", True) for right, left in request.equal.items()]
    trace.fixed, trace.multiples = request.fixed, request.multiples
    trace.rounds, trace.even = request.rounds, request.even
    trace.guards += request.fixed.items()
    tensors = [read for read in request.outside if isinstance(read.value, torch.Tensor)]
    trace.outside = {id(read.value): read for read in tensors}
    scope = {name: plain(value) for name, value in scope.items() if name not in source.locals}
    names = {name: builtins.instead(value, source.used) for name, value in scope.items()}
    names["__builtins__"] = builtins.scope()
    # Samples are on the CPU whatever the user's default, which torch 2.9 cannot tell after `set_default_device(None)`.
    elsewhere = torch.empty(0).device.type != "cpu"
    with tracing(trace), torch.no_grad(), _one_thread(), torch.device("cpu") if elsewhere else nullcontext():
        for name, argument in request.arguments.items():
            names[name] = host_view(trace, argument, (name,), request.options.static_shapes, request.constant)
        views = {name: carried.copied(names[name]) for name in request.arguments}
        interpreter = Interpreter(trace, source, names)
        names["__builtins__"][rewrite.CHOICES] = Choices(interpreter)
        modes = FunctionMode(trace), DispatchMode(trace), torch._C._DisableAutocast()  # a kernel means what it says
        with modes[0], modes[1], modes[2], noted_breakpoints(), suppress(Left), _with_samples(trace):
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
    made.effects, made.factors, made.sampling = effects_of(trace, views), trace.factors, sampling
    made.stop, made.rounds = trace.stop, trace.rounds
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
            errors.Location.of_line(first.source.file, line, first.source.name),
            hint="print('x', x) shows values when the kernel runs; a text that Python makes of them is the trace's"
            if ours.startswith("print")
            else "use sizes through x.shape, x.size() and tile.block_size, not through C code",
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


def _host_compare(trace: Trace, op: str, left: Any, right: Any) -> bool | ConfiguredTruth:
    """A comparison on the host: what it is in the call that binds; calls where it differs bind anew."""
    pair = [substitute(item, trace.actual.get) for item in (left, right)]
    open_symbols = [item for item in pair if isinstance(item, Sym)]
    if open_symbols and all(map(is_chosen, open_symbols)):
        return ConfiguredTruth(op, left, right)
    if open_symbols:
        raise number_needed(left if isinstance(left, Sym) else right)
    truth = _TRUTH[op](*pair)
    trace.guards.append((f"({show(left)}) {op} ({show(right)})", truth))
    if truth == (op == "==") and op in ("==", "!="):
        take_for_one(left, right)
    return truth


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


def _constant(value: Any) -> Any:
    """`hl.constexpr(value)` in a kernel: sizes and numbers of the host become constants of which calls bind anew."""
    trace = current()
    if isinstance(value, tuple | list):
        return type(value)(map(_constant, value))
    if isinstance(value, Sym) and trace is not None and not is_chosen(value):
        return trace.decide(value)
    return float(value) if isinstance(value, Number) else value


in_kernels(lambda: current() is not None, _constant)
