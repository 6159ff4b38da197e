"""Conversions inside a warp: the fewest shuffles that move a tile from one layout to another.

The source of destination (register d, lane l) is P(d, l), linear. In round k lane l receives register ``k ^ f(l)``,
with f linear and chosen so that all readers of a lane want one register of it (paper, section 5.4; here solved for f).

    registers of the source --pack--> words --select words by lane bits-->
    rounds: shuffle a word from lane  Q(lane) ^ constant
    --select again--> words --unpack--> registers of the destination
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tilewright.layouts import f2
from tilewright.layouts.access import unique_registers
from tilewright.layouts.linear import LinearLayout, log2

_WORD = 32  # bits that a shuffle moves


@dataclass(frozen=True, slots=True)
class Swap:
    """Threads that have one bit set exchange words w and ``w ^ words``; the others keep theirs.

    Args:
        dim: "lane", "warp" or "block".
        mask: the bit of that index, as a mask.
        words: what is exclusive-ored to the word index.
    """

    dim: str
    mask: int
    words: int


@dataclass(frozen=True, slots=True)
class Round:
    """One move of up to 32 bits per lane (words of 64 bits move in two halves).

    Args:
        lane_xor: exclusive-ored to the lane to read from.
        moves: (source word, destination word) of each word moved.
        shuffled: False if every lane reads its own words.
    """

    lane_xor: int
    moves: tuple[tuple[int, int], ...]
    shuffled: bool


@dataclass(frozen=True, slots=True)
class WarpPlan:
    """Moves of a conversion in which no warp needs another's elements.

    Args:
        source_words: the source registers that are packed into each word, first to last.
        before: swaps of the source words, in order.
        lanes: (lane, warp, block) -> (lane): where a lane reads, before a round's `lane_xor`.
        rounds: all moves; they fill every destination word.
        after: swaps of the destination words, in order.
        destination_words: the (unique) destination registers that each word unpacks to.
        copies: which of those registers each register of the destination is.
        element_bits: bits of an element.
    """

    source_words: tuple[tuple[int, ...], ...]
    before: tuple[Swap, ...]
    lanes: LinearLayout
    rounds: tuple[Round, ...]
    after: tuple[Swap, ...]
    destination_words: tuple[tuple[int, ...], ...]
    copies: tuple[int, ...]
    element_bits: int

    @property
    def butterfly(self) -> bool:
        """Every lane reads from ``lane ^ lane_xor``: shfl.sync.bfly, with no address to compute."""
        return _is_identity(self.lanes)

    @property
    def shuffles(self) -> int:
        """32-bit shuffle instructions of a warp."""
        return max(1, self.element_bits // _WORD) * sum(move.shuffled for move in self.rounds)

    @property
    def kind(self) -> Literal["register", "shuffle"]:
        """ "register" if nothing leaves its thread, else "shuffle"."""
        return "shuffle" if self.shuffles else "register"

    @property
    def registers(self) -> tuple[int, ...] | None:
        """Which source register each destination register is, if that is all there is to do."""
        if self.shuffles or self.before or self.after:
            return None
        table = {
            wanted: held
            for move in self.rounds
            for source, destination in move.moves
            for held, wanted in zip(self.source_words[source], self.destination_words[destination])
        }
        return tuple(table[copy] for copy in self.copies)

    @property
    def cost(self) -> float:
        """Cycles of a multiprocessor for one warp: a shuffle takes one, a select or byte permutation half of one."""
        words, packed = len(self.destination_words), len(self.destination_words[0]) - 1
        selects = max(1, self.element_bits // _WORD) * words * (len(self.before) + len(self.after))
        return self.shuffles + 0.5 * (selects + 2 * packed * words)


def plan_warp(source: LinearLayout, destination: LinearLayout, element_bits: int) -> WarpPlan | None:
    """The plan, or None if some warp needs elements that it does not hold (or copies are spread too oddly).

    With P = (reg, lane) parts, A = lane part of P on lanes, C = lane part of P on registers: if I + A = C f has a
    solution, reading is from ``lane ^ constant`` and ``2**dim ker C`` registers need no shuffle, which no plan can
    better; else f makes Q = A + C f as injective as the copies allow, and every register takes a shuffle, as it must
    because some lane holds nothing that it needs.

    Args:
        source, destination: (register, lane, warp, block) -> coordinates of one tile, each covering it.
        element_bits: bits of an element, 8 to 64; small ones are packed into words of 32.
    """
    wanted, copies = unique_registers(destination)
    problem = _Problem.of(source, wanted)
    if problem is None:
        return None
    paths = problem.from_own_lane() or problem.from_distinct_lanes()
    return None if paths is None else _build(problem, paths, copies, element_bits)


def stays_in_warp(source: LinearLayout, destination: LinearLayout) -> bool:
    """Whether every warp holds all the elements that it needs."""
    return _Problem.of(source, destination) is not None


@dataclass(frozen=True, slots=True)
class _Path:
    """What one bit of the lane (or warp) does: ``f`` to the destination register, and the source that results."""

    f: int
    source: int


@dataclass(frozen=True, slots=True)
class _Problem:
    """P on each input bit of the destination. A source point is an int: register bits below, lane bits above.

    Args:
        low: number of register bits of the source.
        registers, lanes: P of each bit.
        outer: (dim, mask, P) of each warp and block bit.
        copies: points that the source maps to zero: they may be added to any P.
        lane_dims: (dim, bits) of lane, warp, block.
    """

    low: int
    registers: tuple[int, ...]
    lanes: tuple[int, ...]
    outer: tuple[tuple[str, int, int], ...]
    copies: tuple[int, ...]
    lane_dims: tuple[tuple[str, int], ...]

    @staticmethod
    def of(source: LinearLayout, destination: LinearLayout) -> _Problem | None:
        """Solve source(P(x)) = destination(x) with the warp and block of x kept; None if that cannot be."""
        destination = destination.transpose(outs=list(source.out_sizes))
        tags, next_tag = {}, 1 << sum(width for _, width in source.outs)
        for dim, width in source.ins:
            for i in range(width if dim not in ("register", "lane") else 0):
                tags[dim, i] = next_tag
                next_tag <<= 1
        low = len(source.columns_of("register"))
        inside = [*source.columns_of("register"), *source.columns_of("lane")]
        own = (1 << len(inside)) - 1
        span = f2.Span([*inside, *(c | tags[d, i] for d, i in tags for c in source.columns_of(d)[i : i + 1])])
        copies = f2.kernel(inside)
        by_lane = f2.Span(copy >> low for copy in copies)
        found: dict[str, list[int]] = {}
        for dim, _ in destination.ins:
            found[dim] = []
            for i, column in enumerate(destination.columns_of(dim)):
                residue, members = span.reduce(column | tags.get((dim, i), 0))
                if residue:
                    return None
                point = members & own
                if dim == "register":  # the same lane, if there is a copy in it
                    point ^= f2.multiply(copies, by_lane.reduce(point >> low)[1])
                found[dim].append(point)
        outer = tuple(
            (d, 1 << i, p) for d, ps in found.items() if d not in ("register", "lane") for i, p in enumerate(ps)
        )
        lane_dims = tuple(pair for pair in destination.ins if pair[0] != "register")
        return _Problem(low, tuple(found["register"]), tuple(found["lane"]), outer, tuple(copies), lane_dims)

    @property
    def moves(self) -> tuple[int, ...]:
        """What can be added to a source: another register of the destination (f), or a copy."""
        return (*self.registers, *self.copies)

    def path(self, source: int, moves: int) -> _Path:
        """The path from `source` after some of `moves`, given as a mask."""
        return _Path(moves & (1 << len(self.registers)) - 1, source ^ f2.multiply(self.moves, moves))

    def from_own_lane(self) -> list[_Path] | None:
        """A path of each lane bit such that every lane reads itself in round 0; None if there is none."""
        span = f2.Span(move >> self.low for move in self.moves)
        paths = []
        for i, point in enumerate(self.lanes):
            residue, members = span.reduce(point >> self.low ^ 1 << i)
            if residue:
                return None
            paths.append(self.path(point, members))
        return paths

    def from_distinct_lanes(self) -> list[_Path] | None:
        """A path of each lane bit such that lanes read one lane only where they read one register of it, or None."""
        count = len(self.moves)
        # Lanes that hold what lane 0 holds read what it reads.
        relations = [r for r in f2.kernel([*self.moves, *self.lanes]) if r >> count]
        basis = [relation >> count for relation in relations]
        paths = [_Path(relation & (1 << len(self.registers)) - 1, 0) for relation in relations]
        # Others read different lanes by themselves, or sum up to something that only reads what `moves` could.
        others = f2.complement(basis, (1 << i for i in range(len(self.lanes))))
        span, pending = f2.Span(move >> self.low for move in self.moves), []
        for vector in others:
            point = f2.multiply(self.lanes, vector)
            residue, members = span.reduce(point >> self.low)
            span.add(point >> self.low)
            if residue:
                basis.append(vector)
                paths.append(_Path(0, point))
            else:
                pending.append(vector ^ f2.multiply(others, members >> count))
        # Those are told apart by their moves, as long as there are enough.
        taken = f2.Span()
        for vector in pending:
            point = f2.multiply(self.lanes, vector)
            tries = [self.path(point, moves) for moves in (0, *(1 << i for i in range(count)))]
            chosen = next((path for path in tries if path.source >> self.low not in taken), None)
            if chosen is None:
                return None
            taken.add(chosen.source >> self.low)
            basis.append(vector)
            paths.append(chosen)
        change = f2.inverse(basis, len(self.lanes))
        fs, sources = [path.f for path in paths], [path.source for path in paths]
        return [_Path(f2.multiply(fs, members), f2.multiply(sources, members)) for members in change]


def _build(problem: _Problem, paths: Sequence[_Path], copies: tuple[int, ...], element_bits: int) -> WarpPlan:
    low, own = problem.low, (1 << problem.low) - 1
    reads = [path.source >> low for path in paths]  # Q
    back = f2.generalized_inverse(reads, len(paths))
    send = f2.matmul([path.source & own for path in paths], back)  # register that a lane sends, by its own number
    before = [("lane", 1 << i, x) for i, x in enumerate(send)]
    after = [("lane", 1 << i, path.f) for i, path in enumerate(paths)]
    columns = list(reads)
    reachable = f2.Span(move >> low for move in problem.moves)
    for dim, mask, point in problem.outer:
        residue, members = reachable.reduce(point >> low)
        path = _Path(0, point) if residue else problem.path(point, members)
        lane = path.source >> low
        columns.append(lane)
        before.append((dim, mask, path.source & own ^ f2.multiply(send, lane)))
        after.append((dim, mask, path.f))
    lanes = LinearLayout(problem.lane_dims, (("lane", len(paths)),), tuple(columns))
    lane_xors = [point >> low for point in problem.registers]
    sources = [point & own ^ f2.multiply(send, point >> low) for point in problem.registers]
    still = _is_identity(lanes) and not any(lane_xors)
    packed = 0 if still else log2(max(1, _WORD // element_bits))
    words = _Words.of([x for _, _, x in before], [x for _, _, x in after], sources, f2.kernel(lane_xors), low, packed)
    groups: dict[int, list[tuple[int, int]]] = {}
    for word in range(1 << len(words.destination)):
        register = f2.multiply(words.destination, word)
        held = f2.Span(words.source).reduce(f2.multiply(sources, register))[1]
        groups.setdefault(f2.multiply(lane_xors, register), []).append((held, word))
    rounds: list[Round] = []
    for lane_xor, moves in groups.items():
        shuffled = bool(lane_xor) or not _is_identity(lanes)
        step = max(1, _WORD // (element_bits << len(words.packed))) if shuffled else len(moves)
        rounds += [Round(lane_xor, tuple(moves[i : i + step]), shuffled) for i in range(0, len(moves), step)]
    packed_from = [f2.multiply(sources, vector) for vector in words.packed]
    return WarpPlan(
        _members(words.source, packed_from),
        _swaps(before, words.source),
        lanes,
        tuple(rounds),
        _swaps(after, words.destination),
        _members(words.destination, words.packed),
        copies,
        element_bits,
    )


@dataclass(frozen=True, slots=True)
class _Words:
    """How registers are packed: `packed` are destination register masks of the elements of a word.

    Args:
        source, destination: register masks of the bits of a word index, on either side.
    """

    source: tuple[int, ...]
    destination: tuple[int, ...]
    packed: tuple[int, ...]

    @staticmethod
    def of(
        before: Sequence[int],
        after: Sequence[int],
        sources: Sequence[int],
        together: Sequence[int],
        low: int,
        most: int,
    ) -> _Words:
        """Pack early, so that swaps select words rather than elements.

        Registers may share a word if they come from one lane (`together`) and no swap, of either side, separates them:
        word indices must span all swaps, so what is packed is independent of those.

        Args:
            before, after: register masks of the swaps.
            sources: source register of each destination register bit.
            together: destination register masks that are read from one lane.
            low: number of source register bits.
            most: bits of the number of elements in a full word.
        """
        count = len(sources)
        swapped = [relation & (1 << count) - 1 for relation in f2.kernel([*sources, *f2.independent(before)])]
        fixed = f2.independent([*after, *swapped])
        packed = f2.complement(fixed, together)[:most]
        destination = fixed + f2.complement([*fixed, *packed], (1 << i for i in range(count)))
        reached = f2.independent([*before, *(f2.multiply(sources, vector) for vector in destination)])
        taken = [*reached, *(f2.multiply(sources, vector) for vector in packed)]
        source = reached + f2.complement(taken, (1 << i for i in range(low)))
        return _Words(tuple(source), tuple(destination), tuple(packed))


def _members(index: Sequence[int], packed: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    inside = [f2.multiply(packed, position) for position in range(1 << len(packed))]
    return tuple(tuple(f2.multiply(index, word) ^ member for member in inside) for word in range(1 << len(index)))


def _swaps(swaps: Sequence[tuple[str, int, int]], index: Sequence[int]) -> tuple[Swap, ...]:
    span = f2.Span(index)
    return tuple(Swap(dim, mask, span.reduce(registers)[1]) for dim, mask, registers in swaps if registers)


def _is_identity(lanes: LinearLayout) -> bool:
    width = lanes.outs[0][1]
    return all(column == (1 << i if i < width else 0) for i, column in enumerate(lanes.columns))
