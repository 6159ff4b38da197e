"""Checks that accesses stay in the memory of the argument that their address comes from.

    corner      the address is affine and the mask cuts a box: the first and the last element are compared, as scalars
    lanes       every element that the mask leaves is compared

Offsets are computed in 64 bits from what the program has: an i32 that wrapped is seen as what it became.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from xdsl.ir import SSAValue

from tilewright.analysis.affine import AffineAnalysis, Form, Poly
from tilewright.analysis.bounds import below_zero, conjuncts_of, is_repeated_conjunction
from tilewright.analysis.constants import constant_of
from tilewright.analysis.homes import is_direct
from tilewright.analysis.index import Coord, Index, identity, whole
from tilewright.base.decision import Yes
from tilewright.ir.types import bit_width, element_type, i32, is_integer, pointee_bytes, shape_of
from tilewright.ir.values import defining_op, is_tile
from tilewright.ops.elementwise import MaxSIOp, MinSIOp
from tilewright.passes.check_code import Code

_I32 = 1 << 31


@dataclass(slots=True)
class Box:
    """The elements of an access that its mask leaves, and where they lie.

    Args:
        offset: bytes from the argument, by coordinates of the tile.
        shape: of the tile.
        below: numbers of which each coordinate is below, by dim.
        above: numbers that each coordinate is not below.
        never: conditions in polynomials: where one is not negative there is no element.
        only: masks of the whole tile.
    """

    offset: Form
    shape: tuple[int, ...]
    below: dict[int, list[Poly]] = field(default_factory=dict)
    above: dict[int, list[Poly]] = field(default_factory=dict)
    never: list[Poly] = field(default_factory=list)
    only: list[SSAValue] = field(default_factory=list)


def box_of(address: SSAValue, mask: SSAValue | None, home: SSAValue, analysis: AffineAnalysis) -> Box | None:
    """The box of an access; None where the address is not affine or the mask cuts something else."""
    shape = shape_of(address.type)
    form = analysis.pointer(address, identity(shape))
    dims = {whole(dim, extent): dim for dim, extent in enumerate(shape) if extent > 1}
    if form.base is not home or form.offset.residual or not dims.keys() >= form.offset.coords.keys():
        return None
    box = Box(form.offset, shape)
    known = [form.offset.constant, *form.offset.coords.values()]
    if mask is not None and not _cut(box, mask, dims, analysis):
        return None
    known += [poly for limits in (*box.below.values(), *box.above.values(), box.never) for poly in limits]
    return box if all(is_integer(value.type) for poly in known for value in poly.atoms()) else None


def _cut(box: Box, mask: SSAValue, dims: dict[Coord, int], analysis: AffineAnalysis) -> bool:
    """Leave only the elements of a mask; False if they are no box."""
    index: Index = identity(box.shape) if is_tile(mask) else ()
    for value, at in conjuncts_of(mask, index, through=is_repeated_conjunction):
        if constant_of(value) == 1:
            continue
        if not is_tile(value):
            box.only.append(value)
        elif not _bound(box, value, at, dims, analysis):
            return False
    return True


def _bound(box: Box, value: SSAValue, index: Sequence[Coord], dims: dict[Coord, int], analysis: AffineAnalysis) -> bool:
    answer = below_zero(value, tuple(index), analysis, "") if defining_op(value) is not None else None
    if not isinstance(answer, Yes):
        return False
    form = answer.plan
    if not form.coords:
        box.never.append(form.constant)
        return True
    if len(form.coords) != 1:
        return False
    ((coord, stride),) = form.coords.items()
    if coord not in dims or stride.constant not in (1, -1):
        return False
    if stride.constant == 1:  # x + c < 0
        box.below.setdefault(dims[coord], []).append(-form.constant)
    else:  # c - x < 0
        box.above.setdefault(dims[coord], []).append(form.constant + Poly.of(1))
    return True


@dataclass(frozen=True, slots=True)
class Corners:
    """The least and the greatest value of a form over a box, in 64 bits.

    Args:
        least, most: the values.
        at_least, at_most: coordinates of the elements that have them, by dim.
    """

    least: SSAValue
    most: SSAValue
    at_least: list[SSAValue]
    at_most: list[SSAValue]

    def place(self, code: Code, wants_least: SSAValue) -> tuple[SSAValue, list[SSAValue]]:
        """The least value where a condition holds, else the greatest, and where it is."""
        pairs = zip(self.at_least, self.at_most, strict=True)
        shown = code.choose(wants_least, self.least, self.most)
        return shown, [code.choose(wants_least, first, last) for first, last in pairs]


def corners_of(
    code: Code, form: Form, shape: Sequence[int], ranges: Sequence[tuple[SSAValue, SSAValue]] | None = None
) -> Corners:
    """The corners of a form.

    Args:
        code: writes what computes them.
        form: affine in the coordinates of a tile.
        shape: of the tile.
        ranges: first and last coordinate of the box by dim; None for the whole tile.
    """
    zero = code.number(0)
    least = most = code.poly(form.constant)
    strides = {whole(dim, n): dim for dim, n in enumerate(shape)}
    moved = {strides[coord]: stride for coord, stride in form.coords.items()}
    firsts, lasts = [], []
    for dim, count in enumerate(shape):
        first, last = ranges[dim] if ranges is not None else (zero, code.number(count - 1))
        if dim in moved:
            stride = code.poly(moved[dim])
            if (moved[dim].constant or 0) < 0:
                first, last = last, first
            elif moved[dim].constant is None:
                turned = code.compare("slt", stride, zero)
                first, last = code.choose(turned, last, first), code.choose(turned, first, last)
            least = code.add(least, code.mul(stride, first))
            most = code.add(most, code.mul(stride, last))
        firsts.append(first)
        lasts.append(last)
    return Corners(least, most, firsts, lasts)


def check_corner(code: Code, box: Box, extent: tuple[SSAValue, SSAValue], size: int, site: int, *, ends: bool) -> None:
    """Compare the least and the greatest address of a box with the extent of the argument, in bytes."""
    zero = code.number(0)
    empty = [code.compare("sge", code.poly(poly), zero) for poly in box.never]
    empty += [code.negated(mask) for mask in box.only]
    ranges = []
    for dim, count in enumerate(box.shape):
        first, last = zero, code.number(count - 1)
        for limit in box.below.get(dim, ()):
            last = code.op(MinSIOp, last, code.sub(code.poly(limit), code.number(1)))
        for limit in box.above.get(dim, ()):
            first = code.op(MaxSIOp, first, code.poly(limit))
        if dim in box.below or dim in box.above:
            empty.append(code.compare("slt", last, first))
        ranges.append((first, last))
    corners, (low, high) = corners_of(code, box.offset, box.shape, ranges), extent
    fits = code.compare("sle", code.add(corners.most, code.number(size)), high)
    holds = code.both(code.compare("sge", corners.least, low), fits)
    for nothing in empty:
        holds = code.either(holds, nothing)
    shown, place = corners.place(code, fits)
    code.check(site, holds, [shown, zero, *place], ends=ends)


def lanes_inside(
    code: Code, address: SSAValue, home: SSAValue, extent: tuple[SSAValue, SSAValue]
) -> tuple[SSAValue, SSAValue]:
    """Which elements of an access lie in the memory of an argument, and the offset of each in bytes."""
    size, (low, high) = pointee_bytes(address.type), extent
    if not is_direct(address, home):
        at = code.bytes_from(address, home)
        end = code.add(at, code.number(size, at.type))
        return code.both(code.compare("sge", at, low), code.compare("sle", end, high)), at
    at, times = code.elements_from(address, home), size.bit_length() - 1
    first = code.half(code.add(low, code.number(size - 1)), times)
    last = code.sub(code.half(high, times), code.number(1))
    wide = code.wide(at)
    offset = code.mul(wide, code.number(size, wide.type))
    if bit_width(element_type(at.type)) == bit_width(i32):
        first, last = code.op(MaxSIOp, first, code.number(-_I32)), code.op(MinSIOp, last, code.number(_I32 - 1))
        first, last = code.narrow(first), code.narrow(last)
    return code.both(code.compare("sge", at, first), code.compare("sle", at, last)), offset
