"""Compiling in the forms of older programs, and what a compiled kernel has under their names."""

from __future__ import annotations

import warnings
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.base.errors import ArgumentError, UnsupportedError
from tilewright.base.knobs import knobs

torch = pytest.importorskip("torch")
instance_descriptor = namedtuple("instance_descriptor", "divisible_by_16 equal_to_1")


@tilewright.jit
def add_to(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


def compiled(**options: Any) -> Any:
    return add_to.warmup(tilewright.MockTensor(torch.float32), 100, BLOCK=64, grid=(2,), **options)


@pytest.mark.parametrize(
    "given",
    [
        {"signature": "*fp32, i32", "constants": {"BLOCK": 64}},
        {"signature": "*fp32,i32", "constants": {2: 64}, "device": 0},
        {"signature": {0: "*fp32", 1: "i32"}, "constants": {2: 64}, "device": torch.device("cpu")},
        {"signature": {0: "*fp32", 1: "i32"}, "constants": {2: 64}, "configs": [instance_descriptor({0}, ())]},
        {"signature": {"x": "*fp32", "n": "i32"}, "constants": {"BLOCK": 64}, "num_warps": 2, "num_stages": 1},
    ],
)
def test_kernels_are_compiled_as_older_programs_ask(given: dict[str, Any]) -> None:
    kernel = tilewright.compile(add_to, **given)
    x = torch.zeros(128)
    kernel[(2, 1, 1)](x, 100)
    assert x[:100].eq(1).all() and not x[100:].any()
    assert bool(kernel.specialization.attributes) is ("configs" in given)


def test_a_compute_capability_is_a_target() -> None:
    kernel = tilewright.compile(add_to, signature="*fp32, i32", constants={"BLOCK": 64}, cc=80)
    assert str(kernel.target) == "cuda:80"


def test_launches_of_a_compiled_kernel_of_2x() -> None:
    kernel, x = compiled(num_warps=8, num_stages=2), torch.zeros(128)
    assert (kernel.num_warps, kernel.num_stages, kernel.num_ctas, kernel.shared) == (8, 2, 1, 0)
    assert kernel.cu_function is kernel.function and kernel.clusterDims == (1, 1, 1)
    told: list[str] = []

    def enter(facts: Any) -> None:
        told.append(facts.get()["name"])

    kernel.c_wrapper(2, 1, 1, 8, 0, 0, kernel.cu_function, enter, told.append, kernel, x, 100)
    kernel.c_wrapper(2, 1, 1, 8, 1, 1, 1, 1, 0, 0, kernel.cu_function, None, None, kernel, x, 100)
    assert x[:100].eq(2).all() and not x[100:].any() and told[0] == "add_to" and len(told) == 2
    with pytest.raises(ArgumentError, match="takes kernel.cu_function"):
        kernel.c_wrapper(2, 1, 1, x, 100)


def test_stages_have_other_names_too() -> None:
    kernel = compiled(target="cuda:90")
    assert "source" not in list(kernel.asm)
    assert kernel.asm["ttgir"] == kernel.asm["tgir"] and "ttgir" in kernel.asm and "source" in kernel.asm
    assert "tt.func public @add_to" in kernel.asm["source"]
    assert "ttgir" not in compiled().asm and "tt.func" in compiled().asm["source"]
    with pytest.raises(KeyError):
        compiled().asm["ttgir"]


# --- versions of PTX ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "text"), [(80, ".version 8.0"), (83, ".version 8.3"), (None, ".version 8.6")])
def test_ptx_is_of_the_version_that_is_asked_for(version: int | None, text: str) -> None:
    kernel = compiled(target="cuda:90", ptx_version=version)
    assert text in kernel.asm["ptx"] and kernel.asm["cubin"]
    assert compiled(ptx_version=version).hash  # a CPU has none


@tilewright.jit
def narrow(x, out):
    tl.store(out + tl.arange(0, 256), tl.load(x + tl.arange(0, 256)).to(tl.float8e4nv))


def test_a_version_that_lacks_an_instruction_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="ptx_version: there is no sm_90a in PTX 7.0"):
        compiled(target="cuda:90", ptx_version=70)
    with pytest.raises(UnsupportedError, match=r"ptx_version: narrow needs PTX 8\.1 .*cvt"):
        narrow.warmup(torch.float32, torch.float8_e4m3fn, grid=(1,), target="cuda:89", ptx_version=78)
    with pytest.raises(UnsupportedError, match="ptx_version: .* takes PTX up to"):
        compiled(target="cuda:90", ptx_version=990)
    for wrong in (8, "8.0", 10_000):
        with pytest.raises(ArgumentError, match="ptx_version"):
            compiled(target="cuda:90", ptx_version=wrong)


