"""Computes tile values where they are wanted: a value at an index becomes one LLVM vector of lanes, or a scalar.

A value that is the same for all lanes of the chunk stays a scalar until it meets one that is not. Results are
remembered by (value, index) as long as the loop in which they were emitted is open, and `hoist` emits what a loop
nest needs before the loops on which it does not depend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from xdsl.ir import Operation, SSAValue

from tilewright.analysis.affine import AffineAnalysis
from tilewright.analysis.axis import ElementFacts
from tilewright.analysis.constants import constant_of
from tilewright.analysis.elements import operand_indices, side_bit
from tilewright.analysis.index import Index
from tilewright.backends.cpu.emit import memory
from tilewright.backends.cpu.emit.source_lines import at_line_of, loaded_by
from tilewright.backends.cpu.emit.values import Values
from tilewright.backends.cpu.plan.reciprocal import LARGEST, DivideByRowOp
from tilewright.backends.cpu.plan.recompute import cast_name, table_name
from tilewright.backends.llvm import foreign
from tilewright.backends.llvm.casts import convert, storage
from tilewright.backends.llvm.elementwise import TABLE, emit
from tilewright.backends.llvm.integers import DIVISIONS
from tilewright.backends.llvm.module import Function
from tilewright.backends.llvm.types import I1, T, V, const, poison, zero
from tilewright.base.errors import InternalError, UnsupportedError
from tilewright.base.options import ExternLibrary
from tilewright.base.order import operands_first
from tilewright.ir.decisions import Decisions
from tilewright.ir.traits import is_view
from tilewright.ir.types import TilePointerType, element_type, i1, ir_name
from tilewright.ir.values import defining_op, is_tile, property_int
from tilewright.ops.casts import FpToFpOp
from tilewright.ops.constant import ConstantOp
from tilewright.ops.creation import MakeRangeOp
from tilewright.ops.elementwise import ClampFOp, CmpFOp, CmpIOp
from tilewright.ops.elementwise_pointer import AddPtrOp
from tilewright.ops.function import PoisonOp
from tilewright.ops.gather import GatherOp
from tilewright.ops.math_extern import ExternElementwiseOp, math_name
from tilewright.ops.memory import LoadOp
from tilewright.ops.shape import CatOp, JoinOp

_OF_BITS = DIVISIONS | {"andi", "shrsi", "shrui"}  # which may be known where what they are made of is not
_DEEP = 40
"""Values that wait for one another in a recursion; each takes a few of the frames that Python has."""


class Evaluator(Values):
    """Computes the tiles of one function.

    Args:
        f: where to emit.
        arena: start of the thread's scratch.
        facts: of the elements of its tiles.
        decisions: of the function.
        libraries: of the user's, whose functions it may call.

    Attributes:
        holds: comparisons, each at an index, known to be true in every lane of the group (see `masks`).
        by_lane: makes some comparisons of the numbers of lanes instead of what is compared.
    """

    def __init__(
        self, f: Function, arena: V, facts: ElementFacts, decisions: Decisions, libraries: Sequence[ExternLibrary] = ()
    ) -> None:
        super().__init__(f, arena, facts, decisions)
        self.libraries = libraries
        self.holds: frozenset[tuple[SSAValue, Index]] = frozenset()
        self.by_lane: Callable[[SSAValue, Index], V | None] | None = None
        self._everywhere = self.analysis  # what is computed is remembered where others have been told
        self._depth = 0

    @contextmanager
    def knowing(self, holds: frozenset[tuple[SSAValue, Index]], analysis: AffineAnalysis | None) -> Iterator[None]:
        """What is emitted meanwhile runs where these comparisons hold, and addresses have these forms, if given."""
        before = self.holds, self.analysis
        self.holds, self.analysis = self.holds | holds, analysis or self.analysis
        yield
        self.holds, self.analysis = before

    @contextmanager
    def comparing(self, by_lane: Callable[[SSAValue, Index], V | None]) -> Iterator[None]:
        """Meanwhile comparisons are made by `by_lane` if it can."""
        self.by_lane = by_lane
        yield
        self.by_lane = None

    def hoist(self, roots: Sequence[tuple[SSAValue, Index]]) -> None:
        """Emit, in the current block, what the roots need and what does not depend on loops that are still closed."""
        seen: set[tuple[SSAValue, Index]] = set()
        stack = [(value, index) for value, index in roots if is_tile(value)]
        while stack:
            key = stack.pop()
            value, index = key
            if key in seen or not is_tile(value):
                continue
            seen.add(key)
            if isinstance(element_type(value.type), TilePointerType) and value not in self.placed:
                memory.hoist_address(self, value, index)
                form = self.analysis.pointer(value, index)
                stack += [(v, i) for v, i, _ in form.offset.residual]
                continue
            if self.level_of(index) < 1 << 20:
                if constant_of(value) is None:
                    self.eval(value, index)
                continue
            if value in self.placed:
                memory.hoist_scratch(self, self.placed[value], index)
            else:
                stack += operand_indices(value, index)

    # -- values --------------------------------------------------------------------------------------

    def eval(self, value: SSAValue, index: Index) -> V:
        """`value` at `index`: a vector of the nest's lanes, or a scalar if all lanes agree."""
        if not is_tile(value):
            return self.scalar(value)
        key = self._key((value, index))
        found = self._memo.get(key)
        if found is None:
            if self._depth == _DEEP:  # a long chain: first what it needs, then link by link
                self._depth = 0
                for part in operands_first((value, index), partial(_wanted, self), _Remembered(self)):
                    self.eval(*part)
                self._depth = _DEEP
                return self._memo[key]
            self._depth += 1
            found = self._eval(value, index)
            self._depth -= 1
            self.remember(key, found)
        return found

    def _key(self, at: tuple[SSAValue, Index]) -> object:
        """Under what a value at an index is remembered; comparisons are of use only where the same hold."""
        return (*at, self.holds) if self.holds and element_type(at[0].type) == i1 else at

    def know(self, value: SSAValue, index: Index, computed: V) -> None:
        """Another emitter has computed a value for the current chunk."""
        self.remember(self._key((value, index)), computed)

    def vector(self, value: SSAValue, index: Index) -> V:
        """As `eval`, splat to the nest's lanes."""
        return self.f.splat(self.eval(value, index), self.nest.lanes)

    def _eval(self, value: SSAValue, index: Index) -> V:
        if (value, index) in self.holds:
            return const(I1, 1)
        if self.by_lane is not None and (compared := self.by_lane(value, index)) is not None:
            return compared
        buffer = self.placed.get(value)
        if buffer is not None:
            return memory.read_scratch(self, buffer, index, ir_name(element_type(value.type)))
        number = constant_of(value)
        if number is not None:
            return self.constant(value, number)
        op = defining_op(value)
        if op is None:
            raise InternalError("a tile argument has no place in scratch")
        special = _SPECIAL.get(type(op))
        if special is not None:
            return special(self, op, value, index)
        if table_name(op) in _OF_BITS and (known := self._everywhere.integer(value, index)).uniform:
            number = known.constant.constant  # of neighbours that are computed apart, for instance
            if number is not None:
                return self.constant(value, number)
        args = [self.eval(operand, at) for operand, at in operand_indices(value, index)]
        if is_view(op):
            return args[0]
        with at_line_of(self.f, loaded_by(op)):
            return self.apply(op, args)

    def apply(self, op: Operation, args: list[V]) -> V:
        """An elementwise operation on evaluated operands (scalars, or vectors of one lane count)."""
        lanes, name = max(arg.type.lanes for arg in args), table_name(op)
        if lanes:
            shared = int(name in DIVISIONS)  # a divisor that lanes share stays a number
            args = [*(self.f.splat(arg, lanes) for arg in args[: len(args) - shared]), *args[len(args) - shared :]]
        cast = cast_name(op)
        if cast is not None:
            source, target = (ir_name(element_type(v.type)) for v in (op.operands[0], op.results[0]))
            rounding = op.attr_values().get("rounding") or "rtne" if isinstance(op, FpToFpOp) else "rtne"
            return convert(self.f, cast, args[0], source, target, rounding=str(rounding))
        if name is None:
            raise InternalError(f"{op.name} is not element-wise")
        return emit(self.f, name, *args, **_attributes(op))

    # -- special operations --------------------------------------------------------------------------

    def _range(self, op: Operation, value: SSAValue, index: Index) -> V:
        return self.f.add(self.position(index[0]), property_int(op, "start"))

    def _by_row(self, op: Operation, value: SSAValue, index: Index) -> V:
        """A quotient by way of a reciprocal, or, if that cannot be, by division."""
        x, *shared, larger = (self.eval(operand, at) for operand, at in operand_indices(value, index))
        f, lanes = self.f, max(v.type.lanes for v in (x, *shared))
        x, divisor, once = (f.splat(v, lanes) for v in (x, *shared))
        normal = f.fcmp("ole", larger, LARGEST)
        whole = f.reduce("and", normal) if normal.type.lanes else normal
        (result,) = f.if_else(whole, lambda: [f.fmul(x, once)], lambda: [f.fdiv(x, divisor)], likely=True)
        return result

    def _sides(self, op: Operation, value: SSAValue, index: Index) -> V:
        """Join and cat: the left or the right operand, by one bit of the index."""
        (left, at), (right, _) = operand_indices(value, index)
        (bit,) = side_bit(op, value, index)
        chosen = self.position(bit)
        if chosen.const is not None:
            return self.eval(right if chosen.const else left, at)
        a, b = self.eval(left, at), self.eval(right, at)
        lanes = max(a.type.lanes, b.type.lanes, chosen.type.lanes)
        condition = self.f.splat(self.f.icmp("ne", chosen, 0), lanes)
        return self.f.select(condition, self.f.splat(b, lanes), self.f.splat(a, lanes))

    def _extern(self, op: Operation, value: SSAValue, index: Index) -> V:
        args = [self.eval(operand, at) for operand, at in operand_indices(value, index)]
        lanes = max(arg.type.lanes for arg in args)
        symbol = op.attr_values()["symbol"]  # type: ignore[attr-defined]
        name = math_name(symbol)
        if name not in TABLE:
            if symbol.startswith("__nv_"):
                raise UnsupportedError(f"the libdevice function {symbol} runs on NVIDIA GPUs only", hint="use tl.math")
            return self._called(symbol, storage(ir_name(element_type(value.type))), args, lanes)
        return emit(self.f, name, *[self.f.splat(arg, lanes) for arg in args])

    def _called(self, symbol: str, result: T, args: Sequence[V], lanes: int) -> V:
        """A function of a library of the user's, lane by lane."""
        signature = f"{result.text} ({', '.join(arg.type.scalar.text for arg in args)})"
        foreign.check(symbol, signature, self.libraries, objects=True)
        self.f.module.externals.add(symbol)
        if not lanes:
            return self.f.call(symbol, result, args)
        made = poison(result.vec(lanes))
        for lane in range(lanes):
            one = self.f.call(symbol, result, [self.f.extract(self.f.splat(arg, lanes), lane) for arg in args])
            made = self.f.insert(made, one, lane)
        return made


