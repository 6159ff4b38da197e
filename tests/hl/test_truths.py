"""Truths that are known late: `and`, `or`, `not`, chained comparisons, conditional expressions, membership."""

from __future__ import annotations

import linecache

import pytest
import torch

from tilewright import hl
from tilewright.hl import exc

MODES = ("compiled", "eager", "tiled")


def run(kernel, mode, *args, **config):
    """A call, compiled or as one of the references."""
    bound = kernel.bind(args)
    if config:
        bound.set_config(hl.Config(**config))
    if mode == "compiled":
        return bound(*args)
    return bound.run_ref(*args, mode=hl.RefMode.TILED if mode == "tiled" else hl.RefMode.EAGER)


def same(kernel, python, arguments, **config):
    """A kernel in every mode does what `python` does for each of the arguments."""
    for args in arguments:
        for mode in MODES:
            found = run(kernel, mode, *args, **config)
            torch.testing.assert_close(found, python(*args), msg=lambda text, mode=mode: f"{mode}: {text}")


@hl.kernel
def between(x, low: int, high: int):
    out = torch.empty_like(x)
    for i in hl.grid(x.size(0)):
        v = x[i]
        if low < v <= high and not v == 5:
            out[i] = v
        elif v <= low or v == 5:
            out[i] = -v
        else:
            out[i] = 0.0
    return out


def test_conditions_of_values_and_number_arguments():
    def python(x, low, high):
        values = [v if low < v <= high and v != 5 else -v if v <= low or v == 5 else 0.0 for v in x.tolist()]
        return torch.tensor(values)

    x = torch.arange(10.0)
    same(between, python, [(x, 2, 7), (x, 7, 2), (x, -1, 100)])


@pytest.mark.parametrize("static", [True, False])
def test_conditions_of_arguments_sizes_and_places(static):
    @hl.kernel(static_shapes=static)
    def kernel(x, k: int, s: float):
        out = torch.zeros([x.size(0)])
        for t in hl.tile(x.size(0)):
            v = x[t]
            if t.begin == 0 and x.size(0) > 3:
                v = v + 1
            if 3 < k < 7 or s > 2.0:
                v = v * 2
            if not (x.size(0) > 3 and x.size(0) < 9):
                v = v - 1
            if k:
                v = v + 0.5
            out[t] = v
        return out

    def python(x, k, s):
        out = x.clone()
        if x.size(0) > 3:
            out[:4] += 1
        out = out * 2 if 3 < k < 7 or s > 2.0 else out
        out = out - 1 if not 3 < x.size(0) < 9 else out
        return out + 0.5 if k else out

    for k, s in ((0, 0.5), (5, 0.5), (7, 0.5), (7, 3.0)):
        for n in (2, 6, 11):
            x = torch.randn(n)
            for mode in ("compiled", "tiled"):
                torch.testing.assert_close(run(kernel, mode, x, k, s, block_sizes=[4]), python(x, k, s))


@hl.kernel
def lazily(x, counter, limit: int):
    out = torch.empty_like(x)
    for i in hl.grid(x.size(0)):
        if x[i] > limit and hl.atomic_add(counter, [0], 1) >= 0:
            out[i] = 1.0
        else:
            out[i] = 1.0 if x[i] < 0 or hl.atomic_add(counter, [1], 1) < 0 else 2.0
    return out


@pytest.mark.parametrize("mode", MODES)
def test_the_second_operand_is_computed_where_the_first_decides_so(mode):
    x, counter = torch.tensor([-1.0, 2.0, 5.0, 0.0, 9.0]), torch.zeros(2, dtype=torch.int32)
    torch.testing.assert_close(run(lazily, mode, x, counter, 1), torch.tensor([1.0, 1.0, 1.0, 2.0, 1.0]))
    assert counter.tolist() == [3, 1]


@hl.kernel
def walked(x, n: int):
    out = torch.empty([x.size(0)], dtype=torch.int64)
    for i in hl.grid(x.size(0)):
        at = 0
        while at < n and not x[i, at] < 0:
            at += 2 if x[i, at] > 1 and at + 1 < n else 1
        out[i] = at
    return out


def test_conditions_of_while_and_values_that_are_carried():
    def python(x, n):
        found = []
        for row in x.tolist():
            at = 0
            while at < n and not row[at] < 0:
                at += 2 if row[at] > 1 and at + 1 < n else 1
            found.append(at)
        return torch.tensor(found)

    torch.manual_seed(0)
    x = torch.randn(12, 9) + 1
    same(walked, python, [(x, 9), (x, 4), (x, 0)])


@hl.kernel
def chosen(x, y, flags):
    out = torch.empty_like(x)
    counts = torch.empty([x.size(0)], dtype=torch.int32)
    for i in hl.grid(x.size(0)):
        for t in hl.tile(x.size(1)):
            mine = x[i, t] if flags[i] > 1 else y[i, t] * 2 if flags[i] else 0.0
            a, b = (mine, 1.0) if flags[i] != 2 else (mine + 1, 2)
            out[i, t] = a * b
        counts[i] = 3 if flags[i] in (0, 2) else flags[i]
    return out, counts


