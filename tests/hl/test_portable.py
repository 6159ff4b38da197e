"""`to_code(portable=True)`: text for Triton, which compiles there where it is installed, with or without a GPU."""

from __future__ import annotations

import ast
import importlib
import inspect

import pytest
import torch

from tests.hl import golden_cases
from tilewright import hl
from tilewright.hl import exc
from tilewright.tools.modules import load_file

ROOMS = {"math", "torch", "triton", "triton.language", "triton.language.extra"}  # math: what the example's host uses


def _imported(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module


def _extents(text):
    """The extents that are written in calls of `tl.arange`, `tl.full` and `tl.reshape`."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("tl.arange", "tl.full", "tl.reshape"):
            for at, argument in enumerate(node.args[:2]):
                if isinstance(argument, ast.List):
                    yield from (item.value for item in argument.elts if isinstance(item, ast.Constant))
                elif at and ast.unparse(node.func) == "tl.arange" and isinstance(argument, ast.Constant):
                    yield argument.value


@pytest.mark.parametrize("case", golden_cases.CASES)
def test_portable_text_names_triton_alone(case):
    bound, config = golden_cases.bound_of(case)
    text = bound.to_code(config, portable=True, output_origin_lines=False)
    assert set(_imported(text)) <= ROOMS and "tilewright" not in text
    assert all(extent & (extent - 1) == 0 for extent in _extents(text))
    assert "#" not in text and "# " in bound.to_code(config, portable=True)


@pytest.mark.parametrize("case", golden_cases.CASES)
def test_portable_text_compiles_under_triton(case, tmp_path, monkeypatch):
    try:
        triton = importlib.import_module("triton")
    except ImportError:
        pytest.skip("Triton is not installed; `make test-interop` has an environment with it")
    if "triton" not in inspect.getfile(triton).split("site-packages")[-1]:
        pytest.skip("what is imported as triton is Tilewright itself")
    from triton.backends.compiler import GPUTarget
    from triton.runtime.jit import JITFunction, mangle_type

    compiled = []

    def compile_for_sm90(function, *args, **options):
        kinds = zip(function.params, args, strict=False)
        signature = {param.name: "constexpr" if param.is_constexpr else mangle_type(arg) for param, arg in kinds}
        constants = {(param.num,): arg for param, arg in zip(function.params, args, strict=False) if param.is_constexpr}
        source = triton.compiler.ASTSource(function, signature, constants)
        compiled.append(triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options))

    monkeypatch.setattr(JITFunction, "__getitem__", lambda self, grid: lambda *a, **o: compile_for_sm90(self, *a, **o))
    bound, config = golden_cases.bound_of(case)
    path = tmp_path / "portable.py"
    path.write_text(bound.to_code(config, portable=True))
    getattr(load_file(path), bound.name)(*golden_cases.CASES[case][0])
    assert len(compiled) == len(bound.traced.graphs)


@hl.kernel
def reshaped(x):
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        out[rows, :] = x[rows, :].reshape(rows.block_size, 3, 4).transpose(1, 2).reshape(rows.block_size, 12)
    return out


def test_what_triton_does_not_have_is_refused():
    with pytest.raises(
        exc.UnsupportedOperation, match=r"no power of two[\s\S]*reshape\(rows.block_size, 3, 4\)|reshape"
    ):
        reshaped.bind((torch.randn(8, 12),)).to_code(portable=True)


@hl.kernel
def on_the_host(x):
    out = torch.empty([hl.cdiv(x.size(0), 4) * 4])
    for rows in hl.tile(x.size(0)):
        out[rows] = x[rows]
    return out


def test_sizes_of_the_host_are_computed_by_triton():
    assert "triton.cdiv(x.size(0), 4)" in on_the_host.bind((torch.randn(9),)).to_code(portable=True)
