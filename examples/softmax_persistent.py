"""Softmax with as many programs as the machine runs at once, each walking over its share of the rows.

The kernel is compiled first, without a launch (``warmup``), to ask how much of the device one program
takes; from that and from the properties of the device follows how many programs fill it. On a CPU a
program takes one thread, on a GPU it takes registers and shared memory of a multiprocessor.
"""

import torch

import tilewright as triton
import tilewright.language as tl


@triton.jit
def softmax_kernel(
    out_ptr, in_ptr, in_row_stride, out_row_stride, n_rows, n_cols, BLOCK: tl.constexpr, num_stages: tl.constexpr
):
    first, step = tl.program_id(0), tl.num_programs(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    for row in tl.range(first, n_rows, step, num_stages=num_stages):
        x = tl.load(in_ptr + row * in_row_stride + cols, mask=mask, other=-float("inf"))
        numerator = tl.exp(x - tl.max(x, axis=0))
        tl.store(out_ptr + row * out_row_stride + cols, numerator / tl.sum(numerator, axis=0), mask=mask)


def programs_at_once(kernel, num_warps: int) -> int:
    """How many programs of a compiled kernel the device holds."""
    driver = triton.runtime.driver.active
    properties = driver.utils.get_device_properties(driver.get_current_device())
    per_multiprocessor = 1
    if kernel.n_regs:  # threads of a GPU share the registers
        per_multiprocessor = properties["max_num_regs"] // (kernel.n_regs * properties["warpSize"] * num_warps)
    if kernel.metadata.shared:
        per_multiprocessor = min(per_multiprocessor, properties["max_shared_mem"] // kernel.metadata.shared)
    return properties["multiprocessor_count"] * max(1, per_multiprocessor)


def softmax(x: torch.Tensor, num_warps: int = 8, num_stages: int = 2) -> torch.Tensor:
    """Return the softmax of every row of the matrix ``x`` (unit stride along the rows)."""
    n_rows, n_cols = x.shape
    out = torch.empty_like(x)
    BLOCK = triton.next_power_of_2(n_cols)
    args = (out, x, x.stride(0), out.stride(0), n_rows, n_cols, BLOCK, num_stages)
    kernel = softmax_kernel.warmup(*args, num_warps=num_warps, grid=(1,))
    if kernel is None:  # interpreter mode compiles nothing
        softmax_kernel[(n_rows,)](*args)
        return out
    kernel[(min(programs_at_once(kernel, num_warps), n_rows), 1, 1)](*args)
    return out


def main() -> None:
    torch.manual_seed(0)
    for n_rows, n_cols in ((1, 1), (1823, 781), (256, 1024)):
        x = torch.randn(n_rows, n_cols)
        error = (softmax(x).double() - torch.softmax(x.double(), dim=1)).abs().max().item()
        print(f"softmax  {n_rows:>4} x {n_cols:<4}  max error {error:.1e}")
        assert error <= 1e-6, "softmax differs from the float64 reference"


if __name__ == "__main__":
    main()