def test_conditional_expressions_of_tiles_numbers_and_tuples():
    def python(x, y, flags):
        rows = [[0.0 * x[i], y[i] * 2, (x[i] + 1) * 2, x[i]][f] for i, f in enumerate(flags.tolist())]
        counts = [3 if f in (0, 2) else f for f in flags.tolist()]
        return torch.stack(rows), torch.tensor(counts, dtype=torch.int32)

    flags = torch.tensor([0, 1, 2, 3, 1], dtype=torch.int32)
    same(chosen, python, [(torch.randn(5, 20), torch.randn(5, 20), flags)], block_sizes=[8])


@hl.kernel
def first_of(x, y):
    out = torch.empty_like(x)
    seen = torch.empty(x.shape, dtype=torch.bool)
    for i in hl.grid(x.size(0)):
        out[i] = x[i] or y[i] or 7
        seen[i] = bool(x[i] and y[i]) or (any(x[i] == v for v in (3.0, 4.0)) and not all([y[i] > 0, x[i] < 4]))
    return out, seen


def test_values_of_and_and_or_are_the_operands():
    def python(x, y):
        pairs = list(zip(x.tolist(), y.tolist(), strict=True))
        out = torch.tensor([a or b or 7.0 for a, b in pairs])
        seen = [bool(a and b) or (any(a == v for v in (3.0, 4.0)) and not all([b > 0, a < 4])) for a, b in pairs]
        return out, torch.tensor(seen)

    x, y = torch.tensor([0.0, 0.0, 3.0, 4.0, 5.0]), torch.tensor([0.0, 2.0, 0.0, 0.0, 1.0])
    same(first_of, python, [(x, y)])


@hl.kernel
def summed(x, ends):
    out = torch.empty([x.size(0)])
    for rows in hl.tile(x.size(0)):
        state = {"sum": hl.zeros([rows]), "taken": 0}
        for columns in hl.tile(x.size(1)):
            keep = columns.begin >= ends[0] and columns.end <= ends[1]
            state["sum"] = state["sum"] + (x[rows, columns].sum(-1) if keep else 0)
            state["taken"] += 1 if keep or state["taken"] > 1 else 0
        out[rows] = state["sum"] + state["taken"]
    return out


def test_choices_in_loops_that_carry_state():
    def python(x, ends):
        total, taken = torch.zeros(x.size(0)), 0
        for begin in range(0, x.size(1), 8):
            end = min(begin + 8, x.size(1))
            keep = begin >= ends[0] and end <= ends[1]
            total = total + (x[:, begin:end].sum(-1) if keep else 0)
            taken += 1 if keep or taken > 1 else 0
        return total + taken

    x = torch.randn(6, 60)
    for ends in ([0, 60], [9, 41], [100, 0]):
        args = x, torch.tensor(ends)
        for mode in ("compiled", "tiled"):
            torch.testing.assert_close(run(summed, mode, *args, block_sizes=[4, 8]), python(*args))


def test_two_comparisons_are_no_branch():
    code = between.bind((torch.zeros(4), 1, 2)).to_code()
    assert " & " in code and code.count("  if ") == 2, code


def test_block_sizes_decide_for_each_configuration():
    @hl.kernel
    def kernel(x, k: int):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            wide = t.block_size > 16 and k > 2
            if not 4 < t.block_size < 100 or wide:
                out[t] = x[t] + 1
            else:
                out[t] = x[t] * 2
        return out

    x = torch.randn(200)
    for block, k in ((4, 1), (8, 3), (32, 3), (32, 1), (128, 0)):
        more = block <= 4 or block >= 100 or (block > 16 and k > 2)
        torch.testing.assert_close(run(kernel, "compiled", x, k, block_sizes=[block]), x + 1 if more else x * 2)
        code = kernel.bind((x, k)).to_code(hl.Config(block_sizes=[block]))
        assert ("  if " in code) == (block == 32), code


def test_functions_of_the_kernel():
    @hl.kernel
    def kernel(x):
        def clipped(v, low):
            return low if v < low or v > 2 else v

        absolute = lambda v: -v if v < 0 else v
        out = torch.empty_like(x)
        for i in hl.grid(x.size(0)):
            out[i] = absolute(clipped(x[i], -1))
        return out

    x = torch.tensor([-3.0, -0.5, 0.5, 1.5, 4.0])
    torch.testing.assert_close(kernel(x), torch.tensor([1.0, 0.5, 0.5, 1.5, 1.0]))


# --- errors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["a > 0 and b > 0", "0 < a < b", "not a > 0", "1 if a > 0 else 2", "a > 0 or b > 0"])
def test_tiles_of_several_elements_are_no_conditions(form):
    text = "def kernel(x, y):\n    out = torch.empty_like(x)\n    for t in hl.tile(x.size(0)):\n"
    text += "        a, b = x[t], y[t]\n"
    text += f"        out[t] = {form}\n    return out\n"
    kernel = from_text(text)
    with pytest.raises(exc.ControlFlowTensorMismatch, match=r"(?s)each element.*torch\.where.*&"):
        kernel(torch.zeros(8), torch.zeros(8))


