"""Axis facts: what is known of the elements of an integer or pointer tile along each dimension.

The transfer functions here are the `facts` slots of the op specs; `analysis/axis.py` runs
them. Definitions follow the axis analysis of Triton (contiguity, divisibility, constancy):
all three are powers of two, and 1 says nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.ir import Attribute, Operation

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
    """

    contiguity: tuple[int, ...]
    divisibility: tuple[int, ...]
    constancy: tuple[int, ...]
    constant: int | None = None

    @property
    def rank(self) -> int:
        return len(self.contiguity)

    def join(self, other: AxisFacts) -> AxisFacts:
        """What holds of a value that may be either."""
        return AxisFacts(
            _gcds(self.contiguity, other.contiguity),
            _gcds(self.divisibility, other.divisibility),
            _gcds(self.constancy, other.constancy),
            self.constant if self.constant == other.constant else None,
        )


Transfer = Callable[[Operation, Sequence[AxisFacts]], AxisFacts | Sequence[AxisFacts]]


def _gcds(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.gcd(x, y) for x, y in zip(a, b, strict=True))


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
    return AxisFacts((1,) * len(dims), (power_of_two_divisor(value),) * len(dims), runs, value)


def of_argument(divisibility: int, type_: Attribute) -> AxisFacts:
    """A scalar kernel argument with a divisibility promise."""
    return AxisFacts((1,), (max(1, divisibility),), (1,))


# --- transfer functions ---------------------------------------------------------------------------


def _result(op: Operation) -> Attribute:
    return op.results[0].type


def _folded(op: Operation, args: Sequence[AxisFacts], fn: Callable[[int, int], int]) -> AxisFacts | None:
    """The result when both operands are known constants."""
    lhs, rhs = args[0].constant, args[1].constant
    return None if lhs is None or rhs is None else of_constant(fn(lhs, rhs), _result(op))


def _sum_runs(a: AxisFacts, b: AxisFacts) -> tuple[int, ...]:
    """Contiguity of a sum: runs of one over constant runs of the other."""
    return tuple(
        max(math.gcd(ac, bk), math.gcd(ak, bc))
        for ac, ak, bc, bk in zip(a.contiguity, a.constancy, b.contiguity, b.constancy, strict=True)
    )


def add(op: Operation, args: Sequence[AxisFacts]) -> AxisFacts:
    """a + b: runs survive the addition of constant runs."""
    known = _folded(op, args, lambda x, y: x + y)
    a, b = args
    return known or AxisFacts(_sum_runs(a, b), _gcds(a.divisibility, b.divisibility), _gcds(a.constancy, b.constancy))


def sub(op: Operation, args: Sequence[AxisFacts]) -> AxisFacts:
    """a - b: runs of `a` survive over constant runs of `b`; runs of `b` turn backwards and are lost."""
    known = _folded(op, args, lambda x, y: x - y)
    a, b = args
    return known or AxisFacts(
        _gcds(a.contiguity, b.constancy), _gcds(a.divisibility, b.divisibility), _gcds(a.constancy, b.constancy)
    )


