"""Blocks of a cluster that share the rows of a program: what each found goes to all others, by stores to their memory.

    entry                    arrive                            "I run"
    every exchange           wait                              all have read what was sent last, or run at all
                             st.shared::cluster to each        what this block found
                             arrive, wait                      all of it is there
                             load from the own memory
                             arrive                            "I have read it"
    end                      wait                              nobody sends to a block that is gone

Between exchanges one arrival is always open, so every way through the kernel arrives as often as it waits. The memory
that others write to serves exchanges alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xdsl.ir import Attribute

from tilewright.backends.llvm.types import I1, I32, VOID, V, const
from tilewright.backends.nvidia.arch import WARP
from tilewright.backends.nvidia.emit.context import Kernel
from tilewright.backends.nvidia.emit.partial import Partial
from tilewright.backends.nvidia.emit.scratch import Place
from tilewright.backends.nvidia.tgir.types import memory_bits
from tilewright.ir.types import element_type

_WORD = 4  # bytes
_WIDEST = 4  # words of one load


def enter(k: Kernel) -> None:
    """Tell the others that this block runs, and so has memory."""
    if k.team.blocks > 1:
        _arrive(k, ".relaxed")


def leave(k: Kernel) -> None:
    """Wait until no other block may send anything."""
    if k.team.blocks > 1:
        _wait(k)


def barrier(k: Kernel) -> None:
    """All threads of the program wait for each other; global memory written before is seen after."""
    _wait(k)
    _arrive(k)
    _wait(k)
    _arrive(k)


def _arrive(k: Kernel, how: str = "") -> None:
    k.f.call(f"llvm.nvvm.barrier.cluster.arrive{how}.aligned", VOID, ())


def _wait(k: Kernel) -> None:
    k.f.call("llvm.nvvm.barrier.cluster.wait.aligned", VOID, ())


# --- what is sent ---------------------------------------------------------------------------------------


def exchange_bytes(types: Sequence[Attribute], places: int, blocks: int) -> int:
    """Bytes of an exchange of partial results, one of each type for every place."""
    return sum(map(_words, types)) * places * blocks * _WORD


def _words(type_: Attribute) -> int:
    return max(1, memory_bits(element_type(type_)) // (8 * _WORD))


@dataclass(frozen=True, slots=True)
class Exchange:
    """Partial results of all blocks, in the memory of each.

    Word w of what block b found for place p is word (p * words + w) * blocks + b.

    Args:
        k: the kernel.
        types: of the values of a partial result.
        places: how many each block sends; a power of two.
    """

    k: Kernel
    types: Sequence[Attribute]
    places: int

    @property
    def _stride(self) -> int:
        """Bytes from one place to the next."""
        return exchange_bytes(self.types, 1, self.k.team.blocks)

    def send(self, partial_of: Callable[[Place], Partial]) -> None:
        """Send partial results to every block, own one included; call behind a barrier of the block.

        Args:
            partial_of: emits the partial result of a place.
        """
        k, f, blocks = self.k, self.k.f, self.k.team.blocks
        _wait(k)
        own = f.cast("ptrtoint", f.shared(k.exchange_room), I32)
        items, threads = self.places * blocks, WARP * k.num_warps
        for start in range(0, items, threads):
            item = f.add(k.thread, start)
            with f.if_(f.icmp("ult", item, items)):
                place = f.lshr(item, blocks.bit_length() - 1) if self.places > 1 else const(I32, 0)
                words = [word for value in partial_of(Place(place)).values for word in f.to_words(value)]
                to = f.and_(item, blocks - 1)
                (there,) = f.ptx("mapa.shared::cluster.u32 $0, $1, $2;", "=r,r,r", [own, to], [I32], effect=False)
                there = f.add(f.add(there, f.mul(place, self._stride)), f.shl(k.rank, 2))
                for number, word in enumerate(words):
                    offset = number * blocks * _WORD
                    f.ptx(f"st.shared::cluster.b32 [$0 + {offset}], $1;", "r,r,~{memory}", [there, word])
        _arrive(k)
        _wait(k)

    def received(self, place: Place) -> list[Partial]:
        """The partial results of all blocks for a place, in the order of the blocks."""
        f, blocks = self.k.f, self.k.team.blocks
        start = f.shared(self.k.exchange_room + place.constant * self._stride)
        base = f.shared_at(start, f.mul(place.part, self._stride))
        rows: list[list[V]] = [[] for _ in range(blocks)]
        at = 0
        for type_ in self.types:
            count, t = _words(type_), self.k.element(type_)
            words = [self._word(base, at + number) for number in range(count)]
            for block in range(blocks):
                rows[block].append(f.from_words([word[block] for word in words], t))
            at += count
        return [Partial(tuple(row), const(I1, 1)) for row in rows]

    def _word(self, base: V, number: int) -> list[V]:
        """A word of every block."""
        f, blocks = self.k.f, self.k.team.blocks
        wide, found = min(blocks, _WIDEST), []
        for first in range(0, blocks, wide):
            where = f.shared_at(base, (number * blocks + first) * _WORD)
            found += f.elements(f.shared_load(I32.vec(wide), where))
        return found

    def close(self) -> None:
        """Tell the others that everything has been read."""
        _arrive(self.k)
