"""Runs graphs of `graphs.py` through Inductor's Triton code on the CPU, compiled by Tilewright.

    python -m tilewright.as_triton -m tests.triton_names.inductor                 every graph, with a line for each
    python -m tilewright.as_triton -m tests.triton_names.inductor --part 1/3      every third graph
    python -m tilewright.as_triton -m tests.triton_names.inductor gelu softmax    those whose names hold one of these

The last line is a summary in JSON. No C++ compiler is there for Inductor to fall back to.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from typing import Any

import torch
import torch._inductor.config as inductor
from torch._inductor import metrics

from tests.triton_names.graphs import GRAPHS, Graph

inductor.cpu_backend = "triton"
inductor.cpp.cxx = ("/nonexistent/c++",)
inductor.compile_threads = 1
inductor.triton.autotune_pointwise = False  # one configuration a kernel: timing is not what is tested


def make_inputs(graph: Graph, scale: float = 1.0) -> list[Any]:
    """Fresh inputs; with `scale` the first dimension of every shape is longer."""
    torch.manual_seed(0)
    made = []
    for wanted in graph.inputs:
        if callable(wanted):
            made.append(wanted())
        else:
            shape = tuple(int(n * scale) if axis == 0 else n for axis, n in enumerate(wanted))
            made.append(torch.randn(shape))
    return made


def results(fn: Any, inputs: list[Any], grad: bool) -> list[torch.Tensor]:
    """What `fn` gives, and with `grad` the gradients."""
    inputs = [x.detach().clone().requires_grad_(grad and x.is_floating_point()) for x in inputs]
    out = fn(*inputs)
    out = list(out) if isinstance(out, tuple) else [out]
    if grad:
        sum(o.sum() for o in out).backward()
        out += [x.grad for x in inputs if x.requires_grad]
    return [o.detach() for o in out]


def check(graph: Graph) -> None:
    """Compile, run and compare with eager.

    Raises:
        AssertionError: they differ.
    """
    torch._dynamo.reset()
    compiled = torch.compile(graph.fn, fullgraph=True, dynamic=graph.dynamic)
    for scale in (1.0, 1.5) if graph.dynamic else (1.0,):
        inputs = make_inputs(graph, scale)
        tolerance = {} if graph.tolerance is None else {"atol": graph.tolerance, "rtol": graph.tolerance}
        expected, found = results(graph.fn, inputs, graph.grad), results(compiled, inputs, graph.grad)
        torch.testing.assert_close(found, expected, equal_nan=True, **tolerance)


def main(arguments: list[str]) -> None:
    """Check the graphs that are asked for and print the summary."""
    part, parts = 0, 1
    if arguments[:1] == ["--part"]:
        part, parts = (int(n) for n in arguments[1].split("/"))
        arguments = arguments[2:]
    names = [n for n in GRAPHS if not arguments or any(word in n for word in arguments)][part::parts]
    failures, kernels, begin = {}, 0, time.perf_counter()
    for name in names:
        metrics.reset()
        started = time.perf_counter()
        try:
            check(GRAPHS[name])
        except Exception as error:
            failures[name] = f"{type(error).__name__}: {error}"[:1500]
            if "-v" in arguments:
                traceback.print_exc()
        kernels += metrics.generated_kernel_count
        verdict = "FAILED" if name in failures else "right"
        print(f"{name:24} {verdict} {metrics.generated_kernel_count} {time.perf_counter() - started:.2f} s", flush=True)
    seconds = round(time.perf_counter() - begin, 1)
    print(json.dumps({"graphs": len(names), "kernels": kernels, "seconds": seconds, "failures": failures}))


if __name__ == "__main__":
    main(sys.argv[1:])
