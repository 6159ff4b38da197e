"""Addresses and memory: loads, stores, their masked and indexed forms, prefetch, fill and copy, atomics.

Alignment is in bytes and defaults to the size of one lane, which is what tile pointers guarantee; pass more when the
caller knows more. Masked forms never touch memory of inactive lanes. Literal masks fold: all ones gives the plain
form, all zeros gives nothing.
"""

from __future__ import annotations

from tilewright.backends.llvm.instructions import Operand
from tilewright.backends.llvm.types import I1, I8, I32, I64, PTR, VOID, T, V, const, zero
from tilewright.backends.llvm.vectors import VectorOps


class MemoryOps(VectorOps):
    """Loads, stores and address arithmetic."""

    _allocas: list[str]

    def alloca(self, t: T, count: int = 1, align: int = 64) -> V:
        """Stack memory for `count` values of `t`, reserved once in the entry block whatever the current block."""
        self._count = n = self._count + 1
        self._allocas.append(f"  %v{n} = alloca {t.text}, i64 {count}, align {align}")
        return V(PTR, f"%v{n}")

    def gep(self, base: V, index: Operand, elem: T = I8, flags: str = "") -> V:
        """`base + index * sizeof(elem)`; a vector of pointers when `base` or `index` is a vector.

        `flags` may be `"inbounds"`. The default `elem` counts bytes.
        """
        index = index if isinstance(index, V) else const(I64, index)
        if index.const == 0 and index.type.lanes in (0, base.type.lanes):
            return base
        t = PTR.vec(base.type.lanes or index.type.lanes)
        return self.emit(t, f"getelementptr {flags}{' ' if flags else ''}{elem.text}, {base.typed}, {index.typed}")

    def load(self, t: T, ptr: V, align: int = 0, meta: str = "") -> V:
        """Load a value of type `t`; `meta` is text such as `"!nontemporal !3"`."""
        if t.elem == "bfloat":
            return self.cast("bitcast", self.load(t.as_int, ptr, align, meta), t)
        align = align or _lane_bytes(t)
        return self.emit(t, f"load {t.text}, ptr {ptr.ref}, align {align}{', ' if meta else ''}{meta}")

    def store(self, value: V, ptr: V, align: int = 0, meta: str = "") -> None:
        """Store `value`."""
        value = self._stored(value)
        align = align or _lane_bytes(value.type)
        self.effect(f"store {value.typed}, ptr {ptr.ref}, align {align}{', ' if meta else ''}{meta}")

    def masked_load(self, t: T, ptr: V, mask: V, align: int = 0, other: V | None = None) -> V:
        """Contiguous lanes of the vector type `t` where `mask`, else the lane of `other` (default 0)."""
        other = zero(t) if other is None else other
        if mask.const is not None:
            return self.load(t, ptr, align) if mask.const else other
        if t.elem == "bfloat":
            return self.cast("bitcast", self.masked_load(t.as_int, ptr, mask, align, self.as_int(other)), t)
        if (lanes := self._splits(t)) < t.lanes:
            parts = zip(self.split(mask, lanes), self.split(other, lanes), strict=True)
            places = [self.gep(ptr, at * _lane_bytes(t)) for at in range(0, t.lanes, lanes)]
            return self.concat(
                [
                    self.masked_load(t.vec(lanes), at, on, align, rest)
                    for at, (on, rest) in zip(places, parts, strict=True)
                ]
            )
        name = f"llvm.masked.load.{t.suffix}.p0"
        self.module.declare(name, t, [PTR, mask.type, t])
        where = f"ptr align {align or _lane_bytes(t)} {ptr.ref}"
        return self.emit(t, f"call {t.text} @{name}({where}, {mask.typed}, {other.typed})")

    def _stored(self, value: V) -> V:
        """`value` as it is stored: bits for bfloat, which LLVM calls a library for on some targets."""
        return self.as_int(value) if value.type.elem == "bfloat" else value

    def _splits(self, t: T) -> int:
        """Lanes of the pieces in which vectors of type `t` are loaded under masks.

        Where LLVM 22 splits a masked load for AVX2 itself, it takes lanes known to be off for lanes that are on.
        """
        if not self.module.isa.is_x86 or self.module.isa.has_zmm:
            return t.lanes
        return min(t.lanes, self.module.isa.native_lanes(t.bits or 64))

    def masked_store(self, value: V, ptr: V, mask: V, align: int = 0) -> None:
        """Store the lanes of `value` where `mask`, contiguously."""
        value = self._stored(value)
        if mask.const is not None:
            if mask.const:
                self.store(value, ptr, align)
            return
        name = f"llvm.masked.store.{value.type.suffix}.p0"
        self.module.declare(name, VOID, [value.type, PTR, mask.type])
        where = f"ptr align {align or _lane_bytes(value.type)} {ptr.ref}"
        self.effect(f"call void @{name}({value.typed}, {where}, {mask.typed})")

    def gather(self, t: T, ptrs: V, mask: V | None = None, other: V | None = None, align: int = 0) -> V:
        """One lane of `t` from each pointer of the vector `ptrs` where `mask`, else the lane of `other` (default 0)."""
        mask = const(I1.vec(t.lanes), 1) if mask is None else mask
        other = zero(t) if other is None else other
        if mask.const == 0:
            return other
        if t.elem == "bfloat":
            return self.cast("bitcast", self.gather(t.as_int, ptrs, mask, self.as_int(other), align), t)
        name = f"llvm.masked.gather.{t.suffix}.{ptrs.type.suffix}"
        self.module.declare(name, t, [ptrs.type, mask.type, t])
        where = f"{ptrs.type.text} align {align or _lane_bytes(t)} {ptrs.ref}"
        return self.emit(t, f"call {t.text} @{name}({where}, {mask.typed}, {other.typed})")

    def scatter(self, value: V, ptrs: V, mask: V | None = None, align: int = 0) -> None:
        """Store each lane of `value` to its own pointer where `mask`, in lane order."""
        value = self._stored(value)
        t = value.type
        mask = const(I1.vec(t.lanes), 1) if mask is None else mask
        if mask.const == 0:
            return
        name = f"llvm.masked.scatter.{t.suffix}.{ptrs.type.suffix}"
        self.module.declare(name, VOID, [t, ptrs.type, mask.type])
        where = f"{ptrs.type.text} align {align or _lane_bytes(t)} {ptrs.ref}"
        self.effect(f"call void @{name}({value.typed}, {where}, {mask.typed})")

    def prefetch(self, ptr: V, *, write: bool = False, locality: int = 3) -> None:
        """Ask for the cache line at `ptr`; `locality` 3 keeps it in L1, 0 streams."""
        self.call("llvm.prefetch.p0", VOID, (ptr, const(I32, int(write)), const(I32, locality), const(I32, 1)))

    def memset(self, ptr: V, byte: int, size: Operand) -> None:
        """Fill `size` bytes."""
        size = size if isinstance(size, V) else const(I64, size)
        self.call("llvm.memset.p0.i64", VOID, (ptr, const(I8, byte), size, const(I1, 0)))

    def memcpy(self, dst: V, src: V, size: Operand) -> None:
        """Copy `size` bytes between ranges that do not overlap (or are the same)."""
        size = size if isinstance(size, V) else const(I64, size)
        self.call("llvm.memcpy.p0.p0.i64", VOID, (dst, src, size, const(I1, 0)))

    def atomic_rmw(self, op: str, ptr: V, value: V, order: str = "acq_rel") -> V:
        """Atomic `add fadd max umax min umin fmax fmin and or xor xchg` on a scalar in memory; gives the old value."""
        return self.emit(value.type, f"atomicrmw {op} ptr {ptr.ref}, {value.typed} {order}, align {value.type.bytes}")

    def atomic_cas(self, ptr: V, expected: V, value: V, order: str = "acq_rel") -> V:
        """Atomic compare-and-swap of a scalar integer or pointer; gives the old value."""
        failure = {"acq_rel": "acquire", "release": "monotonic"}.get(order, order)
        pair = T(f"{{ {value.type.text}, i1 }}")
        both = self.emit(
            pair, f"cmpxchg ptr {ptr.ref}, {expected.typed}, {value.typed} {order} {failure}, align {value.type.bytes}"
        )
        return self.extract_value(both, 0, value.type)


def _lane_bytes(t: T) -> int:
    return max(1, t.bits // 8)
