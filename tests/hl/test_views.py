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


@hl.kernel(config=hl.Config(block_sizes=[2]))
def normed_groups(x, groups):
    rows = x.view(x.size(0) * groups, -1)
    out = torch.empty_like(x)
    to = out.view(x.size(0) * groups, -1)
    for tile in hl.tile(rows.size(0)):
        var, mean = torch.var_mean(rows[tile, :], dim=-1, keepdim=True, correction=0)
        to[tile, :] = (rows[tile, :] - mean) * torch.rsqrt(var + 1e-5)
    return out


def test_integers_are_constants_where_pytorch_must_know_them():
    """`view` with a size to be inferred asks whether an argument divides the rest."""
    x = torch.randn(3, 12, 5)
    for groups in (2, 3, 4):
        bound = normed_groups.bind((x, groups))
        assert bound.traced.why_constant.startswith("numbers that are arguments are constants: ")
        torch.testing.assert_close(normed_groups(x, groups), torch.nn.functional.group_norm(x, groups))
    with pytest.raises(RuntimeError, match="is invalid for input of size 180"):
        normed_groups(x, 7)


def halves_stored(x):
    out = x.new_empty([x.size(0), x.size(1) * 2])
    for t in hl.tile(x.size(0)):
        value = x[t, :]
        out[t, :] = value[:, None, :].expand(value.size(0), 2, x.size(1)).reshape(value.size(0), 2 * x.size(1))
    return out


def halves_added(x):
    twice, out = x.repeat(1, 2), torch.zeros_like(x)
    for t in hl.tile(x.size(0)):
        value = twice[t, :]
        hl.atomic_add(out, [t, slice(None)], value.reshape(value.size(0), 2, x.size(1)).sum(1))
    return out


def pairs_stored(x):
    out = x.new_empty([x.size(0), x.size(1) * 2])
    for t in hl.tile(x.size(0)):
        pair = hl.join(x[t, :], -x[t, :])
        out[t, :] = pair.reshape(pair.size(0), 2 * x.size(1))
    return out


def positions_in_halves(x):
    out = torch.empty([x.size(0)], dtype=torch.int64)
    for t in hl.tile(x.size(0)):
        value = torch.cat([-x[t, :], x[t, :]], 1).view(x[t, :].size(0), 2, x.size(1))
        out[t] = value.flatten(1).argmax(1)
    return out


@pytest.mark.parametrize(
    ("function", "expected", "is_open"),
    [
        (halves_stored, lambda x: x.repeat(1, 2), False),
        (halves_added, lambda x: 2 * x, False),
        (pairs_stored, lambda x: torch.stack([x, -x], -1).flatten(1), True),
        (positions_in_halves, lambda x: torch.cat([-x, x], 1).argmax(1), False),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_open_sizes_that_are_merged(function, expected, is_open):
    """An open size has a power of two of lanes: where a reshape would move elements among them it is a constant."""
    kernel = hl.kernel(function, static_shapes=False)
    for rows, columns in ((3, 13), (9, 13), (5, 16), (5, 6)):
        x = torch.randn(rows, columns)
        torch.testing.assert_close(kernel(x), expected(x))
    bindings = {id(kernel.bind((torch.randn(3, columns),))) for columns in (6, 13)}
    assert len(bindings) == (1 if is_open else 2)


@hl.kernel(static_shapes=False)
def largest_of_groups(x, group: hl.constexpr):
    rows, columns = x.size()
    out = torch.empty([rows, columns // group])
    for tile in hl.tile(rows):
        out[tile, :] = x[tile, :].reshape(tile, columns // group, group).amax(-1)
    return out


@hl.kernel(static_shapes=False)
def pairs_swapped(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        left, right = hl.split(x[tile, :].reshape([tile, x.size(1) // 2, 2]))
        out[tile, :] = hl.join(right, left).reshape([tile, x.size(1)])
    return out


def test_a_row_whose_length_is_open_and_which_is_split_is_a_constant():
    for columns in (48, 32):
        x = torch.randn(7, columns)
        torch.testing.assert_close(largest_of_groups(x, 16), x.view(7, -1, 16).amax(-1))
        torch.testing.assert_close(pairs_swapped(x), x.view(7, -1, 2).flip(-1).view(7, columns))
    with pytest.raises(
        hl.exc.TorchOpTracingError, match=r"shape '\[tile, 3, 16\]' is invalid for input of size 50\*tile"
    ):
        largest_of_groups(torch.randn(7, 50), 16)
