"""Addresses and memory: loads, stores, their masked and indexed forms, prefetch, fill and copy, atomics.

Alignment is in bytes and defaults to the size of one lane, which is what tile pointers guarantee; pass more when the
caller knows more. Masked forms never touch memory of inactive lanes. Literal masks fold: all ones gives the plain
form, all zeros gives nothing.
"""

from __future__ import annotations

from tilewright.backends.llvm.features import CpuFeatures
from tilewright.backends.llvm.instructions import Operand
from tilewright.backends.llvm.types import F32, F64, I1, I8, I32, I64, PTR, VOID, T, V, const, zero
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
        if t.elem == "ptr":
            loaded = self.masked_load(t.as_int, ptr, mask, align, self.cast("ptrtoint", other, t.as_int))
            return self.cast("inttoptr", loaded, t)
        if self._by_sign(t):
            loaded = self._load_by_sign(t, ptr, mask)
            return loaded if other.ref == zero(t).ref else self.select(mask, loaded, other)
        if self._by_registers(t):
            return self._load_by_registers(t, ptr, mask, align, other)
        if _is_widened(self.module.isa, t):
            wide = self.masked_load(t.vec(16), ptr, _widened(self, mask), align or 1, self._extended(other, 16))
            return self.slice(wide, 0, t.lanes)
        name = f"llvm.masked.load.{t.suffix}.p0"
        self.module.declare(name, t, [PTR, mask.type, t])
        where = f"ptr align {align or _lane_bytes(t)} {ptr.ref}"
        return self.emit(t, f"call {t.text} @{name}({where}, {mask.typed}, {other.typed})")

    def _stored(self, value: V) -> V:
        """`value` as it is stored: bits for bfloat, which LLVM calls a library for on some targets."""
        return self.as_int(value) if value.type.elem == "bfloat" else value

    def masked_store(self, value: V, ptr: V, mask: V, align: int = 0) -> None:
        """Store the lanes of `value` where `mask`, contiguously."""
        value = self._stored(value)
        if mask.const is not None:
            if mask.const:
                self.store(value, ptr, align)
            return
        if value.type.elem == "ptr":
            value = self.cast("ptrtoint", value, value.type.as_int)
        if self._by_sign(value.type):
            self._store_by_sign(value, ptr, mask)
            return
        if self._by_registers(value.type):
            self._store_by_registers(value, ptr, mask, align)
            return
        if _is_widened(self.module.isa, value.type):
            value, mask, align = self._extended(value, 16), _widened(self, mask), align or 1
        value = self._fenced(value)
        name = f"llvm.masked.store.{value.type.suffix}.p0"
        self.module.declare(name, VOID, [value.type, PTR, mask.type])
        where = f"ptr align {align or _lane_bytes(value.type)} {ptr.ref}"
        self.effect(f"call void @{name}({value.typed}, {where}, {mask.typed})")

    def _fenced(self, value: V) -> V:
        """`value`, whose making LLVM does not see where that misleads it.

        LLVM 22 joins a narrowing with a masked store (AVX-512). If one lane of the mask is on and the mask is a
        constant, it then stores that lane as wide as it was before.
        """
        t = value.type
        if not (self.module.isa.is_x86 and self.module.isa.has("avx512f") and t.is_int and t.bits < 64):
            return value
        return self.slice(_hidden(self, self._extended(value, 128 // t.bits)), 0, t.lanes)

    def _by_sign(self, t: T) -> bool:
        """Whether lanes of `t` move under masks by AVX's own instructions, which heed the sign of each mask lane.

        LLVM 22 lowers its masked forms to the same instructions. Where it finds out late that a whole register of the
        mask is off, it has dropped all but the sign bits, reads the rest as lanes that are on, and loads or aborts.
        """
        isa = self.module.isa
        return isa.is_x86 and isa.has("avx") and not isa.has_zmm and t.bits >= 32

    def _load_by_sign(self, t: T, ptr: V, mask: V) -> V:
        """Masked load with AVX; lanes that are off are 0."""
        name, moved, signs = self._signs("load", t, mask)
        parts = [self.call(name, moved, (self.gep(ptr, i * moved.bytes), sign)) for i, sign in enumerate(signs)]
        return self.cast("bitcast", self.slice(self.concat(parts), 0, t.lanes), t)

    def _store_by_sign(self, value: V, ptr: V, mask: V) -> None:
        """Masked store with AVX."""
        name, moved, signs = self._signs("store", value.type, mask)
        value = self._extended(self.cast("bitcast", value, moved.vec(value.type.lanes)), moved.lanes)
        for i, (sign, part) in enumerate(zip(signs, self.split(value, moved.lanes), strict=True)):
            self.call(name, VOID, (self.gep(ptr, i * moved.bytes), sign, part))

    def _signs(self, verb: str, t: T, mask: V) -> tuple[str, T, list[V]]:
        """What moves lanes of `t`: intrinsic, type of a register, and the mask for each register, negative where on."""
        lanes = (16 if t.bytes <= 16 else 32) * 8 // t.bits
        signs = self.select(mask, const(t.as_int, -1 << (t.bits - 1)), zero(t.as_int))
        name = f"llvm.x86.avx.mask{verb}.p{'s' if t.bits == 32 else 'd'}{'.256' if t.bytes > 16 else ''}"
        return name, (F32 if t.bits == 32 else F64).vec(lanes), self.split(self._extended(signs, lanes), lanes)

    def _by_registers(self, t: T) -> bool:
        """Whether lanes of `t` move under masks a register of 16 bytes at a time.

        LLVM 22 takes SVE's loads and stores under masks for vectors of just that size, whatever the length of SVE's own
        registers, and tests lane by lane for all others.
        """
        return self.module.isa.has("sve") and t.bits >= 8 and t.bytes != 16

    def _load_by_registers(self, t: T, ptr: V, mask: V, align: int, other: V) -> V:
        lanes = 128 // t.bits
        pieces = zip(*[self.split(self._extended(v, lanes), lanes) for v in (mask, other)], strict=True)
        align = align or _lane_bytes(t)
        parts = [self.masked_load(t.vec(lanes), self.gep(ptr, 16 * i), m, align, o) for i, (m, o) in enumerate(pieces)]
        return self.slice(self.concat(parts), 0, t.lanes)

    def _store_by_registers(self, value: V, ptr: V, mask: V, align: int) -> None:
        lanes = 128 // value.type.bits
        pieces = zip(*[self.split(self._extended(v, lanes), lanes) for v in (value, mask)], strict=True)
        for i, (part, on) in enumerate(pieces):
            self.masked_store(part, self.gep(ptr, 16 * i), on, align or _lane_bytes(part.type))

    def _extended(self, a: V, lanes: int) -> V:
        """`a` with zeros behind it, if it has fewer lanes than that."""
        n = a.type.lanes
        return a if n >= lanes else self.shuffle(a, zero(a.type), [*range(n), *[n] * (lanes - n)])

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

    def freeze(self, a: V) -> V:
        """`a` as a value that LLVM knows nothing about."""
        return self.emit(a.type, f"freeze {a.typed}")

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


def _hidden(f: MemoryOps, wide: V) -> V:
    """`wide`, a register or several, as a value whose making LLVM does not see."""
    words = f.cast("bitcast", wide, F32.vec(wide.type.bytes // 4))
    return f.cast("bitcast", f.intrinsic("arithmetic.fence", words), wide.type)


def _is_widened(isa: CpuFeatures, t: T) -> bool:
    """Whether lanes of `t` move under masks as the lower half of a register.

    LLVM 22 does that itself for eight bytes (AVX-512), and clears the other bits of the mask by `kmovb`. Where mask
    registers are short it takes that for a copy, and spills and loads the mask with the bits of other lanes.
    """
    return isa.is_x86 and isa.has("avx512f") and t.is_int and t.bytes == t.lanes == 8


def _widened(f: MemoryOps, mask: V) -> V:
    """A mask of eight lanes with eight more that are off."""
    lanes = f.select(mask, const(I8.vec(8), -1), zero(I8.vec(8)))
    return f.icmp("slt", _hidden(f, f._extended(lanes, 16)), zero(I8.vec(16)))


def _lane_bytes(t: T) -> int:
    return max(1, t.bits // 8)
