"""The nests of products say what the reference computes, whatever the spelling."""

from __future__ import annotations

import numpy as np
import pytest

from tests.decisions.harness import Spelling
from tests.decisions.matmul import MATMUL
from tests.decisions.matvec import MATVEC
from tests.loops.evaluate import Nest
from tests.loops.families import kernel_of, module_of
from tilewright.backends.reference.address_space import Memory
from tilewright.backends.reference.evaluate import Evaluator

_USUAL = next(spelling.signature for spelling in MATMUL if spelling.name == "plain")
_PRODUCTS = [spelling for spelling in MATMUL if spelling.signature == _USUAL]


def _arrays() -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    return [rng.integers(-4, 5, 1 << 16).astype(np.float32) for _ in range(3)]


def _compare(spelling: Spelling, sizes: tuple[int, ...], grid: tuple[int, ...]) -> None:
    module = module_of(spelling)
    kernel = kernel_of(module)
    wanted, found, memory = _arrays(), _arrays(), Memory()
    Evaluator(module, memory).launch(kernel.symbol, grid, [*[memory.register(array) for array in wanted], *sizes])
    nest = Nest(kernel, dict(enumerate(found)), {3 + n: size for n, size in enumerate(sizes)}, grid)
    nest.run()
    for number, (one, other) in enumerate(zip(wanted, found, strict=True)):
        assert not nest.is_known(number) or np.allclose(one, other, rtol=1e-4, atol=1e-4)
    assert not nest.unknown


@pytest.mark.parametrize("spelling", MATVEC, ids=lambda spelling: spelling.name)
def test_a_matrix_times_a_vector(spelling: Spelling) -> None:
    _compare(spelling, (32, 256), (2,))


@pytest.mark.parametrize("spelling", _PRODUCTS, ids=lambda spelling: spelling.name)
def test_products(spelling: Spelling) -> None:
    _compare(spelling, (48, 96, 64), (1, 1))