def from_text(text):
    name = f"<{hash(text)}>"
    linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
    names = {"torch": torch, "hl": hl}
    exec(compile(text, name, "exec"), names)
    return hl.kernel(names["kernel"])


def plainly(v):
    if v > 0:
        return v
    return -v


def test_functions_of_others_say_what_to_write():
    @hl.kernel
    def kernel(x):
        out = torch.empty_like(x)
        for i in hl.grid(x.size(0)):
            out[i] = plainly(x[i])
        return out

    with pytest.raises(exc.Error, match=r"(?s)truth of a value.*torch\.where"):
        kernel(torch.zeros(4))


def test_arms_of_two_types():
    @hl.kernel
    def kernel(x, n):
        out = torch.empty_like(x)
        for i in hl.grid(x.size(0)):
            out[i] = x[i] if x[i] > 0 else n[i]
        return out

    with pytest.raises(exc.ControlFlowTensorMismatch, match="the chosen value is float32"):
        kernel(torch.zeros(4), torch.zeros(4, dtype=torch.int32))


def test_truths_of_operands_of_different_types():
    """Where only the truth counts, a bool and a number may stand side by side."""

    @hl.kernel
    def kernel(x, k: int):
        out = torch.empty([x.size(0)])
        for i in hl.grid(x.size(0)):
            count = 0
            for j in hl.grid(x.size(1)):
                if not k > 1 or count:
                    count += 1
                if (x[i, j] if k else count) and (count or x[i, j] > 0):
                    count += 2
            out[i] = count
        return out

    def python(x, k):
        found = []
        for row in x.tolist():
            count = 0
            for v in row:
                count += 1 if not k > 1 or count else 0
                count += 2 if (v if k else count) and (count or v > 0) else 0
            found.append(float(count))
        return torch.tensor(found)

    torch.manual_seed(1)
    x = torch.randn(5, 4).relu() - 0.3 * (torch.rand(5, 4) > 0.5)
    same(kernel, python, [(x, 0), (x, 1), (x, 2)])


def test_conditional_expressions_inside_of_conditions():
    """At any depth only the truth of the chosen operand counts: places, numbers and comparisons may be mixed."""

    @hl.kernel
    def kernel(x, k: int):
        out = torch.empty([x.size(0)])
        for i in hl.grid(x.size(0)):
            count = 0
            for j in hl.grid(x.size(1)):
                if (j if k >= 1 else x[i, j] > 0) if (j in (0, 2) if k != 1 else k > 1) else k > 1:
                    count += 1
                while count < 9 and ((x[i, j] if j else j) if k else (j == 1 if count else j)):
                    count += 3
                count += 1 if not (k if j else (x[i, j] > 0 if k else j)) else 2
            out[i] = count
        return out

    def python(x, k):
        found = []
        for row in x.tolist():
            count = 0
            for j, v in enumerate(row):
                count += bool((j if k >= 1 else v > 0) if (j in (0, 2) if k != 1 else k > 1) else k > 1)
                while count < 9 and ((v if j else j) if k else (j == 1 if count else j)):
                    count += 3
                count += 1 if not (k if j else (v > 0 if k else j)) else 2
            found.append(float(count))
        return torch.tensor(found)

    torch.manual_seed(2)
    same(kernel, python, [(torch.randn(5, 4).relu(), k) for k in (0, 1, 2)])


@pytest.mark.parametrize("static", [True, False])
def test_truths_of_operands_of_different_types_in_choices(static):
    @hl.kernel(static_shapes=static)
    def kernel(x, n: int):
        out = torch.zeros([x.size(0)])
        for row in hl.grid(x.size(0)):
            total = 0.0
            for column in hl.grid(x.size(1)):
                if (n > 3 and x.size(1)) if x[row, column] > 0 else column > 1:
                    total = total + 1
                if not ((n if row > 1 else x[row, column] > 1) or (x.size(0) if column else row)):
                    total = total + 10
                if ((n or x[row, column]) if column > 2 else (row and n > 3)) and not (column if n else row > 2):
                    total = total + 100
            out[row] = total
        return out

    def python(x, n):
        sums = []
        for row, values in enumerate(x.tolist()):
            total = 0.0
            for column, v in enumerate(values):
                total += 1 if ((n > 3 and len(values)) if v > 0 else column > 1) else 0
                total += 10 if not ((n if row > 1 else v > 1) or (len(x) if column else row)) else 0
                last = ((n or v) if column > 2 else (row and n > 3)) and not (column if n else row > 2)
                total += 100 if last else 0
            sums.append(total)
        return torch.tensor(sums)

    x = torch.tensor([[0.0, 2.0, -1.0, 0.5], [1.5, 0.0, 0.0, -2.0], [-1.0, 1.0, 3.0, 0.0], [0.2, -0.1, 0.0, 4.0]])
    same(kernel, python, [(x, 0), (x, 5)])
