"""Where buffers and scratch lie in shared memory: who may share, and who must not."""

from __future__ import annotations

from xdsl.ir import Operation

from tilewright.backends.nvidia.emit import convert
from tilewright.backends.nvidia.plan.allocate import Allocation, allocate, buffer_alignment
from tilewright.backends.nvidia.tgir.ops import parse_module
from tilewright.backends.nvidia.tgir.types import layout_attr
from tilewright.layouts.distributed import default_blocked
from tilewright.layouts.shared import hardware_swizzled

assert convert.conversion_scratch, "importing it registers the scratch of conversions"

ROWS = layout_attr(default_blocked((64, 64), 4, vector=8))
COLUMNS = layout_attr(default_blocked((64, 64), 4, order=(0, 1), vector=8))
BUFFER = layout_attr(hardware_swizzled((64, 64), 16, 128))
HEAD = f"#R = {ROWS}\n#C = {COLUMNS}\n#S = {BUFFER}\n"
RING, ONE = "!ttg.memdesc<tensor<3x64x64xf16, #S>>", "!ttg.memdesc<tensor<64x64xf16, #S>>"
TILE, TURNED = "tensor<64x64xf16, #R>", "tensor<64x64xf16, #C>"
START = f"%c0 = arith.constant 0 : i32\n%c1 = arith.constant 1 : i32\n%x = arith.constant dense<1.0> : {TILE}\n"
ALLOC = f'"ttg.local_alloc"(%x) : ({TILE}) -> {ONE}'
EMPTY = f'"ttg.local_alloc"() : () -> {ONE}'
CONVERT = f'"ttg.convert_layout"(%x) : ({TILE}) -> {TURNED}'


def use(name: str) -> str:
    return f'%u{name} = "ttg.local_load"(%{name}) : ({ONE}) -> {TILE}'


def allocated(body: str, arguments: str = "") -> tuple[Allocation, list[Operation]]:
    """The allocation of a kernel, and its operations with memory in program order."""
    module = parse_module(
        f"{HEAD}module {{\ntt.func public @k(%n: i32{arguments}) {{\n{START}{body}\ntt.return\n}}\n}}"
    )
    function = next(iter(module.ops))
    allocation = allocate(function)
    return allocation, [op for op in function.walk() if op in allocation.offsets]


def apart(allocation: Allocation, first: Operation, second: Operation) -> bool:
    """Whether the two share no byte."""
    a, b = (range(allocation.offsets[op], allocation.offsets[op] + allocation.sizes[op]) for op in (first, second))
    return a.stop <= b.start or b.stop <= a.start


def test_buffers_that_live_at_once_lie_apart() -> None:
    allocation, (a, b) = allocated(f"%a = {ALLOC}\n%b = {ALLOC}\n{use('a')}\n{use('b')}")
    assert apart(allocation, a, b) and allocation.total == 16384


def test_buffers_follow_each_other_in_one_place() -> None:
    allocation, (a, b) = allocated(f"%a = {ALLOC}\n{use('a')}\n%b = {ALLOC}\n{use('b')}")
    assert not apart(allocation, a, b) and allocation.total == 8192


def test_scratch_lies_beside_what_lives_and_over_what_is_dead() -> None:
    allocation, (a, scratch, later) = allocated(f"%a = {ALLOC}\n%y = {CONVERT}\n{use('a')}\n%b = {ALLOC}")
    assert apart(allocation, a, scratch) and not apart(allocation, a, later)


def test_a_buffer_used_in_a_loop_lives_through_it() -> None:
    """The scratch comes after the last use in the text, but before the first of the next iteration."""
    loop = f"scf.for %i = %c0 to %n step %c1 : i32 {{\n{use('a')}\n%y = {CONVERT}\n}}"
    allocation, (a, scratch) = allocated(f"%a = {ALLOC}\n{loop}")
    assert apart(allocation, a, scratch)


def test_a_buffer_made_in_a_loop_lives_for_an_iteration() -> None:
    loop = f"scf.for %i = %c0 to %n step %c1 : i32 {{\n%a = {ALLOC}\n{use('a')}\n%y = {CONVERT}\n}}"
    allocation, (a, scratch) = allocated(loop)
    assert not apart(allocation, a, scratch)


def test_buffers_carried_by_loops_and_branches_live_on() -> None:
    loop = f"%d = scf.for %i = %c0 to %n step %c1 iter_args(%e = %a) -> ({ONE}) : i32 {{\nscf.yield %e : {ONE}\n}}"
    allocation, (a, scratch) = allocated(f"%a = {ALLOC}\n{loop}\n%y = {CONVERT}\n{use('d')}")
    assert apart(allocation, a, scratch)
    side = f"{{\nscf.yield %a : {ONE}\n}}"
    branch = f"%f = arith.cmpi slt, %n, %c1 : i32\n%d = scf.if %f -> ({ONE}) {side} else {side}"
    allocation, (a, scratch) = allocated(f"%a = {ALLOC}\n{branch}\n%y = {CONVERT}\n{use('d')}")
    assert apart(allocation, a, scratch)


def test_a_stage_keeps_its_ring_alive() -> None:
    ring = f'%r = "ttg.local_alloc"() : () -> {RING}\n%a = "ttg.memdesc_index"(%r, %c1) : ({RING}, i32) -> {ONE}'
    allocation, (r, scratch) = allocated(f"{ring}\n%y = {CONVERT}\n{use('a')}")
    assert apart(allocation, r, scratch) and allocation.sizes[r] == 3 * 8192


def test_a_buffer_lives_until_its_copies_have_landed() -> None:
    pointers = "tensor<64x64x!tt.ptr<f16>, #R>"
    copy = f'"ttg.async_copy_global_to_local"(%p, %a) : ({pointers}, {ONE}) -> ()'
    wait = '"ttg.async_wait"() <{num = 0 : i32}> : () -> ()'
    start = f"%a = {EMPTY}\n{copy}"
    allocation, (a, scratch) = allocated(f"{start}\n%y = {CONVERT}\n{wait}", f", %p: {pointers}")
    assert apart(allocation, a, scratch)
    allocation, (a, scratch) = allocated(f"{start}\n{wait}\n%y = {CONVERT}", f", %p: {pointers}")
    assert not apart(allocation, a, scratch)


def test_offsets_are_aligned_for_swizzles() -> None:
    allocation, pieces = allocated(f"%y = {CONVERT}\n%a = {ALLOC}\n%b = {EMPTY}\n{use('a')}\n{use('b')}")
    assert all(allocation.offsets[op] % 1024 == 0 for op in pieces if op.name == "ttg.local_alloc")
    assert [buffer_alignment(size) for size in (1, 16, 100, 1024, 5000)] == [16, 16, 128, 1024, 1024]


def test_what_needs_nothing_gets_nothing() -> None:
    allocation, pieces = allocated(f'%y = "ttg.convert_layout"(%x) : ({TILE}) -> {TILE}')
    assert not pieces and allocation.total == 0 and allocation.largest() == ""


def test_names_the_largest_tiles() -> None:
    allocation, _ = allocated(f'%r = "ttg.local_alloc"() : () -> {RING}\n%a = {ALLOC}\n%y = {CONVERT}')
    text = allocation.largest()
    assert "24576 bytes: tile 64 x 64 of f16, 3 stages of it" in text
    assert "8192 bytes: scratch for convert_layout of a tile 64 x 64 of f16" in text
