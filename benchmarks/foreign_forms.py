"""Families of spellings that were written without a look at the rules (`foreign_*.py` of the tests), with rivals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch

from benchmarks.form_family import Family, launch, launched
from tests.decisions import foreign_planes, foreign_products, foreign_rows, foreign_vectors
from tests.decisions.harness import Spelling

_EXACT = 0.0  # tolerances, as parts of the largest element
_F32 = 1e-4


def _up(size: int) -> int:
    """The next power of two."""
    return 1 << (size - 1).bit_length()


def _launched(spellings: list[Spelling], grids: Mapping[str, tuple[int, ...]], *arguments: Any) -> dict[str, Any]:
    """Launches of spellings, each with the grid of its name, or with that of the empty one."""
    return {s.name: launch(s.fn, grids.get(s.name, grids[""]), *arguments) for s in spellings}


def products(m: int, n: int, k: int, device: str) -> Family:
    """Products of f32."""
    a, b, out = (torch.randn(*shape, device=device) for shape in ((m, k), (k, n), (m, n)))
    grid, wide = (-(-m // 32), -(-n // 64)), foreign_products.PRODUCTS
    spellings = [s for s in wide if device == "cpu" or s.name != "product_broadcast_sum"]  # a tile of 65,536 products
    forms = launched(spellings, grid, a, b, out, m, n, k, 32, 64, 32)
    return Family(f"foreign: product f32 {m}x{n}x{k}", forms, out, lambda: a @ b, tolerance=1e-3)


def layers(m: int, n: int, k: int, device: str) -> Family:
    """Products of bf16 with a bias and `relu`; sizes are multiples of the tiles."""
    a, w, bias, out = (torch.randn(*shape, device=device).bfloat16() for shape in ((m, k), (n, k), (n,), (m, n)))
    size = 128 if device == "cuda" else 64
    grids = {"": ((m // size) * (n // size),), "layer_persistent": (132 if device == "cuda" else 3,)}
    forms = _launched(foreign_products.LAYERS, grids, a, w, bias, out, m, n, k, size, size, 64)
    rival = lambda: torch.relu(torch.nn.functional.linear(a, w, bias))  # noqa: E731
    return Family(f"foreign: layer bf16 {m}x{n}x{k}", forms, out, rival)


def bytes_(m: int, n: int, k: int, device: str) -> Family:
    """Products of int8; PyTorch's on a GPU wants sizes that are multiples of eight."""
    a, b = (torch.randint(-128, 128, shape, device=device, dtype=torch.int8) for shape in ((m, k), (k, n)))
    out, grid = torch.zeros(m, n, device=device, dtype=torch.int32), (-(-m // 64), -(-n // 64))
    forms = launched(foreign_products.BYTES, grid, a, b, out, m, n, k, 64, 64, 64)
    whole = device == "cpu" or not (m | n | k) % 8
    rival = (lambda: torch._int_mm(a, b)) if whole else lambda: (a.float() @ b.float()).int()
    return Family(f"foreign: product int8 {m}x{n}x{k}", forms, out, rival, tolerance=_EXACT)


def batches(count: int, size: int, device: str) -> Family:
    """Products of f16, one for each of a batch; sizes are multiples of the tiles."""
    a, b, out = (torch.randn(count, size, size, device=device).half() for _ in range(3))
    tiles = (size // 64) ** 2
    grids = {"": (tiles, count // 4), "batch_grid": (tiles, count)}
    forms = _launched(foreign_products.BATCHES, grids, a, b, out, count, size, size, size, 64, 64, 32)
    return Family(f"foreign: batch of products f16 {count}x{size}", forms, out, lambda: torch.bmm(a, b))


def vectors(m: int, k: int, rows: int, columns: int, device: str) -> Family:
    """A matrix times a vector, in tiles of rows x columns."""
    a, x, out = (torch.randn(*shape, device=device) for shape in ((m, k), (k,), (m,)))
    forms = launched(foreign_vectors.VECTORS, (-(-m // rows),), a, x, out, m, k, rows, columns)
    name = f"foreign: matrix times vector {m}x{k}, {rows}x{columns}"
    return Family(name, forms, out, lambda: a @ x, tolerance=_F32)


def across(n: int, k: int, columns: int, rows: int, device: str) -> Family:
    """A vector times a matrix, in tiles of rows x columns."""
    a, x, out = (torch.randn(*shape, device=device) for shape in ((k, n), (k,), (n,)))
    forms = launched(foreign_vectors.ACROSS, (-(-n // columns),), a, x, out, n, k, columns, rows)
    return Family(f"foreign: vector times matrix {k}x{n}, {rows}x{columns}", forms, out, lambda: x @ a, tolerance=_F32)


def halves(m: int, k: int, rows: int, columns: int, device: str) -> Family:
    """A matrix times a vector in bf16, with sums in f32."""
    a, x, out = (torch.randn(*shape, device=device).bfloat16() for shape in ((m, k), (k,), (m,)))
    forms = launched(foreign_vectors.HALVES, (-(-m // rows),), a, x, out, m, k, rows, columns)
    return Family(f"foreign: matrix times vector bf16 {m}x{k}, {rows}x{columns}", forms, out, lambda: a @ x)


def of_rows(
    spellings: list[Spelling],
    what: str,
    of: Callable[[torch.Tensor], torch.Tensor],
    sizes: tuple[int, int, int],
    device: str,
    dtype: torch.dtype = torch.float32,
    tolerance: float = _F32,
) -> Family:
    """Something of each row of a matrix.

    Args:
        spellings: of the family.
        what: its name.
        of: the same by torch.
        sizes: rows and columns of the matrix, and columns of a piece.
        device: where.
        dtype: of the matrix; a third of its elements are zero.
        tolerance: 0 where the result is integers.
    """
    m, n, piece = sizes
    x = torch.randn(m, n, device=device).to(dtype)
    x = torch.where(torch.rand(m, n, device=device) < 0.3, 0, x)
    out = torch.zeros(m, device=device, dtype=torch.float32 if tolerance else torch.int32)
    forms = launched(spellings, (-(-m // 4),), x, out, m, n, 4, piece, _up(n))
    name = f"foreign: {what} {str(dtype)[6:]} {m}x{n}, {piece}"
    return Family(name, forms, out, lambda: of(x), tolerance=tolerance)


def columns(m: int, n: int, device: str) -> Family:
    """Sums of columns; descriptors want rows of a multiple of four."""
    x, out = torch.randn(m, n, device=device), torch.zeros(n, device=device)
    forms = launched(foreign_rows.COLUMNS, (-(-n // 128),), x, out, m, n, 16, 128, _up(n))
    return Family(f"foreign: sums of columns {m}x{n}", forms, out, lambda: x.sum(0), tolerance=_F32)


def planes(count: int, rows: int, columns_: int, device: str) -> Family:
    """Sums of planes, four in a program, eight rows at a time."""
    x, out = torch.randn(count, rows, columns_, device=device), torch.zeros(count, device=device)
    forms = launched(foreign_planes.PLANES, (-(-count // 4),), x, out, count, rows, columns_, 4, 8, _up(columns_))
    name = f"foreign: sums of planes {count}x{rows}x{columns_}"
    return Family(name, forms, out, lambda: x.sum((1, 2)), tolerance=_F32)


def blocks(count: int, rows: int, columns_: int, device: str) -> Family:
    """Sums of four planes each, which are a multiple of four."""
    x, out = torch.randn(count, rows, columns_, device=device), torch.zeros(count // 4, device=device)
    sizes = 4, _up(rows), _up(columns_)
    forms = launched(foreign_planes.BLOCKS, (count // 4,), x, out, count, rows, columns_, *sizes)
    name = f"foreign: sums of four planes {count}x{rows}x{columns_}"
    return Family(name, forms, out, lambda: x.reshape(count // 4, -1).sum(1), tolerance=_F32)


def forms_(count: int, device: str) -> Family:
    """A tensor of 16 x 16 x 64 times three vectors, two of which change."""
    x, z, w = (torch.randn(*shape, device=device) for shape in ((count, 16), (count, 16), (16, 16, 64)))
    v, out = torch.randn(64, device=device), torch.zeros(count, device=device)
    forms = launched(foreign_planes.FORMS, (count,), x, w, z, v, out, count, 16, 16, 64)
    rival = lambda: (x @ (w @ v) * z).sum(1)  # noqa: E731
    return Family(f"foreign: trilinear forms {count}x16x16x64", forms, out, rival, tolerance=_F32)


def families(device: str, scale: int) -> Iterator[Callable[[], Family]]:
    """Makers of all families; those of the most rows have `scale` times as many."""
    for size in ((300, 500, 700), (512, 512, 512)):
        yield partial(products, size[0] * scale, size[1] * scale, size[2], device)
    yield partial(layers, 512 * scale, 512 * scale, 1024, device)
    for size in ((300, 500, 700), (512, 512, 1024)):
        yield partial(bytes_, size[0] * scale, size[1] * scale, size[2], device)
    yield partial(batches, 8 * scale, 256, device)
    for m, k, rows, piece in ((1000, 777, 8, 128), (1024, 1024, 16, 256), (515, 3001, 4, 512)):
        yield partial(vectors, m * scale, k, rows, piece, device)
    yield partial(across, 1000 * scale, 777, 64, 16, device)
    yield partial(across, 1024 * scale, 1024, 256, 32, device)
    yield partial(halves, 1000 * scale, 777, 8, 128, device)
    yield partial(halves, 1024 * scale, 1024, 16, 128, device)
    of, half = foreign_rows, torch.float16
    rows: list[tuple[Any, ...]] = [
        (of.VARIANCES, "variances of rows", lambda x: x.var(1, correction=0)),
        (of.MOMENTS, "variances of rows by moments", lambda x: x.var(1, correction=0)),
        (of.LOGARITHMS, "logsumexp of rows", lambda x: x.logsumexp(1)),
        (of.PLACES, "argmax of rows", lambda x: x.argmax(1), torch.float32, _EXACT),
        (of.LENGTHS, "lengths of rows", lambda x: x.norm(dim=1)),
        (of.LENGTHS, "lengths of rows", lambda x: x.float().norm(dim=1), half),
        (of.COUNTS, "counts of rows", lambda x: (x != 0).sum(1), torch.float32, _EXACT),
    ]
    for sizes in ((1000 * scale, 777, 256), (256 * scale, 4096, 512)):
        for spellings, what, by, *more in rows:
            yield partial(of_rows, spellings, what, by, sizes, device, *more)
    yield partial(columns, 777, 1000 * scale, device)
    for count, m, n in ((256, 28, 33), (256, 32, 64)):
        yield partial(planes, count * scale, m, n, device)
        yield partial(blocks, count * scale, m, n, device)
    yield partial(forms_, 64 * scale, device)
