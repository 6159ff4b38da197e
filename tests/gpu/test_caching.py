"""What loads ask of the caches changes no result, whoever copies."""

from __future__ import annotations

import pytest

from tests.backends.nvidia.test_caching import product

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]


@pytest.mark.sanitize
@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("rows", [16, 64, 128])
@pytest.mark.parametrize("policy", ["", "evict_first", "evict_last"])
def test_products(policy: str, rows: int, special: bool) -> None:
    a, b = (torch.randint(-3, 4, shape, device="cuda").bfloat16() for shape in ((rows, 448), (448, 256)))
    out = torch.full((rows, 256), -1.0, device="cuda")
    product[(4,)](a, b, out, 256, 448, POLICY=policy, ROWS=rows, WS=special, num_warps=4, num_stages=4)
    assert torch.equal(out.double(), a.double() @ b.double())
