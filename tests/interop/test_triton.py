"""TTIR both ways with Triton 3.9: its text runs here with the right result, and it accepts the text printed here."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.fuzz import check
from tests.fuzz.case import Loaded, Param, load
from tests.fuzz.generator import Profile, generate
from tests.interop import bridge
from tilewright.ops import levels
from tilewright.ops.text import parse_module, print_module
from tilewright.passes.pipeline import run_passes

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
# What Triton refuses for its GPU, though the language allows it.
_REFUSED = (
    "Input shapes should have M",
    "arange must fit in int32",
    "_get_flip_dim",
    "atomic_min does not support",
    "atomic_max does not support",
)


def _array(name: str, size: int, fill: str = "ints", dtype: str = "float32", tolerance: float = 0.0) -> Param:
    return Param(name, "array", dtype, size=size, fill=fill, tolerance=tolerance)


def _scalar(name: str, value: Any, dtype: str = "int32") -> Param:
    return Param(name, "scalar", dtype, value)


def _constant(name: str, value: Any) -> Param:
    return Param(name, "constexpr", value=value)


# --- kernels of the examples ------------------------------------------------------------------------------


_LAYER_NORM = [
    _array("x_ptr", 4 * 100, "reals"), _array("out_ptr", 4 * 100, "sentinel", tolerance=1e-4),
    _array("weight_ptr", 100, "reals"), _array("bias_ptr", 100, "reals"),
    _scalar("row_stride", 100), _scalar("n_cols", 100), _scalar("eps", 1e-5, "float32"), _constant("BLOCK", 128),
]  # fmt: skip
_SOFTMAX = [
    _array("out_ptr", 5 * 80, "sentinel", tolerance=1e-5), _array("in_ptr", 5 * 80, "reals"),
    _scalar("in_row_stride", 80), _scalar("out_row_stride", 80), _scalar("n_cols", 75), _constant("BLOCK", 128),
]  # fmt: skip
_MATMUL = [
    _array("a_ptr", 48 * 40), _array("b_ptr", 40 * 56), _array("c_ptr", 48 * 56, "sentinel"),
    _scalar("M", 48), _scalar("N", 56), _scalar("K", 40),
    _scalar("stride_am", 40), _constant("stride_ak", 1), _scalar("stride_bk", 56), _constant("stride_bn", 1),
    _scalar("stride_cm", 56), _constant("stride_cn", 1),
    _constant("BLOCK_M", 32), _constant("BLOCK_N", 32), _constant("BLOCK_K", 16), _constant("GROUP_M", 8),
    _constant("PRECISION", "ieee"), _constant("EVEN_K", False),
]  # fmt: skip
_ADD = [
    _array("x_ptr", 1000), _array("y_ptr", 1000), _array("out_ptr", 1000, "sentinel"), _scalar("n_elements", 1000),
    _constant("BLOCK", 256),
]  # fmt: skip
EXAMPLE_CASES = {
    "vector_add": ("add_kernel", _ADD, (4,)),
    "softmax": ("softmax_kernel", _SOFTMAX, (5,)),
    "layer_norm": ("layer_norm_kernel", _LAYER_NORM, (4,)),
    "matmul": ("matmul_kernel", _MATMUL, (4,)),
}


def _kernel_text(example: str, name: str) -> str:
    """The source of one kernel of an example, with its decorator."""
    lines = (EXAMPLES / f"{example}.py").read_text().splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(f"def {name}("))
    body = inspect.getblock([line + "\n" for line in lines[start:]])
    return "@tilewright.jit\n" + "".join(body).replace(f"def {name}(", "def kernel(")


def _write(path: Path, params: list[Param], grid: tuple[int, ...], kernel: str) -> Path:
    """A case file like those of the random kernels."""
    record = {"seed": 7, "grid": grid, "cpu": "", "options": {}, "params": [dataclasses.asdict(p) for p in params]}
    path.write_text(f"import tilewright\nimport tilewright.language as tl\n\nCASE = {record!r}\n\n\n{kernel}")
    return path


# --- the two directions ----------------------------------------------------------------------------------------


def _runs_here(path: Path, folder: Path, *, optimized: bool) -> None:
    """TTIR that Triton makes of a case file does on the CPU what our own front end's does in the reference."""
    case = load(path)
    text = bridge.ttir(bridge.as_triton(path, folder), case.params, case.options, optimized=optimized)
    module = parse_module(text)
    levels.verify(module)
    wanted = check.run_reference(case)
    assert check.compare(case, wanted, check.run_on_cpu(case, module)) == ""


