"""Arguments of a launch that share memory: one value where they are one address, one origin where they overlap.

    tt.func @add(%x: !tt.ptr<f32>, %out: !tt.ptr<f32>)       launched with (t, t): what is said of %out is said of %x
                                                             with (t, t[1:]): %out {tilewright.meets = 0 : i32}

Then nobody takes them for different arrays. What works in place keeps the loop that it has with one argument; for what
overlaps, loads and stores that may meet are kept in order (`analysis/origins.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i32

from tilewright.analysis.origins import MEETS
from tilewright.ops.casts import BitcastOp
from tilewright.ops.function import FuncOp
from tilewright.passes.rewriting import insert_before


class Shared(Protocol):
    """Which run-time arguments share memory, by number, each with an earlier one (`compile/specialize.py`)."""

    @property
    def same(self) -> Sequence[tuple[int, int]]:
        """Those that are one address."""

    @property
    def meeting(self) -> Sequence[tuple[int, int]]:
        """Others that overlap."""


def note_shared_memory(module: ModuleOp, shared: Shared) -> None:
    """Have arguments of the kernel that share memory be one value, or of one origin, in place.

    Args:
        module: tile IR.
        shared: which ones do.
    """
    if not shared.same and not shared.meeting:
        return
    kernel = FuncOp.kernel_of(module)
    block = kernel.body.blocks[0]
    for number, other in shared.same:
        argument, value = block.args[number], block.args[other]
        if argument.type == value.type:
            argument.replace_all_uses_with(value)
        elif block.first_op is not None:
            cast = BitcastOp.build_op([value], [argument.type])
            insert_before(cast, block.first_op)
            argument.replace_all_uses_with(cast.results[0])
    for number, other in shared.meeting:
        kernel.set_arg_attribute(number, MEETS, IntegerAttr(other, i32))
