"""Inline PTX, applied element by element.

Assembly takes `pack` elements at a time. Elements narrower than 32 bits share registers, up to 32 bits of them:

    pack=4, int8:  asm("...", "=r,r")(bytes 0..3)   asm("...", "=r,r")(bytes 4..7)   ...

Constraints and operand numbers are checked here, as LLVM ends the process over those that it does not understand.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from xdsl.ir import SSAValue

from tilewright.backends.llvm.types import F32, F64, I1, I16, I32, I64, PTR, T, V
from tilewright.backends.nvidia.emit.context import Kernel, Tile, emits
from tilewright.backends.nvidia.emit.publish import publish, publish_bytes
from tilewright.backends.nvidia.plan.allocate import scratch
from tilewright.backends.nvidia.tgir.types import layout_of
from tilewright.base.errors import LanguageValueError
from tilewright.ir.types import bit_width, element_type, shape_of
from tilewright.layouts.access import unique_registers
from tilewright.ops.debug import InlineAsmOp

_LETTERS = {"r": I32, "h": I16, "l": I64, "f": F32, "d": F64, "b": I1}
_REFERENCE = re.compile(r"\$(\$|\d+|\{\d+\}|.|$)", re.DOTALL)


# --- constraints ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Constraints:
    """The constraint string of inline PTX, read.

    Args:
        outputs, inputs: letter of each register; an input that must be the register of an output is its number.
        text: as LLVM takes it.
    """

    outputs: tuple[str, ...]
    inputs: tuple[str, ...]
    text: str

    def input_letter(self, index: int) -> str:
        """The letter of an input, also of one that is tied to an output."""
        letter = self.inputs[index]
        return self.outputs[int(letter)] if letter.isdigit() else letter


def parse_constraints(text: str) -> Constraints:
    """Read a constraint string such as `"=r,=r,r,0,~{memory}"`.

    Raises:
        LanguageValueError: it has a constraint that PTX does not have, or outputs behind inputs.
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    outputs: list[str] = []
    inputs: list[str] = []
    for part in parts:
        letter = part.lstrip("=&")
        tied = letter.isdigit() and "=" not in part and int(letter) < len(outputs)
        if part.startswith("~{"):
            continue
        if letter not in _LETTERS and not tied:
            raise LanguageValueError(
                f"inline assembly has the constraint {part!r}, which PTX does not have",
                hint="operands are r (32 bits), h (16), l (64), f, d or b (predicate); results have = in front",
            )
        if "=" in part and inputs:
            raise LanguageValueError(f"in the constraints {text!r} a result stands behind an operand")
        (outputs if "=" in part else inputs).append(letter)
    return Constraints(tuple(outputs), tuple(inputs), ",".join(parts))


def check_text(asm: str, count: int) -> None:
    """Raise `LanguageValueError` where the assembly names an operand that is not there; `$$` is a dollar sign."""
    for found in _REFERENCE.finditer(asm):
        name = found[1].strip("{}")
        if name == "$":
            continue
        if not name.isdigit() or int(name) >= count:
            raise LanguageValueError(
                f"inline assembly names the operand {found[0]!r}; there are {count}, results first",
                hint="write $0, $1, ... for operands and $$ for a dollar sign",
            )


