"""Named layouts of tiles over registers, lanes, warps and blocks.

Each is a LinearLayout from (register, lane, warp, block) to (dim0, dim1, ...): blocked and sliced layouts, and the
fragments of the tensor-core instructions (PTX ISA, "Matrix Fragments for mma.m16n8k*" and "Register Fragments and
Shared Memory Matrix Layouts" of wgmma). A tile of any shape is padded to powers of two (see `padding.py`); one
smaller than the layout is held in copies, a larger one wraps around into more registers.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.layouts.f2 import LayoutError
from tilewright.layouts.linear import LinearLayout, log2
from tilewright.layouts.padding import padded_shape

WARP_SIZE = 32
_BLOCK = LinearLayout.zeros(1, "block", "dim0")


def dim_names(rank: int) -> tuple[str, ...]:
    """("dim0", "dim1", ...)."""
    return tuple(f"dim{i}" for i in range(rank))


def row_major_order(rank: int) -> tuple[int, ...]:
    """The order in which the last dim is the fastest: (rank - 1, ..., 0)."""
    return tuple(reversed(range(rank)))


def grid(in_dim: str, sizes: Sequence[int], order: Sequence[int]) -> LinearLayout:
    """Indices of `in_dim` laid over a box, ``order[0]`` the fastest dim."""
    names = dim_names(len(sizes))
    if sorted(order) != list(range(len(sizes))):
        raise LayoutError(f"{tuple(order)} is no order of {len(sizes)} dims")
    layout = LinearLayout.identity(1, in_dim, names[order[0]])
    for axis in order:
        layout = layout * LinearLayout.identity(sizes[axis], in_dim, names[axis])
    return layout.transpose(outs=names)


def fit(layout: LinearLayout, shape: Sequence[int], order: Sequence[int], keep_copies: bool = False) -> LinearLayout:
    """`layout` broadcast or wrapped to a tile.

    Args:
        layout: any distributed layout with one output dim per dim of the tile.
        shape: the tile, padded here if it must be.
        order: dims in which registers are added where the tile is larger, fastest first.
        keep_copies: keep register bits that lie outside of the tile and so hold copies (an instruction's fragment
            has a fixed number of registers); without it they are dropped.
    """
    names, shape = dim_names(len(shape)), padded_shape(shape)
    target = dict(zip(names, shape))
    if layout.out_sizes.keys() != target.keys():
        raise LayoutError(f"a layout of {list(layout.out_sizes)} does not fit a tile of shape {shape}")
    bases = {
        dim: [tuple(c % size for c, size in zip(basis, shape)) for basis in group]
        for dim, group in layout.transpose(outs=names).bases().items()
    }
    if not keep_copies:
        bases["register"] = [basis for basis in bases["register"] if any(basis)]
    clipped = LinearLayout.from_bases(bases, {n: min(size, layout.out_sizes[n]) for n, size in target.items()})
    for axis in order:
        more = shape[axis] // clipped.out_sizes[names[axis]]
        clipped = clipped * LinearLayout.identity(more, "register", names[axis])
    return clipped


def blocked(
    size_per_thread: Sequence[int],
    threads_per_warp: Sequence[int],
    warps_per_cta: Sequence[int],
    order: Sequence[int],
    shape: Sequence[int],
) -> LinearLayout:
    """Each thread holds a box, each warp a box of those, each block a box of those; then it wraps.

    Args:
        size_per_thread, threads_per_warp, warps_per_cta: the boxes, one size per dim, powers of two.
        order: dims, the fastest first, within each box and for wrapping.
        shape: the tile.
    """
    layout = (
        grid("register", size_per_thread, order)
        * grid("lane", threads_per_warp, order)
        * grid("warp", warps_per_cta, order)
    )
    return fit(layout * _BLOCK, shape, order)


def default_blocked(
    shape: Sequence[int], num_warps: int, order: Sequence[int] | None = None, vector: int = 1, lanes: int = WARP_SIZE
) -> LinearLayout:
    """A blocked layout for coalesced access: `vector` elements per thread, threads side by side along the fast dims.

    Args:
        shape: the tile.
        num_warps: warps of the block.
        order: dims of the memory, the fastest first; row-major if not given.
        vector: elements that a thread accesses at once along ``order[0]``, a power of two.
        lanes: lanes of a warp.
    """
    shape = padded_shape(shape)
    order = row_major_order(len(shape)) if order is None else order
    per_thread, threads, warps = [1] * len(shape), [1] * len(shape), [1] * len(shape)
    per_thread[order[0]] = min(vector, shape[order[0]])
    left_lanes, left_warps = lanes, num_warps
    for axis in order:
        threads[axis] = min(left_lanes, shape[axis] // per_thread[axis])
        left_lanes //= threads[axis]
        warps[axis] = min(left_warps, shape[axis] // per_thread[axis] // threads[axis])
        left_warps //= warps[axis]
    threads[order[-1]] *= left_lanes  # more threads than elements: the rest hold copies
    warps[order[-1]] *= left_warps
    return blocked(per_thread, threads, warps, order, shape)


def sliced(parent: LinearLayout, axis: int) -> LinearLayout:
    """The layout of a tile that was reduced along `axis` while it was laid out as `parent`.

    Registers that differ along `axis` alone become one; lanes and warps that do hold copies.
    """
    names = dim_names(len(parent.outs))
    kept = [name for i, name in enumerate(names) if i != axis]
    layout = parent.sublayout(list(parent.in_sizes), kept).rename(dict(zip(kept, names)))
    bases = layout.bases()
    bases["register"] = [basis for basis in bases["register"] if any(basis)]
    return LinearLayout.from_bases(bases, layout.out_sizes)


def permuted_bits(layout: LinearLayout, axis: int, bits: Sequence[int]) -> LinearLayout:
    """`layout` with the coordinates along a dim renamed: bit i of what they were is bit ``bits[i]`` now.

    Args:
        layout: any distributed layout.
        axis: the dim.
        bits: a permutation of the bits of the dim's coordinates.
    """

    def moved(coordinate: int) -> int:
        return sum(1 << new for old, new in enumerate(bits) if coordinate >> old & 1)

    bases = {
        dim: [tuple(moved(c) if i == axis else c for i, c in enumerate(basis)) for basis in group]
        for dim, group in layout.bases().items()
    }
    return LinearLayout.from_bases(bases, layout.out_sizes)


def over_blocks(layout: LinearLayout, blocks_per_cluster: Sequence[int], order: Sequence[int]) -> LinearLayout:
    """`layout` for one block's share, laid side by side over the blocks of a cluster."""
    return layout * grid("block", blocks_per_cluster, order)


