"""The values of a function under emission: its scalars, coordinates and loops, and what has been emitted already.

Results are remembered by any key as long as the loop in which they were emitted is open. `evaluator.py` computes tiles
on top of this, `memory.py` addresses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from xdsl.ir import SSAValue

from tilewright.analysis.affine import AffineAnalysis, Atom, Form, Poly
from tilewright.analysis.axis import ElementFacts
from tilewright.analysis.bounds import FAR, wide_numbers
from tilewright.analysis.constants import constant_of
from tilewright.analysis.index import CONST, Coord, Index, base_fields, pattern, sources
from tilewright.backends.cpu.plan.steps import Buffer
from tilewright.backends.llvm.casts import from_working_float, storage
from tilewright.backends.llvm.module import Function
from tilewright.backends.llvm.types import F32, I8, I32, I64, T, V, const, const_vector, zero
from tilewright.base.errors import InternalError
from tilewright.base.order import reached
from tilewright.ir.decisions import Decisions
from tilewright.ir.types import element_type, ir_name
from tilewright.ir.values import defining_op, is_tile, operands_of
from tilewright.ops.function import PoisonOp

DUMMY_BYTES = 2048
"""Bytes of a chunk of lanes, at most."""


@dataclass(slots=True)
class Nest:
    """The loop nest in which values are evaluated.

    Args:
        lanes: lanes of a chunk, 0 for scalars.
        bits: bits of each loop variable, by loop number.
        zeros: how many of them are always zero, the lowest ones; none where nothing is said.
        loops: loop variables that are open, i64.
        depth: nesting depth of each loop that is open, from 1.
    """

    lanes: int = 0
    bits: dict[int, int] = field(default_factory=dict)
    zeros: dict[int, int] = field(default_factory=dict)
    loops: dict[int, V] = field(default_factory=dict)
    depth: dict[int, int] = field(default_factory=dict)


class Values(ABC):
    """Values of one function.

    Args:
        f: where to emit.
        arena: start of the thread's scratch.
        facts: of the elements of its tiles.
        decisions: of the function.

    Attributes:
        scalars: LLVM values of scalar SSA values.
        placed: buffers of the values that live in scratch now.
        analysis: affine forms under that placement.
        nest: the loop nest being emitted.
        programs: number of programs of the launch, i64, where it is known.
        streaming: whether whole-vector stores go past the caches (see `nontemporal`); streamed: whether any did.
    """

    def __init__(self, f: Function, arena: V, facts: ElementFacts, decisions: Decisions) -> None:
        self.f = f
        self.decisions = decisions
        self.arena = arena
        self.scalars: dict[SSAValue, V] = {}
        self.placed: dict[SSAValue, Buffer] = {}
        self.analysis = AffineAnalysis(lambda value: value in self.placed, facts)
        self.nest = Nest()
        self.programs: V | None = None
        self.streaming = self.streamed = False
        self._dummy: V | None = None
        self._memo: dict[object, V] = {}
        self._levels: list[list[object]] = [[]]

    @property
    def dummy(self) -> V:
        """Memory that a vector of lanes that are all masked off may be said to lie in."""
        if self._dummy is None:
            self._dummy = self.f.alloca(I8, DUMMY_BYTES)
        return self._dummy

    @abstractmethod
    def eval(self, value: SSAValue, index: Index) -> V:
        """`value` at `index`: a vector of the nest's lanes, or a scalar if all lanes agree."""

    # -- placement -----------------------------------------------------------------------------------

    def place(self, buffers: dict[SSAValue, Buffer]) -> None:
        """From now on these values are read from scratch."""
        self.placed.update(buffers)
        self.analysis.moved(buffers)

    def drop(self, values: Collection[SSAValue]) -> None:
        """Undo `place`."""
        for value in values:
            self.placed.pop(value, None)
        self.analysis.moved(values)

    def restore(self, placed: dict[SSAValue, Buffer]) -> None:
        """Go back to an earlier placement."""
        moved = self.placed.keys() ^ placed.keys()
        self.placed.clear()
        self.placed.update(placed)
        self.analysis.moved(moved)

    # -- scopes --------------------------------------------------------------------------------------

    def enter(self, nest: Nest) -> None:
        """Begin a loop nest."""
        self.nest = nest
        self._memo, self._levels = {}, [[]]

    def open(self, loop: int, index: V) -> None:
        """A loop of the nest has been opened."""
        self._levels.append([])
        self.nest.loops[loop] = index
        self.nest.depth[loop] = len(self._levels) - 1

    def close(self, loop: int) -> None:
        """The innermost open loop has been closed: what was emitted in it is out of reach."""
        for key in self._levels.pop():
            del self._memo[key]
        del self.nest.loops[loop], self.nest.depth[loop]

    def open_scope(self) -> None:
        """Begin a branch: what is evaluated in it is forgotten by `close_scope`."""
        self._levels.append([])

    def close_scope(self) -> None:
        """End a branch."""
        for key in self._levels.pop():
            del self._memo[key]

    def remember(self, key: object, value: V) -> V:
        """Keep `value` until the innermost open loop is closed."""
        if key not in self._memo:
            self._levels[-1].append(key)
        self._memo[key] = value
        return value

    def recall(self, key: object) -> V | None:
        return self._memo.get(key)

    def level_of(self, index: Index) -> int:
        """Depth of the innermost loop on which an index depends; beyond every open one if it is not open yet."""
        return max([self.nest.depth.get(src, 1 << 20) for src in sources(index) if src >= 0], default=0)

    # -- scalars -------------------------------------------------------------------------------------

    def scalar(self, value: SSAValue) -> V:
        """A scalar SSA value."""
        found = self.scalars.get(value)
        if found is None:
            owner, number = defining_op(value), constant_of(value)
            undefined = isinstance(owner, PoisonOp)
            if number is None and not undefined:
                raise InternalError(f"the scalar {value} is used before it is computed")
            made = zero(storage(ir_name(value.type))) if number is None else self.constant(value, number)
            found = self.scalars[value] = made
        return found

    def has(self, form: Form) -> bool:
        """Whether all that a form is made of has been computed; what iterations of an open loop compute has not."""
        atoms = [atom for poly in (form.constant, *form.coords.values()) for atom in poly.atoms()]
        return self.has_all([*atoms, *(value for value, _, _ in form.residual)])

    def has_all(self, values: Sequence[SSAValue]) -> bool:
        """Whether these scalars have been computed, and all that these tiles are made of."""

        def made_of(value: SSAValue) -> Sequence[SSAValue]:
            return operands_of(op) if is_tile(value) and value not in self.placed and (op := defining_op(value)) else ()

        parts = [value for value in reached(values, made_of) if not is_tile(value)]
        return all(value in self.scalars or constant_of(value) is not None for value in parts)

    def constant(self, value: SSAValue, number: int | float) -> V:
        """The LLVM constant of an element of `value`."""
        name = ir_name(element_type(value.type))
        if name.startswith("f8"):
            return from_working_float(self.f, const(F32, number), name)
        return const(storage(name), number)

    def atom(self, atom: Atom) -> V:
        """A scalar integer widened to i64."""
        key = ("atom", atom)
        found = self.recall(key)
        if found is None:
            v = self.scalar(atom.value)
            found = self.remember(key, self.f.cast("zext" if atom.unsigned else "sext", v, I64))
        return found

    def poly(self, poly: Poly) -> V:
        """The value of a polynomial, i64."""
        known = poly.constant
        if known is not None:
            return const(I64, known)
        key = ("poly", poly)
        found = self.recall(key)
        if found is None:
            total: V = const(I64, 0)
            for monomial, coefficient in poly.terms.items():
                term: V = const(I64, coefficient)
                for atom in monomial:
                    term = self.f.mul(self.atom(atom), term)
                total = self.f.add(total, term)
            found = self.remember(key, total)
        return found

    def bound(self, poly: Poly) -> V:
        """The value of a polynomial that places are compared with; wide numbers are held where no sum passes 0."""
        f, wide = self.f, wide_numbers(poly)
        rest = self.poly(poly - wide)
        if not wide.terms:
            return rest
        total: V = const(I64, 0)
        for (atom,), scale in wide.terms.items():
            total = f.intrinsic("sadd.sat" if scale == 1 else "ssub.sat", total, self.poly(Poly({(atom,): 1})))
        held = f.intrinsic("smax", f.intrinsic("smin", total, const(I64, FAR)), const(I64, -FAR))
        return f.add(rest, held)

    # -- coordinates ---------------------------------------------------------------------------------

    def coord(self, coord: Coord) -> V:
        """The part of a coordinate that all lanes share, i64."""
        key = ("coord", base_fields(coord))
        found = self.recall(key)
        if found is not None:
            return found
        total: V = const(I64, 0)
        for src, lo, width, pos in base_fields(coord):
            if src == CONST:
                total = self.f.add(total, lo << pos)
                continue
            part = self.nest.loops[src]
            above, below = lo + width < self.nest.bits[src], lo > self.nest.zeros.get(src, 0)
            if above or (below and pos):  # bits that are not of the field and that no shift drops
                part = self.f.and_(part, ((1 << width) - 1) << lo)
            if pos != lo:
                part = self.f.shl(part, pos - lo) if pos > lo else self.f.lshr(part, lo - pos)
            total = self.f.add(total, part)
        return self.remember(key, total)

    def lanes_of(self, coord: Coord) -> tuple[int, ...] | None:
        """What each lane adds to a coordinate, None for nothing."""
        return pattern(coord, self.nest.lanes) if self.nest.lanes else None

    def position(self, coord: Coord, t: T = I32) -> V:
        """The whole coordinate as an integer of type `t`: a vector if it varies over the lanes."""
        base = self.f.cast("trunc", self.coord(coord), t) if t.bits < 64 else self.coord(coord)
        lanes = self.lanes_of(coord)
        if lanes is None:
            return base
        return self.f.add(self.f.splat(base, len(lanes)), const_vector(t.vec(len(lanes)), list(lanes)))
