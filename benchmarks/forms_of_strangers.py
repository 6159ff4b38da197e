"""Families of computations as people of different schools write them (`strangers.py`, `persistent.py` of the tests)."""

from __future__ import annotations

import torch

from benchmarks.form_family import Family, kernels_of, launch, launched
from tests.backends.cpu.flat_rows import cropped, cropped_rows, flipped
from tests.decisions import bags, hold_outs, more_hold_outs, persistent, sampled, short, strangers


def added_products(m: int, n: int, k: int, device: str) -> Family:
    """Products over pieces of K, by helpers, in tuples, added by atomics."""
    a, b = torch.randn(m, k, device=device).bfloat16(), torch.randn(k, n, device=device).bfloat16()
    out, tile = torch.zeros(m, n, device=device), (64, 128, 64)
    grid = (-(-m // tile[0]), -(-n // tile[1]))
    forms = launched(strangers.ADDED_PRODUCTS, grid, a, b, out, m, n, k, *tile)
    return Family(f"product bf16, as others write it {m}x{n}x{k}", forms, out, lambda: torch.mm(a, b), out.zero_)


def by_few_programs(m: int, n: int, k: int, device: str) -> Family:
    """Few programs, which make tile after tile."""
    a = torch.randn(m, k, device=device).bfloat16()
    b = torch.randn(k, n, device=device).bfloat16()
    out, tile, programs = torch.zeros(m, n, device=device), (64, 128, 64), 132 if device == "cuda" else 3
    forms = launched(persistent.PERSISTENT, (programs,), a, b, out, m, n, k, *tile)
    return Family(f"product bf16 by few programs {m}x{n}x{k}", forms, out, lambda: torch.mm(a, b))


def scaled_blocks(m: int, n: int, k: int, device: str) -> Family:
    """Products of 8-bit floats with scales of blocks, against one of what they stand for in bfloat16."""
    a, b = (torch.randn(size, k, device=device).to(torch.float8_e4m3fn) for size in (m, n))
    u, v = torch.rand(m, k // 128, device=device), torch.rand(n // 128, k // 128, device=device)
    out, grid = torch.zeros(m, n, device=device), (m // 64, n // 128)
    forms = launched(persistent.SCALED_BLOCKS, grid, a, b, u, v, out, m, n, k, 64, 128, 128)
    x = (a.float() * u.repeat_interleave(128, 1)).bfloat16()
    y = (b.float() * v.repeat_interleave(128, 0).repeat_interleave(128, 1)).bfloat16()
    return Family(f"product of fp8 scaled by blocks {m}x{n}x{k}", forms, out, lambda: torch.mm(x, y.t()))


def convolution(size: int, channels: int, device: str) -> Family:
    """A convolution of 3 by 3 taps as products."""
    x, w = torch.randn(size, size, channels, device=device).bfloat16(), torch.randn(3, 3, channels, channels).bfloat16()
    w, out = w.to(device), torch.zeros(size * size, channels, device=device)
    grid, image, taps = (-(-size * size // 64), -(-channels // 64)), x.permute(2, 0, 1)[None], w.permute(3, 2, 0, 1)
    forms = launched(strangers.CONVOLUTIONS, grid, x, w, out, size, size, channels, channels, 64, 64, 32)
    rival = lambda: torch.conv2d(image, taps, padding=1)[0].permute(1, 2, 0).reshape(out.shape)  # noqa: E731
    return Family(f"convolution bf16 of {size}x{size}x{channels}", forms, out, rival)


def weight_gradient(rows: int, columns: int, device: str) -> Family:
    """Sums over rows, for a weight."""
    x, y, out = (torch.randn(*shape, device=device) for shape in ((rows, columns), (rows, columns), (columns,)))
    forms = launched(strangers.WEIGHT_GRADIENTS, (-(-rows // 16),), x, y, out, rows, columns, 1024)
    rival = lambda: (x * y).sum(0)  # noqa: E731
    return Family(f"gradient of a weight {rows}x{columns}", forms, out, rival, out.zero_, 1e-4)


def rotation(rows: int, heads: int, depth: int, device: str) -> Family:
    """Pairs of numbers, each turned by an angle."""
    x, out = (torch.randn(rows, heads, depth, device=device).bfloat16() for _ in range(2))
    c, s = (torch.randn(rows, depth // 2, device=device) for _ in range(2))
    forms = launched(strangers.ROTATIONS, (rows,), x, c, s, out, rows, heads, depth)

    def rival() -> torch.Tensor:
        even, odd = x[..., ::2].float(), x[..., 1::2].float()
        turned = (even * c[:, None] - odd * s[:, None], even * s[:, None] + odd * c[:, None])
        return torch.stack(turned, -1).flatten(-2).bfloat16()

    return Family(f"pairs turned {rows}x{heads}x{depth}", forms, out, rival)


def nibbles(rows: int, columns: int, device: str) -> Family:
    """Numbers of 4 bits made f32."""
    w = torch.randint(0, 256, (rows, columns // 2), device=device, dtype=torch.uint8)
    offsets = torch.randint(0, 16, (rows, columns // 64), device=device, dtype=torch.uint8)
    scales, out = torch.rand(rows, columns // 64, device=device), torch.zeros(rows, columns, device=device)
    forms = launched(strangers.NIBBLES, (rows, columns // 1024), w, scales, offsets, out, rows, columns, 1024)

    def rival() -> torch.Tensor:
        number = torch.stack([w & 15, w >> 4], -1).view(rows, -1, 64).float()
        return ((number - offsets[..., None].float()) * scales[..., None]).view(rows, columns)

    return Family(f"numbers of 4 bits {rows}x{columns}", forms, out, rival, tolerance=1e-6)


def columns_of_a_picture(rows: int, columns: int, wide: int, device: str) -> Family:
    """Some columns of a picture, as flat elements and by rows."""
    x, out, n = torch.randn(rows, wide, device=device), torch.empty(rows, columns, device=device), rows * columns
    forms = {
        "flat elements": launch(cropped, (-(-n // 1024),), x, out, columns, wide, n, 1024),
        "rows": launch(cropped_rows, (rows,), x, out, columns, wide, n, 1024),
    }
    return Family(f"columns of a picture {rows}x{columns} of {wide}", forms, out, x[:, :columns].contiguous)


def picture_backwards(rows: int, columns: int, device: str) -> Family:
    """The columns of a picture in the other order, as flat elements."""
    x, out, n = torch.randn(rows, columns, device=device), torch.empty(rows, columns, device=device), rows * columns
    forms = {"flat elements": launch(flipped, (-(-n // 1024),), x, out, columns, columns, n, 1024)}
    return Family(f"picture backwards {rows}x{columns}", forms, out, lambda: x.flip(-1))


def sampling(channels: int, size: int, rows: int, columns: int, device: str) -> Family:
    """Bilinear samples of a picture at places of a turned grid."""
    picture, out = (torch.randn(1, channels, *shape, device=device) for shape in ((size, size), (rows, columns)))
    y, x = torch.meshgrid(*(torch.linspace(-1, 1, n, device=device) for n in (rows, columns)), indexing="ij")
    places = torch.stack([0.9 * x + 0.2 * y, 0.9 * y - 0.2 * x], -1)[None].contiguous()
    n = rows * columns
    forms = launched(sampled.SAMPLED, (-(-n // 512),), picture, places, out, size, size, n, channels, 512)
    how = {"mode": "bilinear", "padding_mode": "border", "align_corners": True}
    rival = lambda: torch.nn.functional.grid_sample(picture, places, **how)  # noqa: E731
    return Family(f"bilinear samples {channels}x{rows}x{columns}", forms, out, rival, tolerance=1e-5)


def sums_of_table_rows(count: int, columns: int, device: str) -> Family:
    """Weighted sums of up to 63 rows of a table, at places that are loaded."""
    lengths = torch.randint(0, 64, (count,), device=device)
    offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    ids = torch.randint(0, 2000, (int(offsets[-1]),), device=device)
    weights, table = torch.rand(len(ids), device=device), torch.randn(2000, columns, device=device)
    out, block = torch.zeros(count, columns, device=device), 1 << (columns - 1).bit_length()
    forms = launched(bags.BAGS, (count,), ids, offsets, weights, table, out, columns, block, 16)
    how = {"mode": "sum", "per_sample_weights": weights}
    rival = lambda: torch.nn.functional.embedding_bag(ids, table, offsets[:-1], **how)  # noqa: E731
    return Family(f"sums of table rows {count}x{columns}", forms, out, rival, tolerance=1e-5)


def one_row(columns: int, device: str) -> Family:
    """Softmax of one row, by tiles of that row and of rows that are not there."""
    x = torch.randn(1, columns, device=device)
    out, forms = torch.zeros_like(x), {}
    for name in ("tile_of_rows", "chosen_rows"):
        kernel = kernels_of(short.SHORT)[name]
        sizes = (1, 8, 32) if name == "tile_of_rows" else (8,)
        forms |= {f"{name}, {n}": launch(kernel, (1,), x, out, 1, columns, n, columns) for n in sizes}
    return Family(f"softmax of one row of {columns}", forms, out, lambda: torch.softmax(x, 1), tolerance=1e-5)


def activation(columns: int, device: str) -> Family:
    """An activation of one row, by tiles of that row and of rows that are not there."""
    x = torch.randn(1, columns, device=device)
    out, kernel = torch.zeros_like(x), kernels_of(short.SHORT)["activation_of_rows"]
    forms = {f"tile of {n}": launch(kernel, (1, columns // 1024), x, out, 1, columns, n, 1024) for n in (1, 8, 32)}
    return Family(f"activation of one row of {columns}", forms, out, lambda: torch.nn.functional.silu(x))


def products_held_out(dtype: torch.dtype, size: int, device: str) -> Family:
    """Products in spellings that no rule was written for."""
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    out, grid = torch.zeros(size, size, device=device), (size // 64, size // 128)
    forms = launched(hold_outs.PRODUCTS, grid, a, b, out, size, size, size, 64, 128, 64)
    return Family(f"held out: product {str(dtype)[6:]} {size}", forms, out, lambda: torch.mm(a, b))


def vectors_held_out(rows: int, columns: int, device: str) -> Family:
    """A matrix times a vector in spellings that no rule was written for."""
    w, x, out = (torch.randn(*shape, device=device) for shape in ((rows, columns), (columns,), (rows,)))
    forms = launched(hold_outs.VECTORS, (rows // 32,), w, x, out, rows, columns, 32, 128)
    return Family(f"held out: matrix times vector {rows}x{columns}", forms, out, lambda: w @ x, tolerance=1e-4)


def ending_held_out(rows: int, columns: int, device: str) -> Family:
    """A matrix of any number of rows and columns times a vector, in spellings that no rule was written for."""
    w, x, out = (torch.randn(*shape, device=device) for shape in ((rows, columns), (columns,), (rows,)))
    forms = launched(more_hold_outs.ENDING, (-(-rows // 16),), w, x, out, rows, columns, 128)
    name = f"held out: matrix times vector that ends anywhere {rows}x{columns}"
    return Family(name, forms, out, lambda: w @ x, tolerance=1e-4)


def rows_held_out(rows: int, columns: int, device: str) -> Family:
    """Sums of squares of rows in spellings that no rule was written for."""
    x, out = torch.randn(rows, columns, device=device), torch.zeros(rows, device=device)
    forms = launched(hold_outs.ROWS, (rows // 16,), x, out, rows, columns, 16, 128)
    return Family(f"held out: sums of squares {rows}x{columns}", forms, out, lambda: x.square().sum(1), tolerance=1e-4)


def magnitudes_held_out(rows: int, columns: int, device: str) -> Family:
    """The largest magnitude of each row in spellings that no rule was written for."""
    x, out = torch.randn(rows, columns, device=device), torch.zeros(rows, device=device)
    forms = launched(more_hold_outs.MAGNITUDES, (rows // 8,), x, out, rows, columns, 1024)
    return Family(f"held out: largest magnitudes {rows}x{columns}", forms, out, lambda: x.abs().amax(1), tolerance=0.0)


def neighbours_held_out(rows: int, columns: int, device: str) -> Family:
    """Sums of neighbours in rows in spellings that no rule was written for."""
    x, out = torch.randn(rows, columns, device=device), torch.zeros(rows, columns, device=device)
    forms = launched(more_hold_outs.NEIGHBOURS, (rows,), x, out, rows, columns, 1024)
    weights = torch.tensor([[[1.0, 2.0, 1.0]]], device=device)
    rival = lambda: torch.nn.functional.conv1d(x[:, None], weights, padding=1)[:, 0]  # noqa: E731
    return Family(f"held out: neighbours in rows {rows}x{columns}", forms, out, rival, tolerance=1e-4)


def running_held_out(rows: int, columns: int, device: str) -> Family:
    """Running sums of rows in spellings that no rule was written for."""
    x, out = torch.randn(rows, columns, device=device), torch.zeros(rows, columns, device=device)
    forms = launched(more_hold_outs.RUNNING, (rows,), x, out, rows, columns, 1024)
    return Family(f"held out: running sums {rows}x{columns}", forms, out, lambda: torch.cumsum(x, 1), tolerance=1e-4)
