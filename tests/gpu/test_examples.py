"""Every example, run with its tensors on the GPU: each checks its own results against torch in float64."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tilewright.tools.modules import load_file

pytestmark = pytest.mark.gpu
# Small enough for compute-sanitizer, and of every kind: reductions, products by wgmma and multiply-adds, pipelines.
SANITIZED = {"vector_add", "softmax", "layer_norm", "dropout", "matmul", "attention"}
EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.py"))


@pytest.fixture(autouse=True)
def on_the_gpu() -> Iterator[None]:
    """Tensors are made on the GPU unless a program says otherwise."""
    torch = pytest.importorskip("torch")
    before = torch.get_default_device()
    torch.set_default_device("cuda")
    yield
    torch.set_default_device(before)


@pytest.mark.parametrize(
    "path",
    [pytest.param(p, id=p.stem, marks=[pytest.mark.sanitize] if p.stem in SANITIZED else []) for p in EXAMPLES],
)
def test_example(path: Path) -> None:
    load_file(path, f"gpu_{path.stem}").main()
