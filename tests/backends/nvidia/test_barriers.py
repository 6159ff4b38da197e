"""Barriers: enough of them (random programs run without races), and no more (shapes of loops that we care about)."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.backends.nvidia.shared_programs import evaluate, run, statements, text_of
from tests.backends.nvidia.simt_memory import SimtError
from tests.backends.nvidia.test_allocate import HEAD, ONE, RING, START, TILE, TURNED
from tilewright.backends.nvidia.plan.barriers import place_barriers
from tilewright.backends.nvidia.plan.multibuffer import Stage, stage_of
from tilewright.backends.nvidia.tgir.ops import MemDescIndexOp, parse_module
from tilewright.backends.nvidia.tgir.types import layout_attr
from tilewright.ir.decisions import Decisions
from tilewright.layouts.distributed import wgmma_accumulator

ACC = layout_attr(wgmma_accumulator((4, 1), 64, (64, 64)))
F32 = "tensor<64x64xf32, #A>"
POINTERS, FLAGS = "tensor<64x64x!tt.ptr<f16>, #R>", "tensor<64x64xi1, #R>"


def placed(body: str) -> list[str]:
    """Names of the operations of a kernel with its barriers, in order, shortened."""
    head = f"{HEAD}#A = {ACC}\n"
    arguments = f"%n: i32, %p: {POINTERS}, %acc: {F32}"
    module = parse_module(f"{head}module {{\ntt.func public @k({arguments}) {{\n{START}{body}\ntt.return\n}}\n}}")
    place_barriers(module, Decisions())
    short = {"local_alloc": "alloc", "convert_layout": "convert", "async_copy_global_to_local": "copy"}
    names = [op.name.split(".")[1] for op in module.walk() if op.name.startswith(("ttg.", "ttng.", "scf.f", "scf.w"))]
    return [short.get(name, name.removeprefix("local_").removeprefix("async_")) for name in names]


def ring(stage: str = "%i") -> str:
    return f'"ttg.memdesc_index"(%r, {stage}) : ({RING}, i32) -> {ONE}'


def store(buffer: str) -> str:
    return f'"ttg.local_store"(%x, {buffer}) : ({TILE}, {ONE}) -> ()'


def load(name: str, buffer: str) -> str:
    return f'%{name} = "ttg.local_load"({buffer}) : ({ONE}) -> {TILE}'


def copy(buffer: str) -> str:
    return f'"ttg.async_copy_global_to_local"(%p, {buffer}) : ({POINTERS}, {ONE}) -> ()'


def wait(left: int) -> str:
    return f'"ttg.async_wait"() <{{num = {left} : i32}}> : () -> ()'


def dot(name: str, buffer: str, c: str, flies: bool = True) -> str:
    flag = "true" if flies else "false"
    types = f"({ONE}, {ONE}, {F32}) -> {F32}"
    return f'%{name} = "ttng.warp_group_dot"({buffer}, {buffer}, {c}) <{{isAsync = {flag}}}> : {types}'


def dot_wait(name: str, value: str, left: int) -> str:
    return f'%{name} = "ttng.warp_group_dot_wait"({value}) <{{pendings = {left} : i32}}> : ({F32}) -> {F32}'


ALLOC = f'%a = "ttg.local_alloc"() : () -> {ONE}\n'
RINGS = f'%r = "ttg.local_alloc"() : () -> {RING}\n%c3 = arith.constant 3 : i32\n%c2 = arith.constant 2 : i32\n'
COMMIT = '"ttg.async_commit_group"() : () -> ()\n'
AROUND = """%next = arith.addi %i, %c1 : i32
%wraps = arith.cmpi eq, %next, %c3 : i32
%wrapped = arith.select %wraps, %c0, %next : i32
"""


def test_between_a_store_and_a_load() -> None:
    assert placed(f"{ALLOC}{store('%a')}\n{load('y', '%a')}") == ["alloc", "store", "barrier", "load"]


def test_between_a_load_and_a_store_but_not_two_loads() -> None:
    body = f"{ALLOC}{load('y', '%a')}\n{load('z', '%a')}\n{store('%a')}"
    assert placed(body) == ["alloc", "load", "load", "barrier", "store"]


def test_not_between_buffers_that_lie_apart() -> None:
    body = f'{ALLOC}%b = "ttg.local_alloc"() : () -> {ONE}\n{store("%a")}\n{load("y", "%b")}'
    assert "barrier" not in placed(body)


def test_between_buffers_that_share_a_place() -> None:
    twice = "".join(f'%{n} = "ttg.local_alloc"(%x) : ({TILE}) -> {ONE}\n{load("l" + n, "%" + n)}\n' for n in "ab")
    assert placed(twice) == ["alloc", "barrier", "load", "barrier", "alloc", "barrier", "load"]


def test_scratch_is_guarded_between_operations() -> None:
    convert = f'"ttg.convert_layout"(%x) : ({TILE}) -> {TURNED}'
    assert placed(f"%y = {convert}\n%z = {convert}") == ["convert", "barrier", "convert"]
    loop = f"scf.for %i = %c0 to %n step %c1 : i32 {{\n%y = {convert}\n}}"
    assert placed(loop) == ["for", "barrier", "convert"]


def test_a_barrier_that_is_there_serves() -> None:
    body = f"{ALLOC}{store('%a')}\nttg.barrier local\n{load('y', '%a')}"
    assert placed(body).count("barrier") == 1


def test_a_loop_is_seen_from_its_end() -> None:
    """The store of an iteration meets the load of the iteration before."""
    loop = f"scf.for %i = %c0 to %n step %c1 : i32 {{\n{store('%a')}\n{load('y', '%a')}\n}}"
    assert placed(f"{ALLOC}{loop}") == ["alloc", "for", "barrier", "store", "barrier", "load"]


def test_what_was_stored_before_a_loop_is_waited_for_before_it() -> None:
    body = f"scf.for %i = %c0 to %n step %c1 : i32 {{\n{load('y', '%a')}\n}}"
    assert placed(f"{ALLOC}{store('%a')}\n{body}\n{load('z', '%a')}") == [
        "alloc", "store", "barrier", "for", "load", "load"
    ]  # fmt: skip
    around = f"scf.for %o = %c0 to %n step %c1 : i32 {{\n{store('%a')}\n{body}\n}}"
    assert placed(f"{ALLOC}{around}") == ["alloc", "for", "barrier", "store", "barrier", "for", "load"]


def test_a_copy_that_began_before_a_loop_ends_in_it() -> None:
    body = f"scf.for %i = %c0 to %n step %c1 : i32 {{\n{wait(0)}\n{load('y', '%a')}\n}}"
    assert placed(f"{ALLOC}{copy('%a')}\n{COMMIT}{body}")[-3:] == ["wait", "barrier", "load"]


def test_a_branch_may_have_been_taken() -> None:
    branch = f"%f = arith.cmpi slt, %n, %c1 : i32\nscf.if %f {{\n{store('%a')}\n}}"
    assert placed(f"{ALLOC}{branch}\n{load('y', '%a')}") == ["alloc", "store", "barrier", "load"]


def test_a_while_loop_too() -> None:
    loop = f"""scf.while : () -> () {{
{load("y", "%a")}
%f = arith.cmpi slt, %n, %c1 : i32
scf.condition(%f)
}} do {{
{store("%a")}
scf.yield
}}"""
    assert placed(f"{ALLOC}{loop}") == ["alloc", "while", "barrier", "load", "barrier", "store"]


# --- pipelines ------------------------------------------------------------------------------------------


def pipelined(body: str, carried: str = "%acc") -> str:
    prologue = "".join(f"%p{n} = {ring(f'%c{n}')}\n{copy(f'%p{n}')}\n{COMMIT}" for n in (0, 1))
    loop = f"%o:2 = scf.for %k = %c0 to %n step %c1 iter_args(%i = %c0, %v = {carried}) -> (i32, {F32}) : i32"
    return f"{RINGS}{prologue}{loop} {{\n{body}\n}}"


def test_a_pipeline_of_loads_has_one_barrier_in_its_loop() -> None:
    """The copy goes to the buffer that the iteration before has read: the barrier after the wait is in between."""
    body = f"""{wait(1)}
