"""libdevice: symbols of `tl.extra.libdevice`, what needs the library at all, and linking."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tests.backends.nvidia.op_kernels import OpKernel
from tilewright.backends.llvm import foreign
from tilewright.backends.nvidia import libdevice, ptx
from tilewright.backends.nvidia.arch import arch_of, target_of
from tilewright.backends.nvidia.cubin import assemble
from tilewright.backends.nvidia.emit import library
from tilewright.backends.nvidia.options import CudaOptions
from tilewright.base import dtypes
from tilewright.base.callable import BlockFunction
from tilewright.base.dtypes import PointerType
from tilewright.base.errors import UnsupportedError
from tilewright.base.knobs import knobs
from tilewright.base.options import ExternLibrary
from tilewright.frontend.entry import ParamSpec, build_module
from tilewright.ir.types import scalar_type, tile_type
from tilewright.language.extra import libdevice as functions
from tilewright.ops.math_extern import ExternElementwiseOp, math_name
from tilewright.ops.text import print_module

NAMES = {"b": "i1", "i": "i32", "I": "i32", "l": "i64", "L": "i64", "f": "f32", "d": "f64"}
SIGNATURES = [(name, case) for name, cases in functions.CASES.items() for case in cases.split()]
needs_library = pytest.mark.skipif(libdevice.find() is None, reason="libdevice is not installed (nvidia-nvvm)")


def extern(kernel: OpKernel, symbol: str, operands: str, result: str) -> None:
    """A call on tiles of these types (letters), added to a kernel."""
    kinds = [NAMES[letter] for letter in operands]
    memory = {"i32": np.int32, "i64": np.int64, "f32": np.float32, "f64": np.float64}
    values = [kernel.operand(tile_type((32,), scalar_type(n)), np.ones(32, memory[n])) for n in kinds]
    attrs = {"libname": "", "libpath": "", "pure": True, "symbol": symbol}
    # What the table calls a bool, the library calls an int.
    name = "i32" if result == "b" else NAMES[result]
    op = kernel.build(ExternElementwiseOp, [values], [tile_type((32,), scalar_type(name))], attrs)
    kernel.result(op.results[0])


def all_calls(capability: int, *, only_without_library: bool) -> str:
    """A kernel that calls every function with every signature."""
    kernel = OpKernel(capability)
    for name, case in SIGNATURES:
        operands, result = case.split(">")
        symbol = functions.symbol_of(name, operands)
        own = math_name(symbol) is not None and operands[0] == "f"
        if own or library.instruction_of(symbol) or not only_without_library:
            extern(kernel, symbol, operands, result)
    return kernel.text()


@pytest.mark.parametrize(
    ("name", "letters", "symbol"),
    [
        ("sin", "f", "sinf"), ("sin", "d", "sin"), ("saturatef", "f", "saturatef"), ("isnan", "d", "isnand"),
        ("add_rz", "f", "fadd_rz"), ("sqrt_ru", "d", "dsqrt_ru"), ("rsqrt_rn", "f", "frsqrt_rn"),
        ("fma_rd", "f", "fmaf_rd"), ("fma_rd", "d", "fma_rd"), ("fma", "f", "fmaf"), ("pow", "fi", "powif"),
        ("pow", "di", "powi"), ("jn", "if", "jnf"), ("ldexp", "fi", "ldexpf"), ("abs", "l", "llabs"),
        ("mulhi", "L", "umul64hi"), ("sad", "IIi", "usad"), ("clz", "l", "clzll"),
        ("fast_dividef", "ff", "fast_fdividef"),
        ("float2int_rn", "f", "float2int_rn"), ("float_as_int", "f", "float_as_int"), ("fast_expf", "f", "fast_expf"),
    ],
)  # fmt: skip
def test_symbols(name: str, letters: str, symbol: str) -> None:
    assert functions.symbol_of(name, letters) == f"__nv_{symbol}"


@needs_library
def test_every_function_is_in_the_library_with_its_types() -> None:
    text = all_calls(90, only_without_library=False)
    path = libdevice.find()
    assert path is not None
    defined = foreign.signatures(ExternLibrary("libdevice", str(path), ""))
    for result, symbol, operands in re.findall(r"^declare (\S+) @(__nv_\w+)\((.*)\)", text, re.M):
        assert f"{result} ({operands})" == defined[symbol], symbol
    missing = {name for name, case in SIGNATURES if functions.symbol_of(name, case.split(">")[0]) not in defined}
    assert missing <= {"fast_tanhf"}  # which the libraries of older toolkits lack


@needs_library
@pytest.mark.parametrize("capability", [90])
def test_every_function_links_and_assembles(capability: int) -> None:
    made = ptx.compile_ptx(all_calls(capability, only_without_library=False), arch_of(capability), optimize=False)
    assert ".extern .func" not in made
    assemble(made, arch_of(capability), kernel="ops")


@pytest.mark.parametrize("capability", [80, 86, 89, 90, 100, 120])
def test_what_is_an_instruction_needs_no_library(capability: int) -> None:
    text = all_calls(capability, only_without_library=True)
    assert not libdevice.needed(text)
    assemble(ptx.compile_ptx(text, arch_of(capability), optimize=False), arch_of(capability), kernel="ops")


def calling(symbol: str) -> str:
    kernel = OpKernel(90)
    extern(kernel, symbol, "f", "f")
    return kernel.text()


@needs_library
def test_only_what_is_called_is_linked() -> None:
    text = calling("__nv_erfcinvf")
    made = ptx.compile_ptx(text, arch_of(90))
    assert "__nv_" not in made and "__nvvm_reflect" not in made  # inlined, reflection resolved
    with pytest.raises(UnsupportedError, match="libdevice has no function __nv_nothing"):
        ptx.compile_ptx(calling("__nv_nothing"), arch_of(90))


def test_without_the_library_the_error_says_what_to_install(tmp_path: Path) -> None:
    before, knobs.cuda.libdevice = knobs.cuda.libdevice, tmp_path / "nowhere.bc"
    try:
        with pytest.raises(UnsupportedError, match="pip install nvidia-nvvm") as error:
            ptx.compile_ptx(calling("__nv_j0f"), arch_of(90))
        assert "__nv_j0f" in str(error.value) and "nowhere.bc" in str(error.value)
        assert ".entry ops" in ptx.compile_ptx(calling("__nv_tanhf"), arch_of(90))
    finally:
        knobs.cuda.libdevice = before


@pytest.mark.parametrize(
    ("symbol", "function", "ulp"),
    [("expf", np.exp, 1.5), ("sinhf", np.sinh, 3), ("coshf", np.cosh, 2), ("tanhf", np.tanh, 2)],
)
def test_powers_of_e_by_the_power_of_two(symbol: str, function: Any, ulp: float) -> None:
    """Over the whole range: overflow, gradual underflow, infinities and NaN are those of the function."""
    edges = [np.inf, -np.inf, np.nan, 0.0, -0.0, 88.72283, 88.72284, 89.41, 89.42, -87.34, -103.9, -104.1, 1e-30, -3e38]
    x = np.concatenate([edges, np.linspace(-110, 92, 498)]).astype(np.float32)
    kernel, tile = OpKernel(), tile_type(x.shape, scalar_type("f32"))
    attrs = {"libname": "", "libpath": "", "pure": True, "symbol": f"__nv_{symbol}"}
    op = kernel.build(ExternElementwiseOp, [[kernel.operand(tile, x)]], [tile], attrs)
    kernel.result(op.results[0])
    with np.errstate(all="ignore"):
        kernel.run()[0][0].check(function(x.astype("g")).astype(np.float32), ulp)
    assert "ex2.approx.ftz.f32" in ptx.compile_ptx(kernel.text(), arch_of(90))


# --- front end --------------------------------------------------------------------------------------------------


def special(x, n, out):
    i = tl.arange(0, 8)
    v = tl.load(x + i)
    tl.store(out + i, tl.extra.libdevice.erfcx(v) + tl.extra.libdevice.add_rz(v, 1.0))
    tl.store(n + i, tl.where(tl.extra.libdevice.isnan(v), 1, tl.extra.libdevice.float_as_int(v)))


def assembly(x, n, out):
    i = tl.arange(0, 8)
    v = tl.load(n + i)
    low, high = tl.inline_asm_elementwise(
        "shl.b32 $0, $2, 1; shr.b32 $1, $2, 1;", "=r,=r,r", [v], dtype=(tl.int32, tl.int32), is_pure=True, pack=1
    )
    tl.store(n + i, low + high + tl.extra.cuda.smid() + tl.extra.cuda.num_threads())
    tl.extra.cuda.gdc_wait()
    tl.store(out, tl.extra.cuda.globaltimer().to(tl.float32))


def tile_ir(kernel: Any, capability: int = 90) -> str:
    types = [PointerType(dtypes.float32), PointerType(dtypes.int32), PointerType(dtypes.float32)]
    params = [ParamSpec(name, type_) for name, type_ in zip(("x", "n", "out"), types, strict=True)]
    return print_module(
        build_module(BlockFunction(kernel), params, CudaOptions(num_warps=8), target_of(capability)).module
    )


def test_language_functions_on_a_gpu() -> None:
    text = tile_ir(special)
    symbols = re.findall(r'tt.extern_elementwise.*symbol = "(\w+)"', text)
    assert symbols == ["__nv_erfcxf", "__nv_fadd_rz", "__nv_isnanf"]
    text = tile_ir(assembly)
    assert text.count("tt.elementwise_inline_asm") == 4 and "packed_element = 1 : i32" in text
    assert "256" in text  # threads of eight warps
