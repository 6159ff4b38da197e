"""`tl.inline_asm_elementwise`: assembly for the GPU that it is written for, its meaning everywhere else.

Where the target is no NVIDIA GPU the text is read, and each instruction becomes operations on the registers that it
names (`ptx.py` has the instructions). A register holds bits: what a float instruction has rounded stays rounded.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import tilewright.language.ptx as ptx
from tilewright.base import dtypes
from tilewright.base.dtypes import dtype, with_shape_of
from tilewright.base.errors import LanguageTypeError, LanguageValueError, UnsupportedError
from tilewright.ir.types import to_ir
from tilewright.ops.broadcast import broadcast_tensors, splat_to
from tilewright.ops.builtin import Emitter, builtin, to_tensor
from tilewright.ops.casts import bitcast_to, cast_to, dtype_hint
from tilewright.ops.functions.debug import assembly
from tilewright.ops.functions.operators import where
from tilewright.ops.functions.shape import join, reshape_to, split
from tilewright.ops.functions.target import is_cuda
from tilewright.ops.inline_assembly import (
    LETTER_BITS,
    Constraints,
    check_counts,
    check_text,
    parse_constraints,
    per_register,
    too_narrow,
)
from tilewright.ops.values import Element, Flag, Size, tensor, unwrap
from tilewright.ops.values import tuple as tl_tuple

_STATEMENT = re.compile(r"(?:@(!?)([\w%$.]+)\s+)?([a-z][\w.:]*)\s*(.*)", re.DOTALL)
_OPERAND = re.compile(r"\{[^}]*\}|[^,\s][^,]*")
_NUMBER = re.compile(r"(-?)(0[xX][\da-fA-F]+|0[bB][01]+|\d+)[uU]?")


@builtin
def inline_asm_elementwise(
    b: Emitter, asm: Any, constraints: Any, args: Any, dtype: Element, is_pure: Flag, pack: Size
) -> Any:
    """Inline PTX, element by element. A CPU computes what instructions on registers mean, and has no others.

    Args:
        asm: text of the instructions; `$0`, `$1`, ... are the results, then the operands.
        constraints: kinds of registers in that order, such as "=r,r,r" (r 32 bits, h 16, l 64, f float, d double).
        args: tensors, broadcast together; without any the result is a scalar.
        dtype: element type of the result, or a tuple of them.
        is_pure: no side effects.
        pack: elements that one execution takes; those narrower than 32 bits share registers.

    Returns:
        Tensor, or a tuple of them if `dtype` is one.

    Raises:
        UnsupportedError: an instruction that reads memory, branches or asks for its thread, on a CPU or interpreted.

    Example:
        >>> tl.inline_asm_elementwise("max.s32 $0, $1, 5;", "=r,r", [tl.arange(3, 7)], tl.int32, True, 1)
        [5 5 5 6]
    """
    if not isinstance(args, (tuple, list, tl_tuple)):
        raise LanguageTypeError(
            "tl.inline_asm_elementwise takes its operands as a list", hint="write [x], also for one"
        )
    operands = broadcast_tensors(b, *(to_tensor(b, arg) for arg in args))
    wanted = unwrap(dtype)
    kinds = list(wanted) if isinstance(wanted, (tuple, list, tl_tuple)) else [wanted]
    results = [with_shape_of(operands[0].type, kind) if operands else kind for kind in map(unwrap, kinds)]
    for kind in map(unwrap, kinds):
        if not isinstance(kind, dtypes.dtype):
            raise LanguageTypeError(
                f"tl.inline_asm_elementwise needs a data type such as tl.float32, not {kind!r}", hint=dtype_hint(kind)
            )
    text, letters, count = unwrap(asm), unwrap(constraints), int(unwrap(pack))
    if not isinstance(text, str) or not isinstance(letters, str):
        raise LanguageTypeError("assembly and constraints of tl.inline_asm_elementwise are strings")
    if is_cuda(b.target):
        made = assembly(b, text, letters, operands, results, pure=bool(unwrap(is_pure)), pack=count)
    else:
        made = _computed(b, text, parse_constraints(letters), operands, results, count)
    return made[0] if wanted is kinds[0] else tl_tuple(made)


def _computed(
    b: Emitter, text: str, constraints: Constraints, operands: Sequence[tensor], results: Sequence[Any], pack: int
) -> list[tensor]:
    """The results of assembly, made of operations."""
    check_counts(constraints, [to_ir(kind) for kind in results], [to_ir(x.type) for x in operands], pack)
    check_text(text, len(constraints.outputs) + len(constraints.inputs))
    registers = _Registers(b)
    given: list[tensor] = []
    for operand in operands:
        per = per_register(to_ir(operand.type), pack)
        elements = _elements(b, operand, pack)
        given += [_side_by_side(b, elements[i : i + per]) for i in range(0, pack, per)]
    for number, letter in enumerate(constraints.outputs):
        registers.bits[f"${number}"] = LETTER_BITS[letter]
    for number, value in enumerate(given):
        letter = constraints.input_letter(number)
        if value.dtype.primitive_bitwidth > LETTER_BITS[letter]:
            raise too_narrow(to_ir(value.type), letter)
        registers.declare(f"${len(constraints.outputs) + number}", LETTER_BITS[letter], value)
        if constraints.inputs[number].isdigit():
            registers.values[f"${constraints.inputs[number]}"] = value
    for statement in _statements(text):
        registers.run(statement)
    made, shape = [], operands[0].block_shape if operands else ()
    number = 0
    for kind in results:
        per, elements = per_register(to_ir(kind), pack), []
        for _ in range(0, pack, per):
            elements += _apart(b, registers, f"${number}", constraints.outputs[number], kind, per)
            number += 1
        made.append(_tile(b, elements, shape, kind))
    return made


# --- elements in registers ----------------------------------------------------------------------------------------


def _elements(b: Emitter, tile: tensor, pack: int) -> list[tensor]:
    """Every `pack`-th element from the first, the second, ... on; a tile of fewer has its last one again."""
    count = tile.numel.value if tile.block_shape else 1
    own = min(pack, count)
    if count % own:
        raise LanguageValueError(
            f"inline assembly takes pack={pack} elements at a time, which do not divide the {count} of its tiles"
        )
    if own == 1:
        return [tile] * pack
    found = _evens_and_odds(b, reshape_to(b, tile, (count // own, own)))
    return [found[min(i, own - 1)] for i in range(pack)]


def _evens_and_odds(b: Emitter, rows: tensor) -> list[tensor]:
    """The columns of a tile whose width is a power of two."""
    count, width = rows.block_shape
    if width == 1:
        return [reshape_to(b, rows, (count,))]
    evens, odds = (_evens_and_odds(b, half) for half in split.fn(b, reshape_to(b, rows, (count, width // 2, 2))))
    return [column for pair in zip(evens, odds, strict=True) for column in pair]


def _tile(b: Emitter, elements: Sequence[tensor], shape: Sequence[int], kind: Any) -> tensor:
    """The tile of which these are every n-th element."""
    size = dtypes.BlockType(unwrap(kind).scalar, tuple(shape)).numel if shape else 1
    own = elements[: min(len(elements), size)]
    while len(own) > 1:
        half = len(own) // 2
        own = [join.fn(b, own[i], own[i + half]) for i in range(half)]
    (whole,) = own
    if not shape:
        return whole if not whole.block_shape else reshape_to(b, whole, ())
    return reshape_to(b, whole, shape) if whole.block_shape else splat_to(b, whole, shape)


def _side_by_side(b: Emitter, elements: Sequence[tensor]) -> tensor:
    """Elements in one register, the first in its lowest bits."""
    bits = _raw(b, elements[0])
    if len(elements) == 1:
        return bits
    whole, width = dtype(f"uint{bits.dtype.primitive_bitwidth * len(elements)}"), bits.dtype.primitive_bitwidth
    result = cast_to(b, bits, whole)
    for number, element in enumerate(elements[1:], 1):
        moved = ptx.COMPUTED["shl"](b, cast_to(b, _raw(b, element), whole), _number(b, number * width, dtypes.uint32))
        result = ptx.COMPUTED["or"](b, result, moved)
    return result


def _apart(b: Emitter, registers: _Registers, name: str, letter: str, kind: Any, per: int) -> list[tensor]:
    """The elements of a result that share a register."""
    element = unwrap(kind).scalar
    width = 1 if element.is_bool() else element.primitive_bitwidth
    if name not in registers.values:
        raise LanguageValueError(f"inline assembly gives its result {name} no value")
    if LETTER_BITS[letter] < width * per:
        raise too_narrow(to_ir(element), letter)
    whole = registers.values[name]
    if element.is_bool():
        return [cast_to(b, whole, element)]
    raw = dtype(f"uint{width}")
    parts = [
        cast_to(b, ptx.COMPUTED["shr"](b, whole, _number(b, i * width, dtypes.uint32)) if i else whole, raw)
        for i in range(per)
    ]
    return [bitcast_to(b, part, element) for part in parts]


def _raw(b: Emitter, value: tensor) -> tensor:
    """The bits of a value."""
    if value.dtype.is_ptr():
        return cast_to(b, value, dtypes.uint64)
    if value.dtype.is_bool():
        return value
    return bitcast_to(b, value, dtype(f"uint{value.dtype.primitive_bitwidth}"))


def _number(b: Emitter, value: int, kind: dtype) -> tensor:
    return b.constant(value, kind)


# --- instructions ------------------------------------------------------------------------------------------------


def _statements(text: str) -> list[str]:
    """The instructions and declarations of assembly, without comments and the braces of blocks."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)
    text = re.sub(r"\$\{(\d+)\}", r"$\1", text)
    found = (part.strip().lstrip("{} \t\n") for part in text.split(";"))
    return [part for part in found if part.strip("{} \t\n")]