def addptr(op: Operation, args: Sequence[AxisFacts]) -> AxisFacts:
    """pointer + offset: the offset counts elements, the divisibility of a pointer counts bytes."""
    pointer, offset = args
    element = element_type(_result(op))
    size = max(1, bit_width(element.pointee) // 8) if isinstance(element, TilePointerType) else 1
    scaled = tuple(_capped(d * power_of_two_divisor(size)) for d in offset.divisibility)
    return AxisFacts(
        _sum_runs(pointer, offset), _gcds(pointer.divisibility, scaled), _gcds(pointer.constancy, offset.constancy)
    )


def mul(op: Operation, args: Sequence[AxisFacts]) -> AxisFacts:
    """a * b: divisors multiply; a run survives only a factor of one."""
    known = _folded(op, args, lambda x, y: x * y)
    if known:
        return known
    a, b = args

    def every(x: AxisFacts, by_one: bool) -> tuple[int, ...]:
        return tuple(d if c == 1 or by_one else 1 for c, d in zip(x.contiguity, x.divisibility, strict=True))

    contiguity = a.contiguity if b.constant == 1 else b.contiguity if a.constant == 1 else (1,) * a.rank
    products = zip(every(a, b.constant == 1), every(b, a.constant == 1), strict=True)
    return AxisFacts(contiguity, tuple(_capped(x * y) for x, y in products), _gcds(a.constancy, b.constancy))


def div(op: Operation, args: Sequence[AxisFacts]) -> AxisFacts:
    """a / b: dividing a run by a power of two makes constant runs."""
    a, b = args
    known = _folded(op, args, lambda x, y: int(x / y) if y else 0)
    if known:
        return known
    if b.constant == 1:
        return a
    constancy = tuple(
        max(math.gcd(ak, bk), math.gcd(math.gcd(ac, ad), bd) if b.constant else 1)
        for ac, ad, ak, bd, bk in zip(
            a.contiguity, a.divisibility, a.constancy, b.divisibility, b.constancy, strict=True
        )
    )
    exact = bool(b.constant) and power_of_two_divisor(b.constant or 1) == b.constant
    divisor = b.constant or 1
    divisibility = tuple(
        max(1, d // divisor) if exact and c == 1 else 1 for c, d in zip(a.contiguity, a.divisibility, strict=True)
    )
    return AxisFacts((1,) * a.rank, divisibility, constancy)


def rem(op: Operation, args: Sequence[AxisFacts]) -> AxisFacts:
    """a % b: a run survives while it does not cross a multiple of b."""
    a, b = args
    known = _folded(op, args, lambda x, y: int(math.fmod(x, y)) if y else 0)
    if known:
        return known
    contiguity = tuple(
        math.gcd(math.gcd(ac, ad), bd) if bk >= ac else 1
        for ac, ad, bd, bk in zip(a.contiguity, a.divisibility, b.divisibility, b.constancy, strict=True)
    )
    return AxisFacts(contiguity, _gcds(a.divisibility, b.divisibility), _gcds(a.constancy, b.constancy))


def compare(op: Operation, args: Sequence[AxisFacts]) -> AxisFacts:
    """a < b: a run compared with a constant changes truth only at a common divisor."""
    a, b = args

    def runs(x: AxisFacts, y: AxisFacts, i: int) -> int:
        if y.constancy[i] < x.contiguity[i]:
            return 1
        return math.gcd(math.gcd(x.contiguity[i], x.divisibility[i]), y.divisibility[i])

    constancy = tuple(
        max(math.gcd(a.constancy[i], b.constancy[i]), runs(a, b, i), runs(b, a, i)) for i in range(a.rank)
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
    if condition.rank != a.rank:
        condition = AxisFacts(*(((1,) * a.rank,) * 2), constancy=_dims(_result(op)))
    joined = a.join(b)
    return AxisFacts(
        _gcds(joined.contiguity, condition.constancy),
        joined.divisibility if joined.contiguity == a.contiguity == b.contiguity else (1,) * a.rank,
        _gcds(joined.constancy, condition.constancy),
        joined.constant,
    )


def extremum(op: Operation, args: Sequence[AxisFacts]) -> AxisFacts:
    """min or max of two values: each element is one of the two."""
    a, b = args
    ones = (1,) * a.rank
    return AxisFacts(ones, _gcds(a.divisibility, b.divisibility) if a.contiguity == b.contiguity == ones else ones,
                     _gcds(a.constancy, b.constancy))  # fmt: skip


def same(op: Operation, args: Sequence[AxisFacts]) -> AxisFacts:
    """The value itself (sign extension, hints)."""
    return args[0]


def splat(op: Operation, args: Sequence[AxisFacts]) -> AxisFacts:
    """One scalar everywhere."""
    dims = _dims(_result(op))
    runs = tuple(power_of_two_divisor(n) for n in dims)
    return AxisFacts((1,) * len(dims), (args[0].divisibility[0],) * len(dims), runs, args[0].constant)


def make_range(op: Operation, args: Sequence[AxisFacts]) -> AxisFacts:
    """start, start + 1, ...: one run."""
    start = int(op.properties["start"].value.data)  # type: ignore[attr-defined]
    size = power_of_two_divisor(_dims(_result(op))[0])
    return AxisFacts((size,), (power_of_two_divisor(start),), (1,))


def expand_dims(op: Operation, args: Sequence[AxisFacts]) -> AxisFacts:
    """A new dim of one element."""
    axis = int(op.properties["axis"].value.data)  # type: ignore[attr-defined]
    (a,) = args
    if len(_dims(_result(op))) == a.rank:
        return a

    def insert(values: tuple[int, ...], value: int) -> tuple[int, ...]:
        return (*values[:axis], value, *values[axis:])

    every = math.gcd(*[d if c == 1 else 1 for c, d in zip(a.contiguity, a.divisibility, strict=True)])
    return AxisFacts(
        insert(a.contiguity, 1), insert(a.divisibility, max(1, every)), insert(a.constancy, 1), a.constant
    )


def broadcast(op: Operation, args: Sequence[AxisFacts]) -> AxisFacts:
    """Dims of one element repeat."""
    (a,) = args
    source, target = _dims(op.operands[0].type), _dims(_result(op))
    constancy = tuple(
        power_of_two_divisor(t) if s == 1 else k for s, t, k in zip(source, target, a.constancy, strict=True)
    )
    contiguity = tuple(1 if s == 1 else c for s, c in zip(source, a.contiguity, strict=True))
    return AxisFacts(contiguity, a.divisibility, constancy, a.constant)


def trans(op: Operation, args: Sequence[AxisFacts]) -> AxisFacts:
    """Dims in another order."""
    order: Any = op.properties["order"]
    dims = [int(n) for n in order.get_values()]
    (a,) = args
    picked: list[tuple[int, ...]] = [tuple(v[i] for i in dims) for v in (a.contiguity, a.divisibility, a.constancy)]
    return AxisFacts(picked[0], picked[1], picked[2], a.constant)
