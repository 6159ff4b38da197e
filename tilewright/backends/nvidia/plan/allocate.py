"""Shared memory of a kernel: which operations need scratch, how long buffers live, and where each of them lies.

Operations are numbered in program order. A buffer lives from its `local_alloc` to its last use, through the whole of
every loop that it is used in but not made in, and until copies into it and products of it have been waited for;
scratch lives for one operation:

    0 alloc a    ┐
    1 for {      │ a lives in [0, 5]: the loop may come back to 2 after 3
    2   use a    │
    3   convert  │ │ its scratch lives in [3, 3]
    4 }          │
    5            ┘

The largest are placed first, each at the lowest offset that is free during its whole life. Small scratch keeps clear
of the scratch that is used just before and after it: a few bytes more save the barrier between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

from xdsl.ir import Operation, SSAValue

from tilewright.analysis.flow import targets_of
from tilewright.analysis.liveness import ProgramOrder
from tilewright.backends.nvidia import tuning
from tilewright.backends.nvidia.arch import round_up
from tilewright.backends.nvidia.tgir.ops import (
    AsyncCopyOp,
    AsyncWaitOp,
    InitBarrierOp,
    LocalAllocOp,
    WarpGroupDotOp,
    WarpGroupDotWaitOp,
)
from tilewright.backends.nvidia.tgir.types import MemDescType, memdesc_bytes, memdesc_count, memdesc_shape
from tilewright.base.errors import InternalError
from tilewright.base.order import reached
from tilewright.ir.op import location_of
from tilewright.ir.types import element_type, ir_name, shape_of
from tilewright.ir.values import users_of
from tilewright.ir.walk import every, walk
from tilewright.layouts.shared import SWIZZLE_ALIGNMENT
from tilewright.ops.control import LoopOp

Kind = TypeVar("Kind", bound=Operation)
ScratchBytes = Callable[[Kind], int]
Waits = Callable[[Operation], bool]
_LARGEST_ALIGNMENT = max(SWIZZLE_ALIGNMENT.values())
_LEAST_ALIGNMENT = 16  # the widest access of a thread
APART = "tw.apart"  # of an operation whose scratch keeps clear of all buffers


# --- scratch ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Rule:
    size: ScratchBytes[Any]
    waits: Waits
    alignment: int


_RULES: dict[type[Operation], _Rule] = {}


def scratch(
    *kinds: type[Kind], waits: Waits = lambda op: True, alignment: int = 128
) -> Callable[[ScratchBytes[Kind]], ScratchBytes[Kind]]:
    """Decorator: this function tells how many bytes of scratch operations of these classes need (0 for none).

    The operation must write its scratch before it reads it, and make the barriers in between itself.

    Args:
        kinds: classes of operations.
        waits: whether one of those barriers is for the whole block.
        alignment: of the scratch, in bytes: of all banks, as plans of accesses count on offsets in a line.
    """

    def register(function: ScratchBytes[Kind]) -> ScratchBytes[Kind]:
        for kind in kinds:
            if kind in _RULES:
                raise InternalError(f"two rules for the scratch of {kind.name}")
            _RULES[kind] = _Rule(function, waits, alignment)
        return function

    return register


def scratch_bytes(op: Operation) -> int:
    """Bytes of shared memory that `op` needs while it runs."""
    rule = _RULES.get(type(op))
    return 0 if rule is None else rule.size(op)


def waits_between(op: Operation) -> bool:
    """Whether the block waits between the writing and the reading of the scratch of `op`, which has some."""
    return _RULES[type(op)].waits(op)


# --- buffers ------------------------------------------------------------------------------------------


def buffer_stride(type_: object) -> int:
    """Bytes from one buffer to the next of a `memdesc` type: all of them have the alignment of the first."""
    assert isinstance(type_, MemDescType)
    size = memdesc_bytes(type_)
    return round_up(size, buffer_alignment(size))


def buffer_alignment(size: int) -> int:
    """Alignment of a buffer of so many bytes.

    Swizzles are patterns of address bits, so that a buffer with one must start where the pattern does: at a multiple of
    1024 for the widest. A buffer smaller than that has room only for a narrower one.
    """
    alignment = _LEAST_ALIGNMENT
    while alignment < min(size, _LARGEST_ALIGNMENT):
        alignment *= 2
    return alignment


@dataclass(frozen=True, slots=True)
class Piece:
    """Memory that one operation needs.

    Args:
        op: a `ttg.local_alloc`, or an operation with scratch.
        size: bytes.
        alignment: of its offset.
        start, end: numbers of the first and the last operation in program order during which it lives.
    """

    op: Operation
    size: int
    alignment: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Allocation:
    """Where everything lies.

    Args:
        offsets: buffer or operation with scratch -> offset in bytes.
        sizes: the same -> bytes.
        total: bytes of shared memory that the kernel needs.
    """

    offsets: Mapping[Operation, int]
    sizes: Mapping[Operation, int]
    total: int

    def alone(self) -> frozenset[Operation]:
        """What shares no byte with anything else, whenever that lives."""
        ends = {op: offset + self.sizes[op] for op, offset in self.offsets.items()}
        return frozenset(
            op
            for op, offset in self.offsets.items()
            if not any(other is not op and offset < ends[other] and at < ends[op] for other, at in self.offsets.items())
        )

    def largest(self) -> str:
        """What takes most of the memory, in the words of the user's program; "" if there is none."""
        rows = sorted(self.sizes, key=lambda op: -self.sizes[op])[:3]
        named = "\n".join(f"  {self.sizes[op]} bytes: {_described(op)}" for op in rows)
        return f"the largest tiles in shared memory are\n{named}" if rows else ""


