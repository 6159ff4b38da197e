"""Kernels of random text, as compiled and as interpreted: what their generators share."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tilewright
from tilewright.tools.modules import load_file

Launch = Callable[[Any, np.ndarray[Any, Any]], None]


def difference(seed: int, text: str, path: Path, size: int, launch: Launch) -> str:
    """Where the compiled kernel of a text gives something else than the interpreted one; "" if nowhere.

    Args:
        seed: of the text, which is told.
        text: of a module with `kernel`.
        path: where it is put; it is removed if nothing differs.
        size: elements of the result.
        launch: runs a jit function that writes the result.
    """
    path.write_text(text)
    kernel, outs = load_file(path).kernel, []
    for interpret in (False, True):
        outs.append(out := np.full(size, 7, np.float32))
        launch(tilewright.jit(interpret=interpret)(kernel), out)
    wrong = ~np.isclose(*outs, rtol=1e-3, atol=1e-3, equal_nan=True)
    if wrong.any():
        at = int(wrong.argmax())
        return f"seed {seed}: out[{at}] is {outs[0][at]}, interpreted {outs[1][at]}: {path}"
    path.unlink()
    return ""


def compare_seeds(description: str, differs: Callable[[int, Path], str]) -> int:
    """The command of a generator: compares kernels of many seeds; the status is 1 if one differs."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    given = parser.parse_args()
    tilewright.knobs.cache.disabled = True
    found = []
    for seed in range(given.seed, given.seed + given.count):
        try:
            said = differs(seed, given.folder)
        except Exception as error:
            said = f"seed {seed}: {type(error).__name__}: {str(error)[:300]}"
        if said:
            found.append(said)
            print(said, flush=True)
    print(f"{given.count} kernels, {len(found)} differ")
    return bool(found)
