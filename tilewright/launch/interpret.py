"""Interpreter mode: a launch runs the kernel's Python, one program after the other, on the memory of its arguments.

    kernel[grid](*args)   ->   for each program: python_of(kernel)(*values)

Tensors are arrays, every operation is checked and evaluated at once, and every access is checked against the
allocations that the arguments belong to. An error names the line of the kernel; its traceback keeps the user's frames.
"""

from __future__ import annotations

import bdb
import contextlib
import dataclasses
import functools
import inspect
import itertools
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.backends.reference.address_space import Memory
from tilewright.backends.reference.eager import EagerEmitter
from tilewright.backends.reference.evaluate import Program
from tilewright.backends.reference.rewrite import is_kernel_code, python_of
from tilewright.backends.reference.value import EagerValue
from tilewright.base.builtin import pop_emitter, push_emitter
from tilewright.base.callable import BlockFunction, block_functions_run_by
from tilewright.base.dtypes import PointerType, scalar_from_signature
from tilewright.base.errors import ArgumentError, CompilationError, InterpreterError, LaunchError, TilewrightError
from tilewright.base.location import Location
from tilewright.base.options import Options
from tilewright.base.stack import deep_calls
from tilewright.base.target import Target
from tilewright.base.tracebacks import entries
from tilewright.compile.specialize import CONSTEXPR
from tilewright.devices.arrays import Array
from tilewright.frontend.records import RecordParts
from tilewright.frontend.source import place_of_ours
from tilewright.ir.types import to_ir
from tilewright.language import names as _language  # noqa: F401  (defines functions and methods)
from tilewright.launch.bind import Call
from tilewright.launch.extents import extent_of
from tilewright.ops.values import tensor
from tilewright.ops.values import tuple as tile_tuple

_LOCK = threading.RLock()  # the emitters are a stack of the process
_PACKAGE = str(Path(__file__).resolve().parent.parent)
TARGET = Target("cpu", "generic")


@dataclasses.dataclass(frozen=True, slots=True)
class Watch:
    """How a tool looks on while programs are interpreted.

    Args:
        memory: what the programs reach their arguments through.
        emitter: makes what evaluates the operations.
        programs: those of the grid that are run, in order.
    """

    memory: Memory
    emitter: Callable[[Target, Options, Program], EagerEmitter]
    programs: Sequence[tuple[int, int, int]]


_memories: list[Callable[[str], Memory]] = []


@contextlib.contextmanager
def reached_through(memory: Callable[[str], Memory]) -> Iterator[None]:
    """A block in which launches that nobody else watches reach their arguments through a memory of the caller's.

    Args:
        memory: makes it, from the name of the kernel.
    """
    _memories.append(memory)
    try:
        yield
    finally:
        _memories.remove(memory)


def launch(
    fn: BlockFunction, call: Call, grid: tuple[int, int, int], options: Options, watch: Watch | None = None
) -> None:
    """Run every program of `grid`, x fastest.

    Args:
        fn: the kernel.
        call: its bound arguments.
        grid: number of programs along x, y, z.
        options: compile options. Assertions are always checked, integer overflow with `debug` only.
        watch: for a tool that looks on.

    Raises:
        InterpreterError: an operation refused its operands, or an access went astray; the message shows where, the
            cause is the original error. Exceptions of Python itself pass through with the place as a note.
        CompileTimeAssertionFailure: `tl.static_assert` does not hold.
        ReadOnlyError: a store to a read-only argument.
    """
    programs = itertools.product(range(grid[2]), range(grid[1]), range(grid[0]))
    if watch is None:
        reached = _memories[-1](fn.fn.__name__) if _memories else Memory()
        watch = Watch(reached, EagerEmitter, [(x, y, z) for z, y, x in programs])
    memory = watch.memory
    program = Program(memory, (0, 0, 0), grid)
    checked = dataclasses.replace(options, debug=True, sanitize_overflow=options.debug and options.sanitize_overflow)
    emitter = watch.emitter(TARGET, checked, program)
    with _LOCK, np.errstate(all="ignore"), block_functions_run_by(_run_block_function), deep_calls():
        push_emitter(emitter)
        try:
            args, kwargs = _arguments(call, memory, emitter)
            kernel = functools.partial(python_of(fn), *args, **kwargs)
            for place in watch.programs:
                program.move(place)
                _run(fn, kernel)
        finally:
            pop_emitter()


