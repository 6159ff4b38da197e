"""Vector addition that finds its own block size, and a report of how fast it is.

``autotune`` times the candidate blocks once for every new length and remembers the fastest;
``perf_report`` runs a function over a range of lengths and prints one column per provider.
"""

import torch

import tilewright as triton
import tilewright.language as tl


@triton.autotune(configs=[triton.Config({"BLOCK": block}) for block in (256, 1024, 4096)], key=["n_elements"], rep=5)
@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n_elements, BLOCK: tl.constexpr):
    offsets = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


def add(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """Return ``x + y`` for two contiguous tensors of one shape; ``out`` receives the result when given."""
    out = torch.empty_like(x) if out is None else out
    n_elements = out.numel()
    # BLOCK is not known here: the grid is a function of the configuration that the autotuner tries
    add_kernel[lambda meta: (triton.cdiv(n_elements, meta["BLOCK"]),)](x, y, out, n_elements)
    return out


@triton.testing.perf_report(
    triton.testing.Benchmark(
        x_names=["n"],
        x_vals=[2**exponent for exponent in range(10, 19, 4)],
        x_log=True,
        line_arg="provider",
        line_vals=["tilewright", "torch"],
        line_names=["Tilewright", "Torch"],
        styles=[("tab:blue", "-"), ("tab:green", "-")],
        ylabel="GB/s",
        plot_name="vector-add",
        args={},
    )
)
def bandwidth(n: int, provider: str, rep: float = 2.0):
    """GB/s of one provider: the middle, the lower and the upper quantile."""
    x, y = torch.rand(n), torch.rand(n)
    out = torch.empty_like(x)
    run = {"tilewright": lambda: add(x, y, out), "torch": lambda: torch.add(x, y, out=out)}[provider]
    times = triton.testing.do_bench(run, warmup=rep, rep=rep, quantiles=[0.5, 0.8, 0.2])
    return tuple(3 * x.numel() * x.element_size() / ms * 1e-6 for ms in times)


def main() -> None:
    torch.manual_seed(0)
    for n in (1, 98_432, 1 << 18):
        x, y = torch.rand(n), torch.rand(n)
        error = (add(x, y).double() - (x.double() + y.double())).abs().max().item()
        block = add_kernel.best_config.kwargs["BLOCK"]
        print(f"vector add  n = {n:>8}  BLOCK = {block:>4}  max error {error:.1e}")
        assert error <= 1e-7, "vector add differs from the float64 reference"
    bandwidth.run(print_data=True)


if __name__ == "__main__":
    main()
