"""Dims of which all tiles that share them have one element are dropped: a block of one row is a row.

    %i = tt.make_range {0, 1} : tensor<1xi32>           ->  %i = arith.constant 0 : i32
    %p = tt.addptr .. : tensor<1x64x64x!tt.ptr<f32>>    ->  %p = tt.addptr .. : tensor<64x64x!tt.ptr<f32>>
    %s = tt.reduce %p {axis = 2} : .. -> tensor<1x64>   ->  %s = tt.reduce %p {axis = 1} : .. -> tensor<64>

Kernels that compilers write have such blocks: of one batch, of one row. Every planner then sees what a kernel written
for matrices or rows has, whatever the rank of the tiles.

The dims of two tiles are one where an operation goes through them together, so that dims fall into classes (union-find;
Tarjan, 1975). A class stays whole if one of its dims has more elements (a column that is broadcast), or if an operation
needs the rank that it has (a print, an operand of a product). One element that is broadcast is a scalar where it
can be. Products of one batch become products of matrices first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.ir import Operation, SSAValue

from tilewright.ir.attrs import I32, I32_ARRAY
from tilewright.ir.types import element_type, shape_of, tile_type
from tilewright.ir.values import is_tile, operands_of
from tilewright.ir.walk import every, walk
from tilewright.ops.broadcast import BroadcastOp, ExpandDimsOp, SplatOp
from tilewright.ops.constant import ConstantOp
from tilewright.ops.control import ConditionOp, ControlOp, YieldOp
from tilewright.ops.creation import MakeRangeOp
from tilewright.ops.dims import Dims
from tilewright.ops.dot import DotOp
from tilewright.ops.reduce import ReduceOp
from tilewright.ops.scan import ScanOp
from tilewright.ops.shape import ReshapeOp, TransOp, UnsplatOp
from tilewright.ops.spec import dims_of
from tilewright.passes.building import Builder
from tilewright.passes.canonicalize import canonicalize
from tilewright.passes.rewriting import replace, retype

Dim = tuple[SSAValue, int]
Ones = dict[SSAValue, tuple[int, ...]]

_FREE = (ConditionOp, MakeRangeOp, ReshapeOp, SplatOp, UnsplatOp, YieldOp)  # of any shape, or their parents' business
_SETTLED = (ConstantOp, ExpandDimsOp, ReduceOp, TransOp)  # that are made anew, without what is promised of them


def drop_unit_dims(root: Operation) -> bool:
    """Drop all of them below `root`, in place; says whether there was one."""
    ones = _unit_dims(root)
    batches = [op for op in every(root, DotOp) if _is_of_one_batch(op)] if ones else []
    for dot in batches:
        _multiply_matrices(dot)
    if batches:
        ones = _unit_dims(root)
    ops = [op for op in walk(root) if not ones.keys().isdisjoint(_values(op))] if ones else []
    dropped = _dropped(ops, ones)
    touched = [op for op in ops if not dropped.keys().isdisjoint((*operands_of(op), *op.results))]
    for op in touched:
        _renumber(op, dropped)
    for value, dims in dropped.items():
        sizes = [size for dim, size in enumerate(shape_of(value.type)) if dim not in dims]
        retype(value, tile_type(tuple(sizes), element_type(value.type)))
    for op in touched:
        _settle(op)
    if batches or dropped:
        canonicalize(root)
    return bool(batches or dropped)


def _unit_dims(root: Operation) -> Ones:
    """For each tile with dims of one element, which ones."""
    seen, found = dict[int, tuple[int, ...]](), Ones()
    for op in walk(root):
        for value in (*op.results, *_arguments(op)) if op.regions else op.results:
            dims = seen.get(id(value.type))
            if dims is None:
                dims = tuple(dim for dim, size in enumerate(shape_of(value.type)) if size == 1)
                seen[id(value.type)] = dims
            if dims:
                found[value] = dims
    return found


def _arguments(op: Operation) -> list[SSAValue]:
    return [argument for region in op.regions for block in region.blocks for argument in block.args]


def _values(op: Operation) -> list[SSAValue]:
    """What it reads and makes, the arguments of its bodies too."""
    return [*operands_of(op), *op.results, *(_arguments(op) if op.regions else ())]


# --- products ---------------------------------------------------------------------------------------------


def _is_of_one_batch(dot: DotOp) -> bool:
    shape = shape_of(dot.d.type)
    return len(shape) == 3 and shape[0] == 1


def _multiply_matrices(dot: DotOp) -> None:
    """A product of one batch as one of matrices."""
    b, kinds = Builder(dot), [tile_type(shape_of(v.type)[1:], element_type(v.type)) for v in dot.operands]
    operands = [b.make(ReshapeOp, kind, value) for kind, value in zip(kinds, dot.operands, strict=True)]
    replace(dot, [b.make(ReshapeOp, dot.d.type, b.again(dot, kinds[2], *operands))])


# --- classes of dims --------------------------------------------------------------------------------------


class _Classes:
    """Which dims of one element are one dim, and which of them stay."""

    def __init__(self, ones: Ones) -> None:
        self._ones = ones
        self._next: dict[Dim, Dim] = {}
        self._kept: set[Dim] = set()

    def root(self, dim: Dim) -> Dim:
        """The dim that stands for the class of one."""
        while (following := self._next.get(dim)) is not None:
            beyond = self._next.get(following)
            if beyond is None:
                return following
            self._next[dim] = dim = beyond
        return dim

    def keep(self, value: SSAValue) -> None:
        """All dims of a tile stay."""
        for dim in self._ones.get(value, ()):
            self._kept.add(self.root((value, dim)))

    def join(self, one: Dim, other: Dim) -> None:
        """Two dims are one; a dim of more than one element keeps the other."""
        roots = [self.root(dim) for dim in (one, other) if dim[1] in self._ones.get(dim[0], ())]
        if len(roots) == 1 or not self._kept.isdisjoint(roots):
            self._kept.update(roots)
        if len(roots) == 2 and roots[0] != roots[1]:
            self._next[roots[0]] = roots[1]

    def goes(self, dim: Dim) -> bool:
        """Whether nothing keeps it."""
        return self.root(dim) not in self._kept


def _dropped(ops: Sequence[Operation], ones: Ones) -> dict[SSAValue, frozenset[int]]:
    """For each tile that loses dims, which ones."""
    classes = _Classes(ones)
    for op in ops:
        pairs = _pairs(op)
        if pairs is None:
            for value in _values(op):
                classes.keep(value)
            continue
        for one, other in pairs:
            classes.join(one, other)
    found = ((value, frozenset(dim for dim in dims if classes.goes((value, dim)))) for value, dims in ones.items())
    return {value: dims for value, dims in found if dims}


def _pairs(op: Operation) -> Iterator[tuple[Dim, Dim]] | None:
    """The dims that an operation goes through together; None of one that needs its tiles as they are."""
    if isinstance(op, ControlOp):
        handed = (both for flow in op.flows() for both in zip(flow.sources, flow.targets, strict=True))
        return (pair for both in handed for pair in _together(both))
    if isinstance(op, _FREE):
        return iter(())
    if isinstance(op, BroadcastOp) and set(shape_of(op.src.type)) == {1}:
        # all dims of its operand go, and it is a scalar, or none
        return (((op.src, 0), (op.src, dim)) for dim in range(len(shape_of(op.src.type))))
    dims = dims_of(op)
    # what is promised of a tile (`tl.multiple_of`) is said of each of its dims
    if dims is None or isinstance(op, DotOp) or (op.attributes and not isinstance(op, _SETTLED)):
        return None
    return _together([op.src, op.result]) if isinstance(op, BroadcastOp) else _alike(op, dims)


def _together(values: Sequence[SSAValue]) -> Iterator[tuple[Dim, Dim]]:
    """Tiles of one rank, dim by dim."""
    tiles = [value for value in values if is_tile(value)]
    for value in tiles[1:]:
        for dim in range(len(shape_of(value.type))):
            yield (tiles[0], dim), (value, dim)


def _alike(op: Operation, dims: Dims) -> Iterator[tuple[Dim, Dim]]:
    """Dims of one name, each with the first of them."""
    first: dict[int, Dim] = {}
    for value, names in dims.named(op):
        for dim, name in enumerate(names):
            if first.setdefault(name, (value, dim)) != (value, dim):
                yield first[name], (value, dim)


# --- operations without these dims ----------------------------------------------------------------------------


def _renumber(op: Operation, dropped: dict[SSAValue, frozenset[int]]) -> None:
    """The dims that an operation names, counted without those that go; the tiles still have them."""
    if isinstance(op, ReduceOp | ScanOp | ExpandDimsOp):
        named = op.results[0] if isinstance(op, ExpandDimsOp) else op.operands[0]
        axis, gone = op.attr_values()["axis"], dropped.get(named, frozenset())
        number = -1 if axis in gone else axis - sum(dim < axis for dim in gone)
        op.properties["axis"] = I32.encode(number)  # type: ignore[assignment]
    elif isinstance(op, TransOp):
        gone = dropped.get(op.src, frozenset())
        order = [axis - sum(dim < axis for dim in gone) for axis in op.attr_values()["order"] if axis not in gone]
        op.properties["order"] = I32_ARRAY.encode(order)  # type: ignore[assignment]


def _settle(op: Operation) -> None:
    """Put in the place of an operation what it is without these dims."""
    if isinstance(op, ReduceOp | ScanOp | ExpandDimsOp) and op.attr_values()["axis"] == -1:
        replace(op, op.operands)  # nothing is left to go along
    elif isinstance(op, MakeRangeOp):
        replace(op, [Builder(op).number(op.attr_values()["start"], op.result.type)])
    elif isinstance(op, ConstantOp):
        number = op.splat_value
        assert number is not None
        replace(op, [Builder(op).number(number, op.results[0].type)])
    elif isinstance(op, BroadcastOp | ExpandDimsOp | ReshapeOp | SplatOp | TransOp | UnsplatOp):
        _settle_view(op)


def _settle_view(op: Operation) -> None:
    """An operation that moves elements alone, some of whose tiles may have become scalars."""
    (source,), (result,) = op.operands, op.results
    b, repeats = Builder(op), isinstance(op, BroadcastOp)
    if repeats and len(shape_of(source.type)) > len(shape_of(result.type)):
        source = b.make(UnsplatOp, element_type(source.type), source)
    if source.type == result.type and not (isinstance(op, TransOp) and shape_of(source.type)):
        replace(op, [source])
    elif not shape_of(source.type) and not isinstance(op, SplatOp):
        replace(op, [b.make(SplatOp, result.type, source)])
    elif not shape_of(result.type) and not isinstance(op, UnsplatOp):
        replace(op, [b.make(UnsplatOp, result.type, source)])
