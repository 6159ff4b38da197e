"""Roles: what is divided and what is not, the code of it, and its meaning in every order in which warps may run."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.backends.nvidia import descriptor_kernels
from tests.backends.nvidia import role_kernels as kernels
from tests.backends.nvidia.descriptor_kernels import Described, describe
from tests.backends.nvidia.laying import ops
from tests.backends.nvidia.simt_memory import SimtError
from tests.backends.nvidia.simt_roles import FIRST, LAST, RANDOM
from tilewright.backends.nvidia import cubin
from tilewright.backends.nvidia.emit.bulk import _since
from tilewright.backends.nvidia.plan.crew import Crew
from tilewright.backends.nvidia.tgir import level
from tilewright.backends.nvidia.tgir.ops import parse_module, print_module
from tilewright.backends.nvidia.tgir.types import memdesc_count
from tilewright.base.errors import VerificationError
from tilewright.frontend.source import source_of
from tilewright.tools.report.pipelines import pipelines_of

Array = np.ndarray[Any, Any]
ORDERS = [(FIRST, False), (LAST, True), (RANDOM, False)]
M, N, K = BLOCKS = (128, 64, 64)


class Case:
    """A product of small whole numbers, and what it should be.

    Args:
        fn: a kernel of `role_kernels`.
        depth: of the product.
        more: arguments between the matrices and the depth.
        rows: of the result.
        left, right: types of A and B.
    """

    def __init__(
        self,
        fn: Any,
        depth: int,
        *more: Any,
        rows: int = M,
        left: Any = np.float16,
        right: Any = np.float16,
        **options: Any,
    ) -> None:
        rng = np.random.default_rng(3)
        self.a = rng.integers(-4, 5, (rows, depth)).astype(left)
        self.b = rng.integers(-4, 5, (depth, N)).astype(right)
        self.c = np.full((rows, N), -1, np.float16)
        stays = fn in (kernels.staying, kernels.staying_with_two_loops)
        last = [depth, *([-(-rows // M)] if stays else [])]
        last = [] if fn is kernels.bounded_by_memory else last
        first = self.a if fn is kernels.by_pointers else describe(self.a, [M, K])
        given = [first, describe(self.b, [K, N]), describe(self.c, [M, N]), *more, *last]
        options = {"num_warps": 8, **options}
        self.made = Described(fn, given, M_BLOCK=M, N_BLOCK=N, K_BLOCK=K, **options)
        self.grid = (2, 1) if stays else (-(-rows // M), 1)
        self.expected = self.a.astype(np.float32) @ self.b.astype(np.float32)

    def check(self, order: str = FIRST, *, early: bool = False) -> None:
        """Run it, and compare."""
        self.c[:] = -1
        self.made.run(self.grid, order, early=early)
        np.testing.assert_array_equal(self.c, self.expected)


# --- meaning ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("order", "early"), ORDERS)
@pytest.mark.parametrize("iterations", [0, 1, 2, 6])
def test_products(iterations: int, order: str, early: bool) -> None:
    case = Case(kernels.product, max(1, iterations) * K)
    assert case.made.roles == [8, 4]
    if not iterations:
        case.expected[:] = 0
        case.made._slots[-1] = 0  # K
    case.check(order, early=early)


@pytest.mark.parametrize(("order", "early"), ORDERS)
def test_programs_that_take_several_tiles(order: str, early: bool) -> None:
    case = Case(kernels.staying, 3 * K - 8, rows=4 * M + 8)
    assert case.made.roles == [8, 4]
    case.check(order, early=early)


def test_loops_over_tiles_are_divided_unasked() -> None:
    x, out = np.zeros((M, K), np.float16), np.zeros((M, N), np.float16)
    given = [describe(x, [M, K]), describe(np.zeros((K, N), np.float16), [K, N]), describe(out, [M, N]), K]
    blocks = {"M_BLOCK": M, "N_BLOCK": N, "K_BLOCK": K}
    persistent = descriptor_kernels.persistent
    assert Described(persistent, [*given, 1], num_warps=8, **blocks).roles == [8, 4]
    assert not Described(persistent, [*given, 1], num_warps=4, **blocks).roles
    assert not Described(descriptor_kernels.matmul, given, num_warps=8, **blocks).roles


@pytest.mark.parametrize(("order", "early"), ORDERS)
@pytest.mark.parametrize(("fn", "rows"), [(kernels.two_loops, M), (kernels.staying_with_two_loops, 3 * M + 8)])
@pytest.mark.parametrize("iterations", [1, 2, 5])
def test_loops_that_follow_each_other(fn: Any, rows: int, iterations: int, order: str, early: bool) -> None:
    case = Case(fn, iterations * K, rows=rows)
    assert case.made.roles == [8, 4]
    case.check(order, early=early)


@pytest.mark.parametrize(("order", "early"), ORDERS)
def test_products_that_end_in_their_iteration(order: str, early: bool) -> None:
    sums, scales = np.zeros(N, np.float32), np.array([1, -2, 4, 1, 2], np.float32)
    case = Case(kernels.scaled, 5 * K, scales, sums)
    assert case.made.roles == [8, 4]
    parts = case.a.astype(np.float32).reshape(M, 5, K) * scales[None, :, None]
    case.expected = parts.reshape(M, 5 * K) @ case.b.astype(np.float32)
    case.check(order, early=early)
    np.testing.assert_array_equal(sums, case.expected.sum(0))


@pytest.mark.parametrize(("order", "early"), ORDERS)
@pytest.mark.parametrize("warps", [4, 8])
def test_operands_that_pass_through_registers(warps: int, order: str, early: bool) -> None:
    case = Case(kernels.converted, 4 * K, right=np.int8, num_warps=warps)
    assert case.made.roles == [warps, 4] and ops(case.made.whole.module, "ttg.local_load")
    case.check(order, early=early)


def test_places_that_the_loop_carries() -> None:
    case = Case(kernels.walking, 5 * K)
    assert case.made.roles == [8, 4]
    case.check(LAST)


@pytest.mark.parametrize(("fn", "right"), [(kernels.staying, np.float16), (kernels.converted, np.int8)])
def test_text_and_rules(fn: Any, right: Any) -> None:
    module = Case(fn, 2 * K, right=right).made.whole.module
    level.verify(module, 8)
    text = print_module(module)
    assert print_module(parse_module(text)) == text
    with pytest.raises(VerificationError):
        level.verify(parse_module(text.replace("num_warps = 4", "num_warps = 3")), 8)


def test_blocks_without_room_for_more_warps() -> None:
    assert Case(kernels.product, K, num_warps=16).made.roles == [16, 4]
    assert not Case(kernels.product, K, num_warps=32).made.roles


@pytest.mark.parametrize("warps", [4, 8, 16])
def test_no_warp_waits_for_registers_that_nobody_has(warps: int) -> None:
    """More than the block began with would be waited for by warps that nobody wakes."""
    case = Case(kernels.product, 2 * K, num_warps=warps)
    roles = [op.attr_values() for op in ops(case.made.whole.module, "ttng.enter_role")]
    asked = sum(int(role["registers"]) * int(role["num_warps"]) for role in roles)
    assert asked <= Crew(warps).usual * (warps + 4)
    assert (asked > 0) == (warps > 4)
    if cubin.whole_program() is not None:
        ptx, code = case.made.whole.assembled()
        assert ".local" not in ptx and code.spill_bytes == 0


def test_depth_of_the_rings() -> None:
    counts = {stages: Case(kernels.product, K, num_stages=stages).made for stages in (1, 2, 6)}
    assert not counts[1].roles
    for stages in (2, 6):
        rings = [op.results[0].type for op in ops(counts[stages].whole.module, "ttg.local_alloc")]
        assert [memdesc_count(type_) for type_ in rings] == 4 * [stages]


# --- what is not divided ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fn", "more"),
    [
        (kernels.by_pointers, ()), (kernels.under_a_condition, ()), (kernels.unlike_loops, ()),
        (kernels.loops_at_two_places, ()),
        (kernels.behind_a_signal, (np.zeros(1, np.int32),)), (kernels.bounded_by_memory, (np.array([192], np.int32),)),
    ],
)  # fmt: skip
def test_loops_that_cannot_be_divided_are_pipelined_as_others(fn: Any, more: tuple[Any, ...]) -> None:
    case = Case(fn, 192, *more)
    assert not case.made.roles
    case.check()


def test_fragments_that_are_read_between_iterations_are_not() -> None:
    case = Case(kernels.product, 192, left=np.float32, right=np.float32)  # tf32 with B by rows
    assert not case.made.roles
    case.check()


def test_a_report_shows_one_pipeline_of_the_two_loops() -> None:
    made = Case(kernels.staying, 192).made
    source = source_of(kernels.staying)
    lines = range(source.first_line, source.first_line + source.text.count("\n"))
    (pipeline,) = pipelines_of(print_module(made.whole.module), source.file, lines)
    assert pipeline.stages == 3 and [ring.by for ring in pipeline.rings] == ["the copy engine"] * 2
    assert pipeline.products and set(pipeline.products) <= set(lines) and pipeline.in_flight


def test_copies_do_not_run_ahead_of_stores() -> None:
    case = Case(kernels.after_a_store, 192)
    assert not case.made.roles
    case.expected += case.a[:, :K].astype(np.float32) @ case.b[:K].astype(np.float32)
    case.check()


def test_a_warp_multiplies_the_next_tile_while_its_last_slices_are_read() -> None:
    """It waits where it comes back to their memory, and at the end; that each wait is needed the simulator says."""
    case = Case(kernels.staying, 2 * K, rows=6 * M)
    text = case.made.whole.lowered().llvm
    waits = [*re.finditer(_READ, text)]
    last = text.rindex("call void @llvm.nvvm.cp.async.bulk.commit.group()")
    assert waits[-1].start() > last > waits[-2].start() and "br i1" in text[last : waits[-1].start()]
    for number in range(len(waits)):
        case.made.changed = _without(_READ, number)
        with pytest.raises((SimtError, AssertionError)):
            case.check()


@pytest.mark.parametrize("count", range(1, 9))
def test_how_many_slices_may_be_under_way(count: int) -> None:
    """Of `count` slices, which take two places in turns, all since the last one that lay where the next will."""
    places = [number % 2 for number in range(count)] * 2
    for number in range(count):
        before = max(at for at in range(count + number) if places[at] == places[number])
        assert _since(number, count) == count + number - 1 - before


# --- every wait matters -------------------------------------------------------------------------------

_READ = r"[^\n]*call void @llvm\.nvvm\.cp\.async\.bulk\.wait\.group\.read\(i32 (\d)\)[^\n]*"
_TRY = r"call i1 @llvm\.nvvm\.mbarrier\.try\.wait[^\n]*"
_ARRIVE = r"[^\n]*mbarrier\.arrive\.shared[^\n]*"
_NAMED = r"[^\n]*call void @llvm\.nvvm\.barrier\.cta\.sync\.aligned\.count[^\n]*"


def _without(pattern: str, number: int, instead: str = "") -> Callable[[str], str]:
    """A text without the match of a pattern that has a number."""

    def change(text: str) -> str:
        found = list(re.finditer(pattern, text))[number]
        return text[: found.start()] + instead + text[found.end() :]

    return change


@pytest.mark.parametrize(
    ("pattern", "number", "instead"),
    [
        (_TRY, 0, "icmp eq i32 0, 0"), (_TRY, 1, "icmp eq i32 0, 0"), (_ARRIVE, 0, ""), (_ARRIVE, 1, ""),
        (r"wgmma\.wait_group\.sync\.aligned 1", 0, "wgmma.wait_group.sync.aligned 2"),
        (r"@llvm\.nvvm\.mbarrier\.init\.shared\(ptr addrspace\(3\) [^,]*, i32 8\)", 0, None),
    ],
)  # fmt: skip
def test_what_is_left_out_is_missed(pattern: str, number: int, instead: str | None) -> None:
    case = Case(kernels.staying, 3 * K, rows=4 * M, num_stages=2)
    text = case.made.whole.lowered().llvm
    if instead is None:  # a barrier that is content with fewer arrivals than there are warps
        instead = next(re.finditer(pattern, text))[0].replace("i32 8)", "i32 7)")
    change = _without(pattern, number, instead)
    assert change(text) != text
    case.made.changed = change
    for order, early in ORDERS:
        try:
            case.check(order, early=early)
        except (SimtError, AssertionError):
            return
    raise AssertionError("nobody misses it")


def test_a_missing_barrier_of_a_role_is_missed() -> None:
    case = Case(kernels.scaled, 2 * K, np.ones(2, np.float32), np.zeros(N, np.float32))
    count = len(re.findall(_NAMED, case.made.whole.lowered().llvm))
    assert count
    for number in range(count):
        case.made.changed = _without(_NAMED, number)
        with pytest.raises((SimtError, AssertionError)):
            case.check()


# --- code ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fn", [kernels.product, kernels.staying])
def test_code(fn: Any) -> None:
    a, b, c = (np.zeros(shape, np.float16) for shape in ((128, 64), (64, 256), (128, 256)))
    last = [64, 1] if fn is kernels.staying else [64]
    given = [describe(a, [128, 64]), describe(b, [64, 256]), describe(c, [128, 256]), *last]
    ptx, made = Described(fn, given, M_BLOCK=128, N_BLOCK=256, K_BLOCK=64, num_warps=8).whole.assembled()
    assert ".reqntid 384" in ptx and ".local" not in ptx and made.spill_bytes == 0
    assert re.findall(r"setmaxnreg\.(\w+)\S* (\d+)", ptx) == [("dec", "24"), ("inc", "240")]
    assert not re.search(r"bar(rier)?\.sync\s+1\b", ptx)  # warps of the role never wait for each other
    if cubin.whole_program() is None:
        pytest.skip("no ptxas: nvJitLink leaves registers as they are")
    assert not cubin.serial_notes(made.notes)
    sass = cubin.disassemble(made.image)
    if sass is not None:
        assert sass.count("USETMAXREG") == 2 and sass.count("HGMMA") == 4 and sass.count("UTMALDG") >= 5
