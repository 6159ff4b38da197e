"""Mistakes around functions that are handed over: reductions, grids, heuristics, assembly; what each message says."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tilewright
import tilewright.language as tl
from tilewright.base.errors import CompilationError, UnknownOptionError


@tilewright.jit
def left(a, b):
    return a


@tilewright.jit
def nothing(a, b):
    c = a + b


@tilewright.jit
def sometimes(a, b):
    if a > b:
        return a


def by_name(x):
    tl.reduce(tl.load(x + tl.arange(0, 8)), 0, "max")


def swapped(x):
    tl.reduce(tl.load(x + tl.arange(0, 8)), left, 0)


def without_result(x):
    tl.store(x, tl.reduce(tl.load(x + tl.arange(0, 8)), 0, nothing))


def of_two_tiles(x):
    tl.store(x, tl.max(tl.load(x + tl.arange(0, 8)), 0.0))


def shape_of_a_pointer(x):
    tl.store(x, x.shape[0])


def length_of_a_pointer(x):
    tl.store(x, len(x))


def mean(x):
    tl.store(x, tl.mean(tl.load(x + tl.arange(0, 8))))


def method_of_numpy(x):
    tl.store(x, tl.load(x).astype(tl.float32))


def thread(x):
    tl.store(x, tl.thread_id(0))


def operand_alone(x):
    tl.store(x, tl.inline_asm_elementwise("neg.f32 $0, $1;", "=f,f", tl.load(x), tl.float32, True, 1))


def type_of_torch(x):
    tl.store(x, tl.inline_asm_elementwise("neg.f32 $0, $1;", "=f,f", [tl.load(x)], torch.float32, True, 1))


def too_many_letters(x):
    tl.store(x, tl.inline_asm_elementwise("neg.f32 $0, $1;", "=f,f,f", [tl.load(x)], tl.float32, True, 1))


@pytest.mark.parametrize(
    ("function", "message", "hint"),
    [
        (by_name, "combines elements with a function, got 'max'", "combine_fn\\(a, b\\) is decorated"),
        (swapped, "axis must be in \\[-1, 1\\), got JITFunction", "a function comes behind it"),
        (without_result, "combine function nothing returns nothing", "takes 2n scalars and returns n"),
        (of_two_tiles, "axis must be in \\[-1, 1\\), got 0.0", "tl.maximum\\(x, y\\) compares two tiles"),
        (shape_of_a_pointer, "index 0 is out of range", "pass sizes as arguments"),
        (length_of_a_pointer, "len\\(\\) of a tensor of type pointer", "pass sizes as arguments"),
        (mean, "tl has no attribute 'mean'", "write tl.sum\\(x, axis\\) / n"),
        (method_of_numpy, "no attribute 'astype'", "write x.to\\(tl.float32\\)"),
        (thread, "no attribute 'thread_id'", "write tl.arange\\(0, BLOCK\\): a program has no threads"),
        (operand_alone, "takes its operands as a list", "write \\[x\\]"),
        (type_of_torch, "needs a data type such as tl.float32, not torch.float32", "write tl.float32"),
        (too_many_letters, "constraints for 2 operands", "one for each register, results first"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_messages(function, message, hint):
    with pytest.raises(CompilationError, match=message) as error:
        tilewright.jit(function)[(1,)](np.zeros(8, np.float32))
    error.match(f"hint: .*{hint}")
    assert function.__name__ in str(error.value)


def test_a_tuple_among_numbers():
    @tilewright.jit
    def kernel(x, n):
        tl.store(x, 1.0, tl.program_id(0) < n)

    with pytest.raises(CompilationError, match="hint: take an element of the tuple, n\\[0\\]"):
        kernel[(1,)](np.zeros(8, np.float32), (8,))


def test_names_that_a_launch_has_not():
    @tilewright.jit
    def kernel(x, BLOCK: tl.constexpr):
        tl.store(x + tl.arange(0, BLOCK), 1.0)

    x = np.zeros(8, np.float32)
    with pytest.raises(UnknownOptionError, match="no argument 'BLOCK_SIZE'\nhint: .* ask for x, BLOCK"):
        kernel[lambda meta: (meta["BLOCK_SIZE"],)](x, BLOCK=8)
    with pytest.raises(KeyError, match="no argument 'n'"):
        tilewright.heuristics({"BLOCK": lambda args: args["n"]})(kernel)[(1,)](x)
    kernel[lambda meta: (meta.get("SPLIT", 1),)](x, BLOCK=8)
    assert (x == 1).all()


def test_functions_that_end_without_a_value_on_some_ways():
    @tilewright.jit
    def kernel(x, n):
        tl.store(x, sometimes(n, 3.0))

    with pytest.warns(UserWarning, match="sometimes returns a value on some ways and ends without one on others"):
        kernel[(1,)](np.zeros(1, np.float32), 5.0)
