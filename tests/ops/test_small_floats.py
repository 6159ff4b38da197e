"""Arithmetic of 8-bit floats: computed in float32, each result rounded."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright.language as tl
from tests.language.kernel_runner import run, running_on

torch = pytest.importorskip("torch")
N = 64


def results(p, q, out, KIND: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    x, y = tl.load(p + i).to(KIND), tl.load(q + i).to(KIND)
    tl.store(out + i, (x + y).to(tl.float32))
    tl.store(out + N + i, (x * y - 1).to(tl.float32))
    tl.store(out + 2 * N + i, tl.fma(x, y, x).to(tl.float32))
    tl.store(out + 3 * N + i, tl.maximum(x, -y).to(tl.float32))
    tl.store(out + 4 * N + i, tl.where(x < y, tl.abs(x), y).to(tl.float32))
    tl.store(out + 5 * N + i, tl.clamp(x, -y, y).to(tl.float32) + (x == 1).to(tl.float32))
    tl.static_assert((x + y).dtype == KIND and (x * 2.0).dtype == KIND and (x / y).dtype == tl.float32)


@pytest.mark.parametrize(
    ("kind", "element"), [(tl.float8e4nv, torch.float8_e4m3fn), (tl.float8e5, torch.float8_e5m2)], ids=str
)
def test_every_result_is_rounded(backend: str, kind, element) -> None:
    check(kind, element)


def test_code_for_gpus() -> None:
    with running_on("simulated"):
        check(tl.float8e5, torch.float8_e5m2)


def check(kind, element) -> None:
    rng = np.random.default_rng(0)
    p, q = rng.normal(size=N).astype(np.float32) * 3, np.abs(rng.normal(size=N)).astype(np.float32)
    out = np.zeros((6, N), np.float32)
    run(results, p, q, out, KIND=kind, N=N)

    def rounded(value):
        return value.to(element).float()

    x, y = rounded(torch.from_numpy(p)), rounded(torch.from_numpy(q))
    want = [
        rounded(x + y), rounded(rounded(x * y) - 1), rounded((x.double() * y + x).float()), torch.maximum(x, -y),
        torch.where(x < y, x.abs(), y), torch.clamp(x, -y, y) + (x == 1).float(),
    ]  # fmt: skip
    np.testing.assert_array_equal(out, torch.stack(want).numpy())
