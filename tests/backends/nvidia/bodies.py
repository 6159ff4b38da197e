"""Bodies of reductions and scans for tests, and the kernel that applies one to tiles in given layouts."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from tests.backends.nvidia.op_kernels import OpKernel, Ran
from tests.backends.nvidia.simt import Result
from tests.layouts.strategies import covering
from tests.sample_kernels import TERMINATORS, to_memory
from tilewright.backends.nvidia.emit import elementwise, gather, reduce, scan, shape
from tilewright.backends.nvidia.plan.allocate import scratch_bytes
from tilewright.backends.nvidia.tgir.types import with_layout
from tilewright.ir.types import element_type, i1, shape_of
from tilewright.layouts.distributed import (
    blocked,
    default_blocked,
    mma_accumulator,
    row_major_order,
    sliced,
)
from tilewright.layouts.linear import LinearLayout
from tilewright.layouts.padding import padded_shape
from tilewright.ops.spec import REGISTRY

Array = np.ndarray[Any, Any]
Values = Sequence[SSAValue]
Make = Callable[..., SSAValue]
Body = Callable[[Make, Values, Values], Values]
EMITTERS = (elementwise, gather, reduce, scan, shape)  # importing them registers them


# --- bodies -------------------------------------------------------------------------------------------


def one(name: str) -> Body:
    """The body of one operation, such as `arith.addf`."""
    return lambda make, a, b: [make(name, [a[0], b[0]], a[0].type)]


def larger_first(make: Make, a: Values, b: Values) -> Values:
    """The larger value with its index; of equal ones the lower index."""
    (x, i), (y, j) = a, b
    lower = make("arith.cmpi", [i, j], i1, predicate="slt")
    tie = make("arith.andi", [make("arith.cmpf", [x, y], i1, predicate="oeq"), lower], i1)
    first = make("arith.ori", [make("arith.cmpf", [x, y], i1, predicate="ogt"), tie], i1)
    return [make("arith.select", [first, p, q], p.type) for p, q in ((x, y), (i, j))]


def affine(make: Make, a: Values, b: Values) -> Values:
    """x -> a1 x + a0, then x -> b1 x + b0: associative, but the order of operands matters."""
    t = a[0].type
    product = make("arith.muli", [b[0], a[0]], t)
    return [product, make("arith.addi", [make("arith.muli", [b[0], a[1]], t), b[1]], t)]


def keep_left(make: Make, a: Values, b: Values) -> Values:
    """The left operand."""
    return a


def region(name: str, types: Sequence[Attribute], body: Body) -> Region:
    """The region of an operation `name` on elements of these types."""
    block = Block(arg_types=[*types, *types])

    def make(op: str, operands: Values, type_: Attribute, **attrs: Any) -> SSAValue:
        made = REGISTRY[op].op.build_op(operands, [type_], attrs)
        block.add_op(made)
        return made.results[0]

    results = body(make, block.args[: len(types)], block.args[len(types) :])
    block.add_op(REGISTRY[TERMINATORS[name]].op.create(operands=list(results)))
    return Region(block)


# --- layouts ------------------------------------------------------------------------------------------


def some_layouts(sizes: tuple[int, ...], num_warps: int, rng: random.Random) -> list[LinearLayout]:
    """Layouts of many kinds for a tile."""
    rank = len(sizes)
    orders = [row_major_order(rank), tuple(range(rank))]
    found = [default_blocked(sizes, num_warps, order, vector) for order in orders for vector in (1, 4)]
    first = [num_warps] + [1] * (rank - 1)
    threads = [1] * (rank - 1) + [32]
    found.append(blocked([2] * rank, threads, first, row_major_order(rank), padded_shape(sizes)))
    found.append(sliced(default_blocked((*sizes, 8), num_warps), rank))
    if rank == 2:
        found.append(mma_accumulator((num_warps, 1), sizes))
        found.append(mma_accumulator((1, num_warps), sizes))
    return found + [mixed_layout(sizes, num_warps, rng) for _ in range(2)]


def mixed_layout(sizes: tuple[int, ...], num_warps: int, rng: random.Random) -> LinearLayout:
    """A layout of no particular form, with some copies."""
    bits = [size.bit_length() - 1 for size in padded_shape(sizes)]
    thread_bits = 5 + num_warps.bit_length() - 1
    widths = {"register": max(0, sum(bits) - thread_bits) + rng.randrange(2), "lane": 5}
    widths |= {"warp": thread_bits - 5, "block": 0}
    flat = covering(rng, widths, (sum(bits), 0), rng.randrange(6))
    return LinearLayout(flat.ins, tuple((f"dim{i}", b) for i, b in enumerate(bits)), flat.columns)


# --- kernels ------------------------------------------------------------------------------------------


def run_op(
    cls: Any,
    arrays: Sequence[Array],
    types: Sequence[Attribute],
    layouts: Sequence[LinearLayout],
    results: Sequence[Attribute],
    attrs: dict[str, Any] | None = None,
    body: Body | None = None,
    capability: int = 90,
) -> tuple[list[Ran], Result]:
    """Run one operation on the simulator.

    Args:
        cls: its class.
        arrays, types, layouts: of the operands, in working form.
        results: types of the results, with layouts.
        attrs: attributes.
        body: of its region.
        capability: of the target.
    """
    kernel = op_kernel(cls, arrays, types, layouts, results, attrs or {}, body, capability)
    return kernel.run()


def op_kernel(
    cls: Any,
    arrays: Sequence[Array],
    types: Sequence[Attribute],
    layouts: Sequence[LinearLayout],
    results: Sequence[Attribute],
    attrs: dict[str, Any],
    body: Body | None,
    capability: int,
) -> OpKernel:
    """The kernel that `run_op` runs."""
    typed = [with_layout(t, layout) for t, layout in zip(types, layouts, strict=True)]
    blank = [Block(arg_types=[t]).args[0] for t in typed]
    op: Operation = cls.build_op(blank, list(results), attrs, [_region(cls, types, body)] if body else [])
    kernel = OpKernel(capability, layouts[0].in_sizes["warp"], scratch_bytes(op))
    for i, (array, t, layout) in enumerate(zip(arrays, types, layouts, strict=True)):
        memory = to_memory(array, element_type(t))
        op.operands[i] = kernel.operand(t, memory, layout)
    kernel.apply(op)
    for result in op.results:
        kernel.result(result)
    return kernel


def _region(cls: Any, types: Sequence[Attribute], body: Body) -> Region:
    return region(cls.name, [element_type(t) for t in types], body)


def laid_out(type_: Attribute, layout: LinearLayout) -> Attribute:
    """A tile with a layout; scalars have none."""
    return with_layout(type_, layout) if shape_of(type_) else type_
