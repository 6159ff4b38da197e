"""Low-memory dropout: the mask is never stored, it is drawn again from its seed when needed.

``tl.rand`` is a counter-based generator: the number for an element depends on the seed and on the
element's index alone, so a backward pass rebuilds the forward mask from one integer.
"""

import torch

import tilewright as triton
import tilewright.language as tl


@triton.jit
def dropout_kernel(x_ptr, out_ptr, n_elements, p, seed, BLOCK: tl.constexpr):
    pid = tl.program_id(axis=0)
    offsets = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    keep = tl.rand(seed, offsets) > p
    # what is kept is scaled up, so that the expected value of every element stays the same
    tl.store(out_ptr + offsets, tl.where(keep, x / (1 - p), 0.0), mask=mask)


def dropout(x: torch.Tensor, p: float, seed: int, out: torch.Tensor | None = None, BLOCK: int = 1024) -> torch.Tensor:
    """Return ``x`` with each element zeroed with probability ``p`` (0 <= p < 1) and the others divided by ``1 - p``."""
    out = torch.empty_like(x) if out is None else out
    n_elements = x.numel()
    grid = (triton.cdiv(n_elements, BLOCK),)
    dropout_kernel[grid](x, out, n_elements, p, seed, BLOCK=BLOCK)
    return out


def main() -> None:
    torch.manual_seed(0)
    n, p = 1_000_003, 0.3
    x = torch.randn(n)
    y = dropout(x, p, seed=123)
    kept = y != 0
    error = (y.double() - torch.where(kept, x.double() / (1 - p), 0.0)).abs().max().item()
    rate = 1 - kept.double().mean().item()
    print(f"dropout  n = {n}  dropped {rate:.4f} (asked {p})  max error of the kept {error:.1e}")
    assert error <= 1e-6, "kept elements are not x / (1 - p)"
    assert abs(rate - p) < 5 * (p * (1 - p) / n) ** 0.5, "the share of dropped elements is off"
    assert torch.equal(y, dropout(x, p, seed=123)), "one seed must give one mask"
    assert not torch.equal(y, dropout(x, p, seed=124)), "another seed must give another mask"


if __name__ == "__main__":
    main()
