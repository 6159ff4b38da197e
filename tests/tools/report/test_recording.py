"""What is heard of a run: launches with their variants, samples, compilations, searches, marks for torch's profiler."""

from __future__ import annotations

import json
import statistics

import pytest
import torch

import tilewright
import tilewright.language as tl
from tilewright.base.knobs import knobs
from tilewright.tools.report import trace
from tilewright.tools.report.recording import recorded


@tilewright.jit
def double(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, 2 * tl.load(x_ptr + offsets, offsets < n), offsets < n)


def test_every_launch_is_counted_by_variant(run):
    _, recording = run
    counts = {variant.title: len(variant.launches) for variant in recording.variants}
    assert counts == {"scale[BLOCK=256]": 3, "scale[BLOCK=128]": 1, "product[BLOCK=64]": 1}
    assert all(event.begin <= event.end for event in recording.events)
    assert all(recording.begin <= event.begin and event.end <= recording.end for event in recording.events)


def test_variants_say_why(run):
    reasons = {variant.title: variant.reason for variant in run[1].variants}
    assert "first variant" in reasons["scale[BLOCK=256]"]
    assert "BLOCK was constant 256, is constant 128" in reasons["scale[BLOCK=128]"]


def test_launches_of_all_forms_are_heard_and_arguments_copied_before_them():
    x = torch.ones(100)
    with recorded() as recording:
        for _ in range(4):  # the later ones go by the table of machine code
            double[(2,)](x, 100, BLOCK=64)
        double[lambda meta: (tilewright.cdiv(meta["n"], meta["BLOCK"]),)](x, n=100, BLOCK=64)
    double[(2,)](x, 100, BLOCK=64)
    (variant,) = recording.variants
    assert len(variant.launches) == 5
    assert torch.equal(variant.sample.arguments["x_ptr"], torch.ones(100))
    assert torch.equal(x, torch.full((100,), 64.0))
    assert not knobs.runtime.launch_enter_hook.calls and knobs.compilation.listener is None


@pytest.mark.parametrize("with_constants", [True, False])
def test_launches_of_compiled_variants_are_heard(with_constants):
    x = torch.ones(100)
    kernel = double.warmup(x, 100, BLOCK=64, grid=(2,))
    kernel[2, 1, 1](x, 100, 64)
    with recorded() as recording:
        for _ in range(3):
            kernel[2, 1, 1](x, 100, *([64] if with_constants else []))
    kernel[2, 1, 1](x, 100, 64)
    (variant,) = recording.variants
    assert len(variant.launches) == 3 and variant.kernel is kernel
    assert variant.sample.arguments["BLOCK"] == 64 and torch.equal(x, torch.full((100,), 32.0))


def test_a_failing_program_leaves_no_hooks():
    with pytest.raises(ZeroDivisionError), recorded():
        raise ZeroDivisionError
    assert not knobs.runtime.launch_enter_hook.calls and not knobs.runtime.launch_exit_hook.calls


def test_arguments_that_cannot_be_copied_are_no_sample():
    class Odd:
        def __init__(self, held):
            self.held = held

        def data_ptr(self):
            return self.held.data_ptr()

        def __deepcopy__(self, memo):
            raise TypeError("no copies")

        dtype = torch.float32

    x = torch.ones(64)
    with recorded() as recording:
        double[(1,)](Odd(x), 64, BLOCK=64)
    assert recording.variants[0].sample is None and len(recording.variants[0].launches) == 1


def test_searches_are_told_from_launches():
    kernel = tilewright.autotune(
        [tilewright.Config({"BLOCK": block}) for block in (64, 128)], key=["n"], cache_results=False
    )(tilewright.jit(double.fn))
    x = torch.ones(128)
    with recorded() as recording:
        kernel[lambda meta: (tilewright.cdiv(128, meta["BLOCK"]),)](x, 128)
    (search,) = [event for event in recording.events if event.kind == "tuning"]
    assert search.facts["configurations"] == 2
    assert [event for event in recording.events if event.kind == "launch" and "by" not in event.facts]


def test_the_profiler_of_torch_sees_variants():
    x = torch.ones(64)
    with recorded(), torch.profiler.profile() as profile:
        double[(1,)](x, 64, BLOCK=64)
    assert "double[BLOCK=64]" in {event.name for event in profile.events()}


def test_the_trace_is_one_of_chrome(run):
    _, recording = run
    events = json.loads(trace.trace_text(recording))["traceEvents"]
    launches = [event for event in events if event.get("cat") == "launch"]
    assert [event["ph"] for event in events] == ["M", *"X" * (len(events) - 1)]
    assert {event["name"] for event in launches} == {variant.title for variant in recording.variants}
    assert all(event["ts"] >= 0 and event["dur"] >= 0 for event in events[1:])
    assert sum(event.get("cat") == "compile" for event in events) == 3
    mean = statistics.fmean(event["dur"] for event in launches) / 1e6
    assert mean == pytest.approx(statistics.fmean(e.seconds for e in recording.events if e.kind == "launch"), abs=1e-6)
    assert all(0 <= bar["left"] <= 1 and bar["left"] + bar["width"] <= 1.001 for bar in trace.bars(recording))
