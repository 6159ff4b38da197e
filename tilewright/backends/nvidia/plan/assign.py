"""Assignment of layouts to the tiles of a kernel: from tile IR to laid-out tile IR.

Forward, every tile gets a *state*: the layout that an anchor before it asks for and how strongly, or that it is
*flexible*, made in any layout as cheaply as in another. Backward, from effects and from the tiles with a layout, the
forms in which each value is needed are collected. `relayout.py` then makes every value in those forms: flexible ones
by computing them so, others by one conversion where they are defined.

    strength 0 flexible: constants, ranges, broadcasts, and what is computed from such alone
             1 memory accesses      2 reductions, scans, gathers, joins      3 accumulators of dots
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue

from tilewright.analysis.axis import axis_facts
from tilewright.analysis.origins import origins_of
from tilewright.backends.nvidia import tuning
from tilewright.backends.nvidia.arch import WARP
from tilewright.backends.nvidia.plan.anchors import (
    Access,
    access_of,
    arithmetic_cycles,
    common_layouts,
    conversion_cycles,
    cycles,
    within_warps,
)
from tilewright.backends.nvidia.plan.dots import DotPlan, SharedOperand, is_only_turned
from tilewright.backends.nvidia.plan.networks import network_layouts
from tilewright.backends.nvidia.plan.relations import (
    follows_result,
    is_access,
    is_only_multiplied,
    is_ragged,
    operand_layouts,
    result_layout,
    splittable,
)
from tilewright.backends.nvidia.plan.relayout import Form, Plan, Shared, rewrite
from tilewright.backends.nvidia.plan.team import Team
from tilewright.backends.nvidia.plan.turning import turning_layout
from tilewright.backends.nvidia.tgir.types import memory_bits
from tilewright.base.errors import CompilationError
from tilewright.ir.op import location_of
from tilewright.ir.traits import is_collective
from tilewright.ir.types import element_type, shape_of
from tilewright.ir.values import is_tile
from tilewright.ir.walk import walk
from tilewright.layouts.linear import LinearLayout
from tilewright.layouts.padding import padded_shape
from tilewright.ops.broadcast import BroadcastOp, ExpandDimsOp
from tilewright.ops.control import ConditionOp, ForOp, FuncOp, IfOp, WhileOp, YieldOp
from tilewright.ops.debug import AssertOp, PrintOp
from tilewright.ops.descriptor import DescriptorLoadOp, DescriptorStoreOp
from tilewright.ops.dot import DotOp
from tilewright.ops.gather import GatherOp
from tilewright.ops.memory import LoadOp
from tilewright.ops.scan import ScanOp
from tilewright.ops.shape import CatOp, JoinOp, SplitOp, UnsplatOp
from tilewright.passes.dce import is_removable

DotPlanner = Callable[[DotOp], DotPlan]

_MEMORY, _LIBRARY, _ACCUMULATOR = 1, 2, 3
_VECTOR_BITS = 128  # of one thread's access to shared memory


def lay_out(module: ModuleOp, team: Team, dots: DotPlanner) -> ModuleOp:
    """Give every tile of a module a layout, in place.

    Args:
        module: simplified tile IR, all calls inlined.
        team: the threads of a program.
        dots: chooses the layouts of a dot and the instruction that makes it.

    Returns:
        The module, now laid-out tile IR.

    Raises:
        CompilationError: an operation on tiles that this back end does not have.
    """
    for op in FuncOp.all_of(module):
        rewrite(op, plan_layouts(op, team, dots))
    return module


def plan_layouts(function: FuncOp, team: Team, dots: DotPlanner) -> Plan:
    """Decide in which layouts the tiles of a function are made; arguments as for `lay_out`."""
    settled: set[SSAValue] = set()
    shared: set[Moved] = set()
    dots = functools.cache(dots)  # what they decide is told once
    while True:
        demands = _Demands(_States(function, team, dots, settled), shared)
        if demands.collect():
            more = demands.worth_sharing()
            if not more:
                return demands.plan
            shared |= more
        settled |= demands.too_many


# --- forward ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class State:
    """What is known of the layout of a tile.

    Args:
        layout: its layout; of a flexible one, a layout in which it costs nothing beyond its operands, if there is one.
        strength: 0 for flexible tiles.
    """

    layout: LinearLayout | None
    strength: int

    def join(self, other: State) -> State:
        """The stronger; the first of two equals."""
        mine, others = ((s.strength, s.layout is not None) for s in (self, other))
        return other if others > mine else self


FLEXIBLE = State(None, 0)


def _as_stored(op: Operation, access: Access, dots: DotPlanner, barren: set[SSAValue]) -> Access:
    """An access in vectors as products read from shared memory what becomes of them, if its elements become wider.

    Threads that store two vectors of 16 bytes each, side by side, meet in the same banks.
    """
    bits = _stored_bits(op, dots, barren) if isinstance(op, LoadOp) else 0
    return replace(access, vector=min(access.vector, _VECTOR_BITS // bits)) if bits else access


def _stored_bits(load: LoadOp, dots: DotPlanner, barren: set[SSAValue]) -> int:
    """Bits of elements that products read from shared memory of what is loaded; else 0, and what was seen is barren."""
    todo, seen, own = [load.result], set[SSAValue](), memory_bits(element_type(load.result.type))
    while todo:
        value = todo.pop()
        for use in value.uses:
            user = use.operation
            if isinstance(user, DotOp) and use.index < 2:
                bits, plan = memory_bits(element_type(value.type)), dots(user)
                return bits if bits > own and isinstance((plan.a, plan.b)[use.index], SharedOperand) else 0
            made = [result for result in user.results if result not in seen and result not in barren]
            if len(user.results) == len(made) == 1 and follows_result(user):
                seen.update(made)
                todo += made
    barren |= seen
    return 0


class _States:
    """The states of all tiles of a function, and the layouts in which anchors take their operands.

    Args:
        function: tile IR.
        team: the threads of a program.
        dots: the planner of dots.
        settled: carried values that must not be flexible.
    """

    def __init__(self, function: FuncOp, team: Team, dots: DotPlanner, settled: set[SSAValue]) -> None:
        self.team = team
        self.settled = settled
        self.known: dict[SSAValue, State] = {}
        self.visited: dict[Operation, None] = {}
        self.operands: dict[Operation, tuple[LinearLayout | None, ...]] = {}
        self.dots: dict[Operation, DotPlan] = {}
        self._planner, self._function = dots, function
        facts = axis_facts(function)
        tiles, barren = (op for op in walk(function) if is_access(op) and is_tile(op.operands[0])), set[SSAValue]()
        self.accesses = {op: _as_stored(op, access_of(op, facts), dots, barren) for op in tiles}
        alone = {op: access for op, access in self.accesses.items() if is_only_multiplied(op.results)}
        together = {op: access for op, access in self.accesses.items() if op not in alone}
        self.access_layouts = common_layouts(together, team)
        self.access_layouts |= {op: access.layout(team) for op, access in alone.items()}
        self._usual: dict[tuple[int, ...], LinearLayout] = {}
        for op, access in self.accesses.items():
            self._usual.setdefault(access.shape, self.access_layouts[op])
        self._networks = network_layouts(function, team.warps, self.usual)
        for block in function.body.blocks:
            self._block(block)

    def usual(self, value: SSAValue) -> LinearLayout:
        """The layout that accesses to tiles of this shape have, or a plain one."""
        shape = padded_shape(shape_of(value.type))
        return self._usual.get(shape) or self.team.blocked(shape)

    def own(self, value: SSAValue) -> LinearLayout:
        """The layout that a tile has or, if it is flexible, may as well have."""
        return self.known[value].layout or self.usual(value)

    def strongest(self, values: Sequence[SSAValue]) -> State:
        """The strongest state among some values."""
        return functools.reduce(State.join, self._all(values), FLEXIBLE)

    def only_read(self, load: Operation) -> bool:
        """Whether no operation of the function writes where a load reads, as far as addresses can be followed.

        Otherwise one warp may write before another has read for the second time.
        """
        read = origins_of(load.operands[0])
        return read is not None and self._written is not None and not read & self._written

    @functools.cached_property
    def _written(self) -> set[SSAValue] | None:
        found: set[SSAValue] = set()
        for op in walk(self._function):
            if is_access(op) and not isinstance(op, LoadOp):
                bases = origins_of(op.operands[0])
                if bases is None:
                    return None
                found |= bases
        return found

    # -- walking -------------------------------------------------------------------------------------

    def _block(self, block: Block) -> None:
        for op in block.ops:
            if type(op) in _CONTROL:
                _CONTROL[type(op)](self, op)
            elif op.next_op is None:
                _check_terminator(op)
            elif _has_tiles(op):
                self.visited[op] = None
                self._set(op.results, [self._operation(op)] * len(op.results))

    def _set(self, values: Sequence[SSAValue], states: Sequence[State]) -> None:
        for value, state in zip(values, states, strict=True):
            if is_tile(value):
                settle = value in self.settled and not state.strength
                self.known[value] = State(state.layout or self.usual(value), _MEMORY) if settle else state

    def _all(self, values: Sequence[SSAValue]) -> list[State]:
        return [self.known.get(value, FLEXIBLE) for value in values]

    def _for(self, op: ForOp) -> None:
        body = op.body.block
        states = self._all(op.operands[3:])
        while True:
            self._set(body.args[1:], states)
            self._block(body)
            joined = self._joined(states, _end(body).operands)
            if joined == states:
                break
            states = joined
        self._set(op.results, self._all(body.args[1:]))

    def _while(self, op: WhileOp) -> None:
        before, after = op.before.block, op.after.block
        states = self._all(op.operands)
        while True:
            self._set(before.args, states)
            self._block(before)
            self._set(after.args, self._all(_end(before).operands[1:]))
            self._block(after)
            joined = self._joined(states, _end(after).operands)
            if joined == states:
                break
            states = joined
        self._set(op.results, self._all(after.args))

    def _if(self, op: IfOp) -> None:
        blocks = [block for region in op.regions for block in region.blocks]
        for block in blocks:
            self._block(block)
        if op.results:
            then, other = blocks
            self._set(op.results, self._joined(self._all(_end(then).operands), _end(other).operands))

    def _joined(self, states: Sequence[State], values: Sequence[SSAValue]) -> list[State]:
        return [a.join(b) for a, b in zip(states, self._all(values), strict=True)]

    # -- operations ----------------------------------------------------------------------------------

    def _operation(self, op: Operation) -> State:
        """State of the results of an operation on tiles."""
        if is_access(op):
            return self._access(op)
        special = _SPECIAL.get(type(op))
        if special is not None:
            return special(self, op)
        if follows_result(op):
            return self._computed(op)
        if is_ragged(op) or is_collective(op):
            return self._combining(op)
        raise CompilationError(f"{op.name} on tiles is not supported on CUDA", location_of(op))

    def _access(self, op: Operation) -> State:
        """A load follows pointers that have a layout, an atomic also the values that it combines."""
        state = self.strongest(op.operands[:1] if isinstance(op, LoadOp) else op.operands)
        return state if state.strength else State(self.access_layouts[op], _MEMORY)

    def _computed(self, op: Operation) -> State:
        """An operation on elements, a reshape or a transposition: what its strongest operand is."""
        state = self.strongest(op.operands)
        if state.strength == 0 and not is_removable(op):  # must run exactly once
            return State(state.layout or self.usual(op.results[0]), _MEMORY)
        network = self._networks.get(op.results[0])
        if network is not None:
            return State(network, max(_LIBRARY, state.strength))
        return State(state.layout and result_layout(op, state.layout), state.strength)

    def _broadcast(self, op: Operation) -> State:
        """Made in any layout by naming registers, from its smaller operand in the layout that this needs."""
        return FLEXIBLE

    def _expand_dims(self, op: Operation) -> State:
        """As flexible as what it is most often made for, a broadcast."""
        layout = self.known[op.operands[0]].layout
        return State(layout and result_layout(op, layout), 0)

    def _block_load(self, op: Operation) -> State:
        """A block comes through shared memory, from where rows are read in vectors."""
        shape = padded_shape(shape_of(op.results[0].type))
        vector = _VECTOR_BITS // memory_bits(element_type(op.results[0].type))
        self.operands[op] = (None,) * len(op.operands)
        if is_only_turned(op.results[0], self._plan):
            return State(turning_layout(shape, self.team.warps), _MEMORY)
        least = max(1, math.prod(shape) // (WARP * self.team.warps))
        return State(self.team.blocked(shape, None, min(vector, least)), _MEMORY)

    def _plan(self, op: DotOp) -> DotPlan:
        return self.dots.get(op) or self.dots.setdefault(op, self._planner(op))

    def _dot(self, op: DotOp) -> State:
        return State(self._plan(op).accumulator, _ACCUMULATOR)

    def _combining(self, op: Operation) -> State:
        """Elements of tiles of one shape are combined: the layout of the operands decides."""
        state = self.strongest(op.operands)
        layout = state.layout or self.own(op.operands[0])
        if state.strength:  # what is made of ranges alone follows: networks that sort move numbers of places along
            self._usual.setdefault(padded_shape(shape_of(op.operands[0].type)), layout)
        layout = splittable(layout) if isinstance(op, SplitOp) else layout
        self.operands[op] = tuple(layout for _ in op.operands)
        found = result_layout(op, layout)
        if found is None and op.results and is_tile(op.results[0]):
            found = self.usual(op.results[0])
        return State(found, max(_LIBRARY, state.strength))

    def _gather(self, op: Operation) -> State:
        """The result is where the indices are; flexible ones are made where the elements are, if there are as many."""
        source, indices = op.operands
        alike = self.known[indices].strength == 0 and shape_of(source.type) == shape_of(indices.type)
        held, layout = self.own(source), self.own(source if alike else indices)
        self.operands[op] = (held, layout)
        return State(layout, _LIBRARY)

    def _reported(self, op: Operation) -> State:
        """Prints, assertions and stores through descriptors take tiles as they are."""
        self.operands[op] = tuple(self.own(value) if is_tile(value) else None for value in op.operands)
        return FLEXIBLE


_CONTROL: dict[type[Operation], Callable[[_States, Any], None]] = {
    ForOp: _States._for,
    IfOp: _States._if,
    WhileOp: _States._while,
}
_SPECIAL: dict[type[Operation], Callable[[_States, Any], State]] = {
    BroadcastOp: _States._broadcast,
    ExpandDimsOp: _States._expand_dims,
    DotOp: _States._dot,
    **dict.fromkeys((ScanOp, JoinOp, SplitOp, CatOp, UnsplatOp), _States._combining),
    GatherOp: _States._gather,
    PrintOp: _States._reported,
    AssertOp: _States._reported,
    DescriptorLoadOp: _States._block_load,
    DescriptorStoreOp: _States._reported,
}


def _end(block: Block) -> Operation:
    assert block.last_op is not None
    return block.last_op


def _has_tiles(op: Operation) -> bool:
    return any(map(is_tile, op.results)) or any(map(is_tile, op.operands))


def _check_terminator(op: Operation) -> None:
    """Tiles are handed over by structured control flow only."""
    if not isinstance(op, (YieldOp, ConditionOp)) and any(map(is_tile, op.operands)):
        raise CompilationError(
            f"{op.name} hands over tiles, which is not supported on CUDA",
            location_of(op),
            hint="use structured loops and branches, and functions that are inlined",
        )


# --- backward -----------------------------------------------------------------------------------------


Moved = tuple[SSAValue, LinearLayout]  # a tile, and a layout in which it is wanted as well


class _Demands:
    """The forms in which values are needed, collected from the effects of a function backward.

    Args:
        states: of the tiles.
        shared: conversions that several tiles are made from: none of these is charged for them.
    """

    def __init__(self, states: _States, shared: Set[Moved] = frozenset()) -> None:
        self.states, self.shared = states, shared
        self.plan = Plan(dots=states.dots)
        self.too_many: set[SSAValue] = set()
        self._pending: list[tuple[SSAValue, LinearLayout]] = []

    def collect(self) -> bool:
        """Fill the plan; False if carried values would be carried in too many layouts (`too_many`)."""
        for op in self.states.visited:
            self._root(op)
        while self._pending and not self.too_many:
            self._produce(*self._pending.pop())
        return not self.too_many

    def _root(self, op: Operation) -> None:
        """Demand the operands of an operation on tiles that has effects or gives scalars."""
        if op.results and is_tile(op.results[0]):
            if not is_removable(op):
                self.demand(op.results[0], self.states.own(op.results[0]))
        else:
            self._instance(op, None)

    def demand(self, value: SSAValue, form: Form | None) -> None:
        """Note that a tile is needed in a form."""
        if form is None:
            return
        layout = self.states.own(value)
        if isinstance(form, LinearLayout) and form != layout and self._is_remade(value, form):
            layout = form
        if form != layout:
            self.plan.derived.setdefault(value, {})[form] = layout
        made = self.plan.made.setdefault(value, {})
        if layout not in made:
            made[layout] = None
            self._pending.append((value, layout))

    def _is_remade(self, value: SSAValue, layout: LinearLayout) -> bool:
        """Whether a tile is rather computed (or loaded) once more in another layout than converted to it."""
        state = self.states.known[value]
        if not state.strength or state.layout is None:
            return True
        return self._remake(value, layout, tuning.REMADE_DEPTH) < conversion_cycles(state.layout, layout, value)

    def _cost(self, value: SSAValue, layout: LinearLayout, depth: int) -> float:
        """Cycles, for one warp's share, of having a tile in a layout as well."""
        state = self.states.known[value]
        if not state.strength or state.layout is None or state.layout == layout or (value, layout) in self.shared:
            return 0
        return min(conversion_cycles(state.layout, layout, value), self._remake(value, layout, depth))

    def _remake(self, value: SSAValue, layout: LinearLayout, depth: int) -> float:
        """Cycles of computing a tile in a layout from its operands, or of loading it so."""
        op = value.owner
        if not depth or isinstance(op, Block) or op.regions or not follows_result(op) or not is_removable(op):
            return math.inf
        access = self.states.accesses.get(op)
        if access is not None and not self.states.only_read(op):
            return math.inf
        price = arithmetic_cycles(op, layout) if access is None else cycles(access, layout)
        for operand, needed in zip(op.operands, operand_layouts(op, layout), strict=True):
            if needed is not None:
                price += self._cost(operand, needed, depth - 1)
        return price

    def worth_sharing(self) -> set[Moved]:
        """Conversions of tiles from which others are computed that the plan converts one by one, which costs more."""
        users: dict[Moved, dict[Moved, None]] = {}
        for value, forms in self.plan.derived.items():
            for form in forms:
                if isinstance(form, LinearLayout):
                    for source in self._computed_from(value, form, tuning.REMADE_DEPTH):
                        users.setdefault(source, {})[value, form] = None
        return {source for source, moved in users.items() if len(moved) > 1 and self._is_shared(source, moved)}

    def _computed_from(self, value: SSAValue, layout: LinearLayout, depth: int) -> Iterator[Moved]:
        """Tiles with layouts of their own that a tile is computed from, and the layouts that it wants them in."""
        op = value.owner
        if not depth or isinstance(op, Block) or op.regions or not follows_result(op) or not is_removable(op):
            return
        if op not in self.states.accesses:
            for operand, needed in zip(op.operands, operand_layouts(op, layout), strict=True):
                if needed is not None and self.states.known[operand].strength and self.states.own(operand) != needed:
                    yield operand, needed
                    yield from self._computed_from(operand, needed, depth - 1)

    def _is_shared(self, source: Moved, moved: Iterable[Moved]) -> bool:
        """Whether to convert one tile and compute others from it is cheaper than to convert each of them."""
        if source in self.shared:
            return False
        others = _Demands(self.states, self.shared | {source})
        saved = 0.0
        for value, layout in moved:
            now = conversion_cycles(self.states.own(value), layout, value)
            saved += max(0.0, now - others._remake(value, layout, tuning.REMADE_DEPTH))
        return saved > conversion_cycles(self.states.own(source[0]), source[1], source[0])

    def _produce(self, value: SSAValue, layout: LinearLayout) -> None:
        """Demand what the definition of a tile needs to give it in a layout."""
        owner = value.owner
        if isinstance(owner, Block):
            parent = owner.parent_op()
            assert parent is not None and isinstance(value, BlockArgument)
            self._carried(parent, owner, value.index, layout)
        elif isinstance(owner, (ForOp, IfOp, WhileOp)):
            assert isinstance(value, OpResult)
            self._result(owner, value.index, layout)
        else:
            for result in owner.results:
                self.plan.made.setdefault(result, {})[layout] = None
            self._instance(owner, layout)

    def _carried(self, op: Operation, block: Block, index: int, layout: LinearLayout) -> None:
        """Argument `index` of a body is made in a layout."""
        if isinstance(op, ForOp):
            self._slot([block.args[index], op.results[index - 1]], layout)
            self._sources([op.operands[index + 2], _end(block).operands[index - 1]], layout)
        elif isinstance(op, WhileOp) and block is op.before.block:
            self._slot([block.args[index]], layout)
            self._sources([op.operands[index], _end(op.after.block).operands[index]], layout)
        else:
            assert isinstance(op, WhileOp)
            self._result(op, index, layout)

    def _result(self, op: ForOp | IfOp | WhileOp, index: int, layout: LinearLayout) -> None:
        """Result `index` of structured control flow is made in a layout."""
        if isinstance(op, ForOp):
            self._carried(op, op.body.block, index + 1, layout)
        elif isinstance(op, IfOp):
            self._sources([_end(region.block).operands[index] for region in op.regions], layout)
        else:
            self._slot([op.after.block.args[index], op.results[index]], layout)
            self._sources([_end(op.before.block).operands[index + 1]], layout)

    def _slot(self, values: Sequence[SSAValue], layout: LinearLayout) -> None:
        for value in values:
            made = self.plan.made.setdefault(value, {})
            made[layout] = None
            if len(made) > tuning.CARRIED_LAYOUTS:
                self.too_many.add(value)

    def _sources(self, values: Sequence[SSAValue], layout: LinearLayout) -> None:
        for value in values:
            self.demand(value, layout)

    # -- operations ----------------------------------------------------------------------------------

    def _instance(self, op: Operation, layout: LinearLayout | None) -> None:
        """An operation is made with results in a layout (None: it gives no tile)."""
        instances = self.plan.instances.setdefault(op, {})
        if layout in instances:
            return
        forms = instances[layout] = self._forms(op, layout)
        for operand, form in zip(op.operands, forms, strict=True):
            self.demand(operand, form)

    def _forms(self, op: Operation, layout: LinearLayout | None) -> tuple[Form | None, ...]:
        """The forms in which an operation takes its operands."""
        plan = self.states.dots.get(op)
        if plan is not None:
            assert isinstance(op, DotOp)
            return self._factor(op.a, plan.a), self._factor(op.b, plan.b), plan.accumulator
        if op in self.states.operands:
            return self.states.operands[op]
        return operand_layouts(op, self._store_layout(op) if layout is None else layout)

    def _factor(self, value: SSAValue, planned: LinearLayout | SharedOperand) -> Form:
        """The form in which a dot takes an operand; a buffer is laid out as suits the tile that is written to it."""
        return planned if isinstance(planned, LinearLayout) else Shared(planned.layout_for(self.states.own(value)))

    def _store_layout(self, op: Operation) -> LinearLayout:
        """The cheaper of storing a value where it is, and of converting it to a layout made for the store."""
        pointer, value = op.operands[:2]
        addressed, held = self.states.known[pointer], self.states.known[value].layout
        if addressed.strength and addressed.layout is not None:
            return addressed.layout
        access, best = self.states.accesses[op], self.states.access_layouts[op]
        if held is None or held == best:
            return best
        if any(plan.kind == "wgmma" and plan.accumulator == held for plan in self.states.dots.values()):
            best = within_warps(held, access) or best
        moved = cycles(access, best) + self._cost(value, best, tuning.REMADE_DEPTH)
        return held if cycles(access, held) <= moved else best
