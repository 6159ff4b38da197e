"""Scalar and lane-wise LLVM instructions as text, with the folding that keeps emitted text small.

`Emitter` owns the lines of one function under construction, fresh names and the current debug location. A Python
number may stand for either operand of a binary instruction; it becomes a literal of the other operand's type. Integer
instructions on literals and the neutral elements (`x + 0`, `x * 1`, `x & 0`) fold; floating-point ones never do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.backends.llvm.declarations import Declarations
from tilewright.backends.llvm.sums import Sums
from tilewright.backends.llvm.types import VOID, T, V, const, wrap_int

Operand = V | int | float


class Emitter:
    """Lines, names and debug location of one function, and its lane-wise instructions.

    Args:
        module: the module that the function belongs to.
    """

    def __init__(self, module: Declarations) -> None:
        self.module = module
        self._lines: list[str] = []
        self._count = 0
        self._dbg = ""
        # For GPUs it would only cost: there LLVM compares all sums that share an operand with each other.
        self._sums = Sums() if module.isa.arch != "nvptx64" else None
        self._casts: dict[str, V] = {}  # what a bitcast was made of

    # -- writing ---------------------------------------------------------------------------------

    def emit(self, t: T, text: str) -> V:
        """Append `%fresh = text` to the current block and return the value, of type `t`."""
        self._count = n = self._count + 1
        self._lines.append(f"  %v{n} = {text}{self._dbg}")
        return V(t, f"%v{n}")

    def effect(self, text: str) -> None:
        """Append an instruction without a result."""
        self._lines.append(f"  {text}{self._dbg}")

    def operands(self, a: Operand, b: Operand) -> tuple[V, V]:
        """Both operands as values; a Python number takes the type of the other."""
        if isinstance(a, V):
            return a, b if isinstance(b, V) else const(a.type, b)
        if isinstance(b, V):
            return const(b.type, a), b
        raise TypeError("one operand must be a value")

    def op(self, opcode: str, a: Operand, b: Operand, flags: str = "") -> V:
        """Binary instruction `opcode`; `flags` such as `"nsw"` or `"nnan nsz"`."""
        a, b = self.operands(a, b)
        if a.type is not b.type:
            raise TypeError(f"{opcode} of {a.type} and {b.type}")
        if a.const is not None or b.const is not None:
            folded = _fold(opcode, a, b)
            if folded is not None:
                return folded
        t = a.type
        sums = self._sums
        if flags or sums is None or not t.is_int:
            return self.emit(t, f"{opcode} {flags}{' ' if flags else ''}{t.text} {a.ref}, {b.ref}")
        plan = sums.plan(opcode, a, b)
        if plan is not None:
            left, right, constant = plan
            return self.op("add", self.op(opcode, left, right), constant)
        made = self.emit(t, f"{opcode} {t.text} {a.ref}, {b.ref}")
        sums.note(opcode, a, b, made)
        return made

    # -- integers ----------------------------------------------------------------------------------

    def add(self, a: Operand, b: Operand, flags: str = "") -> V:
        return self.op("add", a, b, flags)

    def sub(self, a: Operand, b: Operand, flags: str = "") -> V:
        return self.op("sub", a, b, flags)

    def mul(self, a: Operand, b: Operand, flags: str = "") -> V:
        return self.op("mul", a, b, flags)

    def and_(self, a: Operand, b: Operand) -> V:
        return self.op("and", a, b)

    def or_(self, a: Operand, b: Operand) -> V:
        return self.op("or", a, b)

    def xor(self, a: Operand, b: Operand) -> V:
        return self.op("xor", a, b)

    def not_(self, a: V) -> V:
        return self.op("xor", a, -1)

    def shl(self, a: Operand, b: Operand) -> V:
        return self.op("shl", a, b)

    def lshr(self, a: Operand, b: Operand) -> V:
        return self.op("lshr", a, b)

    def ashr(self, a: Operand, b: Operand) -> V:
        return self.op("ashr", a, b)

    def icmp(self, pred: str, a: Operand, b: Operand) -> V:
        """Integer or pointer comparison; gives `i1` with the lanes of the operands."""
        a, b = self.operands(a, b)
        if a.const is not None and b.const is not None:
            return const(T("i1", a.type.lanes), int(_compare(pred, int(a.const), int(b.const), a.type.bits)))
        return self.emit(T("i1", a.type.lanes), f"icmp {pred} {a.type.text} {a.ref}, {b.ref}")

    # -- floating point ------------------------------------------------------------------------------

    def fadd(self, a: Operand, b: Operand, flags: str = "") -> V:
        return self.op("fadd", a, b, flags)

    def fsub(self, a: Operand, b: Operand, flags: str = "") -> V:
        return self.op("fsub", a, b, flags)

    def fmul(self, a: Operand, b: Operand, flags: str = "") -> V:
        return self.op("fmul", a, b, flags)

    def fdiv(self, a: Operand, b: Operand, flags: str = "") -> V:
        return self.op("fdiv", a, b, flags)

    def fneg(self, a: V) -> V:
        return self.emit(a.type, f"fneg {a.typed}")

    def fcmp(self, pred: str, a: Operand, b: Operand, flags: str = "") -> V:
        """Float comparison (`oeq`, `ult`, ...); gives `i1` with the lanes of the operands."""
        a, b = self.operands(a, b)
        return self.emit(T("i1", a.type.lanes), f"fcmp {flags}{' ' if flags else ''}{pred} {a.typed}, {b.ref}")

    # -- anything -------------------------------------------------------------------------------------

    def select(self, cond: V, a: Operand, b: Operand) -> V:
        """`cond ? a : b`, lane by lane; a scalar `i1` chooses whole vectors."""
        a, b = self.operands(a, b)
        if cond.const is not None:
            return a if cond.const else b
        if a is b or a.ref == b.ref:
            return a
        if a.type.elem == "bfloat":  # without hardware support LLVM takes a detour through float that ends in a library
            words = [self.cast("bitcast", value, value.type.as_int) for value in (a, b)]
            chosen = self.select(cond, *words)
            return self.cast("bitcast", chosen, a.type)
        return self.emit(a.type, f"select {cond.typed}, {a.typed}, {b.typed}")

    def cast(self, opcode: str, a: V, to: T) -> V:
        """Conversion `opcode` (`trunc`, `sext`, `fptrunc`, `bitcast`, `ptrtoint`, ...) to `to` (lanes of `a` are kept).

        A conversion to the same type is the identity, and so are bits taken for another type and back; integer literals
        fold.
        """
        if to.lanes != a.type.lanes and opcode != "bitcast":
            to = to.vec(a.type.lanes)
        if to is a.type:
            return a
        if a.const is not None and opcode in ("trunc", "sext", "zext"):
            value = int(a.const)
            if opcode == "zext":
                value &= (1 << a.type.bits) - 1
            elif opcode == "sext" and a.type.bits == 1:  # a set i1 is stored as 1
                value = -value
            return const(to, value)
        if opcode != "bitcast":
            return self.emit(to, f"{opcode} {a.typed} to {to.text}")
        source = self._casts.get(a.ref)
        if source is not None and source.type is to:
            return source
        made = self.emit(to, f"bitcast {a.typed} to {to.text}")
        self._casts[made.ref] = a
        return made

    def call(self, name: str, ret: T, args: Sequence[V], *, flags: str = "", immargs: str = "") -> V:
        """Call `@name`, declaring it in the module if it is neither defined nor declared there.

        Args:
            name: symbol or intrinsic, without `@`.
            ret: type of the result; `VOID` for none (the returned value must then not be used).
            args: operands; literals are printed as such, so immediate arguments are just literals.
            flags: fast-math flags or `tail`-like prefixes are not told apart: put `"nnan"`, `"reassoc nsz"`, ...
            immargs: text appended to the argument list, such as metadata operands.
        """
        self.module.declare(name, ret, [arg.type for arg in args])
        text = f"call {flags}{' ' if flags else ''}{ret.text} @{name}({', '.join([a.typed for a in args])}{immargs})"
        if ret is VOID:
            self.effect(text)
            return V(VOID, "void")
        return self.emit(ret, text)


_IDENTITY_RIGHT = dict.fromkeys(("add", "sub", "or", "xor", "shl", "lshr", "ashr"), 0)
_IDENTITY_RIGHT |= {"mul": 1, "sdiv": 1, "udiv": 1, "and": -1}
_COMMUTATIVE = frozenset({"add", "mul", "and", "or", "xor"})


def _fold(opcode: str, a: V, b: V) -> V | None:
    """The folded result of an integer instruction with a literal operand, or None."""
    if not a.type.is_int:
        return None
    if a.const is not None and b.const is not None:
        evaluate = _EVALUATE.get(opcode)
        return None if evaluate is None else const(a.type, evaluate(int(a.const), int(b.const), a.type.bits))
    if a.const is not None and opcode in _COMMUTATIVE:
        a, b = b, a
    if b.const is None or opcode not in _IDENTITY_RIGHT:
        return None
    if b.const == wrap_int(_IDENTITY_RIGHT[opcode], b.type.bits):
        return a
    return b if b.const == 0 and opcode in ("mul", "and") else None


def _shift(evaluate: Callable[[int, int], int]) -> Callable[[int, int, int], int]:
    # A shift by the width or more is poison in LLVM; 0 is one of its permitted values.
    return lambda a, b, bits: evaluate(a, b) if 0 <= b < bits else 0


_EVALUATE: dict[str, Callable[[int, int, int], int]] = {
    "add": lambda a, b, _: a + b,
    "sub": lambda a, b, _: a - b,
    "mul": lambda a, b, _: a * b,
    "and": lambda a, b, _: a & b,
    "or": lambda a, b, _: a | b,
    "xor": lambda a, b, _: a ^ b,
    "shl": _shift(lambda a, b: a << b),
    "ashr": _shift(lambda a, b: a >> b),
    "lshr": lambda a, b, bits: (a & ((1 << bits) - 1)) >> b if 0 <= b < bits else 0,
}


def _compare(pred: str, a: int, b: int, bits: int) -> bool:
    if pred[0] == "u":
        a, b = a & ((1 << bits) - 1), b & ((1 << bits) - 1)
    if pred == "eq":
        return a == b
    if pred == "ne":
        return a != b
    return {"lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}[pred[1:]]
