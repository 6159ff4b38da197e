"""Which subscripts are proved to stay inside their tensors: what is proved needs no mask.

The range of an index is computed from what it is made of: indices of loops run from the loop's first to its last,
positions count the lanes of a tile, and sums, products, quotients and remainders of such are between theirs. Of lanes
that a mask of the loop cuts off nothing is said. A bound is a number or a symbol of the host; where several are known
(`min(begin + block, n)`), any of them may be the one that proves something.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch

from tilewright.hl.graph.nodes import Node, Region, Subscript, Value, walk
from tilewright.hl.passes.decide import Decision
from tilewright.hl.passes.proofs import at_most
from tilewright.hl.rows.creation import Convert, Fill
from tilewright.hl.rows.shapes import View
from tilewright.hl.rows.table import ROWS
from tilewright.hl.symbols import Atom, Sym, at_least_zero, same, substitute

_MOST = 4  # bounds that are kept of one value
_SIZE = re.compile(r".*\.size\(\d+\)$")
_ACCESSES = ("load", "store")


@dataclass(frozen=True)
class Range:
    """Bounds of a value: it is at least each of `low` and at most each of `high`."""

    low: tuple[Any, ...] = ()
    high: tuple[Any, ...] = ()

    @staticmethod
    def of(low: Iterable[Any], high: Iterable[Any]) -> Range:
        """A range with no more bounds than are kept."""
        return Range(tuple(itertools.islice(low, _MOST)), tuple(itertools.islice(high, _MOST)))

    @property
    def constant(self) -> int | None:
        """The number that the value is, if it is one."""
        only = self.only
        return None if only is None or isinstance(only, Sym) else int(only)

    @property
    def only(self) -> Any:
        """The number or symbol that the value is, if it is one."""
        known = bool(self.low and self.high) and same(self.low[0], self.high[0])
        return self.low[0] if known else None

    def plus(self, other: Range) -> Range:
        """The range of a sum."""
        return Range.of((a + b for a in self.low for b in other.low), (a + b for a in self.high for b in other.high))

    def times(self, factor: int) -> Range:
        """The range of a multiple."""
        low, high = (self.low, self.high) if factor >= 0 else (self.high, self.low)
        return Range(tuple(one * factor for one in low), tuple(one * factor for one in high))


def prove_bounds(region: Region, decision: Decision) -> None:
    """Write into every subscript which of its ends are proved to be inside the tensor."""
    ranges = Ranges(region, decision)
    for node in walk(region):
        if node.op in _ACCESSES or node.op.startswith("atomic_"):
            tensor, entries, *rest = node.args
            proved = [replace(entry, inside=_inside(ranges, decision, entry)) for entry in entries]
            node.args = (tensor, proved, *rest)


def _inside(ranges: Ranges, decision: Decision, entry: Subscript) -> tuple[bool, bool]:
    """(whether every index is at least 0, whether every index is below the extent)."""
    if entry.kind == "slice":
        clipped = type(entry.what) is int and entry.what >= 0  # when the kernel was traced
        return clipped, clipped
    if entry.kind == "tile":
        axis, offset = decision.axes[entry.what], entry.offset
        if isinstance(axis.begin, Value) or isinstance(axis.end, Value):  # bounds that are data are taken as given
            given = type(offset) is int and offset == 0
            return given, given
        return at_least_zero(axis.begin + offset), at_most(axis.end, entry.extent - offset)
    found = ranges.of(entry.what)
    extent = substitute(entry.extent, decision.number)
    return any(map(_not_negative, found.low)), any(_not_negative(extent - 1 - high) for high in found.high)


def _not_negative(value: Any) -> bool:
    """Whether a number or symbol of the host is at least 0 whatever the call; integer arguments may be negative."""
    if not isinstance(value, Sym):
        return bool(value >= 0)
    least = [(factor, _least(atom)) for atom, factor in value.terms.items()]
    known = [factor * one for factor, one in least if factor > 0 and one is not None]
    return len(known) == len(least) and value.constant + sum(known) >= 0


def _least(atom: Atom) -> int | None:
    """The smallest number that an atom may be, as far as that is known: sizes of 0 and 1 are no symbols."""
    if atom.kind == "host":
        return 2 if _SIZE.match(atom.text) else None
    made_of_sizes = all(not isinstance(arg, Value) and _not_negative(arg) for arg in atom.args)
    return 0 if atom.kind == "op" and made_of_sizes else None


def _below(left: Any, right: Any) -> bool:
    """Whether `left <= right` whatever the call."""
    return _not_negative(right - left)


class Ranges:
    """The ranges of the integers of a region.

    Args:
        region: the region, with those inside it.
        decision: the configuration.
    """

    def __init__(self, region: Region, decision: Decision) -> None:
        self._decision = decision
        self._makers = {out.id: node for node in walk(region) for out in node.outs}
        self._known: dict[int, Range] = {}

    def of(self, value: Any) -> Range:
        """The range of a value, number or symbol."""
        if isinstance(value, Sym):
            return self._symbol(value)
        if isinstance(value, bool | int):
            return Range((int(value),), (int(value),))
        if not isinstance(value, Value) or value.dtype.is_floating_point or value.dtype.is_complex:
            return Range()
        if value.id not in self._known:
            self._known[value.id] = Range()  # of what depends on itself
            node = self._makers.get(value.id)
            found = self._made(node) if node is not None else Range()
            self._known[value.id] = found if found.low or found.high else _of_type(value.dtype)
        return self._known[value.id]

    # --- symbols ---------------------------------------------------------------------------------------

    def _symbol(self, value: Any) -> Range:
        value = substitute(value, self._decision.number)
        if not isinstance(value, Sym):
            return self.of(value)
        total = Range((value.constant,), (value.constant,))
        for atom, factor in value.terms.items():
            total = total.plus(self._atom(atom).times(factor))
        return total

    def _atom(self, atom: Atom) -> Range:
        if atom.kind == "host":
            return Range((Sym.of(atom),), (Sym.of(atom),))
        if atom.kind == "op":
            return self._operation(str(atom.key), [self.of(arg) for arg in atom.args])
        if atom.kind == "begin":
            return self._axis(int(atom.key))
        if atom.kind == "valid":
            return Range((1,), (self._decision.block(self._decision.axes[int(atom.key)]),))
        return Range()

    def _axis(self, ident: int) -> Range:
        """The range of a loop's indices."""
        axis = self._decision.axes[ident]
        return Range(self.of(axis.begin).low, tuple(end - 1 for end in self.of(axis.end).high))

    def _operation(self, op: str, args: list[Range]) -> Range:
        if op == "*":
            left, right = args
            if left.constant is not None:
                left, right = right, left
            return Range() if right.constant is None else left.times(right.constant)
        if op == "//":
            return _quotient(*args)
        if op == "%":
            return _remainder(*args)
        if op == "min":
            lows = ((a if _below(a, b) else b) for a, b in itertools.product(*(arg.low for arg in args)))
            known = (low for low in lows if all(any(_below(low, one) for one in arg.low) for arg in args))
            return Range.of(known, itertools.chain(*(arg.high for arg in args)))
        if op == "max":
            highs = ((b if _below(a, b) else a) for a, b in itertools.product(*(arg.high for arg in args)))
            known = (high for high in highs if all(any(_below(one, high) for one in arg.high) for arg in args))
            return Range.of(itertools.chain(*(arg.low for arg in args)), known)
        return Range()

    # --- values ------------------------------------------------------------------------------------------

    def _made(self, node: Node) -> Range:
        if node.op == "tile_index":
            return self._axis(node.args[0])
        if node.op == "lanes":
            lanes = self._decision.lanes(node.out.dims[0])
            size = lanes if isinstance(lanes, int) else node.out.dims[0].size()
            return Range((0,), (size - 1,))
        if node.op == "part":
            count, behind, size = node.args
            whole = _quotient(self.of(count), self.of(behind))
            return whole if size is None else _remainder(whole, self.of(size))
        if node.op in _OPERATIONS:
            if any(word not in ("alpha", "rounding_mode") for word in node.kwargs) or node.kwargs.get("alpha", 1) != 1:
                return Range()
            return _OPERATIONS[node.op](self, *map(self.of, node.args))
        row = ROWS.get(node.op)
        if isinstance(row, Fill):
            return self.of(row.value if row.value is not None else node.args[0])
        if isinstance(row, View | Convert) or node.op in ("sym", "mask_to"):
            return self.of(node.args[0])
        return Range()

    def operation(self, op: str, *args: Range) -> Range:
        """The range of an operation on symbols, for values."""
        return self._operation(op, list(args))


