"""What the emitters of all steps are given: the function under emission, and what the module's functions share."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from xdsl.ir import Operation

from tilewright.backends.cpu.emit.combined import Window
from tilewright.backends.cpu.emit.evaluator import Evaluator
from tilewright.backends.cpu.plan.direct_epilogue_store import DirectStore
from tilewright.backends.cpu.plan.module import LoopModule
from tilewright.backends.cpu.plan.pack_cache import PackCache
from tilewright.backends.cpu.plan.steps import BlockPlan, FunctionPlan, Step
from tilewright.backends.llvm.module import Function, Module
from tilewright.backends.llvm.types import V
from tilewright.base.options import Options
from tilewright.ir.walk import every
from tilewright.ops.control import ForOp
from tilewright.ops.function import CallOp

Emit = Callable[["FunctionLowering", Step], None]
EMITTERS: dict[type[Operation | None], Emit] = {}


def emits(*kinds: type[Operation]) -> Callable[[Emit], Emit]:
    """Decorator: this function emits steps for operations of these classes on tiles, in a loop nest of their own."""

    def register(function: Emit) -> Emit:
        EMITTERS.update(dict.fromkeys(kinds, function))
        return function

    return register


def safe_name(symbol: str) -> str:
    """A symbol that needs no quotes in LLVM text."""
    return re.sub(r"[^A-Za-z0-9_.$]", "_", symbol)


@dataclass(slots=True)
class JoinedIterations:
    """Iterations of a loop that the current one stands for.

    Args:
        loop: the loop.
        count: how many they are, i64.
        counter, by: the loop's counter in the first of them and what it gains in an iteration, i64.
        carried, gains: the scalars that the loop carries in the first of them, and what each gains in an iteration
            (i64).
        body: the plan of the loop's body.
        first: whether it is the first of all, i1.
    """

    loop: ForOp
    count: V
    counter: V
    by: V
    carried: list[V]
    gains: list[V]
    body: BlockPlan
    first: V


@dataclass(slots=True)
class DirectPlace:
    """Where the sums of a product go that may be written directly to a tensor.

    Args:
        direct: whether they are, i1.
        address, stride: of its first element and between rows, in the tensor or in scratch.
        extents: rows and columns that are stored.
    """

    direct: V
    address: V
    stride: V
    extents: tuple[V, V]


@dataclass(slots=True)
class KeptEntry:
    """Where packed iterations of the current key are.

    Args:
        first: address of the first of them.
        span: how many have room, i64.
        filled: address of how many have been packed.
    """

    first: V
    span: V
    filled: V


class ModuleLowering:
    """What the functions of a module share while they are emitted.

    Args:
        module: where to emit.
        loops: the plans.
        options: compile options.
        emit_step: emits a step of any kind: emitters of loops and branches are among those that it chooses from.

    Attributes:
        waits: whether a loop was emitted that may wait for another program.
    """

    def __init__(
        self, module: Module, loops: LoopModule, options: Options, emit_step: Callable[[FunctionLowering, Step], None]
    ) -> None:
        self.module, self.loops, self.options, self.emit_step = module, loops, options, emit_step
        self.failed_symbol = f"{safe_name(loops.kernel.function.symbol)}.failed"
        self.wanted: list[str] = []
        self.asserts: list[str] = []
        self.waits = False
        self._requested: set[str] = set()

    def request(self, symbol: str) -> str:
        """The LLVM name of a private function, which will be emitted."""
        if symbol not in self._requested:
            self._requested.add(symbol)
            self.wanted.append(symbol)
        return f"fn.{safe_name(symbol)}"

    def frame(self, symbol: str) -> int:
        """Scratch of a function and of everything that it calls."""
        plan = self.loops.plans[symbol]
        calls = [op.callee_name for op in every(plan.function, CallOp)]
        own = max(each.scratch_bytes for each in (plan, plan.otherwise) if each is not None)
        return own + max([self.frame(callee) for callee in calls], default=0)


class FunctionLowering:
    """What the steps of one function share while they are emitted.

    Args:
        state: of the module.
        plan: of the function.
        f: where to emit.
        arena: the function's scratch.
        pids, grid: place of the program and size of the grid along x, y, z, i32.

    Attributes:
        ev: values of the function.
        iterations: number of the current iteration of loops that keep packed operands.
        kept: where packed operands of the current programs and iterations are.
        joined: the iterations that the current one stands for, of loops whose iterations are joined.
        direct: where the sums of products that may be written directly to a tensor go.
        windows: of atomic sums that are kept over the programs of a range.
        leave: label behind the programs of the kernel, for what may end them early.
        skip: label behind the current program, for checks that end it; None where there are none.
        row: where the loop over rows is that groups are in, i64; None where they have loops of their own.
    """

    leave: str | None = None
    skip: str | None = None
    row: V | None = None

    def __init__(
        self, state: ModuleLowering, plan: FunctionPlan, f: Function, arena: V, pids: list[V], grid: list[V]
    ) -> None:
        self.state, self.plan, self.f = state, plan, f
        self.pids, self.grid = pids, grid
        self.iterations: dict[Operation, V] = {}
        self.kept: dict[PackCache, KeptEntry] = {}
        self.joined: dict[Operation, JoinedIterations] = {}
        self.direct: dict[DirectStore, DirectPlace] = {}
        self.windows: dict[Operation, Window] = {}
        libraries = getattr(state.options, "libraries", ())
        self.ev = Evaluator(f, arena, plan.facts, plan.decisions, libraries)

    @property
    def place_in_grid(self) -> list[V]:
        """What a callee must be told of the program."""
        return [*self.pids, *self.grid]

    def symbol_of(self, callee: str) -> str:
        """LLVM name of a function of the module."""
        return self.state.request(callee)

    def emit_step(self, step: Step) -> None:
        """Emit one step of a plan."""
        self.state.emit_step(self, step)