def _per_register(k: Kernel, value: SSAValue, pack: int) -> int:
    """Elements of `value` that share a register."""
    bits = k.element(value).bits
    return 1 if bits == 1 or bits >= 32 else min(pack, 32 // bits)


def _check_counts(k: Kernel, op: InlineAsmOp, constraints: Constraints, pack: int) -> None:
    if pack < 1 or pack & (pack - 1):
        raise LanguageValueError(f"pack of inline assembly must be a power of two, not {pack}")
    for kind, values, given in (
        ("results", op.results, constraints.outputs),
        ("operands", op.operands, constraints.inputs),
    ):
        needed = sum(pack // _per_register(k, value, pack) for value in values)
        if needed != len(given):
            raise LanguageValueError(
                f"inline assembly has constraints for {len(given)} {kind}; {_listed(values)} with pack={pack} "
                f"make {needed}",
                hint="elements narrower than 32 bits share registers, `pack` of them at most",
            )


def _listed(values: Sequence[SSAValue]) -> str:
    return ", ".join(str(element_type(value.type)) for value in values) or "none"


# --- inline assembly --------------------------------------------------------------------------------------


@scratch(InlineAsmOp)
def inline_asm_scratch(op: InlineAsmOp) -> int:
    """Room for one result at a time, where threads that hold copies might see different ones."""
    return 0 if op.attr_values()["pure"] else max((publish_bytes(result) for result in op.results), default=0)


@emits(InlineAsmOp)
def emit_inline_asm(k: Kernel, op: InlineAsmOp) -> None:
    """The assembly once for every `pack` registers; what has effects may differ by thread, so the owner's counts."""
    attrs = op.attr_values()
    pack, constraints = int(attrs["packed_element"]), parse_constraints(attrs["constraints"])
    _check_counts(k, op, constraints, pack)
    check_text(attrs["asm_string"], len(constraints.outputs) + len(constraints.inputs))
    tiles = [k.tile(operand) for operand in op.operands]
    count = max(map(len, tiles), default=1)
    made: list[Tile] = [[] for _ in op.results]
    for start in range(0, count, pack):
        chunks = [[tile[min(start + i, len(tile) - 1)] for i in range(pack)] for tile in tiles]
        for tile, values in zip(made, _run(k, op, constraints, chunks, pack), strict=True):
            tile += values
    for number, (result, tile) in enumerate(zip(op.results, made, strict=True)):
        if attrs["pure"] or not result.uses:
            k.set_like(result, tile[:count])
            continue
        if number and publish_bytes(result):
            k.f.barrier()  # the result before has been read
        chosen = dict.fromkeys(unique_registers(layout_of(result))[1]) if shape_of(result.type) else [0]
        k.set_like(result, publish(k, op, result, {r: tile[r] for r in chosen}))


def _run(k: Kernel, op: InlineAsmOp, constraints: Constraints, chunks: Sequence[Tile], pack: int) -> list[Tile]:
    """One execution: `pack` elements of each operand to `pack` elements of each result."""
    attrs = op.attr_values()
    args: Tile = []
    for operand, chunk in zip(op.operands, chunks, strict=True):
        per = _per_register(k, operand, pack)
        for i in range(0, pack, per):
            args.append(_to_register(k, chunk[i : i + per], constraints.input_letter(len(args)), operand))
    types = [_LETTERS[letter] for letter in constraints.outputs]
    made = iter(k.f.ptx(_escaped(attrs["asm_string"]), constraints.text, args, types, effect=not attrs["pure"]))
    return [list(_elements(k, result, made, pack)) for result in op.results]


def _escaped(asm: str) -> str:
    """Text as it stands in a string of LLVM IR."""
    return "".join(c if 32 <= ord(c) < 127 and c not in '"\\' else f"\\{ord(c):02X}" for c in asm)


def _elements(k: Kernel, result: SSAValue, registers: Iterator[V], pack: int) -> Iterator[V]:
    """The elements of a result from the registers that hold them."""
    per, t, f = _per_register(k, result, pack), k.element(result), k.f
    for _ in range(0, pack, per):
        register = next(registers)
        group = T(f"i{per * t.bits}")
        if register.type.bits < group.bits:
            raise _too_narrow(result, register.type)
        whole = f.cast("trunc", f.cast("bitcast", register, register.type.as_int), group)
        if t is PTR:
            yield f.cast("inttoptr", whole, PTR)
        else:
            yield from f.elements(f.cast("bitcast", whole, t.vec(per if per > 1 else 0)))


def _to_register(k: Kernel, elements: Sequence[V], letter: str, operand: SSAValue) -> V:
    """Elements side by side in a register of the kind `letter`."""
    f, t = k.f, _LETTERS[letter]
    value = f.vector(elements) if len(elements) > 1 else elements[0]
    bits = T(f"i{bit_width(element_type(operand.type)) * len(elements)}")
    if bits.bits > t.bits:
        raise _too_narrow(operand, t)
    whole = f.cast("ptrtoint", value, I64) if value.type is PTR else f.cast("bitcast", value, bits)
    return f.cast("bitcast", f.cast("zext", whole, t.as_int), t)


def _too_narrow(value: SSAValue, register: T) -> LanguageValueError:
    letter = next(letter for letter, t in _LETTERS.items() if t is register)
    return LanguageValueError(
        f"inline assembly has the constraint {letter!r} ({register.bits} bits) for {element_type(value.type)}",
        hint="32 bits are r or f, 64 bits are l or d",
    )


__all__ = ["Constraints", "check_text", "parse_constraints"]
