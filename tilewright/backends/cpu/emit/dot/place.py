"""Where the sums of a product go: to scratch, or straight to the tensor of the store behind it (`plan/straight.py`)."""

from __future__ import annotations

from tilewright.backends.cpu.emit.context import FunctionLowering, StraightPlace
from tilewright.backends.cpu.emit.values import Nest
from tilewright.backends.cpu.plan.dot_step import DotDetail
from tilewright.backends.cpu.plan.steps import memory_bytes
from tilewright.backends.llvm.types import I1, I64, const


def choose_place(low: FunctionLowering, detail: DotDetail) -> None:
    """Before a product, or the loop that makes it: whether its sums are written straight to the tensor."""
    if detail.straight is None:
        return
    f, ev, place = low.f, low.ev, detail.straight.place
    ev.enter(Nest())
    straight, extents = const(I1, 1), [const(I64, extent) for extent in detail.straight.shape]
    for dim, bounds in enumerate(place.bounds):
        for bound in bounds:
            extents[dim] = f.intrinsic("smin", extents[dim], f.intrinsic("smax", ev.poly(bound), const(I64, 0)))
    for condition in place.conditions:
        extents = [f.select(ev.scalar(condition), extent, const(I64, 0)) for extent in extents]
    if not detail.straight.parts:
        for extent, whole in zip(extents, detail.straight.shape, strict=True):
            straight = f.and_(straight, f.icmp("eq", extent, whole))
    for one, other in detail.straight.apart:
        straight = f.and_(straight, f.icmp("ne", ev.scalar(one), ev.scalar(other)))
    scratch = f.gep(ev.arena, detail.acc.offset)
    stride = const(I64, detail.acc.strides[-2] * memory_bytes(detail.acc.elem))
    low.straight[detail.straight] = StraightPlace(
        straight,
        f.select(straight, f.gep(ev.scalar(place.base), ev.poly(place.offset)), scratch),
        f.select(straight, ev.poly(place.strides[0]), stride),
        (extents[0], extents[1]),
    )
