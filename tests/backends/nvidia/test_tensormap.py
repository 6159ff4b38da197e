"""Tensor maps: how shapes are handed to the driver, and what is refused before it is asked."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from tests.backends.nvidia.fake_cuda import FakeCuda
from tilewright.backends.nvidia.device.tensormap import MAP_BYTES, encode_tiled
from tilewright.base.errors import ArgumentError, DriverError


def test_dimensions_are_counted_from_the_contiguous_one(fake: FakeCuda) -> None:
    def encode(out: int, kind: int, rank: int, address: int, *arrays: Any) -> None:
        sizes, strides, box, steps = arrays[:4]
        assert (kind, rank, address, out % 64) == (9, 3, 0x1000, 0)
        assert list((ctypes.c_uint64 * 3).from_address(sizes)) == [256, 100, 7]
        assert list((ctypes.c_uint64 * 2).from_address(strides)) == [2 * 256, 2 * 25600]
        assert list((ctypes.c_uint32 * 3).from_address(box)) == [64, 128, 1]
        assert list((ctypes.c_uint32 * 3).from_address(steps)) == [1, 1, 1]
        assert arrays[4:] == (0, 3, 2, 1)
        ctypes.memset(out, 0xAB, MAP_BYTES)

    fake.acts["cuTensorMapEncodeTiled"] = encode
    made = encode_tiled(0x1000, "bf16", (7, 100, 256), (25600, 256, 1), (1, 128, 64), swizzle=128, nan_padding=True)
    assert made == b"\xab" * 128


def test_rounding_to_tf32(fake: FakeCuda) -> None:
    encode_tiled(0x1000, "fp32", (64,), (1,), (32,), round_to_tf32=True)
    assert fake.calls[-1][1][1:3] == (11, 1)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"address": 8}, "0x8 is not a multiple of 16"),
        ({"element": "void"}, "no elements of type void"),
        ({"strides": (65, 1)}, "65 elements is not a multiple of 16 bytes"),
        ({"strides": (64, 2)}, "last stride is 2"),
        ({"box": (257, 32)}, "larger than 256"),
        ({"swizzle": 48}, "no swizzle of 48"),
        ({"box": (8, 64), "swizzle": 64}, "128 bytes do not fit"),
        ({"shape": (), "strides": (), "box": ()}, "rank 0"),
    ],
)
def test_what_no_map_describes(fake: FakeCuda, changes: dict[str, Any], said: str) -> None:
    given = {"address": 4096, "element": "fp16", "shape": (64, 64), "strides": (64, 1), "box": (8, 32), **changes}
    with pytest.raises(ArgumentError, match=said):
        encode_tiled(**given)
    assert "cuTensorMapEncodeTiled" not in fake.names()


def test_the_driver_may_refuse(fake: FakeCuda) -> None:
    fake.fails["cuTensorMapEncodeTiled"] = 1
    with pytest.raises(DriverError, match="describing a tensor of 64x64 fp16: invalid argument"):
        encode_tiled(4096, "fp16", (64, 64), (64, 1), (8, 32))
