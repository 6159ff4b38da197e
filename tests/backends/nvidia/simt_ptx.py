"""Inline PTX of a simulated block: statements of one asm string, instruction by instruction.

A statement is an optional predicate (`@$5`, `@!p`), an opcode with modifiers and operands (`$0`, `p`, `{$0, $1}`,
`[$4 + 16]`, literals). Registers hold bits (unsigned numpy arrays, or bool); the handler reads them as the type that
its modifiers name. A new instruction is a function registered with `@ptx("name")`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.backends.nvidia import simt_intrinsics as warp
from tests.backends.nvidia import simt_ops as ops
from tests.backends.nvidia.simt_memory import SimtError
from tests.backends.nvidia.simt_text import Inst, Ty

Array = np.ndarray
Machine = Any  # simt.Machine

_TYPES = {"pred": Ty("i1"), "f16": Ty("half"), "bf16": Ty("bfloat"), "f32": Ty("float"), "f64": Ty("double")}
_TYPES |= {f"{kind}{bits}": Ty(f"i{bits}") for kind in "bsu" for bits in (8, 16, 32, 64)}
_TYPES |= {"f16x2": Ty("half", 2), "bf16x2": Ty("bfloat", 2), "b128": Ty("i128")}


@dataclass
class Statement:
    """One PTX instruction under execution.

    Args:
        machine: the block.
        name: opcode without modifiers.
        mods: modifiers, in order.
        operands: texts of the operands; a list for `{...}`.
        registers: values by name (`$0`, `p`, ...).
        active: the threads whose predicate holds.
    """

    machine: Machine
    name: str
    mods: list[str]
    operands: list[Any]
    registers: dict[str, Array]
    active: Array | None = None

    def type(self, which: int = -1) -> Ty:
        """The type that the modifiers name; the last one, or another by position."""
        return [_TYPES[m] for m in self.mods if m in _TYPES][which]

    def has(self, *mods: str) -> bool:
        """Whether one of these modifiers is there."""
        return any(m in self.mods for m in mods)

    def read(self, operand: Any, t: Ty) -> Array:
        """An operand as a value of type `t`; a list of them as a vector."""
        if isinstance(operand, list):
            parts = [self.machine.spread(self.read(part, Ty(t.elem))) for part in operand]
            return np.stack(parts, axis=1)
        negated = operand.startswith("!")
        bits = self._bits(operand.lstrip("!"), t)
        value = resized(t, bits)
        return ~value if negated else value

    def arg(self, index: int, t: Ty | None = None) -> Array:
        """Operand number `index`."""
        return self.read(self.operands[index], t or self.type())

    def address(self, operand: str) -> Array:
        """The address `[register + offset]`."""
        inner = operand.strip("[] ")
        base, _, offset = inner.partition("+")
        return self.read(base.strip(), Ty("i64")) + np.uint64(int(offset or "0", 0) & (1 << 64) - 1)

    def write(self, operand: Any, t: Ty, value: Array) -> None:
        """Set a register (or, for a list, one for each lane of a vector) in the active threads."""
        if isinstance(operand, list):
            for i, part in enumerate(operand):
                self.write(part, Ty(t.elem), value[:, i])
            return
        if operand == "_":
            return
        kept, m = self.registers.get(operand), self.machine
        value = m.spread(as_bits(t, value))
        if kept is not None and kept.dtype != value.dtype:
            kept = resized(Ty(f"i{8 * value.dtype.itemsize}") if value.dtype != bool else Ty("i1"), kept)
        self.registers[operand] = value if self.active is None or kept is None else np.where(self.active, value, kept)

    def result(self, value: Array, t: Ty | None = None) -> None:
        """Set the first operand."""
        self.write(self.operands[0], t or self.type(), value)

    def _bits(self, operand: str, t: Ty) -> Array:
        if operand in self.registers:
            return self.registers[operand]
        if re.fullmatch(r"0[fF][0-9A-Fa-f]{8}", operand):
            return np.array([int(operand[2:], 16)], np.uint32)
        if re.fullmatch(r"0[dD][0-9A-Fa-f]{16}", operand):
            return np.array([int(operand[2:], 16)], np.uint64)
        if re.fullmatch(r"-?(0[xX][0-9A-Fa-f]+|\d+)[uU]?", operand):
            number = int(operand.rstrip("uU"), 0)
            if t.is_float:
                return ops.rounded(t, np.array([float(number)]))
            return np.array([number & (1 << max(t.bits, 32)) - 1], np.uint64 if t.bits == 64 else np.uint32)
        if operand == "%globaltimer":
            return np.array([time.perf_counter_ns()], np.uint64)
        if operand.startswith("%") and operand[1:] in self.machine.registers:
            return self.machine.registers[operand[1:]]
        raise NotImplementedError(f"the simulator does not know the PTX operand {operand!r}")


def as_bits(t: Ty, value: Array) -> Array:
    """A value as an unsigned number of its size (a vector as one number); i1 stays bool."""
    if t.lanes:
        raw = ops.bits_of(t, value)
        return np.ascontiguousarray(raw).view(f"u{t.bytes}")[:, 0]
    return (
        value
        if value.dtype in (bool, object) or not t.is_float
        else np.ascontiguousarray(value).view(f"u{t.bits // 8}")
    )


def resized(t: Ty, bits: Array) -> Array:
    """Bits of a register, cut or zero-extended, as a value of type `t`."""
    if t.dtype == bool and not t.lanes:
        return bits.astype(bool)
    if bits.dtype == t.dtype and not t.lanes:
        return bits
    if bits.dtype.kind == "f":
        bits = np.ascontiguousarray(bits).view(f"u{bits.dtype.itemsize}")
    number = bits.astype(f"u{t.bytes}")
    return ops.from_bits(t, number[:, None].view(np.uint8))


Handler = Callable[[Statement], None]
PTX: dict[str, Handler] = {}


def ptx(*names: str) -> Callable[[Handler], Handler]:
    """Decorator: this function runs the PTX instructions `names`."""

    def register(function: Handler) -> Handler:
        for name in names:
            PTX[name] = function
        return function

    return register


# --- statements ---------------------------------------------------------------------------------------------


def run_ptx(m: Machine, inst: Inst, *args: Array) -> Any:
    """Run an asm call; gives its result (a tuple for several)."""
    constraints = [c for c in inst.extra["constraints"].split(",") if not c.startswith("~")]
    count = sum(c.startswith("=") for c in constraints)
    results = list(inst.type.parts) if inst.type.elem == "{" else [inst.type][:count]
    registers = {f"${count + i}": as_bits(t, value) for i, ((t, _), value) in enumerate(zip(inst.args, args))}
    for i, constraint in enumerate(constraints[count:]):
        if constraint.isdigit():
            registers[f"${constraint}"] = registers[f"${count + i}"]
    for statement in _statements(inst.extra["asm"]):
        _run_statement(m, statement, registers)
    made = []
    for i, t in enumerate(results):
        value = registers.get(f"${i}")
        if value is None:
            raise SimtError(f"the assembly does not set ${i}")
        made.append(resized(t, value))
    return tuple(made) if inst.type.elem == "{" else made[0] if made else None


def _statements(text: str) -> list[str]:
    text = text.replace("\\0A", "\n").replace("\\09", " ").replace("\\22", '"')
    text = re.sub(r"//[^\n]*", "", text)
    parts = [part.strip() for part in text.replace("\n", " ").split(";")]
    result = []
    for part in parts:
        while part[:1] in "{}" and part and not re.match(r"\{[^}]*\},", part):
            part = part[1:].strip()
        if part and not part.startswith(".reg"):
            result.append(part)
    return result


def _run_statement(m: Machine, text: str, registers: dict[str, Array]) -> None:
    predicate, rest = re.fullmatch(r"(?:@(\S+)\s+)?(.*)", text, re.S).groups()
    opcode, _, tail = rest.strip().partition(" ")
    name, *mods = opcode.split(".")
    statement = Statement(m, name, mods, _operands(tail), registers)
    m.result.counts[f"ptx {name}"] += 1
    if name not in PTX:
        raise NotImplementedError(f"the simulator does not know the PTX instruction {opcode}")
    if predicate is None:
        PTX[name](statement)
        return
    flag = m.spread(statement.read(predicate, Ty("i1")))
    outer = m.mask, m.threads, m.full
    m._activate(m.mask & flag)
    statement.active = m.mask
    if m.mask.any():
        PTX[name](statement)
    m.mask, m.threads, m.full = outer


def _operands(text: str) -> list[Any]:
    parts = re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s][^,]*", text)
    found: list[Any] = []
    for part in parts:
        part = part.strip()
        found.append([x.strip() for x in part[1:-1].split(",")] if part.startswith("{") else part)
    return found


# --- moving data --------------------------------------------------------------------------------------------


def _space(s: Statement) -> int:
    return 3 if s.has("shared") or any(m.startswith("shared::") for m in s.mods) else 0


def _vector(s: Statement) -> int:
    return next((int(m[1:]) for m in s.mods if re.fullmatch(r"v\d", m)), 0)


@ptx("ld", "ldu")
def _ld(s: Statement) -> None:
    t = Ty(s.type().elem, _vector(s))
    s.result(s.machine.load(t, s.address(s.operands[1]), t.bytes, _space(s)), t)


_SENDING: list[Callable[[Statement, Ty, Array], None]] = []


def sends(handler: Callable[[Statement, Ty, Array], None]) -> Callable[[Statement, Ty, Array], None]:
    """Decorator: this function stores to the shared memory of another block (`simt_cluster`)."""
    _SENDING[:] = [handler]
    return handler


@ptx("st")
def _st(s: Statement) -> None:
    t = Ty(s.type().elem, _vector(s))
    value = s.arg(1, t)
    if s.has("shared::cluster"):
        return _SENDING[0](s, t, value)
    s.machine.store(t, value, s.address(s.operands[0]), t.bytes, _space(s))


@ptx("mov")
def _mov(s: Statement) -> None:
    t, source, target = s.type(), s.operands[1], s.operands[0]
    if isinstance(source, list):
        parts = Ty(f"i{t.bits // len(source)}", len(source))
        s.write(target, t, ops.convert("bitcast", parts, t, s.read(source, parts)))
    elif isinstance(target, list):
        parts = Ty(f"i{t.bits // len(target)}", len(target))
        s.write(target, parts, ops.convert("bitcast", t, parts, s.machine.spread(s.read(source, t))))
    else:
        s.result(s.arg(1))


@ptx("cvt")
def _cvt(s: Statement) -> None:
    named = [m for m in s.mods if m in _TYPES]
    to, source = (_TYPES[m] for m in named[:2])
    if to.lanes and not source.lanes:  # the first source is the upper half
        halves = [ops.rounded(Ty(to.elem), ops.widened(source, s.machine.spread(s.arg(i, source)))) for i in (2, 1)]
        return s.result(np.stack(halves, axis=1), to)
    x = s.arg(1, source)
    if source.is_float and to.is_float:
        return s.result(ops.rounded(to, ops.widened(source, x)), to)
    if source.is_float:
        whole = ops.widened(source, x).astype(np.float64)
        whole = (
            np.rint(whole)
            if s.has("rni")
            else np.floor(whole)
            if s.has("rmi")
            else np.ceil(whole)
            if s.has("rpi")
            else whole
        )
        return s.result(ops.saturate(Ty("double"), to, named[0][0] == "s", whole), to)
    if to.is_float:
        return s.result(ops.rounded(to, ops.signed(source, x) if named[1][0] == "s" else x), to)
    return s.result(
        ops.convert("sext" if named[1][0] == "s" else "zext", source, to, x)
        if to.bits > source.bits
        else ops.wrapped(to, x),
        to,
    )


@ptx("cvta")
def _cvta(s: Statement) -> None:
    s.result(s.arg(1))


# --- arithmetic ---------------------------------------------------------------------------------------------

_FLOAT = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}


@ptx("add", "sub", "mul", "div", "and", "or", "xor", "shl", "shr", "rem")
def _binary(s: Statement) -> None:
    t, kind = s.type(), next(m for m in s.mods[::-1] if m in _TYPES)
    a, b = s.arg(1), s.arg(2, Ty("i32") if s.name in ("shl", "shr") else None)
    if t.is_float:
        return s.result(ops.BINARY[_FLOAT[s.name]](t, a, b))
    if s.name == "mul" and s.has("wide", "hi"):
        wide = Ty(f"i{2 * t.bits}")
        a, b = (ops.wrapped(wide, ops.signed(t, x).astype(object) if kind[0] == "s" else x) for x in (a, b))
        product = ops.BINARY["mul"](wide, a, b)
        return s.result(product, wide) if s.has("wide") else s.result(ops.wrapped(t, product >> t.bits))
    if s.name in ("shl", "shr"):  # amounts are clamped (PTX ISA): all bits go, or copies of the sign stay
        gone, b = b >= t.bits, np.minimum(b, t.bits - 1)
        if not (s.name == "shr" and kind[0] == "s"):
            a = np.where(gone, np.zeros_like(a), a)
    name = {"shr": "ashr" if kind[0] == "s" else "lshr", "div": "sdiv" if kind[0] == "s" else "udiv"}.get(
        s.name, s.name
    )
    name = ("srem" if kind[0] == "s" else "urem") if name == "rem" else name
    return s.result(ops.BINARY[name](t, a, b.astype(a.dtype)))


@ptx("fma", "mad")
def _fma(s: Statement) -> None:
    t = s.type()
    if t.is_float:
        return s.result(ops.INTRINSICS["fma"](t, s.arg(1), s.arg(2), s.arg(3)))
    return s.result(ops.BINARY["add"](t, ops.BINARY["mul"](t, s.arg(1), s.arg(2)), s.arg(3)))


@ptx("min", "max")
def _extreme(s: Statement) -> None:
    t, kind = s.type(), next(m for m in s.mods[::-1] if m in _TYPES)
    if t.is_float:
        name = {"min": "minimum", "max": "maximum"}[s.name] if s.has("NaN") else f"{s.name}num"
    else:
        name = ("s" if kind[0] == "s" else "u") + s.name
    s.result(ops.INTRINSICS[name](t, s.arg(1), s.arg(2)))


_UNARY: dict[str, Callable[[Array], Array]] = {
    "ex2": np.exp2, "lg2": np.log2, "rcp": np.reciprocal, "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos,
    "tanh": np.tanh, "rsqrt": lambda x: 1 / np.sqrt(x), "abs": np.abs, "neg": np.negative,
}  # fmt: skip


@ptx(*_UNARY, "not")
def _unary(s: Statement) -> None:
    t, x = s.type(), s.arg(1)
    if s.name == "not":
        return s.result(~x)
    if t.is_float:
        return s.result(ops.rounded(t, _UNARY[s.name](ops.widened(t, x).astype(np.float64))))
    return s.result(ops.wrapped(t, _UNARY[s.name](ops.signed(t, x))))


@ptx("setp")
def _setp(s: Statement) -> None:
    t, kind = s.type(), next(m for m in s.mods[::-1] if m in _TYPES)
    comparison, a, b = s.mods[0], s.arg(1), s.arg(2)
    if t.is_float:
        unordered = comparison.endswith("u") and len(comparison) == 3
        flag = ops.fcmp(("u" if unordered or comparison == "ne" else "o") + comparison[:2], t, a, b)
    else:
        flag = ops.icmp(
            comparison if comparison in ("eq", "ne") else ("s" if kind[0] == "s" else "u") + comparison, t, a, b
        )
    s.write(s.operands[0], Ty("i1"), flag)


@ptx("selp")
def _selp(s: Statement) -> None:
    s.result(np.where(s.arg(3, Ty("i1")), s.arg(1), s.arg(2)))


@ptx("prmt")
def _prmt(s: Statement) -> None:
    u32 = Ty("i32")
    s.result(warp.permuted(s.machine, *(s.arg(i, u32) for i in (1, 2, 3))), u32)


# --- atomics ------------------------------------------------------------------------------------------------

_ATOMIC: dict[str, Callable[[Ty, Any, Any], Any]] = {
    "exch": lambda t, old, new: new, "and": lambda t, old, new: old & new, "or": lambda t, old, new: old | new,
    "xor": lambda t, old, new: old ^ new,
    "add": lambda t, old, new: ops.BINARY["fadd" if t.is_float else "add"](t, old, new),
    "inc": lambda t, old, new: np.where(old >= new, 0, old + 1).astype(old.dtype),
}  # fmt: skip


@ptx("atom", "red")
def _atomic(s: Statement) -> None:
    m, t = s.machine, s.type()
    operation = next(mod for mod in s.mods if mod in _ATOMIC or mod in ("cas", "min", "max"))
    kind = next(mod for mod in s.mods[::-1] if mod in _TYPES)
    vector = _vector(s)
    t = Ty(t.elem, vector or t.lanes)
    first = 0 if s.name == "red" else 1
    address, value = s.address(s.operands[first]), m.spread(s.arg(first + 1, t))
    target = m.spread(s.arg(first + 2, t)) if operation == "cas" else None
    old = np.array(np.broadcast_to(np.zeros((), t.dtype), value.shape))
    for thread in m.threads:  # one after another, as the memory does
        place, row = m.spread(address)[thread : thread + 1], slice(thread, thread + 1)
        shared = _space(s) == 3
        where = m.shared.atomic(np.array([thread]), place, t.bytes) if shared else m.memory._places(place, t.bytes)
        data = m.shared.data if shared else m.memory.data
        now = ops.from_bits(t, data[where])
        if operation == "cas":
            assert target is not None
            new = np.where(now == value[row], target[row], now)
        elif operation in ("min", "max"):
            name = f"{operation}num" if t.is_float else ("s" if kind[0] == "s" else "u") + operation
            new = ops.INTRINSICS[name](t, now, value[row])
        else:
            new = _ATOMIC[operation](t, now, value[row])
        old[row], data[where] = now, ops.bits_of(t, new)
    if s.name == "atom":
        s.result(old, t)


# --- warps, shared memory, barriers ---------------------------------------------------------------------------


@ptx("ldmatrix")
def _ldmatrix(s: Statement) -> None:
    targets = s.operands[0] if isinstance(s.operands[0], list) else [s.operands[0]]
    words = warp.load_matrices(s.machine, s.address(s.operands[1]), len(targets), s.has("trans"))
    for target, word in zip(targets, words):
        s.write(target, Ty("i32"), word)


@ptx("stmatrix")
def _stmatrix(s: Statement) -> None:
    sources = s.operands[1] if isinstance(s.operands[1], list) else [s.operands[1]]
    words = [s.read(source, Ty("i32")) for source in sources]
    warp.store_matrices(s.machine, s.address(s.operands[0]), words, s.has("trans"))


@ptx("cp")
def _cp(s: Statement) -> None:
    if s.has("commit_group"):
        return warp.commit_group(s.machine, None)
    if s.has("wait_group", "wait_all"):
        left = int(s.operands[0], 0) if s.operands else 0
        if s.has("wait_all"):
            return warp.wait_all(s.machine, None)
        return warp.wait_group(s.machine, None, np.array([left]))
    size = int(s.operands[2], 0)
    used = s.arg(3, Ty("i32")) if len(s.operands) > 3 else None
    return warp.async_copy(s.machine, s.address(s.operands[0]), s.address(s.operands[1]), size, used)


@ptx("bar", "barrier")
def _bar(s: Statement) -> None:
    name = "llvm.nvvm.bar.warp.sync" if s.has("warp") else "llvm.nvvm.barrier0"
    warp.INTRINSICS[name](s.machine, None)


@ptx("fence", "membar", "nanosleep", "prefetch", "applypriority", "griddepcontrol")
def _nothing(s: Statement) -> None:
    """Order and hints: the simulator runs one block at a time and has no caches."""


@ptx("createpolicy")
def _createpolicy(s: Statement) -> None:
    s.result(np.array([0], np.uint64))


@ptx("trap", "brkpt")
def _trap(s: Statement) -> None:
    raise SimtError("the kernel trapped")
