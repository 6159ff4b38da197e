"""The kernels of a family by what their nests say: those with one text compute the same, however they are written."""

from __future__ import annotations

import collections
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp

from tests.decisions.families import kernels_of
from tests.decisions.harness import TARGETS, Spelling, _specialized
from tilewright.compile.parameters import parameter_specs
from tilewright.compile.request import complete_options
from tilewright.devices.registry import parse_target
from tilewright.frontend.entry import build_module
from tilewright.loops.text import nest_of
from tilewright.ops.function import FuncOp
from tilewright.passes.pipeline import run_passes

GOLDEN = Path(__file__).parent / "golden"
FAMILIES = ("add", "softmax", "layer_norm", "matmul", "matvec", "others", "further", "rows", "strangers", "examples")


def module_of(spelling: Spelling) -> ModuleOp:
    """Simplified tile IR of a kernel, for a CPU."""
    target = parse_target(TARGETS["avx512"])
    specialization = _specialized(spelling, target)
    options = complete_options({}, target)
    return run_passes(build_module(spelling.fn, parameter_specs(specialization), options, target).module)


def kernel_of(module: ModuleOp) -> FuncOp:
    """The kernel of a module."""
    (kernel,) = [op for op in module.ops if isinstance(op, FuncOp) and op.is_kernel]
    return kernel


def classes_of(family: str) -> dict[str, list[str]]:
    """Names of kernels by the text of their nests."""
    found: dict[str, list[str]] = collections.defaultdict(list)
    for spelling in kernels_of(family):
        found[nest_of(kernel_of(module_of(spelling)))].append(spelling.name)
    return found


def golden_text(family: str) -> str:
    """The classes of a family, the largest first."""
    classes = sorted(classes_of(family).items(), key=lambda row: -len(row[1]))
    count = sum(len(names) for _, names in classes)
    return f"{count} kernels, {len(classes)} nests\n\n" + "\n".join(f"{', '.join(n)}\n{text}" for text, n in classes)


def golden_file(family: str) -> Path:
    """Where the classes of a family are kept."""
    return GOLDEN / f"{family}.txt"