def _quotient(left: Range, right: Range) -> Range:
    divisor = right.constant
    if divisor is not None and divisor > 0:
        return Range(tuple(one // divisor for one in left.low), tuple(one // divisor for one in left.high))
    if isinstance(right.only, Sym):  # of sizes: a product divided by one
        divisor = right.only
        exact = (one + 1 for one in left.high if isinstance(one, Sym) and (one + 1).is_multiple(divisor))
        low = (0,) if any(map(_not_negative, left.low)) and _not_negative(divisor) else ()
        return Range.of(low, (one // divisor - 1 for one in exact))
    return Range()


def _remainder(left: Range, right: Range) -> Range:
    divisors = [one for one in right.high if any(map(_not_negative, right.low))]
    inside = any(map(_not_negative, left.low))
    return Range.of(
        (0,) if divisors else (), [*(one - 1 for one in divisors), *(left.high if inside and divisors else ())]
    )


def _masked(left: Range, right: Range) -> Range:
    """The range of `left & right`: bits of a number that is not negative."""
    masks = [one.constant for one in (left, right) if one.constant is not None and one.constant >= 0]
    return Range((0,), tuple(masks)) if masks else Range()


def _of_type(dtype: torch.dtype) -> Range:
    """What the type says, where that is little."""
    if dtype == torch.bool:
        return Range((0,), (1,))
    info = torch.iinfo(dtype)
    return Range((int(info.min),), (int(info.max),)) if info.bits <= 16 else Range((0,) if info.min == 0 else ())


def _either(self: Ranges, _: Range, left: Range, right: Range) -> Range:
    low, high = self.operation("min", left, right).low, self.operation("max", left, right).high
    return Range(low, high)


def _clamped(self: Ranges, value: Range, low: Range = Range(), high: Range = Range()) -> Range:
    made = self.operation("max", value, low) if low.low else value
    return self.operation("min", made, high) if high.high else made


_OPERATIONS: dict[str, Callable[..., Range]] = {
    "add": lambda self, left, right: left.plus(right),
    "sub": lambda self, left, right: left.plus(right.times(-1)),
    "rsub": lambda self, left, right: right.plus(left.times(-1)),
    "neg": lambda self, value: value.times(-1),
    "mul": lambda self, left, right: self.operation("*", left, right),
    "floor_divide": lambda self, left, right: _quotient(left, right),
    "remainder": lambda self, left, right: _remainder(left, right),
    "bitwise_and": lambda self, left, right: _masked(left, right),
    "minimum": lambda self, left, right: self.operation("min", left, right),
    "maximum": lambda self, left, right: self.operation("max", left, right),
    "clamp": _clamped,
    "clamp_min": lambda self, value, low: _clamped(self, value, low),
    "clamp_max": lambda self, value, high: _clamped(self, value, Range(), high),
    "where": _either,
}
