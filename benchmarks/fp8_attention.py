"""``python -m benchmarks.fp8_attention``: attention whose operands have 8 bits, beside ours and SDPA in f16.

Plain kernels: the example by pointers, and that of `descriptor_kernels`, with roles and without. Calls are made in
turns with a cold cache; errors are root mean squares against float64 of the same operands, over that of the result.
"""

from __future__ import annotations

import functools
from typing import Any

import click
import torch

from benchmarks import descriptor_kernels
from benchmarks.gpu import flavour, turns
from benchmarks.sustained import Function, without_roles
from tilewright.tools.tensor_descriptor import TensorDescriptor

Config = tuple[int, int, int, int]  # queries, keys, warps, stages
_CONFIGS: tuple[Config, ...] = ((128, 128, 8, 2), (128, 128, 8, 3), (128, 64, 8, 3), (64, 128, 4, 2))
_PART = 512  # queries whose error is told
_LOG2_E = 1.44269504


class Case:
    """Heads of one size, and calls of kernels on them."""

    def __init__(self, heads: int, length: int, width: int, dtype: torch.dtype, *, causal: bool) -> None:
        self.q, self.k, self.v = (torch.randn(1, heads, length, width, device="cuda").to(dtype) for _ in range(3))
        self.out = torch.empty(self.q.shape, dtype=torch.float16, device="cuda")
        self.heads, self.length, self.width, self.causal = heads, length, width, causal

    def by_pointers(self, config: Config) -> Function:
        """The example."""
        tensors = self.q, self.k, self.v, self.out
        strides = [s for x in tensors for s in (x.stride(1), x.stride(2))]
        m, n, warps, stages = config
        return functools.partial(
            flavour("attention", True).attention_kernel[self.length // m, self.heads], *tensors, *strides, self.length,
            self.width**-0.5, BLOCK_M=m, BLOCK_N=n, HEAD_DIM=self.width, CAUSAL=self.causal, EVEN=True,
            num_warps=warps, num_stages=stages,
        )  # fmt: skip

    def by_descriptors(self, config: Config, *, special: bool) -> Function:
        """The same through descriptors of the host."""
        m, n, warps, stages = config
        flat = [x.view(-1, self.width) for x in (self.q, self.k, self.v, self.out)]
        made = [TensorDescriptor.from_tensor(x, [b, self.width]) for x, b in zip(flat, (m, n, n, m), strict=True)]
        kernel = getattr(descriptor_kernels, "causal_attention" if self.causal else "attention")
        return functools.partial(
            kernel[self.length // m, self.heads], *made, self.length, self.width**-0.5 * _LOG2_E, WIDTH=self.width,
            QUERIES=m, KEYS=n, SPECIAL=special, num_warps=warps, num_stages=stages,
        )  # fmt: skip

    def error(self) -> float:
        """Of what has been written last."""
        scores = self.q[0, 0, -_PART:].double() @ self.k[0, 0].double().T * self.width**-0.5
        if self.causal:
            scores += torch.full_like(scores, -torch.inf).triu(self.length - _PART + 1)
        exact = torch.softmax(scores, 1) @ self.v[0, 0].double()
        return ((self.out[0, 0, -_PART:].double() - exact).square().mean() / exact.square().mean()).sqrt().item()


def race(heads: int, length: int, width: int, rounds: int, *, causal: bool) -> None:
    """All forms on one size."""
    half = Case(heads, length, width, torch.float16, causal=causal)
    q, k, v = half.q, half.k, half.v
    functions: dict[str, Function] = {
        "SDPA f16": lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    }
    for dtype, name in ((torch.float16, "f16"), (torch.float8_e4m3fn, "fp8")):
        case = half if dtype is torch.float16 else Case(heads, length, width, dtype, causal=causal)
        for config in _CONFIGS:
            if not causal or config[0] % config[1] == 0:  # the example walks over whole blocks up to the diagonal
                _keep(functions, f"{name} pointers {config}", case.by_pointers(config), case)
            _keep(functions, f"{name} descriptors, roles {config}", case.by_descriptors(config, special=True), case)
            with without_roles():
                call = case.by_descriptors(config, special=False)
                _keep(functions, f"{name} descriptors, no roles {config}", call, case)
    work = (2 if causal else 4) * heads * length * length * width
    found = turns(functions, rounds)
    ours = min(seconds for name, seconds in found.items() if name.startswith("f16"))
    print(f"attention, {heads} heads of {length}, width {width}{', causal' if causal else ''}")
    for name, seconds in sorted(found.items(), key=lambda row: row[1]):
        print(f"  {name:50} {work / seconds / 1e12:7.1f} TFLOP/s  {ours / seconds:5.2f} of our f16", flush=True)


def _keep(functions: dict[str, Function], name: str, call: Function, case: Case) -> None:
    """Compile a call and tell its error; it races if it ran."""
    try:
        case.out.fill_(float("nan"))
        made: Any = call()
        torch.cuda.synchronize()
    except Exception as failed:
        print(f"  {name}: {type(failed).__name__}: {str(failed)[:150]}")
        return
    print(f"  {name:50} error {case.error():.2e}, {made.n_regs} registers, {made.n_spills} spilled", flush=True)
    functions[name] = call


@click.command()
@click.option("--rounds", default=20, help="Timed calls of each function.")
@click.option("--length", default=4096, help="Of the sequences.")
@click.option("--forms", default=3, help="How many of: width 128, the same causal, width 64.")
def main(rounds: int, length: int, forms: int) -> None:
    """Race."""
    print(torch.cuda.get_device_name(), torch.__version__)
    for width, causal in ((128, False), (128, True), (64, False))[:forms]:
        race(16 * 4096 // length * (128 // width), length, width, rounds, causal=causal)


if __name__ == "__main__":
    main()
