"""Printing, assertions, inline assembly and external functions on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.backends.nvidia.op_kernels import OpKernel
from tests.backends.nvidia.simt import SimtError
from tests.sample_kernels import to_memory
from tilewright.backends.nvidia import ptx
from tilewright.backends.nvidia.arch import arch_of
from tilewright.backends.nvidia.cubin import assemble
from tilewright.backends.nvidia.emit import debug, inline, library
from tilewright.base.errors import CompilationError
from tilewright.ir.types import i1, pointer_type, scalar_type, tile_type
from tilewright.layouts.distributed import default_blocked, sliced
from tilewright.ops.debug import AssertOp, InlineAsmOp, PrintOp
from tilewright.ops.math_extern import ExternElementwiseOp
from tilewright.ops.program import AssumeOp
from tilewright.ops.spec import REGISTRY, Call

assert debug.emit_print and library.emit_extern, "importing them registers the emitters"
f32, i32 = scalar_type("f32"), scalar_type("i32")


class Printed:
    """A machine for the reference of `tt.print`."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.print = self.lines.append
        self.program_id = lambda axis: 0


def check_print(attrs: dict[str, Any], *values: tuple[Any, np.ndarray], layout: Any = None, warps: int = 1) -> None:
    """Lines, in any order, as the reference prints them."""
    kernel, machine = OpKernel(90, warps), Printed()
    operands = [
        kernel.operand(t, to_memory(a, scalar_type(str(t.element_type if hasattr(t, "element_type") else t))), layout)
        for t, a in values
    ]
    kernel.build(PrintOp, [operands], [], attrs)
    _, ran = kernel.run()
    call = Call(attrs, tuple(t for t, _ in values), (), machine=machine)  # type: ignore[arg-type]
    reference = REGISTRY["tt.print"].reference
    assert reference is not None
    reference(call, *[a for _, a in values])
    assert sorted(ran.printed) == sorted(machine.lines)
    assemble(ptx.compile_ptx(kernel.text(), arch_of(80)), arch_of(80), kernel="ops")


def test_prints_each_element_once() -> None:
    attrs = {"prefix": " 100% of x: ", "hex": False, "isSigned": [1]}
    ragged = np.arange(60, dtype=np.int32).reshape(5, 12) - 30
    check_print(attrs, (tile_type((5, 12), i32), ragged), layout=default_blocked((5, 12), 2, vector=2), warps=2)
    copies = sliced(default_blocked((8, 64), 2, vector=4), 1)
    check_print(attrs, (tile_type((8,), f32), np.linspace(-2, 3, 8).astype("f4")), layout=copies, warps=2)


@pytest.mark.parametrize("name", ["i1", "i8", "i64", "f16", "bf16", "f64"])
@pytest.mark.parametrize("hexadecimal", [False, True])
def test_prints_every_type(name: str, hexadecimal: bool) -> None:
    values = np.array([1, 0] if name == "i1" else [-5, 77], bool if name == "i1" else np.int8)
    values = values.astype({"i1": bool, "i8": "i1", "i64": "i8", "f16": "f2", "bf16": "f4", "f64": "f8"}[name])
    for signed in (0, 1):
        attrs = {"prefix": " v: ", "hex": hexadecimal, "isSigned": [signed]}
        check_print(attrs, (tile_type((2,), scalar_type(name)), values))


def test_prints_scalars_and_several_operands_once() -> None:
    values = [(i32, np.asarray(np.int32(7))), (f32, np.asarray(np.float32(0.5)))]
    check_print({"prefix": " a: ", "hex": False, "isSigned": [1, 0]}, *values, warps=2)
    check_print({"prefix": " here", "hex": False, "isSigned": []}, warps=2)


def assertion(condition: np.ndarray, messages: int = 1) -> tuple[OpKernel, np.ndarray, np.ndarray]:
    """A kernel that asserts and then stores 1; the array that it stores to, and the log."""
    kernel, log, after = OpKernel(90, 2), np.zeros(16, np.int32), np.zeros(1, np.int32)
    shape = condition.shape
    value = kernel.operand(tile_type(shape, i1), condition.astype(np.int8))
    for number in range(messages):
        kernel.build(AssertOp, [value], [], {"message": f"message {number}"})
    kernel.result(kernel.operand(i32, after + 1))
    return kernel, after, log


