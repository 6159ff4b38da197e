"""`triton.tools.LinearLayout`: maps over F2 between named dims, on Tilewright's own algebra of layouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.layouts import linear
from tilewright.layouts.f2 import LayoutError
from tilewright.layouts.picture import picture, points

Bases = list[tuple[str, list[list[int]]]]


class _Pictures:
    """What a layout is shown as."""

    _map: linear.LinearLayout

    def get_distributed_view(self, useHWPointOfView: bool = False) -> str:
        """Text that shows who holds each element of a tile, or what each register of each thread holds.

        Args:
            useHWPointOfView: a line for every position, not a grid of the tile, where `T5:2` is register 2 of thread 5.

        Raises:
            ValueError: the grid of a tile of more than two dims.
        """
        return self._view(useHWPointOfView, ("register", "lane", "warp", "block"))

    def get_shared_view(self, useHWPointOfView: bool = False) -> str:
        """Text that shows the offset in shared memory of each element of a tile, or the element at each offset.

        Args:
            useHWPointOfView: a line for every offset, not a grid of the tile.

        Raises:
            ValueError: the layout does not start from offsets, or the grid of a tile of more than two dims.
        """
        return self._view(useHWPointOfView, ("offset", "block", "partition"))

    def _view(self, by_position: bool, known: Sequence[str]) -> str:
        other = [name for name in self._map.in_sizes if name not in known]
        if other:
            raise LayoutError(f"this view is of layouts from {', '.join(known)}, not from {', '.join(other)}")
        if not by_position:
            return picture(self._map)
        lines = []
        for inputs, outputs in points(self._map):
            place = ", ".join(f"{name}={value}" for name, value in inputs.items())
            lines.append(f"{place}: ({', '.join(map(str, outputs.values()))})")
        return "\n".join(lines)


class LinearLayout(_Pictures):
    """A linear map over F2 from named input dims to named output dims, all of sizes that are powers of two.

    The first dim has the lowest bits. Layouts are made by the class methods; `LinearLayout()` has no dims.

    Args:
        layout: the map, if there is one.
    """

    def __init__(self, layout: linear.LinearLayout | None = None) -> None:
        self._map = linear.LinearLayout((), (), ()) if layout is None else layout

    @classmethod
    def identity_1d(cls, size: int, inDim: str, outDim: str) -> LinearLayout:
        """The map x -> x on `size` values of a dim."""
        return cls(linear.LinearLayout.identity(size, inDim, outDim))

    @classmethod
    def strided_1d(cls, size: int, stride: int, inDim: str, outDim: str) -> LinearLayout:
        """The map x -> stride * x on `size` values; `stride` is a power of two."""
        steps = [[stride << bit] for bit in range(linear.log2(size))]
        return cls(linear.LinearLayout.from_bases({inDim: steps}, {outDim: stride * size}))

    @classmethod
    def zeros_1d(cls, size: int, inDim: str, outDim: str, outDimSize: int = 1) -> LinearLayout:
        """The map x -> 0 on `size` values."""
        return cls(linear.LinearLayout.zeros(size, inDim, outDim, outDimSize))

    @classmethod
    def from_bases(
        cls,
        bases: Sequence[tuple[str, Sequence[Sequence[int]]]] | Mapping[str, Sequence[Sequence[int]]],
        out_dim_names: Sequence[str],
        out_dim_sizes: Sequence[int] | None = None,
        require_surjective: bool = True,
    ) -> LinearLayout:
        """A layout from the images of 1, 2, 4, ... of each input dim.

        Args:
            bases: input dims with the coordinates of each of their bits, in the order of the output dims.
            out_dim_names: output dims.
            out_dim_sizes: their sizes; by default as large as the bases need.
            require_surjective: every output has to have an input.

        Raises:
            ValueError: the sizes do not fit the names, a basis lies outside, or some output has no input.
        """
        if out_dim_sizes is None and not require_surjective:
            raise ValueError("out_dim_sizes must be given when require_surjective is false")
        if out_dim_sizes is not None and len(out_dim_sizes) != len(out_dim_names):
            raise ValueError(f"{len(out_dim_sizes)} sizes for {len(out_dim_names)} output dims")
        outs: Any = out_dim_names if out_dim_sizes is None else dict(zip(out_dim_names, out_dim_sizes, strict=True))
        made = cls(linear.LinearLayout.from_bases(dict(bases), outs))
        if require_surjective and not made.is_surjective():
            raise ValueError(f"some outputs have no input:\n{made}")
        return made

    # --- reading --------------------------------------------------------------------------------------------------

    @property
    def bases(self) -> Bases:
        """Input dims with the coordinates of each of their bits."""
        return [(name, [list(basis) for basis in group]) for name, group in self._map.bases().items()]

    @property
    def out_dims(self) -> list[tuple[str, int]]:
        """Output dims with their sizes."""
        return list(self._map.out_sizes.items())

    @property
    def num_in_dims(self) -> int:
        """Number of input dims."""
        return len(self._map.ins)

    @property
    def num_out_dims(self) -> int:
        """Number of output dims."""
        return len(self._map.outs)

    def get_in_dim_names(self) -> list[str]:
        """Input dims."""
        return list(self._map.in_sizes)

    def get_out_dim_names(self) -> list[str]:
        """Output dims."""
        return list(self._map.out_sizes)

    def apply(self, inputs: Mapping[str, int] | Sequence[tuple[str, int]]) -> Any:
        """Output coordinates of a point.

        Args:
            inputs: a coordinate of every input dim, as a mapping or as pairs.

        Returns:
            A dictionary, or a list of pairs for pairs.

        Raises:
            ValueError: other dims than those of the layout, or a coordinate outside.
        """
        given = dict(inputs)
        if given.keys() != self._map.in_sizes.keys():
            raise ValueError(f"the input dims are {self.get_in_dim_names()}, got {list(given)}")
        found = self._map(**given)
        return found if isinstance(inputs, Mapping) else list(found.items())

    def is_surjective(self) -> bool:
        """Every output has an input."""
        return self._map.is_surjective()

    def is_injective(self) -> bool:
        """No two inputs have one output."""
        return self._map.is_injective()

    def is_invertible(self) -> bool:
        """Both."""
        return self.is_surjective() and self.is_injective()

    def get_matrix_view(self) -> list[list[int]]:
        """The matrix over F2: a row for each output bit, a column for each input bit, lowest first."""
        rows = sum(width for _, width in self._map.outs)
        return [[column >> row & 1 for column in self._map.columns] for row in range(rows)]

    # --- algebra --------------------------------------------------------------------------------------------------

    def compose(self, outer: LinearLayout) -> LinearLayout:
        """First this layout, then `outer`, whose inputs are its outputs."""
        return LinearLayout(self._map.compose(outer._map))

    def invert(self) -> LinearLayout:
        """The inverse.

        Raises:
            ValueError: the layout is not invertible.
        """
        return LinearLayout(self._map.inverse())

    def pseudoinvert(self) -> LinearLayout:
        """A map that gives, for each output, an input of it."""
        return LinearLayout(self._map.pseudo_inverse())

    def invert_and_compose(self, outer: LinearLayout) -> LinearLayout:
        """The map from inputs of this layout to inputs of `outer` with the same outputs."""
        return LinearLayout(self._map.invert_and_compose(outer._map))

    def __mul__(self, other: LinearLayout) -> LinearLayout:
        """The product: `other` put around this layout, in the high bits of dims that both have."""
        return LinearLayout(self._map * other._map)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LinearLayout) and self._map == other._map

    def __hash__(self) -> int:
        return hash(self._map)

    def __str__(self) -> str:
        lines = []
        for name, group in self.bases:
            head = f" - {name}"
            for bit, basis in enumerate(group):
                lines.append(f"{head}={1 << bit} -> ({', '.join(map(str, basis))})")
                head = " " * 3 + name
            if not group:
                lines.append(f"{head} is a size 1 dimension")
        sizes = ", ".join(f"{name} (size {size})" for name, size in self.out_dims)
        return "\n".join([*lines, f"where out dims are: [{sizes}]"])

    __repr__ = __str__


__all__ = ["LayoutError", "LinearLayout"]