%b = {ring()}
{load("y", "%b")}
{AROUND}%ahead = arith.addi %i, %c2 : i32
%free = arith.remsi %ahead, %c3 : i32
%w = {ring("%free")}
{copy("%w")}
{COMMIT}scf.yield %wrapped, %v : i32, {F32}"""
    names = placed(pipelined(body))
    loop = names[names.index("for") :]
    assert loop.count("barrier") == 1 and loop.index("barrier") == loop.index("load") - 1


def test_a_copy_to_the_buffer_just_read_waits() -> None:
    body = f"{wait(1)}\n%b = {ring()}\n{load('y', '%b')}\n{copy('%b')}\n{COMMIT}{AROUND}"
    body += f"scf.yield %wrapped, %v : i32, {F32}"
    names = placed(pipelined(body))
    assert names[names.index("for") :].count("barrier") == 2


def test_a_copy_in_front_of_the_load_shares_the_barrier_behind_the_wait() -> None:
    """The next iteration finds that the copy needs one, which serves the load that found its own first."""
    body = f"""{wait(1)}
%b = {ring()}
%ahead = arith.addi %i, %c2 : i32
%free = arith.remsi %ahead, %c3 : i32
%w = {ring("%free")}
{copy("%w")}
{COMMIT}{load("y", "%b")}
{AROUND}scf.yield %wrapped, %v : i32, {F32}"""
    names = placed(pipelined(body))
    loop = names[names.index("for") :]
    assert loop.count("barrier") == 1 and loop.index("barrier") == loop.index("copy") - 1


def test_products_hold_their_buffers_until_they_are_waited_for() -> None:
    """The wait frees the buffer of the iteration before, for all warp groups only after a barrier."""
    body = f"""{wait(1)}
