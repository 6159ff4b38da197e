"""Vector addition: the smallest useful tile kernel.

Each program adds one block of ``BLOCK`` neighbouring elements. The mask keeps the last
program from touching memory behind the end of the vectors.
"""

import torch

import tilewright as triton
import tilewright.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n_elements, BLOCK: tl.constexpr):
    pid = tl.program_id(axis=0)
    offsets = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


def add(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor | None = None, BLOCK: int = 1024) -> torch.Tensor:
    """Return ``x + y`` for two contiguous tensors of one shape; ``out`` receives the result when given."""
    out = torch.empty_like(x) if out is None else out
    n_elements = out.numel()
    grid = (triton.cdiv(n_elements, BLOCK),)
    add_kernel[grid](x, y, out, n_elements, BLOCK=BLOCK)
    return out


def main() -> None:
    torch.manual_seed(0)
    for n in (1, 1000, 98_432, 1 << 20):
        x, y = torch.rand(n), torch.rand(n)
        error = (add(x, y).double() - (x.double() + y.double())).abs().max().item()
        print(f"vector add  n = {n:>8}  max error {error:.1e}")
        assert error <= 1e-7, "vector add differs from the float64 reference"


if __name__ == "__main__":
    main()
