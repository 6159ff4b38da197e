"""Channels of loops with two products one after the other, and their rotation: meaning in every order, and code."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from benchmarks import descriptor_kernels
from tests.backends.nvidia import attention_kernels as kernels
from tests.backends.nvidia import gradient_kernels, role_kernels
from tests.backends.nvidia.descriptor_kernels import Described, describe
from tests.backends.nvidia.laying import ops
from tests.backends.nvidia.simt_memory import SimtError
from tests.backends.nvidia.simt_roles import FIRST, LAST, RANDOM
from tilewright.backends.nvidia import cubin
from tilewright.backends.nvidia.arch import target_of
from tilewright.backends.nvidia.options import CudaOptions
from tilewright.backends.nvidia.pipeline import lay_out_module
from tilewright.backends.nvidia.tgir import level
from tilewright.backends.nvidia.tgir.ops import parse_module, print_module
from tilewright.backends.nvidia.tgir.types import memdesc_count
from tilewright.ir.types import shape_of

Array = np.ndarray[Any, Any]
ORDERS = [(FIRST, False), (LAST, True), (RANDOM, False)]
M, N, WIDTH = 128, 64, 64


class Case:
    """Attention over keys and values of one head, and what it should be in float64.

    Args:
        fn: a kernel of `attention_kernels`.
        length: keys.
        rows: queries.
        values: type of V.
        bounds: shift and limit of `windowed`, ends of the first parts of `in_parts`.
        options: of the compilation.
    """

    def __init__(
        self,
        fn: Any,
        length: int,
        *,
        rows: int = M,
        values: Any = np.float16,
        bounds: tuple[int, ...] = (),
        **options: Any,
    ) -> None:
        rng = np.random.default_rng(5)
        held = max(length, N)
        self.q, self.k = ((rng.standard_normal((n, WIDTH)) * 0.5).astype(np.float16) for n in (rows, held))
        self.v = rng.integers(-4, 5, (held, WIDTH)).astype(values)
        self.out = np.full((rows, WIDTH), 9, np.float16)
        blocks = ((self.q, M), (self.k, N), (self.v, N), (self.out, M))
        given = [*(describe(x, [n, WIDTH]) for x, n in blocks), length, *bounds]
        if fn in (kernels.by_pointers, kernels.in_parts):
            given, options["tensor_maps"] = [self.q, self.k, self.v, self.out, length, *bounds], True
        given += [-(-rows // M)] if fn is kernels.staying else []
        self.between = bool(options.get("BETWEEN"))
        options = {"num_warps": 8, **options}
        self.made = Described(fn, given, M_BLOCK=M, N_BLOCK=N, WIDTH=WIDTH, **options)
        self.grid = (2, 1) if fn is kernels.staying else (-(-rows // M), 1)
        self.expected = self._attended(fn, length, bounds)

    def _attended(self, fn: Any, length: int, bounds: tuple[int, ...]) -> Array:
        q, k, v = (x.astype(np.float64) for x in (self.q, self.k[:length], self.v[:length]))
        scores = q @ k.T
        if fn is kernels.summed:
            sums = np.cumsum((scores.reshape(len(q), -1, N, 1) * v.reshape(1, -1, N, WIDTH)).sum(2), 1)
            return np.asarray(sums[:, -1] + sums.max((1, 2))[:, None])
        if fn is kernels.gated:
            return np.asarray(np.where(scores > 0, scores * 2, 1) @ v + scores.max())
        if fn is kernels.one_cache:
            blocks = [q @ block for block in k.reshape(-1, N, WIDTH)]
            scores, v = np.concatenate(blocks, 1) + q @ v.T, k
        if fn is kernels.causal:
            scores = np.where(np.arange(len(q))[:, None] >= np.arange(len(k)), scores, -np.inf)
        if fn is kernels.windowed:
            shift, limit = (np.int32(bound) for bound in bounds)
            columns = np.arange(len(k), dtype=np.int32)
            seen = (columns < (np.arange(len(q), dtype=np.int32) + shift)[:, None]) & (columns < limit)
            scores = np.where(seen, scores, -np.inf)
        factor = np.ones(len(k))
        if fn is kernels.in_parts:
            first, second = bounds
            free = (np.arange(len(k)) >= first) & (np.arange(len(k)) < second)
            scores = np.where(free | (np.arange(len(q))[:, None] >= np.arange(len(k))), scores, -np.inf)
            factor = np.where(np.arange(len(k)) < second, 0.5, 1.0) if self.between else factor
        with np.errstate(invalid="ignore"):  # rows that see nothing
            shares = np.exp2(scores - scores.max(1, keepdims=True)) * factor
            return np.asarray(shares / shares.sum(1, keepdims=True) @ v)

    def check(self, order: str = FIRST, *, early: bool = False) -> None:
        """Run it, and compare."""
        self.out[:] = 9
        self.made.run(self.grid, order, early=early)
        near = 4e-3 * max(1.0, np.nanmax(np.abs(self.expected)) / 4)  # of shares in f16
        np.testing.assert_allclose(self.out.astype(np.float64), self.expected, rtol=4e-3, atol=near)

    @property
    def in_flight(self) -> list[int]:
        """How many groups of products the waits leave under way, in order."""
        waits = ops(self.made.whole.module, "ttng.warp_group_dot_wait")
        return [int(op.attr_values()["pendings"]) for op in waits]

    @property
    def channels(self) -> int:
        """How many there are: each has two barriers of several stages."""
        waits = ops(self.made.whole.module, "ttng.wait_phase")
        return len({op.operands[0] for op in waits}) // 2


# --- meaning ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("order", "early"), ORDERS)
@pytest.mark.parametrize("iterations", [1, 2, 5])
def test_attention(iterations: int, order: str, early: bool) -> None:
    case = Case(kernels.attention, iterations * N, num_stages=2)
    assert case.made.roles == [8, 4] and case.channels == 2 and case.in_flight == [0, 0, 1, 0]
    case.check(order, early=early)


@pytest.mark.parametrize(("fn", "rows", "apart"), [(kernels.attention, M, [173]), (kernels.causal, M, [])])
def test_groups_start_after_each_other_where_exponentials_take_as_long_as_products(
    fn: Any, rows: int, apart: list[int]
) -> None:
    case = Case(fn, 3 * N, rows=rows)
    found = [int(op.attr_values()["cycles"]) for op in ops(case.made.whole.module, "ttng.stagger")]
    assert found == apart
    assert ("read.ptx.sreg.clock" in case.made.whole.lowered().llvm) == bool(apart)
    case.check()


@pytest.mark.parametrize("iterations", [1, 3])
def test_what_scores_become_has_any_type(iterations: int) -> None:
    case = Case(kernels.gated, iterations * N, num_stages=2)
    assert case.in_flight == [0, 0, 1, 0] and "C751" not in str(case.made.whole.assembled()[1].notes)
    for order, early in ORDERS:
        case.check(order, early=early)


def test_four_groups_of_warps() -> None:
    x = np.random.default_rng(1).standard_normal((4 * N, WIDTH)).astype(np.float16) * np.float16(0.5)
    out = np.full_like(x, 9)
    given = [*(describe(y, [rows, WIDTH]) for y, rows in ((x, 256), (x, N), (x, N), (out, 256))), 4 * N]
    made = Described(kernels.attention, given, M_BLOCK=256, N_BLOCK=N, WIDTH=WIDTH, num_warps=16, num_stages=3)
    assert made.roles == [16, 4]
    assert 1 in [int(op.attr_values()["pendings"]) for op in ops(made.whole.module, "ttng.warp_group_dot_wait")]
    made.run((1, 1), RANDOM)
    scores = x.astype(np.float64) @ x.T.astype(np.float64)
    shares = np.exp2(scores - scores.max(1, keepdims=True))
    np.testing.assert_allclose(out, shares / shares.sum(1, keepdims=True) @ x.astype(np.float64), rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize(("order", "early"), ORDERS)
def test_boxes_through_pointers(order: str, early: bool) -> None:
    case = Case(kernels.by_pointers, 3 * N, rows=2 * M, num_stages=2)
    assert case.made.roles == [8, 4] and case.channels == 2 and case.in_flight == [0, 0, 1, 0]
    case.check(order, early=early)


def test_no_iteration() -> None:
    case = Case(kernels.attention, N)
    case.made._slots[-1] = 0  # the number of keys
    with np.errstate(invalid="ignore"):
        case.made.run(case.grid)
    assert np.isnan(case.out).all()  # 0 / 0


@pytest.mark.parametrize(("order", "early"), ORDERS)
def test_keys_that_are_values_are_released_once(order: str, early: bool) -> None:
    case = Case(kernels.one_cache, 4 * N, num_stages=2)
    assert case.channels == 2 and case.in_flight == [0, 0, 1, 0]
    case.check(order, early=early)


@pytest.mark.parametrize(("order", "early"), ORDERS)
def test_programs_that_take_several_blocks_of_queries(order: str, early: bool) -> None:
    case = Case(kernels.staying, 3 * N, rows=3 * M, num_stages=2)
    assert case.channels == 2 and 1 in case.in_flight
    case.check(order, early=early)


def _selections(case: Case) -> list[int]:
    """How many selections of elements there are in each loop that multiplies."""
    bodies = [list(op.body.block.ops) for op in ops(case.made.whole.module, "scf.for")]
    bodies = [body for body in bodies if any(op.name == "ttng.warp_group_dot" for op in body)]
    return [sum(op.name == "arith.select" and bool(shape_of(op.results[0].type)) for op in body) for body in bodies]


@pytest.mark.parametrize("warps", [4, 8])
def test_iterations_that_need_no_mask_come_first(warps: int) -> None:
    case = Case(kernels.causal, 2 * M, rows=2 * M, num_warps=warps)
    assert _selections(case) == [0, 1]
    case.check(RANDOM)


def test_longest_programs_are_started_first() -> None:
    for fn, turned in ((kernels.causal, True), (kernels.attention, False)):
        module = Case(fn, 2 * M, rows=2 * M).made.whole.module
        numbers = [op.results[0] for op in ops(module, "tt.get_program_id")]
        assert turned == any(op.operands[1] in numbers for op in ops(module, "arith.subi"))


@pytest.mark.parametrize("limit", [1, 150, 1000])
@pytest.mark.parametrize("shift", [1, 2, 64, 65, 129, 5000, 2**31 - 60])
def test_bounds_of_masks(shift: int, limit: int) -> None:
    case = Case(kernels.windowed, 3 * N, bounds=(shift, limit))
    assert _selections(case) == [0, 1]
    with np.errstate(invalid="ignore", over="ignore"):
        case.check()


@pytest.mark.parametrize(("order", "early"), ORDERS)
@pytest.mark.parametrize(
    "bounds", [(0, 0), (N, N), (0, N), (2 * N, 2 * N), (N, 3 * N), (0, 3 * N), (3 * N, 3 * N)]
)  # fmt: skip
def test_loops_that_follow_each_other(bounds: tuple[int, int], order: str, early: bool) -> None:
    case = Case(kernels.in_parts, 3 * N, rows=2 * M, bounds=bounds, num_stages=2)
    assert case.made.roles == [8, 4] and case.channels == 2
    assert case.in_flight == [0, 0, 1, 0, 1, 0, 1, 0], "one beginning, three loops, one end"
    assert _selections(case)[-3:] == [1, 0, 1]
    case.check(order, early=early)


@pytest.mark.parametrize("iterations", [1, 2, 4])
def test_loops_that_carry_in_another_order(iterations: int) -> None:
    case = Case(kernels.in_another_order, iterations * N, num_stages=2)
    assert case.made.roles == [8, 4] and case.in_flight == [0, 0, 1, 0, 1, 0]
    for order, early in ORDERS:
        case.check(order, early=early)


@pytest.mark.parametrize("bounds", [(0, 0), (N, 2 * N), (0, 3 * N)])
def test_loops_with_something_between(bounds: tuple[int, int]) -> None:
    case = Case(kernels.in_parts, 3 * N, bounds=bounds, num_stages=2, BETWEEN=True)
    assert case.made.roles == [8, 4] and case.channels == 2
    assert case.in_flight == [0, 0, 1, 0, 1, 0, 0, 0, 1, 0], "two loops as one, and one"
    for order, early in ORDERS:
        case.check(order, early=early)


def test_no_iteration_of_loops_that_follow_each_other() -> None:
    case = Case(kernels.in_parts, N, bounds=(0, 0))
    case.made._slots[4] = 0  # the number of keys
    with np.errstate(invalid="ignore"):
        case.made.run(case.grid)
    assert np.isnan(case.out).all()  # 0 / 0


@pytest.mark.parametrize(("fn", "values"), [(kernels.summed, np.float16), (kernels.widened, np.int8)])
def test_what_is_not_rotated(fn: Any, values: Any) -> None:
    case = Case(fn, 3 * N, values=values)
    assert case.made.roles == [8, 4] and case.channels == 2 and 1 not in case.in_flight
    for order, early in ORDERS:
        case.check(order, early=early)


def test_registers_that_are_not_handed_on() -> None:
    x = np.zeros((128, 128), np.float16)
    given = [*(describe(x, [128, 128]) for _ in range(4)), 128]
    made = Described(kernels.attention, given, M_BLOCK=128, N_BLOCK=128, WIDTH=128, num_warps=8, num_stages=2)
    options = CudaOptions(num_warps=8, num_stages=2)
    module = lay_out_module(made.tile_ir.clone(), options, target_of(90), hands_on=False)
    assert [op.attr_values()["registers"] for op in ops(module, "ttng.enter_role")] == [0, 0]
    assert {int(op.attr_values()["pendings"]) for op in ops(module, "ttng.warp_group_dot_wait")} <= {0}
    b, c = np.zeros((64, 384), np.float16), np.zeros((128, 128), np.float16)
    given = [describe(x, [128, 64]), describe(b, [64, 128]), describe(c, [128, 128]), 64]
    made = Described(role_kernels.three_sums, given, M_BLOCK=128, N_BLOCK=128, K_BLOCK=64, num_warps=8, num_stages=2)
    assert made.roles == [8, 4]
    assert not ops(lay_out_module(made.tile_ir.clone(), options, target_of(90), hands_on=False), "ttng.enter_role")


def test_roles_unasked() -> None:
    """Where products take long enough beside exponentials, and eight warps multiply."""
    plain = {(width, warps): _unasked(width, warps) for width in (64, 128) for warps in (4, 8)}
    assert plain == {(64, 4): [], (64, 8): [], (128, 4): [], (128, 8): [8, 4]}
    assert _unasked(128, 8, keys=64) == [8, 4]
    assert _unasked(64, 16, rows=256, keys=64) == [16, 4]
    assert not _unasked(64, 16, rows=256, keys=128), "more registers than sixteen warps have"


@pytest.mark.parametrize(("width", "stages"), [(128, 3), (64, 0)])
def test_gradient_of_queries(width: int, stages: int) -> None:
    """Three products of an exponential, or half of that; keys are read by products of two iterations at a time."""
    halves = [np.zeros((128, width), np.float16) for _ in range(4)]
    given = [*halves, *(np.zeros(128, np.float32) for _ in range(2)), np.zeros((128, width), np.float32), 128]
    sizes = {"CAUSAL": False, "M": 128, "N": 64, "WIDTH": width}
    made = Described(gradient_kernels.of_queries, given, **sizes, num_warps=8, num_stages=2, tensor_maps=True)
    rings = [op.result.type for op in ops(made.whole.module, "ttg.local_alloc") if memdesc_count(op.result.type) > 1]
    assert made.roles == ([8, 4] if stages else [])
    if stages:
        assert {memdesc_count(type_) for type_ in rings} == {stages} and not made.refusals("rotation")


def test_roles_of_boxes() -> None:
    """Loads through pointers that read boxes take part as those through descriptors do."""
    given = [*(np.zeros((128, 128), np.float16) for _ in range(4)), 256]
    sizes = {"M_BLOCK": 128, "N_BLOCK": 128, "WIDTH": 128}
    options = {"num_warps": 8, "num_stages": 2, "tensor_maps": True}
    made = [Described(kernels.by_pointers, given, **sizes, **options, SPECIAL=special) for special in (True, False)]
    assert [one.roles for one in made] == [[8, 4], [8, 4]]


def _unasked(width: int, warps: int, rows: int = 128, keys: int = 128) -> list[int]:
    x = np.zeros((256, width), np.float16)
    given = [*(describe(x, [size, width]) for size in (rows, keys, keys, rows)), 256, 1.0]
    sizes = {"WIDTH": width, "QUERIES": rows, "KEYS": keys, "SPECIAL": False}
    return Described(descriptor_kernels.attention, given, num_warps=warps, num_stages=2, **sizes).roles


def test_text_and_rules() -> None:
    module = Case(kernels.attention, 2 * N).made.whole.module
    level.verify(module, 8)
    text = print_module(module)
    assert print_module(parse_module(text)) == text


# --- every wait matters -------------------------------------------------------------------------------

_TRY = r"call i1 @llvm\.nvvm\.mbarrier\.try\.wait[^\n]*"
_ARRIVE = r"[^\n]*mbarrier\.arrive\.shared[^\n]*"


def _is_missed(case: Case, pattern: str, number: int, instead: str) -> bool:
    """Whether a run fails when one match of a pattern is replaced."""

    def change(text: str) -> str:
        found = list(re.finditer(pattern, text))[number]
        return text[: found.start()] + instead + text[found.end() :]

    case.made.changed = change
    for order, early in ORDERS:
        try:
            case.check(order, early=early)
        except (SimtError, AssertionError):
            return True
    return False


@pytest.mark.parametrize(("pattern", "instead"), [(_TRY, "icmp eq i32 0, 0"), (_ARRIVE, "")])
def test_what_is_left_out_is_missed(pattern: str, instead: str) -> None:
    case = Case(kernels.staying, 3 * N, rows=2 * M, num_stages=2)
    case.grid = (1, 1)
    count = len(re.findall(pattern, case.made.whole.lowered().llvm))
    missed = [_is_missed(case, pattern, number, instead) for number in range(count)]
    assert count >= 4 and all(missed)


def test_what_is_left_out_where_loops_follow_each_other_is_missed() -> None:
    case = Case(kernels.in_parts, 7 * N, bounds=(2 * N, 3 * N), num_stages=2)
    count = len(re.findall(_ARRIVE, case.made.whole.lowered().llvm))
    missed = [_is_missed(case, _ARRIVE, number, "") for number in range(count)]
    assert missed == [True] * (count - 1) + [False], "nobody waits for the last one"


@pytest.mark.parametrize(("left", "place"), [(0, 0), (1, 0), (0, 1), (0, 2)])
def test_a_wait_for_products_that_is_left_out_is_missed(left: int, place: int) -> None:
    case = Case(kernels.attention, 3 * N, num_stages=2)
    pattern = rf"wgmma\.wait_group\.sync\.aligned {left}"
    assert _is_missed(case, pattern, place, "wgmma.wait_group.sync.aligned 3")


# --- code ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [64, 128])
def test_exponentials_run_under_products(width: int) -> None:
    x = np.zeros((128, width), np.float16)
    given = [*(describe(x, [128, width]) for _ in range(4)), 128]
    made = Described(kernels.attention, given, M_BLOCK=128, N_BLOCK=128, WIDTH=width, num_warps=8, num_stages=2)
    ptx, code = made.whole.assembled()
    assert ".local" not in ptx and code.spill_bytes == 0 and not cubin.serial_notes(code.notes)
    if cubin.whole_program() is None:
        pytest.skip("no ptxas: nvJitLink leaves registers as they are")
    sass = cubin.disassemble(code.image)
    if sass is None:
        pytest.skip("no nvdisasm")
    under = [part.split("HGMMA") for part in re.split(r"WARPGROUP\.DEPBAR\.LE gsb0, 0x\d", sass)[:-1]]
    loop = max(under, key=len)  # products of both kinds are started there
    assert "MUFU.EX2" not in loop[0] and sum(part.count("MUFU.EX2") for part in loop) == 64 + 2
    assert sass.count("USETMAXREG") == 2
