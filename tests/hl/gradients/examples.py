"""The kernels of `examples/hl`, what PyTorch computes in their place, and arguments of any size for both."""

from __future__ import annotations

import functools
import linecache
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from types import ModuleType
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from tests.hl.example_calls import FOLDER
from tilewright import hl

NAMES = tuple("attention delta dropout elementwise gather grouped int4 jagged matmul norms segments softmax".split())
WITHOUT = {"int4.matmul_int4", "norms.layer_norm_backward", "norms.rms_norm_backward", "dropout.dropout_backward"}
"""Backward kernels written by hand, and integers: nobody wants their gradient."""


class Sizes(NamedTuple):
    """Rows, columns, and a third size: of an inner loop, of a batch, or how many parts there are."""

    m: int
    n: int
    k: int


class Example(NamedTuple):
    """What PyTorch computes in the place of a kernel, and how arguments for both are made."""

    reference: Callable[..., Any]
    make: Callable[[Draw, Sizes], tuple[Any, ...]]


class Draw:
    """Random arguments.

    Args:
        dtype: of floating-point tensors.
        seed: of the generator.
    """

    def __init__(self, dtype: torch.dtype = torch.float64, seed: int = 0) -> None:
        self.dtype, self.generator = dtype, torch.Generator("cpu").manual_seed(seed)

    def __call__(self, *shape: int) -> torch.Tensor:
        """Normal numbers."""
        return torch.randn(*shape, generator=self.generator, dtype=torch.float64, device="cpu").to(self.dtype)

    def below(self, end: int, count: int) -> torch.Tensor:
        """Integers."""
        return torch.randint(max(end, 1), (count,), generator=self.generator, device="cpu")

    def parts(self, count: int, longest: int) -> torch.Tensor:
        """Where `count` parts of random lengths begin, and where the last one ends."""
        return _ends(self.below(longest, count))


def kernel(name: str, wide: bool = False) -> hl.Kernel:
    """A kernel of `examples/hl`.

    Args:
        name: its file and function, "softmax.softmax".
        wide: with float64 wherever the file has float32.
    """
    file, function = name.split(".")
    found = getattr(module(file, wide), function)
    assert isinstance(found, hl.Kernel)
    return found


@functools.cache
def module(file: str, wide: bool = False) -> ModuleType:
    """A file of `examples/hl`; `wide`: with float64 wherever it has float32."""
    path = FOLDER / f"{file}.py"
    text = path.read_text()
    if wide:
        text = text.replace("torch.float32", "torch.float64")
    name = f"<{file} in float64>" if wide else str(path)
    linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
    made = ModuleType(f"gradients_of_{file}{'_wide' * wide}")
    sys.modules[made.__name__] = made
    with _beside(FOLDER):
        exec(compile(text, name, "exec"), vars(made))
    return made


@contextmanager
def _beside(folder: Any) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _ends(lengths: torch.Tensor) -> torch.Tensor:
    return torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])


# --- references -----------------------------------------------------------------------------------------------------


def rows(function: Callable[[Any], Any]) -> Callable[..., list[Any]]:
    """A reference that applies a function to the rows of each part."""
    return lambda x, offsets, *rest: [function(x[a:b]) for a, b in pairwise(offsets.tolist())]


def attend(q: Any, k: Any, v: Any, causal: bool) -> Any:
    """Attention; causal keys that are later than their query are not seen."""
    scores = q @ k.transpose(-1, -2) / q.size(-1) ** 0.5
    if causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
        scores = torch.where(seen, scores, float("-inf"))
    return scores.softmax(-1) @ v


def products(x: Any, w: Any, offsets: Any) -> Any:
    """Rows of each part by a matrix of its own."""
    return torch.cat([x[a:b] @ one for (a, b), one in zip(pairwise(offsets.tolist()), w, strict=True)])


