"""Numbers that a loop carries for nothing, and those that it has to carry."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.nvidia.laying import tile_ir
from tilewright.backends.reference.address_space import Memory
from tilewright.backends.reference.evaluate import Evaluator
from tilewright.ops.control import ForOp
from tilewright.ops.elementwise import CmpIOp
from tilewright.passes.dce import eliminate_dead_code
from tilewright.passes.induction_variables import simplify_induction_variables
from tilewright.passes.mask_bounds import compare_places_with_bounds


@tilewright.jit
def block_pointers(out, n, s):
    block = tl.make_block_ptr(out, (s, n), (n, 1), (2, 0), (4, 16), (1, 0))
    total = tl.zeros([4, 16], tl.int32)
    for _ in range(0, n, 16):
        total += tl.load(block, boundary_check=(0, 1), padding_option="zero")
        block = tl.advance(block, (0, 16))
    tl.store(out + tl.arange(0, 4)[:, None] * 16 + tl.arange(0, 16)[None, :], total)


@tilewright.jit
def moved(out, n, s):
    i = tl.arange(0, 16)
    k, wide, last = s, tl.full([], 3, tl.int64), s
    for j in range(32, n, 16):
        tl.store(out + k * 0 + j + i, k + wide.to(tl.int32) + last + i, mask=i < n - j)
        k += 16
        wide += 16
    tl.store(out + i, k + wide.to(tl.int32) + last + i)


@tilewright.jit
def other_steps(out, n, s):
    i = tl.arange(0, 16)
    k, doubled = s, s
    for j in range(0, n, 16):
        tl.store(out + j + i, k + doubled + i, mask=i < n - j)
        k += 8
        doubled *= 2


@tilewright.jit
def from_anywhere(out, n, s):
    i, k = tl.arange(0, 16), s
    for j in range(s, n, 16):
        tl.store(out + j + i, k + i, mask=i < n - j)
        k += 16


def written(kernel: Any, module: Any, n: int, s: int) -> Any:
    out, memory = np.arange(4096, dtype=np.int32), Memory()
    Evaluator(module, memory).launch(kernel.fn.__name__, (1,), [memory.register(out), n, s])
    return out


@pytest.mark.parametrize(
    ("kernel", "carried"), [(block_pointers, 1), (moved, 2), (other_steps, 1), (from_anywhere, 0)], ids=str
)
def test_what_is_left_to_carry(kernel: Any, carried: int) -> None:
    """`moved` hands two of its numbers on to what comes after the loop; a number that is doubled has to be carried."""
    types = {"out": "*i32", "n": "i32", "s": "i32"}
    before, module = tile_ir(kernel, types), tile_ir(kernel, types)
    assert simplify_induction_variables(module) is True
    eliminate_dead_code(module)
    (loop,) = [op for op in module.walk() if isinstance(op, ForOp)]
    assert len(loop.results) == carried
    for n in (0, 16, 40, 100):
        assert np.array_equal(written(kernel, module, n, 5), written(kernel, before, n, 5))


def test_masks_of_blocks_are_compared_in_32_bits() -> None:
    module = tile_ir(block_pointers, {"out": "*i32", "n": "i32", "s": "i32"})
    before = written(block_pointers, module.clone(), 40, 5)
    simplify_induction_variables(module)
    assert compare_places_with_bounds(module)
    eliminate_dead_code(module)
    (loop,) = [op for op in module.walk() if isinstance(op, ForOp)]
    types = {str(op.operands[0].type) for op in loop.walk() if isinstance(op, CmpIOp)}
    assert types == {"tensor<16xi32>"}  # along the loop; masks of the rows, which no iteration changes, are outside
    assert np.array_equal(written(block_pointers, module, 40, 5), before)
