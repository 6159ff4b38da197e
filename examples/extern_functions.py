"""Functions of the device's mathematical library: ``libdevice`` beside ``tl``.

``tl`` has the functions that every kernel uses. The longer list (arc sine, Bessel functions, rounding modes, ...) is in
``libdevice``: each name takes exactly the types it is declared for, so a float16 value is cast by hand.
"""

import torch

import tilewright as triton
import tilewright.language as tl
from tilewright.language.extra import libdevice


@triton.jit
def asin_kernel(x_ptr, out_ptr, n_elements, BLOCK: tl.constexpr):
    offsets = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, libdevice.asin(x), mask=mask)


def asin(x: torch.Tensor, BLOCK: int = 1024) -> torch.Tensor:
    """Return the arc sine of every element of a contiguous float32 or float64 tensor."""
    out = torch.empty_like(x)
    n_elements = x.numel()
    asin_kernel[(triton.cdiv(n_elements, BLOCK),)](x, out, n_elements, BLOCK=BLOCK)
    return out


def main() -> None:
    torch.manual_seed(0)
    for dtype, tolerance in ((torch.float32, 3e-7), (torch.float64, 1e-15)):
        x = 2 * torch.rand(98_432, dtype=dtype) - 1
        error = (asin(x).double() - torch.asin(x.double())).abs().max().item()
        print(f"arc sine  n = {x.numel()}  {dtype!s:<13}  max error {error:.1e}")
        assert error <= tolerance, "arc sine differs from the float64 reference"


if __name__ == "__main__":
    main()
