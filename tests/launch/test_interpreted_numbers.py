"""Numbers of numpy in interpreter mode."""

from __future__ import annotations

from typing import Any

import numpy as np

import tilewright
import tilewright.language as tl

NUMBER, COUNT, HOLDS = np.float32(2), np.int32(3), np.bool_(True)


def of_numpy(x: Any, out: Any) -> None:
    v = tl.load(x, HOLDS, other=NUMBER)
    made = tl.exp(NUMBER) + tl.maximum(NUMBER, v) + v * NUMBER + NUMBER * v - COUNT + COUNT / v
    made += tl.where(v > NUMBER, NUMBER, COUNT) + (COUNT < v).to(tl.float32) + tl.full((), NUMBER, tl.float32)
    tl.store(out, made + (COUNT if HOLDS else NUMBER))


def test_numbers_of_numpy_are_constants_as_in_compiled_kernels() -> None:
    made = []
    for interpret in (False, True):
        out = np.zeros(1, np.float32)
        tilewright.jit(of_numpy, interpret=interpret)[(1,)](np.full(1, 5, np.float32), out)
        made.append(out[0])
    assert made[0] == made[1] != 0
