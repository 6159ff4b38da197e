"""Tensor maps: what the copy engine of Hopper and later (TMA) reads to find a tile of a tensor in global memory.

A map is 128 bytes that the driver makes (`cuTensorMapEncodeTiled`) and a kernel takes as a parameter. Sizes are given
here as Python has them, the last dimension contiguous; the driver counts dimensions the other way round.
Source: CUDA Driver API, "Tensor Map Object Management".
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.backends.nvidia.device import driver
from tilewright.backends.nvidia.device.libcuda import cuda
from tilewright.base.errors import ArgumentError

MAP_BYTES = 128
MAP_ALIGNMENT = 64  # of the map itself, in memory and among the parameters of a kernel
Recipe = Mapping[str, Any]
"""How a launch describes a tensor: `element`, `box`, `swizzle`, `nan_padding`, `round_to_tf32` as for `encode_tiled`;
`base`, `shape` and `strides` in pairs, of which one is None: [number of a parameter, constant]. `from_pointers` says
that the map stands for pointers and masks, and launches whose values suit no map go to a kernel without (`suits`);
`natural` are the numbers of the parameters that must not be negative then."""
Values = Sequence[Any] | Mapping[int, Any]
# CUtensorMapDataType by signature type; 8-bit floats travel as bytes.
_TYPES = {
    "u8": 0, "i8": 0, "u1": 0, "fp8e4nv": 0, "fp8e5": 0, "u16": 1, "i16": 1, "u32": 2, "i32": 3, "u64": 4, "i64": 5,
    "fp16": 6, "fp32": 7, "fp64": 8, "bf16": 9,
}  # fmt: skip
_SIZES = {0: 1, 1: 2, 2: 4, 3: 4, 4: 8, 5: 8, 6: 2, 7: 4, 8: 8, 9: 2}
_TF32 = 11  # float32 that is rounded to tf32 on the way
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}  # bytes: CUtensorMapSwizzle
_PROMOTE_L2_128 = 2  # CU_TENSOR_MAP_L2_PROMOTION_L2_128B
_MAX_RANK, _MAX_BOX = 5, 256
_MAX_SIZE, _MAX_STRIDE = 1 << 31, 1 << 40  # places are signed numbers of 32 bits; bytes


def encode_tiled(
    address: int, element: str, shape: Sequence[int], strides: Sequence[int], box: Sequence[int], *,
    swizzle: int = 0, nan_padding: bool = False, round_to_tf32: bool = False,
) -> bytes:  # fmt: skip
    """A map for tiles of a strided tensor.

    Args:
        address: of the first element, a multiple of 16.
        element: signature type (`"bf16"`).
        shape: sizes, one to five.
        strides: distances between neighbours in elements; the last one is 1.
        box: sizes of a tile, at most 256 each.
        swizzle: bytes of the pattern in which a tile lies in shared memory: 0 (none), 32, 64 or 128.
        nan_padding: fill what is outside of the tensor with NaN instead of zero.
        round_to_tf32: round float32 elements to tf32.

    Raises:
        ArgumentError: the driver's rules do not allow such a map.
        DriverError: the driver refuses.
    """
    rank, kind = len(shape), _TYPES.get(element)
    if kind is None:
        raise ArgumentError(f"a tensor map has no elements of type {element}")
    size = _SIZES[kind]
    _check(1 <= rank <= _MAX_RANK and len(strides) == len(box) == rank, f"rank {rank} is not 1 to {_MAX_RANK}")
    _check(address % 16 == 0, f"address {address:#x} is not a multiple of 16")
    _check(strides[-1] == 1, f"the last stride is {strides[-1]}, not 1")
    for stride in strides[:-1]:
        _check(stride * size % 16 == 0 and stride > 0, f"a stride of {stride} elements is not a multiple of 16 bytes")
    _check(all(0 < extent <= _MAX_BOX for extent in box), f"a tile {list(box)} is larger than {_MAX_BOX} somewhere")
    _check(swizzle in _SWIZZLES, f"there is no swizzle of {swizzle} bytes")
    _check(
        not swizzle or box[-1] * size <= swizzle, f"rows of {box[-1] * size} bytes do not fit a swizzle of {swizzle}"
    )
    memory = (ctypes.c_ubyte * (MAP_BYTES + MAP_ALIGNMENT))()
    start = ctypes.addressof(memory) + -ctypes.addressof(memory) % MAP_ALIGNMENT
    cuda().call(
        "cuTensorMapEncodeTiled",
        start,
        _TF32 if round_to_tf32 else kind,
        rank,
        address,
        (ctypes.c_uint64 * rank)(*reversed(shape)),
        (ctypes.c_uint64 * max(rank - 1, 1))(*(stride * size for stride in reversed(strides[:-1]))),
        (ctypes.c_uint32 * rank)(*reversed(box)),
        (ctypes.c_uint32 * rank)(*[1] * rank),
        0,
        _SWIZZLES[swizzle],
        _PROMOTE_L2_128,
        int(nan_padding),
        doing=f"describing a tensor of {'x'.join(map(str, shape))} {element}",
    )
    return ctypes.string_at(start, MAP_BYTES)


def encode(recipe: Recipe, values: Values, ordinal: int) -> bytes:
    """The map for one launch; equal ones are made once.

    Args:
        recipe: of the compiled kernel.
        values: its parameters by their numbers.
        ordinal: the GPU.

    Raises:
        ArgumentError, DriverError: as `encode_tiled`.
    """
    base, shape, strides = _tensor(recipe, values)
    return _encoded(
        ordinal, base, recipe["element"], shape, strides, tuple(recipe["box"]), recipe["swizzle"],
        recipe["nan_padding"], recipe["round_to_tf32"],
    )  # fmt: skip


def suits(recipes: Sequence[Recipe], values: Values) -> bool:
    """Whether the copy engine reads what pointers and masks say, in all maps that stand for some.

    Args:
        recipes: of the compiled kernel.
        values: its parameters by their numbers.
    """
    for recipe in recipes:
        if recipe.get("from_pointers"):
            base, shape, strides = _tensor(recipe, values)
            size = _SIZES[_TYPES[recipe["element"]]]
            if (
                base % 16
                or any(values[slot] < 0 for slot in recipe["natural"])
                or not all(0 < extent <= _MAX_SIZE for extent in shape)
            ):
                return False
            if not all(0 < stride * size < _MAX_STRIDE and stride * size % 16 == 0 for stride in strides[:-1]):
                return False
    return True


def _tensor(recipe: Recipe, values: Values) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Address, sizes and strides that a recipe takes from the values of a launch."""

    def of(pair: Sequence[Any]) -> int:
        slot, constant = pair
        return int(constant if slot is None else values[slot])

    return of(recipe["base"]), tuple(map(of, recipe["shape"])), tuple(map(of, recipe["strides"]))


@functools.lru_cache(maxsize=1024)
def _encoded(
    ordinal: int, address: int, element: str, shape: tuple[int, ...], strides: tuple[int, ...], box: tuple[int, ...],
    swizzle: int, nan_padding: bool, round_to_tf32: bool,
) -> bytes:  # fmt: skip
    with driver.current(ordinal):
        return encode_tiled(
            address, element, shape, strides, box, swizzle=swizzle, nan_padding=nan_padding, round_to_tf32=round_to_tf32
        )


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise ArgumentError(f"tensor map: {message}")