%b = {ring()}
{dot("d", "%b", "%v")}
{dot_wait("e", "%d", 1)}
%ahead = arith.addi %i, %c2 : i32
%free = arith.remsi %ahead, %c3 : i32
%w = {ring("%free")}
{copy("%w")}
{COMMIT}{AROUND}scf.yield %wrapped, %e : i32, {F32}"""
    names = placed(pipelined(body))
    loop = names[names.index("for") :]
    assert [name for name in loop if name in ("barrier", "warp_group_dot", "copy")] == [
        "barrier", "warp_group_dot", "barrier", "copy",
    ]  # fmt: skip


def test_copies_freed_two_iterations_ago_need_no_second_barrier() -> None:
    """With a copy one iteration ahead in a ring of three, the product of its buffer was waited for before."""
    body = f"""{wait(0)}
%b = {ring()}
{dot("d", "%b", "%v")}
{dot_wait("e", "%d", 1)}
%ahead = arith.addi %i, %c1 : i32
%free = arith.remsi %ahead, %c3 : i32
%w = {ring("%free")}
{copy("%w")}
{COMMIT}{AROUND}scf.yield %wrapped, %e : i32, {F32}"""
    names = placed(pipelined(body))
    assert names[names.index("for") :].count("barrier") == 1


# --- stages ---------------------------------------------------------------------------------------------


def stage(number: str, before: str = "") -> Stage | None:
    body = f"{before}%b = {ring(number)}\n{AROUND}scf.yield %wrapped, %v : i32, {F32}"
    head = f"{HEAD}#A = {ACC}\n"
    text = pipelined(body)
    module = parse_module(
        f"{head}module {{\ntt.func public @k(%n: i32, %p: {POINTERS}, %acc: {F32}) {{\n{START}{text}\ntt.return\n}}\n}}"
    )
    index = [op for op in module.walk() if isinstance(op, MemDescIndexOp)][-1]
    return stage_of(index.index, 3)


def test_numbers_of_stages() -> None:
    one_less = """%low = arith.subi %i, %c1 : i32
%first = arith.cmpi eq, %i, %c0 : i32
%less = arith.select %first, %c2, %low : i32
"""
    assert (found := stage("%i")) is not None and found.loop is not None and found.offset == 0
    assert (found := stage("%less", one_less)) is not None and found.offset == 2
    assert stage("%c2") == Stage(None, 2)
    assert stage("%k") is None  # grows without end
    assert stage("%n") is None
    assert stage("%twice", "%twice = arith.addi %i, %i : i32\n") is None


# --- programs -------------------------------------------------------------------------------------------

X = np.arange(256, dtype=np.int32).reshape(16, 16)
Y = (7 * X + 3).astype(np.int32)


@pytest.mark.parametrize("seed", range(10))
def test_random_programs_run_without_races(seed: int) -> None:
    rng = random.Random(seed)
    program = statements(rng, 2, rng.randint(3, 6))
    out, _, text = run(text_of(program), X, Y)
    assert (out == evaluate(program, X, Y)).all(), text


def test_the_same_programs_race_without_barriers() -> None:
    program = [("for", [("stage_store", "x", "a", 0, 0), ("stage_load", "x", "a", 1, 0)], [])]
    with pytest.raises(SimtError, match="race"):
        run(text_of(program), X, Y, barriers=False)


def test_two_conversions_of_small_tiles_share_no_scratch() -> None:
    """So that the second one waits for nobody, and the one in a loop only for the one before it in the loop."""
    alive = [("load", "y", "b", 1, 0), ("stage_load", "y", "a", 1, 0), ("load", "y", "a", 1, 0)]
    program = [("for", [("convert", "x", "a", 1, 0), ("convert", "x", "a", 0, 0)], []), *alive]
    out, _, text = run(text_of(program), X, Y)
    assert (out == evaluate(program, X, Y)).all()
    loop = text[text.index("scf.for") : text.index("scf.yield")]
    assert loop.count("ttg.convert_layout") == 2 and "ttg.barrier" not in loop
