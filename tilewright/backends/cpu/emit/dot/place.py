"""Where the sums of a product go: to scratch, or to the tensor of a store (`plan/direct_epilogue_store.py`)."""

from __future__ import annotations

from tilewright.backends.cpu.emit.context import DirectPlace, FunctionLowering
from tilewright.backends.cpu.emit.values import Nest
from tilewright.backends.cpu.plan.dot_step import DotDetail
from tilewright.backends.cpu.plan.steps import memory_bytes
from tilewright.backends.llvm.types import I1, I64, const


def choose_place(low: FunctionLowering, detail: DotDetail) -> None:
    """Before a product, or the loop that makes it: whether its sums are written directly to the tensor."""
    if detail.direct is None:
        return
    f, ev, place = low.f, low.ev, detail.direct.place
    ev.enter(Nest())
    direct, extents = const(I1, 1), [const(I64, extent) for extent in detail.direct.shape]
    for dim, bounds in enumerate(place.bounds):
        for bound in bounds:
            extents[dim] = f.intrinsic("smin", extents[dim], f.intrinsic("smax", ev.bound(bound), const(I64, 0)))
    for condition in place.conditions:
        extents = [f.select(ev.scalar(condition), extent, const(I64, 0)) for extent in extents]
    if not detail.direct.parts:
        for extent, whole in zip(extents, detail.direct.shape, strict=True):
            direct = f.and_(direct, f.icmp("eq", extent, whole))
    for one, other in detail.direct.apart:
        direct = f.and_(direct, f.icmp("ne", ev.scalar(one), ev.scalar(other)))
    columns, apart = detail.direct.shape[1] * memory_bytes(place.elem), place.strides[0].constant
    if apart is None or apart < columns:  # rows that meet would be added to one another
        room = f.mul(extents[1], memory_bytes(place.elem))
        direct = f.and_(direct, f.icmp("sge", ev.poly(place.strides[0]), room))
    scratch = f.gep(ev.arena, detail.acc.offset)
    stride = const(I64, detail.acc.strides[-2] * memory_bytes(detail.acc.elem))
    low.direct[detail.direct] = DirectPlace(
        direct,
        f.select(direct, f.gep(ev.scalar(place.base), ev.poly(place.offset)), scratch),
        f.select(direct, ev.poly(place.strides[0]), stride),
        (extents[0], extents[1]),
    )
