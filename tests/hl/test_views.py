"""Changes in place and views: what shares memory with a changed tensor is refused where it is read."""

from __future__ import annotations

import pytest
import torch

from tilewright import hl
from tilewright.hl import exc


def test_a_view_of_a_changed_tensor_is_not_read():
    @hl.kernel
    def kernel(x):
        out = torch.empty_like(x)
        for rows, columns in hl.tile(x.shape):
            value = x[rows, columns] * 1.0
            turned = value.t()
            value.add_(1)
            out[rows, columns] = turned.t()
        return out

    with pytest.raises(exc.ChangedThroughView, match="x = x \\+ y") as caught:
        kernel(torch.randn(20, 30))
    assert caught.value.location is not None


def test_the_base_of_a_changed_view_is_not_read():
    @hl.kernel
    def kernel(x):
        out = torch.empty_like(x)
        for rows, columns in hl.tile(x.shape):
            value = x[rows, columns] * 1.0
            value.t().mul_(2)
            out[rows, columns] = value
        return out

    with pytest.raises(exc.ChangedThroughView):
        kernel(torch.randn(20, 30))


def test_views_made_after_the_change_and_dead_ones_are_fine():
    @hl.kernel
    def kernel(x):
        out = torch.empty_like(x)
        for rows, columns in hl.tile(x.shape):
            value = x[rows, columns] * 1.0
            total = value[:, None].sum(1)
            value += total
            value *= value.t().t()
            out[rows, columns] = value
        return out

    x = torch.randn(20, 30)
    torch.testing.assert_close(kernel(x), (2 * x) ** 2)
