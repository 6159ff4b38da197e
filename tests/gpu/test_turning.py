"""Attention of 8-bit floats on a GPU, values turned by a role or by warps that multiply, against float64."""

from __future__ import annotations

from typing import Any

import pytest

from tests.backends.nvidia import attention_kernels as kernels
from tilewright.backends.nvidia import backend
from tilewright.tools.tensor_descriptor import TensorDescriptor

pytestmark = pytest.mark.gpu
torch: Any = pytest.importorskip("torch")

describe = TensorDescriptor.from_tensor


def attend(fn: Any, length: int, width: int, keys: int, kind: Any, *, rows: int, block: int, **options: Any) -> Any:
    """Run a kernel of `attention_kernels`, and compare; gives what was launched."""
    torch.manual_seed(length + width)
    q, k, v = (torch.randn(n, width, device="cuda").mul(0.5).to(kind) for n in (rows, length, length))
    out = torch.full((rows, width), 9, dtype=torch.float16, device="cuda")
    given: list[Any] = [q, k, v, out]
    if fn is kernels.of_their_type:
        given = [describe(x, [n, width]) for x, n in zip(given, (block, keys, keys, block), strict=True)]
    made = fn[-(-rows // block), 1](*given, length, M_BLOCK=block, N_BLOCK=keys, WIDTH=width, **options)
    expected = torch.softmax(q.double() @ k.double().T * 0.6931471805599453, 1) @ v.double()
    # Shares keep 3 bits (2 in e5m2): an error of 3 % (6 %) of each, of which as many as there are keys are summed.
    worst = (out.double() - expected).norm() / expected.norm()
    assert worst < (0.035 if kind is torch.float8_e4m3fn else 0.07)
    return made


@pytest.mark.sanitize
@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize(("width", "keys", "stages"), [(64, 64, 2), (64, 128, 3), (128, 128, 2), (128, 64, 3)])
def test_a_role_turns(width: int, keys: int, stages: int, kind: str) -> None:
    hopper = int(backend.target().arch) == 90
    for length in (keys, 2 * keys, 8 * keys):
        for fn in (kernels.of_their_type, kernels.of_their_type_by_pointers):
            made = attend(
                fn, length, width, keys, getattr(torch, kind), rows=5 * 128, block=128, num_warps=8, num_stages=stages
            )
            asked = fn is kernels.of_their_type or keys * width >= 128 * 64  # 16 KiB with both rings of values
            assert made.asm["tgir"].count("ttng.enter_role") == (3 if hopper and asked else 0)
            assert made.n_spills <= 4  # a word that is kept for the store, once a program


@pytest.mark.sanitize
@pytest.mark.parametrize("stages", [1, 2])
def test_warps_that_multiply_turn(stages: int) -> None:
    for length in (128, 1024):
        for fn, more in ((kernels.of_their_type, {"SPECIAL": False}), (kernels.of_their_type_by_pointers, {})):
            attend(
                fn, length, 128, 128, torch.float8_e4m3fn, rows=5 * 64, block=64, num_warps=4, num_stages=stages, **more
            )


def test_many_launches_beside_another_stream() -> None:
    other, busy = torch.cuda.Stream(), torch.randn(2048, 2048, device="cuda").half()
    for _ in range(20):
        with torch.cuda.stream(other):
            busy @ busy
        attend(
            kernels.of_their_type, 1024, 128, 128, torch.float8_e4m3fn, rows=1024, block=128, num_warps=8, num_stages=2
        )
