"""Kernels of examples/hl whose graphs and generated modules are kept as text in tests/hl/golden/.

python -m tests.hl.golden_cases     writes the texts anew
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

from tilewright import hl
from tilewright.hl.graph.text import graph_text
from tilewright.tools.modules import load_file

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parents[1] / "examples" / "hl"


def _float(*shape: int) -> torch.Tensor:
    return torch.zeros(shape)


def _int(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int64)


# "example.kernel" -> (arguments, block sizes)
CASES: dict[str, tuple[tuple[Any, ...], list[int]]] = {
    "softmax.softmax": ((_float(100, 70),), [4]),
    "norms.layer_norm": ((_float(100, 70), _float(70), _float(70), 1e-5), [4]),
    "matmul.matmul": ((_float(100, 70), _float(70, 90), torch.relu), [32, 32, 16]),
    "attention.attention": ((_float(2, 100, 32), _float(2, 100, 32), _float(2, 100, 32), True), [1, 32, 32]),
    "jagged.jagged_sum": ((_float(300, 48), _int(11)), [8, 32, 32]),
    "segments.segment_sum": ((_float(300, 48), _int(300), 20), [64, 32]),
    "dropout.dropout": ((_float(1000), 0.25, 7), [128]),
    "int4.matmul_int4": ((_float(100, 64), torch.zeros(32, 90, dtype=torch.int8)), [32, 32, 16]),
}


def bound_of(case: str) -> tuple[Any, hl.Config]:
    """The bound kernel of a case, and its configuration."""
    name, kernel = case.split(".")
    if str(EXAMPLES) not in sys.path:
        sys.path.insert(0, str(EXAMPLES))
    module = load_file(EXAMPLES / f"{name}.py", f"golden_{name}")
    arguments, blocks = CASES[case]
    return getattr(module, kernel).bind(arguments), hl.Config(block_sizes=blocks)


def text_of(case: str) -> str:
    """The graphs and the module of a case."""
    bound, config = bound_of(case)
    graphs = "\n\n".join(graph_text(graph) for graph in bound.traced.graphs)
    return f"{graphs}\n\n{'-' * 80}\n\n{bound.to_code(config)}"


def path_of(case: str) -> Path:
    """Where the text of a case is kept."""
    return HERE / "golden" / f"{case}.txt"


def main() -> None:
    """Write the texts."""
    (HERE / "golden").mkdir(exist_ok=True)
    for case in CASES:
        path_of(case).write_text(text_of(case), encoding="utf-8")


if __name__ == "__main__":
    main()
