"""Loads through pointers that read a box of a tensor: what a descriptor of the host would say of them.

    base + (m + i) * stride + (k + j)        where m + i < M and k + j < K        a box of [M, K] at [m, k]

An address is a sum of places times strides; a place is what a program computes plus the place in the tile. The strides
and bounds have to be parameters of the kernel or numbers, as the launch makes the tensor map of them: it sees whether
their values suit one (`device/tensormap.py`), and launches a kernel without maps if they do not. What has to hold for
all launches is proved here: places are not negative and fit 32 bits, and rows start at multiples of 16 bytes. A mask
says where the tensor ends; no mask says that it does not end within reach.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from xdsl.ir import BlockArgument, Operation, SSAValue

from tilewright.analysis.affine import ZERO, AffineAnalysis, Atom, Form, Monomial, Poly, divisor_of, expanded
from tilewright.analysis.axis import ElementFacts
from tilewright.analysis.bounds import below_zero, is_conjunction
from tilewright.analysis.elements import operand_indices
from tilewright.analysis.index import Index, whole
from tilewright.analysis.iterations import is_unit, way_of
from tilewright.analysis.origins import is_parameter
from tilewright.analysis.uniform import scalar_of
from tilewright.backends.nvidia.plan.tma import plan_copy
from tilewright.backends.nvidia.tgir.types import memory_bits
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.types import bit_width, element_type, i32, is_pointer, pointee_bytes, shape_of
from tilewright.ir.values import defining_op
from tilewright.ops.control import ForOp
from tilewright.ops.elementwise import CmpIOp
from tilewright.ops.elementwise_pointer import AddPtrOp
from tilewright.ops.function import FuncOp
from tilewright.ops.memory import LoadOp

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
        wide: whether the program computes places with 64 bits, so that one outside of the tensor may take more than 32.
    """

    base: SSAValue
    sides: tuple[Side, ...]
    wide: bool

    @property
    def order(self) -> tuple[int, ...]:
        """The dims of the tile as they lie in memory, the contiguous one last."""
        return tuple(side.tile_dim for side in self.sides if side.tile_dim is not None)


@dataclass(frozen=True, slots=True)
class _Address:
    """An address: a pointer that no offset is added to, and bytes; the offsets that were added, and how far each loop
    on the way moves the pointer in an iteration, with its counter."""

    base: SSAValue
    offset: Form
    added: tuple[SSAValue, ...]
    moves: tuple[tuple[ForOp, Poly], ...]


