"""Layouts of whole kernels: how many conversions there are, where, and that the meaning is kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from xdsl.ir import Operation

import tilewright.language as tl
from tests.backends.nvidia import layout_kernels as kernels
from tests.backends.nvidia.laying import (
    conversions,
    lay,
    layouts,
    ops,
    same_meaning,
    tile_ir,
    vector,
)
from tilewright.backends.nvidia.tgir.types import MemDescType, layout_of
from tilewright.ir.op import location_of
from tilewright.ir.types import element_type, ir_name, shape_of
from tilewright.layouts.conversion import is_free
from tilewright.layouts.distributed import sliced

RNG = np.random.default_rng(0)


def floats(*shape: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype(dtype)


def add(x: str, out: str, block: int = 1024, n: str = "i32!") -> Any:
    types = {"x_ptr": f"*{x}!", "y_ptr": f"*{x}!", "out_ptr": f"*{out}!", "n": n}
    return tile_ir(kernels.add, types, BLOCK=block)


# --- memory -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "elements"), [("fp32", 4), ("fp16", 8), ("i8", 8)])
def test_vector_add_has_one_layout_with_whole_vectors(kind, elements):
    module = lay(add(kind, kind))
    (layout,) = layouts(module)
    assert layout.in_sizes == {"register": 8, "lane": 32, "warp": 4, "block": 1}
    assert [vector(op.operands[0]) for op in ops(module, "tt.load")] == [elements, elements]


def test_vectors_are_shorter_rather_than_lanes_idle():
    module = lay(add("fp16", "fp16", block=256))
    assert vector(ops(module, "tt.store")[0].operands[0]) == 2


def test_a_mask_that_may_change_anywhere_makes_single_elements():
    module = lay(add("fp32", "fp32", n="i32"))
    assert vector(ops(module, "tt.store")[0].operands[0]) == 1


@pytest.mark.parametrize(("x", "out"), [("fp16", "fp32"), ("fp32", "fp16"), ("i8", "fp32")])
def test_loads_and_stores_of_different_widths_share_a_layout(x, out):
    module = lay(add(x, out))
    assert len(layouts(module)) == 1
    assert not conversions(module)


def test_softmax_converts_nothing():
    source = tile_ir(
        kernels.softmax, {"x_ptr": "*fp32!", "out_ptr": "*fp32!", "stride": "i32!", "n": "i32!"}, BLOCK=256
    )
    module = lay(source)
    assert not conversions(module)
    same_meaning(source, module, [floats(2, 256), floats(2, 256), 256, 200], grid=2)


def norm(rows: int, columns: int) -> Any:
    types = dict.fromkeys(("x_ptr", "w_ptr", "b_ptr", "out_ptr"), "*fp16!")
    return tile_ir(kernels.layer_norm, {**types, "mean_ptr": "*fp32!", "stride": "i32!"}, ROWS=rows, COLS=columns)


def test_layer_norm_of_rows_converts_nothing():
    """Row statistics are used where the reduction leaves them; weights are loaded where they are multiplied."""
    source = norm(16, 64)
    module = lay(source)
    assert not conversions(module)
    x, weight, _ = ops(module, "tt.load")
    assert layout_of(weight.results[0]) == sliced(layout_of(x.results[0]), 0)
    assert {layout_of(op.results[0]) for op in ops(module, "tt.reduce")} == {sliced(layout_of(x.results[0]), 1)}
    half = {"dtype": "float16"}
    arrays = [floats(16, 64, **half), floats(64, **half), floats(64, **half), floats(16, 64, **half), floats(16)]
    same_meaning(source, module, [*arrays, 64])


def test_what_the_kernel_also_writes_is_not_loaded_twice():
    """Else one warp could write the new means before another has read the old ones."""
    types = dict.fromkeys(("x_ptr", "mean_ptr", "out_ptr"), "*fp32!")
    source = tile_ir(kernels.running_mean, types, ROWS=64, COLS=64)
    module = lay(source)
    assert len(ops(module, "tt.load")) == 2
    assert [shape_of(op.results[0].type) for op in conversions(module)] == [(64,)]
    same_meaning(source, module, [floats(64, 64), floats(64), floats(64, 64)])


def test_a_transposed_store_goes_through_one_conversion():
    types = {"x_ptr": "*fp32!", "out_ptr": "*fp32!", "x_stride": "i32!", "out_stride": "i32!"}
    source = tile_ir(kernels.transpose, types, BLOCK=64)
    module = lay(source)
    assert len(conversions(module)) == 1
    assert vector(ops(module, "tt.load")[0].operands[0]) == 4
    assert vector(ops(module, "tt.store")[0].operands[0], (0, 1)) == 4
    same_meaning(source, module, [floats(64, 64), floats(64, 64), 64, 64])


# --- dots ---------------------------------------------------------------------------------------------


def product(m: int, n: int, k: int, out: Any = tl.float16, b: str = "fp16") -> Any:
    types = {"a_ptr": "*fp16!", "b_ptr": f"*{b}!", "bias_ptr": "*fp32!", "K": "i32!"}
    types["c_ptr"] = {tl.float16: "*fp16!", tl.float32: "*fp32!"}[out]
    types |= {"stride_a": "i32!", "stride_b": "i32!", "stride_c": "i32!"}
    return tile_ir(kernels.matmul, types, M=m, N=n, BLOCK_K=k, OUT=out)


def product_arguments(m: int, n: int, k: int, out: str = "float16", b: str = "float16") -> list[Any]:
    arrays = [floats(m, 2 * k, dtype="float16"), floats(2 * k, n).astype(b), floats(m, n, dtype=out), floats(n)]
    return [*arrays, 2 * k, 2 * k, n, n]


def test_matmul_converts_its_operands_and_the_narrowed_result():
    source = product(128, 128, 32)
    module = lay(source)
    operands = conversions(module, inside="scf.for")
    assert [shape_of(op.results[0].type) for op in operands] == [(128, 32), (32, 128)]
    (store,) = (op for op in conversions(module) if op not in operands)
    assert ir_name(element_type(store.results[0].type)) == "f16"
    assert [use.operation.name for use in store.results[0].uses] == ["tt.store"]
    (loop,) = ops(module, "scf.for")
    (dot,) = ops(module, "tt.dot")
    assert layout_of(loop.results[0]) == layout_of(dot.results[0])


def test_the_bias_of_a_product_is_loaded_where_it_is_added():
    module = lay(product(128, 128, 32))
    bias = ops(module, "tt.load")[-1]
    assert layout_of(bias.results[0]) == sliced(layout_of(ops(module, "tt.dot")[0].results[0]), 0)


def test_a_product_of_whole_sectors_is_stored_where_it_is():
    module = lay(product(128, 128, 32, tl.float32))
    assert len(conversions(module)) == 2


def test_wgmma_takes_its_operands_from_buffers():
    source = product(64, 64, 32)
    module = lay(source, capability=90)
    assert not ops(module, "tt.dot")
    (dot,) = ops(module, "ttng.warp_group_dot", inside="scf.for")
    assert [isinstance(operand.type, MemDescType) for operand in dot.operands] == [True, True, False]
    assert not conversions(module, inside="scf.for")
    same_meaning(source, module, product_arguments(64, 64, 32))


def test_an_operand_is_converted_before_it_is_widened():
    source = product(64, 64, 64, b="i8")
    module = lay(source)
    kinds = [ir_name(element_type(op.results[0].type)) for op in conversions(module, inside="scf.for")]
    assert kinds == ["f16", "i8"]
    same_meaning(source, module, product_arguments(64, 64, 64, b="int8"))


def test_a_converted_operand_is_loaded_as_suits_its_type():
    """16 bytes of what the product reads from shared memory; registers of a fragment are converted before."""
    for capability, wanted in ((90, 8), (80, 16)):
        module = lay(product(64, 128, 64, b="i8", out=tl.float32), capability=capability)
        assert vector(ops(module, "tt.load", inside="scf.for")[1].operands[0]) == wanted


def test_a_tile_that_several_operands_are_computed_from_is_converted_once():
    source = tile_ir(kernels.nibbles, {"x_ptr": "*fp16!", "w_ptr": "*i8!", "out_ptr": "*fp32!"}, DEPTH=32, N=128)
    module = lay(source)
    moved = [op.operands[0] for op in conversions(module) if ir_name(element_type(op.operands[0].type)) == "i8"]
    assert [value.owner.name for value in moved] == ["tt.load"]
    w = RNG.integers(-128, 128, (32, 128)).astype(np.int8)
    same_meaning(source, module, [floats(16, 64, dtype="float16"), w, floats(16, 128)])


@pytest.mark.parametrize("capability", [80, 90])
def test_attention_moves_no_row_statistics_and_no_weights(capability):
    types = dict.fromkeys(("q_ptr", "k_ptr", "v_ptr", "out_ptr"), "*fp16!")
    source = tile_ir(kernels.attention, {**types, "stride": "i32!", "n_ctx": "i32!"}, M=64, N=32, D=64)
    module = lay(source, capability=capability)
    for op in conversions(module, inside="scf.for"):
        loaded = op.operands[0].owner
        assert isinstance(loaded, Operation)
        from_memory = loaded.name == "tt.load"
        assert from_memory or is_free(layout_of(op.operands[0]), layout_of(op.results[0]))
    (q, *_), k_and_v = ops(module, "tt.load"), ops(module, "tt.load", inside="scf.for")
    assert len(k_and_v) == 2
    assert q.parent_op() is not None and q.parent_op().name == "tt.func"
    arguments = [*(floats(64, 64, dtype="float16") for _ in range(4)), 64, 64]
    same_meaning(source, module, arguments)


# --- control flow -------------------------------------------------------------------------------------


def test_a_carried_tile_is_carried_once_for_each_layout_that_is_needed():
    types = {"x_ptr": "*fp32!", "y_ptr": "*i32!", "out_ptr": "*fp32!", "n": "i32!"}
    source = tile_ir(kernels.two_uses_of_one_range, types, BLOCK=16, COLS=32)
    module = lay(source)
    assert not conversions(module)
    (loop,) = ops(module, "scf.for")
    assert len({layout_of(result) for result in loop.results}) == len(loop.results) == 2
    arrays = [floats(32, 32), np.zeros(32, np.int32), floats(32, 32)]
    _, y, _ = same_meaning(source, module, [*arrays, 32])
    assert y.tolist() == list(range(32))


def test_branches_and_while_loops_hand_over_tiles():
    types = {"x_ptr": "*fp32!", "out_ptr": "*fp32!", "n": "i32"}
    source = tile_ir(kernels.control, types, BLOCK=512)
    module = lay(source)
    assert len(ops(module, "scf.while")) == len(ops(module, "scf.if")) == 1
    assert len(layouts(module)) == 1
    same_meaning(source, module, [floats(512), floats(512), 5])


def test_a_while_loop_hands_over_each_layout_of_a_tile_as_itself():
    """Layouts of a result and of the tile that the loop carries may be asked for in different orders."""
    source = tile_ir(kernels.two_forms, {"sums_ptr": "*i32!", "out_ptr": "*i32!", "n": "i32"}, SIZE=16)
    module = lay(source)
    (loop,) = ops(module, "scf.while")
    assert len({layout_of(result) for result in loop.results if shape_of(result.type)}) == 2
    same_meaning(source, module, [np.zeros(256, np.int32), np.zeros(4096, np.int32), 3])


def test_a_tile_that_would_be_carried_in_many_layouts_settles_on_one():
    source = tile_ir(kernels.shuffled, {"out_ptr": "*i32!", "n": "i32"}, BLOCK=64)
    module = lay(source, num_warps=1)
    (loop,) = ops(module, "scf.for")
    assert len(loop.results) == 1
    same_meaning(source, module, [np.zeros(64, np.int32), 3])


# --- shapes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(5, 7), (3, 96), (96, 4), (6, 8)])
def test_ragged_tiles(shape):
    rows, columns = shape
    source = tile_ir(
        kernels.ragged, dict.fromkeys(("x_ptr", "out_ptr", "total_ptr"), "*fp32!"), ROWS=rows, COLS=columns
    )
    module = lay(source, num_warps=2)
    same_meaning(source, module, [floats(rows, columns), floats(rows * columns), floats(rows)])


@pytest.mark.parametrize("num_warps", [1, 4])
def test_operations_that_combine_elements(num_warps):
    types = {"x_ptr": "*fp32!", "index_ptr": "*i32!", "out_ptr": "*fp32!"}
    source = tile_ir(kernels.shapes, types, BLOCK=64)
    module = lay(source, num_warps)
    indices = RNG.integers(0, 64, 64).astype(np.int32)
    same_meaning(source, module, [floats(64), indices, floats(64)])


def test_places_names_and_promises_are_kept():
    source = add("fp32", "fp32")
    (before,) = ops(source, "tt.store")
    (after,) = ops(lay(source), "tt.store")
    assert location_of(after) == location_of(before) is not None
    assert [operand.name_hint for operand in after.operands] == [operand.name_hint for operand in before.operands]
