"""Which elements of its arguments each program reaches, and how many operations it does: from the interpreter.

Programs of a recorded launch run as Python on copies of its arguments; every access and every operation is noted with
the line of the kernel that it stands in. A tensor becomes a grid of at most 64 x 64 cells of neighbouring elements.
"""

from __future__ import annotations

import math
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Attribute

from tilewright.backends.reference.address_space import Memory
from tilewright.backends.reference.eager import EagerEmitter
from tilewright.backends.reference.evaluate import Program
from tilewright.backends.reference.rewrite import is_kernel_code
from tilewright.base.errors import UnsupportedError
from tilewright.base.options import Options
from tilewright.base.target import Target
from tilewright.compile.request import complete_options
from tilewright.frontend.source import source_of
from tilewright.ir.op import TileOp
from tilewright.ir.types import element_type, is_float, shape_of
from tilewright.launch import interpret
from tilewright.launch.host_copies import on_host
from tilewright.ops.dot import DotOp
from tilewright.ops.reduce import ReduceOp
from tilewright.ops.scan import ScanOp
from tilewright.ops.spec import Call, spec_of
from tilewright.tools.report.recording import Sample

ROWS, COLUMNS = 64, 64  # most cells of a grid
SECTOR = 32  # bytes that memory moves at least
_PROGRAMS = 48  # most that are interpreted
_SECONDS = 6.0  # after which no further program is begun

Ints = NDArray[np.int64]


@dataclass(slots=True)
class Access:
    """One access of one program.

    Args:
        program: its index among those that were run.
        line: of the source.
        writes: it is a store.
        addresses: of all lanes, in bytes.
        active: lanes that the mask lets through.
        size: bytes of an element.
        shape: of the tile; () for one element.
    """

    program: int
    line: int
    writes: bool
    addresses: Ints
    active: NDArray[np.bool_]
    size: int
    shape: tuple[int, ...] = ()


@dataclass(slots=True)
class Trace:
    """What the programs did that were run.

    Args:
        grid: programs of the launch.
        programs: those that were run to their end.
        accesses: in order.
        flops: operations on floating-point numbers by line.
        error: why no more programs were run, if that was not time.
    """

    grid: tuple[int, int, int]
    programs: list[tuple[int, int, int]] = field(default_factory=list)
    accesses: list[Access] = field(default_factory=list)
    flops: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    error: str = ""

    @property
    def scale(self) -> float:
        """Programs of the launch for each that was run."""
        return math.prod(self.grid) / max(1, len(self.programs))

    def bytes_by_line(self) -> dict[int, int]:
        """Bytes that lanes asked for, by line."""
        found: dict[int, int] = defaultdict(int)
        for access in self.accesses:
            found[access.line] += int(access.active.sum()) * access.size
        return found


def trace(sample: Sample) -> Trace:
    """Interpret programs of a launch, and note what they do."""
    made = Trace(sample.grid)
    if not sample.fn.params or any(param.name not in sample.arguments for param in sample.fn.params):
        made.error = "the arguments of the launch are not known by name"
        return made
    source = source_of(sample.fn)
    lines = range(source.first_line, source.first_line + source.text.count("\n") + 1)
    place = _Place(source.file, lines)
    _, call = sample.fn.request(**sample.arguments)
    options = complete_options({}, interpret.TARGET)

    def emitter(target: Target, options: Options, program: Program) -> EagerEmitter:
        return _Counting(target, options, program, made, place)

    end = time.perf_counter() + _SECONDS
    for number, program in enumerate(_chosen(sample.grid)):
        memory = _Traced(made, place, number)
        try:
            with on_host(call) as staged:
                interpret.launch(sample.fn, staged, sample.grid, options, interpret.Watch(memory, emitter, (program,)))
        except Exception as error:  # a kernel that the interpreter refuses is shown as far as it came
            reason = error.__cause__ or error  # without the place
            made.error = f"{type(reason).__name__}: {str(reason).strip().splitlines()[0]}"
            break
        made.programs.append(program)
        if time.perf_counter() > end:
            break
    return made


