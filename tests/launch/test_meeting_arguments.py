"""One tensor passed as two arguments of which one is stored: the kernel is compiled for that, once for each pattern."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright import knobs

torch = pytest.importorskip("torch")

N = 2048


@tilewright.jit
def spread(source, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.load(source + N - 1 - i))


@tilewright.jit
def neighbours(left, right, out, n, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i + 1, tl.load(left + i) + tl.load(right + i), i < n)
    tl.store(out, 1.0)


@tilewright.jit
def added(x, y, out, n, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.load(x + i) + tl.load(y + i), i < n)


@tilewright.jit
def total(x, y, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out, tl.sum(tl.load(x + i) * tl.load(y + i)))


@tilewright.jit
def words(x, bits, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(bits + N - 1 - i, tl.load(x + i).to(tl.int32))


@tilewright.jit
def in_tuple(pair, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(pair[1] + i, tl.load(pair[0] + N - 1 - i))


MAKERS = {
    "torch": lambda: torch.arange(N + 1, dtype=torch.float32),
    "numpy": lambda: np.arange(N + 1, dtype=np.float32),
    "parameter": lambda: torch.nn.Parameter(torch.arange(N + 1, dtype=torch.float32), requires_grad=False),
}


@pytest.mark.parametrize("maker", MAKERS)
def test_a_tensor_is_turned_around_onto_itself(maker):
    for _ in range(4):  # Python's way, the generated one, machine code
        x, y = MAKERS[maker](), MAKERS[maker]()
        spread[(1,)](x, y, N=N)
        assert [float(v) for v in y[:N]] == list(range(N - 1, -1, -1))
        assert [float(v) for v in x[:N]] == list(range(N))
        spread[(1,)](x, x, N=N)
        assert [float(v) for v in x[:N]] == list(range(N - 1, -1, -1))


@pytest.mark.parametrize("same", [(0, 1, 2), (0, 1, 0), (0, 1, 1), (0, 0, 1), (0, 0, 0)])
def test_every_pattern_is_right_after_every_other(same):
    for turn in (same, (0, 1, 2), same, (2, 1, 0), same):
        made = [np.random.default_rng(seed).standard_normal(N + 1).astype(np.float32) for seed in range(3)]
        given, wanted = [a.copy() for a in made], [a.copy() for a in made]
        neighbours[(1,)](*(given[n] for n in turn), N, N=N)
        left, right, out = (wanted[n] for n in turn)
        out[1:] = left[:N] + right[:N]
        out[0] = 1.0
        for mine, theirs in zip(given, wanted, strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_a_kernel_is_compiled_once_for_each_pattern():
    kernel = tilewright.jit(added.fn)
    tensors = [torch.ones(N) for _ in range(3)]
    for _ in range(3):
        for turn in [(0, 1, 2), (1, 0, 2), (0, 1, 0), (2, 1, 2), (0, 1, 1), (0, 0, 1), (0, 0, 0)]:
            kernel[(1,)](*(tensors[n] for n in turn), N, N=N)
    patterns = [key[0].same for key in kernel._kernels]
    assert sorted(patterns) == [(), ((1, 0), (2, 0)), ((2, 0),), ((2, 1),)], "loaded twice is no pattern"


def test_what_works_in_place_stays_one_loop():
    kernel, x, y = tilewright.jit(added.fn), torch.ones(N), torch.ones(N)
    kernel[(1,)](x, y, x, N, N=N)
    assert x.unique().tolist() == [2.0]
    assert ["spill" in made.asm["loops"] for made in kernel._kernels.values()] == [False, False]


def test_the_kernel_that_a_launch_gives_takes_any_arguments():
    kernel, x, y, out = tilewright.jit(added.fn), torch.ones(N), torch.ones(N), torch.zeros(N)
    found = kernel[(1,)](x, y, x, N, N=N)
    found[(1, 1, 1)](x, y, out, N, N)
    assert out.unique().tolist() == [3.0]


def test_loads_of_one_tensor_share_a_kernel():
    x, y, out = torch.ones(N), torch.ones(N), torch.zeros(1)
    assert total[(1,)](x, y, out, N=N) is total[(1,)](x, x, out, N=N)


def test_two_element_types_of_one_memory():
    for _ in range(3):
        x = torch.arange(N, dtype=torch.float32)
        words[(1,)](x, x.view(torch.int32), N=N)
        assert x.view(torch.int32).tolist() == list(range(N - 1, -1, -1))


def test_tensors_in_a_tuple():
    for _ in range(3):
        x, y = torch.arange(N), torch.zeros(N, dtype=torch.int64)
        in_tuple[(1,)]((x, y), N=N)
        assert y.tolist() == list(range(N - 1, -1, -1))
        in_tuple[(1,)]((x, x), N=N)
        assert x.tolist() == list(range(N - 1, -1, -1))


def test_tensors_without_elements_are_no_pattern():
    empty, x = torch.zeros(0), torch.ones(N)
    assert added[(1,)](empty, empty, empty, 0, N=N) is added[(1,)](x, torch.ones(N), torch.ones(N), 0, N=N)


def test_who_debugs_is_told(monkeypatch, capsys):
    monkeypatch.setattr(knobs.runtime, "debug", True)
    kernel, x = tilewright.jit(spread.fn), torch.arange(N, dtype=torch.float32)
    for _ in range(3):
        kernel[(1,)](x, x, N=N)
    assert capsys.readouterr().err.count("spread stores to one of several arguments that are one array: `out` is") == 1
