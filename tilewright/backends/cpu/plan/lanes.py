"""How an iteration space is cut into chunks of lanes: which dim is vectorised, how many lanes, which loops remain.

The dim along which most memory accesses are contiguous gets the lanes, up to four native vectors of f32; if it is too
short for one native vector, lanes go on into further dims, so that a 2x2x2x2x2 cube is one vector of 32 lanes. A long
dim that only small powers of two divide keeps to itself: rows of 56 elements are seven chunks of 8. What is read along
one dim to be kept along another one is cut into squares, which are turned in registers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from xdsl.ir import SSAValue

from tilewright.analysis.affine import AffineAnalysis, Poly
from tilewright.analysis.constants import constant_of
from tilewright.analysis.elements import At, operand_indices, tiles_behind
from tilewright.analysis.index import LANE, Coord, Field, Index, bits_of, identity, whole
from tilewright.backends.cpu import tuning
from tilewright.backends.cpu.plan.recompute import is_lazy, table_name
from tilewright.backends.cpu.plan.steps import (
    Buffer,
    CopySink,
    MaterializeSink,
    ReduceSink,
    ScanSink,
    Sink,
    Step,
    StoreSink,
)
from tilewright.backends.llvm.features import CpuFeatures
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.traits import is_view
from tilewright.ir.types import bit_width, element_type, is_float, is_pointer, pointee_bytes, shape_of
from tilewright.ir.values import defining_op, result_number
from tilewright.ops.broadcast import SplatOp
from tilewright.ops.control import ForOp
from tilewright.ops.memory import LoadOp


@dataclass(slots=True)
class Chunking:
    """The loop nest of a group.

    Args:
        lanes: lanes of a chunk; 0 for scalar code.
        index: coordinate of each dim, from its loop and the lanes.
        loops: (dim, extent, step) of the loops, outermost first; the reduced dim, if any, last.
        lane_bits: (lowest bit of the lane number, count) that each vectorised dim occupies.
        first: where the loops over some dims begin, if not at 0; they end at the extents in `loops`.
    """

    lanes: int
    index: Index
    loops: list[tuple[int, int, int]]
    lane_bits: dict[int, tuple[int, int]]
    first: dict[int, int] = field(default_factory=dict)


_PLAIN = (StoreSink, MaterializeSink, CopySink)
# Votes that only decide between dims that have as many others: the first before the second.
_NOT_REDUCED = 1 / 64
_REPEATED = 1 / 1024
_MANY = 16  # elements of a dim, from which lanes fill vectors


def chunk_pieces(
    step: Step, isa: CpuFeatures, placed: dict[SSAValue, Buffer], analysis: AffineAnalysis
) -> list[Chunking]:
    """Choose the chunks of a group; several nests where one would have few lanes.

    Rows of 13 elements are chunks of 8, of 4 and of 1. Of a reduction that goes for long rows with many lanes, too: the
    sums of chunks of few lanes wait for each other.
    """
    votes, widest = survey(step, placed, analysis)
    dim, native = vector_dim(step.shape, votes), max(1, isa.vector_bytes // 4)
    if square := square_lanes(step, isa, placed, analysis):
        return [_nest(step.shape, square, step.axis)]
    extent = step.shape[dim] if dim >= 0 else 0
    few = 4 * (extent & -extent) <= native
    if not (few or step.axis >= 0) or 2 * extent < native or not all(_goes_in_pieces(sink) for sink in step.sinks):
        return [chunk_group(step, isa, placed, analysis)]
    cap = _most_lanes(step, dim, isa, widest, placed, analysis)
    if not few and (extent & -extent >= cap or extent < tuning.PIECED_CHUNKS * cap):
        return [chunk_group(step, isa, placed, analysis)]
    order = sorted((d for d, n in enumerate(step.shape) if n > 1), key=lambda d: (d == dim, votes[d], d), reverse=True)
    pieces, at = [], 0
    while at < extent:
        width = min(cap, 1 << ((extent - at).bit_length() - 1))
        end = at + (extent - at) // width * width
        pieces.append(make_chunking(step.shape, order, cap, native, step.axis, (dim, at, end, width)))
        at = end
    return pieces


def row_pieces(
    step: Step, isa: CpuFeatures, placed: dict[SSAValue, Buffer], analysis: AffineAnalysis
) -> list[Chunking]:
    """The chunks of a group in a loop over rows, the first dim: each has elements of one row alone."""
    if math.prod(step.shape) == step.shape[0]:
        return [make_chunking(step.shape, [], 1, 1, step.axis)]
    pieces = chunk_pieces(step, isa, placed, analysis)
    if not any(0 in chunking.lane_bits for chunking in pieces):
        return pieces
    votes, widest = survey(step, placed, analysis)
    order = sorted((d for d, n in enumerate(step.shape) if d and n > 1), key=lambda d: (votes[d], d), reverse=True)
    cap = _most_lanes(step, order[0], isa, widest, placed, analysis)
    return [make_chunking(step.shape, order, cap, max(1, isa.vector_bytes // 4), step.axis)]


def _goes_in_pieces(sink: Sink) -> bool:
    """Whether a sink may take in pieces of different widths: of a reduction the results are combined."""
    return isinstance(sink, _PLAIN) or (isinstance(sink, ReduceSink) and len(sink.op.results) == 1)


def square_lanes(
    step: Step, isa: CpuFeatures, placed: dict[SSAValue, Buffer], analysis: AffineAnalysis
) -> dict[int, tuple[int, int]]:
    """Lanes over two dims, where what is loaded along one of them is stored or kept along the other.

    As many rows as a native vector has lanes: each row is one load, the rows are turned in registers
    (`memory.load_tile`), and each column is one store.
    """
    if not all(isinstance(sink, StoreSink | MaterializeSink) for sink in step.sinks):
        return {}
    ways = {_written_along(sink, analysis) for sink in step.sinks}
    dim = ways.pop()
    if ways or dim < 0:
        return {}
    loads = list(crosswise_loads(step, dim, placed, analysis))
    if len({other for _, other in loads}) != 1 or not _in_rows(step, dim, loads[0][1], placed, analysis):
        return {}
    other = loads[0][1]
    values = [
        *(load for load, _ in loads),
        *(sink.roots[0] for sink in step.sinks if isinstance(sink, MaterializeSink)),
    ]
    bits = min(isa.native_lanes(max(32, bit_width(element_type(value.type)))) for value in values)
    count = bits.bit_length() - 1
    fits = count >= 2 and not any(step.shape[d] % (1 << count) for d in (dim, other))
    return {dim: (0, count), other: (count, count)} if fits else {}


def _in_rows(step: Step, dim: int, other: int, placed: dict[SSAValue, Buffer], analysis: AffineAnalysis) -> bool:
    """Whether every address of a group is that of rows along one of two dims, or known for all lanes of both."""
    for pointer, index in _wanted([root for root, _ in step.roots()], step.shape, placed, analysis):
        if not _is_address(pointer, placed):
            continue
        form, size = analysis.pointer(pointer, index), Poly.of(pointee_bytes(pointer.type))
        strides = [form.offset.coords.get(whole(d, step.shape[d])) for d in (dim, other)]
        if (
            form.base is None
            or form.offset.residual
            or (any(s and s.constant is None for s in strides) and size not in strides)
        ):
            return False
    return True


def crosswise_loads(
    step: Step, dim: int, placed: dict[SSAValue, Buffer], analysis: AffineAnalysis
) -> Iterator[tuple[SSAValue, int]]:
    """The loads of a group whose neighbours in memory lie along another dim than `dim`, with that dim."""
    for value, index in _wanted([root for root, _ in step.roots()], step.shape, placed, analysis):
        op = defining_op(value)
        if isinstance(op, LoadOp) and value not in placed:
            other = _crosswise(*operand_indices(value, index)[0], step.shape, dim, analysis)
            if other >= 0:
                yield value, other


def _crosswise(pointer: SSAValue, index: Index, shape: tuple[int, ...], dim: int, analysis: AffineAnalysis) -> int:
    """The dim along which neighbours in memory lie, if it is another than `dim`; -1 if there is none."""
    coords, size = analysis.pointer(pointer, index).offset.coords, Poly.of(pointee_bytes(pointer.type))
    strides = {d: coords.get(whole(d, n)) for d, n in enumerate(shape) if n > 1}
    if strides.get(dim) in (None, size):
        return -1
    return next((d for d, s in strides.items() if s == size and shape[d] >= tuning.STAGED_RUN), -1)


def _written_along(sink: Sink, analysis: AffineAnalysis) -> int:
    """The dim along which a store or materialization writes neighbours; -1 if it does not."""
    if isinstance(sink, MaterializeSink):
        return _fastest(sink)
    coords = analysis.pointer(sink.roots[0], identity(sink.shape)).offset.coords
    size = Poly.of(pointee_bytes(sink.roots[0].type))
    return next((d for d, n in enumerate(sink.shape) if n > 1 and coords.get(whole(d, n)) == size), -1)


def chunk_group(
    step: Step, isa: CpuFeatures, placed: dict[SSAValue, Buffer], analysis: AffineAnalysis, most: int = 1 << 30
) -> Chunking:
    """Choose the chunks of a group, of `most` lanes."""
    shape = step.shape
    votes, widest = survey(step, placed, analysis)
    dims = [d for d, n in enumerate(shape) if n > 1]
    order = sorted(dims, key=lambda d: (votes[d], d), reverse=True)
    native = max(1, isa.vector_bytes // 4)
    cap = min(most, _most_lanes(step, order[0] if order else -1, isa, widest, placed, analysis))
    enough = cap if step.axis < 0 and _go_on(step, order[:2], placed, analysis) else native
    return make_chunking(shape, order, cap, enough, step.axis)


def strip_chunks(
    step: Step, isa: CpuFeatures, placed: dict[SSAValue, Buffer], analysis: AffineAnalysis
) -> list[Chunking]:
    """Chunks of what a loop carries (`plan/strips.py`): of as many elements as half of the registers hold, and for the
    end of a row of as many as other chunks have, if those are fewer."""
    votes, _ = survey(step, placed, analysis)
    widest = max(bit_width(element_type(root.type)) // 8 for root, _ in step.roots())
    order = sorted((d for d, n in enumerate(step.shape) if n > 1), key=lambda d: (votes[d], d), reverse=True)
    first, native = order[0] if order else -1, max(1, isa.vector_bytes // 4)
    most = max(1, isa.vector_registers // 2 // len(step.sinks))
    caps = (
        _most_lanes(step, first, isa, widest, placed, analysis, n) for n in (most, min(most, tuning.NATIVE_VECTORS))
    )
    wide, narrow = (make_chunking(step.shape, order, 1 << cap.bit_length() - 1, native, step.axis) for cap in caps)
    return [wide, narrow] if wide.lanes > narrow.lanes and wide.lane_bits.keys() == narrow.lane_bits.keys() else [wide]


def _go_on(step: Step, dims: list[int], placed: dict[SSAValue, Buffer], analysis: AffineAnalysis) -> bool:
    """Whether all that a group reads and writes in memory goes on along the second dim where the first one ends."""
    if len(dims) < 2:
        return False
    inner, outer = (whole(dim, step.shape[dim]) for dim in dims)
    for value, index in _wanted([root for root, _ in step.roots()], step.shape, placed, analysis):
        if value in placed:
            return False
        if _is_address(value, placed):
            coords, size = analysis.pointer(value, index).offset.coords, pointee_bytes(value.type)
            known = {coord: by for coord, by in coords.items() if {field.src for field in coord} & {*dims}}
            if known and known != {inner: Poly.of(size), outer: Poly.of(size * step.shape[dims[0]])}:
                return False
    return True


def chunk_asked(step: Step, isa: CpuFeatures, placed: dict[SSAValue, Buffer], analysis: AffineAnalysis) -> Chunking:
    """The chunks of a group of which it is only asked whether all elements hold: equal ones once, however many."""
    equal = {dim: _equal(step, dim, placed, analysis) for dim, extent in enumerate(step.shape) if extent > 1}
    dim = max(equal, key=lambda d: equal[d], default=-1)
    chunking = chunk_group(step, isa, placed, analysis)
    if dim < 0 or equal[dim] <= chunking.lanes:
        return chunking
    return make_chunking(step.shape, [dim], equal[dim], 1, step.axis)


def _equal(step: Step, dim: int, placed: dict[SSAValue, Buffer], analysis: AffineAnalysis) -> int:
    """Along how many elements of `dim`, a power of two, the roots are one number."""
    lowest = [bits_of(step.shape[dim])]
    for value, index in _wanted([root for root, _ in step.roots()], step.shape, placed, analysis):
        coords: Iterable[Coord] = index
        if _is_address(value, placed):
            coords = analysis.pointer(value, index).offset.coords
        elif value not in placed and _is_made_of_elements(value):
            continue  # as its operands are
        lowest += [field.lo for coord in coords for field in coord if field.src == dim]
    return 1 << min(lowest)


def _is_made_of_elements(value: SSAValue) -> bool:
    """Whether an element is equal to another where those that it is made of are."""
    op = defining_op(value)
    return op is not None and (
        constant_of(value) is not None or is_view(op) or isinstance(op, LoadOp | SplatOp) or table_name(op) is not None
    )


def _most_lanes(
    step: Step,
    dim: int,
    isa: CpuFeatures,
    widest: int,
    placed: dict[SSAValue, Buffer],
    analysis: AffineAnalysis,
    vectors: int = tuning.NATIVE_VECTORS,
) -> int:
    """Lanes that a chunk along `dim` may have, `vectors` native vectors at most.

    More than a scalar part of an address serves would gather what lies side by side.
    """
    native = max(1, isa.vector_bytes // 4)
    cap = max(4, vectors * isa.vector_bytes // max(4, widest))
    return min([cap, *(run for run in _runs(step, dim, placed, analysis) if 2 * run >= native)])


def make_chunking(
    shape: tuple[int, ...],
    order: list[int],
    cap: int,
    enough: int,
    axis: int,
    piece: tuple[int, int, int, int] = (-1, 0, 0, 1),
) -> Chunking:
    """Give lanes to the dims of `order` until there are `enough` (never more than `cap`).

    `piece` limits the first of them to a range: the dim, first element, end and number of lanes.
    """
    lane_bits: dict[int, tuple[int, int]] = {}
    used = 0
    for dim in order:
        if used and 1 << used >= enough:
            break
        extent = shape[dim]
        whole = piece[3] if dim == piece[0] else extent & -extent  # a chunk must not reach past the end
        available = whole.bit_length() - 1
        count = min(available, cap.bit_length() - 1 - used)
        if count > 0:
            lane_bits[dim] = (used, count)
            used += count
        if extent > 1 << count and 1 << used >= tuning.LANES_OF_A_ROW:
            break
    return _nest(shape, lane_bits, axis, piece)


def _nest(
    shape: tuple[int, ...],
    lane_bits: dict[int, tuple[int, int]],
    axis: int,
    piece: tuple[int, int, int, int] = (-1, 0, 0, 1),
) -> Chunking:
    """The loops around chunks with given lanes; `piece` as for `make_chunking`."""
    used = sum(count for _, count in lane_bits.values())
    coords: list[Coord] = []
    loops: list[tuple[int, int, int]] = []
    for dim, extent in enumerate(shape):
        if extent == 1:
            coords.append(())
            continue
        low, count = lane_bits.get(dim, (0, 0))
        fields = [Field(LANE, low, count, 0)] if count else []
        if extent > 1 << count:
            fields.append(Field(dim, count, bits_of(extent) - count, count))
            loops.append((dim, piece[2] if dim == piece[0] else extent, 1 << count))
        coords.append(tuple(fields))
    loops.sort(key=lambda loop: (loop[0] == axis, loop[0] in lane_bits, loop[0]))
    first = {piece[0]: piece[1]} if piece[1] else {}
    return Chunking(1 << used if used else 0, tuple(coords), loops, lane_bits, first)


def vectorised(chunking: Chunking, shape: tuple[int, ...], sides: bool = False) -> Answer[int]:
    """Whether chunks of an iteration space have several elements; `sides`: of which neighbours are computed apart."""
    if chunking.lanes > 1:
        dims = " and ".join(map(str, sorted(chunking.lane_bits)))
        apart = ", neighbours apart" if sides else ""
        return Yes(chunking.lanes, f"{chunking.lanes} elements at a time, along dim {dims}{apart}")
    if math.prod(shape) == 1:
        return No("there is one element")
    return No("no extent is even", instead="tiles with extents that are multiples of a power of two")


def survey(step: Step, placed: dict[SSAValue, Buffer], analysis: AffineAnalysis) -> tuple[list[float], int]:
    """For each dim, how many accesses are contiguous along it; and the bytes of the widest element.

    Places, which are sums of lanes and scalars, do not count: few of them are ever vectors. Of dims with as many
    accesses one that is not reduced is better, as its lanes need not be folded. What is repeated along another dim is
    one element for all lanes there, and counts only where everything else is equal.
    """
    shape = step.shape
    votes = [0.0] * len(shape)
    widest = 4
    # A strided load can be staged through scratch (`reuse`), a strided store cannot.
    stored = {sink.roots[0] for sink in step.sinks if isinstance(sink, StoreSink)}
    for sink in step.sinks:
        if isinstance(sink, MaterializeSink | CopySink | ScanSink):
            votes[_fastest(sink)] += 0.5
    for value, index in _wanted([root for root, _ in step.roots()], shape, placed, analysis):
        if _is_address(value, placed):
            _vote_address(value, index, analysis, shape, votes, 2.5 if value in stored else 1.0)
            continue
        size = bit_width(element := element_type(value.type)) // 8
        if size > widest and (is_float(element) or analysis.integer(value, index).residual):
            widest = size
        if value in placed:
            _vote_scratch(placed[value], index, shape, votes)
    if step.axis >= 0:
        for dim, vote in enumerate(votes):
            votes[dim] += _NOT_REDUCED if dim != step.axis and vote >= 0.5 and shape[dim] >= _MANY else 0.0
    return votes, widest


def _fastest(sink: Sink) -> int:
    """The dim along which what a sink writes lies in scratch."""
    target = next((target for target in sink.targets if target is not None), None)
    if target is None or target.shape != sink.shape or 1 not in target.strides:
        return -1
    return max(dim for dim, stride in enumerate(target.strides) if stride == 1)


def loaded_along(value: SSAValue, placed: dict[SSAValue, Buffer], analysis: AffineAnalysis) -> int:
    """The dim along which the loads that a tile is made of are contiguous; the last one if it is as good as another."""
    shape = shape_of(value.type)
    votes = [0.0] * len(shape)
    for part, index in _wanted([value], shape, placed, analysis):
        if _is_address(part, placed):
            _vote_address(part, index, analysis, shape, votes, 1.0)
    return max(range(len(shape)), key=lambda dim: (votes[dim], dim))


def _wanted(
    roots: Sequence[SSAValue], shape: tuple[int, ...], placed: dict[SSAValue, Buffer], analysis: AffineAnalysis
) -> Iterator[At]:
    """Everything that is evaluated for the roots, at which index: of an address, the part that is not affine."""

    def parts(value: SSAValue, index: Index) -> Sequence[At]:
        if _is_address(value, placed):
            return [(v, i) for v, i, _ in analysis.pointer(value, index).offset.residual]
        return [] if value in placed else _made_of(value, index)

    return tiles_behind([(root, identity(shape)) for root in roots], parts)


def _made_of(value: SSAValue, index: Index) -> Sequence[At]:
    """Operands at their indices; of a loop's result, what its iterations hand on."""
    op = defining_op(value)
    if isinstance(op, ForOp):
        return [(op.yielded[result_number(value)], index)]
    return operand_indices(value, index) if op is not None and is_lazy(op) else []


