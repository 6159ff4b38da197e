"""What the emitters of all families share: the values of a kernel under emission, and where its elements live.

An emitter is a function ``emit(kernel, op)`` registered for an op name; an UnsupportedError that it raises is given its
place in the source here. It reads operands with `tile`, `scalar` and `buffer`, makes LLVM code through `kernel.f`, and
hands over results with `set`. Layout questions (coordinates of a register, which positions lie outside of the tile or
hold copies) are answered here, from the layout alone.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Any, TypeVar

from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.traits import IsTerminator

from tilewright.analysis.solver import Facts
from tilewright.backends.llvm.casts import storage
from tilewright.backends.llvm.types import I1, I32, T, V, const
from tilewright.backends.nvidia.arch import WARP, Arch
from tilewright.backends.nvidia.emit.function import NvFunction
from tilewright.backends.nvidia.options import CudaOptions
from tilewright.backends.nvidia.plan.team import Team
from tilewright.backends.nvidia.tgir.types import layout_of
from tilewright.base.errors import CompilationError, InternalError, LanguageValueError, UnsupportedError
from tilewright.ir.decisions import Decisions
from tilewright.ir.op import location_of
from tilewright.ir.types import element_type, ir_name, shape_of
from tilewright.ir.walk import operations
from tilewright.layouts import f2
from tilewright.layouts.linear import LinearLayout
from tilewright.layouts.padding import register_bounds
from tilewright.ops.facts import AxisFacts

Tile = list[V]


@dataclass(frozen=True, slots=True)
class Buffer:
    """A buffer in shared memory, or several of one shape that follow each other.

    Args:
        base: address of the first, `ptr addrspace(3)`.
        layout: (offset) -> coordinates of one, offsets in elements.
        element: element type of tile IR.
        stride: bytes from one buffer to the next.
        phases: of barriers: the thread's variable in which bit k is the parity of the phase of stage k that is next.
    """

    base: V
    layout: LinearLayout
    element: Attribute
    stride: int = 0
    phases: V | None = None


Value = V | Tile | Buffer
Kind = TypeVar("Kind", bound=Operation)
EMITTERS: dict[type[Operation], Callable[[Kernel, Any], None]] = {}


def emits(*kinds: type[Kind]) -> Callable[[Callable[[Kernel, Kind], None]], Callable[[Kernel, Kind], None]]:
    """Decorator: this function emits operations of these classes."""

    def register(function: Callable[[Kernel, Kind], None]) -> Callable[[Kernel, Kind], None]:
        for kind in kinds:
            if kind in EMITTERS:
                raise InternalError(f"two emitters for {kind.name}")
            EMITTERS[kind] = function
        return function

    return register


@dataclass(slots=True)
class Kernel:
    """One kernel under emission.

    Args:
        f: its LLVM function.
        arch: what the target can do.
        options: compile options (`num_warps`, `enable_fp_fusion`, `debug`, ...).
        facts: axis facts of the function's values.
        scratch_offsets: byte offset in shared memory of the buffers (`ttg.local_alloc`) and of the scratch of every
            operation that `allocate` gave some.
        alone: of these, the operations whose scratch nothing else ever uses.
        values: what each SSA value is.
        chains: how many operations on integers in a row lead to a value; 0 for those that are not there.
        exchanged: the elements of a tile that a difference of lanes leads to, and the block of code that has them.
        asserts, prints: texts of `tl.device_assert` and `tl.device_print`, in order of emission.
        log: pointer to the buffer that assertions write to, if there are any.
        grid: sizes of the grid (i32), if its programs are not blocks.
        exchange_room: byte offset in shared memory of what the blocks of a cluster send each other.
        given_team, team: the threads of a program; by default those of one block.
        inline_only: whether no function should be called, as a call makes the wgmma of a kernel serial.
        contracts: whether sums emitted now may take in the products that they add: those of a reduction, whose order
            is ours. Sums that a user writes have taken theirs (`passes/fp_contraction.py`).
        decisions: what is told of accesses and reductions.
        slices_under_way: whether the copy engine may still read slices of warps when they have ended.
        first: index of the first thread of the block, or of the role that is emitted.
        extra_warps: warps of the block beside those for which its tiles are laid out.
        thread: index of the thread in the block (i32); this and the next are there after `start`.
        lane: index of the thread in its warp (i32).
        warp: index of the warp in the block (i32), the same for all its lanes.
        rank: index of the block in its cluster (i32).
    """

    f: NvFunction
    arch: Arch
    options: CudaOptions
    facts: Facts[AxisFacts]
    scratch_offsets: Mapping[Operation, int]
    alone: Collection[Operation] = ()
    values: dict[SSAValue, Value] = field(default_factory=dict)
    chains: dict[SSAValue, int] = field(default_factory=dict)
    exchanged: dict[tuple[SSAValue, int, str], list[V]] = field(default_factory=dict)
    asserts: list[str] = field(default_factory=list)
    prints: list[str] = field(default_factory=list)
    log: V | None = None
    grid: Sequence[V] = ()
    inline_only: bool = False
    contracts: bool = False
    exchange_room: int = 0
    given_team: InitVar[Team | None] = None
    team: Team = field(init=False)
    decisions: Decisions = field(default_factory=Decisions)
    slices_under_way: bool = False
    first: int = 0
    extra_warps: int = 0
    thread: V = field(init=False)
    lane: V = field(init=False)
    warp: V = field(init=False)
    rank: V = field(init=False)

    def __post_init__(self, given_team: Team | None) -> None:
        self.team = given_team or Team(self.options.block_warps)

    # -- values --------------------------------------------------------------------------------------

    def set(self, value: SSAValue, made: Value) -> None:
        """Define an SSA value."""
        self.values[value] = made

    def scalar(self, value: SSAValue) -> V:
        """A scalar operand."""
        made = self.values[value]
        assert isinstance(made, V), f"{value.type} is no scalar"
        return made

    def tile(self, value: SSAValue) -> Tile:
        """The registers of a tile operand, or the one value of a scalar."""
        made = self.values[value]
        if isinstance(made, V):
            return [made]
        assert isinstance(made, list), f"{value.type} is no tile"
        return made

    def buffer(self, value: SSAValue) -> Buffer:
        """A buffer operand."""
        made = self.values[value]
        assert isinstance(made, Buffer), f"{value.type} is no buffer"
        return made

    def set_like(self, value: SSAValue, registers: Sequence[V]) -> None:
        """Define a value that is a tile or, with one register, a scalar."""
        self.values[value] = list(registers) if shape_of(value.type) else registers[0]

    def element(self, type_: Attribute | SSAValue) -> T:
        """LLVM type of one element of a tile, or of a scalar."""
        type_ = type_.type if isinstance(type_, SSAValue) else type_
        return storage(ir_name(element_type(type_)))

    # -- threads -------------------------------------------------------------------------------------

    @property
    def num_warps(self) -> int:
        return self.team.warps

    @property
    def block_warps(self) -> int:
        """All warps of the block."""
        return self.num_warps + self.extra_warps

    def start(self) -> None:
        """Emit the thread's indices; call once, in the entry block."""
        self.thread = self.f.special_register("tid.x")
        self.lane = self.f.and_(self.thread, WARP - 1)
        # Uniform to the compiler as well: what depends on it alone goes to uniform registers.
        warp = self.f.lshr(self.thread, WARP.bit_length() - 1)
        self.warp = self.f.shuffle_index(warp, 0) if self.num_warps > 1 else const(I32, 0)
        self.rank = self.f.special_register("cluster.ctarank") if self.team.blocks > 1 else const(I32, 0)

    # -- where elements live -------------------------------------------------------------------------

    def linear(self, columns: Mapping[str, Sequence[int]]) -> V:
        """The exclusive or of the columns whose bit is set in "lane", "warp" and "block" (i32).

        Made anew at each place of use, so that it is defined where it is needed; LLVM merges equal ones.

        Args:
            columns: "lane", "warp" and "block" -> value of each bit of that index; any of them may be left out.
        """
        total = const(I32, 0)
        for dim, values in columns.items():
            index = {"lane": self.lane, "warp": self.warp, "block": self.rank}[dim]
            for shift, mask in _runs(values):
                part = self.f.and_(index, mask)
                part = self.f.shl(part, shift) if shift > 0 else self.f.lshr(part, -shift)
                total = self.f.xor(total, part)
            for bit, column in _singles(values):
                # column where the bit is set: the bit spread over the word, and the column
                spread = self.f.sub(0, self.f.and_(self.f.lshr(index, bit), 1))
                total = self.f.xor(total, self.f.and_(spread, column))
        return total

    def thread_part(self, layout: LinearLayout, dim: str) -> tuple[V, int]:
        """What lane, warp and block give to the output `dim` of a layout (i32), and which bits may be set."""
        part = layout.sublayout([name for name in layout.in_sizes if name != "register"], [dim])
        columns = {name: part.columns_of(name) for name in ("lane", "warp", "block")}
        reach = 0
        for column in itertools.chain(*columns.values()):
            reach |= column
        return self.linear(columns), reach

    def with_constant(self, part: tuple[V, int], value: int) -> V:
        """``part ^ value``, as a sum where the bits are disjoint, so that constants fold into addresses."""
        made, reach = part
        if value & reach:
            return self.f.xor(made, value)
        return self.f.add(made, value, "nuw nsw")

    def coordinates(self, layout: LinearLayout, dim: int) -> Tile:
        """Coordinate along one dim of every register (i32)."""
        name = list(layout.out_sizes)[dim]
        part = self.thread_part(layout, name)
        own = layout.sublayout(["register"], [name]).columns_of("register")
        made: dict[int, V] = {}
        result = []
        for register in range(layout.in_sizes["register"]):
            value = f2.multiply(own, register)
            if value not in made:
                made[value] = self.with_constant(part, value)
            result.append(made[value])
        return result

    def equal_registers(self, value: SSAValue) -> list[int] | None:
        """Of every register of a tile the first one that is known to hold an equal element; None if all may differ."""
        shape = shape_of(value.type)
        runs = self.facts[value].constancy if shape else ()
        return None if all(run == 1 for run in runs) else _first_of_runs(layout_of(value), runs)

    def inside(self, type_: Attribute) -> list[V]:
        """Of every register of a tile whether it lies in the true shape (i1; literals where that is known)."""
        layout, shape = layout_of(type_), shape_of(type_)
        bounds = register_bounds(layout, shape)
        tested = {axis for bound in bounds for axis in bound.tests}
        places = {axis: self.coordinates(layout, axis) for axis in tested}
        result = []
        for register, bound in enumerate(bounds):
            flag = const(I1, int(bound.inside is not False))
            for axis in bound.tests:
                flag = self.f.and_(flag, self.f.icmp("ult", places[axis][register], shape[axis]))
            result.append(flag)
        return result

    def owns(self, layout: LinearLayout) -> V:
        """Whether this thread is the first of those that hold its elements (i1; a literal if there are no copies)."""
        masks = layout.free_masks()
        free = const(I1, 1)
        for dim, index in (("lane", self.lane), ("warp", self.warp), ("block", self.rank)):
            if mask := masks.get(dim, 0):
                free = self.f.and_(free, self.f.icmp("eq", self.f.and_(index, mask), 0))
        return free

    def owned_registers(self, layout: LinearLayout) -> list[int]:
        """Registers that hold no copy of another register of the same thread."""
        mask = layout.free_masks().get("register", 0)
        return [r for r in range(layout.in_sizes["register"]) if not r & mask]

    def first_thread(self) -> V:
        """Whether this is the first thread of the program, or role (i1)."""
        first = self.f.icmp("eq", self.thread, self.first)
        return first if self.team.blocks == 1 else self.f.and_(first, self.f.icmp("eq", self.rank, 0))

    # -- shared memory -------------------------------------------------------------------------------

    def scratch(self, op: Operation) -> V:
        """Address of the scratch that `allocate` gave `op` in shared memory."""
        if op not in self.scratch_offsets:
            raise InternalError(f"{op.name} has no scratch in shared memory")
        return self.f.shared(self.scratch_offsets[op])

    # -- bodies --------------------------------------------------------------------------------------

    def emit_block(self, block: Block, made: Container[object] = ()) -> None:
        """Emit the operations of a block but its terminator, and those whose results are known already."""
        for op in operations(block):
            if not op.has_trait(IsTerminator) and op not in made:
                self.emit(op)

    def emit(self, op: Operation) -> None:
        """Emit one operation, attributing it to its place in the user's source."""
        emitter = EMITTERS.get(type(op))
        if emitter is None:
            raise CompilationError(f"{op.name} is not supported on CUDA", location_of(op))
        place = location_of(op)
        if place is not None:
            self.f.at(place.line, place.col)
        try:
            emitter(self, op)
        except (UnsupportedError, LanguageValueError) as error:
            raise CompilationError(error.message, place, hint=error.hint) from error

    def combine(self, block: Block, arguments: Sequence[V], *, contracts: bool = True) -> list[V]:
        """Emit the body of a reduction or scan on scalars; gives the operands of its terminator.

        Args:
            block: the body.
            arguments: one value for each of its arguments.
            contracts: whether its sums may take in the products that they add.
        """
        for argument, value in zip(block.args, arguments, strict=True):
            self.values[argument] = value
        outside, self.contracts = self.contracts, self.options.enable_fp_fusion and contracts
        self.emit_block(block)
        self.contracts = outside
        assert block.last_op is not None
        return [self.scalar(operand) for operand in block.last_op.operands]


@functools.lru_cache(maxsize=1024)
def _first_of_runs(layout: LinearLayout, runs: tuple[int, ...]) -> list[int]:
    """Of every register the first whose element lies in the same run, for runs of these lengths along each dim."""
    own = layout.sublayout(["register"], list(layout.out_sizes))
    first: dict[tuple[int, ...], int] = {}
    result = []
    for register in range(layout.in_sizes["register"]):
        # Runs are aligned powers of two: lanes and warps move all elements of one alike.
        run = tuple(c // length for c, length in zip(own(register=register).values(), runs, strict=True))
        result.append(first.setdefault(run, register))
    return result


def _runs(columns: Sequence[int]) -> list[tuple[int, int]]:
    """(left shift, mask of index bits) of the bits whose column is one bit, grouped by how far they move."""
    groups: dict[int, int] = {}
    for bit, column in enumerate(columns):
        if column and not column & (column - 1):
            shift = column.bit_length() - 1 - bit
            groups[shift] = groups.get(shift, 0) | 1 << bit
    return sorted(groups.items())


def _singles(columns: Sequence[int]) -> list[tuple[int, int]]:
    """Bits whose column has several bits."""
    return [(bit, column) for bit, column in enumerate(columns) if column & (column - 1)]
