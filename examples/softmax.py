"""Fused softmax: a row is read once, normalised in fast memory, and written once.

Two forms of one kernel: ``softmax_kernel`` gives each row its own program; ``softmax_rows_kernel``
lets a fixed number of programs walk over the rows, so that a program's start-up is paid once.
"""

import torch

import tilewright as triton
import tilewright.language as tl


@triton.jit
def softmax_kernel(out_ptr, in_ptr, in_row_stride, out_row_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(in_ptr + row * in_row_stride + cols, mask=mask, other=-float("inf"))
    x = x - tl.max(x, axis=0)  # the largest exponent becomes 0: exp cannot overflow
    numerator = tl.exp(x)
    denominator = tl.sum(numerator, axis=0)
    tl.store(out_ptr + row * out_row_stride + cols, numerator / denominator, mask=mask)


@triton.jit
def softmax_rows_kernel(out_ptr, in_ptr, in_row_stride, out_row_stride, n_rows, n_cols, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    for row in tl.range(tl.program_id(0), n_rows, tl.num_programs(0)):
        x = tl.load(in_ptr + row * in_row_stride + cols, mask=mask, other=-float("inf"))
        numerator = tl.exp(x - tl.max(x, axis=0))
        denominator = tl.sum(numerator, axis=0)
        tl.store(out_ptr + row * out_row_stride + cols, numerator / denominator, mask=mask)


def softmax(x: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """Return the softmax of every row of the matrix ``x`` (unit stride along the rows)."""
    n_rows, n_cols = x.shape
    out = torch.empty_like(x) if out is None else out
    BLOCK = triton.next_power_of_2(n_cols)
    softmax_kernel[(n_rows,)](out, x, x.stride(0), out.stride(0), n_cols, BLOCK=BLOCK)
    return out


def softmax_rows(x: torch.Tensor, out: torch.Tensor | None = None, programs: int = 64) -> torch.Tensor:
    """Return the same with at most ``programs`` programs, each looping over its share of the rows."""
    n_rows, n_cols = x.shape
    out = torch.empty_like(x) if out is None else out
    BLOCK = triton.next_power_of_2(n_cols)
    grid = (min(programs, n_rows),)
    softmax_rows_kernel[grid](out, x, x.stride(0), out.stride(0), n_rows, n_cols, BLOCK=BLOCK)
    return out


def main() -> None:
    torch.manual_seed(0)
    for n_rows, n_cols in ((1, 1), (1823, 781), (256, 1024), (64, 4096)):
        x = torch.randn(n_rows, n_cols)
        reference = torch.softmax(x.double(), dim=1)
        for function in (softmax, softmax_rows):
            error = (function(x).double() - reference).abs().max().item()
            print(f"{function.__name__:<12}  {n_rows:>4} x {n_cols:<4}  max error {error:.1e}")
            assert error <= 1e-6, "softmax differs from the float64 reference"


if __name__ == "__main__":
    main()
