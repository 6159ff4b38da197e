"""Masks that are moved about as vectors and then asked for as a number, in every register that a vector may be in:
LLVM 22 confuses the registers above 15.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence

import pytest

from tilewright.backends.llvm import codegen, features

LINUX = "x86_64-unknown-linux-gnu"
CPUS = ("skylake-avx512", "sapphirerapids", "znver4", "znver5")
REGISTERS = [f"{{xmm{register}}}" for register in range(16)]
TAKEN = ", ".join(["<4 x float>"] * 16)
ORDERS = [[0] * 2, [0] * 4, [0] * 8, [3, 3, 1, 1], [1] * 16, [7, 6, 5, 4, 3, 2, 1, 0]]


def moved(order: Sequence[int], busy: bool) -> str:
    """IR of `f(byte*, long*)`: stores bits of the byte in another order; the first 16 registers may be taken."""
    lanes = len(order)
    take = f'%taken = call {{{TAKEN}}} asm sideeffect "", "{",".join("=" + name for name in REGISTERS)}"()'
    parts = [f"%t{i} = extractvalue {{{TAKEN}}} %taken, {i}" for i in range(16)]
    values = ", ".join(f"<4 x float> %t{i}" for i in range(16))
    give = f'call void asm sideeffect "", "{",".join(REGISTERS)}"({values})'
    return f"""
define void @f(ptr %p, ptr %out) nounwind noredzone {{
  {take if busy else ""}
  %byte = load volatile i8, ptr %p
  %bits = bitcast i8 %byte to <8 x i1>
  %mask = shufflevector <8 x i1> %bits, <8 x i1> poison, <{lanes} x i32> <{", ".join(f"i32 {n}" for n in order)}>
  %number = bitcast <{lanes} x i1> %mask to i{lanes}
  %wide = zext i{lanes} %number to i64
  store volatile i64 %wide, ptr %out
  {(chr(10) + "  ").join([*parts, give]) if busy else ""}
  ret void
}}
"""


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_no_register_is_named_that_the_instruction_lacks(cpu: str, order: Sequence[int]) -> None:
    text = codegen.assembly(moved(order, busy=True), features.describe(LINUX, cpu))
    assert not re.search(r"v\w*movmsk\w*\t%[xy]mm(1[6-9]|2\d|3[01])", text), text


@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_bits_arrive_in_their_order(order: Sequence[int], busy: bool) -> None:
    if busy and not features.host().is_x86:
        pytest.skip("names registers of x86")
    library = codegen.load(codegen.compile_object(moved(order, busy), features.host()), ["f"])
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(library.address("f"))
    for byte in (0, 1, 0b10, 0b1000, 0b1011_0010, 0xFF):
        given, number = ctypes.c_uint8(byte), ctypes.c_uint64()
        call(ctypes.addressof(given), ctypes.addressof(number))
        assert number.value == sum((byte >> bit & 1) << lane for lane, bit in enumerate(order)), byte