# --- tensor cores ---------------------------------------------------------------------------------


def mma_accumulator(
    warps_per_cta: Sequence[int], shape: Sequence[int], warp_tile: tuple[int, int] = (16, 8)
) -> LinearLayout:
    """Accumulators C and D of mma.m16n8k*: f32, or s32.

    With group = lane / 4 and t = lane % 4, register i of the fragment holds row ``group + 8 * (i / 2)``, column
    ``2 * t + i % 2`` (PTX ISA, Matrix Fragments for mma.m16n8k16).

    Args:
        warps_per_cta: warps along each dim of the tile, advancing along the last dim first.
        shape: (..., M, N); leading dims are batches.
        warp_tile: rows and columns that a warp holds side by side before the next warp's begin.
    """
    return _accumulator(warps_per_cta, shape, warp_tile, row_major_order(len(shape)))


def wgmma_accumulator(warps_per_cta: Sequence[int], n: int, shape: Sequence[int]) -> LinearLayout:
    """Accumulator D of wgmma.m64nNk*.

    Warp w of a warpgroup holds rows 16 * w to 16 * w + 15 as fragments of mma.m16n8, repeated every 8 columns
    (PTX ISA, wgmma Register Fragments, matrix D).

    Args:
        warps_per_cta: warps along each dim, a multiple of 4 along M; they advance along M first, as a warpgroup does.
        n: columns of the instruction: a power of two from 8 to 256.
        shape: (M, N).
    """
    _check_warpgroup(warps_per_cta)
    if not 8 <= n <= 256:
        raise LayoutError(f"wgmma has 8 to 256 columns, not {n}")
    return _accumulator(warps_per_cta, shape, (16, n), _warpgroup_order(len(shape)))


def mma_operand_a(
    warps_per_cta: Sequence[int],
    shape: Sequence[int],
    element_bits: int,
    k_width: int | None = None,
    warp_rows: int = 16,
) -> LinearLayout:
    """Operand A of mma.m16n8k* (k = 8, 16, 32 for elements of 32, 16, 8 bits), for the warps of its accumulator.

    With group = lane / 4, t = lane % 4 and p = 32 / bits, register i holds row ``group + 8 * (i / p % 2)``, column
    ``p * t + i % p + 4 * p * (i / (2 * p))`` (PTX ISA, Matrix Fragments for mma.m16n8k8 / k16 / k32). A tile that has
    only half of that k gets the fragment of the instruction with half of it.

    Args:
        warps_per_cta: warps of the accumulator along (..., M, N); those along N hold copies.
        shape: (..., M, K). K smaller than half of k leaves copies that the instruction would add up: pad K first.
        element_bits: 32, 16 or 8.
        k_width: neighbours in k that a lane holds, if more than p (both operands alike: it permutes k).
        warp_rows: rows of the accumulator's `warp_tile`.
    """
    order = row_major_order(len(shape))
    return _operand(0, warps_per_cta, shape, _k_width(element_bits, k_width), warp_rows, order)


