"""Operands of 8 bits that are turned on their way to wgmma: layouts, attention in every order of the roles, code."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tests.backends.nvidia import attention_kernels as kernels
from tests.backends.nvidia.descriptor_kernels import Described, describe
from tests.backends.nvidia.laying import ops
from tests.backends.nvidia.simt_memory import SimtError
from tests.backends.nvidia.simt_roles import FIRST, LAST, RANDOM
from tilewright.backends.nvidia import cubin
from tilewright.backends.nvidia.arch import target_of
from tilewright.backends.nvidia.emit.shared_access import offsets_in
from tilewright.backends.nvidia.emit.turned import _axis_of_neighbours, in_pairs
from tilewright.backends.nvidia.emit.warp_group import matrix_of
from tilewright.backends.nvidia.options import CudaOptions
from tilewright.backends.nvidia.pipeline import lay_out_module
from tilewright.backends.nvidia.plan.dots import SharedOperand
from tilewright.backends.nvidia.plan.turning import in_order_of_accumulators, is_turned, turning_layout
from tilewright.backends.nvidia.tgir import level
from tilewright.base import dtypes, minifloat
from tilewright.layouts.access import plan_access
from tilewright.layouts.conversion import plan_conversion
from tilewright.layouts.distributed import wgmma_accumulator, wgmma_operand_a
from tilewright.layouts.linear import LinearLayout
from tilewright.layouts.shared import hardware_swizzled, widest_swizzle
from tilewright.layouts.shuffle import WarpPlan

torch: Any = pytest.importorskip("torch")  # arrays of 8-bit floats are its tensors

ORDERS = [(FIRST, False), (LAST, True), (RANDOM, False)]
FLOATS = {torch.float8_e4m3fn: dtypes.float8e4nv, torch.float8_e5m2: dtypes.float8e5}
M, WIDTH = 128, 64


class Case:
    """Attention of 8-bit operands over one head, and what it should be.

    Args:
        length: keys.
        keys: of a block.
        fn: a kernel of `attention_kernels`.
        rows: queries of a block.
        kind: type of the operands.
        programs: as many blocks of queries.
        options: of the compilation.
    """

    def __init__(
        self,
        length: int,
        keys: int = 64,
        fn: Any = kernels.of_their_type,
        *,
        rows: int = M,
        kind: Any = torch.float8_e4m3fn,
        programs: int = 1,
        **options: Any,
    ) -> None:
        rng = np.random.default_rng(length)
        sizes = (programs * rows, length, length)
        numbers = [rng.integers(-4, 5, (n, WIDTH)).astype(np.float32) / 4 for n in sizes]
        self.numbers, self.kind, self.programs = numbers, kind, programs
        tensors = [torch.from_numpy(x).to(kind) for x in numbers]
        self.out = torch.full((programs * rows, WIDTH), 9, dtype=torch.float16)
        given: list[Any] = [*tensors, self.out]
        if fn is not kernels.of_their_type_by_pointers:
            given = [describe(x, [n, WIDTH]) for x, n in zip(given, (rows, keys, keys, rows), strict=True)]
        options = {"num_warps": 8, "num_stages": 2, **options}
        self.made = Described(fn, [*given, length], M_BLOCK=rows, N_BLOCK=keys, WIDTH=WIDTH, **options)
        self.made._slots = [
            (x.view(torch.uint8) if x.dtype is kind else x).numpy() if isinstance(x, torch.Tensor) else x
            for x in self.made._slots
        ]
        self.expected = self._attended(keys)

    def _attended(self, keys: int) -> np.ndarray:
        """Block by block, as the kernel does it: shares are rounded before they are multiplied."""
        q, k, v = self.numbers
        most, weight, found = np.full(len(q), -1000.0), np.zeros(len(q)), np.zeros(q.shape)
        for start in range(0, len(k), keys):
            scores = q @ k[start : start + keys].T
            above = np.maximum(most, scores.max(1))
            share, shrink = np.exp2(scores - above[:, None]), np.exp2(most - above)
            float_ = FLOATS[self.kind]
            rounded = minifloat.decode(minifloat.encode(share.astype(np.float32), float_), float_)
            weight, most = weight * shrink + share.sum(1), above
            found = found * shrink[:, None] + rounded @ v[start : start + keys]
        return np.asarray(found / weight[:, None])

    def check(self, order: str = FIRST, *, early: bool = False) -> Any:
        """Run it, and compare; gives what the run did."""
        self.out.fill_(9)
        ran = self.made.run((self.programs, 1), order, early=early)
        np.testing.assert_allclose(self.out.numpy().astype(np.float64), self.expected, rtol=4e-3, atol=4e-3)
        return ran


# --- layouts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("warps", [4, 8, 16])
@pytest.mark.parametrize("shape", [(128, 128), (64, 128), (128, 64), (32, 256), (256, 16), (32, 16)])
def test_tiles_are_turned_without_conflicts(shape: tuple[int, int], warps: int) -> None:
    layout = turning_layout(shape, warps)
    assert layout.is_surjective() and is_turned(layout) and layout.in_sizes["warp"] == warps
    fast = (1, 0)
    source = hardware_swizzled(shape, 8, widest_swizzle(shape, 8, fast), fast)
    read = plan_access(offsets_in(in_pairs(layout, 1), in_pairs(source, 1)), 16, True)
    target = SharedOperand(shape, 8, 0, turned=True).layout_for(layout)
    written = plan_access(offsets_in(layout, target), 8, True)
    assert (read.kind, written.kind) == ("matrix_transposed", "matrix")
    if shape[1] >= 32:
        assert read.conflicts == 0
    assert written.conflicts == 0
    assert matrix_of(target, 8, 0).reordered and not matrix_of(target, 8, 0).transposed


def test_pairs_are_neighbours_of_one_thread() -> None:
    """Another register that changes which of two neighbours is meant is no form that is turned."""
    layout, buffer = turning_layout((64, 64), 4), hardware_swizzled((64, 64), 8, 64, (1, 0))
    bases = layout.bases()
    assert _axis_of_neighbours(layout, buffer) == 1
    for dim, count in (("register", None), ("warp", None), ("lane", 1)):
        changed = [(k, n | 1) if at == len(bases[dim]) - 1 else (k, n) for at, (k, n) in enumerate(bases[dim])]
        other = LinearLayout.from_bases({**bases, dim: changed}, layout.out_sizes)
        assert other.is_surjective() and _axis_of_neighbours(other, buffer) == count
    assert _axis_of_neighbours(layout, hardware_swizzled((64, 64), 8, 64, (0, 1))) is None


def test_fewer_warps_turn_and_the_others_hold_copies() -> None:
    few, all_ = turning_layout((128, 128), 8, 4), turning_layout((128, 128), 4)
    assert few.in_sizes["warp"] == 8 and few.free_masks()["warp"] == 4
    assert few.bases()["register"] == all_.bases()["register"] and few.bases()["warp"][:2] == all_.bases()["warp"]


def test_fragments_are_registers_of_an_accumulator() -> None:
    accumulator = wgmma_accumulator((8, 1), 128, (128, 128))
    operand = in_order_of_accumulators(wgmma_operand_a((8, 1), (128, 128), 8), 1)
    plan = plan_conversion(accumulator, operand, 8)
    assert isinstance(plan, WarpPlan) and plan.registers is not None


# --- meaning ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("order", "early"), ORDERS)
@pytest.mark.parametrize("iterations", [1, 2, 5])
def test_a_role_turns(iterations: int, order: str, early: bool) -> None:
    case = Case(iterations * 64)
    assert case.made.roles == [8, 4, 4]
    ran = case.check(order, early=early)
    counts = [ran.counts[f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4{t}.b16.p3"] for t in (".trans", "")]
    assert counts[0] and not counts[1] and ran.counts["ptx wgmma"]


@pytest.mark.parametrize(
    ("options", "roles"),
    [
        ({"keys": 128, "num_stages": 3}, [8, 4, 4]), ({"keys": 32}, [8, 4, 4]),
        ({"rows": 64, "num_warps": 4}, [4, 4, 4]), ({"kind": torch.float8_e5m2}, [8, 4, 4]),
        ({"SPECIAL": False, "keys": 128}, [8, 4, 4]), ({"SPECIAL": False}, []),
        ({"SPECIAL": False, "num_warps": 4}, []), ({"SPECIAL": False, "num_warps": 4, "num_stages": 1}, []),
        ({"programs": 3, "persistent_programs": True, "keys": 128}, [8, 4, 4]),
        ({"fn": kernels.of_their_type_by_pointers, "tensor_maps": True, "keys": 128}, [8, 4, 4]),
        ({"fn": kernels.of_their_type_by_pointers, "tensor_maps": False}, []),
    ],
)  # fmt: skip
def test_forms(options: dict[str, Any], roles: list[int]) -> None:
    case = Case(384, **options)
    assert case.made.roles == roles
    for order, early in ORDERS if roles else ORDERS[:1]:
        case.check(order, early=early)


@pytest.mark.parametrize(("order", "early"), ORDERS)
def test_integers(order: str, early: bool) -> None:
    rng = np.random.default_rng(2)
    q, k, v = (rng.integers(-8, 9, (n, 64)).astype(np.int8) for n in (128, 192, 192))
    out = np.zeros((128, 64), np.int32)
    given = [*(describe(x, [n, 64]) for x, n in ((q, 128), (k, 64), (v, 64), (out, 128))), 192]
    made = Described(kernels.squared, given, M_BLOCK=128, N_BLOCK=64, WIDTH=64, num_warps=8, num_stages=2)
    assert made.roles == [8, 4, 4]
    made.run((1, 1), order, early=early)
    wide = [x.astype(np.int64) for x in (q, k, v)]
    np.testing.assert_array_equal(out, (wide[0] @ wide[1].T & 15) @ wide[2])


def test_registers_that_are_not_handed_on() -> None:
    case = Case(128)
    options = CudaOptions(num_warps=8, num_stages=2)
    module = lay_out_module(case.made.tile_ir.clone(), options, target_of(90), hands_on=False)
    assert [op.attr_values()["registers"] for op in ops(module, "ttng.enter_role")] == [0, 0, 0]
    level.verify(module, 8)


# --- every wait matters -------------------------------------------------------------------------------

_TRY = r"call i1 @llvm\.nvvm\.mbarrier\.try\.wait[^\n]*"
_ARRIVE = r"[^\n]*mbarrier\.arrive\.shared[^\n]*"


def _is_missed(case: Case, pattern: str, number: int, instead: str) -> bool:
    """Whether a run fails when one match of a pattern is replaced."""

    def change(text: str) -> str:
        found = list(re.finditer(pattern, text))[number]
        return text[: found.start()] + instead + text[found.end() :]

    case.made.changed = change  # type: ignore[method-assign]
    for order, early in ORDERS:
        try:
            case.check(order, early=early)
        except (SimtError, AssertionError):
            return True
    return False


@pytest.mark.parametrize(
    ("pattern", "instead", "needless"),
    [(_TRY, "icmp eq i32 0, 0", []), (_ARRIVE, "", [3])],  # nobody waits for the last values of the last program
)
def test_what_is_left_out_is_missed(pattern: str, instead: str, needless: list[int]) -> None:
    case = Case(5 * 64)
    count = len(re.findall(pattern, case.made.whole.lowered().llvm))
    missed = [_is_missed(case, pattern, number, instead) for number in range(count)]
    assert count >= 6 and [number for number in range(count) if not missed[number]] == needless


def test_a_fence_stands_between_stores_and_arrivals_of_who_turns() -> None:
    """The simulator does not tell the proxies apart, by which threads store and wgmma and the copy engine access."""
    text = Case(3 * 64).made.whole.lowered().llvm
    found = re.findall(r"stmatrix|fence\.proxy\.async\.shared::cta|mbarrier\.arrive\.shared", text.split("declare")[0])
    turned = found[len(found) - found[::-1].index("stmatrix") :]
    assert turned == ["fence.proxy.async.shared::cta", "mbarrier.arrive.shared", "mbarrier.arrive.shared"]


# --- code ---------------------------------------------------------------------------------------------


def test_code() -> None:
    x = [torch.zeros(128, 128, dtype=torch.float8_e4m3fn) for _ in range(3)]
    given = [*(describe(y, [128, 128]) for y in (*x, torch.zeros(128, 128, dtype=torch.float16))), 128]
    made = Described(kernels.of_their_type, given, M_BLOCK=128, N_BLOCK=128, WIDTH=128, num_warps=8, num_stages=2)
    ptx, code = made.whole.assembled()
    assert ".local" not in ptx and code.spill_bytes == 0 and not cubin.serial_notes(code.notes)
    assert "st.shared.b8" not in ptx and ptx.count("prmt") == 32  # the tile of a thread that turns: as many words
    assert "phi i8" not in made.whole.lowered().llvm
    products = [op for op in ops(made.whole.module, "ttng.warp_group_dot_wait") if op.attr_values()["pendings"]]
    assert len(products) == 1 and not made.refusals("rotation")