@pytest.mark.parametrize("shape", [(), (100,), (5, 12)])
def test_a_failed_assertion_ends_the_block(shape: tuple[int, ...]) -> None:
    holds = np.ones(shape, bool)
    kernel, _, log = assertion(holds)
    (stored,), _ = kernel.run(log)
    assert log[0] == 0 and np.all(stored.raw == 1)
    holds.reshape(-1)[-1] = False
    kernel, _, log = assertion(holds, 2)
    (stored,), _ = kernel.run(log, (3, 2))
    assert log[0] == 1 and list(log[1:4]) == [0, 0, 0] and not stored.raw.any()
    assert kernel.kernel is not None and kernel.kernel.asserts == ["message 0", "message 1"]


def test_a_failed_assertion_traps_where_the_log_says_so() -> None:
    kernel, _, log = assertion(np.zeros((), bool))
    log[4] = 1
    with pytest.raises(SimtError, match="trapped"):
        kernel.run(log)


@pytest.mark.parametrize("capability", [80, 90, 120])
def test_assertions_assemble(capability: int) -> None:
    kernel = OpKernel(capability, 2)
    value = kernel.operand(tile_type((64,), i1), np.ones(64, np.int8))
    kernel.build(AssertOp, [value], [], {"message": "m"})
    kernel.build(AssumeOp, [kernel.operand(i1, np.ones(1, np.int8))], [])
    assemble(ptx.compile_ptx(kernel.text(), arch_of(capability)), arch_of(capability), kernel="ops")


# --- inline assembly ------------------------------------------------------------------------------------------


def asm(
    text: str, constraints: str, args: list[tuple[str, np.ndarray]], results: list[str], pack: int = 1, **more: Any
) -> tuple[OpKernel, Any]:
    """A kernel of one piece of inline assembly, its results kept."""
    kernel = OpKernel(90, more.get("warps", 1), scratch=1024)
    shape = args[0][1].shape if args else ()
    operands = [kernel.operand(tile_type(shape, scalar_type(n)), a, more.get("layout")) for n, a in args]
    attrs = {"asm_string": text, "constraints": constraints, "pure": more.get("pure", True), "packed_element": pack}
    types = [kernel.laid_out(tile_type(shape, scalar_type(n)), more.get("layout")) for n in results]
    op = kernel.build(InlineAsmOp, [operands], types, attrs)
    for result in op.results:
        kernel.result(result)
    return kernel, op


def test_assembly_on_words() -> None:
    a, b = np.arange(64, dtype=np.int32), np.arange(64, dtype=np.int32)[::-1] * 3
    kernel, _ = asm("add.s32 $0, $1, $2;\nsub.s32 $0, $0, 1;", "=r,r,r", [("i32", a), ("i32", b)], ["i32"])
    kernel.run()[0][0].check(a + b - 1)
    x = np.linspace(-1, 1, 64).astype("f4")
    kernel, _ = asm("neg.f32 $0, $2; abs.f32 $1, $2;", "=f,=f,f", [("f32", x)], ["f32", "f32"])
    negative, absolute = kernel.run()[0]
    negative.check(-x)
    absolute.check(abs(x))


@pytest.mark.parametrize(
    ("name", "pack", "constraint"), [("i8", 4, "r"), ("i16", 2, "r"), ("i16", 1, "h"), ("i8", 1, "r")]
)
def test_small_elements_share_registers(name: str, pack: int, constraint: str) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-99, 99, 64).astype(f"int{name[1:]}") for _ in range(2))
    kind = "b16" if constraint == "h" else "b32"
    kernel, _ = asm(
        f"xor.{kind} $0, $1, $2;", f"={constraint},{constraint},{constraint}", [(name, a), (name, b)], [name], pack
    )
    kernel.run()[0][0].check(a ^ b)
    assert kernel.text().count("call i") >= 2 // pack