def mma_operand_b(
    warps_per_cta: Sequence[int],
    shape: Sequence[int],
    element_bits: int,
    k_width: int | None = None,
    warp_columns: int = 8,
) -> LinearLayout:
    """Operand B of mma.m16n8k*, for the warps of its accumulator.

    Register i holds row ``p * t + i % p + 4 * p * (i / p)``, column ``group`` (names as in `mma_operand_a`).

    Args:
        warps_per_cta: warps of the accumulator along (..., M, N); those along M hold copies.
        shape: (..., K, N).
        element_bits, k_width: as for `mma_operand_a`.
        warp_columns: columns of the accumulator's `warp_tile`.
    """
    order = row_major_order(len(shape))
    return _operand(1, warps_per_cta, shape, _k_width(element_bits, k_width), warp_columns, order)


def wgmma_operand_a(
    warps_per_cta: Sequence[int], shape: Sequence[int], element_bits: int, k_width: int | None = None
) -> LinearLayout:
    """Operand A of wgmma.m64nNk* in registers: the fragment of `mma_operand_a` with the warps of a warpgroup along M.

    Args: as for `mma_operand_a` and `wgmma_accumulator`.
    """
    _check_warpgroup(warps_per_cta)
    return _operand(0, warps_per_cta, shape, _k_width(element_bits, k_width), 16, _warpgroup_order(len(shape)))


def _accumulator(
    warps_per_cta: Sequence[int], shape: Sequence[int], warp_tile: tuple[int, int], warp_order: Sequence[int]
) -> LinearLayout:
    rank = len(shape)
    m, n = dim_names(rank)[-2:]
    fragment = _fragment(rank, [(n, 1), (m, 8)], [(n, 2), (n, 4), (m, 1), (m, 2), (m, 4)])
    rows, columns = warp_tile[0] // 16, warp_tile[1] // 8
    fragment = fragment * LinearLayout.identity(columns, "register", n) * LinearLayout.identity(rows, "register", m)
    layout = fragment * grid("warp", warps_per_cta, warp_order) * _BLOCK
    return fit(layout, shape, row_major_order(rank), keep_copies=True)


def _operand(
    index: int,
    warps_per_cta: Sequence[int],
    shape: Sequence[int],
    k_width: int,
    extent: int,
    warp_order: Sequence[int],
) -> LinearLayout:
    """Operand A (`index` 0) or B (1); `extent` is its share of the accumulator's warp tile."""
    rank, shape = len(shape), padded_shape(shape)
    names = dim_names(rank)
    outer, k = names[rank - 2 + index], names[rank - 1 - index]
    registers = [(k, 1 << i) for i in range(log2(k_width))]
    if index == 0:
        registers.append((outer, 8))
    if shape[rank - 1 - index] > 4 * k_width:
        registers.append((k, 4 * k_width))
    fragment = _fragment(rank, registers, [(k, k_width), (k, 2 * k_width), (outer, 1), (outer, 2), (outer, 4)])
    fragment = fragment * LinearLayout.identity(extent // (16, 8)[index], "register", outer)
    # Warps along the dim of the accumulator that this operand lacks read the same rows or columns.
    warps = grid("warp", warps_per_cta, warp_order).bases()["warp"]
    lacking = rank - 1 - index
    spread = [tuple(0 if axis == lacking else c for axis, c in enumerate(basis)) for basis in warps]
    sizes = {name: 1 if axis == lacking else w for axis, (name, w) in enumerate(zip(names, warps_per_cta))}
    layout = fragment * LinearLayout.from_bases({"warp": spread}, sizes) * _BLOCK
    wrap = [rank - 1 - index, rank - 2 + index, *reversed(range(rank - 2))]
    return fit(layout, shape, wrap, keep_copies=True)


def _fragment(rank: int, registers: Sequence[tuple[str, int]], lanes: Sequence[tuple[str, int]]) -> LinearLayout:
    """A fragment from (dim, stride) of each register and lane bit."""
    names = dim_names(rank)
    bases = {
        dim: [tuple(stride if name == axis else 0 for name in names) for axis, stride in group]
        for dim, group in (("register", registers), ("lane", lanes))
    }
    return LinearLayout.from_bases(bases, names)


def _k_width(element_bits: int, k_width: int | None) -> int:
    if element_bits not in (8, 16, 32):
        raise LayoutError(f"mma operands have elements of 8, 16 or 32 bits, not {element_bits}")
    least = 32 // element_bits
    if k_width is not None and k_width < least:
        raise LayoutError(f"a register holds {least} elements of {element_bits} bits: k_width {k_width} is too small")
    return k_width or least


def _check_warpgroup(warps_per_cta: Sequence[int]) -> None:
    if warps_per_cta[-2] % 4:
        raise LayoutError(f"wgmma needs a multiple of 4 warps along M, not {tuple(warps_per_cta)}")


def _warpgroup_order(rank: int) -> tuple[int, ...]:
    return (rank - 2, rank - 1, *reversed(range(rank - 2)))
