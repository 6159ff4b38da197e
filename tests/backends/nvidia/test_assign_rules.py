"""The parts of the assignment of layouts: prices of accesses, relations, single operations, and the level's check."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from tests.backends.nvidia.laying import lay, ops, same_meaning
from tests.sample_kernels import is_runnable, kernel_of
from tilewright.backends.nvidia.plan.anchors import Access, common_layouts, cycles
from tilewright.backends.nvidia.plan.relations import operand_layouts, result_layout, splittable
from tilewright.backends.nvidia.plan.team import Team
from tilewright.backends.nvidia.tgir import level as tgir_level
from tilewright.backends.nvidia.tgir.ops import parse_module
from tilewright.backends.nvidia.tgir.types import layout_of
from tilewright.base.errors import CompilationError, VerificationError
from tilewright.layouts.distributed import default_blocked, mma_accumulator, sliced
from tilewright.layouts.linear import LinearLayout
from tilewright.ops import families
from tilewright.ops.spec import REGISTRY, OpSpec
from tilewright.ops.text import parse_module as parse_tile_ir
from tilewright.passes.pipeline import run_passes

assert families.FAMILIES


def kernel(body: str, args: str = "%p: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %n: i32") -> ModuleOp:
    return parse_tile_ir(f"module {{ tt.func public @k({args}) {{\n{body}\ntt.return\n}} }}")


def rows(columns: int, bytes_: int, vector: int, order: tuple[int, ...] = (1, 0)) -> Access:
    """Access to a tile of 64 rows, each of which begins at a sector of its own."""
    return Access((64, columns), order, columns if order == (1, 0) else 64, vector, bytes_, (1, 1))


# --- prices -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bytes_", [1, 2, 4, 8])
@pytest.mark.parametrize(
    "layout",
    [
        default_blocked((64, 64), 4, (1, 0), 4),
        default_blocked((64, 64), 4, (0, 1), 2),
        mma_accumulator((2, 2), (64, 64)),
        mma_accumulator((4, 1), (64, 64)),
    ],
)
def test_price_of_an_access_is_its_sectors_and_instructions(layout, bytes_):
    """Counted lane by lane: addresses of the first element of each vector, in units of 32 bytes."""
    vector = 1
    while (0, vector) in layout.bases()["register"] and vector * bytes_ < 16:
        vector *= 2
    lanes = layout.array(lane=np.arange(32))
    addresses = lanes["dim0"] * 64 * bytes_ + lanes["dim1"] * bytes_
    sectors = len(np.unique(addresses // 32))
    instructions = layout.in_sizes["register"] // vector
    assert cycles(rows(64, bytes_, 16 // bytes_), layout) == instructions * (1 + sectors)


def test_equal_addresses_are_one_sector():
    same = Access((64, 64), (1, 0), 1, 1, 4, (64, 64))
    layout = default_blocked((64, 64), 4)
    assert cycles(same, layout) == layout.in_sizes["register"] * 2


def test_accesses_share_a_layout_unless_one_would_suffer():
    half, single, turned = rows(64, 2, 8), rows(64, 4, 4), rows(64, 4, 4, (0, 1))
    found = common_layouts({"half": half, "single": single, "turned": turned}, Team(4))
    assert found["half"] == found["single"] == default_blocked((64, 64), 4, (1, 0), 4)
    assert found["turned"] == default_blocked((64, 64), 4, (0, 1), 4)


# --- relations ----------------------------------------------------------------------------------------

SHAPE_OPS = {
    "expand": "%r = tt.expand_dims %x {axis = 1 : i32} : tensor<16x8xf32> -> tensor<16x1x8xf32>",
    "trans": "%r = tt.trans %x {order = array<i32: 1, 0>} : tensor<16x8xf32> -> tensor<8x16xf32>",
    "reshape": "%r = tt.reshape %x : tensor<16x8xf32> -> tensor<4x32xf32>",
}


@pytest.mark.parametrize("name", SHAPE_OPS)
@pytest.mark.parametrize("layout", [default_blocked((16, 8), 2, vector=2), mma_accumulator((2, 1), (16, 8))])
def test_forward_and_backward_rules_agree(name, layout):
    module = kernel(f"%x = arith.constant dense<0.0> : tensor<16x8xf32>\n{SHAPE_OPS[name]}")
    op = list(module.walk())[3]
    result = result_layout(op, layout)
    assert result is not None
    (back,) = operand_layouts(op, result)
    assert back is not None and result_layout(op, back) == result
    assert back(register=1, lane=21, warp=1) == layout(register=1, lane=21, warp=1)


def test_a_layout_is_made_splittable_only_if_it_is_not():
    within = default_blocked((64, 2), 1, vector=2)
    across = LinearLayout.from_bases(
        {"register": [(32, 0)], "lane": [(0, 1), (1, 0), (2, 0), (4, 0), (8, 0)], "warp": [(16, 0)], "block": []},
        {"dim0": 64, "dim1": 2},
    )
    assert splittable(within) == within
    made = splittable(across)
    assert made != across and made.is_surjective()
    assert made.in_sizes["lane"] == 32


# --- single operations --------------------------------------------------------------------------------


def _first_samples() -> list[Any]:
    found = []
    for name, spec in REGISTRY.items():
        samples = spec.samples(np.random.default_rng(1)) if spec.samples is not None else ()
        sample = next((s for s in samples if is_runnable(spec, s)), None)
        if sample is not None:
            found.append(pytest.param(spec, sample, id=name))
    return found


@pytest.mark.parametrize(("spec", "sample"), _first_samples())
def test_every_operation_is_laid_out(spec: OpSpec, sample: Any) -> None:
    lay(run_passes(kernel_of(spec, sample).module), num_warps=2, capability=90)


def test_constants_of_different_numbers_keep_them():
    source = kernel("""
      %r = tt.make_range {end = 4 : i32, start = 0 : i32} : tensor<4xi32>
      %s = tt.splat %p : !tt.ptr<f32> -> tensor<4x!tt.ptr<f32>>
      %a = tt.addptr %s, %r : tensor<4x!tt.ptr<f32>>, tensor<4xi32>
      %c = arith.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
      tt.store %a, %c : tensor<4x!tt.ptr<f32>>""")
    (out,) = same_meaning(source, lay(source, 1), [np.zeros(4, np.float32), 0])
    assert out.tolist() == [1, 2, 3, 4]


POINTERS = """
      %r = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
      %s = tt.splat %p : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>>
      %a = tt.addptr %s, %r : tensor<64x!tt.ptr<f32>>, tensor<64xi32>"""


def test_what_nothing_needs_is_not_made():
    module = lay(kernel(POINTERS + "%x = tt.load %a : tensor<64x!tt.ptr<f32>>"))
    assert [op.name for op in module.walk()] == ["builtin.module", "tt.func", "tt.return"]


def test_a_volatile_load_is_made_once():
    module = lay(kernel(POINTERS + "%x = tt.load %a {isVolatile = true} : tensor<64x!tt.ptr<f32>>"))
    assert len(ops(module, "tt.load")) == 1


def test_a_small_product_is_stored_where_it_is():
    """A conversion would cost more than half-empty sectors."""
    source = kernel(
        """
      %r = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
      %i = tt.expand_dims %r {axis = 1 : i32} : tensor<32xi32> -> tensor<32x1xi32>
      %j = tt.expand_dims %r {axis = 0 : i32} : tensor<32xi32> -> tensor<1x32xi32>
      %w = arith.constant dense<32> : tensor<32x1xi32>
      %k = arith.muli %i, %w : tensor<32x1xi32>
      %s = tt.splat %p : !tt.ptr<f16> -> tensor<32x1x!tt.ptr<f16>>
      %a = tt.addptr %s, %k : tensor<32x1x!tt.ptr<f16>>, tensor<32x1xi32>
      %b = tt.broadcast %a : tensor<32x1x!tt.ptr<f16>> -> tensor<32x32x!tt.ptr<f16>>
      %c = tt.broadcast %j : tensor<1x32xi32> -> tensor<32x32xi32>
      %d = tt.addptr %b, %c : tensor<32x32x!tt.ptr<f16>>, tensor<32x32xi32>
      %x = tt.load %d : tensor<32x32x!tt.ptr<f16>>
      %z = arith.constant dense<0.0> : tensor<32x32xf32>
      %y = tt.dot %x, %x, %z : tensor<32x32xf16> * tensor<32x32xf16> -> tensor<32x32xf32>
      %h = arith.truncf %y : tensor<32x32xf32> to tensor<32x32xf16>
      tt.store %d, %h : tensor<32x32x!tt.ptr<f16>>""",
        "%p: !tt.ptr<f16> {tt.divisibility = 16 : i32}",
    )
    module = lay(source)
    (store,), (dot,) = ops(module, "tt.store"), ops(module, "tt.dot")
    assert layout_of(store.operands[1]) == layout_of(dot.results[0])


def test_tiles_handed_to_functions_are_refused():
    source = parse_tile_ir("""module {
      tt.func private @f(%x: tensor<8xf32>) -> tensor<8xf32> attributes {noinline = true} {
        tt.return %x : tensor<8xf32>
      } }""")
    with pytest.raises(CompilationError, match="hands over tiles"):
        lay(source)


# --- the level ----------------------------------------------------------------------------------------

ROW = "register=(1); lane=(2) (4) (8) (16) (0); warp=; block= : 32"
OTHER = "register=(16); lane=(1) (2) (4) (8) (0); warp=; block= : 32"
SQUARE = "register=(0,1); lane=(0,2) (0,4) (1,0) (2,0) (4,0); warp=; block= : 8x8"


def level_error(body: str, layout: str = ROW) -> str:
    module = parse_module(
        f'#L = #tw.layout<"{layout}">\n#M = #tw.layout<"{OTHER}">\n#S = #tw.layout<"{SQUARE}">\n'
        f"module {{ tt.func public @k(%p: f32) {{\n{body}\ntt.return\n}} }}"
    )
    with pytest.raises(VerificationError) as caught:
        tgir_level.verify(module, 1)
    return str(caught.value)


RANGE = "%x = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32, #L>"


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        ("register=(1); lane=(2) (4) (8) (16) (0); warp=(0); block= : 32", "2 warps"),
        ("register=; lane=(1) (2) (4) (8) (0); warp=; block= : 32", "leaves elements out"),
        ("register=(1); lane=(2) (4) (8) (16) (32); warp=; block= : 64", "not the padded shape"),
        ("lane=(1) (2) (4) (8) (16); register=; warp=; block= : 32", "maps"),
    ],
)
def test_the_level_refuses_layouts_that_do_not_fit_the_tile(layout, said):
    assert said in level_error(RANGE, layout)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("%x = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>", "has no layout"),
        ("%x = tt.splat %p : f32 -> tensor<32xf32, #L>\n"
         '%y = "ttg.convert_layout"(%x) : (tensor<32xf32, #L>) -> tensor<32xi32, #M>', "do not fit together"),
        ("%x = tt.splat %p : f32 -> tensor<32xf32, #L>\n"
         "%y = arith.extf %x : tensor<32xf32, #L> to tensor<32xf64, #M>", "do not fit together"),
        ("%x = tt.splat %p : f32 -> tensor<8x8xf32, #S>\n"
         "%y = tt.reshape %x : tensor<8x8xf32, #S> -> tensor<32xf32, #L>", "reshape"),
        ("%x = tt.splat %p : f32 -> tensor<32xf32, #L>\n"
         "%y = tt.expand_dims %x {axis = 0 : i32} : tensor<32xf32, #L> -> tensor<1x32xf32, #tw.layout<"
         '"register=(0,16); lane=(0,1) (0,2) (0,4) (0,8) (0,0); warp=; block= : 1x32">>', "do not fit together"),
    ],
)  # fmt: skip
def test_the_level_refuses_operations_whose_layouts_do_not_fit(body, said):
    assert said in level_error(body)


def test_the_level_holds_the_layout_of_a_reduction():
    source = kernel("""
      %x = arith.constant dense<1.0> : tensor<8x8xf32>
      %s = tt.splat %p : !tt.ptr<f32> -> tensor<8x!tt.ptr<f32>>
      %y = "tt.reduce"(%x) <{axis = 1 : i32}> ({
      ^bb0(%a: f32, %b: f32):
        %c = arith.addf %a, %b : f32
        tt.reduce.return %c : f32
      }) : (tensor<8x8xf32>) -> tensor<8xf32>
      tt.store %s, %y : tensor<8x!tt.ptr<f32>>""")
    module = lay(source, 1)
    (reduction,) = ops(module, "tt.reduce")
    assert layout_of(reduction.results[0]) == sliced(layout_of(reduction.operands[0]), 1)
    reduction.properties["axis"] = type(reduction.properties["axis"])(0, 32)
    with pytest.raises(VerificationError, match=r"tt\.reduce"):
        tgir_level.verify(module, 1)
