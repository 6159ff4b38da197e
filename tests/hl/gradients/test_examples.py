"""Every kernel of `examples/hl`: differentiated and equal to autograd of eager PyTorch."""

from __future__ import annotations

import importlib
import sys
from itertools import pairwise
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.hl.example_calls import FOLDER
from tests.hl.gradients.compare import check
from tilewright import hl

sys.path.insert(0, str(FOLDER))
NAMES = (
    "attention",
    "delta",
    "dropout",
    "elementwise",
    "gather",
    "grouped",
    "int4",
    "jagged",
    "matmul",
    "norms",
    "segments",
)
FILES = {name: importlib.import_module(name) for name in (*NAMES, "softmax")}
sys.path.remove(str(FOLDER))

torch.manual_seed(0)
WIDE = {"dtype": torch.float64}
LENGTHS = torch.randint(0, 20, (9,))
OFFSETS = torch.cat([torch.zeros(1, dtype=torch.int64), LENGTHS.cumsum(0)])
GROUPS = torch.tensor([0, 20, 20, 45, 60])
CHOICE = torch.randint(0, 4, (60,))
ENDS = torch.cat([torch.zeros(1, dtype=torch.int64), CHOICE.bincount(minlength=4).cumsum(0)])


def rows(function):
    """A reference that applies a function to the rows of each part."""
    return lambda x, offsets, *rest: [function(x[a:b]) for a, b in pairwise(offsets.tolist())]


def random(*shape, **kind):
    return torch.randn(*shape, **kind)


def attend(q, k, v, causal):
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def products(x, w, offsets):
    return torch.cat([x[a:b] @ one for (a, b), one in zip(pairwise(offsets.tolist()), w, strict=True)])


QKV = tuple(random(1, 2, 70, 16) for _ in range(3))
RIGHT: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "elementwise.add": (torch.add, (random(103, **WIDE), random(103, **WIDE))),
    "elementwise.bias_gelu": (lambda x, b: F.gelu(x + b), (random(37, 70, **WIDE), random(70, **WIDE))),
    "elementwise.geglu": (
        lambda x, y: F.gelu(x, approximate="tanh") * y,
        (random(37, 70, **WIDE), random(37, 70, **WIDE)),
    ),
    "softmax.softmax": (lambda x: x.softmax(-1), (random(37, 70, **WIDE),)),
    "softmax.softmax_by_hand": (lambda x: x.softmax(-1), (random(37, 70, **WIDE),)),
    "softmax.softmax_online": (lambda x: x.softmax(-1), (random(37, 300),)),
    "norms.layer_norm": (
        lambda x, w, b, eps: F.layer_norm(x, [70], w, b, eps),
        (random(103, 70, **WIDE), random(70, **WIDE), random(70, **WIDE), 1e-5),
    ),
    "norms.rms_norm": (
        lambda x, w, eps: F.rms_norm(x, [70], w, eps),
        (random(103, 70, **WIDE), random(70, **WIDE), 1e-5),
    ),
    "gather.cross_entropy": (F.cross_entropy, (random(37, 50), torch.randint(50, (37,)))),
    "gather.embedding": (lambda table, at: F.embedding(at, table), (random(20, 50), torch.randint(20, (37,)))),
    "gather.rope": (FILES["gather"].rope_reference, (random(3, 20, 32), random(20, 16), random(20, 16))),
    "dropout.dropout": (
        lambda x, p, seed: FILES["dropout"].dropout_backward(torch.ones_like(x), p, seed).detach() * x,
        (random(1003), 0.3, 17),
    ),
    "matmul.matmul": (lambda x, y, epilogue: torch.relu(x @ y), (random(50, 70), random(70, 90), torch.relu)),
    "matmul.bmm": (torch.bmm, (random(3, 50, 70), random(3, 70, 33))),
    "matmul.matmul_in_two_stages": (lambda x, y, parts: x @ y, (random(50, 70), random(70, 40), 3)),
    "matmul.matmul_split_k": (torch.mm, (random(50, 70), random(70, 40))),
    "attention.attention": (attend, (*QKV, True)),
    "segments.segment_sum": (
        lambda x, segments, count: torch.zeros(count, 50).index_add_(0, segments, x),
        (random(100, 50), torch.randint(0, 40, (100,)).sort()[0], 40),
    ),
    "jagged.jagged_sum": (
        lambda *a: torch.stack(rows(lambda p: p.sum(0))(*a)),
        (random(int(OFFSETS[-1]), 48), OFFSETS),
    ),
    "jagged.jagged_mean": (
        lambda *a: torch.stack(rows(lambda p: p.sum(0) / max(len(p), 1))(*a)),
        (random(int(OFFSETS[-1]), 48), OFFSETS),
    ),
    "jagged.jagged_softmax": (
        lambda *a: torch.cat(rows(lambda p: p.softmax(0))(*a)),
        (random(int(OFFSETS[-1]), 48), OFFSETS),
    ),
    "jagged.to_dense": (
        lambda x, offsets, n: torch.stack(rows(lambda p: F.pad(p, (0, n - len(p))))(x, offsets)),
        (random(int(OFFSETS[-1])), OFFSETS, int(LENGTHS.max())),
    ),
    "jagged.jagged_dense": (
        lambda x, offsets, w: products(x, w, offsets),
        (random(int(OFFSETS[-1]), 48), OFFSETS, random(9, 48, 40)),
    ),
    "delta.delta_rule": (
        FILES["delta"].reference,
        (random(2, 48, 16), F.normalize(random(2, 48, 16), dim=-1), random(2, 48, 24), *torch.rand(2, 2, 48)),
    ),
    "grouped.grouped_matmul": (products, (random(60, 40), random(4, 40, 50), GROUPS)),
    "grouped.mixture": (
        lambda x, w, order, ends: torch.einsum("rk,rkn->rn", x, w[CHOICE]),
        (random(60, 40), random(4, 40, 50), CHOICE.argsort(), ENDS),
    ),
}
WITHOUT = {"int4.matmul_int4", "norms.layer_norm_backward", "norms.rms_norm_backward", "dropout.dropout_backward"}
"""Backward kernels written by hand, and integers: nobody wants their gradient."""


@pytest.mark.parametrize("name", RIGHT)
def test_gradients_are_those_of_eager_pytorch(name):
    file, kernel = name.split(".")
    reference, args = RIGHT[name]
    check(getattr(FILES[file], kernel), reference, *args)


def test_full_attention():
    check(FILES["attention"].attention, attend, *QKV, False)


def test_every_kernel_is_in_one_of_the_tables():
    kernels = {
        f"{name}.{key}"
        for name, file in FILES.items()
        for key, value in vars(file).items()
        if isinstance(value, hl.Kernel) and value.fn.__module__ == file.__name__
    }
    assert kernels == RIGHT.keys() | WITHOUT


ORDERED = (
    "add bias_gelu geglu softmax softmax_by_hand softmax_online layer_norm rms_norm rope matmul bmm attention".split()
)


@pytest.mark.parametrize("name", [name for name in RIGHT if name.split(".")[1] in ORDERED])
def test_no_atomics_where_programs_can_own_elements(name):
    file, kernel = name.split(".")
    plans = hl.grad(getattr(FILES[file], kernel)).plan(RIGHT[name][1])
    assert {owner.form for plan in plans for owner in plan.owners} <= {"store", "add", "partial"}
