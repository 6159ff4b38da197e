"""Layer normalisation with weight and bias, for float16, bfloat16 and float32 rows.

One program normalises one row. Whatever the storage type, the arithmetic is float32; the variance
is taken about the mean in a second pass over the row, which avoids the cancellation of E[x²] - E[x]².
"""

import torch

import tilewright as triton
import tilewright.language as tl


@triton.jit
def layer_norm_kernel(x_ptr, out_ptr, weight_ptr, bias_ptr, row_stride, n_cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x_ptr += row * row_stride
    out_ptr += row * row_stride
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols

    x = tl.load(x_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / n_cols
    centred = tl.where(mask, x - mean, 0.0)
    variance = tl.sum(centred * centred, axis=0) / n_cols
    rstd = 1 / tl.sqrt(variance + eps)

    weight = tl.load(weight_ptr + cols, mask=mask).to(tl.float32)
    bias = tl.load(bias_ptr + cols, mask=mask).to(tl.float32)
    y = centred * rstd * weight + bias
    tl.store(out_ptr + cols, y.to(out_ptr.dtype.element_ty), mask=mask)


def layer_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    eps: float = 1e-5,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return ``x`` with every row brought to mean 0 and variance 1, then scaled and shifted per column."""
    n_rows, n_cols = x.shape
    out = torch.empty_like(x) if out is None else out
    BLOCK = triton.next_power_of_2(n_cols)
    layer_norm_kernel[(n_rows,)](x, out, weight, bias, x.stride(0), n_cols, eps, BLOCK=BLOCK)
    return out


def main() -> None:
    torch.manual_seed(0)
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float16, 8e-3), (torch.bfloat16, 6e-2)):
        for n_rows, n_cols in ((1151, 1000), (64, 4096)):
            x = (3 * torch.randn(n_rows, n_cols) + 1).to(dtype)
            weight, bias = torch.rand(n_cols).to(dtype), torch.rand(n_cols).to(dtype)
            reference = torch.nn.functional.layer_norm(x.double(), (n_cols,), weight.double(), bias.double(), 1e-5)
            error = (layer_norm(x, weight, bias).double() - reference).abs().max().item()
            print(f"layer norm  {n_rows:>4} x {n_cols:<4}  {dtype!s:<14}  max error {error:.1e}")
            assert error <= tolerance, "layer norm differs from the float64 reference"


if __name__ == "__main__":
    main()
