"""Register promotion of tiles that a loop carries, by strip-mining: which loops run strip by strip.

    for i:                                    for each strip of the tile:
      for each chunk of the tile:       ->      sums = scratch[strip]          in registers
        scratch[chunk] += x[..i..]              for i: sums += x[..i..]
                                                scratch[strip] = sums

Elements of a tile do not depend on each other, so the loop over them may stand outside (loop interchange). What the
iterations do with scalars, such as loading the place of a row, is done once for each strip. Nothing is said of how the
addresses of an iteration are made: these are the loops whose next rows nobody knows ahead, which no normal form of
reductions has (`loops/reduction_loops.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Block, Operation, SSAValue

from tilewright.analysis.index import LANE, identity, sources
from tilewright.backends.cpu import tuning
from tilewright.backends.cpu.plan.collect import FunctionContext
from tilewright.backends.cpu.plan.lanes import Chunking, strip_chunks
from tilewright.backends.cpu.plan.steps import GroupStep, MaterializeSink, ScalarStep, Step
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.decisions import describe_op
from tilewright.ir.effect_traits import access_of, mask_of
from tilewright.ir.types import element_type, is_pointer
from tilewright.ir.values import defining_op, is_made_inside, is_tile
from tilewright.ops.memory import is_volatile


def plan_strips(
    context: FunctionContext, block: Block, order: Sequence[Step], own: dict[int, SSAValue]
) -> Answer[GroupStep]:
    """The pass over the tiles that the iterations of a loop make, if these can run strip by strip.

    Args:
        context: of the function.
        block: the body of the loop, which does nothing but passes over tiles and work on scalars.
        order: its steps, before anything else is kept in scratch.
        own: the tiles that the loop carries, by number.
    """
    loop = block.parent_op()
    assert loop is not None
    groups = [step for step in order if isinstance(step, GroupStep)]
    if len(groups) != 1:
        return No("an iteration does more than one pass over its tiles")
    (group,) = groups
    places = [context.demands.placed[tile] for tile in own.values()]
    if not group.is_only(MaterializeSink) or any(sink.targets[0] not in places for sink in group.sinks):
        return No("an iteration makes other tiles than those that go on", group.place)
    if any(step.writes for step in order) or any(map(is_volatile, block.ops)):
        return No("an iteration does what must happen in the order of the iterations")
    numbers = [step.op for step in order if isinstance(step, ScalarStep) and step.op is not None]
    if (read := next((op for op in numbers if any(map(is_tile, op.operands))), None)) is not None:
        return No("an iteration goes by a number of a tile", read)
    if any(is_pointer(element_type(tile.type)) for tile in own.values()):
        return No("it carries a tile of pointers")
    with context.computing(group):
        chunking = strip_chunks(group, context.isa, context.demands.placed, context.analysis)[0]
        again, loads = _made_again(context, loop, group, chunking), _loads(context, group)
    few = chunking.lanes < tuning.NATIVE_VECTORS * context.isa.native_lanes(32)
    if few and any(dim in chunking.lane_bits or not chunking.lanes for dim, _, _ in chunking.loops):
        return No(f"strips would have {chunking.lanes} elements", group.place)
    if again is not None:
        return No(f"every strip would make {describe_op(again)} again", again)
    if len(loads) >= tuning.ROWS_ACROSS:
        return No(f"an iteration loads {len(loads)} tiles for what it reads and writes in scratch once")
    masked = [load for load in loads if (mask := mask_of(load)) is not None and is_made_inside(mask, loop)]
    if masked and not context.isa.has_masks:
        return No("masks that iterations make would be looked at element by element", masked[0])
    return Yes(group, "strips of the tile stay in registers for all iterations")


def _made_again(context: FunctionContext, loop: Operation, group: GroupStep, chunking: Chunking) -> Operation | None:
    """What an iteration makes for several strips alike, and is better kept: what costs more than a number of a row is
    loaded in, or vectors that rows share."""
    demands = context.demands
    loops = {dim for dim, _, _ in chunking.loops}
    for root, _ in group.roots():
        for value, index in demands.walk(root, chunking.index) if is_tile(root) else ():
            places = sources(index)
            most = 0 if LANE in places else tuning.SHARED_COST
            if not loops <= places and demands.cost(value) > most and is_made_inside(value, loop):
                return defining_op(value)
    return None


def _loads(context: FunctionContext, group: GroupStep) -> list[Operation]:
    """What an iteration loads for an element, once for each place."""
    walks = (context.demands.walk(root, identity(shape)) for root, shape in group.roots() if is_tile(root))
    made = (defining_op(value) for value, _ in dict.fromkeys(key for walk in walks for key in walk))
    return [op for op in made if op is not None and access_of(op) is not None]
