"""The text of an LLVM module as instructions that `simt` can run: the subset that our emitters write, one per line.

Types are `Ty`; operands are `Local`, `Global`, `Offset` (a constant address expression) or numpy literals of shape (1,)
or (1, lanes). Integers are unsigned numpy numbers of the next size, i1 is bool, bfloat its bits, i128 Python numbers.
"""

from __future__ import annotations

import functools
import re
import struct
from dataclasses import dataclass, field

import numpy as np

_TOKEN = re.compile(
    r'c?"(?:[^"\\]|\\.)*"|[%@]"[^"]*"|[%@][\w.$-]+|![\w.]*|#\d+|-?0x[HRLKM]?[0-9A-Fa-f]+'
    r"|-?\d+\.\d*(?:e[+-]?\d+)?|-?\d+|[A-Za-z_][\w.]*|\.\.\.|[<>{}\[\](),=*:]"
)
_FLOATS = {"half": np.float16, "float": np.float32, "double": np.float64, "bfloat": np.uint16}
NOISE = 0xDB  # each byte of a value that is poison, or of memory that nobody wrote


@dataclass(frozen=True)
class Ty:
    """A scalar (`lanes` 0), a vector, an array (`elem` "[") or a struct (`elem` "{") with its `parts`."""

    elem: str
    lanes: int = 0
    space: int = 0
    parts: tuple[Ty, ...] = ()

    @functools.cached_property
    def bits(self) -> int:
        if self.elem == "ptr":
            return 64
        if self.elem[0] == "i":
            return int(self.elem[1:])
        return {"half": 16, "bfloat": 16, "float": 32, "double": 64}[self.elem]

    @functools.cached_property
    def bytes(self) -> int:
        if self.elem == "[":
            return self.lanes * self.parts[0].bytes
        if self.elem == "{":
            return sum(part.bytes for part in self.parts)
        return max(1, self.lanes) * ((self.bits + 7) // 8)

    @property
    def is_int(self) -> bool:
        return self.elem[0] == "i"

    @property
    def is_float(self) -> bool:
        return self.elem in _FLOATS

    @functools.cached_property
    def dtype(self) -> np.dtype:
        if self.elem in _FLOATS:
            return np.dtype(_FLOATS[self.elem])
        if self.bits == 1:
            return np.dtype(bool)
        size = next((size for size in (8, 16, 32, 64) if self.bits <= size), 0)
        return np.dtype(f"u{size // 8}") if size else np.dtype(object)


@dataclass(frozen=True)
class Local:
    name: str


@dataclass(frozen=True)
class Global:
    name: str


@dataclass(frozen=True)
class Offset:
    """A global and a number of bytes."""

    base: Global
    bytes: int


@dataclass(slots=True)
class Inst:
    """One instruction.

    Args:
        result: name of what it defines, "" for nothing.
        op: opcode; "asm" for inline PTX.
        type: of the result (of the stored value for a store, the compared one for a comparison).
        args: (type, operand) pairs.
        extra: what else the opcode needs: predicate, callee, labels, indices, alignment.
        text: the line.
    """

    result: str
    op: str
    type: Ty
    args: list
    extra: dict
    text: str


@dataclass
class Function:
    name: str
    params: list
    ret: Ty
    blocks: dict[str, list[Inst]] = field(default_factory=dict)


@dataclass
class Module:
    functions: dict[str, Function]
    globals: dict[str, tuple[Ty, bytes, int]]  # name -> (type, contents, address space)


VOID = Ty("void")
_WORDS_OF_VALUES = {"true", "false", "null", "zeroinitializer", "poison", "undef", "splat", "none"}
_FLAGS = {
    "nuw", "nsw", "exact", "disjoint", "nneg", "inbounds", "nusw", "fast", "nnan", "ninf", "nsz", "arcp", "contract",
    "afn", "reassoc", "tail", "musttail", "notail", "volatile", "samesign",
}  # fmt: skip
_PARAM_ATTRIBUTES = {
    "noundef",
    "nonnull",
    "noalias",
    "readonly",
    "writeonly",
    "signext",
    "zeroext",
    "immarg",
    "nocapture",
}


class Parser:
    """Recursive descent over the tokens of one line."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = _TOKEN.findall(text)
        self.at = 0

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def next(self) -> str:
        token = self.peek()
        self.at += 1
        return token

    def accept(self, *tokens: str) -> bool:
        if self.peek() in tokens:
            self.at += 1
            return True
        return False

    def expect(self, token: str) -> None:
        got = self.next()
        assert got == token, f"expected {token!r}, got {got!r} in: {self.text}"

    def flags(self) -> None:
        while self.peek() in _FLAGS:
            self.at += 1

    # -- types and values --------------------------------------------------------------------------------

    def type(self) -> Ty:
        token = self.next()
        if token == "<":
            lanes = int(self.next())
            self.expect("x")
            inner = self.type()
            self.expect(">")
            return Ty(inner.elem, lanes, inner.space)
        if token == "[":
            count = int(self.next())
            self.expect("x")
            inner = self.type()
            self.expect("]")
            return Ty("[", count, 0, (inner,))
        if token == "{":
            parts = []
            while not self.accept("}"):
                parts.append(self.type())
                self.accept(",")
            return Ty("{", 0, 0, tuple(parts))
        if token == "ptr" and self.peek() == "addrspace":
            return Ty("ptr", 0, self.address_space())
        return Ty(token)

    def address_space(self) -> int:
        self.expect("addrspace")
        self.expect("(")
        space = int(self.next())
        self.expect(")")
        return space

    def typed(self):
        """A type, attributes that do not matter here, and a value."""
        t = self.type()
        while self.peek() in _PARAM_ATTRIBUTES or self.peek() == "align":
            if self.next() == "align":
                self.next()
        return t, self.value(t)

    def value(self, t: Ty):
        token = self.next()
        if token[0] == "%":
            return Local(token[1:].strip('"'))
        if token[0] == "@":
            return Global(token[1:].strip('"'))
        if token == "getelementptr":
            return self.constant_address()
        if token in ("inttoptr", "addrspacecast", "bitcast"):
            self.expect("(")
            inner = self.typed()[1]
            self.expect("to")
            self.type()
            self.expect(")")
            return inner
        return self.literal(t, token)

    def constant_address(self) -> Offset:
        self.flags()
        self.expect("(")
        elem = self.type()
        self.expect(",")
        base = self.typed()[1]
        self.expect(",")
        index = int(self.typed()[1].view(np.int64 if self.tokens[self.at - 2] == "i64" else np.int32)[0])
        self.expect(")")
        return Offset(base, index * elem.bytes)

    def literal(self, t: Ty, token: str):
        lanes = max(1, t.lanes)
        if token == "splat":
            self.expect("(")
            element = self.typed()[1]
            self.expect(")")
            return np.repeat(element.reshape(1, 1), lanes, axis=1)
        if token in ("<", "["):
            elements = []
            while not self.accept(">", "]"):
                elements.append(self.typed()[1])
                self.accept(",")
            return np.concatenate([e.reshape(1, 1) for e in elements], axis=1)
        if token in ("zeroinitializer", "null", "none"):
            return zeros(t)
        if token in ("poison", "undef"):
            return noise(t)
        return scalar(t, token).reshape((1, 1) if t.lanes else (1,))


def zeros(t: Ty):
    """All bits zero."""
    if t.elem == "{":
        return tuple(zeros(part) for part in t.parts)
    return np.zeros((1, t.lanes) if t.lanes else 1, t.dtype)


def noise(t: Ty):
    """A value that nothing may depend on."""
    if t.elem == "{":
        return tuple(noise(part) for part in t.parts)
    if t.dtype == object or t.dtype == bool:
        return np.full((1, t.lanes) if t.lanes else 1, 1, t.dtype)
    pattern = np.full(t.dtype.itemsize, NOISE, np.uint8).view(t.dtype)
    return np.repeat(pattern.reshape(1, 1), t.lanes, axis=1) if t.lanes else pattern


def scalar(t: Ty, token: str) -> np.ndarray:
    """A literal of a scalar type, shape (1,)."""
    if token in ("true", "false"):
        return np.array([token == "true"])
    if t.is_float:
        if token.startswith("0xH"):
            return np.array([int(token[3:], 16)], np.uint16).view(np.float16)
        if token.startswith("0xR"):
            return np.array([int(token[3:], 16)], np.uint16)
        number = struct.unpack("<d", struct.pack("<Q", int(token, 16)))[0] if "x" in token else float(token)
        if t.elem == "bfloat":
            return (np.array([number], np.float32).view(np.uint32) >> 16).astype(np.uint16)
        return np.array([number]).astype(t.dtype)
    if t.bits == 1:
        return np.array([bool(int(token))])
    return np.array([int(token, 0) & (1 << t.bits) - 1], t.dtype)


# --- instructions ---------------------------------------------------------------------------------------


def parse_instruction(line: str) -> Inst:
    """One line of a function body."""
    text = re.sub(r"(, ![\w.]+ !\d+)+$", "", line.strip())
    p = Parser(text)
    result = ""
    if p.peek()[:1] == "%" and p.tokens[1:2] == ["="]:
        result = p.next()[1:].strip('"')
        p.expect("=")
    op = p.next()
    while op in ("tail", "musttail", "notail"):
        op = p.next()
    t, args, extra = _PARSERS.get(op, _parse_binary)(p)
    return Inst(result, extra.pop("op", op), t, args, extra, text)


def _parse_binary(p: Parser):
    p.flags()
    t, first = p.typed()
    args = [(t, first)]
    while p.accept(","):
        args.append((t, p.value(t)))
    return t, args, {}


def _parse_compare(p: Parser):
    p.flags()
    predicate = p.next()
    t, args, _ = _parse_binary(p)
    return t, args, {"predicate": predicate}


def _parse_cast(p: Parser):
    p.flags()
    source = p.typed()
    p.expect("to")
    return p.type(), [source], {}


def _parse_list(p: Parser):
    p.flags()
    args = [p.typed()]
    while p.accept(","):
        args.append(p.typed())
    return args[0][0], args, {}


def _parse_select(p: Parser):
    _, args, _ = _parse_list(p)
    return args[1][0], args, {}


def _parse_extract(p: Parser):
    t, args, _ = _parse_list(p)
    return Ty(t.elem, 0, t.space), args, {}


def _parse_field(p: Parser):
    t, value = p.typed()
    args = [(t, value)]
    while p.accept(",") and not p.peek().isdigit():
        args.append(p.typed())
    return t, args, {"index": int(p.next())}


def _parse_load(p: Parser):
    extra = {"atomic": p.accept("atomic")}
    p.flags()
    t = p.type()
    p.expect(",")
    return t, [p.typed()], extra | _tail(p)


def _parse_store(p: Parser):
    extra = {"atomic": p.accept("atomic")}
    p.flags()
    value = p.typed()
    p.expect(",")
    return value[0], [value, p.typed()], extra | _tail(p)


def _tail(p: Parser) -> dict:
    while p.peek():
        if p.next() == "align":
            return {"align": int(p.next())}
    return {"align": 1}


def _parse_address(p: Parser):
    p.flags()
    elem = p.type()
    args = []
    while p.accept(","):
        args.append(p.typed())
    lanes = max(t.lanes for t, _ in args)
    return Ty("ptr", lanes, args[0][0].space), args, {"elem": elem}


def _parse_alloca(p: Parser):
    elem, count = p.type(), 1
    while p.accept(","):
        if p.peek() == "align":
            break
        count = int(p.typed()[1][0])
    return Ty("ptr"), [], {"bytes": elem.bytes * count}


def _parse_phi(p: Parser):
    t, args, labels = p.type(), [], []
    while not args or p.accept(","):
        p.expect("[")
        args.append((t, p.value(t)))
        p.expect(",")
        labels.append(p.next()[1:])
        p.expect("]")
    return t, args, {"labels": labels}


def _parse_branch(p: Parser):
    if p.accept("label"):
        return VOID, [], {"labels": [p.next()[1:]]}
    condition, labels = p.typed(), []
    while p.accept(","):
        p.expect("label")
        labels.append(p.next()[1:])
    return VOID, [condition], {"labels": labels}


def _parse_switch(p: Parser):
    value = p.typed()
    p.expect(",")
    p.expect("label")
    labels, cases = [p.next()[1:]], []
    p.expect("[")
    while not p.accept("]"):
        cases.append(p.typed()[1])
        p.expect(",")
        p.expect("label")
        labels.append(p.next()[1:])
    return VOID, [value], {"labels": labels, "cases": cases}


def _parse_return(p: Parser):
    if p.accept("void"):
        return VOID, [], {}
    value = p.typed()
    return value[0], [value], {}


def _parse_call(p: Parser):
    p.flags()
    ret = p.type()
    if p.accept("asm"):
        while p.accept("sideeffect", "alignstack", "inteldialect"):
            pass
        text = p.next()[1:-1]
        p.expect(",")
        extra = {"op": "asm", "asm": text, "constraints": p.next()[1:-1]}
    else:
        extra = {"callee": p.next()[1:].strip('"')}
    p.expect("(")
    args = []
    while not p.accept(")"):
        if p.peek() == "metadata":
            p.at += 2
        else:
            args.append(p.typed())
        p.accept(",")
    return ret, args, extra


def _parse_atomic(p: Parser):
    p.flags()
    operation = p.next() if p.peek() != "ptr" else ""
    _, args, _ = _parse_list(p)
    return args[1][0], args, {"operation": operation}


_PARSERS = {
    "icmp": _parse_compare, "fcmp": _parse_compare, "select": _parse_select, "load": _parse_load,
    "store": _parse_store, "getelementptr": _parse_address, "alloca": _parse_alloca, "phi": _parse_phi,
    "br": _parse_branch, "switch": _parse_switch, "ret": _parse_return, "call": _parse_call,
    "extractelement": _parse_extract, "insertelement": _parse_list, "shufflevector": _parse_list,
    "extractvalue": _parse_field, "insertvalue": _parse_field, "atomicrmw": _parse_atomic, "cmpxchg": _parse_atomic,
    "unreachable": lambda p: (VOID, [], {}), "fence": lambda p: (VOID, [], {}),
}  # fmt: skip
_PARSERS |= dict.fromkeys(
    "trunc zext sext bitcast fptrunc fpext fptosi fptoui sitofp uitofp ptrtoint inttoptr addrspacecast".split(),
    _parse_cast,
)


# --- modules --------------------------------------------------------------------------------------------


def parse_module(text: str) -> Module:
    """All functions and globals of a module."""
    module = Module({}, {})
    function, block = None, []
    named = dict(re.findall(r"^(%[\w.]+) = type (.*)$", text, re.MULTILINE))
    text = re.sub(r"^%[\w.]+ = type .*\n", "", text, flags=re.MULTILINE)
    if named:
        text = re.sub("|".join(rf"{re.escape(name)}\b" for name in named), lambda found: named[found[0]], text)
    for line in text.splitlines():
        stripped = line.strip()
        if function is not None:
            if stripped == "}":
                function = None
            elif re.fullmatch(r'[\w.$"-]+:.*', stripped):
                block = function.blocks[stripped.split(":")[0].strip('"')] = []
            elif stripped and not stripped.startswith(";"):
                if not function.blocks:
                    block = function.blocks["entry"] = []
                block.append(parse_instruction(stripped))
        elif stripped.startswith("define"):
            function = _parse_header(stripped)
            module.functions[function.name] = function
        elif stripped.startswith("@"):
            _parse_global(stripped, module)
    return module


def _parse_header(line: str) -> Function:
    head, _, rest = line.partition("@")
    ret = Parser(head.removeprefix("define")).tokens
    p = Parser("@" + rest)
    name = p.next()[1:].strip('"')
    p.expect("(")
    params = []
    while not p.accept(")"):
        t = p.type()
        while p.peek()[:1] != "%":
            p.at += 1
        params.append((t, p.next()[1:]))
        p.accept(",")
    types = [word for word in ret if word not in ("internal", "ptx_kernel", "private", "hidden")]
    return Function(name, params, Parser(" ".join(types)).type())


def _parse_global(line: str, module: Module) -> None:
    p = Parser(line)
    name = p.next()[1:].strip('"')
    space = 0
    while p.peek() not in ("global", "constant"):
        if p.peek() == "addrspace":
            space = p.address_space()
        else:
            p.next()
    p.next()
    t = p.type()
    token = p.peek()
    if token.startswith('c"'):
        raw = re.sub(r"\\([0-9A-Fa-f]{2})", lambda m: chr(int(m[1], 16)), token[2:-1]).encode("latin-1")
    elif token == "[":
        raw = p.literal(t, p.next()).tobytes()
    else:
        raw = bytes(t.bytes)
    module.globals[name] = (t, raw, space)