def _run_block_function(fn: BlockFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return python_of(fn)(*args, **kwargs)


def _run(fn: BlockFunction, kernel: Callable[[], Any]) -> None:
    try:
        result = kernel()
    except bdb.BdbQuit:  # the user left the debugger
        raise
    except Exception as error:
        located = _located(error)
        raise located from (error.__cause__ if located is error else error)
    if result is not None:
        raise InterpreterError(
            f"a kernel returns nothing, but {fn.fn.__name__} returns {result!r}",
            hint="store results through a pointer parameter with tl.store",
        )


# --- arguments --------------------------------------------------------------------------------------------


def _arguments(call: Call, memory: Memory, emitter: EagerEmitter) -> tuple[list[Any], dict[str, Any]]:
    """What the Python function is called with: typed tensors, and compile-time values as they are."""
    spec = call.specialization
    args: list[Any] = []
    kwargs = {}
    for param, kind, key, argument in zip(call.params, spec.types, spec.keys, call.arguments, strict=True):
        value = _value(kind, key, argument, emitter)
        if param.kind is inspect.Parameter.KEYWORD_ONLY:
            kwargs[param.name] = value
        elif param.kind is inspect.Parameter.VAR_POSITIONAL:
            args.extend(value)
        else:
            args.append(value)
    open_arguments(call, memory)
    return args, kwargs


def open_arguments(call: Call, memory: Memory) -> None:
    """Make the allocations that the arguments of a call belong to reachable."""
    extents: dict[tuple[int, int], tuple[str, bool, int]] = {}
    for param, argument in zip(call.params, call.arguments, strict=True):
        for array in _arrays(argument):
            extent = _extent(array, param.name)
            name, writable, first = extents.get(extent, (param.name, False, array.address))
            extents[extent] = (name, writable or array.writable, first)
    for (start, stop), (name, writable, first) in extents.items():
        memory.open(start, stop, name, writable=writable, first=first)


def _value(kind: Any, key: Any, argument: Any, emitter: EagerEmitter) -> Any:
    if isinstance(kind, tuple):
        parts = [_value(k, c, a, emitter) for k, c, a in zip(kind, key, argument, strict=True)]
        if isinstance(kind, RecordParts):
            return type(kind)(parts).record()
        make: Callable[..., Any] = getattr(kind, "_make", tile_tuple)
        return make(parts)
    if kind == CONSTEXPR:
        return key
    type_ = scalar_from_signature(kind)
    if not isinstance(type_, PointerType):
        return emitter.constant(argument, type_)
    address = argument.address if isinstance(argument, Array) else int(argument)
    return tensor(EagerValue(to_ir(type_), np.asarray(address, np.uint64).view(np.int64)), type_)


def _arrays(argument: Any) -> Iterator[Array]:
    if isinstance(argument, Array):
        yield argument
    elif isinstance(argument, tuple):
        for part in argument:
            yield from _arrays(part)


def _extent(array: Array, name: str) -> tuple[int, int]:
    """First address, and the one behind the last, of the allocation that an array is a part of."""
    found = extent_of(array, name)
    if found is None:
        raise ArgumentError(
            f"argument `{name}` of type {type(array.owner).__name__} does not say how large its memory is",
            hint="the interpreter checks every access; give the class an `nbytes`, or pass an array",
        )
    return found


# --- errors ------------------------------------------------------------------------------------------------------


def _located(error: Exception) -> Exception:
    """`error` with the place in the kernel."""
    place = _place(error.__traceback__)
    if isinstance(error, CompilationError):
        error.location = error.location or place
        return error
    where = "" if place is None else f"{place.render()}\n"
    if isinstance(error, TilewrightError):
        kind = type(error) if isinstance(error, LaunchError) else InterpreterError
        return kind(where + error.message, hint=error.hint)
    if place is not None:
        error.add_note(f"in a kernel that is interpreted:\n{place.render()}")
    return error


def _place(traceback: types.TracebackType | None) -> Location | None:
    """The innermost line of a block function, with the calls that led there."""
    place: Location | None = None
    for entry in entries(traceback):
        code = entry.tb_frame.f_code
        if is_kernel_code(code):
            positions = next(itertools.islice(code.co_positions(), entry.tb_lasti // 2, None), (None,) * 4)
            line, end_line, start, end = positions
            end = end if end_line == line else None
            if place is not None and code.co_filename.startswith(_PACKAGE):  # the mistake is in what it was given
                inside = place_of_ours(code.co_qualname, code.co_filename, line or entry.tb_lineno)
                place = place if place.inside else dataclasses.replace(place, inside=inside)
                continue
            place = Location(code.co_filename, line or entry.tb_lineno, start or 0, end, place, code.co_qualname)
    return place
