"""Loads and stores of global memory, and address arithmetic.

Registers of a thread that lie side by side in memory are accessed as one vector of up to 16 bytes:

    @mask ld.global.v4.b32 {w0, w1, w2, w3}, [address];      words start as the values of elements that are off

How many do is decided by the layout and by what the axis analysis knows: neighbours in the tile must be neighbours in
memory, aligned, and under one mask.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from tilewright.analysis.solver import Facts
from tilewright.backends.llvm.casts import load_bool, storage, store_bool
from tilewright.backends.llvm.types import I1, I8, I32, I64, T, V, const, zero
from tilewright.backends.nvidia.emit.answers import tell_access
from tilewright.backends.nvidia.emit.context import Kernel, Tile, emits
from tilewright.backends.nvidia.emit.unpredicated import Access, is_worth_versions, versioned
from tilewright.backends.nvidia.plan.anchors import widest_vector
from tilewright.backends.nvidia.tgir.types import layout_of
from tilewright.ir.types import TilePointerType, element_type, ir_name, shape_of
from tilewright.layouts.access import memory_vectors, unique_registers
from tilewright.ops.elementwise_pointer import AddPtrOp
from tilewright.ops.facts import AxisFacts
from tilewright.ops.memory import CachePolicy, LoadOp, StoreOp

# --- vectors ------------------------------------------------------------------------------------------


def access_groups(facts: Facts[AxisFacts], pointer: SSAValue, mask: SSAValue | None) -> list[tuple[int, ...]]:
    """Registers of a tile of pointers that one instruction accesses, in memory order; without copies.

    Args:
        facts: what is known of the elements of tiles.
        pointer: a tile of pointers, or one pointer.
        mask: which elements are accessed.
    """
    if not shape_of(pointer.type):
        return [(0,)]
    layout = layout_of(pointer)
    unique, table = unique_registers(layout)
    first: dict[int, int] = {}
    for register, number in enumerate(table):
        first.setdefault(number, register)
    shape = shape_of(pointer.type)
    axis = max(range(len(shape)), key=lambda dim: (facts[pointer].contiguity[dim], dim))
    order = [axis, *(dim for dim in reversed(range(len(shape))) if dim != axis)]
    limit = widest_vector(facts, pointer, mask, axis)
    return [tuple(first[number] for number in group) for group in memory_vectors(unique, order, limit)]


def pointee(pointer: SSAValue) -> TilePointerType:
    """Element type behind a pointer or a tile of pointers."""
    element = element_type(pointer.type)
    assert isinstance(element, TilePointerType)
    return element.pointee  # type: ignore[return-value]


def memory_type(element: object) -> T:
    """How an element lies in memory: i1 as a byte."""
    t = storage(ir_name(element))  # type: ignore[arg-type]
    return I8 if t is I1 else t


# --- words --------------------------------------------------------------------------------------------


def pack(k: Kernel, values: Sequence[V]) -> list[V]:
    """Elements side by side as 32-bit words (one word of 8 or 16 bits if there are not more)."""
    f = k.f
    stored = [store_bool(f, v) if v.type is I1 else v for v in values]
    t = stored[0].type
    if t.elem == "ptr" or t.bits >= 32:
        return [word for value in stored for word in f.to_words(value)]
    if t.bits * len(stored) < 32:
        whole = f.vector([f.cast("bitcast", v, t.as_int) for v in stored]) if len(stored) > 1 else stored[0]
        return [f.cast("bitcast", whole, T(f"i{t.bits * len(stored)}"))]
    per = 32 // t.bits
    groups = [stored[i : i + per] for i in range(0, len(stored), per)]
    return [f.cast("bitcast", f.vector([f.cast("bitcast", v, t.as_int) for v in group]), I32) for group in groups]


def unpack(k: Kernel, words: Sequence[V], t: T, count: int) -> list[V]:
    """The inverse of `pack`.

    Args:
        k: the kernel.
        words: as `pack` gives them.
        t: type of an element; i1 for bytes that are booleans.
        count: number of elements.
    """
    f = k.f
    stored = I8 if t is I1 else t
    if stored.elem == "ptr" or stored.bits >= 32:
        per = len(words) // count
        return [f.from_words(words[i * per : (i + 1) * per], stored) for i in range(count)]
    per = words[0].type.bits // stored.bits
    out = []
    for word in words:
        whole = f.cast("bitcast", word, stored.as_int.vec(per)) if per > 1 else word
        out += [f.cast("bitcast", v, stored) for v in f.elements(whole)]
    return [load_bool(f, v) for v in out] if t is I1 else out


def _class(word: V) -> str:
    """Constraint letter of a word: a 16-bit register also serves bytes."""
    return "r" if word.type.bits == 32 else "h"


def _vector_suffix(words: Sequence[V]) -> tuple[str, str]:
    """`.v4.b32` and how the operands are written around `{}`."""
    count, bits = len(words), words[0].type.bits
    return (f".v{count}.b{bits}" if count > 1 else f".b{bits}"), ("{%s}" if count > 1 else "%s")


@dataclass(frozen=True, slots=True)
class Caching:
    """How an access uses the caches.

    Args:
        qualifiers: of `ld` or `st`, before the type.
        policy: an operand more, made by `createpolicy`.
    """

    qualifiers: str = ".global"
    policy: V | None = None


PLAIN = Caching()


def caching(k: Kernel, asked: CachePolicy, volatile: bool, *, store: bool) -> Caching:
    """What a load or store asks for (PTX ISA, "Cache Operators" and "Cache Eviction Priority Hints").

    An operator and an eviction priority exclude each other: the operator wins. The instruction itself tells the
    priority in L1, its operand that in L2.
    """
    if volatile:
        return Caching(".volatile.global")
    if asked.modifier != "none" and asked.modifier in (("wb", "cg", "cs", "wt") if store else ("ca", "cg", "cs", "cv")):
        return Caching(f".global.{asked.modifier}")
    policy = policy_of(k, asked)
    return PLAIN if policy is None else Caching(f".global.L1::{asked.eviction}.L2::cache_hint", policy)


def policy_of(k: Kernel, asked: CachePolicy) -> V | None:
    """The operand that tells L2 the priority that a load, store or copy asks for; None where there is none."""
    if asked.modifier != "none" or asked.eviction not in ("evict_first", "evict_last"):
        return None
    return k.f.ptx(f"createpolicy.fractional.L2::{asked.eviction}.b64 $0, 1.0;", "=l", [], [I64], effect=False)[0]


def global_load(k: Kernel, address: V, words: Sequence[V], mask: V, caches: Caching = PLAIN) -> list[V]:
    """Words from global memory.

    Args:
        k: the kernel.
        address: of the first byte, aligned to all of them.
        words: what is returned where `mask` is off; they tell number and size.
        mask: i1.
        caches: how they are used.
    """
    if mask.const == 0:
        return list(words)
    suffix, braces = _vector_suffix(words)
    count = len(words)
    names = braces % ", ".join(f"${i}" for i in range(count))
    narrow = words[0].type is I8  # no 8-bit registers: the byte arrives in one of 16
    start = [k.f.cast("zext", word, T("i16")) for word in words] if narrow else list(words)
    masked = [mask] if mask.const is None else []
    tied = start if masked else []
    at = count + len(tied)
    operands, constraints = _guarded(address, masked, caches)
    guard, hint = _around(at, masked, caches)
    made = k.f.ptx(
        f"{guard}ld{caches.qualifiers}{suffix} {names}, [${at}]{hint};",
        ",".join([f"={_class(words[0])}"] * count + [str(i) for i in range(len(tied))] + constraints),
        [*tied, *operands],
        [word.type for word in start],
    )
    return [k.f.cast("trunc", word, I8) for word in made] if narrow else made


def global_store(k: Kernel, address: V, words: Sequence[V], mask: V, caches: Caching = PLAIN) -> None:
    """Words to global memory where `mask` (i1); see `global_load`."""
    if mask.const == 0:
        return
    suffix, braces = _vector_suffix(words)
    count = len(words)
    if words[0].type is I8:
        words = [k.f.cast("zext", word, T("i16")) for word in words]
    names = braces % ", ".join(f"${i}" for i in range(count))
    masked = [mask] if mask.const is None else []
    operands, constraints = _guarded(address, masked, caches)
    guard, hint = _around(count, masked, caches)
    text = f"{guard}st{caches.qualifiers}{suffix} [${count}], {names}{hint};"
    k.f.ptx(text, ",".join([*map(_class, words), *constraints]), [*words, *operands])


def _guarded(address: V, masked: list[V], caches: Caching) -> tuple[list[V], list[str]]:
    """Address, mask and policy as operands, and their constraints."""
    policy = [] if caches.policy is None else [caches.policy]
    return [address, *masked, *policy], ["l", *"b" * len(masked), *"l" * len(policy)]


def _around(at: int, masked: list[V], caches: Caching) -> tuple[str, str]:
    """What stands before an access whose address is operand `at`, and behind it."""
    hint = "" if caches.policy is None else f", ${at + 1 + len(masked)}"
    return f"@${at + 1} " if masked else "", hint


# --- operations ---------------------------------------------------------------------------------------


@emits(LoadOp)
def emit_load(k: Kernel, op: LoadOp) -> None:
    """A load; elements that are off get the value given for them, else zero."""
    mask, other = [*op.masked, None, None][:2]
    pointers = k.tile(op.ptr)
    masks = k.tile(mask) if mask is not None else None
    others = k.tile(other) if other is not None else None
    attrs = op.attr_values()
    caches = caching(k, attrs["cachePolicy"], attrs["isVolatile"], store=False)
    t = k.element(op.result)
    inside = k.inside(op.ptr.type) if shape_of(op.ptr.type) else [const(I1, 1)]
    groups = access_groups(k.facts, op.ptr, mask)
    accesses = []
    for group in groups:
        head = group[0]
        on = inside[head] if masks is None else k.f.and_(inside[head], masks[head])
        start = pack(k, [others[r] for r in group] if others is not None else [zero(t)] * len(group))
        accesses.append(Access(pointers[head], start, on))
    versions = is_worth_versions(op, accesses)
    tell_access(k.decisions, op, groups, versions=versions)

    def load(access: Access) -> list[V]:
        return global_load(k, access.address, access.start, access.on, caches)

    loaded = versioned(k, accesses, load) if versions else map(load, accesses)
    made: dict[int, V] = {}
    for group, words in zip(groups, loaded, strict=True):
        made.update(zip(group, unpack(k, words, t, len(group)), strict=True))
    k.set_like(op.result, with_copies(op.ptr, made, len(pointers)))


def with_copies(pointer: SSAValue, made: dict[int, V], count: int) -> Tile:
    """All registers from those without copies."""
    if len(made) == count:
        return [made[register] for register in range(count)]
    table = unique_registers(layout_of(pointer))[1]
    by_number = {table[register]: value for register, value in made.items()}
    return [by_number[number] for number in table]


@emits(StoreOp)
def emit_store(k: Kernel, op: StoreOp) -> None:
    """A store; each element is stored by one thread that holds it."""
    mask = op.masked[0] if op.masked else None
    pointers, values = k.tile(op.ptr), k.tile(op.value)
    masks = k.tile(mask) if mask is not None else None
    caches = caching(k, op.attr_values()["cachePolicy"], False, store=True)
    if shape_of(op.ptr.type):
        inside, own = k.inside(op.ptr.type), k.owns(layout_of(op.ptr))
    else:
        inside, own = [const(I1, 1)], k.first_thread()
    groups = access_groups(k.facts, op.ptr, mask)
    tell_access(k.decisions, op, groups)
    for group in groups:
        head = group[0]
        on = k.f.and_(own, inside[head])
        if masks is not None:
            on = k.f.and_(on, masks[head])
        global_store(k, pointers[head], pack(k, [values[r] for r in group]), on, caches)


@emits(AddPtrOp)
def emit_addptr(k: Kernel, op: Operation) -> None:
    """Pointer plus offset, counted in elements."""
    base, offset = op.operands
    t = memory_type(pointee(base))
    made = [k.f.gep(p, o, elem=t) for p, o in zip(k.tile(base), k.tile(offset), strict=True)]
    k.set_like(op.results[0], made)


__all__ = [
    "PLAIN",
    "access_groups",
    "caching",
    "global_load",
    "global_store",
    "pack",
    "pointee",
    "policy_of",
    "unpack",
    "with_copies",
]
