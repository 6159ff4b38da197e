"""The setting `fast_math`: one rounding for a chain of 16-bit operations, one for each without it."""

from __future__ import annotations

import pytest
import torch

from tilewright import hl


def chain(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = (x[tile] * 3.1 + 0.75) * 2.3 - 2
    return out


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_chain_rounds_once_only_when_asked(dtype, fast):
    x = torch.randn(1000, generator=torch.Generator().manual_seed(1)).to(dtype)
    stepwise = (x * 3.1 + 0.75) * 2.3 - 2
    once = ((x.float() * 3.1 + 0.75) * 2.3 - 2).to(dtype)
    assert not torch.equal(stepwise, once)
    made = hl.kernel(chain, fast_math=fast)(x)
    if not fast:
        assert torch.equal(made, stepwise)
    else:  # a product and a sum may be one operation: seldom another rounding
        assert (made != once).sum() <= 5 < (made != stepwise).sum()


def test_an_explicit_conversion_keeps_its_type():
    @hl.kernel(fast_math=True)
    def converted(x):
        out = torch.empty(x.shape, dtype=torch.float32)
        for tile in hl.tile(x.size(0)):
            out[tile] = (x[tile] * 1.1).to(torch.bfloat16).to(torch.float32)
        return out

    x = torch.randn(100)
    assert torch.equal(converted(x), (x * 1.1).to(torch.bfloat16).to(torch.float32))
