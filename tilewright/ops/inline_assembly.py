"""What constraints of inline PTX say, for every back end.

Assembly takes `pack` elements at a time. Elements narrower than 32 bits share registers, up to 32 bits of them:

    pack=4, int8:  asm("...", "=r,r")(bytes 0..3)   asm("...", "=r,r")(bytes 4..7)   ...
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import Attribute

from tilewright.base.errors import LanguageValueError
from tilewright.ir.types import bit_width, element_type

LETTER_BITS: dict[str, int] = {"r": 32, "h": 16, "l": 64, "f": 32, "d": 64, "b": 1}
_REFERENCE = re.compile(r"\$(\$|\d+|\{\d+\}|.|$)", re.DOTALL)


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
        if letter not in LETTER_BITS and not tied:
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


def per_register(kind: Attribute, pack: int) -> int:
    """Elements of a value of type `kind` that share a register."""
    bits = bit_width(element_type(kind))
    return 1 if bits == 1 or bits >= 32 else min(pack, 32 // bits)


def check_counts(
    constraints: Constraints, results: Sequence[Attribute], operands: Sequence[Attribute], pack: int
) -> None:
    """Raise `LanguageValueError` where values of these types do not fill the registers that the constraints name."""
    if pack < 1 or pack & (pack - 1):
        raise LanguageValueError(f"pack of inline assembly must be a power of two, not {pack}")
    for what, kinds, given in (
        ("results", results, constraints.outputs),
        ("operands", operands, constraints.inputs),
    ):
        needed = sum(pack // per_register(kind, pack) for kind in kinds)
        if needed != len(given):
            listed = ", ".join(str(element_type(kind)) for kind in kinds) or "none"
            raise LanguageValueError(
                f"inline assembly has constraints for {len(given)} {what}; {listed} with pack={pack} make {needed}",
                hint="write one for each register, results first and with =; elements narrower than 32 bits share "
                "registers, `pack` of them at most",
            )


def too_narrow(kind: Attribute, letter: str) -> LanguageValueError:
    """The error for a register that does not hold its elements."""
    return LanguageValueError(
        f"inline assembly has the constraint {letter!r} ({LETTER_BITS[letter]} bits) for {element_type(kind)}",
        hint="32 bits are r or f, 64 bits are l or d",
    )
