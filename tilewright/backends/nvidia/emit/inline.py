"""Inline PTX, applied element by element; `ops/inline_assembly.py` says which elements share registers.

Constraints and operand numbers are checked here, as LLVM ends the process over those that it does not understand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.ir import SSAValue

from tilewright.backends.llvm.types import F32, F64, I1, I16, I32, I64, PTR, T, V
from tilewright.backends.nvidia.emit.context import Kernel, Tile, emits
from tilewright.backends.nvidia.emit.publish import publish, publish_bytes
from tilewright.backends.nvidia.plan.allocate import scratch
from tilewright.backends.nvidia.tgir.types import layout_of
from tilewright.ir.types import bit_width, element_type, shape_of
from tilewright.layouts.access import unique_registers
from tilewright.ops.debug import InlineAsmOp
from tilewright.ops.inline_assembly import (
    Constraints,
    check_counts,
    check_text,
    parse_constraints,
    per_register,
    too_narrow,
)

_LETTERS = {"r": I32, "h": I16, "l": I64, "f": F32, "d": F64, "b": I1}


@scratch(InlineAsmOp)
def inline_asm_scratch(op: InlineAsmOp) -> int:
    """Room for one result at a time, where threads that hold copies might see different ones."""
    return 0 if op.attr_values()["pure"] else max((publish_bytes(result) for result in op.results), default=0)


@emits(InlineAsmOp)
def emit_inline_asm(k: Kernel, op: InlineAsmOp) -> None:
    """The assembly once for every `pack` registers; what has effects may differ by thread, so the owner's counts."""
    attrs = op.attr_values()
    pack, constraints = int(attrs["packed_element"]), parse_constraints(attrs["constraints"])
    check_counts(constraints, op.result_types, op.operand_types, pack)
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
        per = per_register(operand.type, pack)
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
    per, t, f = per_register(result.type, pack), k.element(result), k.f
    for _ in range(0, pack, per):
        register = next(registers)
        group = T(f"i{per * t.bits}")
        if register.type.bits < group.bits:
            raise too_narrow(result.type, _letter(register.type))
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
        raise too_narrow(operand.type, letter)
    whole = f.cast("ptrtoint", value, I64) if value.type is PTR else f.cast("bitcast", value, bits)
    return f.cast("bitcast", f.cast("zext", whole, t.as_int), t)


def _letter(register: T) -> str:
    return next(letter for letter, t in _LETTERS.items() if t is register)
