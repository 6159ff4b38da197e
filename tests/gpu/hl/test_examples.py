"""Every example of examples/hl with its tensors on the GPU, beside PyTorch's result there."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu
FOLDER = Path(__file__).resolve().parents[3] / "examples" / "hl"
EXAMPLES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "check")
PRODUCTS = {"attention", "grouped", "int4", "jagged", "matmul"}  # tf32 operands have 10 bits


@pytest.fixture(autouse=True)
def on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tensors are made on the GPU; the examples' own `check` is found."""
    torch = pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.delitem(sys.modules, "check", raising=False)
    before = torch.get_default_device()
    torch.set_default_device("cuda")
    yield
    torch.set_default_device(before)


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check = importlib.import_module("check")
    compare = check.compare

    def looser(*args: object, tolerance: float = 1e-5) -> None:
        compare(*args, tolerance=max(10 * tolerance, 0.2 if name in PRODUCTS else 0))

    monkeypatch.setattr(check, "compare", looser)
    spec = importlib.util.spec_from_file_location(f"gpu_hl_{name}", FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main()
