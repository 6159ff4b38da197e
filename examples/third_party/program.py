"""A program that uses a library of Triton kernels, on the CPU and on each kind of device that is there.

    python -m tilewright.as_triton examples/third_party/program.py

The library is liger-kernel where it is installed (`pip install --no-deps liger-kernel`), else `silu_product.py` beside
this file. Neither it nor this program is changed for Tilewright or for a CPU: with a real Triton and a GPU the same
file runs without the switch.
"""

import importlib.util

import torch

if importlib.util.find_spec("liger_kernel"):
    from liger_kernel.ops.swiglu import LigerSiLUMulFunction as Function
else:
    from silu_product import SiluProduct as Function


def outcome(fn, a, b, weight):
    """The result, and both gradients of its weighted sum."""
    out = fn(a, b)
    return (out, *torch.autograd.grad((out * weight).sum(), (a, b)))


def error(device: str) -> float:
    """Largest difference of result and gradients from PyTorch's in float64, over the largest value."""
    torch.manual_seed(0)
    a, b = (torch.randn(300, 1000, device=device, requires_grad=True) for _ in range(2))
    weight = torch.randn(300, 1000, device=device)
    expected = outcome(lambda a, b: torch.nn.functional.silu(a) * b, a.double(), b.double(), weight)
    found = outcome(Function.apply, a, b, weight)  # last: liger-kernel's gradients take the place of its inputs
    return max(((x - y).abs().max() / y.abs().max()).item() for x, y in zip(found, expected))


def main() -> None:
    name = Function.__module__.split(".")[0]
    for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
        worst = error(device)
        print(f"{name} on {device}, forward and backward: max error {worst:.1e}")
        assert worst <= 1e-5, "the library's results differ from PyTorch's"


if __name__ == "__main__":
    main()