def test_widths_may_differ() -> None:
    a = np.arange(-32, 32).astype(np.int8)
    text = "".join(f"prmt.b32 ${i}, $4, 0, {selector};" for i, selector in enumerate((0x8880, 0x9991, 0xAAA2, 0xBBB3)))
    kernel, _ = asm(text, "=r,=r,=r,=r,r", [("i8", a)], ["i32"], 4)
    kernel.run()[0][0].check(a.astype(np.int32))


def test_effects_give_one_value_to_all_threads() -> None:
    kernel, op = asm("mov.u32 $0, %tid.x;", "=r", [], ["i32"], pure=False, warps=2)
    kernel.run()[0][0].check(np.int32(0))
    assert inline.inline_asm_scratch(op) > 0
    kernel, op = asm("mov.u32 $0, %smid;", "=r", [], ["i32"], pure=True)
    assert inline.inline_asm_scratch(op) == 0
    assert "sideeffect" not in kernel.text()


@pytest.mark.parametrize(
    ("text", "constraints", "pack", "message"),
    [
        ("mov.b32 $0, $1;", "=q,r", 1, "constraint '=q', which PTX does not have"),
        ("mov.b32 $0, $1;", "r,=r", 1, "a result stands behind an operand"),
        ("mov.b32 $0, $2;", "=r,r", 1, r"names the operand '\$2'; there are 2"),
        ("mov.b32 $0, ${1:x};", "=r,r", 1, r"names the operand '\$\{'"),
        ("mov.b32 $0, $1;", "=r,r,r", 1, "constraints for 2 operands; i32 with pack=1 make 1"),
        ("mov.b32 $0, $1;", "=r,r", 2, "constraints for 1 results; i32 with pack=2 make 2"),
        ("mov.b32 $0, $1;", "=r,r", 3, "must be a power of two, not 3"),
        ("mov.b32 $0, $1;", "=r,h", 1, r"constraint 'h' \(16 bits\) for i32"),
    ],
)
def test_mistakes_in_assembly(text: str, constraints: str, pack: int, message: str) -> None:
    kernel, _ = asm(text, constraints, [("i32", np.arange(64, dtype=np.int32))], ["i32"], pack)
    with pytest.raises(CompilationError, match=message):
        kernel.text()


# --- external functions ---------------------------------------------------------------------------------------


def extern(symbol: str, result: str, *args: tuple[str, np.ndarray]) -> OpKernel:
    kernel = OpKernel(90)
    operands = [kernel.operand(tile_type(a.shape, scalar_type(n)), a) for n, a in args]
    attrs = {"libname": "", "libpath": "", "pure": True, "symbol": symbol}
    op = kernel.build(ExternElementwiseOp, [operands], [tile_type((64,), scalar_type(result))], attrs)
    kernel.result(op.results[0])
    return kernel


def test_known_functions_need_no_library() -> None:
    x = np.linspace(-4, 4, 64).astype("f4")
    kernel = extern("__nv_tanhf", "f32", ("f32", x))
    assert "__nv_" not in kernel.text()
    kernel.run()[0][0].check(np.tanh(x.astype("f8")).astype("f4"), 4)
    exact = extern("__nv_expf", "f32", ("f32", x))
    assert "__nv_" not in exact.text()
    exact.run()[0][0].check(np.exp(x.astype("f8")).astype("f4"), 2)


def test_other_functions_are_called() -> None:
    text = extern("__nv_j0f", "f32", ("f32", np.zeros(64, "f4"))).text()
    assert "declare float @__nv_j0f(float)" in text
    with pytest.raises(CompilationError, match="my_function is in no library"):
        extern("my_function", "f32", ("f32", np.zeros(64, "f4"))).text()


def test_prints_pointers() -> None:
    kernel = OpKernel(90)
    pointer = kernel.pointers(tile_type((4,), pointer_type(f32)), np.zeros(4, "f4"), np.arange(4))
    kernel.build(PrintOp, [[pointer]], [], {"prefix": " p: ", "hex": False, "isSigned": [0]})
    lines = sorted(kernel.run()[1].printed)
    addresses = [int(line.rsplit("0x", 1)[1], 16) for line in lines]
    assert [a - addresses[0] for a in addresses] == [0, 4, 8, 12]
