"""Kernels as plain Python: whole ranges, and tiles of the configured sizes of which the last is cut."""

from __future__ import annotations

import pytest
import torch

from tests.hl.test_configs import KERNELS
from tilewright import hl

MODES = [hl.RefMode.EAGER, hl.RefMode.TILED]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_as_plain_python(name, mode):
    kernel, reference, args = KERNELS[name]
    found = kernel.bind(args).run_ref(*args, mode=mode)
    torch.testing.assert_close(found, reference(*args), atol=1e-5, rtol=1e-5)


@hl.kernel(config=hl.Config(block_sizes=[4]), ref_mode=hl.RefMode.TILED)
def depends_on_its_tile(x):
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        print("tile", rows.id, "of", rows.count, "has", len(rows.index), "rows of", rows.block_size)
        out[rows] = x[rows] - x[rows].mean()
    return out


def test_tiles_have_the_configured_size_and_the_last_is_cut(capsys):
    x = torch.arange(6.0)
    expected = torch.cat([x[:4] - x[:4].mean(), x[4:] - x[4:].mean()])
    torch.testing.assert_close(depends_on_its_tile(x), expected)
    assert capsys.readouterr().out == "tile 0 of 2 has 4 rows of 4\ntile 1 of 2 has 2 rows of 4\n"


@hl.kernel(config=hl.Config(block_sizes=[4, 4]))
def every_access(x, places, out, sums):
    for a, b in hl.tile(x.shape):
        moved = x[a, b + 1] + hl.load(x, [a, b - 2], extra_mask=(b.index > 3)[None, :])
        out[a, b] = moved + x[places[a], 0][:, None] + x[-1, b]
        hl.atomic_add(sums, [b], moved.sum(0))


@pytest.mark.parametrize("mode", MODES)
def test_accesses_agree_with_the_compiled_kernel(mode):
    x, places = torch.randn(9, 10), torch.randint(0, 9, (9,))
    made = []
    for run in (every_access, lambda *args: every_access.bind(args).run_ref(*args, mode=mode)):
        out, sums = torch.zeros(9, 10), torch.zeros(10)
        run(x, places, out, sums)
        made.append((out, sums))
    torch.testing.assert_close(*made)


@hl.kernel
def jagged(values, ends, out):
    for rows in hl.tile(out.size(0)):
        for columns in hl.jagged_tile(ends[rows]):
            out[rows] = values[columns].sum()


def test_what_has_no_reference_says_so():
    args = torch.randn(4), torch.tensor([2, 3]), torch.zeros(2)
    with pytest.raises(hl.exc.BackendUnsupported, match="jagged_tile has no reference"):
        hl.kernel(jagged.fn, ref_mode=hl.RefMode.EAGER).bind(args).run_ref(*args)