def _is_accepted(case: Loaded, folder: Path) -> None:
    """Triton parses and verifies what our front end makes of a case, before and after our passes."""
    module = check.tile_ir(case)
    bridge.check_accepted(print_module(module, locations=False), folder)
    bridge.check_accepted(print_module(run_passes(module), locations=False), folder)


@pytest.mark.parametrize("optimized", [False, True], ids=["front end", "after Triton's passes"])
@pytest.mark.parametrize("example", EXAMPLE_CASES)
def test_example_compiled_by_triton(tmp_path: Path, example: str, optimized: bool) -> None:
    name, params, grid = EXAMPLE_CASES[example]
    kernel = _kernel_text(example, name)
    names = [n.split(":")[0].strip() for n in kernel[kernel.index("(") + 1 : kernel.index("):")].split(",")]
    given = {p.name: p for p in params}
    ordered = [given[n] if n in given else _constant(n, None) for n in names if n]
    path = _write(tmp_path / f"{example}.py", ordered, grid, kernel)
    if any(p.name == "ACC_TYPE" for p in ordered):  # a type of the language, named in the text
        path.write_text(path.read_text().replace("ACC_TYPE: tl.constexpr", "ACC_TYPE: tl.constexpr = tl.float32"))
        pytest.skip("the accumulator type is a parameter of this example")
    _runs_here(path, tmp_path, optimized=optimized)
    _is_accepted(load(path), tmp_path)


@pytest.mark.parametrize("seed", range(80))
def test_random_kernel_compiled_by_triton(tmp_path: Path, seed: int) -> None:
    path = tmp_path / f"case_{seed}.py"
    path.write_text(generate(seed, Profile(portable=True)).source())
    try:
        _runs_here(path, tmp_path, optimized=seed % 2 == 0)
    except bridge.triton.CompilationError as error:
        said = f"{error}\n{error.__cause__}"
        if not any(text in said for text in _REFUSED):
            raise
        pytest.skip("Triton refuses a shape or a type")
    _is_accepted(load(path), tmp_path)


RETURNS = """
@tilewright.jit
def pick(a, b, n):
    if n > 4:
        if n > 6:
            return a + b
        a = a * 2
    if n < 2:
        return b
    return a - b


@tilewright.jit
def kernel(x, out, n, B: tl.constexpr):
    pid = tl.program_id(0)
    i = pid * B + tl.arange(0, B)
    if pid >= n:
        return
    v = tl.load(x + i)
    tl.store(out + i, pick(v, v + 3, pid))
"""


@pytest.mark.parametrize("optimized", [False, True], ids=["front end", "after Triton's passes"])
def test_early_returns_of_triton_become_structure(tmp_path: Path, optimized: bool) -> None:
    params = [_array("x", 16 * 10, dtype="int32"), _array("out", 16 * 10, "sentinel", "int32"), _scalar("n", 8)]
    path = _write(tmp_path / "returns.py", [*params, _constant("B", 16)], (10,), RETURNS)
    case = load(path)
    text = bridge.ttir(bridge.as_triton(path, tmp_path), case.params, {}, optimized=optimized)
    assert "cf.cond_br" in text
    module = run_passes(parse_module(text))
    assert "cf." not in print_module(module, locations=False).replace("scf.", "")
    levels.verify(module)
    wanted = check.run_reference(case)
    assert check.compare(case, wanted, check.run_on_cpu(case, module)) == ""
    assert np.any(wanted["out"] != 85)
