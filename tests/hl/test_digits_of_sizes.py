"""Functions in C read the digits of an integer, and those of a size are invented while a kernel is traced: each such
function computes with the symbol or refuses it."""

from __future__ import annotations

import linecache
import math

import pytest
import torch

import tilewright.hl as hl
from tilewright.hl import exc

DYNAMIC = {"static_shapes": False, "config": hl.Config(block_sizes=[4])}


def kernel_of(expression):
    """A kernel that multiplies by an expression of `x`."""
    name = f"<digits {expression}>"
    text = (
        "def scaled(x):\n    out = torch.empty_like(x)\n    for tile in hl.tile(x.size(0)):\n"
        f"        out[tile] = x[tile] * ({expression})\n    return out\n"
    )
    names = {"torch": torch, "hl": hl, "math": math, "gcd": math.gcd, "helped": helped}
    linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
    exec(compile(text, name, "exec"), names)
    return hl.kernel(names["scaled"], **DYNAMIC)


def helped(n):
    return divmod(abs(n), 3)[0]


@pytest.mark.parametrize("expression", [
    "math.gcd(x.size(0), 12)", "gcd(12, x.size(0))", "math.lcm(x.size(0), 4)", "math.isqrt(x.size(0))",
    "math.log(x.size(0))", "math.log2(x.size(0))", "math.log10(x.size(0))", "math.exp(x.size(0))",
    "math.comb(x.size(0), 2)", "math.factorial(x.size(0))", "math.ldexp(1.0, x.size(0))",
    "bin(x.size(0)).count('1')", "int(hex(x.size(0)), 16)", "ord(chr(x.size(0)))",
    "x.size(0).bit_length()", "x.size(0).bit_count()", "x.size(0).to_bytes(4, 'little')[0]",
    "x.size(0).as_integer_ratio()[0]", "math.floor(x.size(0))",
    "math.gcd(tile.begin, 4)", "math.log2(tile.block_size)", "tile.begin.bit_length()", "math.exp(tile.id)",
])  # fmt: skip
def test_what_reads_digits_is_refused(expression):
    with pytest.raises(exc.SizeUsedAsNumber, match="not known while the kernel is traced") as found:
        kernel_of(expression)(torch.ones(16))
    assert "hl.specialize" in str(found.value)


@pytest.mark.parametrize("expression", [
    "divmod(x.size(0), 3)[0]", "divmod(x.size(0), 3)[1]", "divmod(100, x.size(0))[1]", "x.size(0).__divmod__(5)[1]",
    "abs(x.size(0) - 20)", "+x.size(0)", "x.size(0).real", "x.size(0).imag", "x.size(0).numerator",
    "x.size(0).denominator", "x.size(0).conjugate()", "pow(x.size(0), 2, 7)", "math.prod(x.shape)", "helped(x.size(0))",
    "x.size(0) ** 2", "2.0 ** (x.size(0) - 12)",
])  # fmt: skip
@pytest.mark.parametrize("size", [16, 15])
def test_what_computes_gives_what_python_gives(expression, size):
    x = torch.ones(size)
    expected = eval(expression, {"x": x, "math": math, "helped": helped})
    assert kernel_of(expression)(x).tolist() == pytest.approx([float(expected)] * size)


def test_powers_by_the_number_of_a_tile_want_floats():
    with pytest.raises(exc.SizeUsedAsNumber, match=r"2\.0 \*\* tile\.id") as found:
        kernel_of("2 ** tile.id")(torch.ones(16))
    assert "part of a block" not in str(found.value)
    assert kernel_of("2.0 ** tile.id")(torch.ones(12)).tolist() == [1.0] * 4 + [2.0] * 4 + [4.0] * 4


@pytest.mark.parametrize(
    "expression", ["2 ** tile", "divmod(tile, 2)[0]", "abs(tile)", "tile & 3", "tile << 1", "~tile"]
)
def test_a_tile_is_no_number(expression):
    with pytest.raises(exc.IncorrectTileUsage, match=r"tile\.index"):
        kernel_of(expression)(torch.ones(16))