def allocate(function: Operation) -> Allocation:
    """Place the buffers and the scratch of a laid-out function.

    Args:
        function: a `tt.func` in structured form.
    """
    pieces = _pieces(function)
    apart = _apart(function, pieces)
    placed: list[tuple[Piece, int]] = []
    for piece in sorted(pieces, key=lambda p: (-p.alignment, -p.size, p.start)):
        placed.append((piece, _lowest(piece, placed, apart)))
    total = max((offset + piece.size for piece, offset in placed), default=0)
    offsets = {piece.op: offset for piece, offset in placed}
    return Allocation(offsets, {piece.op: piece.size for piece in pieces}, total)


# --- lives --------------------------------------------------------------------------------------------


def _pieces(function: Operation) -> list[Piece]:
    order = _Order.of(function)
    pieces = []
    for op, number in order.program.numbers.items():
        if isinstance(op, LocalAllocOp):
            stride, count = buffer_stride(op.result.type), memdesc_count(op.result.type)
            end = max((order.end(user, op) for user in _users(op.result)), default=number)
            alignment = buffer_alignment(memdesc_bytes(op.result.type))
            pieces.append(Piece(op, stride * count, alignment, number, max(number, end)))
        elif size := scratch_bytes(op):
            # An operation with a body may use its scratch until the body's end.
            alignment = min(_RULES[type(op)].alignment, buffer_alignment(size))
            pieces.append(Piece(op, size, alignment, number, order.program.last[op]))
    return pieces


