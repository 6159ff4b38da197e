"""Requests: one entry point, keys that hold what the code depends on, and ways to other processes."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.base.errors import ArgumentError
from tilewright.base.knobs import knobs
from tilewright.compile.build import compile_request
from tilewright.compile.request import Request, make_request
from tilewright.compile.sources import FunctionSource, TextSource
from tilewright.compile.specialize import from_signature
from tilewright.devices.registry import parse_target

TEXT = """
import tilewright
import tilewright.language as tl

@tilewright.jit
def triple(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x_ptr + i, 3.0 * tl.load(x_ptr + i, mask=i < n), mask=i < n)
"""


@tilewright.jit
def product(x_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    x = tl.load(x_ptr + i)
    tl.store(x_ptr + i, tl.dot(x, x))


def request_of(text: str = TEXT, target: str | None = None, **options: object) -> Request:
    source = TextSource(text, "triple")
    types = from_signature(source.fn.params, {"x_ptr": "*fp32", "n": "i32"}, {"BLOCK": 16}, {(0,): DIVISIBLE})
    return make_request(source, types, options, None if target is None else parse_target(target))


DIVISIBLE = [["tt.divisibility", 16]]


def test_every_door_fills_in_the_same_defaults(monkeypatch):
    monkeypatch.setattr(knobs.language, "fp32_default", "bf16x3")
    launched = product.warmup(np.zeros((16, 16), np.float32), 16, grid=(1,))
    source = tilewright.compiler.ASTSource(product, {"x_ptr": "*fp32"}, {"BLOCK": 16}, {(0,): DIVISIBLE})
    written = tilewright.compile(source)
    assert launched.metadata.default_dot_input_precision == "bf16x3"
    assert written.hash == launched.hash
    for call in (
        lambda: tilewright.compile(source, options={"num_warps": 3}),
        lambda: product.warmup(np.zeros((16, 16), np.float32), 16, grid=(1,), num_warps=3),
    ):
        with pytest.raises(ArgumentError, match="num_warps must be a power of 2, got 3"):
            call()


def test_the_key_of_a_text_holds_neither_line_nor_module():
    moved = request_of("\n\n# further down\n" + TEXT)
    assert moved.source.fn.fn.__module__ != request_of().source.fn.fn.__module__
    assert moved.key() == request_of().key()
    assert request_of(TEXT.replace("3.0", "4.0")).key() != request_of().key()


def test_the_key_holds_the_options_of_its_target_only():
    assert request_of(num_warps=8, maxnreg=64).key() == request_of().key()
    assert request_of(target="cuda:90", num_warps=8).key() != request_of(target="cuda:90").key()


def test_a_request_made_of_text_goes_to_another_process(tmp_path):
    request = request_of()
    (tmp_path / "request").write_bytes(pickle.dumps(request))
    program = """
        import pickle, sys
        from tilewright.compile.build import compile_request
        kernel = compile_request(pickle.loads(open(sys.argv[1], "rb").read()))
        print(kernel.hash, kernel.from_disk)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(tmp_path / "request")],
        capture_output=True, text=True, check=True, env=_environment(tmp_path),
    )  # fmt: skip
    assert done.stdout.split() == [compile_request(request).hash, "False"]


def test_a_kernel_of_a_module_is_pickled_by_name():
    assert pickle.loads(pickle.dumps(FunctionSource(product))).fn is product


def test_a_kernel_that_no_module_holds_is_not_pickled():
    @tilewright.jit
    def local(x_ptr):
        tl.store(x_ptr, 1.0)

    with pytest.raises(ArgumentError, match="cannot be sent to another process"):
        pickle.dumps(FunctionSource(local))


def test_a_text_without_the_kernel_says_so():
    with pytest.raises(ArgumentError, match="the text defines no kernel 'other'"):
        TextSource(TEXT, "other")


def _environment(folder) -> dict[str, str]:
    return {**os.environ, "TILEWRIGHT_CACHE_DIR": str(folder / "cache")}
