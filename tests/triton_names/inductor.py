"""Runs graphs of `graphs.py` through Inductor's Triton code on the CPU, compiled by Tilewright.

    python -m tilewright.as_triton -m tests.triton_names.inductor                 every graph, with a line for each
    python -m tilewright.as_triton -m tests.triton_names.inductor --part 1/3      every third graph
    python -m tilewright.as_triton -m tests.triton_names.inductor --together 14   fourteen at a time as one graph
    python -m tilewright.as_triton -m tests.triton_names.inductor gelu softmax    those whose names hold one of these

The last line is a summary in JSON. No C++ compiler is there for Inductor to fall back to.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
import traceback
from typing import Any

import torch
import torch._functorch.config as functorch
import torch._inductor.config as inductor
from torch._inductor import metrics

from tests.triton_names.graphs import GRAPHS, Graph

inductor.cpu_backend = "triton"
inductor.cpp.cxx = ("/nonexistent/c++",)
inductor.compile_threads = 1
inductor.triton.autotune_pointwise = False  # one configuration a kernel: timing is not what is tested
inductor.fx_graph_cache = functorch.enable_autograd_cache = False  # nothing is asked for twice


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


def together(graphs: list[Graph]) -> Any:
    """A function of all their inputs that gives a tuple of results for each: Inductor takes half as long for it."""
    ends = list(itertools.accumulate(len(graph.inputs) for graph in graphs))

    def call(*inputs: Any) -> tuple[Any, ...]:
        return tuple(graph.fn(*inputs[end - len(graph.inputs) : end]) for graph, end in zip(graphs, ends, strict=True))

    return call


def check_together(graphs: list[Graph]) -> None:
    """Compile graphs without gradients and dynamic sizes as one, run them and compare each with eager.

    Raises:
        AssertionError: results differ.
    """
    torch._dynamo.reset()
    inputs, fn = [x for graph in graphs for x in make_inputs(graph)], together(graphs)
    with torch.no_grad():
        expected, found = fn(*inputs), torch.compile(fn, fullgraph=True, dynamic=False)(*inputs)
    for graph, a, b in zip(graphs, found, expected, strict=True):
        torch.testing.assert_close(a, b, equal_nan=True, **tolerance(graph), msg=lambda text: f"{graph.name}: {text}")


def check(graph: Graph) -> None:
    """Compile, run and compare with eager.

    Raises:
        AssertionError: they differ.
    """
    torch._dynamo.reset()
    compiled = torch.compile(graph.fn, fullgraph=True, dynamic=graph.dynamic)
    for scale in (1.0, 1.5) if graph.dynamic else (1.0,):
        inputs = make_inputs(graph, scale)
        expected, found = results(graph.fn, inputs, graph.grad), results(compiled, inputs, graph.grad)
        torch.testing.assert_close(found, expected, equal_nan=True, **tolerance(graph))


def tolerance(graph: Graph) -> dict[str, float]:
    """Keywords for `assert_close`."""
    return {} if graph.tolerance is None else {"atol": graph.tolerance, "rtol": graph.tolerance}


def groups(graphs: list[Graph], size: int) -> list[list[Graph]]:
    """Those that can be compiled together, `size` at a time, then each of the others."""
    plain = [graph for graph in graphs if not graph.grad and not graph.dynamic]
    cut = [plain[at : at + size] for at in range(0, len(plain), size)]
    return cut + [[graph] for graph in graphs if graph.grad or graph.dynamic]


def attempt(graphs: list[Graph]) -> dict[str, str]:
    """Check graphs, together if they are several; what went wrong, by name. A group that fails is tried one by one."""
    try:
        if len(graphs) > 1:
            check_together(graphs)
        else:
            check(graphs[0])
    except Exception as error:
        if len(graphs) == 1:
            traceback.print_exc()
            return {graphs[0].name: f"{type(error).__name__}: {error}"[:1500]}
        alone: dict[str, str] = {}
        for graph in graphs:
            alone |= attempt([graph])
        return alone or {graphs[0].name: f"only in a group: {type(error).__name__}: {error}"[:1500]}
    return {}


def main(arguments: list[str]) -> None:
    """Check the graphs that are asked for and print the summary."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="parts of names")
    parser.add_argument("--part", default="0/1", help="1/3 for the second third")
    parser.add_argument("--together", type=int, default=1, help="graphs that are compiled as one")
    asked = parser.parse_args(arguments)
    part, parts = (int(n) for n in asked.part.split("/"))
    names = [n for n in GRAPHS if not asked.words or any(word in n for word in asked.words)][part::parts]
    failures: dict[str, str] = {}
    kernels, begin = 0, time.perf_counter()
    for group in groups([GRAPHS[name] for name in names], asked.together):
        metrics.reset()
        started, failed = time.perf_counter(), attempt(group)
        failures |= failed
        kernels += metrics.generated_kernel_count
        verdict = f"FAILED: {', '.join(failed)}" if failed else "right"
        seconds = time.perf_counter() - started
        print(" ".join(g.name for g in group), verdict, metrics.generated_kernel_count, f"{seconds:.2f} s", flush=True)
    seconds = round(time.perf_counter() - begin, 1)
    print(json.dumps({"graphs": len(names), "kernels": kernels, "seconds": seconds, "failures": failures}))


if __name__ == "__main__":
    main(sys.argv[1:])