@dataclass(frozen=True, slots=True)
class _Order:
    """Program order.

    Args:
        program: the operations by their numbers.
        waits: numbers of the operations after which no copy (no product) is under way.
    """

    program: ProgramOrder
    waits: Mapping[type[Operation], Sequence[int]]

    @staticmethod
    def of(function: Operation) -> _Order:
        program = ProgramOrder(function)
        # Barriers stay what they are to the end.
        waits: dict[type[Operation], list[int]] = {AsyncCopyOp: [], WarpGroupDotOp: [], InitBarrierOp: []}
        for op, number in program.numbers.items():
            if isinstance(op, AsyncWaitOp) and not op.attr_values()["num"]:
                waits[AsyncCopyOp].append(number)
            elif isinstance(op, WarpGroupDotWaitOp) and not op.attr_values()["pendings"]:
                waits[WarpGroupDotOp].append(number)
        return _Order(program, waits)

    def end(self, user: Operation, alloc: Operation) -> int:
        """The last number at which the use of a buffer matters; for work in the background, the wait after it."""
        end = self.program.end_of_use(user, alloc)
        waits = self.waits.get(type(user))
        if waits is None or (isinstance(user, WarpGroupDotOp) and not user.attr_values()["isAsync"]):
            return end
        return next((number for number in waits if number > end), len(self.program.numbers))


def _users(buffer: SSAValue) -> Iterable[Operation]:
    """Operations that use a buffer, directly or under another name."""

    def names(value: SSAValue) -> list[SSAValue]:
        return [name for use in value.uses for name in aliases(use.operation, use.index)]

    return (user for value in reached([buffer], names) for user in users_of(value))


def aliases(op: Operation, index: int) -> list[SSAValue]:
    """The values of buffer type that operand number `index` of `op` may become."""
    carried = targets_of(op, index)
    names = list(op.results) if carried is None else carried
    return [name for name in names if isinstance(name.type, MemDescType)]


# --- places -------------------------------------------------------------------------------------------


def _apart(function: Operation, pieces: Sequence[Piece]) -> set[tuple[Operation, Operation]]:
    """Pairs of small scratch used one after the other: in program order, or by the last of a loop and its first.

    And scratch that is marked, with every buffer.
    """
    used = [piece.op for piece in pieces if piece.size <= tuning.APART_BYTES and not isinstance(piece.op, LocalAllocOp)]
    pairs = set(pairwise(used))
    members = set(used)
    for loop in every(function, LoopOp):
        inside = [op for op in walk(loop) if op in members]
        pairs |= {(inside[-1], inside[0])} if len(inside) > 1 else set()
    buffers = [piece.op for piece in pieces if isinstance(piece.op, LocalAllocOp)]
    pairs |= {(piece.op, buffer) for piece in pieces if APART in piece.op.attributes for buffer in buffers}
    return pairs | {(second, first) for first, second in pairs}


def _lowest(piece: Piece, placed: Sequence[tuple[Piece, int]], apart: Collection[tuple[Operation, Operation]]) -> int:
    """The lowest offset at which a piece meets none that lives at the same time, or that it keeps clear of."""
    taken = sorted(
        (offset, offset + other.size)
        for other, offset in placed
        if (other.start <= piece.end and piece.start <= other.end) or (piece.op, other.op) in apart
    )
    at = 0
    for start, end in taken:
        if at + piece.size <= start:
            break
        at = max(at, round_up(end, piece.alignment))
    return at


def _described(op: Operation) -> str:
    """What memory is for, in the words of the user's program."""
    if isinstance(op, LocalAllocOp):
        type_ = op.result.type
        assert isinstance(type_, MemDescType)
        shape, element, count = memdesc_shape(type_), element_type(type_.tile), memdesc_count(type_)
        what = f"tile {_sizes(shape)} of {ir_name(element)}" + (f", {count} stages of it" if count > 1 else "")
    else:
        operand = next((o for o in op.operands if shape_of(o.type)), None)
        tile = (
            f" of a tile {_sizes(shape_of(operand.type))} of {ir_name(element_type(operand.type))}" if operand else ""
        )
        what = f"scratch for {op.name.rpartition('.')[2]}{tile}"
    place = location_of(op)
    return what if place is None else f"{what} ({place.file}:{place.line})"


def _sizes(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape))


__all__ = [
    "APART",
    "Allocation",
    "Piece",
    "aliases",
    "allocate",
    "buffer_alignment",
    "buffer_stride",
    "scratch",
    "scratch_bytes",
    "waits_between",
]
