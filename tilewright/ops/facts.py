"""Axis facts: what is known of the elements of an integer or pointer tile along each dimension.

The transfer functions here are the `facts` slots of the op specs; `analysis/axis.py` runs
them. Definitions follow the axis analysis of Triton (contiguity, divisibility, constancy):
all three are powers of two, and 1 says nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from xdsl.ir import Attribute, Operation

from tilewright.base.assumptions import POSITIVE_DIVISORS, holds
from tilewright.ir.op import TileOp
from tilewright.ir.types import TilePointerType, bit_width, element_type, shape_of

MAX_DIVISOR = 1 << 62


@dataclass(frozen=True, slots=True)
class AxisFacts:
    """Facts of one value; scalars are described as tiles of one element.

    Args:
        contiguity: per dim, length of the aligned runs in which each element is its neighbour plus one.
        divisibility: per dim, power of two dividing the first element of each such run.
        constancy: per dim, length of the aligned runs of equal elements.
        constant: the value of every element, when it is known.
        nonnegative: no element is below zero (sums and products are taken not to overflow, scalar divisors positive).
    """

    contiguity: tuple[int, ...]
    divisibility: tuple[int, ...]
    constancy: tuple[int, ...]
    constant: int | None = None
    nonnegative: bool = False

    @property
    def rank(self) -> int:
        return len(self.contiguity)

    def divisors(self, runs: Sequence[int]) -> tuple[int, ...]:
        """Divisibility of the first elements of shorter runs: later ones start `run` elements further."""
        if runs == self.contiguity:
            return self.divisibility
        return tuple(
            [
                d if run >= c else math.gcd(d, run)
                for d, c, run in zip(self.divisibility, self.contiguity, runs, strict=True)
            ]
        )

    def join(self, other: AxisFacts) -> AxisFacts:
        """What holds of a value that may be either."""
        runs = _gcds(self.contiguity, other.contiguity)
        return AxisFacts(
            runs,
            _gcds(self.divisors(runs), other.divisors(runs)),
            _gcds(self.constancy, other.constancy),
            self.constant if self.constant == other.constant else None,
            self.nonnegative and other.nonnegative,
        )


Transfer = Callable[[Operation, Sequence[AxisFacts]], AxisFacts | Sequence[AxisFacts]]


def _gcds(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    return tuple(map(math.gcd, a, b))


def _dims(type_: Attribute) -> tuple[int, ...]:
    return shape_of(type_) or (1,)


def power_of_two_divisor(value: int) -> int:
    """The largest power of two that divides `value`; 0 counts as divisible by anything."""
    return value & -value if value else MAX_DIVISOR


def _capped(value: int) -> int:
    return min(value, MAX_DIVISOR)


def unknown(type_: Attribute) -> AxisFacts:
    """Nothing known of a value of this type."""
    ones = (1,) * len(_dims(type_))
    return AxisFacts(ones, ones, ones)


def of_constant(value: int, type_: Attribute) -> AxisFacts:
    """Every element is `value`."""
    dims = _dims(type_)
    runs = tuple(power_of_two_divisor(n) for n in dims)
    return AxisFacts((1,) * len(dims), (power_of_two_divisor(value),) * len(dims), runs, value, value >= 0)


def of_argument(divisibility: int) -> AxisFacts:
    """A scalar kernel argument with a divisibility promise."""
    return AxisFacts((1,), (max(1, divisibility),), (1,))


def of_index(op: Operation, args: Sequence[AxisFacts]) -> AxisFacts:
    """A scalar that counts: the index of a program, the number of programs."""
    return AxisFacts((1,), (1,), (1,), nonnegative=True)


# --- transfer functions ---------------------------------------------------------------------------


def _result(op: Operation) -> Attribute:
    return op.results[0].type


def _folded(op: Operation, args: Sequence[AxisFacts], fn: Callable[[int, int], int]) -> AxisFacts | None:
    """The result when both operands are known constants."""
    lhs, rhs = args[0].constant, args[1].constant
    return None if lhs is None or rhs is None else of_constant(fn(lhs, rhs), _result(op))


def _quotient(x: int, y: int) -> int:
    """Division toward zero; by zero it is zero, as the operation defines it."""
    return 0 if y == 0 else abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


def _sum(a: AxisFacts, b: AxisFacts, scale: int = 1) -> AxisFacts:
    """a + scale * b, contiguity counted in units of `scale`: runs of one survive over constant runs of the other."""
    runs = tuple(
        max(math.gcd(ac, bk), math.gcd(ak, bc))
        for ac, ak, bc, bk in zip(a.contiguity, a.constancy, b.contiguity, b.constancy, strict=True)
    )
    scaled = tuple(_capped(d * scale) for d in b.divisors(runs))
    in_bytes = tuple(run * scale for run in runs) if scale > 1 else runs
    left = tuple(
        d if run >= c else math.gcd(d, step)
        for d, c, run, step in zip(a.divisibility, a.contiguity, runs, in_bytes, strict=True)
    )
    return AxisFacts(runs, _gcds(left, scaled), _gcds(a.constancy, b.constancy), None, a.nonnegative and b.nonnegative)


def add(op: Operation, args: Sequence[AxisFacts]) -> AxisFacts:
    """a + b."""
    return _folded(op, args, lambda x, y: x + y) or _sum(args[0], args[1])


def sub(op: Operation, args: Sequence[AxisFacts]) -> AxisFacts:
    """a - b: runs of `a` survive over constant runs of `b`, and where both ascend the difference is one number.

    Runs of `b` over constant runs of `a` turn backwards and are lost.
    """
    known = _folded(op, args, lambda x, y: x - y)
    a, b = args
    ascending, together = _gcds(a.contiguity, b.constancy), _gcds(a.contiguity, b.contiguity)
    runs = tuple(run if run >= other else 1 for run, other in zip(ascending, together, strict=True))
    same = _longer(ascending, together)
    divisors = _gcds(a.divisors(same), b.divisors(same))
    return known or AxisFacts(runs, divisors, _longer(_gcds(a.constancy, b.constancy), together))


def addptr(op: Operation, args: Sequence[AxisFacts]) -> AxisFacts:
    """pointer + offset: the offset counts elements, the divisibility of a pointer counts bytes."""
    element = element_type(_result(op))
    size = max(1, bit_width(element.pointee) // 8) if isinstance(element, TilePointerType) else 1
    return _sum(args[0], args[1], size)


def mul(op: Operation, args: Sequence[AxisFacts]) -> AxisFacts:
    """a * b: divisors multiply; a run survives only a factor of one."""
    known = _folded(op, args, lambda x, y: x * y)
    if known:
        return known
    a, b = args
    if b.constant == 1:
        return a
    if a.constant == 1:
        return b
    ones = (1,) * a.rank
    products = zip(a.divisors(ones), b.divisors(ones), strict=True)
    return AxisFacts(
        ones,
        tuple(_capped(x * y) for x, y in products),
        _gcds(a.constancy, b.constancy),
        None,
        a.nonnegative and b.nonnegative,
    )


def div(op: Operation, args: Sequence[AxisFacts]) -> AxisFacts:
    """a / b: a run without negative numbers has one quotient up to the next multiple of b, whatever its sign.

    A scalar that divides is taken to be positive, as sizes and numbers of blocks are: the usual numbering of programs
    by groups leaves nothing known of the sign of a block's number otherwise.
    """
    a, b = args
    known = _folded(op, args, _quotient)
    if known:
        return known
    if b.constant == 1:
        return a
    divisor = b.constant or 0
    constancy = _longer(_gcds(a.constancy, b.constancy), _between_multiples(a, b))
    exact = divisor > 0 and power_of_two_divisor(divisor) == divisor
    ones = (1,) * a.rank
    divisibility = tuple(max(1, d // divisor) if exact else 1 for d in a.divisors(ones))
    unknown = b.constant is None and not shape_of(_result(op))
    positive = b.nonnegative or (unknown and holds(POSITIVE_DIVISORS))
    return AxisFacts(ones, divisibility, constancy, None, a.nonnegative and positive)


def rem(op: Operation, args: Sequence[AxisFacts]) -> AxisFacts:
    """a % b: a run without negative numbers survives while it does not cross a multiple of b."""
    a, b = args
    known = _folded(op, args, lambda x, y: x - y * _quotient(x, y) if y else 0)
    if known:
        return known
    runs = _between_multiples(a, b)
    return AxisFacts(
        runs, _gcds(a.divisors(runs), b.divisors(runs)), _gcds(a.constancy, b.constancy), None, a.nonnegative
    )


def _between_multiples(a: AxisFacts, b: AxisFacts) -> tuple[int, ...]:
    """Per dim, runs in which `a` counts up, from a multiple of the run that divides a constant run of `b` too."""
    if not a.nonnegative:
        return (1,) * a.rank
    parts = zip(a.contiguity, a.divisibility, b.divisibility, b.constancy, strict=True)
    return tuple(math.gcd(ac, ad, bd, bk) for ac, ad, bd, bk in parts)


def _longer(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    return tuple(map(max, a, b))


def bit_and(op: Operation, args: Sequence[AxisFacts]) -> AxisFacts:
    """a & b: with 2**n - 1 the remainder of a division that rounds down, so that the sign of `a` does not matter."""
    a, b = args if args[0].constant is None else (args[1], args[0])
    mask = b.constant
    if mask is None or mask < 0 or mask & (mask + 1) or bit_width(element_type(_result(op))) == 1:
        return replace(lanewise(op, args), nonnegative=a.nonnegative or b.nonnegative)
    runs = _aligned(a, mask + 1)
    return AxisFacts(runs, _gcds(a.divisors(runs), (mask + 1,) * a.rank), a.constancy, None, True)


def shift_right(op: Operation, args: Sequence[AxisFacts]) -> AxisFacts:
    """a >> n: a division by 2**n that rounds down."""
    a, by = args[0], _shift(op, args)
    if by is None:
        return lanewise(op, args)
    divisors = tuple(max(1, d >> by) for d in a.divisors((1,) * a.rank))
    return AxisFacts((1,) * a.rank, divisors, _longer(a.constancy, _aligned(a, 1 << by)), None, a.nonnegative)


def shift_left(op: Operation, args: Sequence[AxisFacts]) -> AxisFacts:
    """a << n: a product with 2**n."""
    a, by = args[0], _shift(op, args)
    if by is None:
        return lanewise(op, args)
    divisors = tuple(_capped(d << by) for d in a.divisors((1,) * a.rank))
    return AxisFacts((1,) * a.rank, divisors, a.constancy, None, a.nonnegative)


def _shift(op: Operation, args: Sequence[AxisFacts]) -> int | None:
    """A known number of bits, more than none and fewer than there are."""
    by = args[1].constant
    return by if by is not None and 0 < by < bit_width(element_type(_result(op))) else None


def _aligned(a: AxisFacts, size: int) -> tuple[int, ...]:
    """Per dim, runs of `a` that lie between two multiples of the power of two `size`."""
    return tuple(math.gcd(ac, ad, size) for ac, ad in zip(a.contiguity, a.divisibility, strict=True))


_CHANGES_AT_RUN_OF_LEFT = frozenset({"slt", "sge", "ult", "uge"})
_CHANGES_AT_RUN_OF_RIGHT = frozenset({"sgt", "sle", "ugt", "ule"})


def compare(op: Operation, args: Sequence[AxisFacts]) -> AxisFacts:
    """a < b: the truth of a run against a constant changes only where a run starts (x < c and x >= c, not x <= c)."""
    a, b = args
    predicate = op.attr_values().get("predicate") if isinstance(op, TileOp) else None

    def runs(x: AxisFacts, y: AxisFacts, i: int, allowed: frozenset[str]) -> int:
        if predicate not in allowed or y.constancy[i] < x.contiguity[i]:
            return 1
        return math.gcd(math.gcd(x.contiguity[i], x.divisibility[i]), y.divisibility[i])

    constancy = tuple(
        max(
            math.gcd(a.constancy[i], b.constancy[i]),
            runs(a, b, i, _CHANGES_AT_RUN_OF_LEFT),
            runs(b, a, i, _CHANGES_AT_RUN_OF_RIGHT),
        )
        for i in range(a.rank)
    )
    ones = (1,) * a.rank
    return AxisFacts(ones, ones, constancy)


def lanewise(op: Operation, args: Sequence[AxisFacts]) -> AxisFacts:
    """Any element-by-element function: constant where all operands are."""
    facts = unknown(_result(op))
    constancy = _dims(_result(op)) if not args else args[0].constancy
    for arg in args[1:]:
        constancy = _gcds(constancy, arg.constancy)
    return AxisFacts(facts.contiguity, facts.divisibility, constancy)


def choose(op: Operation, args: Sequence[AxisFacts]) -> AxisFacts:
    """select(c, a, b): what holds of both, in runs of a constant condition."""
    condition, a, b = args
    joined = a.join(b)
    if condition.rank != a.rank:  # one scalar condition for a whole tile
        return joined
    runs = _gcds(joined.contiguity, condition.constancy)
    return AxisFacts(
        runs, joined.divisors(runs), _gcds(joined.constancy, condition.constancy), joined.constant, joined.nonnegative
    )


def _extremum(args: Sequence[AxisFacts], nonnegative: bool) -> AxisFacts:
    """Each element is one of the two, which one may change from lane to lane."""
    a, b = args
    ones = (1,) * a.rank
    return AxisFacts(
        ones, _gcds(a.divisors(ones), b.divisors(ones)), _gcds(a.constancy, b.constancy), None, nonnegative
    )


def minimum(op: Operation, args: Sequence[AxisFacts]) -> AxisFacts:
    """min(a, b)."""
    return _folded(op, args, min) or _extremum(args, args[0].nonnegative and args[1].nonnegative)


def maximum(op: Operation, args: Sequence[AxisFacts]) -> AxisFacts:
    """max(a, b)."""
    return _folded(op, args, max) or _extremum(args, args[0].nonnegative or args[1].nonnegative)


def same(op: Operation, args: Sequence[AxisFacts]) -> AxisFacts:
    """The value itself (sign extension, hints)."""
    return args[0]


def zero_extend(op: Operation, args: Sequence[AxisFacts]) -> AxisFacts:
    """The value itself, if it is not negative."""
    return args[0] if args[0].nonnegative else lanewise(op, args)


def splat(op: Operation, args: Sequence[AxisFacts]) -> AxisFacts:
    """One scalar everywhere."""
    dims = _dims(_result(op))
    runs = tuple(power_of_two_divisor(n) for n in dims)
    (a,) = args
    return AxisFacts((1,) * len(dims), (a.divisibility[0],) * len(dims), runs, a.constant, a.nonnegative)


def make_range(op: Operation, args: Sequence[AxisFacts]) -> AxisFacts:
    """start, start + 1, ...: one run, or several if its length is no power of two."""
    start = int(op.properties["start"].value.data)  # type: ignore[attr-defined]
    (extent,) = _dims(_result(op))
    run = power_of_two_divisor(extent)
    divisor = power_of_two_divisor(start)
    return AxisFacts((run,), (divisor if run == extent else math.gcd(divisor, run),), (1,), None, start >= 0)


def expand_dims(op: Operation, args: Sequence[AxisFacts]) -> AxisFacts:
    """A new dim of one element."""
    axis = int(op.properties["axis"].value.data)  # type: ignore[attr-defined]
    (a,) = args
    if len(_dims(_result(op))) == a.rank:
        return a

    def insert(values: tuple[int, ...], value: int) -> tuple[int, ...]:
        return (*values[:axis], value, *values[axis:])

    every = math.gcd(*a.divisors((1,) * a.rank))  # along the new dim each element is a run of its own
    return AxisFacts(
        insert(a.contiguity, 1), insert(a.divisibility, every), insert(a.constancy, 1), a.constant, a.nonnegative
    )


def broadcast(op: Operation, args: Sequence[AxisFacts]) -> AxisFacts:
    """Dims of one element repeat."""
    (a,) = args
    source, target = _dims(op.operands[0].type), _dims(_result(op))
    constancy = tuple(
        power_of_two_divisor(t) if s == 1 else k for s, t, k in zip(source, target, a.constancy, strict=True)
    )
    contiguity = tuple(1 if s == 1 else c for s, c in zip(source, a.contiguity, strict=True))
    return AxisFacts(contiguity, a.divisibility, constancy, a.constant, a.nonnegative)


def reshape(op: Operation, args: Sequence[AxisFacts]) -> AxisFacts:
    """Dims of one element come and go; of other reshapes nothing is known."""
    (a,), source, target = args, _dims(op.operands[0].type), _dims(_result(op))
    kept = [axis for axis, size in enumerate(source) if size != 1]
    if [source[axis] for axis in kept] != [size for size in target if size != 1]:
        return unknown(_result(op))

    def moved(values: Sequence[int], value: int) -> tuple[int, ...]:
        left = (values[axis] for axis in kept)
        return tuple(value if size == 1 else next(left) for size in target)

    every = math.gcd(*a.divisors((1,) * a.rank))  # along a dim of one each element is a run of its own
    return AxisFacts(
        moved(a.contiguity, 1), moved(a.divisibility, every), moved(a.constancy, 1), a.constant, a.nonnegative
    )


def trans(op: Operation, args: Sequence[AxisFacts]) -> AxisFacts:
    """Dims in another order."""
    order: Any = op.properties["order"]
    dims = [int(n) for n in order.get_values()]
    (a,) = args
    picked: list[tuple[int, ...]] = [tuple(v[i] for i in dims) for v in (a.contiguity, a.divisibility, a.constancy)]
    return AxisFacts(picked[0], picked[1], picked[2], a.constant, a.nonnegative)
