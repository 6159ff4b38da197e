"""Numbers of every kind on either side of sizes and indices: Python and numpy would take the integer that stands for
one while a kernel is traced. Each operation gives what Python gives, or is refused with its line."""

from __future__ import annotations

import linecache
from fractions import Fraction

import numpy as np
import pytest
import torch

import tilewright.hl as hl
from tilewright.hl import exc

OPERATIONS = ("+", "-", "*", "/", "//", "%", "<<", ">>", "&", "|", "^", "<", "<=", ">", ">=", "==", "!=")
CALLS = ("max", "min", "divmod")
SIDES = ("t.begin + 1", "t.id + 1", "x.size(0)")
INTEGERS = {"1": 1, "YES": True, "NO": False, "THREE": np.int64(3), "SMALL": np.int16(5), "BIT": np.bool_(True)}
FLOATS = {"HALF": 2.5, "SINGLE": np.float32(2.5), "DOUBLE": np.float64(1.5)}
SIZE = 12


def expressions(number, operations):
    for side in SIDES:
        side = f"({side})"
        for op in operations:
            yield f"{number} {op} {side}"
            yield f"{side} {op} {number}"
        for name in CALLS:
            call = f"{name}({number}, {side})"
            yield f"{call}[1]" if name == "divmod" else call


def traced(rows, names, static=False):
    """A kernel that stores each expression into a row of its own."""
    text = f"def kernel(x):\n    out = torch.empty([{len(rows)}, x.size(0)])\n"
    text += "    for t in hl.tile(x.size(0), block_size=4):\n"
    text += "".join(f"        out[{number}, t] = {row}\n" for number, row in enumerate(rows))
    text += "    return out\n"
    name = f"<numbers {hash(text)}>"
    linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
    scope = {"torch": torch, "hl": hl, **names}
    exec(compile(text, name, "exec"), scope)
    return hl.kernel(scope["kernel"], static_shapes=static)


class Tile:
    def __init__(self, begin):
        self.begin, self.id = begin, begin // 4


def as_python(row, names, x):
    """What Python gives, with numbers of numpy as Python's own: theirs wrap around at their width."""
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in names.items()}
    return [float(eval(row, {"x": x, "t": Tile(i // 4 * 4), **plain})) for i in range(SIZE)]


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("number", [*INTEGERS, *FLOATS])
def test_arithmetic_gives_what_python_gives(number, static):
    names, x = {**INTEGERS, **FLOATS}, torch.zeros(SIZE)
    del names["1"]
    operations = [op for op in OPERATIONS if number in INTEGERS or op not in ("<<", ">>", "&", "|", "^")]
    rows = [row for row in expressions(number, operations) if not (number == "NO" and row.endswith(("/ NO", "% NO")))]
    found = traced(rows, names, static)(x).tolist()
    for row, values in zip(rows, found, strict=True):
        assert values == pytest.approx(as_python(row, names, x), rel=1e-6), row


@pytest.mark.parametrize("row", ["2.5 << t.begin", "HALF & t.id", "t.begin ^ HALF", "x.size(0) >> 0.5"])
def test_bits_of_fractions_are_refused_with_their_line(row):
    with pytest.raises(exc.TorchOpTracingError, match="unsupported operand"):
        traced([row], FLOATS)(torch.zeros(SIZE))


@pytest.mark.parametrize(
    "row", ["THIRD * t.begin", "t.begin + THIRD", "1j * x.size(0)", "THIRD < t.id", "max(THIRD, t.id)"]
)
def test_numbers_of_other_kinds_are_refused_with_their_line(row):
    with pytest.raises(exc.UnsupportedPythonType, match="stands beside a size or an index") as found:
        traced([row], {"THIRD": Fraction(1, 3)})(torch.zeros(SIZE))
    assert row in str(found.value)


def test_shifts_by_sizes_do_not_fill_the_memory():
    """What stands for a size while a kernel is traced may be large, and the result of a shift has as many bits."""
    rows = ["1 << t.id", "(1 << x.size(0)) >> t.begin", "(t.begin * t.begin * t.begin) ** 3", "1 << (t.id * 1000 % 7)"]
    x = torch.zeros(SIZE)
    found = traced(rows, {})(x).tolist()
    assert found == [as_python(row, {}, x) for row in rows]
    assert traced(["1 << x.size(0)"], {})(torch.zeros(1 << 20)).shape == (1, 1 << 20)


FUNCTIONS = """
F.hardtanh(y, -n, n)|y.clamp(-n, n)|y.clip(max=n)|F.threshold(y, n, 0.0)|F.leaky_relu(y, n)|F.elu(y, n)
F.celu(y, n)|torch.add(y, y, alpha=n)|torch.sub(y, y, alpha=n)|torch.rsub(y, n)|torch.lerp(y, 2 * y, n)
torch.addcmul(y, y, y, value=n)|torch.addcdiv(y, y, y, value=n)|F.softplus(y, n, 20)|F.hardshrink(y, n)
F.softshrink(y, n)|y.pow(n)|torch.float_power(y, n)|torch.xlogy(y, n)|torch.xlogy(n, y)
torch.special.xlog1py(y, n)|torch.logit(y, n)|torch.copysign(y, n)|torch.fmod(9 * y, n)
torch.remainder(9 * y, n)|torch.div(9 * y, n, rounding_mode="floor")|torch.true_divide(n, y)
y.masked_fill(y > 0.5, n)|torch.where(y > 0.5, y, n)|torch.clamp_min(y, n)|torch.nan_to_num(y, n)
F.huber_loss(y, 2 * y, delta=n, reduction="none")|F.smooth_l1_loss(y, 9 * y, beta=n, reduction="none")
torch.isclose(y, 2 * y, atol=n)|torch.log(torch.full_like(y, n))
torch.exp(torch.full([], n, dtype=torch.float32)) + y|torch.sqrt(torch.full([], 3, dtype=torch.float32) * n) + y
torch.exp(torch.full([], 3, dtype=torch.float32) - torch.full([], 2, dtype=torch.float32)) + y * n
torch.tanh(-torch.full([], -3, dtype=torch.float32)) * n * y|torch.hypot(y, torch.full_like(y, n))
"""


@pytest.mark.parametrize("given", ["a size", "a number"])
@pytest.mark.parametrize("row", [row for line in FUNCTIONS.split("\n") for row in line.split("|") if row])
def test_functions_of_a_size(row, given):
    argument = "x.size(1)" if given == "a size" else "n"
    text = f"def kernel(x, n):\n    out, n = torch.empty_like(x), {argument}\n    for t in hl.tile(x.size(0)):\n"
    text += f"        y = x[t, :]\n        out[t, :] = {row}\n    return out\n"
    name = f"<function {hash(text)}>"
    linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
    scope = {"torch": torch, "hl": hl, "F": torch.nn.functional}
    exec(compile(text, name, "exec"), scope)
    kernel = hl.kernel(scope["kernel"], static_shapes=False)
    for columns in (5, 3):
        x = torch.rand(6, columns, generator=torch.Generator().manual_seed(columns)) + 0.1
        expected = eval(row, {**scope, "y": x.clone(), "n": columns})
        torch.testing.assert_close(kernel(x, columns), expected.float(), rtol=1e-4, atol=1e-5, equal_nan=True)
