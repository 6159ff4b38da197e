"""Kernels that take tensor descriptors from the host, and how to lay them out and run them without a GPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tests.backends.nvidia import simt_math, simt_tensor
from tests.backends.nvidia.simt import Result, run_kernel
from tests.backends.nvidia.simt_roles import FIRST, Agents
from tests.backends.nvidia.simt_tma import encoding
from tests.backends.nvidia.whole import Whole
from tilewright.backends.nvidia.arch import target_of
from tilewright.backends.nvidia.device import tensormap
from tilewright.backends.nvidia.options import CudaOptions
from tilewright.backends.nvidia.pipeline import lay_out_module
from tilewright.backends.nvidia.tgir.ops import EnterRoleOp
from tilewright.base.decision import from_records
from tilewright.compile.parameters import parameter_specs
from tilewright.compile.specialize import Specialization, specialize_call
from tilewright.devices.arrays import Array as ReadArray
from tilewright.devices.arrays import read
from tilewright.frontend import entry
from tilewright.ir.decisions import Decisions
from tilewright.launch.bind import slot_values
from tilewright.ops import levels
from tilewright.passes.pipeline import run_passes
from tilewright.tools.tensor_descriptor import TensorDescriptor

assert simt_math and simt_tensor  # importing them adds their instructions

describe = TensorDescriptor.from_tensor


# --- kernels ------------------------------------------------------------------------------------------


@tw.jit
def scaled_copy(source, target, factor, M: tl.constexpr, N: tl.constexpr):
    row, column = tl.program_id(0) * M, tl.program_id(1) * N
    target.store([row, column], source.load([row, column]) * factor)


@tw.jit
def moved(source, target, SHIFT: tl.constexpr):
    """Blocks from outside of the tensor, on all sides, and stores that end there."""
    m: tl.constexpr = source.block_shape[0]
    n: tl.constexpr = source.block_shape[1]
    row, column = tl.program_id(0) * m, tl.program_id(1) * n
    target.store([row, column], source.load([row - SHIFT, column + SHIFT]))


@tw.jit
def vectors(source, target, N: tl.constexpr):
    at = tl.program_id(0) * N
    target.store([at], source.load([at]) + source.load([at + 4]))


@tw.jit
def cubes(source, target, D: tl.constexpr):
    at = tl.program_id(0) * D
    target.store([at, 0, 0], source.load([at, 1, 8]))


@tw.jit
def row_sums(source, out, COLUMNS, M: tl.constexpr, N: tl.constexpr):
    total = tl.zeros((M,), tl.float32)
    for column in range(0, COLUMNS, N):
        total += tl.sum(source.load([0, column]).to(tl.float32), 1)
    tl.store(out + tl.arange(0, M), total)


@tw.jit
def sometimes(source, out, n, M: tl.constexpr, N: tl.constexpr):
    """Loads in branches and in a while loop: every thread counts the phases of its barriers."""
    total = tl.zeros((M, N), tl.float32)
    step = 0
    while step < n:
        if step % 2 == 1:
            total += source.load([step, 0])
        total += source.load([0, 4 * step])
        step += 1
    tl.store(out + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :], total)


@tw.jit
def in_place(source, out, M: tl.constexpr, N: tl.constexpr):
    tile = source.load([0, 0])
    tl.store(out, 1.0)
    source.store([0, 0], tile + 1)


@tw.jit
def ordinary_writes(x, M: tl.constexpr, N: tl.constexpr):
    """The tensor is also written by an ordinary store."""
    tl.store(x.base, 5.0)
    x.store([0, 0], x.load([0, 0]) + 1)


@tw.jit
def ordinary_reads(x, out, M: tl.constexpr, N: tl.constexpr):
    """The tensor is stored through a descriptor and read by an ordinary load."""
    x.store([0, 0], x.load([0, 0]) + 1)
    tl.store(out, tl.load(x.base))


@tw.jit
def matmul(
    a, b, c, K, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, K_BLOCK: tl.constexpr, TRANS_B: tl.constexpr = False,
    ACC: tl.constexpr = tl.float32,
):  # fmt: skip
    m, n = tl.program_id(0) * M_BLOCK, tl.program_id(1) * N_BLOCK
    acc = tl.zeros((M_BLOCK, N_BLOCK), ACC)
    for k in range(0, K, K_BLOCK):
        right = tl.trans(b.load([n, k])) if TRANS_B else b.load([k, n])
        acc = tl.dot(a.load([m, k]), right, acc, out_dtype=ACC)
    c.store([m, n], acc.to(c.dtype))


@tw.jit
def persistent(a, b, c, K, tiles, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, K_BLOCK: tl.constexpr):
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        acc = tl.zeros((M_BLOCK, N_BLOCK), tl.float32)
        for k in range(0, K, K_BLOCK):
            acc = tl.dot(a.load([tile * M_BLOCK, k]), b.load([k, 0]), acc)
        c.store([tile * M_BLOCK, 0], acc.to(c.dtype))


@tw.jit
def mixed_matmul(a, b_ptr, c, N, K, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, K_BLOCK: tl.constexpr):
    """One operand through a descriptor, one through pointers."""
    m, n = tl.program_id(0) * M_BLOCK, tl.program_id(1) * N_BLOCK
    acc = tl.zeros((M_BLOCK, N_BLOCK), tl.float32)
    for k in range(0, K, K_BLOCK):
        rows, columns = k + tl.arange(0, K_BLOCK)[:, None], n + tl.arange(0, N_BLOCK)[None, :]
        right = tl.load(b_ptr + rows * N + columns, mask=rows < K, other=0.0)
        acc = tl.dot(a.load([m, k]), right, acc)
    c.store([m, n], acc.to(c.dtype))


# --- building and running -----------------------------------------------------------------------------


class Described:
    """A kernel laid out for arguments of which some are descriptors.

    Args:
        fn: a jit function.
        args: run-time arguments; numpy arrays and descriptors of them are changed in place by a run.
        capability: of the target.
        constants: compile-time parameters by name, or options of the compilation.
    """

    changed: Callable[[str], str] = staticmethod(lambda text: text)  # what a test does to the LLVM text

    def __init__(self, fn: Any, args: Sequence[Any], capability: int = 90, **constants: Any) -> None:
        given = iter(args)
        values = [
            constants.pop(p.name) if p.name in constants else p.default if p.is_constexpr else next(given)
            for p in fn.params
        ]
        arguments = tuple(v if p.is_constexpr else read(v, p.name) for p, v in zip(fn.params, values, strict=True))
        self.specialization: Specialization = specialize_call(fn.params, arguments)
        options, target = CudaOptions(**constants), target_of(capability)
        made = entry.build_module(fn, parameter_specs(self.specialization), options, target)
        self.tile_ir = run_passes(made.module)
        levels.verify(self.tile_ir)
        self.decisions = Decisions()
        self.whole = Whole(capability, options, lay_out_module(self.tile_ir.clone(), options, target, self.decisions))
        paths = self.specialization.runtime_paths
        slots = [_at(arguments, path) for path in paths]
        addresses = slot_values(arguments, paths)
        self._slots = [s.owner if isinstance(s, ReadArray) else a for s, a in zip(slots, addresses, strict=True)]

    @property
    def roles(self) -> list[int]:
        """Warps of each role, in order of their numbers."""
        entered = [op.attr_values() for op in self.whole.module.walk() if isinstance(op, EnterRoleOp)]
        return [int(role["num_warps"]) for role in sorted(entered, key=lambda role: int(role["first_warp"]))]

    def refusals(self, subject: str) -> list[str]:
        """Why something was not done, each time it was not."""
        return [row.text for row in from_records(self.decisions.records()) if row.subject == subject and not row.taken]

    def run(self, grid: Sequence[int], order: str = FIRST, *, early: bool = False, blocks: int = 2) -> Result:
        """Run it on the simulated GPU.

        Args:
            grid: programs along each dim.
            order: which role goes on, of those that can.
            early: copies arrive at once.
            blocks: that run at a time, if they run one program after the other.
        """
        made = self.whole.lowered()
        maps = [partial(tensormap.encode, recipe) for recipe in made.tensor_maps]
        slots = [*self._slots, *(lambda values, of=of: np.frombuffer(of(values, 0), np.uint8) for of in maps)]
        if made.persistent:
            sizes = [*grid, 1, 1][:3]
            slots, grid = [*slots, *sizes], (min(math.prod(sizes), blocks),)
        with encoding():
            divided = partial(Agents, self.roles, order, early=early) if self.roles else None
            return run_kernel(
                self.changed(made.llvm), made.symbol, grid, made.num_warps, slots, made.shared_bytes, agents=divided
            )


def _at(value: Any, path: Sequence[int]) -> Any:
    for index in path:
        value = value[index]
    return value