# --- constants of the launch ----------------------------------------------------------------------------------


@tl.core.builtin
def get_num_threads(_semantic=None):
    return tl.core.constexpr(_semantic.builder.options.num_warps * 32)


@tl.constexpr_function
def warps_to_threads(warps):
    return 32 * warps


@tilewright.jit
def by_threads(out, FORM: tl.constexpr):
    if FORM == 0:
        n: tl.constexpr = tl.extra.cuda.num_threads()
        tl.store(out + tl.arange(0, n), 1)
    elif FORM == 1:
        tl.store(out + tl.arange(0, get_num_threads()), 1)
    elif FORM == 2:
        tl.store(out + tl.arange(0, warps_to_threads(tl.extra.cuda.num_warps())), 1)
    else:
        tl.store(out + tl.arange(0, 64), tl.extra.cuda.num_threads() + tl.arange(0, 64))


@pytest.mark.parametrize("form", range(4))
def test_ranges_of_what_a_launch_knows(form: int) -> None:
    kernel = by_threads.warmup(torch.int32, form, grid=(1,), target="cuda:90", num_warps=2)
    assert "tt.make_range {end = 64 : i32" in kernel.asm["ttir"]


# --- results that nobody uses ---------------------------------------------------------------------------------


@tilewright.jit
def moves(x, USED: tl.constexpr):
    block = tl.make_block_ptr(x, (16,), (1,), (0,), (8,), (0,))
    if USED:
        block = tl.advance(block, (8,))
    else:
        tl.advance(block, (8,))
        block.advance((8,))
    tl.store(block, tl.load(block) + 1)


def test_an_unused_advance_is_told() -> None:
    x = np.zeros(16, np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        moves[(1,)](x, True)
    with pytest.warns(UserWarning, match=r"test_older_forms.py:\d+: the result of advance is not used"):
        moves[(1,)](x, False)
    assert x.tolist() == [1] * 16


# --- stages without their facts -------------------------------------------------------------------------------


@tilewright.jit
def with_shared(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    rows = i[:, None] * BLOCK + i[None, :]
    tl.store(out + rows, tl.dot(tl.load(x + rows), tl.load(x + rows)))


def dumped(tmp_path: Path, kernel: Any, *args: Any, **options: Any) -> tuple[Any, Path]:
    with knobs.compilation.scope():
        knobs.compilation.dump_dir = tmp_path
        made = tilewright.jit(kernel.fn).warmup(*args, grid=(1,), **options)
    (facts,) = tmp_path.rglob("*.json")
    facts.unlink()
    return made, facts


@pytest.mark.parametrize("stage", ["tgir", "llir", "ptx"])
def test_a_stage_goes_on_without_its_facts(stage: str, tmp_path: Path) -> None:
    mock = tilewright.MockTensor(torch.float32)
    made, facts = dumped(tmp_path, add_to, mock, 100, 64, target="cuda:90", num_warps=2)
    again = tilewright.compile(str(facts.with_suffix(f".{stage}")), target="cuda:90")
    assert again.asm["cubin"] == made.asm["cubin"] and again.name == "add_to"
    assert list(again.specialization.types)[1] in ("i32", "u32") and again.metadata["block_warps"] == 2
    assert again.packed_metadata[2] == made.packed_metadata[2] == 0


def test_a_stage_that_does_not_say_all_is_refused(tmp_path: Path) -> None:
    mock = tilewright.MockTensor(torch.float16)
    _, facts = dumped(tmp_path / "gpu", with_shared, mock, mock, 64, target="cuda:90")
    for stage in ("llir", "ptx"):
        with pytest.raises(ArgumentError, match=f"with_shared.{stage} alone.*shared memory"):
            tilewright.compile(facts.with_suffix(f".{stage}"), target="cuda:90")
    assert tilewright.compile(facts.with_suffix(".tgir"), target="cuda:90").metadata.shared > 0
    _, facts = dumped(tmp_path / "cpu", add_to, mock, 100, 64)
    for stage, why in (("llir", "it has 0 kernels"), ("obj", "it is no text"), ("loops", "types of its parameters")):
        with pytest.raises(ArgumentError, match=f"add_to.{stage} alone.*{why}"):
            tilewright.compile(facts.with_suffix(f".{stage}"))
