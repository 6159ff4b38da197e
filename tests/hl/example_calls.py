"""The kernels that `examples/hl` calls, under random configurations.

`python -m tests.hl.example_calls [--count 20] [--out FILE]` draws that many of every kernel, which takes minutes.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import json
import random
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from tests.meta.sources import ROOT
from tilewright import hl
from tilewright.tools.modules import load_file

FOLDER = ROOT / "examples" / "hl"
FILES = sorted(path for path in FOLDER.glob("*.py") if path.stem != "check")

Calls = dict[str, tuple[Any, tuple[Any, ...]]]


def calls_of(path: Path) -> Calls:
    """Run an example, which checks itself: the first call of every kernel, by its name; nothing is timed."""
    found: Calls = {}
    plain = hl.Kernel.__call__

    def call(kernel: Any, *args: Any, **kwargs: Any) -> Any:
        found.setdefault(kernel.name, (kernel, copy.deepcopy(kernel.normalize_args(*args, **kwargs))))
        return plain(kernel, *args, **kwargs)

    with mock.patch.object(sys, "path", [str(FOLDER), *sys.path]), mock.patch.object(hl.Kernel, "__call__", call):
        with mock.patch.object(importlib.import_module("check"), "best", lambda function, *args: 0.0):
            load_file(path, f"hl_example_{path.stem}").main()
    return found


def check_configs(calls: Calls, count: int) -> None:
    """Compare what each kernel gives under `count` random configurations with what it gives under its own."""
    for name, (kernel, args) in calls.items():
        bound, rng = kernel.bind(args), random.Random(name)
        expected = _outputs(bound.compile_config(None), args)
        for _ in range(count):
            config = bound.config_spec.random(rng)
            found = _outputs(bound.compile_config(config), args)
            torch.testing.assert_close(
                found, expected, atol=2e-2, rtol=2e-2, msg=lambda text, at=config: f"{name}, {at}: {text}"
            )


def _outputs(run: Any, args: tuple[Any, ...]) -> tuple[Any, list[torch.Tensor]]:
    """What a kernel returns, and its arguments afterwards."""
    mine = copy.deepcopy(args)
    out = run(*mine)
    return out, [arg for arg in mine if isinstance(arg, torch.Tensor)]


def main() -> None:
    """Draw many configurations, and print a line an example."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    kernels = 0
    for path in FILES:
        start = time.perf_counter()
        calls = calls_of(path)
        check_configs(calls, given.count)
        kernels += len(calls)
        print(f"{path.stem}: {len(calls)} kernels agree, {time.perf_counter() - start:.0f} s", flush=True)
    if given.out:
        made = {"kernels": kernels, "configurations of each": given.count, "disagree": 0, "torch": torch.__version__}
        given.out.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