def _wanted(ev: Evaluator, at: tuple[SSAValue, Index]) -> list[tuple[SSAValue, Index]]:
    """Tiles that `_eval` will ask for, in its order, as far as that is known without emitting anything."""
    value, index = at
    op = defining_op(value)
    if op is None or at in ev.holds or value in ev.placed or constant_of(value) is not None:
        return []
    if type(op) in _SPECIAL and not isinstance(op, (LoadOp, ExternElementwiseOp)):
        return []
    wanted = operand_indices(value, index)
    return [(v, i) for v, i in wanted if is_tile(v) and not isinstance(element_type(v.type), TilePointerType)]


class _Remembered:
    """The values at indices that an evaluator remembers, as a container."""

    def __init__(self, ev: Evaluator) -> None:
        self._ev = ev

    def __contains__(self, at: object) -> bool:
        return self._ev.recall(self._ev._key(at)) is not None  # type: ignore[arg-type]


def _attributes(op: Operation) -> dict[str, object]:
    """Attributes that an entry of the elementwise table takes."""
    if isinstance(op, (CmpIOp, CmpFOp)):
        return {"predicate": op.attr_values()["predicate"]}
    if isinstance(op, ClampFOp):
        return {"propagate_nan": op.attr_values()["propagateNan"] != "none"}
    return {}


_SPECIAL: dict[type[Operation], Callable[[Evaluator, Operation, SSAValue, Index], V]] = {
    ConstantOp: lambda ev, op, value, index: memory.read_constant(ev, op, index),
    MakeRangeOp: Evaluator._range,
    PoisonOp: lambda ev, op, value, index: zero(storage(ir_name(element_type(value.type)))),
    LoadOp: lambda ev, op, value, index: memory.load_tile(ev, op, index),
    AddPtrOp: lambda ev, op, value, index: memory.pointers(ev, value, index),
    JoinOp: Evaluator._sides,
    CatOp: Evaluator._sides,
    GatherOp: lambda ev, op, value, index: memory.gather_scratch(ev, op, index),
    ExternElementwiseOp: Evaluator._extern,
    DivideByRowOp: Evaluator._by_row,
}
