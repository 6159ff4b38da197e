"""Masks at every edge, strides of every kind, stores past the caches, element types in memory."""

from __future__ import annotations

import numpy as np
import pytest

from tests.backends.cpu.against import check
from tests.backends.cpu.harness import Compiled


def _copy(n: int, elem: str, mask: str = "", body: str = "") -> str:
    """`q[i] = f(p[i])` for the elements of a mask; `mask` gives `%m` from `%o` (offsets) and `%ns` (n everywhere)."""
    t, p = f"tensor<{n}x{elem}>", f"tensor<{n}x!tt.ptr<{elem}>>"
    use = ", %m" if mask else ""
    return f"""
module {{
  tt.func public @copy(%p: !tt.ptr<{elem}>, %q: !tt.ptr<{elem}>, %n: i32) attributes {{noinline = false}} {{
    %pid = tt.get_program_id x : i32
    %size = arith.constant {n} : i32
    %start = arith.muli %pid, %size : i32
    %r = tt.make_range {{end = {n} : i32, start = 0 : i32}} : tensor<{n}xi32>
    %starts = tt.splat %start : i32 -> tensor<{n}xi32>
    %o = arith.addi %starts, %r : tensor<{n}xi32>
    %ns = tt.splat %n : i32 -> tensor<{n}xi32>
    {mask}
    %ps = tt.splat %p : !tt.ptr<{elem}> -> {p}
    %pp = tt.addptr %ps, %o : {p}, tensor<{n}xi32>
    %qs = tt.splat %q : !tt.ptr<{elem}> -> {p}
    %qp = tt.addptr %qs, %o : {p}, tensor<{n}xi32>
    %x = tt.load %pp{use} : {p}
    {body}
    tt.store %qp, {"%y" if body else "%x"}{use} : {p}
    tt.return
  }}
}}
"""


def _compare(predicate: str, left: str = "%o", right: str = "%ns", n: int = 128) -> str:
    return f"%m = arith.cmpi {predicate}, {left}, {right} : tensor<{n}xi32>"


@pytest.mark.parametrize("predicate", ["slt", "sle", "sgt", "sge", "ne", "ult"])
def test_every_edge_of_a_mask(predicate: str) -> None:
    text = _copy(128, "f32", _compare(predicate))
    compiled = None
    data = np.arange(384, dtype=np.float32) + 1
    for n in (-5, 0, 1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 200, 255, 256, 300, 384, 1000):
        compiled = compiled or Compiled(text)
        out = np.zeros(384, np.float32)
        compiled((3,), data, out, n)
        offsets = np.arange(384)
        holds = {"slt": offsets < n, "sle": offsets <= n, "sgt": offsets > n, "sge": offsets >= n, "ne": offsets != n,
                 "ult": offsets < (n & 0xFFFFFFFF)}[predicate]  # fmt: skip
        assert np.array_equal(out, np.where(holds, data, 0)), (predicate, n)


def test_comparison_written_the_other_way_round() -> None:
    text = _copy(128, "f32", _compare("sgt", "%ns", "%o"))
    for n in (0, 64, 100, 128):
        check(text, (2,), np.arange(256, dtype=np.float32), np.zeros(256, np.float32), n)


