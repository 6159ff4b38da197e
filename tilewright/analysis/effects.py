"""What a kernel does to the memory of its arguments: through which parameters it reads and writes.

An address is followed from the parameter that it comes from through arithmetic, tiles, branches, loops and calls::

    edges: value -> value (operand to result, initial to carried, yielded to carried and result, argument to parameter)
    origins[v] = all parameters, and all operations that read memory, from which v can be reached

Operations say themselves which operand they access (`ir/effect_traits.py`). Where an address was read from memory, or
computed from an integer argument, no parameter is known to be its home: such an access is *unsure* and keeps its place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.traits import EffectInstance, IsTerminator, MemoryEffectKind

from tilewright.analysis.origins import is_address
from tilewright.base.location import Location
from tilewright.base.order import reached
from tilewright.ir.effect_traits import effects
from tilewright.ir.op import location_of
from tilewright.ir.values import operands_of
from tilewright.ir.walk import walk
from tilewright.ops.control import ControlOp, ForOp
from tilewright.ops.function import CallOp, FuncOp, ReturnOp

_K = TypeVar("_K")
_N = TypeVar("_N")
Edge = tuple[SSAValue, SSAValue]
Accesses = Mapping[Operation, Sequence[EffectInstance]]
"""Of every operation that accesses memory itself."""
Origin = int | Operation
"""Number of a parameter of the kernel, or an operation that read the value from memory."""


@dataclass(frozen=True, slots=True)
class Unsure:
    """An access to memory that cannot be traced to an array argument.

    Args:
        writes: whether it writes; otherwise it reads.
        reason: where the address comes from, as the end of a sentence.
        location: of the access in the user's source.
    """

    writes: bool
    reason: str
    location: Location | None

    def __str__(self) -> str:
        where = "" if self.location is None else f"{self.location.file}:{self.location.line}: "
        return f"{where}{'writes' if self.writes else 'reads'} through {self.reason}"


@dataclass(frozen=True, slots=True)
class Effects(Generic[_K]):
    """What a kernel does to memory.

    Args:
        reads: the parameters through which it may read, each with the place of one such access.
        writes: the same for writing.
        unsure: accesses that no parameter explains.
    """

    reads: Mapping[_K, Location | None] = field(default_factory=dict)
    writes: Mapping[_K, Location | None] = field(default_factory=dict)
    unsure: tuple[Unsure, ...] = ()

    def named(self: Effects[int], names: Sequence[_N]) -> Effects[_N]:
        """The same with names in place of the numbers of the parameters.

        Args:
            names: of parameter 0, 1, ...
        """
        reads, writes = ({names[key]: place for key, place in side.items()} for side in (self.reads, self.writes))
        return Effects(reads, writes, self.unsure)

    @property
    def unsure_write(self) -> Unsure | None:
        """The first write that no parameter explains, or None."""
        return next((found for found in self.unsure if found.writes), None)


def effects_of(module: ModuleOp) -> Effects[int]:
    """The effects of the kernel of a module of tile IR, functions that it calls included."""
    functions = {function.symbol: function for function in FuncOp.all_of(module)}
    kernel = FuncOp.kernel_of(module)
    operations = [op for function in functions.values() for op in walk(function)]
    accesses = {op: there for op in operations if (there := _accesses(op))}
    origins = _origins(kernel, operations, accesses, functions)
    found: tuple[dict[int, Location | None], dict[int, Location | None]] = {}, {}
    unsure: dict[Unsure, None] = {}  # a set that keeps its order
    for op, there in accesses.items():
        for effect in sorted(there, key=lambda effect: effect.kind.name):
            writes = effect.kind is MemoryEffectKind.WRITE
            assert isinstance(effect.value, SSAValue)
            homes = origins.get(effect.value, set())
            if not homes and not is_address(effect.value.type):
                continue  # a constant given to inline assembly
            for home in homes or (None,):
                if isinstance(home, int) and is_address(kernel.body.blocks[0].args[home].type):
                    found[writes].setdefault(home, location_of(op))
                elif is_address(effect.value.type):
                    unsure[Unsure(writes, _describe(home), location_of(op))] = None
    return Effects(*found, tuple(unsure))


def stores_of(module: ModuleOp) -> dict[str, Any]:
    """What a launch must know of the effects: the parameters that are written, and whether other memory may be."""
    found = effects_of(module)
    return {"stored": sorted(found.writes), "stores_anywhere": found.unsure_write is not None}


def _accesses(op: Operation) -> list[EffectInstance]:
    """Effects of `op` itself on the memory at one of its operands."""
    found = None if op.regions else effects(op)
    return [effect for effect in found if effect.value is not None] if found else []


def _describe(origin: Origin | None) -> str:
    if origin is None:
        return "an address that no parameter gives"
    if isinstance(origin, int):
        return "an integer parameter taken as an address"
    place = location_of(origin)
    return f"an address read from memory{'' if place is None else f' in line {place.line}'}"


# --- where values come from -------------------------------------------------------------------------------------


def _origins(
    kernel: FuncOp, operations: Sequence[Operation], accesses: Accesses, functions: Mapping[str, FuncOp]
) -> Mapping[SSAValue, set[Origin]]:
    """The origins of the accessed addresses, and of the values of which these are made, that have any."""
    following: defaultdict[SSAValue, list[SSAValue]] = defaultdict(list)
    made_of: defaultdict[SSAValue, list[SSAValue]] = defaultdict(list)
    found: defaultdict[SSAValue, set[Origin]] = defaultdict(set)
    for number, argument in enumerate(kernel.body.blocks[0].args):
        found[argument].add(number)
    for op, there in accesses.items():
        if any(effect.kind is MemoryEffectKind.READ for effect in there):
            for result in op.results:
                found[result].add(op)
    for op in operations:
        for source, target in _edges(op, accesses, functions):
            made_of[target].append(source)
    # Data has as many origins as loads are in a sum; nobody asks for them.
    wanted = {effect.value for there in accesses.values() for effect in there if isinstance(effect.value, SSAValue)}
    for target in reached(wanted, made_of.__getitem__):
        for source in made_of[target]:
            following[source].append(target)
    pending = list(found)
    while pending:
        source = pending.pop()
        for target in following[source]:
            if not found[source] <= found[target]:
                found[target] |= found[source]
                pending.append(target)
    return found


def _edges(op: Operation, accesses: Accesses, functions: Mapping[str, FuncOp]) -> Iterator[Edge]:
    """What flows where at `op`; loops go around through the edges of their carried values."""
    if isinstance(op, ControlOp):
        for flow in op.flows():
            yield from zip(flow.sources, flow.targets, strict=True)
    if isinstance(op, ForOp):
        yield from ((bound, op.induction_var) for bound in (op.lb, op.step))
    elif isinstance(op, CallOp):
        callee = functions[op.callee_name]
        yield from zip(op.operands, callee.body.blocks[0].args, strict=True)
        for block in callee.body.blocks:
            if isinstance(block.last_op, ReturnOp):
                yield from zip(block.last_op.operands, op.results, strict=True)
    elif not isinstance(op, FuncOp | ControlOp) and not (op.next_op is None and op.has_trait(IsTerminator)):
        there = accesses.get(op)
        yield from _through(op, {effect.value for effect in there} if there else frozenset())


def _through(op: Operation, accessed: Set[object]) -> list[Edge]:
    """From the operands of an operation without control flow to its results; bodies of reductions and scans included.

    An address is moved by its offsets, not made of them: where an operand is an address, only addresses flow. What was
    read from memory is not the address that it was read from.
    """
    bodies = [block for region in op.regions for block in region.blocks]
    arguments = [argument for block in bodies for argument in block.args]
    yields = [value for block in bodies for value in _last(block).operands]
    operands = [value for value in operands_of(op) if value not in accessed]
    addresses = [value for value in operands if is_address(value.type)]
    targets = [*op.results, *arguments]
    return [(source, target) for source in [*(addresses or operands), *yields] for target in targets]


def _last(block: object) -> Operation:
    last: Operation | None = block.last_op  # type: ignore[attr-defined]
    assert last is not None
    return last
