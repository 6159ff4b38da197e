"""Operands of `tt.dot` in memory: affine loads of matrices, known by polynomials.

An operand in memory is a base pointer, byte strides along its two dims and, for each dim, the extents below which its
mask holds. Masks must be conjunctions of upper bounds of one coordinate (`bounds`); masked elements must read as zero.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from tilewright.analysis.affine import AffineAnalysis, Form, Poly
from tilewright.analysis.bounds import below_zero, is_conjunction
from tilewright.analysis.constants import constant_of
from tilewright.analysis.elements import is_ragged, operand_indices
from tilewright.analysis.index import Index, identity, whole
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.decisions import describe_op
from tilewright.ir.types import TilePointerType, element_type, ir_name, shape_of
from tilewright.ir.values import defining_op, is_tile
from tilewright.ops.broadcast import ExpandDimsOp, SplatOp
from tilewright.ops.memory import LoadOp, StoreOp, is_volatile
from tilewright.ops.shape import ReshapeOp, TransOp

_VIEWS = (ExpandDimsOp, ReshapeOp, TransOp)


@dataclass(eq=False, slots=True)
class MemoryOperand:
    """An operand that is read where the kernel's pointer points.

    Args:
        base: scalar pointer.
        offset: bytes from `base` to element (0, 0).
        strides: bytes from one element to the next along each dim.
        bounds: per dim, values below which the coordinate is valid; with none, every coordinate is.
        conditions: scalar values (i1 SSA) all of which must hold, else the operand is zero.
        load: the load, or store, that it stands for.
        elem: IR name of its elements.
    """

    base: SSAValue
    offset: Poly
    strides: list[Poly]
    bounds: list[list[Poly]]
    conditions: list[SSAValue]
    load: Operation
    elem: str


def strip_views(value: SSAValue) -> tuple[SSAValue, bool]:
    """The value under a chain of 2-d transpositions, and whether it is transposed."""
    flipped = False
    while True:
        op = defining_op(value)
        if not isinstance(op, TransOp) or len(shape_of(value.type)) != 2:
            return value, flipped
        order = [int(n) for n in op.properties["order"].get_values()]  # type: ignore[attr-defined]
        flipped ^= order == [1, 0]
        value = op.operands[0]


def memory_operand(value: SSAValue, scratch: Container[SSAValue], analysis: AffineAnalysis) -> Answer[MemoryOperand]:
    """`value` as an operand in memory, if it need not be computed first; nor has been, to `scratch`."""
    shape = shape_of(value.type)
    source, index = _viewed(value, scratch)
    load = defining_op(source)
    if source in scratch or load is None:
        return No("it has been computed to scratch before")
    if not isinstance(load, LoadOp):
        return No(f"it is computed, by {describe_op(load)}", load, "arithmetic after the dot, where that is the same")
    if len(shape) != 2:
        return No("it has a batch dimension", instead="a program, or a loop, for each matrix")
    elem = ir_name(element_type(source.type))
    if elem == "i1" or elem.startswith("f8"):
        return No(f"{elem} is widened before it is multiplied")
    if is_volatile(load):
        return No("the load is volatile", load)
    answer = _matrix(load, elem, shape, index, load.operands[1:2], scratch, analysis)
    if isinstance(answer, Yes) and len(load.operands) > 2 and constant_of(load.operands[2]) != 0:
        return No("what its mask leaves out is not known to be zero", load.operands[2].owner, "other=0")
    return answer


def _viewed(value: SSAValue, scratch: Container[SSAValue]) -> tuple[SSAValue, Index]:
    """What lies under views of a matrix that repeat nothing, and where in it the matrix's elements are."""
    source, index = value, identity(shape_of(value.type))
    while source not in scratch and isinstance(op := defining_op(source), _VIEWS) and not is_ragged(op):
        ((source, index),) = operand_indices(source, index)
    return source, index


def stored_matrix(store: StoreOp, scratch: Container[SSAValue], analysis: AffineAnalysis) -> Answer[MemoryOperand]:
    """Where a store of a matrix puts it, told like an operand."""
    shape, element = shape_of(store.operands[0].type), element_type(store.operands[0].type)
    if len(shape) != 2 or not isinstance(element, TilePointerType):
        return No("it is no matrix")
    return _matrix(store, ir_name(element.pointee), shape, identity(shape), store.operands[2:], scratch, analysis)


def _matrix(
    op: Operation,
    elem: str,
    shape: tuple[int, ...],
    index: Index,
    masks: Sequence[SSAValue],
    scratch: Container[SSAValue],
    analysis: AffineAnalysis,
) -> Answer[MemoryOperand]:
    """The matrix that a load or store accesses, its elements at an index, under a mask if there is one."""
    pointer = op.operands[0]
    form = analysis.pointer(pointer, index)
    if form.base is None or form.offset.residual or not _plain(form.offset, shape):
        return No("its addresses are not known to be base + i * stride + j * stride", pointer.owner)
    mask = _Mask([[], []], [])
    for value in masks:
        if no := mask.add(value, index, shape, analysis, scratch):
            return no
    strides = [form.offset.coords.get(whole(d, n), Poly({})) for d, n in enumerate(shape)]
    made = MemoryOperand(form.base, form.offset.constant, strides, mask.bounds, mask.conditions, op, elem)
    return Yes(made, "read from where it lies")


def _plain(form: Form, shape: tuple[int, ...]) -> bool:
    """Whether only whole coordinates of the two dims occur."""
    return set(form.coords) <= {whole(d, n) for d, n in enumerate(shape)}


@dataclass(slots=True)
class _Mask:
    """Bounds found in a mask so far."""

    bounds: list[list[Poly]]
    conditions: list[SSAValue]

    def add(
        self,
        value: SSAValue,
        index: Index,
        shape: tuple[int, ...],
        analysis: AffineAnalysis,
        scratch: Container[SSAValue],
    ) -> No | None:
        """Take in the mask `value` at `index`, or tell why it is not of the known kind."""
        known = constant_of(value)
        if known is not None:
            return None if known else No("its mask is never true")
        if not is_tile(value):
            self.conditions.append(value)
            return None
        op = defining_op(value)
        if op is None or value in scratch:
            return No("its mask has been computed to scratch before")
        if isinstance(op, SplatOp) or is_conjunction(op):
            parts = (self.add(v, i, shape, analysis, scratch) for v, i in operand_indices(value, index))
            return next((no for no in parts if no is not None), None)
        below = below_zero(value, index, analysis, _MASK)
        if isinstance(below, No):
            return below
        if below.plan == Form(Poly.of(-1)):
            return None
        bound = _upper_bound(op, below.plan, shape)
        if isinstance(bound, No):
            return bound
        self.bounds[bound.plan[0]].append(bound.plan[1])
        return None


_MASK = "(i < m) & (k < K)"


def _upper_bound(op: Operation, form: Form, shape: tuple[int, ...]) -> Answer[tuple[int, Poly]]:
    """`(dim, bound)` where `form` is negative below that bound of the dim's coordinate."""
    if not form.coords:  # of all elements or of none: a bound of at least the extent, or of zero at most
        return Yes((0, -form.constant * Poly.of(shape[0])))
    if len(form.coords) != 1:
        return No("a part of its mask does not compare one affine coordinate", op, _MASK)
    ((coord, stride),) = form.coords.items()
    dims = [d for d, n in enumerate(shape) if whole(d, n) == coord]
    if stride.constant != 1 or not dims:
        return No("a part of its mask is no upper bound of a coordinate", op, _MASK)
    return Yes((dims[0], -form.constant))
