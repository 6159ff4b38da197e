"""Kernels of a user in torch's own integration (`torch.library.triton_op`, `wrap_triton`), with Tilewright as Triton.

    python -m tilewright.as_triton -m tests.triton_names.user_kernels

Each program runs in eager, under aot_eager and under Inductor. As a program it runs the operator with Inductor's C++,
too, whose compiler takes half a minute (`make test-inductor`).
"""

from __future__ import annotations

import logging

import torch
import torch._inductor.config as inductor
import triton
import triton.language as tl
from torch._higher_order_ops.triton_kernel_wrap import identify_accessed_tensors


@triton.jit
def add_into(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, i < n) + tl.load(y_ptr + i, i < n), i < n)


tuned = triton.autotune([triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 64})], key=["n"])(add_into)


@torch.library.triton_op("tilewright_test::add", mutates_args=())
def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The kernel as an operator."""
    out = torch.empty_like(x)
    torch.library.wrap_triton(add_into)[(triton.cdiv(x.numel(), 64),)](x, y, out, x.numel(), 64)
    return out


def bare(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A launch in compiled code."""
    out = torch.empty_like(x)
    add_into[(triton.cdiv(x.numel(), 64),)](x, y, out, x.numel(), BLOCK=64)
    return out


def autotuned(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A launch whose block size is chosen by timing."""
    out = torch.empty_like(x)
    tuned[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, out, x.numel())
    return out


def main(cpp: bool = False) -> None:
    """Run all, with Inductor's C++ too if asked, and see that torch is told what is mutated."""
    inductor.compile_threads = 1
    x, y = torch.randn(300), torch.randn(300)
    problems: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: problems.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("torch._higher_order_ops.triton_kernel_wrap").addHandler(handler)
    arguments = {"x_ptr": x, "y_ptr": y, "out_ptr": x, "n": 300, "BLOCK": 64}
    accesses = identify_accessed_tensors(add_into, arguments, {}).read_writes
    assert {dep.name for dep in accesses.writes} == {"out_ptr"}
    assert {dep.name for dep in accesses.reads} == {"x_ptr", "y_ptr"}
    for backend, cpu in (("eager", "cpp"), ("aot_eager", "cpp"), ("inductor", "triton"), ("inductor", "cpp"))[
        : 3 + cpp
    ]:
        inductor.cpu_backend = cpu
        for program in (add,) if (backend, cpu) == ("inductor", "cpp") else (add, bare, autotuned):
            torch._dynamo.reset()
            compiled = torch.compile(lambda a, b, run=program: run(a, b).sin() * 2, backend=backend, fullgraph=True)
            torch.testing.assert_close(compiled(x, y), (x + y).sin() * 2)
            print(backend, cpu, getattr(program, "__name__", "operator"), "right", flush=True)
    assert not problems, problems


if __name__ == "__main__":
    main(cpp=True)