class Boxes:
    """Finds the boxes that loads of a function read.

    Args:
        function: simplified tile IR, calls inlined.
    """

    def __init__(self, function: FuncOp) -> None:
        self.facts = ElementFacts(function)
        self.analysis = AffineAnalysis(lambda value: False, self.facts)

    def of(self, load: LoadOp) -> Answer[Box]:
        """The box that a load of a tile reads, if it is known to be one that the copy engine can move."""
        if load.attr_values()["isVolatile"]:
            return No("it is volatile")
        shape = shape_of(load.result.type)
        index: Index = tuple(whole(dim, extent) for dim, extent in enumerate(shape))
        address = self._address(load.ptr, index)
        if address is None or address.offset.residual:
            return No("its address is not known to be affine in the element's place", load, _AFFINE)
        if not is_parameter(address.base) or self.facts[address.base].divisibility[0] % _ALIGNMENT:
            return No("it is not known to start from a parameter that is a multiple of 16", load)
        sides = self._sides(load, index, address)
        if isinstance(sides, No):
            return sides
        bounded = self._bounded(load, index, sides)
        if isinstance(bounded, No):
            return bounded
        wide = any(bit_width(element_type(offset.type)) > 32 for offset in (*address.added, *_compared(load.mask)))
        no = self._refused(bounded, address, wide=wide)
        box = Box(address.base, tuple(bounded), wide)
        plan = plan_copy(tuple(shape[dim] for dim in box.order), memory_bits(element_type(load.result.type)))
        if no is None and len(bounded) > _MOST_DIMS:
            no = No(f"it has more than {_MOST_DIMS} strides", load)
        return no or (plan if isinstance(plan, No) else Yes(box))

    # -- addresses ---------------------------------------------------------------------------------------

    def _address(self, pointer: SSAValue, index: Index) -> _Address | None:
        """The address of an element, with tiles that loops carry as sums in their counters."""
        form, added = self.analysis.pointer(pointer, index), _offsets(pointer)
        offset, moves = form.offset, list[tuple[ForOp, Poly]]()
        while form.tile is not None:
            carried, at = form.tile
            loop = carried.owner.parent_op() if isinstance(carried, BlockArgument) else None
            if not isinstance(carried, BlockArgument) or not isinstance(loop, ForOp) or not is_unit(loop):
                return None
            assert loop.body.block.last_op is not None
            step, more = self._step(carried, loop.body.block.last_op.operands[carried.index - 1])
            if step is None:
                return None
            if step.terms:
                offset = offset.plus(Form(Poly.atom(loop.induction_var) * step))
                moves.append((loop, step))
            first = loop.iter_args[carried.index - 1]
            added += [*more, *_offsets(first)]
            form = self.analysis.pointer(first, at)
            offset = offset.plus(form.offset)
        if form.base is None:
            return None
        return _Address(form.base, _with_constant(offset), tuple(added), tuple(moves))

    def _step(self, carried: SSAValue, following: SSAValue) -> tuple[Poly | None, list[SSAValue]]:
        """How many bytes a loop moves a tile of pointers in an iteration, all alike, and the offsets that do."""
        total, added = ZERO, []
        while following is not carried:
            op = defining_op(following)
            by = scalar_of(op.operands[1]) if isinstance(op, AddPtrOp) else None
            if by is None or op is None:
                return None, []
            size = Poly.of(pointee_bytes(following.type))
            total = total + (Poly.of(by) if isinstance(by, int) else Poly.atom(by)) * size
            added.append(op.operands[1])
            following = op.operands[0]
        return expanded(total), added

    # -- sides -------------------------------------------------------------------------------------------

    def _sides(self, load: LoadOp, index: Index, address: _Address) -> list[Side] | No:
        """The dims of a tensor with their strides and places, as they lie in memory: those of the tile come last."""
        size, strides = memory_bits(element_type(load.result.type)) // 8, _strides(address.offset, index)
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
        return divisor_of(Poly({of: times}), self.facts) % _ALIGNMENT == 0

    # -- masks -------------------------------------------------------------------------------------------

    def _bounded(self, load: LoadOp, index: Index, sides: Sequence[Side]) -> list[Side] | No:
        """Sides with the sizes that a mask says."""
        found, numbers = (
            list(sides),
            {side.tile_dim: number for number, side in enumerate(sides) if side.tile_dim is not None},
        )
        signed: set[int] = set()
        stack = [] if load.mask is None else [(load.mask, index)]
        while stack:
            value, at = stack.pop()
            op = defining_op(value)
            if op is None:
                return No("its mask is not known to be a box", load)
            if is_conjunction(op):
                stack += operand_indices(value, at)
                continue
            answer = below_zero(value, at, self.analysis, "(rows < M)[:, None] & (columns < N)[None, :]")
            if isinstance(answer, No):
                return answer
            form = answer.plan
            if form.constant == Poly.of(-1) and form.uniform:
                continue
            side = _side_of(form, index, numbers)
            if side is None:
                return No("a part of its mask does not compare the place along one dim", op)
            if Poly.of(-1) in form.coords.values():  # place > number
                if expanded(form.constant) + found[side].place != Poly.of(-1):
                    return No("its mask begins inside of the tensor", op, "a pointer to where it begins")
                signed.add(side)
                continue
            bound = _value(found[side].place + -expanded(form.constant))
            if bound is None or found[side].bound not in (None, bound):
                return No("what its mask compares with is not one parameter of the kernel, or a number", op)
            found[side] = replace(found[side], bound=bound)
        negative = [side for number, side in enumerate(found) if number not in signed and not side.place.never_negative]
        if negative:
            return No(
                f"its place along dim {negative[0].tile_dim} may be negative", load, "tl.assume(offset >= 0), or a mask"
            )
        return found

    # -- what has to hold --------------------------------------------------------------------------------

    def _refused(self, sides: Sequence[Side], address: _Address, *, wide: bool) -> No | None:
        """Why the engine could not read some sides at all places."""
        size = pointee_bytes(address.base.type)
        if divisor_of(sides[-1].place * Poly.of(size), self.facts) % _ALIGNMENT:
            return No(
                "it may start where its address is no multiple of 16 bytes", instead="an offset times the block size"
            )
        if all(side.bound is not None for side in sides):
            return None
        if wide and not all(side.bound is not None or _is_narrow(side.place) for side in sides):
            return No("its offset has 64 bits, and a place may take more than 32", instead="a mask, or i32 offsets")
        rows = [_Stride(side.tile_dim, *_factors(side.stride)) for side in sides]
        for loop, step in address.moves:
            moved = _shared_out(step, rows, size)
            if moved is None or any(
                by.terms and side.bound is None and not _fits(loop, by) for by, side in zip(moved, sides, strict=True)
            ):
                return No(
                    "how far its loop moves it is not known to fit 32 bits", loop, "a mask, or range(0, K, BLOCK)"
                )
        return None


def _with_constant(form: Form) -> Form:
    """A form whose constant is in the scalars of which sums and products make its atoms."""
    return Form(expanded(form.constant), form.coords, form.residual)


def _offsets(pointer: SSAValue) -> list[SSAValue]:
    """The offsets that are added to make a pointer, or a tile of them."""
    found: list[SSAValue] = []
    while (
        isinstance(op := defining_op(pointer), Operation)
        and op.operands
        and is_pointer(element_type(op.operands[0].type))
    ):
        if isinstance(op, AddPtrOp):
            found.append(op.operands[1])
        pointer = op.operands[0]
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


def _is_narrow(place: Poly) -> bool:
    """Whether a place is one number of 32 bits of the program."""
    return place.constant is not None or place.terms in [
        {(atom,): 1} for atom in map(Atom, place.atoms()) if atom.value.type == i32
    ]


def _fits(loop: ForOp, step: Poly) -> bool:
    """Whether what grows so much in an iteration is as large as the counter of the program, which has 32 bits, less a
    start that is not negative."""
    way = way_of(loop)
    start = Poly({monomial: -c for monomial, c in way.distance.terms.items() if monomial and c < 0})
    return loop.induction_var.type == i32 and step == way.step and start.never_negative


def _factors(stride: SSAValue | int) -> tuple[Monomial, int]:
    """A stride as a product of parameters, and a number."""
    return ((), stride) if isinstance(stride, int) else ((Atom(stride),), 1)


def _compared(mask: SSAValue | None) -> Iterator[SSAValue]:
    """What the comparisons of a mask compare."""
    todo = [] if mask is None else [mask]
    while todo:
        op = defining_op(todo.pop())
        if op is not None:
            yield from op.operands if isinstance(op, CmpIOp) else ()
            todo += op.operands if is_conjunction(op) else ()


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