def test_masked_lanes_touch_no_memory() -> None:
    """The last page of the arrays ends right after element n."""
    import mmap

    page = mmap.PAGESIZE
    area = mmap.mmap(-1, 4 * page)
    words = np.frombuffer(area, np.float32)
    data, out = words[: page // 4], words[2 * page // 4 : 3 * page // 4]
    data[...] = 3
    n = page // 4
    Compiled(_copy(128, "f32", _compare("slt")))(((n + 127) // 128 + 1,), data, out, n)
    assert (out == 3).all()
    assert (words[3 * page // 4 :] == 0).all()
    del data, out, words


@pytest.mark.parametrize("elem", ["i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64"])
def test_element_types(elem: str) -> None:
    rng = np.random.default_rng(0)
    size = {"i8": 1, "i16": 2, "i32": 4, "i64": 8, "f16": 2, "bf16": 2, "f32": 4, "f64": 8}[elem]
    data = rng.integers(0, 120, 256 * size, dtype=np.uint8)
    out = np.zeros_like(data)
    Compiled(_copy(128, elem, _compare("slt")))((2,), data, out, 201)
    assert np.array_equal(out[: 201 * size], data[: 201 * size])
    assert not out[201 * size :].any()


@pytest.mark.parametrize("shift", [0, 1])
def test_large_outputs(shift: int) -> None:
    """More than the caches hold: stores go past them when the address is a whole line, and not otherwise."""
    n = 13 << 20
    data = np.arange(n + 16, dtype=np.int32)
    out = np.zeros(n + 16, np.int32)
    offset = (-out.ctypes.data % 64) // 4 + shift
    target = out[offset : offset + n]
    Compiled(_copy(4096, "i32", _compare("slt", n=4096)))((n // 4096,), data, target, n - 5)
    assert np.array_equal(target[:-5], data[: n - 5])
    assert not target[-5:].any()
    assert not out[:offset].any()
    assert not out[offset + n :].any()


def _grid_copy(source: tuple[int, int], target: tuple[int, int], rows: int, columns: int, elem: str) -> str:
    """Copy a tile between two strided matrices, with row and column masks."""
    shape = f"{rows}x{columns}"
    p = f"tensor<{shape}x!tt.ptr<{elem}>>"

    def addresses(name: str, strides: tuple[int, int]) -> str:
        return f"""
    %{name}r = arith.constant dense<{strides[0]}> : tensor<{rows}x1xi32>
    %{name}c = arith.constant dense<{strides[1]}> : tensor<1x{columns}xi32>
    %{name}1 = arith.muli %i, %{name}r : tensor<{rows}x1xi32>
    %{name}2 = arith.muli %j, %{name}c : tensor<1x{columns}xi32>
    %{name}3 = tt.broadcast %{name}1 : tensor<{rows}x1xi32> -> tensor<{shape}xi32>
    %{name}4 = tt.broadcast %{name}2 : tensor<1x{columns}xi32> -> tensor<{shape}xi32>
    %{name}5 = arith.addi %{name}3, %{name}4 : tensor<{shape}xi32>
    %{name}s = tt.splat %{name} : !tt.ptr<{elem}> -> {p}
    %{name}p = tt.addptr %{name}s, %{name}5 : {p}, tensor<{shape}xi32>"""

    return f"""
module {{
  tt.func public @copy(%a: !tt.ptr<{elem}>, %b: !tt.ptr<{elem}>, %m: i32, %n: i32) attributes {{noinline = false}} {{
    %ri = tt.make_range {{end = {rows} : i32, start = 0 : i32}} : tensor<{rows}xi32>
    %rj = tt.make_range {{end = {columns} : i32, start = 0 : i32}} : tensor<{columns}xi32>
    %i = tt.expand_dims %ri {{axis = 1 : i32}} : tensor<{rows}xi32> -> tensor<{rows}x1xi32>
    %j = tt.expand_dims %rj {{axis = 0 : i32}} : tensor<{columns}xi32> -> tensor<1x{columns}xi32>
    %ms = tt.splat %m : i32 -> tensor<{rows}x1xi32>
    %ns = tt.splat %n : i32 -> tensor<1x{columns}xi32>
    %mi = arith.cmpi slt, %i, %ms : tensor<{rows}x1xi32>
    %nj = arith.cmpi slt, %j, %ns : tensor<1x{columns}xi32>
    %mib = tt.broadcast %mi : tensor<{rows}x1xi1> -> tensor<{shape}xi1>
    %njb = tt.broadcast %nj : tensor<1x{columns}xi1> -> tensor<{shape}xi1>
    %mask = arith.andi %mib, %njb : tensor<{shape}xi1>{addresses("a", source)}{addresses("b", target)}
    %x = tt.load %ap, %mask : {p}
    tt.store %bp, %x, %mask : {p}
    tt.return
  }}
}}
"""


@pytest.mark.parametrize("elem", ["f32", "f16"])
@pytest.mark.parametrize(
    ("source", "target"),
    [
        ((128, 1), (128, 1)),
        ((1, 64), (128, 1)),
        ((128, 1), (1, 64)),
        ((3, 200), (150, 1)),
        ((128, 2), (256, 1)),
        ((0, 1), (64, 1)),
    ],
)
def test_strided_copies(source: tuple[int, int], target: tuple[int, int], elem: str) -> None:
    rows, columns = 32, 64
    text = _grid_copy(source, target, rows, columns, elem)
    rng = np.random.default_rng(1)
    kind = np.dtype({"f32": np.float32, "f16": np.float16}[elem])
    for m, n in ((32, 64), (31, 64), (32, 63), (5, 7), (0, 64)):
        data = rng.standard_normal(1 << 14).astype(kind)
        check(text, (1,), data, np.zeros(1 << 14, kind), m, n)


@pytest.mark.parametrize("shape", [(1, 64), (64, 1), (2, 8), (4, 4), (128, 2)])
def test_narrow_tiles(shape: tuple[int, int]) -> None:
    text = _grid_copy((70, 1), (1, 130), *shape, "f32")
    check(text, (1,), np.arange(1 << 14, dtype=np.float32), np.zeros(1 << 14, np.float32), *shape)


def test_a_comparison_that_bounds_rows_says_nothing_of_columns() -> None:
    """One value, `%m` (i >= 5), is a mask of both dims; whole rows of it hold where columns do not."""
    t, p = "tensor<128x128xf32>", "tensor<128x128x!tt.ptr<f32>>"
    text = f"""
module {{
  tt.func public @k(%q: !tt.ptr<f32>) attributes {{noinline = false}} {{
    %r = tt.make_range {{end = 128 : i32, start = 0 : i32}} : tensor<128xi32>
    %c5 = arith.constant dense<5> : tensor<128xi32>
    %m = arith.cmpi sge, %r, %c5 : tensor<128xi32>
    %mr = tt.expand_dims %m {{axis = 1 : i32}} : tensor<128xi1> -> tensor<128x1xi1>
    %mc = tt.expand_dims %m {{axis = 0 : i32}} : tensor<128xi1> -> tensor<1x128xi1>
    %mrb = tt.broadcast %mr : tensor<128x1xi1> -> tensor<128x128xi1>
    %mcb = tt.broadcast %mc : tensor<1x128xi1> -> tensor<128x128xi1>
    %both = arith.andi %mrb, %mcb : tensor<128x128xi1>
    %s = tt.make_range {{end = 16384 : i32, start = 0 : i32}} : tensor<16384xi32>
    %o = tt.reshape %s : tensor<16384xi32> -> tensor<128x128xi32>
    %qs = tt.splat %q : !tt.ptr<f32> -> {p}
    %qp = tt.addptr %qs, %o : {p}, tensor<128x128xi32>
    %one = arith.constant dense<1.0> : {t}
    tt.store %qp, %one, %both : {p}
    tt.return
  }}
}}
"""
    check(text, (1,), np.zeros(16384, np.float32))
