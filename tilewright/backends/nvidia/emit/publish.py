"""Results that one thread has and all that hold the element need: of atomics, and of assembly with effects.

    the owner of each element: scratch[element] = value
    barrier
    every thread that holds a copy: value = scratch[element]

A tile without copies in other threads needs none of this.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.backends.llvm.types import I32, V, const
from tilewright.backends.nvidia.emit.context import Kernel, Tile
from tilewright.backends.nvidia.emit.memory import with_copies
from tilewright.backends.nvidia.emit.scratch import Place, Room, positions, row_major, starts, weighted
from tilewright.backends.nvidia.tgir.types import layout_of
from tilewright.ir.types import shape_of
from tilewright.layouts.padding import padded_shape


def publish_bytes(value: SSAValue) -> int:
    """Bytes of scratch that `publish` takes for a result; none if nobody uses it."""
    if not value.uses or not _is_copied(value.type):
        return 0
    return starts([value.type], math.prod(padded_shape(shape_of(value.type))))[-1]


def _is_copied(type_: Attribute) -> bool:
    """Whether several threads hold the same element; all hold a scalar."""
    masks = layout_of(type_).free_masks() if shape_of(type_) else {"lane": 1}
    return bool(masks.get("lane") or masks.get("warp"))


def owner(k: Kernel, type_: Attribute) -> V:
    """Whether this thread is the one that acts for its elements (i1)."""
    return k.owns(layout_of(type_)) if shape_of(type_) else k.first_thread()


def publish(k: Kernel, op: Operation, value: SSAValue, made: Mapping[int, V]) -> Tile:
    """All registers of a result of which each owner has its elements.

    Args:
        k: the kernel.
        op: whose scratch is used.
        value: the result.
        made: register -> value, without copies within the thread.
    """
    type_ = value.type
    if not _is_copied(type_):
        return with_copies(value, dict(made), layout_of(type_).in_sizes["register"])
    room = Room(k, k.scratch(op), type_)
    places = [Place(const(I32, 0))]
    if shape_of(type_):
        layout = layout_of(type_)
        columns = weighted(layout, row_major(padded_shape(shape_of(type_))))
        places = positions(k, columns, range(layout.in_sizes["register"]))
    with k.f.if_(owner(k, type_)):
        for register, one in made.items():
            room.put(places[register], one)
    k.f.barrier()
    return [room.get(place) for place in places]
