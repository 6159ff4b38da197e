"""Gradients of tensors with dimensions of one element, which subscripts broadcast."""

from __future__ import annotations

import pytest
import torch

from tests.hl.gradients.texts import kernel_of
from tilewright import hl

HEADER = "import torch\nfrom tilewright import hl\n"
VECTOR = """
@hl.kernel
def kernel(x, u):
    one = u[:{count}]
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        out[rows] = x[rows] * one[{index}]
    return out
"""
MATRIX = """
@hl.kernel
def kernel(x, u):
    out = torch.empty_like(x)
    for rows, columns in hl.tile(x.shape):
        out[rows, columns] = x[rows, columns] * torch.sin(u[{index}])
    return out
"""
PRODUCT = """
@hl.kernel
def kernel(x, u):
    out = x.new_empty([x.size(0), x.size(0)])
    for rows, columns in hl.tile([x.size(0), x.size(0)]):
        acc = hl.zeros([rows, columns], dtype=x.dtype)
        for k in hl.tile(x.size(1)):
            acc = acc + (x[rows, k] * u[rows, k]) @ x[columns, k].T
        out[rows, columns] = acc
    return out
"""


def made(text: str, **names) -> hl.Kernel:
    return kernel_of(HEADER + text.format(**names))


def same(kernel: hl.Kernel, *args: torch.Tensor) -> None:
    """The gradients are those of the tiled reference."""
    mine, theirs = ([arg.detach().clone().requires_grad_() for arg in args] for _ in range(2))
    out = kernel(*mine)
    up = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(0))
    found = torch.autograd.grad(out, mine, up)
    reference = kernel.bind(tuple(theirs)).run_ref(*theirs, mode=hl.RefMode.TILED, gradients=True)
    torch.testing.assert_close(out, reference)
    torch.testing.assert_close(found, torch.autograd.grad(reference, theirs, up))


@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize(
    "index", ["rows", "rows.index", "rows.index - 1", "rows.index + 3", "rows.index // 2", "rows.begin", "0", ":1"]
)
def test_vectors(count, index):
    same(made(VECTOR, count=count, index=index), torch.randn(5).double(), torch.randn(5).double())


@pytest.mark.parametrize("shape", [(1, 40), (37, 1), (1, 1), (37, 40)])
@pytest.mark.parametrize("index", ["rows, columns", "rows.index, columns", "rows, columns.index - 1"])
def test_matrices(shape, index):
    same(made(MATRIX, index=index), torch.randn(37, 40).double(), torch.randn(shape).double())


@pytest.mark.parametrize("shape", [(1, 40), (37, 1), (1, 1)])
def test_in_inner_loops(shape):
    same(made(PRODUCT), torch.randn(37, 40).double(), torch.randn(shape).double())


def test_a_mask_over_one_element_is_refused():
    @hl.kernel
    def kernel(x, u):
        out = torch.empty_like(x)
        for rows in hl.tile(x.size(0)):
            out[rows] = x[rows] * hl.load(u, [rows], extra_mask=rows.index > 1)
        return out

    with pytest.raises(hl.exc.NotDifferentiable, match="subscript that dimension with 0, and expand"):
        kernel(torch.randn(5, requires_grad=True), torch.randn(1, requires_grad=True))


MOVED = """
@hl.kernel
def kernel(x, u):
    out = torch.empty_like(x)
    for rows, columns in hl.tile(x.shape):
        out[rows, columns] = x[rows - 1, columns] * u[rows, columns]
    return out
"""


@pytest.mark.parametrize("count", [1, 4])
def test_a_tile_that_is_moved_does_not_broadcast(count):
    x, u = torch.randn(count, 3, requires_grad=True), torch.randn(count, 3, requires_grad=True)
    before = torch.cat([torch.zeros(1, 3), x[:-1]])
    for one, other in zip(
        torch.autograd.grad(kernel_of(HEADER + MOVED)(x, u).sum(), (x, u)),
        torch.autograd.grad((before * u).sum(), (x, u)),
        strict=True,
    ):
        torch.testing.assert_close(one, other)
