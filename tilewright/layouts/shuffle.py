"""Conversions inside a warp: the fewest shuffles that move a tile from one layout to another.

The source of destination (register d, lane l) is P(d, l), linear. In round k lane l receives register ``k ^ f(l)``,
with f linear and chosen so that all readers of a lane want one register of it (paper, section 5.4; here solved for f).

    registers of the source --(exclusive-or of the register index by lane bits: selects)-->
    rounds: word of registers, shuffle from lane  Q(lane) ^ constant -->
    (selects again) --> registers of the destination
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.layouts import f2
from tilewright.layouts.access import unique_registers
from tilewright.layouts.linear import LinearLayout

_WORD = 32  # bits that a shuffle moves


@dataclass(frozen=True, slots=True)
class Swap:
    """Threads that have one bit set exchange registers r and ``r ^ registers``; the others keep theirs.

    Args:
        dim: "lane", "warp" or "block".
        mask: the bit of that index, as a mask.
        registers: what is exclusive-ored to the register index.
    """

    dim: str
    mask: int
    registers: int


@dataclass(frozen=True, slots=True)
class Round:
    """One move of up to a word per lane.

    Args:
        lane_xor: exclusive-ored to the lane to read from.
        moves: (source register, destination register) of each element of the word.
        shuffled: False if every lane reads its own registers.
    """

    lane_xor: int
    moves: tuple[tuple[int, int], ...]
    shuffled: bool


@dataclass(frozen=True, slots=True)
class WarpPlan:
    """Moves of a conversion in which no warp needs another's elements.

    Args:
        before: swaps of the source registers, in order.
        lanes: (lane, warp, block) -> (lane): where a lane reads, before a round's `lane_xor`.
        rounds: all moves; they fill registers 0 to n - 1 of the (unique) destination.
        after: swaps of those registers, in order.
        copies: which of them each register of the destination is.
        element_bits: bits of an element.
    """

    before: tuple[Swap, ...]
    lanes: LinearLayout
    rounds: tuple[Round, ...]
    after: tuple[Swap, ...]
    copies: tuple[int, ...]
    element_bits: int

    @property
    def butterfly(self) -> bool:
        """Every lane reads from ``lane ^ lane_xor``: shfl.sync.bfly, with no address to compute."""
        return _is_identity(self.lanes)

    @property
    def shuffles(self) -> int:
        """32-bit shuffle instructions of a warp."""
        words = max(1, self.element_bits // _WORD)
        return words * sum(move.shuffled for move in self.rounds)

    @property
    def kind(self) -> str:
        """ "register" if nothing leaves its thread, else "shuffle"."""
        return "shuffle" if self.shuffles else "register"

    @property
    def registers(self) -> tuple[int, ...] | None:
        """Which source register each destination register is, if that is all there is to do."""
        if self.shuffles or self.before or self.after:
            return None
        table = {destination: source for move in self.rounds for source, destination in move.moves}
        return tuple(table[copy] for copy in self.copies)

    @property
    def cost(self) -> float:
        """Cycles of a multiprocessor for one warp: a shuffle takes one, a select half of one."""
        words = max(1, self.element_bits // _WORD)
        moved = sum(len(move.moves) for move in self.rounds)
        packing = sum(len(move.moves) for move in self.rounds if move.shuffled and len(move.moves) > 1)
        return self.shuffles + 0.5 * (words * moved * (len(self.before) + len(self.after)) + packing)


def plan_warp(source: LinearLayout, destination: LinearLayout, element_bits: int) -> WarpPlan | None:
    """The plan, or None if some warp needs elements that it does not hold (or copies are spread too oddly).

    With P = (reg, lane) parts, A = lane part of P on lanes, C = lane part of P on registers: if I + A = C f has a
    solution, reading is from ``lane ^ constant`` and ``2**dim ker C`` registers need no shuffle, which no plan can
    better; else f makes Q = A + C f as injective as the copies allow, and every register takes a shuffle, as it must
    because some lane holds nothing that it needs.

    Args:
        source, destination: (register, lane, warp, block) -> coordinates of one tile, each covering it.
        element_bits: bits of an element; smaller ones are packed into words of 32.
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
    before = [Swap("lane", 1 << i, x) for i, x in enumerate(send)]
    after = [Swap("lane", 1 << i, path.f) for i, path in enumerate(paths)]
    columns = list(reads)
    reachable = f2.Span(move >> low for move in problem.moves)
    for dim, mask, point in problem.outer:
        residue, members = reachable.reduce(point >> low)
        path = _Path(0, point) if residue else problem.path(point, members)
        lane = path.source >> low
        columns.append(lane)
        before.append(Swap(dim, mask, path.source & own ^ f2.multiply(send, lane)))
        after.append(Swap(dim, mask, path.f))
    lanes = LinearLayout(problem.lane_dims, (("lane", len(paths)),), tuple(columns))
    groups: dict[int, list[tuple[int, int]]] = {}
    for register in range(1 << len(problem.registers)):
        point = f2.multiply(problem.registers, register)
        groups.setdefault(point >> low, []).append((point & own ^ f2.multiply(send, point >> low), register))
    rounds: list[Round] = []
    packed = max(1, _WORD // max(8, element_bits))
    for lane_xor, moves in groups.items():
        shuffled = bool(lane_xor) or not _is_identity(lanes)
        step = packed if shuffled else len(moves)
        rounds += [Round(lane_xor, tuple(moves[i : i + step]), shuffled) for i in range(0, len(moves), step)]
    used = (tuple(swap for swap in swaps if swap.registers) for swaps in (before, after))
    return WarpPlan(next(used), lanes, tuple(rounds), next(used), copies, element_bits)


def _is_identity(lanes: LinearLayout) -> bool:
    width = lanes.outs[0][1]
    return all(column == (1 << i if i < width else 0) for i, column in enumerate(lanes.columns))
