"""Atomic accesses to global memory, in PTX, each element by the one thread that owns it.

    [barrier]                                        what other threads of the block wrote comes first (release)
    [fence]  @on atom.relaxed... per element  [fence]        several elements: the order is given by fences
             @on atom.acq_rel...                             one element: by the instruction
    [scratch, barrier]                               to all threads that hold the element, if the result is used

`red` instead of `atom` where it is not. Neighbouring elements of half, bfloat and (sm_90) float are added as vectors.
See PTX ISA, "Memory Consistency Model", for release and acquire patterns made with fences.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Operation, SSAValue

from tilewright.backends.llvm.casts import load_bool, store_bool
from tilewright.backends.llvm.types import I1, I8, I16, T, V, const, zero
from tilewright.backends.nvidia.emit.answers import tell_atomic
from tilewright.backends.nvidia.emit.context import Kernel, Tile, emits
from tilewright.backends.nvidia.emit.elementwise import compute
from tilewright.backends.nvidia.emit.memory import access_groups
from tilewright.backends.nvidia.emit.publish import owner, publish, publish_bytes
from tilewright.backends.nvidia.plan.allocate import scratch
from tilewright.ir.types import shape_of
from tilewright.ops.atomic import AtomicCASOp, AtomicLoadOp, AtomicRMWOp, AtomicStoreOp

_LETTERS = {16: "h", 32: "r", 64: "l"}
_BITWISE = {"and": "and.b", "or": "or.b", "xor": "xor.b", "exch": "exch.b"}
_ARITHMETIC = {"add": "add.u", "max": "max.s", "min": "min.s", "umax": "max.u", "umin": "min.u"}
_FOLLOWING = {"fadd": "addf", "max": "maxsi", "min": "minsi", "umax": "maxui", "umin": "minui"}
_FLOATS = {"half": "add.noftz.f16", "bfloat": "add.noftz.bf16", "float": "add.f32", "double": "add.f64"}


# --- which elements, in which order -----------------------------------------------------------------------


def _enabled(k: Kernel, pointer: SSAValue, mask: SSAValue | None) -> Tile:
    """For each register whether this thread accesses its element (i1)."""
    inside = k.inside(pointer.type) if shape_of(pointer.type) else [const(I1, 1)]
    own, masks = owner(k, pointer.type), k.tile(mask) if mask is not None else None
    on = [k.f.and_(own, flag) for flag in inside]
    return on if masks is None else [k.f.and_(a, b) for a, b in zip(on, masks, strict=True)]


class _Order:
    """The memory order of one operation: what its instructions say, and what is emitted around them.

    Args:
        k: the kernel.
        sem: "relaxed", "acquire", "release" or "acq_rel"; None is release.
        scope: "gpu", "cta" or "sys"; None is the GPU.
        count: number of instructions of a thread.
        reads, writes: whether the operation gives a value that is used, and whether it writes.
    """

    def __init__(self, k: Kernel, sem: str | None, scope: str | None, count: int, *, reads: bool, writes: bool) -> None:
        self._k, self._scope = k, scope or "gpu"
        self._releases = writes and sem != "acquire" and sem != "relaxed"
        self._acquires = reads and sem in ("acquire", "acq_rel")
        self._fenced = count > 1
        if not writes:  # a load can only acquire
            self._acquires = sem != "relaxed"

    @property
    def qualifiers(self) -> str:
        """Order, scope and space of an instruction."""
        word = {(0, 0): "relaxed", (1, 0): "release", (0, 1): "acquire", (1, 1): "acq_rel"}
        sides = (0, 0) if self._fenced else (int(self._releases), int(self._acquires))
        return f"{word[sides]}.{self._scope}.global"

    def begin(self) -> None:
        """What comes before the accesses."""
        if self._releases:
            self._k.f.barrier()
            self._fence(self._releases)

    def end(self) -> None:
        """What comes after them."""
        self._fence(self._acquires)

    def _fence(self, wanted: bool) -> None:
        if wanted and self._fenced:
            self._k.f.ptx(f"fence.acq_rel.{self._scope};", "~{memory}", [])


# --- instructions -----------------------------------------------------------------------------------------


def _instruction(
    k: Kernel, name: str, address: V, groups: Sequence[Sequence[V]], on: V, results: Sequence[T]
) -> list[V]:
    """One predicated instruction on memory; results are zero where it is off.

    Args:
        k: the kernel.
        name: opcode with its qualifiers.
        address: of the element, or of the first one.
        groups: operands behind the address, integers; those of a group of several stand in braces.
        on: i1.
        results: integer types.
    """
    if on.const == 0:
        return [const(t, 0) for t in results]
    count = len(results)
    always = on.const is not None
    first = count if always else 2 * count  # results that the instruction may not set start as zero
    names, at = [], first + 1
    for group in groups:
        row = ", ".join(f"${at + i}" for i in range(len(group)))
        names.append(f"{{{row}}}" if len(group) > 1 else row)
        at += len(group)
    target = ", ".join(f"${i}" for i in range(count))
    operands = [f"{{{target}}}" if count > 1 else target] * bool(count) + [f"[${first}]", *names]
    values = [v for group in groups for v in group]
    constraints = [f"={_LETTERS[t.bits]}" for t in results]
    args = [address, *values]
    letters = ["l", *(_LETTERS[v.type.bits] for v in values)]
    if not always:
        constraints += [str(i) for i in range(count)]
        args = [*[const(t, 0) for t in results], *args, on]
        letters.append("b")
    guard = "" if always else f"@${at} "
    return k.f.ptx(
        f"{guard}{name} {', '.join(operands)};", ",".join([*constraints, *letters, "~{memory}"]), args, results
    )


def _bits(k: Kernel, value: V) -> V:
    """A value as the integer that an instruction takes: a byte in a register of 16 bits."""
    value = store_bool(k.f, value) if value.type is I1 else k.f.cast("bitcast", value, value.type.as_int)
    return k.f.cast("zext", value, I16) if value.type is I8 else value


def _value(k: Kernel, bits: V, t: T) -> V:
    """The reverse of `_bits`."""
    if t.bits >= 16:
        return k.f.cast("bitcast", bits, t)
    byte = k.f.cast("trunc", bits, I8)
    return load_bool(k.f, byte) if t is I1 else byte


# --- read-modify-write ------------------------------------------------------------------------------------


@scratch(AtomicRMWOp, AtomicCASOp, AtomicLoadOp)
def atomic_scratch(op: Operation) -> int:
    """Room for the results, if other threads need them."""
    return publish_bytes(op.results[0])


def _vectors(k: Kernel, op: AtomicRMWOp, t: T) -> list[tuple[int, ...]]:
    """Registers that one instruction serves."""
    groups = access_groups(k.facts, op.ptr, op.mask)
    widest = {"half": 2, "bfloat": 2 if k.arch.has_bf16_atomics else 1}.get(t.elem, 1)
    if t.elem == "float" and k.arch.has_vector_atomics:
        widest = 4
    if op.attr_values()["atomic_rmw_op"] != "fadd":
        widest = 1
    return [group[i : i + widest] for group in groups for i in range(0, len(group), widest)]


def _rmw_name(kind: str, t: T, count: int) -> str:
    """Operation and type, as the instruction spells them."""
    if kind == "fadd":
        operation, _, suffix = _FLOATS[t.elem].rpartition(".")
        if count > 1:
            suffix = f"{suffix}x2" if t.bits == 16 else f"v{count}.{suffix}"
        return f"{operation}.{suffix}"
    return f"{(_BITWISE | _ARITHMETIC)[kind]}{t.bits}"


@emits(AtomicRMWOp)
def emit_atomic_rmw(k: Kernel, op: AtomicRMWOp) -> None:
    """Combine values into memory; the old values are the result."""
    tell_atomic(k.decisions, op)
    pointers, values, on = k.tile(op.ptr), k.tile(op.val), _enabled(k, op.ptr, op.mask)
    attrs, used, t = op.attr_values(), bool(op.result.uses), values[0].type
    kind = attrs["atomic_rmw_op"]
    returns = used or kind == "exch"  # `red` has no exchange
    groups = _vectors(k, op, t)
    order = _Order(k, attrs["sem"], attrs["scope"], len(groups), reads=used, writes=True)
    order.begin()
    made: dict[int, V] = {}
    for group in groups:
        head, row = group[0], [values[r] for r in group]
        if not _has_instruction(k, kind, t):
            old = [_by_exchange(k, order.qualifiers, kind, pointers[head], row[0], on[head])]
        else:
            name = f"{order.qualifiers}.{_rmw_name(kind, t, len(group))}"
            old = _combine(k, name, pointers[head], row, on[head], returns)
        made.update(zip(group, old, strict=False))
    order.end()
    if used:
        k.set_like(op.result, publish(k, op, op.result, made))


def _combine(k: Kernel, name: str, address: V, row: Sequence[V], on: V, returns: bool) -> list[V]:
    """One instruction on an element or a vector of them; the old values, if it `returns` any."""
    f, t = k.f, row[0].type
    packed = t.bits == 16 and len(row) > 1
    operands = [f.cast("bitcast", f.vector(row), T("i32"))] if packed else [_bits(k, v) for v in row]
    opcode = "atom" if returns else "red"
    old = _instruction(k, f"{opcode}.{name}", address, [operands], on, [v.type for v in operands] if returns else [])
    if packed:
        return f.elements(f.cast("bitcast", old[0], t.vec(2))) if old else []
    return [_value(k, bits, t) for bits in old]


def _has_instruction(k: Kernel, kind: str, t: T) -> bool:
    """Whether there is one: of 16 bits there are sums alone."""
    return t.bits > 16 or (kind == "fadd" and (t.elem == "half" or k.arch.has_bf16_atomics))


def _by_exchange(k: Kernel, qualifiers: str, kind: str, address: V, value: V, on: V) -> V:
    """On 16 bits: old = *p; while the exchange of old for what follows it finds something else: old = that."""
    f, t, found = k.f, value.type, [zero(I16)]

    def failed(state: list[V]) -> V:
        new = compute(k, _FOLLOWING[kind], f.cast("bitcast", state[0], t), value)
        found[:] = _instruction(
            k, f"atom.{qualifiers}.cas.b16", address, [[state[0]], [_bits(k, new)]], const(I1, 1), [I16]
        )
        return f.icmp("ne", found[0], state[0])

    def loop() -> list[V]:
        first = _instruction(k, "ld.relaxed.gpu.global.b16", address, [], const(I1, 1), [I16])
        return f.while_(first, failed, lambda state: found)

    (old,) = f.if_else(on, loop, lambda: [zero(I16)])
    return f.cast("bitcast", old, t)


# --- exchange, load, store --------------------------------------------------------------------------------


@emits(AtomicCASOp)
def emit_atomic_cas(k: Kernel, op: AtomicCASOp) -> None:
    """Compare and swap, element by element."""
    tell_atomic(k.decisions, op)
    pointers, expected, values = (k.tile(operand) for operand in op.operands)
    attrs, on, t = op.attr_values(), _enabled(k, op.ptr, None), values[0].type
    registers = _unique(k, op.ptr)
    order = _Order(k, attrs["sem"], attrs["scope"], len(registers), reads=bool(op.result.uses), writes=True)
    order.begin()
    made = {}
    for r in registers:
        operands = [[_bits(k, expected[r])], [_bits(k, values[r])]]
        name = f"atom.{order.qualifiers}.cas.b{t.bits}"
        (old,) = _instruction(k, name, pointers[r], operands, on[r], [t.as_int])
        made[r] = _value(k, old, t)
    order.end()
    if op.result.uses:
        k.set_like(op.result, publish(k, op, op.result, made))


@emits(AtomicLoadOp)
def emit_atomic_load(k: Kernel, op: AtomicLoadOp) -> None:
    """Read each element once, by its owner: threads that hold copies must not see different values."""
    tell_atomic(k.decisions, op)
    pointers, on, t = k.tile(op.ptr), _enabled(k, op.ptr, op.mask), k.element(op.result)
    attrs, registers, stored = op.attr_values(), _unique(k, op.ptr), max(8, t.bits)
    order = _Order(k, attrs["sem"], attrs["scope"], len(registers), reads=True, writes=False)
    made = {}
    for r in registers:
        name = f"ld.{order.qualifiers}.b{stored}"
        (bits,) = _instruction(k, name, pointers[r], [], on[r], [T(f"i{max(16, stored)}")])
        made[r] = _value(k, bits, t)
    order.end()
    if op.result.uses:
        k.set_like(op.result, publish(k, op, op.result, made))


@emits(AtomicStoreOp)
def emit_atomic_store(k: Kernel, op: AtomicStoreOp) -> None:
    """Write each element once, by its owner."""
    tell_atomic(k.decisions, op)
    pointers, values, on = k.tile(op.ptr), k.tile(op.value), _enabled(k, op.ptr, op.mask)
    attrs, registers = op.attr_values(), _unique(k, op.ptr)
    order = _Order(k, attrs["sem"], attrs["scope"], len(registers), reads=False, writes=True)
    order.begin()
    for r in registers:
        stored = max(8, values[r].type.bits)
        _instruction(k, f"st.{order.qualifiers}.b{stored}", pointers[r], [[_bits(k, values[r])]], on[r], [])


def _unique(k: Kernel, pointer: SSAValue) -> list[int]:
    """Registers that hold no copy of another one."""
    return [register for group in access_groups(k.facts, pointer, None) for register in group]
