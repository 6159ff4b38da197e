"""Kernels laid out without a GPU: from a jit function to laid-out tile IR, checked, and run by the references.

`lay` gives the laid-out module of a kernel after the level's check; `same_meaning` evaluates it beside the tile IR that
it was made from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from tilewright.backends.nvidia.arch import arch_of
from tilewright.backends.nvidia.options import CudaOptions
from tilewright.backends.nvidia.plan import assign
from tilewright.backends.nvidia.plan.dots import plan_dot
from tilewright.backends.nvidia.plan.team import Team
from tilewright.backends.nvidia.tgir import level as tgir_level
from tilewright.backends.nvidia.tgir.ops import (
    ConvertLayoutOp,
    LocalAllocOp,
    WarpGroupDotOp,
    parse_module,
    print_module,
)
from tilewright.backends.nvidia.tgir.types import layout_of
from tilewright.backends.reference.address_space import Memory
from tilewright.backends.reference.evaluate import Evaluator, Values
from tilewright.backends.reference.evaluate import Program as ReferenceProgram
from tilewright.base.callable import BlockFunction
from tilewright.base.dtypes import scalar_from_signature
from tilewright.base.target import Target
from tilewright.frontend import entry
from tilewright.ir.op import TileOp
from tilewright.layouts.access import contiguity
from tilewright.layouts.linear import LinearLayout
from tilewright.ops.function import FuncOp
from tilewright.ops.spec import REGISTRY, call_of
from tilewright.ops.values import constexpr
from tilewright.passes.pipeline import run_passes

Array = np.ndarray[Any, Any]


def tile_ir(fn: BlockFunction, types: dict[str, str], **constants: Any) -> ModuleOp:
    """Simplified tile IR of a kernel; see `built_ir`."""
    return run_passes(built_ir(fn, types, **constants))


def built_ir(fn: BlockFunction, types: dict[str, str], **constants: Any) -> ModuleOp:
    """Tile IR of a kernel as the front end makes it.

    Args:
        fn: a jit function.
        types: type of each run-time parameter, as in signatures; `!` after it promises divisibility by 16.
        constants: the compile-time parameters.
    """
    specs = []
    for name in fn.signature.parameters:
        if name in constants:
            specs.append(entry.ParamSpec(name, constexpr(constants[name])))
        else:
            kind = types[name]
            promise = {"divisibility": 16} if kind.endswith("!") else {}
            specs.append(entry.ParamSpec(name, scalar_from_signature(kind.rstrip("!")), promise))
    return entry.build_module(fn, specs, CudaOptions(), Target("cuda", 90)).module


def lay(source: ModuleOp, num_warps: int = 4, capability: int = 80) -> ModuleOp:
    """The laid-out form of a copy of `source`, checked; it prints and parses back to itself."""
    arch = arch_of(capability)
    module = assign.lay_out(source.clone(), Team(num_warps), lambda op: plan_dot(op, num_warps, arch))
    tgir_level.verify(module, num_warps)
    text = print_module(module)
    assert print_module(parse_module(text)) == text
    return module


def ops(module: ModuleOp, name: str, inside: str | None = None) -> list[Operation]:
    """Operations called `name`; with `inside`, only those somewhere in an operation of that name."""
    return [op for op in module.walk() if op.name == name and (inside is None or _is_inside(op, inside))]


def _is_inside(op: Operation, name: str) -> bool:
    parent = op.parent_op()
    return parent is not None and (parent.name == name or _is_inside(parent, name))


def conversions(module: ModuleOp, inside: str | None = None) -> list[Operation]:
    """The conversions of layout."""
    return ops(module, "ttg.convert_layout", inside)


def vector(value: SSAValue, order: Sequence[int] | None = None) -> int:
    """Elements side by side in a thread, along the last dim or `order[0]`."""
    return contiguity(layout_of(value), order)


def layouts(module: ModuleOp) -> set[LinearLayout]:
    """All layouts of results."""
    tiles = (result for op in module.walk() for result in op.results if "tw.layout" in str(result.type))
    return {layout_of(tile) for tile in tiles}


class _LaidOut(Evaluator):
    """References of laid-out tile IR: what only moves elements is the identity."""

    def _op(self, op: Operation, values: Values, program: ReferenceProgram) -> Sequence[Array]:
        if isinstance(op, (ConvertLayoutOp, LocalAllocOp)):
            return [values[op.operands[0]]]
        if isinstance(op, WarpGroupDotOp):
            dot = REGISTRY["tt.dot"]
            assert dot.reference is not None and isinstance(op, TileOp)
            call = call_of(op)
            attrs = {"inputPrecision": "ieee", "maxNumImpreciseAcc": 0}
            return [dot.reference(type(call)(attrs, call.operand_types, call.result_types), *_all(values, op.operands))]
        return super()._op(op, values, program)


def _all(values: Values, operands: Sequence[SSAValue]) -> list[Array]:
    return [values[operand] for operand in operands]


def same_meaning(source: ModuleOp, laid_out: ModuleOp, arguments: Sequence[Any], grid: int = 1) -> list[Array]:
    """Run both modules on copies of the arguments and assert that all arrays end up equal; gives the arrays."""
    ends = []
    for module, evaluator in ((source, Evaluator), (laid_out, _LaidOut)):
        memory, given = Memory(), [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
        kernel = next(op for op in module.ops if isinstance(op, FuncOp))
        addresses = [memory.register(a) if isinstance(a, np.ndarray) else a for a in given]
        evaluator(module, memory).launch(kernel.symbol, (grid,), addresses)
        ends.append([a for a in given if isinstance(a, np.ndarray)])
    for first, second in zip(*ends, strict=True):
        np.testing.assert_array_equal(first, second)
    return ends[1]
