"""LinearLayout: a linear map over F2 between named, power-of-two sized index spaces.

A distributed layout maps (register, lane, warp, block) to tile coordinates (dim0, dim1, ...), a shared-memory layout
maps (offset, block) to them. Since f(a ^ b) = f(a) ^ f(b), the images of 1, 2, 4, ... of each input (the *bases*) say
everything, and composition and inversion of layouts are matrix algebra
(Zhou et al., "Linear Layouts: Robust Code Generation of Efficient Tensor Computation Using F2", 2025, section 4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.layouts import f2
from tilewright.layouts.f2 import LayoutError

Dims = tuple[tuple[str, int], ...]
IntArray = NDArray[np.int64]

# Flat indices must fit the int64 of numpy with room for a sign.
_MAX_BITS = 62


def log2(size: int) -> int:
    """The exponent of a power of two.

    Raises:
        LayoutError: `size` is not a positive power of two.
    """
    if size < 1 or size & (size - 1):
        raise LayoutError(f"{size} is not a power of two")
    return size.bit_length() - 1


@dataclass(frozen=True, slots=True)
class LinearLayout:
    """A linear map over F2.

    The first dim of `ins` (and of `outs`) is the minor one: a flat index has its bits lowest.

    Args:
        ins: (name, number of bits) of each input dim.
        outs: (name, number of bits) of each output dim.
        columns: the flat output of each flat input bit.

    Raises:
        LayoutError: a repeated name, or columns that do not fit the dims.
    """

    ins: Dims
    outs: Dims
    columns: tuple[int, ...]

    def __post_init__(self) -> None:
        for dims in (self.ins, self.outs):
            if len(dict(dims)) != len(dims):
                raise LayoutError(f"a dim appears twice in {[name for name, _ in dims]}")
            if _width(dims) > _MAX_BITS:
                raise LayoutError(f"{_width(dims)} index bits are more than {_MAX_BITS}")
        if len(self.columns) != _width(self.ins):
            raise LayoutError(f"{len(self.columns)} columns for {_width(self.ins)} input bits")
        if self.columns and (min(self.columns) < 0 or max(self.columns) >> _width(self.outs)):
            raise LayoutError(f"a basis lies outside of {_sizes(self.outs)}")

    # --- making -------------------------------------------------------------------------------

    @classmethod
    def from_bases(
        cls, bases: Mapping[str, Sequence[Sequence[int]]], outs: Mapping[str, int] | Sequence[str]
    ) -> LinearLayout:
        """A layout from the images of 1, 2, 4, ... of each input dim.

        Args:
            bases: input dim -> one coordinate tuple (in the order of `outs`) for each of its bits.
            outs: output dim -> size; or names alone, each then as large as the bases need.
        """
        if not isinstance(outs, Mapping):
            peak = {
                name: max((b[i] for group in bases.values() for b in group), default=0) for i, name in enumerate(outs)
            }
            outs = {name: 1 << value.bit_length() for name, value in peak.items()}
        out_dims = tuple((name, log2(size)) for name, size in outs.items())
        for name, group in bases.items():
            for basis in group:
                if len(basis) != len(out_dims) or any(not 0 <= c < s for c, s in zip(basis, outs.values())):
                    raise LayoutError(f"basis {tuple(basis)} of {name} does not lie in {dict(outs)}")
        columns = tuple(_join(basis, out_dims) for group in bases.values() for basis in group)
        return cls(tuple((name, len(group)) for name, group in bases.items()), out_dims, columns)

    @classmethod
    def identity(cls, size: int, in_dim: str, out_dim: str) -> LinearLayout:
        """The map x -> x on `size` values."""
        width = log2(size)
        return cls(((in_dim, width),), ((out_dim, width),), tuple(1 << i for i in range(width)))

    @classmethod
    def zeros(cls, size: int, in_dim: str, out_dim: str, out_size: int = 1) -> LinearLayout:
        """The map x -> 0: every value of `in_dim` is a copy."""
        return cls(((in_dim, log2(size)),), ((out_dim, log2(out_size)),), (0,) * log2(size))

    # --- reading ------------------------------------------------------------------------------

    @property
    def in_sizes(self) -> dict[str, int]:
        """Input dim -> number of its values."""
        return _sizes(self.ins)

    @property
    def out_sizes(self) -> dict[str, int]:
        """Output dim -> number of its values."""
        return _sizes(self.outs)

    def columns_of(self, dim: str) -> tuple[int, ...]:
        """Flat outputs of the bits of one input dim; none if the layout has no such dim."""
        start = 0
        for name, width in self.ins:
            if name == dim:
                return self.columns[start : start + width]
            start += width
        return ()

    def bases(self) -> dict[str, list[tuple[int, ...]]]:
        """Input dim -> coordinates of its bits, the form that `from_bases` takes."""
        return {name: [_split(column, self.outs) for column in self.columns_of(name)] for name, _ in self.ins}

    def __call__(self, **inputs: int) -> dict[str, int]:
        """Output coordinates of one point; inputs that are not named are 0."""
        point = f2.multiply(self.columns, _join([inputs.get(name, 0) for name, _ in self.ins], self.ins))
        if unknown := inputs.keys() - dict(self.ins):
            raise LayoutError(f"no input {sorted(unknown)} in {_sizes(self.ins)}")
        return dict(zip((name for name, _ in self.outs), _split(point, self.outs)))

    def array(self, **inputs: NDArray[np.integer]) -> dict[str, IntArray]:
        """Output coordinates of many points: arrays that broadcast together; inputs that are not named are 0."""
        if unknown := inputs.keys() - dict(self.ins):
            raise LayoutError(f"no input {sorted(unknown)} in {_sizes(self.ins)}")
        flat = np.zeros(np.broadcast_shapes(*(np.shape(x) for x in inputs.values())), np.int64)
        for name, values in inputs.items():
            values = np.asarray(values, np.int64)
            if values.size and (values.min() < 0 or values.max() >= self.in_sizes[name]):
                raise LayoutError(f"{name} outside of 0..{self.in_sizes[name] - 1}")
            for i, column in enumerate(self.columns_of(name)):
                flat = flat ^ (values >> i & 1) * column
        result, start = {}, 0
        for name, width in self.outs:
            result[name] = flat >> start & ((1 << width) - 1)
            start += width
        return result

    def rank(self) -> int:
        """log2 of the number of different outputs."""
        return f2.rank(self.columns)

    def is_injective(self) -> bool:
        """No two inputs have one output: nothing is held twice."""
        return self.rank() == len(self.columns)

    def is_surjective(self) -> bool:
        """Every output has an input: nothing is missing."""
        return self.rank() == _width(self.outs)

    def free_masks(self) -> dict[str, int]:
        """Input dim -> mask of its free bits, those that only select among copies.

        Inputs whose free bits are 0 reach every output of the layout exactly once. Where bits of two dims could be
        free, the later dim's is.
        """
        span, masks = f2.Span(), {}
        for name, _ in self.ins:
            masks[name] = sum((not span.add(column)) << i for i, column in enumerate(self.columns_of(name)))
        return masks

    # --- algebra ------------------------------------------------------------------------------

    def __mul__(self, other: LinearLayout) -> LinearLayout:
        """The product (direct sum): `other` put around `self`.

        In dims that both have, `self` takes the low bits and `other` the high ones, in inputs and outputs alike.
        """
        ins, outs = _merge(self.ins, other.ins), _merge(self.outs, other.outs)
        below = dict(self.outs)
        columns: list[int] = []
        for name, _ in ins:
            for column in self.columns_of(name):
                columns.append(_regroup(column, self.outs, outs))
            for column in other.columns_of(name):
                shifted = {n: c << below.get(n, 0) for (n, _), c in zip(other.outs, _split(column, other.outs))}
                columns.append(_join([shifted.get(n, 0) for n, _ in outs], outs))
        return LinearLayout(ins, outs, tuple(columns))

    def compose(self, outer: LinearLayout) -> LinearLayout:
        """First `self`, then `outer`, whose inputs are the outputs of `self` (in any order, maybe larger)."""
        room = dict(outer.ins)
        if room.keys() != dict(self.outs).keys() or any(width > room[name] for name, width in self.outs):
            raise LayoutError(f"outputs {self.out_sizes} do not fit the inputs {outer.in_sizes}")
        flat = [_regroup(column, self.outs, outer.ins) for column in self.columns]
        return LinearLayout(self.ins, outer.outs, tuple(f2.matmul(outer.columns, flat)))

    def inverse(self) -> LinearLayout:
        """The inverse map.

        Raises:
            LayoutError: the layout is not invertible.
        """
        return LinearLayout(self.outs, self.ins, tuple(f2.inverse(self.columns, _width(self.outs))))

    def pseudo_inverse(self) -> LinearLayout:
        """A map g with f(g(f(x))) = f(x), whose outputs have zero free bits.

        It is a right inverse of a surjective layout, and the inverse of an invertible one.
        """
        return LinearLayout(self.outs, self.ins, tuple(f2.generalized_inverse(self.columns, _width(self.outs))))

    def invert_and_compose(self, other: LinearLayout) -> LinearLayout:
        """The map c from inputs of `self` to inputs of `other` with other(c(x)) = self(x), free bits 0.

        Raises:
            LayoutError: the output dims differ, or `other` does not reach every output of `self`.
        """
        room = dict(other.outs)
        if room.keys() != dict(self.outs).keys() or any(width > room[name] for name, width in self.outs):
            raise LayoutError(f"outputs {self.out_sizes} do not fit the outputs {other.out_sizes}")
        span, columns = f2.Span(other.columns), []
        for column in self.columns:
            residue, members = span.reduce(_regroup(column, self.outs, other.outs))
            if residue:
                raise LayoutError("the second layout does not reach every output of the first")
            columns.append(members)
        return LinearLayout(self.ins, other.ins, tuple(columns))

    # --- dims ---------------------------------------------------------------------------------

    def sublayout(self, ins: Sequence[str], outs: Sequence[str]) -> LinearLayout:
        """The map with the other inputs held at 0 and the other outputs left out, dims in the given order."""
        widths_in, widths_out = dict(self.ins), dict(self.outs)
        out_dims = tuple((name, widths_out[name]) for name in outs)
        columns = tuple(_regroup(c, self.outs, out_dims) for name in ins for c in self.columns_of(name))
        return LinearLayout(tuple((name, widths_in[name]) for name in ins), out_dims, columns)

    def rename(self, names: Mapping[str, str]) -> LinearLayout:
        """The same map with dims renamed; names that are not mentioned stay."""
        ins = tuple((names.get(name, name), width) for name, width in self.ins)
        return LinearLayout(ins, tuple((names.get(name, name), width) for name, width in self.outs), self.columns)

    def transpose(self, ins: Sequence[str] | None = None, outs: Sequence[str] | None = None) -> LinearLayout:
        """The same map with its dims in another order (it matters to flat indices and to `reshape`)."""
        order_in, order_out = tuple(ins or dict(self.ins)), tuple(outs or dict(self.outs))
        if {*order_in} != {*dict(self.ins)} or {*order_out} != {*dict(self.outs)}:
            raise LayoutError(f"{order_in} -> {order_out} is no order of {self.in_sizes} -> {self.out_sizes}")
        return self.sublayout(order_in, order_out)

    def reshape(self, ins: Mapping[str, int] | None = None, outs: Mapping[str, int] | None = None) -> LinearLayout:
        """The same flat map with its inputs or outputs cut into other dims (name -> size, the minor one first)."""
        new_in = self.ins if ins is None else tuple((name, log2(size)) for name, size in ins.items())
        new_out = self.outs if outs is None else tuple((name, log2(size)) for name, size in outs.items())
        if _width(new_in) != _width(self.ins) or _width(new_out) != _width(self.outs):
            raise LayoutError(f"{self.in_sizes} -> {self.out_sizes} does not reshape to {ins} -> {outs}")
        return LinearLayout(new_in, new_out, self.columns)

    def __str__(self) -> str:
        heads = [", ".join(f"{name} {size}" for name, size in dims.items()) for dims in (self.in_sizes, self.out_sizes)]
        width = max((len(name) for name, _ in self.ins), default=0)
        rows = [
            f"  {name:{width}}  {' '.join('(' + ','.join(map(str, basis)) + ')' for basis in group) or '-'}"
            for name, group in self.bases().items()
        ]
        return "\n".join([f"({heads[0]}) -> ({heads[1]})", *rows])


# --- dims and flat indices ------------------------------------------------------------------------


def _width(dims: Dims) -> int:
    return sum([width for _, width in dims])


def _sizes(dims: Dims) -> dict[str, int]:
    return {name: 1 << width for name, width in dims}


def _split(flat: int, dims: Dims) -> tuple[int, ...]:
    parts = []
    for _, width in dims:
        parts.append(flat & ((1 << width) - 1))
        flat >>= width
    return tuple(parts)


def _join(parts: Sequence[int], dims: Dims) -> int:
    flat, start = 0, 0
    for part, (name, width) in zip(parts, dims):
        if part < 0 or part >> width:
            raise LayoutError(f"{name} = {part} outside of 0..{(1 << width) - 1}")
        flat |= part << start
        start += width
    return flat


def _regroup(flat: int, dims: Dims, wanted: Dims) -> int:
    """A flat index of `dims` as one of `wanted`: dims by name, those that are missing dropped or 0."""
    if dims == wanted:
        return flat
    parts = dict(zip((name for name, _ in dims), _split(flat, dims)))
    return _join([parts.get(name, 0) for name, _ in wanted], wanted)


def _merge(first: Dims, second: Dims) -> Dims:
    widths = dict(first)
    for name, width in second:
        widths[name] = widths.get(name, 0) + width
    return tuple(widths.items())
