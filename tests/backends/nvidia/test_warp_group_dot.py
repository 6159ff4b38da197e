"""wgmma: descriptors and fragments on the simulated GPU, and what the assembler says of the statements."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from xdsl.ir import Block, SSAValue

from tests.backends.nvidia import simt_tensor
from tests.backends.nvidia.op_kernels import OpKernel
from tests.backends.nvidia.test_dots import dot_op, expected, largest_error, tiles
from tests.sample_kernels import to_memory
from tilewright.backends.llvm.types import const
from tilewright.backends.nvidia.arch import arch_of
from tilewright.backends.nvidia.cubin import assemble, serial_notes
from tilewright.backends.nvidia.emit import warp_group
from tilewright.backends.nvidia.emit.context import Buffer, Kernel
from tilewright.backends.nvidia.plan.dots import DotPlan, SharedOperand, fragment_bits, plan_dot
from tilewright.backends.nvidia.ptx import compile_ptx
from tilewright.backends.nvidia.tgir.ops import WarpGroupDotOp
from tilewright.backends.nvidia.tgir.types import layout_of, memdesc_bytes, memdesc_type, with_layout
from tilewright.base.minifloat import round_to
from tilewright.ir.types import dtype_of, element_type, ir_name, is_float, shape_of
from tilewright.layouts.distributed import default_blocked, wgmma_operand_a
from tilewright.layouts.linear import LinearLayout
from tilewright.ops.dot import DotOp

assert simt_tensor and warp_group
Shape = tuple[int, ...]


class WarpGroupKernel(OpKernel):
    """A kernel whose operands may lie in shared memory."""

    def __init__(self, num_warps: int) -> None:
        super().__init__(90, num_warps)

    def buffer(self, value: SSAValue, place: SharedOperand, source: LinearLayout) -> SSAValue:
        """A buffer that holds the tile `value`, laid out as if it had arrived as `source`."""
        layout = place.layout_for(source)
        type_ = memdesc_type(shape_of(value.type), element_type(value.type), layout)
        (made,) = Block(arg_types=[type_]).args
        start = -(-self.shared_bytes // 1024) * 1024
        self.shared_bytes = start + memdesc_bytes(type_)
        self._steps.append(lambda k, args: _fill(k, value, made, start))
        return made

    def zeros(self, type_: Any, layout: LinearLayout) -> SSAValue:
        """A tile of zeros that are known."""
        (value,) = Block(arg_types=[with_layout(type_, layout)]).args
        self._steps.append(lambda k, args: k.set(value, [const(k.element(value), 0)] * layout.in_sizes["register"]))
        return value


def _fill(k: Kernel, value: SSAValue, buffer: SSAValue, start: int) -> None:
    element, layout = element_type(value.type), layout_of(buffer)
    offsets = layout_of(value).invert_and_compose(layout)
    part = k.thread_part(offsets, "offset")
    size = k.tile(value)[0].type.bytes
    for register, v in enumerate(k.tile(value)):
        place = k.f.mul(k.with_constant(part, offsets(register=register)["offset"]), size)
        k.f.shared_store(v, k.f.shared_at(k.f.shared(start), place))
    k.f.barrier()
    k.set(buffer, Buffer(k.f.shared(start), layout, element))


def build(
    op: DotOp,
    arrays: Sequence[np.ndarray],
    num_warps: int,
    plan: DotPlan,
    sources: tuple[LinearLayout, LinearLayout],
    zero: bool = False,
    **attrs: Any,
) -> WarpGroupKernel:
    kernel = WarpGroupKernel(num_warps)
    operands = []
    for value, array, place, source in zip(op.operands, arrays, (plan.a, plan.b), sources):
        shared = isinstance(place, SharedOperand)
        tile = kernel.operand(value.type, to_memory(array, element_type(value.type)), source if shared else place)
        operands.append(kernel.buffer(tile, place, source) if shared else tile)
    c = (
        kernel.zeros(op.c.type, plan.accumulator)
        if zero
        else kernel.operand(op.c.type, to_memory(arrays[2], element_type(op.c.type)), plan.accumulator)
    )
    made = WarpGroupDotOp.build_op([*operands, c], [c.type], attrs)
    kernel.apply(made)
    kernel.result(made.d)
    return kernel


def sources_of(op: DotOp, num_warps: int, order: str) -> tuple[LinearLayout, LinearLayout]:
    """Layouts of loaded operands, each with its last ("r") or its first ("c") dim fast."""
    made = []
    for value, fast in zip(op.operands, order):
        shape = shape_of(value.type)
        made.append(default_blocked(shape, num_warps, (1, 0) if fast == "r" else (0, 1), 4))
    return made[0], made[1]


CASES = [
    ("f16", (64, 64, 64), 4, "rr"), ("f16", (64, 64, 64), 4, "cc"), ("bf16", (64, 128, 16), 4, "rc"),
    ("bf16", (128, 32, 32), 8, "rr"), ("f16", (64, 256, 32), 4, "cr"), ("f16", (64, 64, 128), 8, "rr"),
    ("bf16", (128, 512, 16), 8, "rr"), ("f16", (256, 16, 48), 4, "cr"), ("f16", (96, 80, 32), 4, "rr"),
    ("f8E4M3FN", (64, 32, 64), 4, "rr"), ("f8E5M2", (64, 16, 128), 4, "rc"), ("i8", (64, 64, 64), 4, "rr"),
    ("f32", (64, 32, 32), 4, "rr"), ("f32", (64, 16, 8), 4, "rc"), ("f16", (64, 32, 32), 16, "cr"),
]  # fmt: skip


@pytest.mark.parametrize(("operand", "shape", "warps", "order"), CASES)
def test_against_numpy(operand: str, shape: Shape, warps: int, order: str) -> None:
    accumulator = "i32" if operand == "i8" else "f32"
    op = dot_op(operand, accumulator, shape, precision="tf32" if operand == "f32" else "ieee")
    plan = plan_dot(op, warps, arch_of(90))
    assert plan.kind == "wgmma"
    _compare(op, plan, warps, order)


def _compare(op: DotOp, plan: DotPlan, warps: int, order: str, tolerance: float = 2e-6, **attrs: Any) -> Any:
    arrays = tiles(op)
    if ir_name(element_type(op.a.type)) == "f32":  # as tf32
        arrays[:2] = [(x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) for x in arrays[:2]]
    kernel = build(op, arrays, warps, plan, sources_of(op, warps, order), **attrs)
    (found,), ran = kernel.run()
    want = expected(arrays)
    if is_float(element_type(op.c.type)):
        found.check(round_to(want, dtype_of(element_type(op.c.type))), ulp=np.inf)
        assert largest_error(found, want) <= expected([abs(x) for x in arrays]).max() * tolerance
    else:
        found.check(want.astype(np.int64).astype(np.int32))
    return ran


@pytest.mark.parametrize(
    ("operand", "shape", "warps"), [("bf16", (64, 64, 32), 4), ("f16", (128, 32, 64), 8), ("f8E4M3FN", (64, 16, 64), 4)]
)
def test_left_operand_in_registers(operand: str, shape: Shape, warps: int) -> None:
    op = dot_op(operand, "f32", shape)
    shared = plan_dot(op, warps, arch_of(90))
    plan = DotPlan("wgmma", shared.accumulator, left_in_registers(op, warps), shared.b)
    _compare(op, plan, warps, "rr")


def left_in_registers(op: DotOp, warps: int) -> LinearLayout:
    bits = fragment_bits(op, arch_of(90))
    assert bits is not None
    return wgmma_operand_a((warps, 1), shape_of(op.a.type), bits)


def test_half_accumulator_is_summed_in_float() -> None:
    op = dot_op("f16", "f16", (64, 32, 64))
    ran = _compare(op, plan_dot(op, 4, arch_of(90)), 4, "rr", tolerance=6e-4)
    assert ran.counts["ptx wgmma"]


def test_partial_sums_of_narrow_floats() -> None:
    op = dot_op("f8E4M3FN", "f32", (64, 16, 128))
    plan = plan_dot(op, 4, arch_of(90))
    ran = _compare(op, plan, 4, "rr", maxNumImpreciseAcc=64)
    assert ran.counts["ptx wgmma"] == 2 + 2 * 3 + 2  # fences, then two parts of steps, commits and waits


def _assembled(op: DotOp, warps: int, zeros: bool = False) -> tuple[str, Any]:
    plan = plan_dot(op, warps, arch_of(90))
    arrays = tiles(op)
    kernel = build(op, arrays, warps, plan, sources_of(op, warps, "rr"), zero=zeros)
    ptx = compile_ptx(kernel.text(), arch_of(90))
    cubin = assemble(ptx, arch_of(90), kernel="ops")
    assert cubin is not None
    return ptx, cubin


@pytest.mark.parametrize(
    ("operand", "shape", "steps"), [("bf16", (64, 256, 64), 4), ("f8E5M2", (64, 128, 64), 2), ("i8", (64, 64, 64), 2)]
)
def test_assembles_without_being_made_serial(operand: str, shape: Shape, steps: int) -> None:
    ptx, cubin = _assembled(dot_op(operand, "i32" if operand == "i8" else "f32", shape), 4)
    assert ptx.count("wgmma.mma_async") == steps
    assert not serial_notes(cubin.notes) and not cubin.spill_bytes


def test_zero_accumulator_is_not_read() -> None:
    ptx, _ = _assembled(dot_op("bf16", "f32", (64, 64, 32)), 4, zeros=True)
    assert re.findall(r"wgmma.mma_async.* ([pq]), 1, 1, 0, 1;", ptx) == ["q", "p"]
