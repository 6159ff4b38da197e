"""Kernels against PyTorch, and the programs of `test_strangers_*.py` at length:

    python -m tests.hl.strangers [names]

with sizes that are constants and open ones, in the default and in four random configurations each; tests run the
default with constants. Both run the kernel as plain Python too.
"""

from __future__ import annotations

import importlib
import random
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from tilewright import hl

MODULES = "ragged", "products", "rows", "idioms", "chunks"
close = torch.testing.assert_close


class Length:
    """How much is run: `configs` random configurations, and whether with open sizes too."""

    configs, open_sizes = 0, False


def agree(
    function: Callable[..., Any],
    expected: Callable[..., Any],
    *sets: tuple[Any, ...],
    atol: float = 1e-3,
    rtol: float = 1e-3,
    ref: bool = True,
    dyn: bool = True,
    n: int | None = None,
    fix: dict[str, Any] | None = None,
) -> None:
    """Assert that a kernel gives what a function of PyTorch does.

    Args:
        function: the kernel's function.
        expected: the same in PyTorch.
        sets: arguments of calls.
        atol: absolute tolerance.
        rtol: relative tolerance.
        ref: whether it can run as plain Python.
        dyn: whether it can be bound for open sizes.
        n: the most random configurations.
        fix: choices that they all have.
    """
    for static in (True, False) if Length.open_sizes and dyn else (True,):
        kernel = hl.kernel(function, static_shapes=static)
        for args in map(_copied, sets):
            want = expected(*_copied(args))
            bound = kernel.bind(args)
            runs: list[Callable[..., Any]] = [kernel]
            rng = random.Random(5)
            for _ in range(min(Length.configs, 4 if n is None else n)):
                config = hl.Config(**{**bound.config_spec.random(rng).config, **(fix or {})})
                runs.append(lambda *args, config=config: bound.compile_config(config)(*args))
            if ref and static:
                runs += [lambda *args, mode=mode: bound.run_ref(*args, mode=mode) for mode in _MODES]
            for run in runs:
                close(run(*_copied(args)), want, atol=atol, rtol=rtol, check_dtype=False)


_MODES = hl.RefMode.TILED, hl.RefMode.EAGER


def _copied(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in args)


def main() -> None:
    """Run the programs that are asked for, or all."""
    Length.configs, Length.open_sizes = 4, True
    failed = 0
    for part in MODULES:
        module = importlib.import_module(f"tests.hl.test_strangers_{part}")
        for name, test in vars(module).items():
            if not name.startswith("test_") or (sys.argv[1:] and name.removeprefix("test_") not in sys.argv[1:]):
                continue
            torch.manual_seed(0)
            begin = time.perf_counter()
            try:
                test()
                said = "right"
            except Exception as error:
                failed, said = failed + 1, f"{type(error).__name__}: {error}"[:1500]
            print(f"{name.removeprefix('test_'):40} {time.perf_counter() - begin:5.1f} s  {said}", flush=True)
    raise SystemExit(bool(failed))


if __name__ == "__main__":
    from tests.hl import strangers  # the length that tests see is that of the module by its name

    strangers.main()
