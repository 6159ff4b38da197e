"""`tl.map_elementwise`: a function of scalars, with control flow of its own, applied to every element of tiles.

Written in the language as a loop over the elements, so that every construct may stand in the function:

    for i in 0 .. number of elements:   r = f(x[i], y[i], ...);   out = where(index == i, r, out)
"""

from __future__ import annotations

import builtins
from typing import Any

from tilewright.base.errors import LanguageTypeError, LanguageValueError
from tilewright.language.library import constexpr_function, library
from tilewright.ops.broadcast import broadcast_tensors, splat_to
from tilewright.ops.builtin import Emitter, builtin, to_tensor
from tilewright.ops.control import range
from tilewright.ops.creation import arange
from tilewright.ops.functions.operators import add, equal, mul, where
from tilewright.ops.functions.shape import flatten, reshape_to
from tilewright.ops.gather import gather
from tilewright.ops.values import shape_ints, tensor, unwrap
from tilewright.ops.values import tuple as tile_tuple


@builtin(export=False)
def _flat_tiles(b: Emitter, args: Any, pack: Any) -> tile_tuple:
    """The operands, broadcast together, as tiles of one dimension."""
    tiles = broadcast_tensors(b, *[to_tensor(b, arg) for arg in args])
    if not tiles or not tiles[0].block_shape:
        raise LanguageTypeError(
            "tl.map_elementwise needs at least one tile", hint="call the function itself on scalars"
        )
    size, count = tiles[0].numel.value, unwrap(pack)
    if not isinstance(count, int) or count < 1 or size % count:
        raise LanguageValueError(f"pack must divide the number of elements, {size}, got {count!r}")
    return tile_tuple([flatten(b, tile) for tile in tiles])


@builtin(export=False)
def _shape(b: Emitter, args: Any) -> tile_tuple:
    """The shape of the operands, broadcast together."""
    return broadcast_tensors(b, *[to_tensor(b, arg) for arg in args])[0].shape


@builtin(export=False)
def _elements(b: Emitter, tiles: Any, i: Any, pack: Any) -> tile_tuple:
    """Elements ``i * pack`` to ``(i + 1) * pack`` of each tile, one tile after the other."""
    start = mul.fn(b, i, pack)
    picked = []
    for tile in tiles:
        for offset in builtins.range(unwrap(pack)):
            at = splat_to(b, to_tensor(b, add.fn(b, start, offset)), (1,))
            picked.append(reshape_to(b, gather.fn(b, tile, at, 0), ()))
    return tile_tuple(picked)


@builtin(export=False)
def _insert(b: Emitter, tiles: Any, index: Any, i: Any, results: Any, pack: Any) -> tile_tuple:
    """`tiles` with the results of step `i` put in; without tiles, tiles that have them everywhere."""
    values = [to_tensor(b, r) for r in (results if isinstance(results, builtins.tuple) else (results,))]
    count = unwrap(pack)
    if any(value.block_shape for value in values) or len(values) % count:
        raise LanguageTypeError(
            f"the function of tl.map_elementwise must return scalars, {count} for each result, "
            f"got {', '.join(str(value.type) for value in values)}"
        )
    made: list[tensor] = []
    for number in builtins.range(len(values) // count):
        tile = tiles[number] if tiles else splat_to(b, values[number * count], index.block_shape)
        for offset in builtins.range(count):
            at = equal.fn(b, index, add.fn(b, mul.fn(b, i, count), offset))
            tile = where.fn(b, at, values[number * count + offset], tile)
        made.append(tile)
    return tile_tuple(made)


@builtin(export=False)
def _shaped(b: Emitter, tiles: Any, shape: Any) -> Any:
    """The results in the operands' shape; one alone is not a tuple."""
    made = tile_tuple([reshape_to(b, tile, shape_ints([shape])) for tile in tiles])
    return made[0] if len(made) == 1 else made


@library
def map_elementwise(scalar_fn: Any, *args: Any, pack: Any = 1) -> Any:
    """Apply a function of scalars to each element of some tiles; it may branch and loop on the values.

    The elements are visited one after the other. Where `tl.where` can say the same, it is many times faster.

    Args:
        scalar_fn: block function of as many scalars as there are tiles (times `pack`).
        args: tiles and numbers, broadcast together.
        pack: how many neighbouring elements one call takes: all of the first tile, then all of the second, ...;
            it returns that many values for the first result, then for the second, ...

    Returns:
        A tile of the common shape, or a tuple of such where the function returns several values.

    Raises:
        LanguageTypeError: the function returns something else than scalars.
    """
    tiles = _flat_tiles(args, pack)
    index = arange(0, tiles[0].numel)
    results = _insert((), index, 0, scalar_fn(*_elements(tiles, 0, pack)), pack)
    for i in range(1, _steps(tiles[0].numel, pack)):
        results = _insert(results, index, i, scalar_fn(*_elements(tiles, i, pack)), pack)
    return _shaped(results, _shape(args))


@constexpr_function
def _steps(size: Any, pack: Any) -> Any:
    """Number of calls."""
    return size // pack
