"""A kernel under one launch: its scalars and places as linear expressions in what a launch leaves open.

Sizes and strides of a launch are numbers, so products with them are linear. Open are the program, the place in a tile,
the iteration of a loop, and quotients, which are variables with inequalities:

    program 0 <= p < grid          iteration i = lb + step * t, 0 <= t, i < ub
    place   0 <= x < extent        q = a // d: d * q <= a <= d * q + d - 1

What is not known (contents of memory) raises `UnknownError`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from xdsl.ir import BlockArgument, Operation, SSAValue

from tilewright.analysis.affine import AffineAnalysis, Form, Poly, expanded
from tilewright.analysis.constants import constant_of
from tilewright.analysis.elements import operand_indices
from tilewright.analysis.index import CONST, Coord, Index
from tilewright.analysis.inequalities import InfeasibleError, Linear, TooManyError, least
from tilewright.analysis.scalar_evolution import ScalarEvolution
from tilewright.ir.types import bit_width, element_type, is_integer
from tilewright.ir.values import defining_op, is_tile, property_int
from tilewright.ops.casts import ExtSIOp, ExtUIOp, TruncIOp
from tilewright.ops.control import ForOp
from tilewright.ops.elementwise import (
    AddIOp,
    AndIOp,
    DivSIOp,
    DivUIOp,
    MaxSIOp,
    MinSIOp,
    MulIOp,
    RemSIOp,
    RemUIOp,
    SubIOp,
)
from tilewright.ops.function import FuncOp
from tilewright.ops.program import GetNumProgramsOp, GetProgramIdOp

Grid = tuple[int, int, int]
Numbers = Sequence[int | range | None]
"""Value of each integer parameter by its number, or what it may be; None for others."""


class UnknownError(Exception):
    """Something that the launch does not tell; the message says what."""


class LaunchSpace:
    """The scalars of a kernel, and places in its tiles, for any program of a launch.

    Args:
        kernel: whose carried offsets are scalars.
        numbers: of the launch.
        grid: programs along x, y and z.
        analysis: of the kernel.

    Attributes:
        rows: inequalities that hold for what has been asked.
        programs: the variables of the place in the grid; a number stands for an axis of one program.
    """

    def __init__(self, kernel: FuncOp, numbers: Numbers, grid: Grid, analysis: AffineAnalysis) -> None:
        self.kernel, self.numbers, self.grid, self.analysis = kernel, numbers, grid, analysis
        self.rows: list[Linear] = []
        self._known: dict[Any, Linear] = {}
        self._forming: set[Any] = set()
        self._loops: dict[Operation, ScalarEvolution] = {}
        self.programs = [Linear.of(("program", axis)) if n > 1 else Linear(0) for axis, n in enumerate(grid)]
        for axis, program in enumerate(self.programs):
            self._between(program, Linear(0), Linear(grid[axis] - 1))

    def _between(self, value: Linear, low: Linear, high: Linear) -> None:
        if value.terms:
            self.rows += [value - low, high - value]

    # -- forms -------------------------------------------------------------------------------------------

    def form(self, form: Form, space: object) -> Linear:
        """An affine form; `space` tells places of one tile from those of another."""
        total = self.poly(form.constant)
        for coord, stride in form.coords.items():
            total = total + self._product(self._place(coord, space), self.poly(stride))
        for value, index, scale in form.residual:
            total = total + self._product(self.element(value, index, space), self.poly(scale))
        return total

    def poly(self, poly: Poly) -> Linear:
        """A polynomial in scalars."""
        total = Linear()
        for monomial, factor in expanded(poly).terms.items():
            term = Linear(factor)
            for atom in monomial:
                value = self.scalar(atom.value)
                if atom.unsigned:
                    self._within(value, 0, None)
                term = self._product(term, value)
            total = total + term
        return total

    def _product(self, a: Linear, b: Linear) -> Linear:
        if not a.terms:
            return b.times(a.constant)
        if not b.terms:
            return a.times(b.constant)
        raise UnknownError("a product of two numbers that the launch leaves open")

    def _place(self, coord: Coord, space: object) -> Linear:
        total = Linear()
        for part in coord:
            if part.src == CONST:
                total = total.plus(part.lo << part.pos)
                continue
            key = ("place", space, part.src, part.lo, part.width)
            if key not in self._known:
                self._known[key] = Linear.of(key)
                self._between(self._known[key], Linear(0), Linear((1 << part.width) - 1))
            total = total + self._known[key].times(1 << part.pos)
        return total

    def limit_place(self, coord: Coord, extent: int, space: object) -> None:
        """A whole coordinate stays below its extent, which may be no power of two."""
        place = self._place(coord, space)
        self._between(place, Linear(0), Linear(extent - 1))

    # -- values ------------------------------------------------------------------------------------------

    def element(self, value: SSAValue, index: Index, space: object) -> Linear:
        """An element of a tile of integers that is not affine."""
        key = (value, index, space)
        return self._remembered(key, lambda: self._element(value, index, space))

    def scalar(self, value: SSAValue) -> Linear:
        """A scalar integer."""
        return self._remembered(value, lambda: self._scalar(value))

    def _remembered(self, key: Any, make: Callable[[], Linear]) -> Linear:
        if key not in self._known:
            if key in self._forming:
                raise UnknownError("a number that is carried in a circle")
            self._forming.add(key)
            try:
                self._known[key] = make()
            finally:
                self._forming.discard(key)
        return self._known[key]

    def _scalar(self, value: SSAValue) -> Linear:
        known = constant_of(value)
        if isinstance(known, int):
            return Linear(int(known))
        op = defining_op(value)
        if op is None:
            return self._argument(value)
        if isinstance(op, GetProgramIdOp):
            return self.programs[property_int(op, "axis")]
        if isinstance(op, GetNumProgramsOp):
            return Linear(self.grid[property_int(op, "axis")])
        if is_tile(value) or op.regions:
            raise UnknownError(f"the result of {op.name}")
        return self._operation(op, lambda operand: self.scalar(operand))

    def _argument(self, value: SSAValue) -> Linear:
        assert isinstance(value, BlockArgument)
        parent = value.block.parent_op()
        if parent is self.kernel:
            number = self.numbers[value.index]
            if number is None:
                raise UnknownError("an argument that is no integer")
            if isinstance(number, int):
                return Linear(number)
            made = Linear.of(("argument", value.index))
            self._between(made, Linear(number.start), Linear(number.stop - 1))
            return made
        if not isinstance(parent, ForOp) or not is_integer(value.type):
            raise UnknownError("what a loop carries")
        iteration = self._iteration(parent)
        if value.index == 0:
            step = self.scalar(parent.step)
            return self.scalar(parent.lb) + self._product(step, iteration)
        evolution = self._loops.setdefault(parent, ScalarEvolution(parent))
        gain = evolution.gain(Poly.atom(value))
        if gain is None:
            raise UnknownError("what a loop carries does not grow evenly")
        return self.scalar(parent.iter_args[value.index - 1]) + self._product(self.poly(gain), iteration)

    def _iteration(self, loop: ForOp) -> Linear:
        """The number of the iteration, from 0."""
        key = ("iteration", loop)
        if key not in self._known:
            step = self.scalar(loop.step)
            if step.terms or step.constant <= 0 or loop.unsignedCmp is not None:
                raise UnknownError("the step of a loop")
            made = Linear.of(key)
            first, end = self.scalar(loop.lb), self.scalar(loop.ub)
            self._known[key] = made
            self.rows += [made, (end - first - made.times(step.constant)).plus(-1)]
        return self._known[key]

    def _element(self, value: SSAValue, index: Index, space: object) -> Linear:
        op = defining_op(value)
        if op is None:
            raise UnknownError("a tile that a loop carries")
        places = dict(operand_indices(value, index)) if len(set(op.operands)) == len(op.operands) else None

        def operand(each: SSAValue) -> Linear:
            if places is None:
                raise UnknownError("an operation with itself")
            return self.form(self.analysis.integer(each, places[each]), space)

        return self._operation(op, operand)

    def _operation(self, op: Operation, operand: Callable[[SSAValue], Linear]) -> Linear:
        """An integer operation on what `operand` gives."""
        kind = type(op)
        if not all(is_integer(element_type(each.type)) for each in op.operands) or kind not in _RULES:
            raise UnknownError(f"the result of {op.name}")
        made = _RULES[kind](self, *(operand(each) for each in op.operands))
        if kind is ExtUIOp:
            self._within(made, 0, None)
        elif kind is TruncIOp:
            half = 1 << bit_width(element_type(op.results[0].type)) - 1
            self._within(made, -half, half - 1)
        return made

    def _within(self, value: Linear, low: int, high: int | None) -> None:
        """Raise UnknownError unless a number is known to be at least `low`, and at most `high`."""
        first, last = self._least(value), self._least(-value) if high is not None else None
        if first is None or first < low or (high is not None and (last is None or -last > high)):
            raise UnknownError("a number that may be negative, or too large")

    def _least(self, value: Linear) -> int | None:
        try:
            return least(value, self.rows)
        except (TooManyError, InfeasibleError):
            return None

    def quotient(self, a: Linear, b: Linear) -> Linear:
        """A quotient of numbers that are not negative, rounded down, by a number."""
        if b.terms:
            return self._open_quotient(a, b)
        if b.constant <= 0:
            raise UnknownError("a quotient by a number that is not positive")
        if not a.terms:
            return Linear(a.constant // b.constant if a.constant >= 0 else -(-a.constant // b.constant))
        self._within(a, 0, None)
        key = ("quotient", a.constant, frozenset(a.terms.items()), b.constant)
        if key not in self._known:
            made = self._known[key] = Linear.of(key)
            self._between(a, made.times(b.constant), made.times(b.constant).plus(b.constant - 1))
        return self._known[key]

    def _open_quotient(self, a: Linear, b: Linear) -> Linear:
        """A quotient by what is not one number: it is as large as one by the least divisor, at most."""
        self._within(a, 0, None)
        by = self._least(b)
        if by is None or by < 1:
            raise UnknownError("a quotient by what may not be positive")
        key = ("quotient", a.constant, frozenset(a.terms.items()), b.constant, frozenset(b.terms.items()))
        if key not in self._known:
            made = self._known[key] = Linear.of(key)
            self.rows += [made, a - made.times(by)]
        return self._known[key]

    def remainder(self, a: Linear, b: Linear) -> Linear:
        """What the quotient leaves."""
        if b.terms:
            self._within(a, 0, None)
            self._within(b, 1, None)
            key = ("remainder", a.constant, frozenset(a.terms.items()), b.constant, frozenset(b.terms.items()))
            if key not in self._known:
                made = self._known[key] = Linear.of(key)
                self.rows += [made, a - made, (b - made).plus(-1)]
            return self._known[key]
        return a - self.quotient(a, b).times(b.constant)

    def lower(self, a: Linear, b: Linear) -> Linear:
        """The lesser of two numbers."""
        if not a.terms and not b.terms:
            return Linear(min(a.constant, b.constant))
        lows = [self._least(a), self._least(b)]
        made = Linear.of(("lesser", a.constant, frozenset(a.terms.items()), b.constant, frozenset(b.terms.items())))
        self.rows += [a - made, b - made]
        if None not in lows:
            self.rows.append(made.plus(-min(low for low in lows if low is not None)))
        return made

    def masked(self, a: Linear, b: Linear) -> Linear:
        """The lowest bits of a number that is not negative."""
        if b.terms or b.constant < 0 or b.constant & (b.constant + 1):
            raise UnknownError("bits of a number")
        return self.remainder(a, Linear(b.constant + 1))


_RULES: Mapping[type[Operation], Callable[..., Linear]] = {
    AddIOp: lambda space, a, b: a + b,
    SubIOp: lambda space, a, b: a - b,
    MulIOp: LaunchSpace._product,
    ExtSIOp: lambda space, a: a,
    ExtUIOp: lambda space, a: a,
    TruncIOp: lambda space, a: a,
    DivSIOp: LaunchSpace.quotient,
    DivUIOp: LaunchSpace.quotient,
    RemSIOp: LaunchSpace.remainder,
    RemUIOp: LaunchSpace.remainder,
    MinSIOp: LaunchSpace.lower,
    MaxSIOp: lambda space, a, b: -space.lower(-a, -b),
    AndIOp: LaunchSpace.masked,
}