def _norm(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, *rest: function(x, [x.size(-1)], *rest)


def _dropout(x: Any, p: float, seed: int) -> Any:
    return kernel("dropout.dropout_backward")(torch.ones_like(x).detach(), p, seed) * x


def _experts(x: Any, w: Any, order: Any, ends: Any) -> Any:
    choice = torch.empty_like(order)
    choice[order] = torch.repeat_interleave(torch.arange(len(w), device=x.device), ends.diff())
    return torch.einsum("rk,rkn->rn", x, w[choice])


def _mixture(r: Draw, s: Sizes) -> tuple[Any, ...]:
    choice = r.below(4, s.m)
    return r(s.m, s.k), r(4, s.k, s.n), choice.argsort(), _ends(choice.bincount(minlength=4))


def _jagged(r: Draw, s: Sizes) -> tuple[Any, Any]:
    offsets = r.parts(s.k, s.m)
    return r(int(offsets[-1]), s.n), offsets


def _to_dense(r: Draw, s: Sizes) -> tuple[Any, ...]:
    x, offsets = _jagged(r, s)
    return r(x.size(0)), offsets, max(offsets.diff().tolist(), default=0)


def _grouped(r: Draw, s: Sizes) -> tuple[Any, ...]:
    choice = r.below(3, s.m)  # the last group is empty
    return r(s.m, s.k), r(4, s.k, s.n), _ends(choice.bincount(minlength=4))


def _delta(r: Draw, s: Sizes) -> tuple[Any, ...]:
    steps = 32 if s.m else 0
    keys = F.normalize(r(2, steps, s.k), dim=-1)
    return r(2, steps, s.k), keys, r(2, steps, s.n), r(2, steps).sigmoid(), r(2, steps).sigmoid()


EXAMPLES: dict[str, Example] = {
    "elementwise.add": Example(torch.add, lambda r, s: (r(s.m * s.n), r(s.m * s.n))),
    "elementwise.bias_gelu": Example(lambda x, b: F.gelu(x + b), lambda r, s: (r(s.m, s.n), r(s.n))),
    "elementwise.geglu": Example(
        lambda x, y: F.gelu(x, approximate="tanh") * y, lambda r, s: (r(s.m, s.n), r(s.m, s.n))
    ),
    "softmax.softmax": Example(lambda x: x.softmax(-1), lambda r, s: (r(s.m, s.n),)),
    "softmax.softmax_by_hand": Example(lambda x: x.softmax(-1), lambda r, s: (r(s.m, s.n),)),
    "softmax.softmax_online": Example(lambda x: x.softmax(-1), lambda r, s: (r(s.m, s.n),)),
    "norms.layer_norm": Example(_norm(F.layer_norm), lambda r, s: (r(s.m, s.n), r(s.n), r(s.n), 1e-5)),
    "norms.rms_norm": Example(_norm(F.rms_norm), lambda r, s: (r(s.m, s.n), r(s.n), 1e-5)),
    "gather.cross_entropy": Example(F.cross_entropy, lambda r, s: (r(s.m, s.n), r.below(s.n, s.m))),
    "gather.embedding": Example(lambda table, at: F.embedding(at, table), lambda r, s: (r(9, s.n), r.below(9, s.m))),
    "gather.rope": Example(
        lambda *a: module("gather").rope_reference(*a), lambda r, s: (r(s.k, s.m, 2 * s.n), r(s.m, s.n), r(s.m, s.n))
    ),
    "dropout.dropout": Example(_dropout, lambda r, s: (r(s.m * s.n), 0.3, 17)),
    "matmul.matmul": Example(
        lambda x, y, epilogue: torch.relu(x @ y), lambda r, s: (r(s.m, s.k), r(s.k, s.n), torch.relu)
    ),
    "matmul.bmm": Example(torch.bmm, lambda r, s: (r(3, s.m, s.k), r(3, s.k, s.n))),
    "matmul.matmul_in_two_stages": Example(lambda x, y, parts: x @ y, lambda r, s: (r(s.m, s.k), r(s.k, s.n), 3)),
    "matmul.matmul_split_k": Example(torch.mm, lambda r, s: (r(s.m, s.k), r(s.k, s.n))),
    "attention.attention": Example(
        attend, lambda r, s: (r(1, 2, s.m, s.k), r(1, 2, s.m, s.k), r(1, 2, s.m, s.k), True)
    ),
    "segments.segment_sum": Example(
        lambda x, segments, count: x.new_zeros(count, x.size(1)).index_add_(0, segments, x),
        lambda r, s: (r(s.m, s.n), r.below(12, s.m).sort()[0], 12),
    ),
    "jagged.jagged_sum": Example(lambda *a: torch.stack(rows(lambda p: p.sum(0))(*a)), _jagged),
    "jagged.jagged_mean": Example(lambda *a: torch.stack(rows(lambda p: p.sum(0) / max(len(p), 1))(*a)), _jagged),
    "jagged.jagged_softmax": Example(lambda *a: torch.cat(rows(lambda p: p.softmax(0))(*a)), _jagged),
    "jagged.to_dense": Example(
        lambda x, offsets, n: torch.stack(rows(lambda p: F.pad(p, (0, n - len(p))))(x, offsets)), _to_dense
    ),
    "jagged.jagged_dense": Example(
        lambda x, offsets, w: products(x, w, offsets), lambda r, s: (*_jagged(r, s), r(s.k, s.n, 5))
    ),
    "delta.delta_rule": Example(lambda *a: module("delta").reference(*a), _delta),
    "grouped.grouped_matmul": Example(products, _grouped),
    "grouped.mixture": Example(_experts, _mixture),
}


def full_attention(r: Draw, s: Sizes) -> tuple[Any, ...]:
    """Arguments of attention in which all keys are seen, and there are other numbers of them than of queries."""
    return r(1, 2, s.m, s.k), r(1, 2, s.n, s.k), r(1, 2, s.n, s.k), False


CASES: dict[str, tuple[str, Example]] = {
    **{name: (name, example) for name, example in EXAMPLES.items()},
    "attention.full": ("attention.attention", Example(attend, full_attention)),
}
"""By name of a test: the kernel, and the rest."""
ORDERED = {
    "elementwise.add",
    "elementwise.bias_gelu",
    "elementwise.geglu",
    "softmax.softmax",
    "softmax.softmax_by_hand",
    "softmax.softmax_online",
    "norms.layer_norm",
    "norms.rms_norm",
    "gather.rope",
    "matmul.matmul",
    "matmul.bmm",
    "attention.attention",
    "attention.full",
}
"""Those in whose backward passes nothing is summed atomically."""
