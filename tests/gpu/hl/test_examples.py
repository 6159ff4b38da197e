"""Every example of examples/hl with its tensors on the GPU, beside PyTorch's result there; its kernels' default
configuration and a random one give what its own gives."""

from __future__ import annotations

import copy
import importlib
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tilewright import errors
from tilewright.tools.modules import load_file

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


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The first call of every kernel while the test runs: kernel and arguments."""
    hl = pytest.importorskip("tilewright.hl")
    found: dict[str, Any] = {}
    plain = hl.Kernel.__call__

    def call(kernel: Any, *args: Any, **kwargs: Any) -> Any:
        found.setdefault(kernel.name, (kernel, copy.deepcopy(kernel.normalize_args(*args, **kwargs))))
        return plain(kernel, *args, **kwargs)

    monkeypatch.setattr(hl.Kernel, "__call__", call)
    return found


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name: str, monkeypatch: pytest.MonkeyPatch, calls: dict[str, Any]) -> None:
    check = importlib.import_module("check")
    compare = check.compare

    def looser(*args: object, tolerance: float = 1e-5) -> None:
        compare(*args, tolerance=max(10 * tolerance, 0.2 if name in PRODUCTS else 0))

    monkeypatch.setattr(check, "compare", looser)
    load_file(FOLDER / f"{name}.py", f"gpu_hl_{name}").main()
    assert calls
    for kernel, args in calls.values():
        _configurations_agree(kernel.bind(args), args, 0.5 if name in PRODUCTS else 2e-2)


def _configurations_agree(bound: Any, args: Any, tolerance: float) -> None:
    """Products of small blocks are float32, those of larger ones tf32."""
    torch = pytest.importorskip("torch")
    spec, rng = bound.config_spec, random.Random(bound.name)
    expected, close = _outputs(bound, None, args), {"atol": tolerance, "rtol": 2e-2}
    torch.testing.assert_close(_outputs(bound, spec.default_config(), args), expected, **close)
    for config in (spec.random(rng) for _ in range(20)):
        try:
            found = _outputs(bound, config, args)
        except errors.OutOfResources:  # a search leaves such a configuration out, too
            continue
        torch.testing.assert_close(found, expected, **close, msg=lambda text, at=config: f"{at}: {text}")
        return
    raise AssertionError(f"{bound.name}: no random configuration fits the device")


def _outputs(bound: Any, config: Any, args: Any) -> tuple[Any, list[Any]]:
    """What a kernel returns, and the tensors among its arguments afterwards."""
    mine = copy.deepcopy(args)
    out = bound.compile_config(config)(*mine)
    return out, [arg for arg in mine if hasattr(arg, "is_cuda")]
