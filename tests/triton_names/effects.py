"""What torch takes the effects of a user's kernels for, when integers among the arguments decide what is stored.

python -m tilewright.as_triton -m tests.triton_names.effects
"""

from __future__ import annotations

import logging
from typing import Any

import torch
import triton
import triton.language as tl
from torch._higher_order_ops.triton_kernel_wrap import identify_accessed_tensors


@triton.jit
def one_of_two(x, y, out, n, which, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    if which == 1:
        tl.store(x + i, 1.0, i < n)
    else:
        tl.store(out + i, tl.load(y + i, i < n), i < n)


@triton.jit
def sized(x, out, n, block):
    tl.static_assert(block >= 16)
    i = tl.arange(0, block)
    tl.store(out + i, tl.load(x + i, i < n), i < n)


@triton.jit
def repeated(x, out, times, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    for k in range(times):
        tl.store(out + i, tl.load(x + i) + k)


@triton.jit
def nothing(x, n):
    tl.arange(0, 4)


@triton.jit(do_not_specialize=["which"])
def unspecialised(x, out, which, BLOCK: tl.constexpr):
    tl.store((x if which == 1 else out) + tl.arange(0, BLOCK), 1.0)


@triton.jit
def narrow(x, out, which: tl.int8, BLOCK: tl.constexpr):
    if which == 1:
        tl.store(x + tl.arange(0, BLOCK), 1.0)
    else:
        tl.store(out + tl.arange(0, BLOCK), 1.0)


@triton.jit
def past(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    if n > 100:
        tl.store(x + i, 5.0)
    tl.store(out + i, tl.load(x + i))


SYMBOL = 2
"""What torch puts in the place of a symbolic size: then every value must count."""

CASES: list[tuple[Any, dict[str, Any], str, str]] = [
    (one_of_two, {"n": 300, "which": 1, "BLOCK": 16}, "x", ""),
    (one_of_two, {"n": 300, "which": 0, "BLOCK": 16}, "out", "y"),
    (one_of_two, {"n": 300, "which": SYMBOL, "BLOCK": 16}, "out x", "y"),
    (sized, {"n": 20, "block": 32}, "out", "x"),
    (repeated, {"times": 0, "BLOCK": 16}, "", ""),
    (repeated, {"times": 1, "BLOCK": 16}, "out", "x"),
    (repeated, {"times": SYMBOL, "BLOCK": 16}, "out", "x"),
    (nothing, {"n": 3}, "", ""),
    (unspecialised, {"which": 5, "BLOCK": 16}, "out x", ""),
    (narrow, {"which": 1, "BLOCK": 16}, "x", ""),
    (narrow, {"which": 7, "BLOCK": 16}, "out", ""),
]


def by_size(x: torch.Tensor) -> torch.Tensor:
    """Changes what it is given, from a hundred elements on."""
    out = torch.empty(16)
    past[(1,)](x, out, x.numel(), 16)
    return out + x.sum()


def main() -> None:
    """Ask for all, then run compiled code whose size grows."""
    logger, problems = logging.getLogger("torch._higher_order_ops.triton_kernel_wrap"), []
    handler = logging.Handler()
    handler.emit = lambda record: problems.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    for kernel, numbers, writes, reads in CASES:
        tensors = {name: torch.ones(300) for name in kernel.arg_names if name in ("x", "y", "out")}
        found = identify_accessed_tensors(kernel, {**tensors, **numbers}, {}).read_writes
        told = " ".join(sorted(dep.name for dep in found.writes)), " ".join(sorted(dep.name for dep in found.reads))
        assert told == (writes, reads), (kernel.fn.__name__, numbers, told)
    assert not problems, problems
    compiled = torch.compile(by_size, backend="aot_eager", fullgraph=True, dynamic=True)
    for size in (50, 99, 101, 200):
        x, y = torch.ones(size), torch.ones(size)
        torch.testing.assert_close(compiled(x), by_size(y))
        assert torch.equal(x, y), size
    print("right")


if __name__ == "__main__":
    main()
