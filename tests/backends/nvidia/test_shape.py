"""Shape operations on a GPU: registers are renamed where nothing moves, and checked where something would."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from xdsl.ir import Attribute, Block

from tests.backends.nvidia.bodies import mixed_layout, op_kernel, run_op, some_layouts
from tests.backends.nvidia.op_kernels import OpKernel
from tests.backends.nvidia.simt import Result
from tilewright.backends.nvidia import ptx
from tilewright.backends.nvidia.arch import arch_of
from tilewright.backends.nvidia.cubin import assemble
from tilewright.backends.nvidia.plan.allocate import scratch_bytes
from tilewright.backends.nvidia.plan.relations import operand_layouts, result_layout
from tilewright.backends.nvidia.tgir.types import with_layout
from tilewright.base.errors import InternalError
from tilewright.ir.types import bf16, f32, i1, i32, i64, scalar_type, tile_type
from tilewright.layouts.distributed import default_blocked
from tilewright.layouts.linear import LinearLayout
from tilewright.layouts.tile import join_tiles
from tilewright.ops.shape import CatOp, JoinOp, ReshapeOp, SplitOp, UnsplatOp
from tilewright.ops.spec import REGISTRY, spec_of

CAPABILITIES = (80, 86, 89, 90, 100, 120)
BARRIER = "llvm.nvvm.barrier.cta.sync.aligned.all"
Array = np.ndarray[Any, Any]


def numbers(*shape: int, start: int = 0) -> Array:
    return np.arange(start, start + np.prod(shape), dtype=np.int32).reshape(shape)


def blank(name: str, source: tuple[int, ...], result: tuple[int, ...], attrs: dict[str, Any]) -> Any:
    """The operation without layouts, for the questions that `relations` answers."""
    operands = [Block(arg_types=[tile_type(source, i32)]).args[0]] * (2 if name in ("tt.cat", "tt.join") else 1)
    results = [tile_type(result, i32)] * (2 if name == "tt.split" else 1)
    return REGISTRY[name].op.build_op(operands, results, attrs)


def moved_nothing(ran: Result) -> None:
    assert not ran.counts[BARRIER]
    assert not any("shfl" in name and "idx" not in name for name in ran.counts)


MOVES = [
    ("tt.broadcast", (1, 16), (8, 16), {}), ("tt.broadcast", (5, 1), (5, 7), {}),
    ("tt.broadcast", (1, 4, 1), (2, 4, 8), {}),
    ("tt.expand_dims", (32,), (1, 32), {"axis": 0}), ("tt.expand_dims", (5, 7), (5, 1, 7), {"axis": 1}),
    ("tt.trans", (8, 16), (16, 8), {"order": (1, 0)}), ("tt.trans", (2, 3, 8), (8, 2, 3), {"order": (2, 0, 1)}),
    ("tt.reshape", (8, 16), (128,), {}), ("tt.reshape", (4, 4, 4), (16, 4), {}), ("tt.reshape", (5, 8), (40,), {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "source", "result", "attrs"), MOVES, ids=str)
def test_nothing_moves(name: str, source: tuple[int, ...], result: tuple[int, ...], attrs: dict[str, Any]) -> None:
    op = blank(name, source, result, attrs)
    for layout in some_layouts(result, 4, random.Random(5)):
        x = numbers(*source)
        (held,) = operand_layouts(op, layout)
        results = [with_layout(tile_type(result, i32), layout)]
        (ran,), counted = run_op(spec_of(op).op, [x], [tile_type(source, i32)], [held], results, attrs)
        want = {"tt.broadcast": lambda: np.broadcast_to(x, result), "tt.trans": lambda: x.transpose(attrs["order"])}
        ran.check(want.get(name, lambda: x.reshape(result))(), what=str(layout))
        moved_nothing(counted)


RAGGED = [((5, 7), (35,)), ((35,), (5, 7)), ((4, 6), (6, 4)), ((2, 3, 5), (10, 3)), ((96,), (3, 32)), ((3, 32), (96,))]


@pytest.mark.parametrize(("source", "result"), RAGGED, ids=str)
def test_reshapes_across_padding(source: tuple[int, ...], result: tuple[int, ...]) -> None:
    held = some_layouts(source, 4, random.Random(5))
    for held_as, layout in zip(held, some_layouts(result, 4, random.Random(6)), strict=False):
        x = numbers(*source)
        results = [with_layout(tile_type(result, i32), layout)]
        (ran,), _ = run_op(ReshapeOp, [x], [tile_type(source, i32)], [held_as], results)
        ran.check(x.reshape(result), what=f"{held_as} to {layout}")


@pytest.mark.parametrize("shape", ((16,), (4, 8), (3, 4), (5, 3, 2)), ids=str)
def test_cat(shape: tuple[int, ...]) -> None:
    x, y, whole = numbers(*shape), numbers(*shape, start=1000), (2 * shape[0], *shape[1:])
    op = blank("tt.cat", shape, whole, {})
    for held, other in zip(
        some_layouts(shape, 2, random.Random(5)), some_layouts(whole, 2, random.Random(6)), strict=True
    ):
        stacked = result_layout(op, held)
        for layout in (stacked, other):
            if layout is None:
                continue
            results = [with_layout(tile_type(whole, i32), layout)]
            (ran,), counted = run_op(CatOp, [x, y], [tile_type(shape, i32)] * 2, [held] * 2, results)
            ran.check(np.concatenate([x, y]), what=f"{held} to {layout}")
            if layout == stacked:
                moved_nothing(counted)


@pytest.mark.parametrize("shape", ((16,), (4, 8), (5, 3)), ids=str)
def test_join_and_split(shape: tuple[int, ...]) -> None:
    x, y = numbers(*shape), numbers(*shape, start=1000)
    tile, pair = tile_type(shape, i32), tile_type((*shape, 2), i32)
    for layout in some_layouts(shape, 2, random.Random(5)):
        joined = join_tiles(layout)
        (ran,), counted = run_op(JoinOp, [x, y], [tile] * 2, [layout] * 2, [with_layout(pair, joined)])
        ran.check(np.stack([x, y], -1))
        moved_nothing(counted)
        halves, _ = run_op(SplitOp, [np.stack([x, y], -1)], [pair], [joined], [with_layout(tile, layout)] * 2)
        halves[0].check(x)
        halves[1].check(y)


def test_a_split_of_any_register_bit() -> None:
    layout = default_blocked((128, 2), 1, (0, 1), vector=4)
    op = blank("tt.split", (128, 2), (128,), {})
    x = numbers(128, 2)
    half = result_layout(op, layout)
    assert half is not None and half != default_blocked((128,), 1)
    low, high = run_op(
        SplitOp, [x], [tile_type((128, 2), i32)], [layout], [with_layout(tile_type((128,), i32), half)] * 2
    )[0]
    low.check(x[:, 0])
    high.check(x[:, 1])


def test_what_would_move_is_refused() -> None:
    t = tile_type((32, 32), i32)
    layout, other = default_blocked((32, 32), 1), default_blocked((32, 32), 1, (0, 1))
    with pytest.raises(InternalError, match=r"tt.trans .* would move elements"):
        run_op(REGISTRY["tt.trans"].op, [numbers(32, 32)], [t], [layout], [with_layout(t, layout)], {"order": (1, 0)})
    run_op(REGISTRY["tt.trans"].op, [numbers(32, 32)], [t], [layout], [with_layout(t, other)], {"order": (1, 0)})


# --- from nothing -------------------------------------------------------------------------------------


def made(name: str, operands: Sequence[tuple[Attribute, Array]], type_: Attribute, attrs: dict[str, Any]) -> Any:
    kernel = OpKernel(num_warps=2)
    values = [kernel.operand(t, x) for t, x in operands]
    kernel.result(kernel.build(REGISTRY[name].op, values, [type_], attrs).results[0])
    return kernel.run()[0][0]


def test_splat_and_unsplat() -> None:
    made("tt.splat", [(i64, np.array(7, np.int64))], tile_type((5, 7), i64), {}).check(np.full((5, 7), 7))
    layout = default_blocked((1, 1), 2)
    (ran,), _ = run_op(UnsplatOp, [np.full((1, 1), 3, np.int32)], [tile_type((1, 1), i32)], [layout], [i32])
    ran.check(np.array(3))


@pytest.mark.parametrize(("start", "end"), ((0, 64), (3, 8), (-100, 412)))
def test_ranges(start: int, end: int) -> None:
    attrs = {"start": start, "end": end}
    made("tt.make_range", [], tile_type((end - start,), i32), attrs).check(np.arange(start, end))


@pytest.mark.parametrize("name", ("f32", "f64", "f16", "bf16", "f8E4M3FN", "f8E5M2", "i8", "i64", "i1"))
def test_constants(name: str) -> None:
    element = scalar_type(name)
    value = {"i1": True, "i8": -3, "i64": 2**40}.get(name, 1.5)
    made("arith.constant", [], element, {"value": value}).check(np.array(value))
    made("arith.constant", [], tile_type((5, 7), element), {"value": value}).check(np.full((5, 7), value))
    many = np.resize(np.array([value, 0, 1]), (5, 7)).astype(
        bool if name == "i1" else np.int64 if name[0] == "i" else np.float64
    )
    made("arith.constant", [], tile_type((5, 7), element), {"value": many}).check(many)


def test_poison_is_something() -> None:
    made("ub.poison", [], tile_type((4,), f32), {})


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_they_assemble(capability: int) -> None:
    arch = arch_of(capability)
    source, result = ((5, 7), mixed_layout((5, 7), 4, random.Random(1))), ((35,), default_blocked((35,), 4))
    for element, dtype in ((bf16, np.float32), (i1, bool)):
        t = tile_type(source[0], element)
        results = [with_layout(tile_type(result[0], element), result[1])]
        kernel = op_kernel(ReshapeOp, [np.zeros(source[0], dtype)], [t], [source[1]], results, {}, None, capability)
        assemble(ptx.compile_ptx(kernel.text(), arch), arch, kernel="reshape")
    kernel = OpKernel(capability)
    table = kernel.build(REGISTRY["arith.constant"].op, [], [tile_type((8,), f32)], {"value": np.arange(8.0)})
    kernel.result(table.results[0])
    assemble(ptx.compile_ptx(kernel.text(), arch), arch, kernel="table")


def test_scratch_is_asked_for_only_where_something_moves() -> None:
    def reshape(source: tuple[int, ...], result: tuple[int, ...], layout: LinearLayout) -> Any:
        (value,) = Block(arg_types=[with_layout(tile_type(source, i32), default_blocked(source, 1))]).args
        return ReshapeOp.build_op([value], [with_layout(tile_type(result, i32), layout)])

    assert scratch_bytes(reshape((5, 8), (40,), default_blocked((40,), 1))) == 0
    assert scratch_bytes(reshape((5, 7), (35,), default_blocked((35,), 1))) == 144