@dataclass(slots=True)
class _Registers:
    """What the registers of inline assembly hold, as unsigned integers or predicates.

    Fields: `bits` has the width of each register that is declared, `values` what has been written.
    """

    b: Emitter
    bits: dict[str, int] = field(default_factory=dict)
    values: dict[str, tensor] = field(default_factory=dict)

    def declare(self, name: str, bits: int, value: tensor) -> None:
        """A register that has a value before the assembly begins."""
        self.bits[name] = bits
        self.values[name] = self._fitted(value, bits)

    def run(self, statement: str) -> None:
        """Carry out one instruction or declaration."""
        if statement.startswith(".reg"):
            self._declared(statement)
            return
        found = _STATEMENT.fullmatch(statement)
        if found is None:
            self._refuse(statement)
        negated, guard, opcode, rest = found.groups()
        operands = [text.strip() for text in _OPERAND.findall(rest)]
        if any("[" in text for text in operands) or not operands:
            self._refuse(statement)
        before = dict(self.values)
        self._instruction(opcode, operands, statement)
        if guard:
            self._kept(self._register(guard, statement), bool(negated), before)

    def _declared(self, statement: str) -> None:
        kind, _, names = statement[4:].strip().partition(" ")
        element = ptx.TYPES.get(kind.lstrip("."))
        bits = 32 if kind.lstrip(".") in ptx.PAIRS else None if element is None else element.primitive_bitwidth
        if bits is None:
            self._refuse(statement)
        for name in (part.strip() for part in names.split(",")):
            stem, _, count = name.partition("<")
            for each in [f"{stem}{i}" for i in range(int(count.rstrip("> ")))] if count else [name]:
                self.bits[each] = bits

    def _kept(self, condition: tensor, negated: bool, before: dict[str, tensor]) -> None:
        """Undo what an instruction wrote where its guard does not hold."""
        for name, value in self.values.items():
            if before.get(name) is not value and name in before:
                sides = (before[name], value) if negated else (value, before[name])
                self.values[name] = where.fn(self.b, condition, *sides)

    def _instruction(self, opcode: str, operands: list[str], statement: str) -> None:
        base, *words = opcode.split(".")
        target, *sources = operands
        made = self._computed(base, words, sources, target, statement)
        if made is None:
            self._refuse(statement)
        self._write(target, made, statement)

    def _computed(self, base: str, words: list[str], sources: list[str], target: str, statement: str) -> Any:
        """What an instruction gives; None if it is not known."""
        kinds = [word for word in words if word in ptx.TYPES]
        rest = frozenset(words) - ptx.TYPES.keys()
        if base == "mov":
            return self._moved(words, sources, target, statement)
        if base == "cvt":
            return self._converted(words, sources, statement)
        if any(word in ptx.PAIRS for word in words):
            return self._by_halves(base, words, sources, statement)
        if not kinds:
            return None
        element = ptx.TYPES[kinds[-1]]
        if base == "setp" and len(words) == 2 and words[0] in ptx.COMPARISONS:
            x, y = (self._read(text, element, statement) for text in sources)
            return ptx.COMPARISONS[words[0]].fn(self.b, x, y)
        if base == "selp":
            x, y = (self._read(text, element, statement) for text in sources[:2])
            return where.fn(self.b, self._register(sources[2], statement), x, y)
        if base == "lop3":
            x, y, z = (self._read(text, dtypes.uint32, statement) for text in sources[:3])
            return ptx.logic(self.b, x, y, z, self._constant(sources[3], statement))
        if base == "shf" and len(words) == 3:
            low, high, by = (self._read(text, dtypes.uint32, statement) for text in sources)
            return ptx.funnel_shift(self.b, low, high, by, left=words[0] == "l", wraps=words[1] == "wrap")
        return self._row(base, rest, element, sources, statement)

    def _row(self, base: str, rest: ptx.Words, element: dtype, sources: list[str], statement: str) -> Any:
        """An instruction that computes all its operands alike."""
        compute = ptx.COMPUTED.get(base)
        if base == "div":
            compute = ptx.divide
        if base == "mul" and rest & {"wide", "hi"}:
            compute = ptx.multiply_wide if "wide" in rest else ptx.multiply_high
            rest -= {"wide", "hi"}
        if compute is None or rest - ptx.ROUNDING - {"ftz", "sat"} or (rest and element.is_int() and rest != {"lo"}):
            return None
        if base in ("sqrt", "rcp", "rsqrt") and element.is_int():
            return None
        kinds = ptx.OPERANDS.get(base, [""] * len(sources))
        values = [
            self._read(text, ptx.TYPES[kind] if kind else element, statement)
            for text, kind in zip(sources, kinds, strict=False)
        ]
        if "ftz" in rest:
            values = [ptx.flushed(self.b, value) for value in values]
        try:
            made = compute(self.b, *values)
        except TypeError:
            raise LanguageValueError(
                f"inline assembly gives {base} {len(values)} operands behind its result, and it takes another number: "
                f"{statement}"
            ) from None
        if "ftz" in rest:
            made = ptx.flushed(self.b, made)
        return ptx.saturated(self.b, made) if "sat" in rest else made

    def _by_halves(self, base: str, words: list[str], sources: list[str], statement: str) -> Any:
        (name,) = (word for word in words if word in ptx.PAIRS)
        compute, rest = ptx.COMPUTED.get(base), frozenset(words) - {name}
        if compute is None or rest - ptx.ROUNDING:
            return None
        wholes = [self._read(text, dtypes.uint32, statement) for text in sources]
        lows, highs = zip(*(ptx.halves_of(self.b, whole, name) for whole in wholes), strict=True)
        return ptx.pair_of(self.b, compute(self.b, *lows), compute(self.b, *highs))

    def _moved(self, words: list[str], sources: list[str], target: str, statement: str) -> Any:
        if len(words) != 1 or words[0] not in ptx.TYPES or len(sources) != 1:
            return None
        element, (source,) = ptx.TYPES[words[0]], sources
        if source.startswith("{"):
            parts = [self._register(name.strip(), statement) for name in source[1:-1].split(",")]
            share = element.primitive_bitwidth // len(parts)
            return _side_by_side(self.b, [self._fitted(part, share) for part in parts])
        if target.startswith("{"):
            names = target[1:-1].split(",")
            whole, share = self._read(source, element, statement), element.primitive_bitwidth // len(names)
            kind = dtype(f"uint{share}")
            shifts = [_number(self.b, i * share, dtypes.uint32) for i in range(len(names))]
            return [cast_to(self.b, ptx.COMPUTED["shr"](self.b, whole, by), kind) for by in shifts]
        return self._read(source, element, statement)

    def _converted(self, words: list[str], sources: list[str], statement: str) -> Any:
        if words[0] == "pack" and words[1] == "sat" and len(words) in (4, 5):
            target, source = ptx.TYPES.get(words[2]), ptx.TYPES.get(words[3])
            if target is None or source is None:
                return None
            high, low = (self._read(text, source, statement) for text in sources[:2])
            below = self._read(sources[2], dtypes.uint32, statement) if len(sources) == 3 else None
            return ptx.pack_saturated(self.b, high, low, below, target)
        if len(words) < 2:
            return None
        *rest, target_name, source_name = words
        given, source, target = frozenset(rest), ptx.TYPES.get(source_name), ptx.TYPES.get(target_name)
        if source_name in ptx.NARROW_PAIRS and target_name == "f16x2" and given <= {"rn"}:
            whole = self._read(sources[0], dtypes.uint16, statement)
            low, high = (cast_to(self.b, half, dtypes.float16) for half in ptx.halves_of(self.b, whole, source_name))
            return ptx.pair_of(self.b, low, high)
        if source is None and source_name == "f16x2" and len(sources) == 1:  # narrower ones of two halves
            whole = self._read(sources[0], dtypes.uint32, statement)
            low, high = ptx.halves_of(self.b, whole, source_name)
            return ptx.convert_pair(self.b, high, low, target_name, given)
        if source is None or (target is None and len(sources) != 2):
            return None
        values = [self._read(text, source, statement) for text in sources]
        if "ftz" in given and source is dtypes.float32:
            values, given = [ptx.flushed(self.b, value) for value in values], given - {"ftz"}
        if target is None:
            return ptx.convert_pair(self.b, values[0], values[1], target_name, given)
        if target_name == "tf32":
            return ptx.to_tf32(self.b, values[0], given)
        return ptx.convert(self.b, values[0], target, given)

    # -- operands -------------------------------------------------------------------------------------------------

    def _register(self, name: str, statement: str) -> tensor:
        if name not in self.values:
            raise LanguageValueError(f"inline assembly reads {name!r} before it has a value: {statement}")
        return self.values[name]

    def _read(self, text: str, element: dtype, statement: str) -> tensor:
        """An operand as a number of a type: a register's low bits, or what is written."""
        if text in self.bits:
            value = self._register(text, statement)
            if element.is_bool() or value.dtype.is_bool():
                return cast_to(self.b, value, element)
            return bitcast_to(self.b, self._fitted(value, element.primitive_bitwidth), element)
        bits = re.fullmatch(r"0[fFdD]([\da-fA-F]{8}|[\da-fA-F]{16})", text)
        if bits is not None:
            raw = bytes.fromhex(bits[1])
            return self.b.constant(struct.unpack(">f" if len(raw) == 4 else ">d", raw)[0], element)
        if element.is_floating():
            try:
                return self.b.constant(float(text), element)
            except ValueError:
                self._refuse(statement)
        number = self._constant(text, statement)
        width = element.primitive_bitwidth
        number %= 1 << width
        signed = element.is_int_signed() and number >> (width - 1)
        return self.b.constant(number - (1 << width) if signed else number, element)

    def _constant(self, text: str, statement: str) -> int:
        found = _NUMBER.fullmatch(text)
        if found is None:
            self._refuse(statement)
        digits = found[2]
        octal = digits[0] == "0" and digits.isdigit() and digits != "0"
        return int(digits, 8 if octal else 0) * (-1 if found[1] else 1)

    def _write(self, target: str, value: tensor | list[tensor], statement: str) -> None:
        names = [name.strip() for name in target[1:-1].split(",")] if target.startswith("{") else [target]
        values = value if isinstance(value, list) else [value]
        for name, each in zip(names, values, strict=True):
            if name == "_":
                continue
            if name not in self.bits:
                raise LanguageValueError(f"inline assembly writes {name!r}, which it does not declare: {statement}")
            self.values[name] = self._fitted(each, self.bits[name])

    def _fitted(self, value: tensor, bits: int) -> tensor:
        """The bits of a value in a register of that width; a signed number keeps its sign."""
        if bits == 1 or value.dtype.is_bool():
            return (
                value if bits == 1 and value.dtype.is_bool() else cast_to(self.b, value, dtype(f"uint{max(bits, 8)}"))
            )
        if value.dtype.is_int() and value.dtype.is_int_signed() and value.dtype.primitive_bitwidth < bits:
            value = cast_to(self.b, value, dtype(f"int{bits}"))
        return cast_to(self.b, _raw(self.b, value), dtype(f"uint{bits}"))

    def _refuse(self, statement: str) -> NoReturn:
        raise UnsupportedError(
            f"inline assembly is not available on {self.b.target.backend} but for instructions on registers, which "
            f"{' '.join(statement.split())!r} is not",
            hint="write the computation with tl operations, or guard it with `if tl.target_info.is_cuda():`",
        )


__all__ = ["inline_asm_elementwise"]
