"""What holds for every launch with the same sizes, strides and grid, whatever lies in memory.

    bounds      no access leaves the memory of the argument that its address comes from
    races       no two programs touch one element that one of them writes, and no store stores to one element twice
    overflow    no sum or product of 32 bits that an address is made of wraps

The grid and all integers are numbers, so these are questions about linear inequalities (`launch_space.py`). "No" means
that there is no proof; the checks of the launch will see.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.ir import Block, Operation, SSAValue

from tilewright.analysis.affine import AffineAnalysis
from tilewright.analysis.bounds import below_zero, conjuncts_of, is_repeated_conjunction
from tilewright.analysis.constants import constant_of
from tilewright.analysis.distinct import lie_apart
from tilewright.analysis.homes import homes_of
from tilewright.analysis.index import Index, identity, whole
from tilewright.analysis.inequalities import InfeasibleError, Linear, TooManyError, is_infeasible, least
from tilewright.analysis.launch_space import Grid, LaunchSpace, Numbers, UnknownError
from tilewright.base.decision import Yes
from tilewright.ir.effect_traits import is_atomic, is_plain_read, is_plain_write
from tilewright.ir.types import pointee_bytes, shape_of
from tilewright.ir.values import defining_op, is_tile
from tilewright.ops.control import IfOp
from tilewright.ops.function import FuncOp

Extents = Mapping[int, tuple[int, int]]
_I32 = 1 << 31


@dataclass(frozen=True, slots=True)
class Access:
    """A load, store or atomic.

    Args:
        op: the operation; its first operand is the address.
        mask: of the access.
    """

    op: Operation
    mask: SSAValue | None


@dataclass(slots=True)
class _Reach:
    """Where an access of any program may go: bytes from the argument, under inequalities."""

    home: SSAValue
    offset: Linear
    rows: list[Linear]
    size: int


class LaunchProofs:
    """Proofs for one launch of a kernel.

    Args:
        kernel: simplified tile IR whose carried offsets are scalars.
        numbers: of the launch.
        extents: bytes from each argument to the start and the end of its memory, by number.
        grid: programs along x, y and z.
    """

    def __init__(self, kernel: FuncOp, numbers: Numbers, extents: Extents, grid: Grid) -> None:
        self.kernel, self.numbers, self.extents, self.grid = kernel, numbers, extents, grid
        self.analysis = AffineAnalysis()
        self._reaches: dict[Operation, _Reach] = {}

    # -- bounds ------------------------------------------------------------------------------------------

    def stays_inside(self, access: Access) -> str:
        """Why there is no proof that an access stays in the memory of its argument; "" if there is one."""
        try:
            reach = self._reach(access)
            number = reach.home.index  # type: ignore[attr-defined]
            if number not in self.extents:
                return "nobody knows how large the argument is"
            low, high = self.extents[number]
            first = least(reach.offset, reach.rows)
            last = least(-reach.offset, reach.rows)
        except InfeasibleError:
            return ""  # there is no element
        except TooManyError:
            return "too many inequalities"
        except UnknownError as unknown:
            return str(unknown)
        if first is None or last is None:
            return "an address without bounds"
        if first < low or -last + reach.size > high:
            return f"bytes {first} to {-last + reach.size} of {low} to {high}"
        return ""

    def _reach(self, access: Access) -> _Reach:
        """Where an access goes.

        Raises:
            UnknownError: that cannot be said.
        """
        found = self._reaches.get(access.op)
        if found is None:
            found = self._reaches[access.op] = self._reached(access)
        return found

    def _reached(self, access: Access) -> _Reach:
        op, address = access.op, access.op.operands[0]
        homes = homes_of(address)
        if len(homes) != 1:
            raise UnknownError("an address that may come from several arguments, or from memory")
        space = LaunchSpace(self.kernel, self.numbers, self.grid, self.analysis)
        shape = shape_of(address.type)
        index = identity(shape)
        form = space.analysis.pointer(address, index)
        if form.base is not homes[0]:
            raise UnknownError("an address that is carried")
        for dim, extent in enumerate(shape):
            if extent > 1:
                space.limit_place(whole(dim, extent), extent, 0)
        offset = space.form(form.offset, 0)
        self._around(op, space)
        if access.mask is not None:
            self._under(access.mask, index if is_tile(access.mask) else (), space)
        return _Reach(homes[0], offset, space.rows, pointee_bytes(address.type))

    def _under(self, mask: SSAValue, index: Index, space: LaunchSpace) -> None:
        """Add what holds where a mask does; parts that say nothing in numbers are left out."""
        for value, at in conjuncts_of(mask, index, through=is_repeated_conjunction):
            if defining_op(value) is None or constant_of(value) is not None:
                continue
            answer = below_zero(value, at, space.analysis, "", of_rows=True)
            if isinstance(answer, Yes):
                try:
                    space.rows.append((-space.form(answer.plan, 0)).plus(-1))
                except UnknownError:
                    continue

    def _around(self, op: Operation, space: LaunchSpace) -> None:
        """Add what holds inside of the branches that an access stands in."""
        block: Block | None = op.parent_block()
        parent = op.parent_op()
        while parent is not None and parent is not self.kernel and block is not None:
            if isinstance(parent, IfOp) and block is parent.regions[0].blocks[0]:
                self._under(parent.operands[0], (), space)
            block, parent = parent.parent_block(), parent.parent_op()

    # -- races -------------------------------------------------------------------------------------------

    def never_meet(self, accesses: Sequence[Access], storages: Mapping[int, int]) -> str:
        """Why there is no proof that no two programs meet; "" if there is one.

        Args:
            accesses: all of the kernel.
            storages: number of each argument with that of the storage that it lies in.
        """
        for access in accesses:
            why = self._elements_meet(access) if is_plain_write(access.op) else ""
            if why:
                return why
        if self.grid == (1, 1, 1):
            return ""
        changes = [access for access in accesses if not is_plain_read(access.op)]
        for change, other in itertools.product(changes, accesses):
            if is_atomic(change.op) and is_atomic(other.op):
                continue
            try:
                why = self._pair(change, other, storages)
            except UnknownError as unknown:
                why = str(unknown)
            if why:
                return why
        return ""

    def _elements_meet(self, access: Access) -> str:
        """Why there is no proof that the elements of a tile are stored to places of their own; "" if there is one."""
        address = access.op.operands[0]
        homes = homes_of(address)
        if len(homes) == 1 and lie_apart(address, homes[0], self.analysis):
            return ""
        try:
            reach = self._reach(access)
        except InfeasibleError:
            return ""
        except UnknownError as unknown:
            return str(unknown)
        rows = [_of_element(row, copy) for row in reach.rows for copy in (0, 1)]
        difference = _of_element(reach.offset, 0) - _of_element(reach.offset, 1)
        rows += [difference.plus(reach.size - 1), (-difference).plus(reach.size - 1)]
        rows += _nested(difference, rows, reach.size)
        places = {
            variable for row in (reach.offset, *reach.rows) for variable in row.terms if _sort(variable) == "place"
        }
        shape = [extent for extent in shape_of(address.type) if extent > 1]
        if len(places) != len(shape):  # a dim of which the address says nothing, or bits of one
            return "a tile that may store to one element twice"
        for place in places:
            apart = Linear.of((0, place)) - Linear.of((1, place))
            try:
                if not is_infeasible([*rows, apart.plus(-1)]):
                    return "a tile that may store to one element twice"
            except TooManyError:
                return "too many inequalities"
        return ""

    def _pair(self, one: Access, other: Access, storages: Mapping[int, int]) -> str:
        a, b = self._reach(one), self._reach(other)
        first, second = (reach.home.index for reach in (a, b))  # type: ignore[attr-defined]
        if first != second:
            if first in storages and second in storages and storages[first] != storages[second]:
                return ""
            return "two arguments that share memory"
        rows = [_copied(row, 0) for row in a.rows] + [_copied(row, 1) for row in b.rows]
        difference = _copied(a.offset, 0) - _copied(b.offset, 1)
        rows += [difference.plus(b.size - 1), (-difference).plus(a.size - 1)]
        rows += _nested(difference, rows, max(a.size, b.size))
        for axis, extent in enumerate(self.grid):
            if extent == 1:
                continue
            apart = _copied(Linear.of(("program", axis)), 0) - _copied(Linear.of(("program", axis)), 1)
            if not all(is_infeasible([*rows, way.plus(-1)]) for way in (apart, -apart)):
                return "programs that may touch one element"
        return ""

    # -- overflow ----------------------------------------------------------------------------------------

    def fits(self, op: Operation) -> str:
        """Why there is no proof that the result of an operation of 32 bits does not wrap; "" if there is one."""
        space = LaunchSpace(self.kernel, self.numbers, self.grid, self.analysis)
        try:
            self._around(op, space)
            shape = shape_of(op.results[0].type)
            for dim, extent in enumerate(shape):
                if extent > 1:
                    space.limit_place(whole(dim, extent), extent, 0)
            index = identity(shape) if shape else ()
            result = op.results[0]
            value = space.form(space.analysis.integer(result, index), 0) if shape else space.scalar(result)
            low, high = least(value, space.rows), least(-value, space.rows)
        except InfeasibleError:
            return ""
        except TooManyError:
            return "too many inequalities"
        except UnknownError as unknown:
            return str(unknown)
        return "" if low is not None and high is not None and low >= -_I32 and -high < _I32 else "a sum without bounds"


def _nested(difference: Linear, rows: list[Linear], size: int) -> list[Linear]:
    """What follows for whole numbers where two addresses meet: the digits of strides that nest are equal one by one.

    Of `stride * d + e`, nearer to zero than the bytes of an element, d is 0 where |e| stays below the stride.
    """
    found: list[Linear] = []
    rest = difference
    for stride in sorted({abs(factor) for factor in difference.terms.values()}, reverse=True):
        digit = Linear(0, {v: factor // stride for v, factor in rest.terms.items() if factor % stride == 0})
        part = rest - digit.times(stride)
        if not part.terms or not digit.terms:
            continue
        try:
            low, high = least(part, [*rows, *found]), least(-part, [*rows, *found])
        except (TooManyError, InfeasibleError):
            continue
        if low is not None and high is not None and max(abs(low), abs(high)) + size <= stride:
            found += [digit, -digit]
            rest = part
    return found


def _of_element(row: Linear, copy: int) -> Linear:
    """An expression of one of two elements of a tile, in one iteration of one program."""
    shared = ("argument", "program", "iteration")
    terms = {v if _sort(v) in shared else (copy, v): factor for v, factor in row.terms.items()}
    return Linear(row.constant, terms)


def _sort(variable: object) -> object:
    """What a variable of `LaunchSpace` stands for."""
    return variable[0] if isinstance(variable, tuple) else variable


def _copied(row: Linear, copy: int) -> Linear:
    """An expression of one of two programs."""
    terms = {v if _sort(v) == "argument" else (copy, v): factor for v, factor in row.terms.items()}
    return Linear(row.constant, terms)
