"""Loads through pointers that read a box of a tensor: what a descriptor of the host would say of them.

    base + (m + i) * stride + (k + j)        where m + i < M and k + j < K        a box of [M, K] at [m, k]

An address is a sum of places times strides; a place is what a program computes plus the place in the tile. The strides
and bounds have to be parameters of the kernel or numbers, as the launch makes the tensor map of them: it sees whether
their values suit one (`device/tensormap.py`), and launches a kernel without maps if they do not. What has to hold for
all launches is proved here: places are not negative and fit 32 bits, and rows start at multiples of 16 bytes. A mask
says where the tensor ends; no mask says that it does not end within reach.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from xdsl.ir import BlockArgument, SSAValue

from tilewright.analysis.affine import (
    ZERO,
    AffineAnalysis,
    Atom,
    Form,
    Monomial,
    Poly,
    as_operand,
    divisor_of,
    expanded,
)
from tilewright.analysis.axis import ElementFacts
from tilewright.analysis.bounds import below_zero, conjuncts_of
from tilewright.analysis.flow import carried_by, counted_by
from tilewright.analysis.index import Index, identity, whole
from tilewright.analysis.iterations import Way, in_counters, is_unit, way_of
from tilewright.analysis.origins import is_parameter
from tilewright.analysis.uniform import scalar_of
from tilewright.backends.nvidia.plan.tma import plan_copy
from tilewright.backends.nvidia.plan.wrapped import wrapped_rows
from tilewright.backends.nvidia.tgir.types import memory_bits
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.types import bit_width, element_type, i32, is_pointer, pointee_bytes, shape_of
from tilewright.ir.values import defining_op, is_made_inside
from tilewright.ir.walk import among
from tilewright.ops.control import ForOp
from tilewright.ops.descriptor import DESCRIPTOR_STRIDE
from tilewright.ops.elementwise import CmpIOp
from tilewright.ops.elementwise_pointer import AddPtrOp
from tilewright.ops.function import FuncOp
from tilewright.ops.memory import LoadOp, is_volatile
from tilewright.ops.signs import never_negative

_ALIGNMENT = 16  # bytes
_MOST_DIMS = 5  # of a tensor map
_AFFINE = "pointer + (row + arange)[:, None] * stride + (column + arange)[None, :]"


@dataclass(frozen=True, slots=True)
class Side:
    """A box along one dim of a tensor.

    Args:
        tile_dim: dim of the tile that goes along it; None where the box is one element long.
        stride: between neighbours, in elements: a parameter or a number.
        place: of the first element of the box.
        bound: size of the tensor, a parameter or a number; None for as far as there are numbers.
    """

    tile_dim: int | None
    stride: SSAValue | int
    place: Poly
    bound: SSAValue | int | None = None


@dataclass(frozen=True, slots=True)
class Box:
    """What a load reads.

    Args:
        base: pointer parameter to the tensor.
        sides: of the box, the contiguous one last.
        natural: parameters that must not be negative.
        wide: whether the program computes places with 64 bits, so that one outside of the tensor may take more than 32.
    """

    base: SSAValue
    sides: tuple[Side, ...]
    natural: tuple[BlockArgument, ...]
    wide: bool

    @property
    def order(self) -> tuple[int, ...]:
        """The dims of the tile as they lie in memory, the contiguous one last."""
        return tuple(side.tile_dim for side in self.sides if side.tile_dim is not None)


@dataclass(frozen=True, slots=True)
class _Address:
    """An address: a pointer that no offset is added to, and bytes.

    Args:
        base: the pointer.
        offset: the bytes, in scalars that are not sums or products of others.
        added: what of them the program does not compute with 32 bits.
        is_wide: whether an offset has more bits.
    """

    base: SSAValue
    offset: Form
    added: tuple[Poly, ...]
    is_wide: bool


class Boxes:
    """Finds the boxes that loads of a function read.

    Args:
        function: simplified tile IR, calls inlined.
    """

    def __init__(self, function: FuncOp) -> None:
        self.facts = ElementFacts(function)
        self.analysis = AffineAnalysis(facts=self.facts)
        parameters = enumerate(function.body.block.args)
        self.strides = {value for number, value in parameters if DESCRIPTOR_STRIDE in function.arg_attributes(number)}

    def of(self, load: LoadOp) -> Answer[Box]:
        """The box that a load of a tile reads, if it is known to be one that the copy engine can move."""
        if is_volatile(load):
            return No("it is volatile")
        shape = shape_of(load.result.type)
        index: Index = tuple(whole(dim, extent) for dim, extent in enumerate(shape))
        found = self._box(load, index, self._take_wrapped(load, index))
        if self.analysis.taken_for:  # other loads of these rows may not
            self.analysis.taken_for.clear()
            self.analysis.forget()
        if isinstance(found, No):
            return found
        plan = plan_copy(tuple(shape[dim] for dim in found.order), memory_bits(element_type(load.result.type)))
        if len(found.sides) > _MOST_DIMS:
            return No(f"it has more than {_MOST_DIMS} strides", load)
        return plan if isinstance(plan, No) else Yes(found)

    def _box(self, load: LoadOp, index: Index, ends: Mapping[int | None, Poly]) -> Box | No:
        """The box that a load reads; `ends` has, by dim, what is negative inside with the place in a tile added."""
        address = self._address(load.ptr, index)
        if address is None or address.offset.residual:
            return No("its address is not known to be affine in the element's place", load, _AFFINE)
        if not is_parameter(address.base) or self.facts[address.base].divisibility[0] % _ALIGNMENT:
            return No("it is not known to start from a parameter that is a multiple of 16", load)
        sides = self._sides(load, index, address)
        if isinstance(sides, No):
            return sides
        for number, side in enumerate(sides):
            if side.tile_dim in ends:
                sides[number] = replace(side, bound=_value(side.place + -ends[side.tile_dim]))
                if sides[number].bound is None:
                    return No("where its rows wrap is no parameter of the kernel, and no number", load)
        bounded = self._bounded(load, index, sides)
        if isinstance(bounded, No):
            return bounded
        wide = address.is_wide or any(map(_is_wide, _compared(load.mask)))
        return self._refused(bounded[0], address, _bytes(load)) or Box(address.base, *bounded, wide)

    def _take_wrapped(self, load: LoadOp, index: Index) -> dict[int | None, Poly]:
        """Take rows that wrap behind the last one for rows that follow it, where nobody stores what is made of those;
        gives what is negative up to the last one, with the place in the tile added, by dim."""
        form, found = self.analysis.pointer(load.ptr, index), dict[int | None, Poly]()
        if form.tile is not None and (carried := carried_by(form.tile[0])) is not None:  # as the loop begins
            loop, number = carried
            form = self.analysis.pointer(loop.iter_args[number], form.tile[1])
        for value, at, _ in form.offset.residual:
            rows = wrapped_rows(load, value, at, index, self.analysis)
            if rows is not None:
                found[rows.dim] = rows.below
                self.analysis.taken_for[value] = as_operand(rows.plain)
        if found:
            self.analysis.forget()
        return found

    # -- addresses ---------------------------------------------------------------------------------------

    def _address(self, pointer: SSAValue, index: Index) -> _Address | None:
        """The address of an element, with tiles that loops carry as sums in their counters."""
        form, offsets = self.analysis.pointer(pointer, index), _offsets(pointer)
        offset, added = form.offset, list[Poly]()
        while form.tile is not None:
            carried, at = form.tile
            loop, number = carried_by(carried) or (None, 0)
            if loop is None or not is_unit(loop):
                return None
            step = _step(carried, loop.yielded[number])
            if step is None or any(is_made_inside(atom, loop) for atom in step.atoms()):
                return None
            moved = Poly.atom(loop.induction_var) * step
            offset, first = offset.plus(Form(moved)), loop.iter_args[number]
            added.append(moved)
            offsets += _offsets(first)
            form = self.analysis.pointer(first, at)
            offset = offset.plus(form.offset)
        if form.base is None:
            return None
        wide = [(value, size) for value, size in offsets if _is_wide(value)]
        added += [in_counters(self._constant(value)) * Poly.of(size) for value, size in wide]
        offset = Form(in_counters(offset.constant), offset.coords, offset.residual)
        return _Address(form.base, offset, tuple(added), bool(wide))

    def _constant(self, value: SSAValue) -> Poly:
        """What the elements of an integer tile have beside their places in it."""
        return self.analysis.integer(value, tuple(whole(dim, n) for dim, n in enumerate(shape_of(value.type)))).constant

    # -- sides -------------------------------------------------------------------------------------------

    def _sides(self, load: LoadOp, index: Index, address: _Address) -> list[Side] | No:
        """The dims of a tensor with their strides and places, as they lie in memory: those of the tile come last."""
        size, strides = _bytes(load), _strides(address.offset, index)
        if strides is None:
            return No("its address is not affine in the element's place", load, _AFFINE)
        found: list[_Stride] = []
        for dim, stride in enumerate(strides):
            ((monomial, number), *more) = stride.terms.items() or [((), 0)]
            if more or number <= 0 or number % size or any(atom.unsigned for atom in monomial):
                return No(f"its stride along dim {dim} is no parameter and no number", load, _AFFINE)
            found.append(_Stride(dim, monomial, number // size))
        # Products of parameters are longer than numbers; of numbers the largest comes first.
        found.sort(key=lambda row: (len(row.of), row.times), reverse=True)
        if found[-1][1:] != ((), 1):
            return No("no dim of its tile is contiguous", load, "a stride of 1 along one dim")
        offset = address.offset.constant
        found = [*self._further(offset, found[:-1], size), *found]
        places = _shared_out(offset, found, size)
        if places is None or any(atom.unsigned for place in places for monomial in place.terms for atom in monomial):
            return No("its offset is no sum of places times strides", load, _AFFINE)
        _count_down_within_rows(places, found)
        sides = []
        for row, place in zip(found, places, strict=True):
            value = _value(Poly({row.of: row.times}))
            if value is None:
                return No(f"its stride along dim {row.dim} is no parameter and no number", load)
            if row is not found[-1] and not self._is_aligned(row.of, row.times * size):
                return No(
                    f"its stride along dim {row.dim} is not known to be a multiple of 16 bytes", load, "padded rows"
                )
            sides.append(Side(row.dim, value, place))
        return sides

    def _further(self, offset: Poly, known: Sequence[_Stride], size: int) -> list[_Stride]:
        """The strides of dims that a tile does not go along: parameters in terms that no known stride divides."""
        found: list[_Stride] = []
        for monomial, coefficient in offset.terms.items():
            if len(monomial) > 1 and not any(row.divides(monomial, coefficient, size) for row in (*known, *found)):
                strides = [a for a in monomial if is_parameter(a.value) and self._is_aligned((a,), size)]
                found += [_Stride(None, (atom,), 1) for atom in strides[:1]]
        return found

    def _is_aligned(self, of: Monomial, times: int) -> bool:
        """Whether a stride is a multiple of 16 bytes: as is known, or as those of descriptors have to be, which the
        launch looks at."""
        return (
            any(atom.value in self.strides for atom in of)
            or divisor_of(Poly({of: times}), self.facts) % _ALIGNMENT == 0
        )

    # -- masks -------------------------------------------------------------------------------------------

    def _bounded(
        self, load: LoadOp, index: Index, sides: Sequence[Side]
    ) -> tuple[tuple[Side, ...], tuple[BlockArgument, ...]] | No:
        """Sides with the sizes that a mask says, and the parameters that must not be negative for places not to be."""
        found = list(sides)
        numbers = {side.tile_dim: number for number, side in enumerate(sides) if side.tile_dim is not None}
        signed: set[int] = set()
        for value, at in () if load.mask is None else conjuncts_of(load.mask, index):
            op = defining_op(value)
            if op is None:
                return No("its mask is not known to be a box", load)
            answer = below_zero(value, at, self.analysis, "(rows < M)[:, None] & (columns < N)[None, :]")
            if isinstance(answer, No):
                return answer
            form, rest = answer.plan, in_counters(answer.plan.constant)
            if rest == Poly.of(-1) and form.uniform:
                continue
            side = _side_of(form, index, numbers)
            if side is None:
                return No("a part of its mask does not compare the place along one dim", op)
            if Poly.of(-1) in form.coords.values():  # place > number
                if rest + found[side].place != Poly.of(-1):
                    return No("its mask begins inside of the tensor", op, "a pointer to where it begins")
                signed.add(side)
                continue
            bound = _value(found[side].place + -rest)
            if bound is None or found[side].bound not in (None, bound):
                return No("what its mask compares with is not one parameter of the kernel, or a number", op)
            found[side] = replace(found[side], bound=bound)
        natural: list[BlockArgument] = []
        for number, each in enumerate(found):
            wanted = [] if number in signed else _natural(each.place)
            if wanted is None:
                return No(f"its place along dim {each.tile_dim} may be negative", load, "tl.assume(offset >= 0)")
            natural += wanted
        return tuple(found), tuple(dict.fromkeys(natural))

    # -- what has to hold --------------------------------------------------------------------------------

    def _refused(self, sides: Sequence[Side], address: _Address, size: int) -> No | None:
        """Why the engine could not read some sides of elements of a size at all places."""
        if divisor_of(sides[-1].place * Poly.of(size), self.facts) % _ALIGNMENT:
            return No(
                "it may start where its address is no multiple of 16 bytes", instead="an offset times the block size"
            )
        rows = [_Stride(side.tile_dim, *_factors(side.stride)) for side in sides]
        for total in address.added:
            parts = _shared_out(total, rows, size)
            if parts is None or any(
                part.terms and side.bound is None and not _fits(side.place)
                for part, side in zip(parts, sides, strict=True)
            ):
                return No(
                    "a place along a dim without mask is not known to fit 32 bits", instead="a mask, or i32 offsets"
                )
        return None


def _bytes(load: LoadOp) -> int:
    """Bytes of an element."""
    return memory_bits(element_type(load.result.type)) // 8


def _is_wide(value: SSAValue) -> bool:
    return bit_width(element_type(value.type)) > 32


def _step(carried: SSAValue, following: SSAValue) -> Poly | None:
    """How many bytes a loop moves a tile of pointers in an iteration, all alike."""
    total = ZERO
    while following is not carried:
        op = defining_op(following)
        by = scalar_of(op.operands[1]) if isinstance(op, AddPtrOp) else None
        if by is None or op is None:
            return None
        size = Poly.of(pointee_bytes(following.type))
        total = total + (Poly.of(by) if isinstance(by, int) else Poly.atom(by)) * size
        following = op.operands[0]
    return expanded(total)


def _offsets(pointer: SSAValue) -> list[tuple[SSAValue, int]]:
    """The offsets that are added to make a pointer, or a tile of them, each with the bytes of an element."""
    found: list[tuple[SSAValue, int]] = []
    op = defining_op(pointer)
    while op is not None and op.operands and is_pointer(element_type(op.operands[0].type)):
        if isinstance(op, AddPtrOp):
            found.append((op.operands[1], pointee_bytes(op.result.type)))
        op = defining_op(op.operands[0])
    return found


class _Stride(NamedTuple):
    """A stride of a tensor: the dim of the tile along it, if there is one, parameters, and how often their product."""

    dim: int | None
    of: Monomial
    times: int

    def divides(self, monomial: Monomial, coefficient: int, size: int) -> bool:
        """Whether a term of an offset in bytes is a place times this stride."""
        return _without(monomial, self.of) is not None and coefficient % (self.times * size) == 0


def _shared_out(total: Poly, strides: Sequence[_Stride], size: int) -> list[Poly] | None:
    """The places whose products with strides add up to so many bytes: each term goes to the first that divides it."""
    places = [ZERO for _ in strides]
    for monomial, coefficient in total.terms.items():
        number = next((n for n, row in enumerate(strides) if row.divides(monomial, coefficient, size)), None)
        if number is None:
            return None
        rest = _without(monomial, strides[number].of)
        assert rest is not None
        places[number] = places[number] + Poly({rest: coefficient // (strides[number].times * size)})
    return places


def _count_down_within_rows(places: list[Poly], strides: Sequence[_Stride]) -> None:
    """Take whole rows for the length of one from whose end a loop counts down.

    K - 64 - 64 i is a place in a row of K elements, and not one of the next row, which would be negative there.
    """
    for number, row in enumerate(strides[:-1]):
        rows = places[number].terms.get((), 0)
        within = places[-1] + Poly({row.of: rows * row.times})
        if row.of and rows > 0 and _natural(places[-1]) is None and _natural(within) is not None:
            places[number], places[-1] = places[number] + Poly.of(-rows), within


def _without(monomial: Monomial, part: Monomial) -> Monomial | None:
    """A product without some of its factors; None if they are not among them."""
    rest = list(monomial)
    for atom in part:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def _value(poly: Poly) -> SSAValue | int | None:
    """A polynomial that is one parameter of the kernel, or a positive number."""
    number = poly.constant
    if number is not None:
        return number if number > 0 else None
    ((monomial, coefficient), *more) = poly.terms.items()
    if more or coefficient != 1 or len(monomial) != 1 or monomial[0].unsigned:
        return None
    return monomial[0].value if is_parameter(monomial[0].value) else None


def _side_of(form: Form, index: Index, numbers: dict[int, int]) -> int | None:
    """The side of which a form has the place in the tile, once, and no other."""
    if len(form.coords) != 1:
        return None
    ((coord, times),) = form.coords.items()
    return numbers[index.index(coord)] if coord in index and times.constant in (1, -1) else None


def _natural(place: Poly) -> list[BlockArgument] | None:
    """The parameters that must not be negative for a place not to be; None if that is not known either way."""
    place = _without_counts_down(place)
    atoms = [atom.value for monomial in place.terms for atom in monomial if not never_negative(atom.value)]
    found = [atom for atom in atoms if isinstance(atom, BlockArgument) and is_parameter(atom)]
    return None if any(number < 0 for number in place.terms.values()) or len(found) < len(atoms) else found


def _without_counts_down(place: Poly) -> Poly:
    """What is left of a place without numbers that are not negative: how far loops that count down have still to go."""
    for counter in dict.fromkeys(place.atoms()):
        loop, down = counted_by(counter), -place.terms.get((Atom(counter),), 0)
        if down <= 0 or loop is None or not is_unit(loop):
            continue
        for way in (way_of(loop), Way(Poly.atom(loop.ub), Poly.of(1))):
            step = way.step.constant
            if step is not None and down % step == 0:
                left = way.left(loop) + Poly.of(-1)  # 0 at least in every iteration
                rest = expanded(place + -(Poly.of(down // step) * left))
                if all(number >= 0 for number in rest.terms.values()):
                    place = rest
                    break
    return place


def _fits(place: Poly) -> bool:
    """Whether a place that the program may compute with more bits fits 32: it is a number of 32 bits, or grows as the
    counter of a loop does and stays below where that ends."""
    atoms = place.atoms()
    if place.constant is not None or (place.terms == {(Atom(atoms[0]),): 1} and atoms[0].type == i32):
        return True
    loops = [atom.owner.parent_op() for atom in atoms if isinstance(atom, BlockArgument) and not is_parameter(atom)]
    loop = loops[0] if len(loops) == 1 else None
    if not isinstance(loop, ForOp) or loop.induction_var not in atoms or loop.induction_var.type != i32:
        return False
    way, counter = way_of(loop), Poly.atom(loop.induction_var)
    last = place + -(way.step * counter) + way.distance  # where the counter ends, plus what comes before it begins
    over = [m for m, number in last.terms.items() if number > max(0, way.distance.terms.get(m, 0))]
    below = Poly({m: -number for m, number in last.terms.items() if m and number < 0})
    return not over and below.never_negative and not any(atom is loop.induction_var for atom in last.atoms())


def _factors(stride: SSAValue | int) -> tuple[Monomial, int]:
    """A stride as a product of parameters, and a number."""
    return ((), stride) if isinstance(stride, int) else ((Atom(stride),), 1)


def _compared(mask: SSAValue | None) -> Iterator[SSAValue]:
    """What the comparisons of a mask compare."""
    parts = () if mask is None else conjuncts_of(mask, identity(shape_of(mask.type)))
    for comparison in among((defining_op(part) for part, _ in parts), CmpIOp):
        yield from comparison.operands


def _strides(offset: Form, index: Index) -> list[Poly] | None:
    """The stride along each dim of a tile, also where neighbouring dims are one; None if there are others."""
    dims = {coord[0]: dim for dim, coord in enumerate(index) if coord}
    found = [ZERO for _ in index]
    for coord, stride in offset.coords.items():
        for field in coord:
            dim = dims.get(field._replace(pos=0))
            if dim is None:
                return None
            found[dim] = found[dim] + expanded(stride) * Poly.of(1 << field.pos)
    return found


__all__ = ["Box", "Boxes", "Side"]
