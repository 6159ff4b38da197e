"""Fewer registers where one more block then fits, and only there."""

from __future__ import annotations

import pytest

import tilewright
from tests.backends.nvidia.ptx_cases import ADD
from tests.decisions import generated
from tilewright.backends.nvidia import cubin, registers, toolkit
from tilewright.backends.nvidia.arch import arch_of
from tilewright.backends.nvidia.cubin import Cubin
from tilewright.base.errors import OutOfResources
from tilewright.compiler import ASTSource


@pytest.mark.parametrize(
    ("warps", "taken", "shared", "straight", "limit"),
    [
        (16, 78, 0, False, 64),  # two blocks for one
        (16, 40, 0, False, 32),  # four for three
        (16, 32, 0, True, None),  # no more warps
        (16, 64, 0, False, None),  # a third block is too far
        (16, 64, 0, True, 40),
        (16, 78, 120 << 10, True, None),  # shared memory has no room for another
        (32, 55, 0, False, None),
        (32, 55, 0, True, 32),
        (8, 144, 0, False, 128),  # one that is alone
        (8, 255, 0, True, None),  # that is too far
        (8, 80, 0, False, None),  # small blocks in loops keep what they have
        (8, 80, 0, True, 64),  # four for three
        (8, 64, 0, True, None),  # there are enough
        (4, 91, 0, False, None),
        (4, 91, 0, True, None),
        (4, 167, 0, True, 128),
    ],
)
def test_limits(warps: int, taken: int, shared: int, straight: bool, limit: int | None) -> None:
    assert registers.fewer_registers(arch_of(90), warps, taken, shared, straight=straight) == limit


LOOP = "$L__BB0_1:\n\t@%p1 bra \t$L__BB0_1;"
FORWARD = "\t@%p1 bra \t$L__BB0_1;\n$L__BB0_1:\n\tbra.uni \t$L__BB0_2;\n$L__BB0_2:"


@pytest.mark.parametrize(
    ("ptx", "found"),
    [
        ("\tbar.sync \t0;", True),
        ("\tbarrier.sync \t1, 256;", True),
        (f"{FORWARD}\n\tbar.sync \t0;", True),
        (f"{LOOP}\n\tbar.sync \t0;", False),
        (f"{FORWARD}\n\tbar.sync \t0;\n\tbra.uni \t$L__BB0_1;", False),
        (FORWARD, False),  # nobody waits
    ],
)
def test_what_waits_without_loops(ptx: str, found: bool) -> None:
    assert registers.waits_without_loops(ptx) == found


WAITED_FOR, IN_FLIGHT = (f"\n\twgmma.wait_group.sync.aligned {count};" for count in (0, 1))


@pytest.mark.parametrize(
    ("more", "taken", "asked"),
    [
        (WAITED_FOR, 172, [None, 168]),  # three blocks for two
        (WAITED_FOR, 196, [None]),  # that is too far
        (WAITED_FOR + IN_FLIGHT, 172, [None]),  # products go on beside each other
    ],
)
def test_products_that_are_waited_for(
    monkeypatch: pytest.MonkeyPatch, more: str, taken: int, asked: list[int | None]
) -> None:
    seen = []

    def assemble(ptx: str, arch: object, *, max_registers: int | None, **_: object) -> Cubin:
        seen.append(max_registers)
        return Cubin(b"", registers=max_registers or taken, spill_bytes=0)

    monkeypatch.setattr(cubin, "assemble", assemble)
    registers.assemble(
        ADD + more, arch_of(90), kernel="add", warps=4, shared_bytes=0, max_registers=None, driver_major=None
    )
    assert seen == asked


@pytest.mark.parametrize(
    ("text", "given", "spills", "asked", "got"),
    [
        (ADD, None, 0, [None, 64], 64),
        (ADD, None, 8, [None, 64], 78),
        (ADD, 70, 0, [70], 78),
        (ADD + "\n\tcp.async.cg.shared.global [%r1], [%rd1], 16;", None, 0, [None], 78),
    ],
    ids=["fewer", "they would spill", "the user said", "a ring"],
)
def test_choice(
    monkeypatch: pytest.MonkeyPatch, text: str, given: int | None, spills: int, asked: list[int | None], got: int
) -> None:
    seen = []

    def assemble(ptx: str, arch: object, *, max_registers: int | None, **_: object) -> Cubin:
        seen.append(max_registers)
        return Cubin(b"", registers=64 if max_registers == 64 else 78, spill_bytes=spills if max_registers == 64 else 0)

    monkeypatch.setattr(cubin, "assemble", assemble)
    made = registers.assemble(
        text, arch_of(90), kernel="add", warps=16, shared_bytes=0, max_registers=given, driver_major=None
    )
    assert made is not None and made.registers == got and seen == asked


def test_a_limit_that_the_assembler_cannot_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operands of wgmma are registers, and it says so only when it is tried."""

    def assemble(ptx: str, arch: object, *, max_registers: int | None, **_: object) -> Cubin:
        if max_registers is not None:
            raise OutOfResources(90, max_registers, "registers")
        return Cubin(b"", registers=172, spill_bytes=0)

    monkeypatch.setattr(cubin, "assemble", assemble)
    how = {"kernel": "add", "warps": 4, "shared_bytes": 0, "driver_major": None}
    made = registers.assemble(ADD + WAITED_FOR, arch_of(90), max_registers=None, **how)  # type: ignore[arg-type]
    assert made is not None and made.registers == 172
    with pytest.raises(OutOfResources):  # the user's is the user's
        registers.assemble(ADD + WAITED_FOR, arch_of(90), max_registers=80, **how)  # type: ignore[arg-type]


@pytest.mark.skipif(not toolkit.libraries("nvJitLink"), reason="nvidia-nvjitlink is not installed")
def test_the_assembler_heeds_the_limit() -> None:
    types = {"x": "*fp16", "weight": "*fp32", "bias": "*fp32", "out": "*fp16", "rows": "i32", "columns": "i32"}
    aligned = {(place,): [["tt.divisibility", 16]] for place in range(6)}
    source = ASTSource(generated.norm_of_whole_rows, types, {"XBLOCK": 1, "RBLOCK": 8192}, aligned)
    made = tilewright.compile(source, "cuda:90", options={"num_warps": 16})
    assert 0 < made.n_regs <= 64 and made.n_spills == 0


@pytest.mark.parametrize(("warps", "asked", "given"), [(32, 256, 64), (32, 48, 48), (4, 256, 255), (8, 128, 128)])
def test_no_limit_is_higher_than_what_so_many_threads_have(warps: int, asked: int, given: int) -> None:
    """The assembler takes `.maxnreg` instead of that, and a block whose threads have more cannot start."""
    types = {"x": "*fp16", "weight": "*fp32", "bias": "*fp32", "out": "*fp16", "rows": "i32", "columns": "i32"}
    source = ASTSource(generated.norm_of_whole_rows, types, {"XBLOCK": 1, "RBLOCK": 8192})
    made = tilewright.compile(source, "cuda:90", options={"num_warps": warps, "maxnreg": asked})
    assert f".maxnreg {given}\n" in made.asm["ptx"]
