"""Accesses to shared memory as `layouts.access` plans them: vectors, ldmatrix and stmatrix, and their addresses.

Elements are integers of 8 to 64 bits here (`as_integers`). A thread computes its part of the address once; what an
instruction adds is an immediate wherever its bits are disjoint from those of all threads, and one exclusive or for
each of the few other values:

    part = linear(lane, warp)
    a0 = @shared + part             st.shared.v4 [a0], ..      st.shared.v4 [a0 + 2048], ..
    a1 = @shared + (part ^ 64)      st.shared.v4 [a1], ..      st.shared.v4 [a1 + 2048], ..
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tilewright.backends.llvm.types import I1, I8, I32, PTR, VOID, T, V
from tilewright.backends.nvidia.emit.context import Kernel
from tilewright.layouts.access import Instruction, SharedAccess, immediate_offset
from tilewright.layouts.linear import LinearLayout

_WORD = 32  # bits
_POSITION = ("register", "lane", "warp", "block")

# --- elements -----------------------------------------------------------------------------------------


def integer_type(t: T) -> T:
    """The integers that stand for elements of type `t` on their way: i1 travels as a byte, a pointer as i64."""
    return I8 if t is I1 else t.as_int


def as_integers(k: Kernel, registers: Sequence[V]) -> list[V]:
    """Elements as integers of at least 8 bits."""
    opcode = {"i1": "zext", "ptr": "ptrtoint"}.get(registers[0].type.elem, "bitcast")
    return [k.f.cast(opcode, value, integer_type(value.type)) for value in registers]


def from_integers(k: Kernel, integers: Sequence[V], t: T) -> list[V]:
    """The inverse of `as_integers`, for elements of type `t`."""
    opcode = "trunc" if t is I1 else "inttoptr" if t is PTR else "bitcast"
    return [k.f.cast(opcode, value, t) for value in integers]


def join(k: Kernel, integers: Sequence[V]) -> V:
    """Integers side by side as one of up to 32 bits, the first lowest."""
    if len(integers) == 1:
        return integers[0]
    return k.f.cast("bitcast", k.f.vector(integers), T(f"i{integers[0].type.bits * len(integers)}"))


def part(k: Kernel, whole: V, t: T) -> list[V]:
    """The inverse of `join`: the integers of type `t` in `whole`."""
    count = whole.type.bits // t.bits
    return [whole] if count == 1 else k.f.elements(k.f.cast("bitcast", whole, t.vec(count)))


def _words(k: Kernel, integers: Sequence[V]) -> list[V]:
    """Integers packed into words of 32 bits, or as they are if they are no smaller (or too few)."""
    per = _WORD // integers[0].type.bits
    per = min(per, len(integers))
    return [join(k, integers[i : i + per]) for i in range(0, len(integers), per)] if per > 1 else list(integers)


def offsets_in(tile: LinearLayout, buffer: LinearLayout) -> LinearLayout:
    """(register, lane, warp, block) -> (offset): where a tile's elements lie in a buffer."""
    return tile.invert_and_compose(buffer).sublayout(list(_POSITION), ["offset"])


# --- accesses -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class Window:
    """A buffer as the threads reach it by one plan.

    Args:
        k: the kernel.
        base: address of the buffer.
        plan: how the threads access it.
        moved: what all offsets are exclusive-ored with (i32, in elements), if anything.
        moves: the bits that it may set.
    """

    k: Kernel
    base: V
    plan: SharedAccess
    moved: V | None = None
    moves: int = 0
    _starts: dict[int, V] = field(default_factory=dict)

    def store(
        self, registers: Sequence[V] | Mapping[int, V], instructions: Sequence[Instruction] | None = None
    ) -> None:
        """Write integers to the buffer.

        Args:
            registers: what the instructions take their registers from.
            instructions: some of the plan's; all, if not given.
        """
        k = self.k
        for instruction in self.plan.instructions if instructions is None else instructions:
            words = _words(k, [registers[r] for r in instruction.registers])
            address = self.address(instruction)
            if self.plan.kind == "vector":
                k.f.shared_store(k.f.vector(words) if len(words) > 1 else words[0], address)
            else:
                k.f.call(f"llvm.nvvm.st{self._matrix(len(words))}", VOID, (address, *words))

    def load(self, instructions: Sequence[Instruction] | None = None) -> Mapping[int, V]:
        """Read integers: register -> value, of some of the plan's instructions, or all."""
        made: dict[int, V] = {}
        for instruction in self.plan.instructions if instructions is None else instructions:
            made.update(zip(instruction.registers, self._load(instruction), strict=True))
        return made

    def _load(self, instruction: Instruction) -> list[V]:
        f, element = self.k.f, T(f"i{self.plan.element_bits}")
        address, count = self.address(instruction), len(instruction.registers)
        bits = count * element.bits
        if self.plan.kind == "vector":
            word = element if element.bits >= _WORD else T(f"i{min(bits, _WORD)}")
            number = bits // word.bits
            words = f.elements(f.shared_load(word.vec(number if number > 1 else 0), address))
        else:
            number = bits // _WORD
            name = f"llvm.nvvm.ld{self._matrix(number)}"
            made = f.call(name, I32 if number == 1 else T("{ " + ", ".join(["i32"] * number) + " }"), (address,))
            words = [made] if number == 1 else [f.extract_value(made, i, I32) for i in range(number)]
        return [value for word in words for value in part(self.k, word, element)]

    def _matrix(self, count: int) -> str:
        transposed = ".trans" if self.plan.kind == "matrix_transposed" else ""
        return f"matrix.sync.aligned.m8n8.x{count}{transposed}.b16.p3"

    def address(self, instruction: Instruction) -> V:
        """Where this thread's part of an access starts."""
        flipped, added = immediate_offset(self.plan, instruction, self.moves)
        unit = self.plan.element_bits // 8
        if flipped not in self._starts:
            address = self.plan.address
            columns = {dim: [unit * column for column in address.columns_of(dim)] for dim in ("lane", "warp")}
            place = self.k.f.xor(self.k.linear(columns), unit * flipped)
            if self.moved is not None:
                place = self.k.f.xor(place, self.k.f.mul(self.moved, unit))
            self._starts[flipped] = self.k.f.shared_at(self.base, place)
        return self.k.f.shared_at(self._starts[flipped], unit * added)


__all__ = ["Window", "as_integers", "from_integers", "integer_type", "join", "offsets_in", "part"]
