"""Products that add to the product before: one accumulator, unless somebody else wants what it held."""

import numpy as np

import tilewright
import tilewright.language as tl


@tilewright.jit
def chain(a_ptr, b_ptr, out_ptr, KEPT: tl.constexpr):
    i, k = tl.arange(0, 32), tl.arange(0, 16)
    acc = tl.zeros((32, 32), tl.float32)
    for tap in tl.static_range(3):
        a = tl.load(a_ptr + tap * 512 + i[:, None] * 16 + k[None, :])
        b = tl.load(b_ptr + tap * 512 + k[:, None] * 32 + i[None, :])
        acc = tl.dot(a, b, acc)
        if KEPT:
            tl.store(out_ptr + (tap + 1) * 1024 + i[:, None] * 32 + i[None, :], acc)
    tl.store(out_ptr + i[:, None] * 32 + i[None, :], acc)


def launched(kept: bool):
    rng = np.random.default_rng(0)
    a, b = rng.random((3, 32, 16), np.float32), rng.random((3, 16, 32), np.float32)
    out = np.zeros((4, 32, 32), np.float32)
    kernel = chain[(1,)](a, b, out, kept)
    sums = np.cumsum(a @ b, 0)
    np.testing.assert_allclose(out[0], sums[-1], rtol=1e-4)
    if kept:
        np.testing.assert_allclose(out[1:], sums, rtol=1e-4)
    return kernel.asm["loops"]


def test_a_chain_of_products_has_one_accumulator():
    plan = launched(kept=False)
    assert plan.count("tt.dot") == 3 and "materialize" not in plan


def test_what_others_want_is_not_overwritten():
    launched(kept=True)
