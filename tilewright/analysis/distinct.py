"""Whether no two elements of a tile have one address, or any byte in common.

An address is a sum of coordinates by strides. Sorted by stride, each must be at least as long as all that the smaller
ones can make together, as in numbers of mixed radix; then an address tells every coordinate, and the coordinates must
tell the element:

    p + 64 * i + j          0 <= i < 16, 0 <= j < 64       4 <= 4, 4 * 63 + 4 <= 256: distinct
    p + 40 * i + j          under the mask j < 40          distinct, for the elements that count
    p + i * s + j           s known at launch              distinct where 4 * 63 + 4 <= 4 * s
    p + j, p + i // 8       of tiles [16, 64] and [64]     not: i, and three bits of i, are in no coordinate
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from xdsl.ir import SSAValue

from tilewright.analysis.affine import AffineAnalysis, Poly, expanded
from tilewright.analysis.bounds import below_zero, conjuncts_of
from tilewright.analysis.constants import constant_of
from tilewright.analysis.index import Coord, Index, bits_of, greatest, identity, whole
from tilewright.analysis.origins import is_parameter
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.types import pointee_bytes, shape_of
from tilewright.ir.values import defining_op, is_tile
from tilewright.ops.broadcast import SplatOp
from tilewright.ops.signs import never_negative

Bounds = Mapping[Coord, tuple[Poly, ...]]
"""What coordinates are below where a mask holds; each of several bounds of one coordinate holds."""

Condition = tuple[tuple[Poly, ...], ...]
"""Ways in which something can be so, each a list of polynomials in parameters of the kernel that are not negative."""

PROVED: Condition = ((),)
"""So whatever the parameters are."""

_MOST_WAYS = 24


def distinct(coords: Mapping[Coord, Poly], shape: Sequence[int], size: int, bounds: Bounds) -> Answer[Condition]:
    """Whether the elements of a tile lie apart; if only the launch knows, where they do.

    Args:
        coords: bytes by which an address grows with each coordinate, at the identity index of `shape`.
        shape: of the tile.
        size: bytes of an element.
        bounds: of the elements that count.
    """
    if not _tell_elements(coords, shape):
        return No("several elements of the tile have one address", instead="an address for each element")
    ways = []
    for way in itertools.islice(_ways(coords, shape, size, bounds), _MOST_WAYS):
        if all(part.never_negative for part in way):
            return Yes(PROVED)
        known = [part for part in (_of_parameters(part, up=False) for part in way) if part is not None]
        if len(known) == len(way) and not any((part.constant or 0) < 0 for part in known):
            ways.append(tuple(part for part in known if not part.never_negative))
    return Yes(tuple(ways)) if ways else No("several elements of the tile may have one address")


def lie_apart(address: SSAValue, home: SSAValue, analysis: AffineAnalysis) -> bool:
    """Whether no two elements of a tile of addresses are one, whatever the parameters are.

    Args:
        address: the tile, or a scalar.
        home: the parameter that it was made from.
        analysis: of the kernel.
    """
    if not is_tile(address):
        return True
    shape = shape_of(address.type)
    form = analysis.pointer(address, identity(shape))
    if form.base is not home or form.offset.residual:
        return False
    answer = distinct(form.offset.coords, shape, pointee_bytes(address.type), {})
    return isinstance(answer, Yes) and answer.plan == PROVED


def mask_bounds(masks: Sequence[tuple[SSAValue, Index]], analysis: AffineAnalysis) -> Bounds:
    """The upper bounds of single coordinates that masks have among their parts; the rest is left out.

    Args:
        masks: each at the index at which it is wanted.
        analysis: of the function.
    """
    found: dict[Coord, dict[Poly, None]] = {}  # in order: what is emitted must not depend on where objects lie
    given = [(value, at) for value, at in reversed(masks) if is_tile(value) and constant_of(value) is None]
    for value, at in itertools.chain.from_iterable(conjuncts_of(*each) for each in given):
        op = defining_op(value)
        if op is None or isinstance(op, SplatOp):
            continue
        below = below_zero(value, at, analysis, "i < n")
        if isinstance(below, No) or len(below.plan.coords) != 1:
            continue
        ((coord, stride),) = below.plan.coords.items()
        if stride.constant == 1:
            found.setdefault(coord, {})[-below.plan.constant] = None
    return {coord: tuple(polys) for coord, polys in found.items()}


def common(one: Bounds, other: Bounds) -> Bounds:
    """The bounds that two sets of elements have in common, which hold for the elements of both."""
    return {coord: tuple([p for p in polys if p in other[coord]]) for coord, polys in one.items() if coord in other}


def _tell_elements(coords: Mapping[Coord, Poly], shape: Sequence[int]) -> bool:
    """Whether every bit of the place of an element is in some coordinate."""
    seen = [0] * len(shape)
    for coord in coords:
        for field in coord:
            if 0 <= field.src < len(shape):
                seen[field.src] |= ((1 << field.width) - 1) << field.lo
    return all(have + 1 >= 1 << bits_of(extent) for have, extent in zip(seen, shape, strict=True))


def _ways(coords: Mapping[Coord, Poly], shape: Sequence[int], size: int, bounds: Bounds) -> Iterator[list[Poly]]:
    """For each order of the strides, and each choice of what coordinates are below: what must not be negative."""
    strides = {coord: _length(coords[coord]) for coord in sorted(coords)}  # in one order, wherever they come from
    fixed = sorted(coord for coord, s in strides.items() if s.constant is not None)
    fixed.sort(key=lambda coord: strides[coord].constant or 0)
    for order in itertools.permutations(strides):
        if [coord for coord in order if strides[coord].constant is not None] != fixed:
            continue
        for below in itertools.product(*[_extents(coord, shape, bounds) for coord in order[:-1]]):
            reach, way = Poly.of(size), []
            for coord, extent in itertools.zip_longest(order, below):
                way.append(expanded(strides[coord]) + -reach)
                if extent is not None:
                    reach = reach + expanded(strides[coord] * (extent + Poly.of(-1)))
            yield way


def _length(stride: Poly) -> Poly:
    """A stride without its sign; strides that only the launch knows count as distinct where they are positive."""
    known = stride.constant
    return stride if known is None else Poly.of(abs(known))


def _extents(coord: Coord, shape: Sequence[int], bounds: Bounds) -> list[Poly]:
    """Numbers that a coordinate is below."""
    whole_dims = [extent for dim, extent in enumerate(shape) if coord == whole(dim, extent)]
    extents = [Poly.of(whole_dims[0] if whole_dims else greatest(coord) + 1)]
    for bound in bounds.get(coord, ()):
        known = _of_parameters(expanded(bound), up=True)
        extents += [each for each in dict.fromkeys([bound, known]) if each is not None and each not in extents]
    return extents


def _of_parameters(poly: Poly, *, up: bool) -> Poly | None:
    """A polynomial in parameters of the kernel that is not below (`up`), or not above, this one; None if not known."""
    terms: dict[tuple[object, ...], int] = {}
    for monomial, coefficient in poly.terms.items():
        if all(is_parameter(atom.value) for atom in monomial):
            terms[monomial] = coefficient
        elif (coefficient > 0) is up or not all(atom.unsigned or never_negative(atom.value) for atom in monomial):
            return None
    return Poly(terms)  # type: ignore[arg-type]