def _is_address(value: SSAValue, placed: dict[SSAValue, Buffer]) -> bool:
    return is_pointer(element_type(value.type)) and value not in placed


def _runs(step: Step, dim: int, placed: dict[SSAValue, Buffer], analysis: AffineAnalysis) -> Iterator[int]:
    """Of each part of an address that is not affine: along how many elements of `dim` it is one number."""
    for pointer, index in _wanted([root for root, _ in step.roots()], step.shape, placed, analysis):
        if _is_address(pointer, placed):
            for _, at, _ in analysis.pointer(pointer, index).offset.residual:
                if lowest := [field.lo for coord in at for field in coord if field.src == dim]:
                    yield 1 << min(lowest)


def chunks_of_a_run(
    step: Step, chunking: Chunking, dim: int, placed: dict[SSAValue, Buffer], analysis: AffineAnalysis
) -> int:
    """How many chunks along `dim` are written out, a power of two: as many as lie in a run of elements at a place that
    is loaded, such as a row of a table; 1 where no address is like that.

    Processors ask memory for what an instruction would read next if it went on as it did: one that goes through row
    after row asks behind the end of each, those of chunks that are written out do not.
    """
    count = max(_runs(step, dim, placed, analysis), default=1) // max(1, chunking.lanes)
    wanted = len(list(_wanted([root for root, _ in step.roots()], step.shape, placed, analysis)))
    most = min(count, tuning.UNROLLED_ITERATIONS, tuning.UNROLLED_OPERATIONS // max(1, wanted))
    return 1 << max(1, most).bit_length() - 1


def _vote_address(
    pointer: SSAValue,
    index: Index,
    analysis: AffineAnalysis,
    shape: tuple[int, ...],
    votes: list[float],
    weight: float,
) -> None:
    form = analysis.pointer(pointer, index)
    size = pointee_bytes(pointer.type)
    coords = [*form.offset.coords, *(coord for _, at, _ in form.offset.residual for coord in at)]
    weight *= _REPEATED if _is_repeated(coords, shape) else 1.0
    for dim, extent in enumerate(shape):
        if extent > 1 and any(
            stride.constant == size and _begins(coord, dim) for coord, stride in form.offset.coords.items()
        ):
            votes[dim] += weight


def _is_repeated(coords: Iterable[Coord], shape: tuple[int, ...]) -> bool:
    """Whether what lies at some coordinates is the same all along a dim."""
    along = {field.src for coord in coords for field in coord}
    return any(extent > 1 and dim not in along for dim, extent in enumerate(shape))


def _begins(coord: Coord, dim: int) -> bool:
    """Whether a coordinate is the place along a dim, or in a run of it."""
    return len(coord) == 1 and coord[0].src == dim and coord[0].lo == coord[0].pos == 0


def vector_dim(shape: tuple[int, ...], votes: list[float]) -> int:
    """The dim that gets the lanes; -1 for a tile of one element."""
    return max([d for d, n in enumerate(shape) if n > 1], key=lambda d: (votes[d], d), default=-1)


def _vote_scratch(buffer: Buffer, index: Index, shape: tuple[int, ...], votes: list[float]) -> None:
    weight = 0.5 * (_REPEATED if _is_repeated(index, shape) else 1.0)
    for coord, stride in zip(index, buffer.strides, strict=True):
        if stride != 1 or not coord:
            continue
        for dim, extent in enumerate(shape):
            if extent > 1 and coord == whole(dim, extent):
                votes[dim] += weight
