"""Kernels that compute the same have one nest, however they are written; what is in the golden texts is meant."""

from __future__ import annotations

import difflib
import subprocess
import sys
import time

import pytest

import tilewright
import tilewright.language as tl
from tests.decisions.families import kernels_of
from tests.decisions.harness import Spelling
from tests.loops.families import FAMILIES, GOLDEN, classes_of, golden_file, golden_text, kernel_of, module_of
from tests.meta.sources import ROOT
from tilewright.loops.text import nest_of


@pytest.mark.parametrize("family", FAMILIES)
def test_nests_are_what_they_were(family: str) -> None:
    made, kept = golden_text(family), golden_file(family).read_text(encoding="utf-8")
    diff = list(difflib.unified_diff(kept.splitlines(), made.splitlines(), "kept", "made", lineterm="", n=2))
    assert not diff, "\n".join(["nests changed; if that is meant: python -m tests.loops", *diff])


def test_every_golden_text_is_checked() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == {f"{family}.txt" for family in FAMILIES}


def test_a_matrix_times_a_vector_is_one_text() -> None:
    """Up to the coefficient, and up to whether columns end at a bound or where their blocks do."""
    in_blocks = "128*((arg4 + 127) // 128)"
    texts = {text.replace("0.5 * ", "").replace(in_blocks, "arg4") for text in classes_of("matvec")}
    assert len(texts) == 1


@tilewright.jit
def butterflies(x, out, N: tl.constexpr, STAGES: tl.constexpr):
    i = tl.arange(0, N)
    a, b = tl.load(x + i), tl.load(x + N + i)
    for stage in tl.static_range(STAGES):
        low, high = i & ~(2**stage), i | 2**stage
        turn = tl.cos((i & (2**stage - 1)).to(tl.float32))
        right, other = tl.gather(a, high, 0), tl.gather(b, high, 0)
        a, b = tl.gather(a, low, 0) + turn * right - other, tl.gather(b, low, 0) + turn * other + right
    tl.store(out + i, a)
    tl.store(out + N + i, b)


def test_tiles_that_are_asked_often_are_written_once() -> None:
    """Each stage reads both tiles of the one before at two places: written out, 4 ** stages of them."""
    lengths = [
        len(nest_of(kernel_of(module_of(Spelling(butterflies, f"*fp32, *fp32, {2**n}, {n}", {}))))) for n in (6, 8)
    ]
    assert lengths[1] < 4 * lengths[0]


def test_texts_do_not_depend_on_the_process() -> None:
    code = "from tests.loops.families import golden_text; print(golden_text('rows'), end='')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == golden_file("rows").read_text(encoding="utf-8")


@pytest.mark.parametrize("family", ["matmul", "layer_norm", "strangers", "examples"])
def test_nests_are_made_quickly(family: str) -> None:
    """A tenth of a second, ten times that on a busy machine: what grows with the paths of a graph takes minutes."""
    for spelling in kernels_of(family):
        module = module_of(spelling)
        begin = time.process_time()
        nest_of(kernel_of(module))
        assert time.process_time() - begin < 1, spelling.name
