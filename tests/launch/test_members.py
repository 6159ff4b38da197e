"""Members of a kernel by Triton's names: preloading, new source text, older forms of compiling."""

from __future__ import annotations

import json
from typing import Any

import pytest

import tilewright
import tilewright.language as tl
from tilewright.compiler import ASTSource, compile
from tilewright.runtime.jit import JITFunction, get_jit_fn_file_line

torch = pytest.importorskip("torch")


@tilewright.jit
def helper(x):
    return x + 1


@tilewright.jit
def write(out_ptr, n, KIND: tl.constexpr, BLOCK: tl.constexpr):
    tl.store(out_ptr + tl.arange(0, BLOCK), helper(n).to(KIND))


@tilewright.jit
def other(out_ptr, n, KIND: tl.constexpr, BLOCK: tl.constexpr):
    tl.store(out_ptr, n)


def test_what_a_hook_is_told_can_be_preloaded(monkeypatch):
    told: list[Any] = []
    monkeypatch.setattr(tilewright.knobs.runtime, "jit_cache_hook", lambda **facts: told.append(facts["compile"]))
    write.clear()
    out = torch.zeros(8)
    made = write[(1,)](out, 5, tl.float32, BLOCK=4)
    data = told[0]["specialization_data"]
    assert json.loads(data)["name"].endswith(".write") and "extern_libs" in told[0]
    write.clear()
    loaded = write.preload(data)
    assert loaded is not None and loaded.hash == made.hash
    assert write[(1,)](out, 6, tl.float32, BLOCK=4) is loaded and out[0] == 7 and len(told) == 2
    with pytest.raises(tilewright.errors.ArgumentError, match=r"write but trying to preload for .*other"):
        other.preload(data)
    for broken in ("", "[]", "{}", data.replace("cpu:", "cpu:no")):
        with pytest.raises(tilewright.errors.TilewrightError):
            write.preload(broken)


def test_hooks_under_their_older_names(monkeypatch):
    seen: list[str] = []
    monkeypatch.setattr(JITFunction, "cache_hook", lambda **facts: seen.append("before"))
    monkeypatch.setattr(JITFunction, "compiled_hook", lambda **facts: seen.append("after"))
    other.clear()
    other.warmup(torch.float32, 7, tl.float32, 8, grid=(1,))
    assert seen == ["before", "after"]


def test_a_new_text_reaches_the_kernel_and_its_callers():
    out = torch.zeros(8)
    for _ in range(3):
        write[(1,)](out, 5, tl.float32, BLOCK=4)
    before, text = write.cache_key, helper.src
    helper._unsafe_update_src("def helper(x):\n    return x + 10\n")
    try:
        write[(1,)](out, 5, tl.float32, BLOCK=4)
        assert out[0] == 15 and write.cache_key != before and "10" in helper.src
    finally:
        helper.src = text
    write[(1,)](out, 5, tl.float32, BLOCK=4)
    assert out[0] == 6
    with pytest.raises(tilewright.errors.LanguageValueError, match="no function definition"):
        helper.src = "x = 1"
    assert helper.src == text


def test_older_forms_of_compiling():
    constants = {"KIND": tl.float32, "BLOCK": 4}
    usual = compile(ASTSource(other, {"out_ptr": "*fp32", "n": "i32"}, constants))
    assert compile(ASTSource(other, "*fp32, i32", constants=constants)).hash == usual.hash
    assert compile(other, signature="*fp32,i32", constants=constants, num_warps=4).hash == usual.hash
    assert usual.kernel == usual.binary
    with pytest.raises(tilewright.errors.ArgumentError, match="1 types for 2 parameters"):
        ASTSource(other, "*fp32", constants=constants)
    with pytest.raises(tilewright.errors.ArgumentError, match="takes an ASTSource"):
        compile(other)


def test_facts_of_a_kernel():
    assert [type(node).__name__ for node in write.parse().body] == ["FunctionDef"]
    file, line = get_jit_fn_file_line(write)
    assert file == __file__ and "def write" in write.raw_src[0] and line == write.starting_line_number
    assert "helper" in write.get_capture_scope() and not write.is_gluon()
    write[(1,)](torch.zeros(8), 5, tl.float32, BLOCK=4)
    (cache, _, target, _, _) = write.device_caches[0]
    assert cache and str(target).startswith("cpu:")
    assert tilewright.MockTensor(torch.float32).ptr_range() == 0
    assert tilewright.KernelInterface[int]


def test_kernels_are_no_descriptors():
    """Dynamo of PyTorch 2.11 traces `__get__` of every attribute that has one, also of the kernel of an autotuner."""
    assert not hasattr(tilewright.JITFunction, "__get__")
