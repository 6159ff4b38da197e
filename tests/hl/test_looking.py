"""`breakpoint()`, `print` and assertions in kernels that run as references: Python's own, in the user's frame."""

from __future__ import annotations

import inspect
import sys
import threading

import pytest
import torch

from tilewright import hl

TILED, EAGER = hl.RefMode.TILED, hl.RefMode.EAGER
FOUR = hl.Config(block_sizes=[4])


def doubled(value):
    breakpoint()
    return value * 2


def plain_stop(x):
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        value = x[rows]
        breakpoint()
        out[rows] = value + 1
    return out


def named_stop(x):
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        value = x[rows]
        if value.sum() > 6:
            hl.breakpoint()
        out[rows] = value + 1
    return out


def stop_in_a_function(x):
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        value = x[rows]
        out[rows] = doubled(value)
    return out


def stop_in_host_code(x):
    out = torch.empty_like(x)
    breakpoint()
    for rows in hl.tile(x.size(0)):
        out[rows] = x[rows] + 1
    return out


@pytest.fixture
def stops(monkeypatch):
    """Where a debugger would stop: (function, text of the line, the tile there)."""
    found = []

    def hook():
        frame = sys._getframe(1)
        first = frame.f_code.co_firstlineno
        line = inspect.getsource(frame.f_code).splitlines()[frame.f_lineno - first].strip()
        value = frame.f_locals.get("value")
        found.append((frame.f_code.co_name, line, None if value is None else value.tolist()))

    monkeypatch.setattr(sys, "breakpointhook", hook)
    return found


TILES = [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0]]
WHOLE = [[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]]


@pytest.mark.parametrize(
    ("function", "mode", "wanted"),
    [
        (plain_stop, TILED, [("plain_stop", "breakpoint()", part) for part in TILES]),
        (plain_stop, EAGER, [("plain_stop", "breakpoint()", part) for part in WHOLE]),
        (named_stop, TILED, [("named_stop", "hl.breakpoint()", TILES[1])]),
        (stop_in_a_function, TILED, [("doubled", "breakpoint()", part) for part in TILES]),
        (stop_in_host_code, TILED, [("stop_in_host_code", "breakpoint()", None)]),
    ],
)
def test_a_breakpoint_stops_in_the_users_frame_with_values_of_the_call(function, mode, wanted, stops):
    kernel = hl.kernel(function, config=FOUR, ref_mode=mode)
    x = torch.arange(6.0)
    assert torch.equal(kernel(x), x * 2 if function is stop_in_a_function else x + 1)
    assert stops == wanted


@pytest.mark.parametrize("function", [plain_stop, named_stop, stop_in_a_function, stop_in_host_code])
def test_compiled_code_says_that_it_does_not_stop(function, stops):
    hook = sys.breakpointhook
    with pytest.raises(hl.exc.BreakpointInDeviceLoopRequiresInterpret, match=r"ref_mode=hl\.RefMode\.TILED") as raised:
        hl.kernel(function, config=FOUR)(torch.arange(6.0))
    line = raised.value.location.source_line().strip()
    assert line in ("breakpoint()", "hl.breakpoint()", "out[rows] = doubled(value)")
    assert not stops and sys.breakpointhook is hook


def test_a_kernel_with_a_breakpoint_runs_once_as_a_reference(stops):
    x = torch.arange(6.0)
    bound = hl.kernel(plain_stop, config=FOUR).bind((x,))
    assert torch.equal(bound.run_ref(x, mode=TILED), x + 1) and len(stops) == 2


def test_a_breakpoint_of_another_thread_stops_while_a_kernel_is_traced(stops):
    inside, go_on = threading.Event(), threading.Event()

    def waits(value):
        inside.set()
        go_on.wait(60)
        return value + 1

    @hl.kernel(config=FOUR)
    def kernel(x):
        out = torch.empty_like(x)
        for rows in hl.tile(x.size(0)):
            out[rows] = waits(x[rows])
        return out

    thread = threading.Thread(target=kernel, args=(torch.arange(6.0),))
    thread.start()
    assert inside.wait(60)
    breakpoint()
    go_on.set()
    thread.join()
    assert len(stops) == 1


def test_print_and_assert_take_whatever_python_can_make_of_values(capsys):
    @hl.kernel(config=FOUR, ref_mode=TILED)
    def kernel(x):
        out = torch.empty_like(x)
        print("host", float(x.sum()))
        for rows in hl.tile(x.size(0)):
            value = x[rows]
            print(value.tolist(), f"{value.sum():.1f}", value.numpy().max(), sep="; ")
            hl.device_print("first", value[0].item())
            assert (value >= 0).all(), "numpy and torch work here"
            out[rows] = value + 1
        return out

    x = torch.arange(6.0)
    assert torch.equal(kernel(x), x + 1)
    assert capsys.readouterr().out.splitlines() == [
        "host 15.0", "[0.0, 1.0, 2.0, 3.0]; 6.0; 3.0", "first 0.0", "[4.0, 5.0]; 9.0; 5.0", "first 4.0",
    ]  # fmt: skip
    with pytest.raises(AssertionError, match="numpy and torch work here"):
        kernel(-x)
