"""Keys of a configuration that change single accesses and launches, and offsets of more than 32 bits."""

from __future__ import annotations

import pytest
import torch

from tests.hl.test_configs import product
from tilewright import hl
from tilewright.hl import exc


def close(found, expected):
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("parts", [2, 4])
@pytest.mark.parametrize("columns", [64, 90])
def test_epilogues_are_stored_in_parts(parts, columns):
    x, y = torch.randn(20, 24), torch.randn(24, columns)
    bound = product.bind((x, y))
    config = hl.Config(block_sizes=[16, 64, 16], epilogue_subtile=parts)
    assert bound.to_code(config).count("tl.store(") == parts
    close(bound.compile_config(config)(x, y), (x @ y).relu())


@hl.kernel
def pairs_of(x):
    out = torch.empty(x.size(0), x.size(1) // 2)
    for rows, columns in hl.tile(out.shape):
        pair = x[rows, columns.begin * 2 : columns.begin * 2 + columns.block_size * 2]
        out[rows, columns] = pair.reshape(rows.block_size, columns.block_size, 2).sum(-1)
    return out


@pytest.mark.parametrize("form", ["block_ptr", "tensor_descriptor"])
def test_slices_that_begin_at_a_tile_are_no_rectangles_of_a_form(form):
    x = torch.randn(9, 24)
    bound = pairs_of.bind((x,))
    close(bound.compile_config(hl.Config(block_sizes=[4, 8], indexing=form))(x), x.reshape(9, 12, 2).sum(-1))


def test_threads_of_a_launch():
    x, y = torch.randn(20, 24), torch.randn(24, 30)
    bound = product.bind((x, y))
    config = hl.Config(block_sizes=[16, 16, 16], num_threads=2)
    assert "num_threads=2)" in bound.to_code(config) and "num_threads" not in bound.to_code(config, portable=True)
    close(bound.compile_config(config)(x, y), (x @ y).relu())
    with pytest.raises(exc.InvalidConfig, match="a positive integer"):
        bound.to_code(hl.Config(block_sizes=[16, 16, 16], num_threads=0))


@hl.kernel
def counted(x, sums, before):
    for rows, columns in hl.tile(x.shape):
        hl.atomic_add(sums, [rows, columns], x[rows, columns])
        before[rows, columns] = hl.atomic_add(sums, [rows, columns], 1.0)


def test_atomic_updates_through_descriptors():
    x = torch.randn(20, 40)
    made = []
    for form in ("pointer", "tensor_descriptor"):
        sums, before = torch.zeros(20, 40), torch.zeros(20, 40)
        bound = counted.bind((x, sums, before))
        config = hl.Config(block_sizes=[8, 16], atomic_indexing=[form, form])
        assert bound.to_code(config).count(".atomic_add([") == (form == "tensor_descriptor")
        bound.compile_config(config)(x, sums, before)
        made.append((sums, before))
    torch.testing.assert_close(*made)
    close(made[0][0], x + 1)


def _apart(rows):
    """Rows of 16 bytes that lie 2 GiB apart; only the pages that are touched exist."""
    return torch.empty((rows - 1) * 2**31 + 16, dtype=torch.int8).as_strided((rows, 16), (2**31, 1))


@hl.kernel(static_shapes=False)
def row_by_row(x, out):
    for row in hl.grid(x.size(0)):
        for columns in hl.tile(x.size(1)):
            out[row, columns] = x[row, columns] + x[x.size(0) - 1 - row, columns]


@pytest.mark.parametrize("static", [True, False])
def test_offsets_of_more_than_32_bits(static):
    kernel = hl.kernel(row_by_row.fn, static_shapes=static)
    small = torch.arange(32, dtype=torch.int8).reshape(2, 16)
    out = torch.zeros_like(small)
    kernel(small, out)  # of a small one first: the large one binds anew
    assert torch.equal(out, small + small.flip(0)) and "int64" not in kernel.bind((small, out)).to_code()
    x = _apart(2)
    x.copy_(small)
    out = torch.zeros_like(small)
    kernel(x, out)
    assert torch.equal(out, small + small.flip(0)) and "tl.int64" in kernel.bind((x, out)).to_code()


@hl.kernel
def at_the_end(x, out):
    for columns in hl.tile(2**31 - 8, 2**31 + 8):
        out[columns - (2**31 - 8)] = x[columns] + (columns.index % 5).to(torch.int8)


def test_indices_of_more_than_32_bits():
    x = torch.empty(2**31 + 8, dtype=torch.int8)
    x[-16:] = torch.arange(16, dtype=torch.int8)
    out = torch.zeros(16, dtype=torch.int8)
    at_the_end(x, out)
    assert torch.equal(out, x[-16:] + (torch.arange(2**31 - 8, 2**31 + 8) % 5).to(torch.int8))


def test_a_type_of_indices_that_is_too_small():
    with pytest.raises(exc.InputTensorNumelExceedsIndexType, match="pass 32 bits, and index_dtype"):
        hl.kernel(row_by_row.fn, index_dtype=torch.int32).bind((_apart(2), torch.zeros(2, 16, dtype=torch.int8)))
    small = torch.zeros(2, 16, dtype=torch.int8)
    wide = hl.kernel(row_by_row.fn, index_dtype="int64")
    assert "tl.int64" in wide.bind((small, small)).to_code()
    with pytest.raises(exc.InvalidAPIUsage, match="index_dtype"):
        hl.Settings(index_dtype=torch.float32)
