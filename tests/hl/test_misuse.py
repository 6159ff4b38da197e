"""Kernels in unusual places: redefined, called by threads and forked children, with outputs that are inputs."""

from __future__ import annotations

import linecache
import os
import threading

import pytest
import torch

from tilewright import hl
from tilewright.base.errors import DeviceError
from tilewright.launch import tracer_slot

CELL = """
@hl.kernel(config=hl.Config(block_sizes=[32]))
def kernel(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * {number}
    return out
"""


def cell(name, number):
    """A cell of a notebook that defines `kernel`."""
    text = CELL.format(number=number)
    linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
    names = {"torch": torch, "hl": hl}
    exec(compile(text, name, "exec"), names)
    return names["kernel"]


def test_a_redefined_kernel_is_another_kernel():
    """Also where the new text has the name of the old one, as a cell that is run again may have."""
    x = torch.randn(100)
    first = cell("<cell 1>", 2)
    torch.testing.assert_close(first(x), x * 2)
    torch.testing.assert_close(cell("<cell 2>", 3)(x), x * 3)
    torch.testing.assert_close(cell("<cell 1>", 5)(x), x * 5)
    torch.testing.assert_close(first(x), x * 2)


def test_threads_call_one_kernel():
    """All of them bind it, since nobody has called it before."""
    kernel, found = cell("<threads>", 7), {}
    together = threading.Barrier(4)

    def run(number):
        x = torch.full((50 + number % 2,), float(number))
        together.wait(60)
        found[number] = [kernel(x).eq(7 * number).all().item() for _ in range(5)]

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == {number: [True] * 5 for number in range(4)}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:This process")
def test_a_forked_child_calls_a_kernel():
    """What the parent compiled, and sizes that it never saw."""
    kernel, x = cell("<fork>", 3), torch.randn(100)
    kernel(x)
    child = os.fork()
    if child == 0:
        other = torch.ones(77)
        os._exit(0 if torch.equal(kernel(x), x * 3) and torch.equal(kernel(other), other * 3) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_an_output_that_is_an_input():
    @hl.kernel(config=hl.Config(block_sizes=[16]))
    def kernel(x, out):
        for tile in hl.tile(x.size(0)):
            out[tile] = x[tile] * 2 + out[tile]

    x = torch.randn(100)
    expected = x * 3
    kernel(x, x)
    torch.testing.assert_close(x, expected)


def test_a_tensor_of_another_device():
    @hl.kernel(config=hl.Config(block_sizes=[32]))
    def add(x, y):
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            out[tile] = x[tile] + y[tile]
        return out

    # `tilewright.torch`, which other tests import, computes the shapes of what a kernel makes of meta tensors.
    with tracer_slot.held_by(None), pytest.raises(hl.exc.WrongDeviceError) as caught:
        add(torch.ones(8), torch.ones(8, device="meta"))
    text = str(caught.value)
    assert isinstance(caught.value, DeviceError) and caught.value.location.file == __file__
    assert "for tile in hl.tile(x.size(0)):\n" in text and "^" * 31 in text
    assert "argument `y` is on device meta" in text and "pass y.cpu()" in text


def test_a_block_larger_than_allowed():
    kernel = hl.kernel(cell("<blocks>", 2).fn, config=hl.Config(block_sizes=[1 << 26]))
    with pytest.raises(hl.exc.InvalidConfig, match="from 1 to 1048576"):
        kernel(torch.ones(8))


@pytest.mark.parametrize(
    "values",
    [
        lambda x: x.unique(),
        lambda x: x.nonzero(),
        lambda x: torch.bincount(x.int()),
        lambda x: x.tolist(),
        lambda x: x[x > 0],
    ],
)
def test_values_that_the_host_needs_while_the_kernel_is_compiled(values):
    @hl.kernel(config=hl.Config(block_sizes=[32]))
    def kernel(x):
        known = values(x)
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            out[tile] = x[tile] * 2
        return out, known

    with pytest.raises(hl.exc.HostValueNotAvailable, match="a value of a tensor is needed on the host") as caught:
        kernel(torch.ones(8))
    assert caught.value.location.file == __file__ and "give what is made of it as an argument" in str(caught.value)