def _chosen(grid: tuple[int, int, int]) -> list[tuple[int, int, int]]:
    """Programs to run: all of a small grid, else neighbours from its start, its middle and its end."""
    total = math.prod(grid)
    third = _PROGRAMS // 3
    starts = (0, (total - third) // 2, total - third)
    flat = range(total) if total <= _PROGRAMS else sorted({i for s in starts for i in range(s, s + third)})
    return [(i % grid[0], i // grid[0] % grid[1], i // (grid[0] * grid[1])) for i in flat]


@dataclass(frozen=True, slots=True)
class _Place:
    """Finds the line of the kernel that runs."""

    file: str
    lines: range

    def now(self) -> int:
        """Its number in the file; 0 outside of the kernel."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            code = frame.f_code
            if code.co_filename == self.file and frame.f_lineno in self.lines and is_kernel_code(code):
                return frame.f_lineno
            frame = frame.f_back
        return 0


class _Traced(Memory):
    """Memory that notes every access."""

    def __init__(self, made: Trace, place: _Place, number: int) -> None:
        super().__init__()
        self._made, self._place, self._number = made, place, number

    def open_process(self) -> None:
        """Refuse: what an address in a copied array points to is not copied, and may be gone since the run."""
        raise UnsupportedError("it reaches memory by addresses that it reads from memory, which may be gone by now")

    def load(self, addresses: Any, dtype: np.dtype[Any], mask: Any) -> Any:
        self._note(False, addresses, mask, dtype.itemsize)
        return super().load(addresses, dtype, mask)

    def store(self, addresses: Any, values: Any, mask: Any) -> None:
        self._note(True, addresses, mask, values.dtype.itemsize)
        super().store(addresses, values, mask)

    def _note(self, writes: bool, addresses: Any, mask: Any, size: int) -> None:
        flat = np.asarray(addresses, np.int64).reshape(-1)
        active = (
            np.ones(flat.size, np.bool_) if mask is None else np.broadcast_to(mask, addresses.shape).reshape(-1) != 0
        )
        place, shape = self._place.now(), np.shape(addresses)
        self._made.accesses.append(Access(self._number, place, writes, flat.copy(), active, size, shape))


class _Counting(EagerEmitter):
    """An emitter that counts operations on floating-point numbers; calls are not replayed, so that it sees all."""

    def __init__(self, target: Target, options: Options, program: Program, made: Trace, place: _Place) -> None:
        super().__init__(target, options, program)
        self._made, self._place, self._inside = made, place, False

    def apply(self, cls: type[TileOp], operands: Sequence[Any], call: Call, regions: Sequence[Any]) -> tuple[Any, ...]:
        if self._inside:  # the body of a reduction, which counts as a whole
            return super().apply(cls, operands, call, regions)
        self._inside = True
        try:
            made = super().apply(cls, operands, call, regions)
        finally:
            self._inside = False
        count = _flops(cls, [t for t in call.operand_types if t is not None], call.result_types)
        if count:
            self._made.flops[self._place.now()] += count
        return made

    def _replayed(self, fn: Any, run: Any, args: Sequence[Any], kwargs: Any) -> Any:
        return run()


def _flops(cls: type[TileOp], operands: Sequence[Attribute], results: Sequence[Attribute]) -> int:
    """Operations on floating-point numbers of one application: a product and a sum for each pair of a dot, one for each
    element of a reduction, a scan or an elementwise operation (two of a fused one)."""
    if issubclass(cls, DotOp):
        return 2 * math.prod(shape_of(results[0])) * shape_of(operands[0])[-1]
    if not operands or not results or not all(map(_is_float, (*operands, *results))):
        return 0
    if issubclass(cls, (ReduceOp, ScanOp)):
        return math.prod(shape_of(operands[0]))
    alike = len({str(element_type(kind)) for kind in (*operands, *results)}) == 1  # a cast is none
    return math.prod(shape_of(results[0])) * max(1, len(operands) - 1) if spec_of(cls).elementwise and alike else 0


def _is_float(kind: Attribute) -> bool:
    return is_float(element_type(kind))


# --- tensors as grids -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Grid:
    """A tensor argument as cells.

    Args:
        name: of the argument.
        shape, strides: in elements.
        address: of its first element.
        size: bytes of an element.
        dtype: name.
        rows, columns: elements down and to the right; `columns` neighbours in memory, as far as strides say.
        extra: elements behind the last one that masked lanes of a vector point to.
    """

    name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    address: int
    size: int
    dtype: str
    rows: int
    columns: int
    extra: int = 0

    @property
    def count(self) -> int:
        """Elements of the tensor."""
        return math.prod(self.shape)

    @property
    def cell(self) -> tuple[int, int]:
        """Elements of a cell down and to the right."""
        return -(-self.rows // ROWS), -(-self.columns // COLUMNS)

    @property
    def cells(self) -> tuple[int, int]:
        """Cells down and to the right."""
        return -(-self.rows // self.cell[0]), -(-self.columns // self.cell[1])

    def flat(self, addresses: Ints) -> tuple[Ints, NDArray[np.bool_]]:
        """Row-major number of the element at each address, and which addresses are of this tensor."""
        offset = addresses - self.address
        inside = (offset % self.size == 0) & (offset >= 0)
        left, number = offset // self.size, np.zeros_like(offset)
        if len(self.shape) == 1 and self.strides[0] == 1:
            return left, inside & (left < self.count + self.extra)
        places = [math.prod(self.shape[axis + 1 :]) for axis in range(len(self.shape))]
        for axis in sorted(range(len(self.shape)), key=lambda axis: -self.strides[axis]):
            if self.strides[axis] > 0 and self.shape[axis] > 1:
                at = np.minimum(left // self.strides[axis], self.shape[axis] - 1)
                left, number = left - at * self.strides[axis], number + at * places[axis]
        return number, inside & (left == 0)

    def cells_of(self, elements: Ints) -> Ints:
        """Numbers of the cells of elements."""
        down, right = self.cell
        return elements // self.columns // down * self.cells[1] + elements % self.columns // right


def grid_of(name: str, value: Any, accesses: Sequence[Access]) -> Grid | None:
    """An argument as a grid; None if it is no array with memory of its own on the host."""
    if hasattr(value, "data_ptr") and hasattr(value, "stride"):
        shape, strides = tuple(value.shape), tuple(value.stride())
        address, size, dtype = value.data_ptr(), value.element_size(), str(value.dtype).removeprefix("torch.")
    elif isinstance(value, np.ndarray):
        shape, size, dtype = value.shape, value.itemsize, str(value.dtype)
        strides, address = tuple(s // size for s in value.strides), int(value.__array_interface__["data"][0])
    else:
        return None
    if not math.prod(shape):
        return None
    shape, strides = shape or (1,), strides or (1,)
    columns = shape[-1] if len(shape) > 1 else max(16, 1 << math.ceil(math.log2(math.isqrt(2 * shape[0]) + 1)))
    made = Grid(name, shape, strides, address, size, dtype, -(-math.prod(shape) // columns), columns)
    if len(shape) > 1 or strides != (1,):
        return made
    ends = [int(a.addresses.max() - address) // size + 1 for a in accesses if a.addresses.size]
    stop = max((end for end in ends if end <= 2 * shape[0] + 4096), default=shape[0])
    extra = max(0, stop - shape[0]) if _belongs(made, accesses) else 0
    return Grid(name, shape, strides, address, size, dtype, -(-(shape[0] + extra) // columns), columns, extra)


def _belongs(grid: Grid, accesses: Sequence[Access]) -> bool:
    return any(grid.flat(a.addresses[a.active])[1].any() for a in accesses)


def _of(grid: Grid, access: Access) -> bool:
    """Whether an access is to this tensor: its first lane that is let through is, or where none is, its first."""
    lanes = access.addresses[access.active] if access.active.any() else access.addresses
    return bool(lanes.size) and bool(grid.flat(lanes[:1])[1][0]) and access.size == grid.size


def grids_of(sample: Sample, made: Trace) -> list[dict[str, Any]]:
    """The tensors of a launch with the cells that each program reaches, as data for the page."""
    found = []
    for name, value in sample.arguments.items():
        first = grid_of(name, value, ())
        mine = [a for a in made.accesses if first is not None and _of(first, a)]
        grid = grid_of(name, value, mine)
        if grid is None or not mine:
            continue
        cells = math.prod(grid.cells)
        reads: list[list[int]] = []
        writes: list[list[int]] = []
        masked: list[list[int]] = []
        heat, unique = np.zeros(cells), np.zeros(grid.count + grid.extra, np.bool_)
        for program in range(len(made.programs)):
            touched = {kind: np.zeros(cells, np.bool_) for kind in ("read", "write", "masked")}
            for access in (a for a in mine if a.program == program):
                number, inside = grid.flat(access.addresses)
                active = number[inside & access.active]
                at = grid.cells_of(active)
                unique[active] = True
                touched["write" if access.writes else "read"][at] = True
                touched["masked"][grid.cells_of(number[inside & ~access.active])] = True
                if not access.writes:
                    np.add.at(heat, at, 1)
            for kind, rows in (("read", reads), ("write", writes), ("masked", masked)):
                rows.append(_runs(touched[kind]))
        down, right = grid.cells
        found.append({
            "name": name, "shape": list(grid.shape), "dtype": grid.dtype, "rows": down, "columns": right,
            "cell": list(grid.cell), "width": grid.columns, "count": grid.count, "reads": reads, "writes": writes,
            "masked": masked, "heat": [round(float(h) / math.prod(grid.cell), 2) for h in heat],
            "unique": int(unique.sum()) * grid.size, "bytes": grid.count * grid.size,
        })  # fmt: skip
    return found


def _runs(flags: NDArray[np.bool_]) -> list[int]:
    """Start and length of each run of true cells, one after the other."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], flags.view(np.int8), [0]))))
    out: list[int] = []
    for start, stop in zip(edges[::2].tolist(), edges[1::2].tolist()):
        out += [start, stop - start]
    return out


def rows_of(sample: Sample, made: Trace) -> list[dict[str, Any]]:
    """A row for each line that reaches memory: lanes, the masked ones, bytes used of those that memory moves."""
    grids = [grid for name, value in sample.arguments.items() if (grid := grid_of(name, value, ())) is not None]
    table: dict[tuple[int, bool, str], list[int]] = {}
    for access in made.accesses:
        name = next((grid.name for grid in grids if _of(grid, access)), "?")
        row = table.setdefault((access.line, access.writes, name), [0, 0, 0, 0])
        asked = np.unique(access.addresses[access.active])
        row[0] += access.addresses.size
        row[1] += int((~access.active).sum())
        row[2] += asked.size * access.size
        row[3] += np.unique(asked // SECTOR).size * SECTOR
    return [
        {"line": line, "writes": writes, "name": name, "lanes": lanes, "masked": masked / max(1, lanes),
         "used": used, "moved": moved, "share": used / moved if moved else 1.0}
        for (line, writes, name), (lanes, masked, used, moved) in sorted(table.items())
    ]  # fmt: skip
