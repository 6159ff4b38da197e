"""Launches whose loads through pointers go by tensor maps: what they describe, and who takes what has no map."""

from __future__ import annotations

import ctypes
import pickle
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tilewright
import tilewright.language as tl
from tests.backends.nvidia.fake_cuda import FakeCuda, installed
from tests.devices.gpu_arrays import CudaArray, aligned
from tilewright.backends.nvidia.backend import launcher
from tilewright.base.errors import ArgumentError, GridError
from tilewright.base.target import Placement
from tilewright.compile.c_interface import write_c
from tilewright.compiler import ASTSource, GPUTarget

X, Y, Z, OUT = aligned(4096), aligned(4096), aligned(4096), aligned(4096)
HALVES = X.view("float16")
START = 128  # where the maps begin, in the fake driver


@tilewright.jit
def product(a, b, c, M, K, stride, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(0, K, BK):
        k = i + tl.arange(0, BK)
        x = tl.load(a + m[:, None] * stride + k[None, :], (m[:, None] < M) & (k[None, :] < K), 0)
        y = tl.load(b + k[:, None] * BN + n[None, :], k[:, None] < K, 0)
        acc = tl.dot(x, y, acc)
    tl.store(c + m[:, None] * BN + n[None, :], acc, m[:, None] < M)


TILE = {"BM": 64, "BN": 64, "BK": 32, "num_warps": 4}
TYPES = {"a": "*fp32", "b": "*fp32", "c": "*fp32", "M": "i32", "K": "i32", "stride": "i32"}


@pytest.fixture
def fake() -> Iterator[FakeCuda]:
    def tell(function: int, number: int, offset: int, size: int) -> None:
        places = [0, 8, 16, 24, 28, 32, START, START + 128]
        ctypes.c_size_t.from_address(offset).value = places[number]

    def encode(out: int, kind: int, rank: int, address: int, sizes: int, strides: int, *rest: Any) -> None:
        size, stride = (ctypes.c_uint64.from_address(at) for at in (sizes + 8, strides))
        ctypes.memset(out, 0, 128)
        ctypes.memmove(out, struct.pack("=QQQ", address, size.value, stride.value), 24)

    with installed(FakeCuda()) as library:
        assert library is not None
        library.acts["cuFuncGetParamInfo"], library.acts["cuTensorMapEncodeTiled"] = tell, encode
        product.clear()
        yield library
        product.clear()


def launched(fake: FakeCuda, *numbers: int, a: Any = X, **options: Any) -> list[tuple[int, ...]] | None:
    """The maps of a launch; None if it had none."""
    product[(2,)](CudaArray(a), CudaArray(Y), CudaArray(OUT), *numbers, **TILE, **options)
    given = fake.launches[-1]["parameters"]
    assert given[:36] == struct.pack("=QQQiii", *(array.ctypes.data for array in (a, Y, OUT)), *numbers)
    if len(given) == 36:
        return None
    return [struct.unpack("=QQQ104x", given[at : at + 128]) for at in (START, START + 128)]


def test_values_that_have_no_map_go_to_a_kernel_without(fake: FakeCuda) -> None:
    """Through Python first, then by machine code, back and forth."""
    x, y = X.ctypes.data, Y.ctypes.data
    for _ in range(3):
        assert launched(fake, 48, 64, 64) == [(x, 48, 256), (y, 64, 256)]
        assert launched(fake, 48, 64, -64) is None
        assert launched(fake, 64, 64, 64) == [(x, 64, 256), (y, 64, 256)]
        assert launched(fake, 0, 64, 64) is launched(fake, 48, 0, 64) is launched(fake, 48, 64, 0) is None
        assert launched(fake, 48, 64, 80) == [(x, 48, 320), (y, 64, 256)]
    assert fake.names().count("cuModuleLoadDataEx") == 2


def test_machine_code_chooses(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    for stride in (64, -64, 64, -64):
        launched(fake, 48, 64, stride)
    assert product._binder is not None

    def fail(*args: object, **kwargs: object) -> None:
        raise AssertionError("the launch went through Python")

    monkeypatch.setattr(product._binder, "_in_python", fail)
    assert launched(fake, 48, 64, 96) == [(X.ctypes.data, 48, 384), (Y.ctypes.data, 64, 256)]
    assert launched(fake, 48, 64, -96) is None
    assert launched(fake, 32, 64, 96) == [(X.ctypes.data, 32, 384), (Y.ctypes.data, 64, 256)]
    made = fake.names().count("cuTensorMapEncodeTiled")
    assert launched(fake, 32, 64, 96, a=Z) == [(Z.ctypes.data, 32, 384), (Y.ctypes.data, 64, 256)]
    assert fake.names().count("cuTensorMapEncodeTiled") == made  # the address alone has changed
    assert launched(fake, 32, 64, -96, a=X) is launched(fake, 32, 64, -96, a=Z) is None
    fake.fails["cuTensorMapReplaceAddress"] = 1
    assert launched(fake, 32, 64, 96, a=X) == [(X.ctypes.data, 32, 384), (Y.ctypes.data, 64, 256)]
    assert launched(fake, 32, 64, 96, a=Z) == [(Z.ctypes.data, 32, 384), (Y.ctypes.data, 64, 256)]


def test_machine_code_hands_the_grid_on(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where blocks run one program after the other, behind the maps; the kernel without maps knows nothing of it."""
    places = [0, 8, 16, 24, 28, 32, START, START + 128, *(START + 256 + 4 * axis for axis in range(3))]
    fake.acts["cuFuncGetParamInfo"] = lambda function, number, offset, size: setattr(
        ctypes.c_size_t.from_address(offset), "value", places[number]
    )
    tile = {"BM": 128, "BN": 64, "BK": 64, "num_warps": 8, "num_stages": 6}

    def call(stride: int, *grid: int) -> tuple[Any, ...]:
        product[grid](CudaArray(HALVES), CudaArray(HALVES), CudaArray(OUT), 48, 64, stride, **tile)
        told = fake.launches[-1]
        return told["grid"], told["parameters"][START + 256 :]

    for _ in range(2):
        assert call(64, 3, 2) == ((6, 1, 1), struct.pack("=III", 3, 2, 1))
    assert product._binder is not None

    def fail(*args: object, **kwargs: object) -> None:
        raise AssertionError("the launch went through Python")

    for _ in range(2):
        assert call(64, 200, 100, 7) == ((132, 1, 1), struct.pack("=III", 200, 100, 7))
        assert call(-64, 200, 100, 7) == ((200, 100, 7), b"")
        assert call(64, 5) == ((5, 1, 1), struct.pack("=III", 5, 1, 1))
        monkeypatch.setattr(product._binder, "_in_python", fail)
    with pytest.raises(GridError, match="persistent_programs=False"):
        call(64, 2**31 - 1, 65535)
    monkeypatch.undo()
    tile["persistent_programs"] = False
    assert call(64, 200, 100, 7) == ((200, 100, 7), b"")


def test_the_option(fake: FakeCuda) -> None:
    """Whoever launches machine code by other means gets none; neither do bundles."""
    assert launched(fake, 48, 64, 64, tensor_maps=False) is None
    signature = {**TYPES, "BM": "constexpr", "BN": "constexpr", "BK": "constexpr"}
    constants = {name: TILE[name] for name in ("BM", "BN", "BK")}
    attributes = {(at,): [["tt.divisibility", 16]] for at in range(6)}
    made = tilewright.compile(ASTSource(product, signature, constants, attributes), GPUTarget("cuda", 90, 32))
    assert made.metadata.tensor_maps == [] and made.for_all_values() is made


def test_bundles_and_programs_in_c_take_all_values(fake: FakeCuda, tmp_path: Path) -> None:
    args = [CudaArray(X), CudaArray(Y), CudaArray(OUT), 48, 64, 64]
    made = product.warmup(*args, grid=(1,), **TILE)
    plain = made.for_all_values()
    assert not made.metadata.takes_all and plain.metadata.takes_all and plain is made.for_all_values()
    tilewright.write_bundle(tmp_path / "k.twb", [made])
    assert plain.binary in (tmp_path / "k.twb").read_bytes()
    tilewright.load_bundle(tmp_path / "k.twb")["product"][(2,)](*args, **TILE)
    assert len(fake.launches[-1]["parameters"]) == 36
    assert {path.name for path in write_c(made, tmp_path)} == {"product.h", "product.c"}


def test_without_another_kernel_it_is_an_error(fake: FakeCuda) -> None:
    args = [CudaArray(X), CudaArray(Y), CudaArray(OUT), 48, 64, 64]
    made = product.warmup(*args, grid=(1,), **TILE)
    launch = launcher(made.module, made.metadata, Placement(0))
    addresses = [array.ctypes.data for array in (X, Y, OUT)]
    launch(1, 1, 1, *addresses, 48, 64, 64)
    with pytest.raises(ArgumentError, match="tensor_maps=False"):
        launch(1, 1, 1, *addresses, 48, 64, -64)
    made.module = None
    assert pickle.loads(pickle.dumps(made)).otherwise is None
