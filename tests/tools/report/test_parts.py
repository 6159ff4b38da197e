"""The data of the parts of a page, held against what it is taken from: decisions, stages, algebra, arithmetic."""

from __future__ import annotations

import math

import pytest

from tilewright.base.decision import counted
from tilewright.layouts import distributed, shared
from tilewright.layouts import text as layout_text
from tilewright.layouts.access import count_wavefronts
from tilewright.layouts.picture import owners
from tilewright.tools.report.layouts import layout_data, layouts_of
from tilewright.tools.report.roofline import Peaks, Point, plot
from tilewright.tools.report.stages import _difference


def _line(kernel, text):
    """Number of the line of a kernel's source that holds a text."""
    lines = kernel.main.fn.src.splitlines()
    return kernel.line + next(i for i, line in enumerate(lines) if text in line)


# --- source ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["scale", "product"])
@pytest.mark.parametrize("build", [0, 1])
def test_the_source_has_every_decision_once(kernels, name, build):
    made = kernels[name].builds[build]
    shown = [(line.number, a.taken, a.subject) for line in made.source.lines for a in line.answers]
    shown += [(None, a.taken, a.subject) for *_, found in made.source.elsewhere for a in found]
    decided = [(d.line, d.taken, d.subject) for d, _ in counted(made.kernel.decisions)]
    assert sorted(row[1:] for row in shown) == sorted(row[1:] for row in decided)
    assert {row for row in shown if row[0]} <= set(decided)
    assert made.source.taken + made.source.refused == len(decided)


def test_lines_weigh_what_they_move_and_compute(kernels):
    kernel = kernels["product"]
    weights = {line.number: (line.bytes_share, line.flops_share) for line in kernel.builds[0].source.lines}
    assert weights[_line(kernel, "tl.dot")] == (0, 1)
    asked = {"a = tl.load": 6 * 64 * 96, "b = tl.load": 6 * 96 * 64, "tl.store": 6 * 64 * 64}
    for text, elements in asked.items():
        assert weights[_line(kernel, text)][0] == pytest.approx(elements / sum(asked.values()))


# --- stages ------------------------------------------------------------------------------------------------


def _lines_of(build, stage, number):
    made = next(s for s in build.stages if s["name"] == stage)
    return [line for line, source in zip(made["lines"], made["source"], strict=True) if source == number]


def test_a_line_has_its_lines_in_every_stage(kernels):
    kernel = kernels["product"]
    host, gpu = kernel.builds
    dot, store = _line(kernel, "tl.dot"), _line(kernel, "tl.store")
    assert [s["name"] for s in host.stages][:2] == ["ttir", "nest"] and host.stages[-1]["name"] == "asm"
    assert any("tt.dot" in line for line in _lines_of(host, "ttir", dot))
    assert any("warp_group_dot" in line for line in _lines_of(gpu, "tgir", dot))
    assert any("wgmma.mma_async" in line for line in _lines_of(gpu, "ptx", dot))
    assert any("tt.store" in line for line in _lines_of(gpu, "ttir", store))
    for build, stage in ((host, "llir"), (host, "asm"), (gpu, "llir"), (gpu, "ptx")):
        assert _lines_of(build, stage, store), stage
    inside = range(kernel.line, kernel.line + kernel.main.fn.src.count("\n") + 1)
    assert all(n == 0 or n in inside for b in (host, gpu) for s in b.stages for n in s["source"])
    assert not any(" loc(" in line or "!dbg" in line for b in (host, gpu) for s in b.stages for line in s["lines"])


def test_passes_end_with_the_stage(kernels):
    """What the diffs add and take away leads from the first text to the last."""
    gpu = kernels["product"].builds[1]
    names = [made["name"] for made in gpu.passes]
    assert names[0] == "the front end" and "canonicalize" in names
    assert any(made["changed"] for made in gpu.passes[1:]) and not all(made["changed"] for made in gpu.passes)
    count = len(gpu.passes[0]["lines"])
    ends = next(i for i, made in enumerate(gpu.passes) if made["name"] == "dce")
    for made in gpu.passes[1 : ends + 1]:
        signs = [line[0] for line in made["lines"]]
        count += signs.count("+") - signs.count("-")
    assert count == len(next(s for s in gpu.stages if s["name"] == "ttir")["lines"])


def test_new_names_of_values_are_no_change():
    before = ["%0 = a", "%1 = b %0", "%2 = c %1"]
    assert [line[0] for line in _difference(before, ["%0 = a", "%7 = c %0"])] == ["…", " ", "-", " "]


# --- layouts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "layout",
    [
        distributed.blocked((1, 2), (8, 4), (2, 1), (1, 0), (16, 8)),
        distributed.mma_accumulator((2, 2), (32, 64)),
        distributed.sliced(distributed.default_blocked((32, 64), 4), 1),
        distributed.default_blocked((4, 8, 16), 4),
        shared.hardware_swizzled((16, 64), 16, 128),
    ],
    ids=str,
)
def test_every_element_has_the_owner_that_the_algebra_gives(layout):
    data = layout_data(layout, 16)
    sizes = list(layout.out_sizes.values())
    for place, positions in owners(layout).items():
        cell = 0
        for at, size in zip(place, sizes, strict=True):
            cell = cell * size + at
        assert {name: data["held"][name][cell] for name in layout.in_sizes} in positions
        assert data["copies"] >= len(positions)
        if data["shared"]:
            assert data["held"]["bank"][cell] == positions[0]["offset"] * 16 // 32 % 32


def test_a_kernel_of_hopper_shows_its_tiles_its_buffers_and_its_copies(kernels):
    kernel = kernels["product"]
    found = kernel.builds[1].layouts
    accumulator = next(g for g in found["grids"] if any("acc" in value for value in g["values"]))
    assert accumulator["tile"] == [64, 64] and not accumulator["shared"]
    buffers = [g for g in found["grids"] if g["shared"]]
    assert {tuple(g["tile"]) for g in buffers} >= {(64, 32), (32, 64)}
    assert any(a["kind"] == "wgmma" and a["line"] == _line(kernel, "tl.dot") for a in found["accesses"])
    assert not kernels["product"].builds[0].layouts


@pytest.mark.parametrize(
    ("buffer", "free"), [(shared.row_major((32, 32)), False), (shared.swizzled((32, 32), 1, 1, 32), True)]
)
def test_conflicts_of_a_column_are_those_of_its_addresses(buffer, free):
    column = distributed.blocked((1, 1), (32, 1), (1, 1), (0, 1), (32, 32))
    tile = f'tensor<32x32xf32, #tw.layout<"{layout_text.spelled(column)}">>'
    memory = f'!ttg.memdesc<tensor<32x32xf32, #tw.layout<"{layout_text.spelled(buffer)}">>>'
    text = f"""module {{
  tt.func public @k() {{
    %0 = "ttg.local_alloc"() : () -> {memory}
    %1 = "ttg.local_load"(%0) : ({memory}) -> {tile} loc("k.py":3:0)
    tt.return
  }}
}}"""
    (access,) = layouts_of(text, "k.py", range(1, 9))["accesses"]
    offsets = {place: positions[0]["offset"] for place, positions in owners(buffer).items()}
    wide = access["vector"] // 8
    addresses = [4 * offsets[lane, 0] // wide * wide for lane in range(32)]
    assert access["wavefronts"] == count_wavefronts(addresses, wide)
    assert (access["conflicts"] == 0) is free and access["line"] == 3


# --- accesses ----------------------------------------------------------------------------------------------


def _cells(runs):
    return {cell for start, length in zip(runs[::2], runs[1::2]) for cell in range(start, start + length)}


def test_programs_share_a_vector_out_and_mask_its_end(kernels):
    kernel = kernels["scale"]
    sample = kernel.main.sample
    programs = math.prod(sample.grid)
    assert len(kernel.trace.programs) == programs
    block = sample.arguments["BLOCK"]
    rows = {(row["writes"], row["name"]): row for row in kernel.rows}
    masked = programs * block - 1000
    for row in rows.values():
        assert row["lanes"] == programs * block and row["masked"] == pytest.approx(masked / (programs * block))
        assert row["used"] == 4000 and 0.99 < row["share"] <= 1
    out = next(t for t in kernel.tensors if t["name"] == "out_ptr")
    each = [_cells(runs) for runs in out["writes"]]
    last = 999 // out["width"] // out["cell"][0] * out["columns"]
    assert set().union(*each) >= set(range(last)) and not any(out["reads"])
    assert any(out["masked"][-1:]) and not any(out["masked"][:-1])


def test_operands_of_a_product_are_read_once_for_each_block(kernels):
    tensors = {t["name"]: t for t in kernels["product"].tensors}
    assert set(tensors["a_ptr"]["heat"]) == {3.0} and set(tensors["b_ptr"]["heat"]) == {2.0}
    assert set(tensors["c_ptr"]["heat"]) == {0.0}
    assert tensors["a_ptr"]["unique"] == 128 * 96 * 2


# --- software pipelines -------------------------------------------------------------------------------------


def test_a_loop_that_copies_ahead_is_a_pipeline(kernels):
    kernel = kernels["product"]
    assert not kernel.builds[0].pipelines and not kernels["scale"].builds[1].pipelines
    ((pipeline, picture),) = kernel.builds[1].pipelines
    assert pipeline.line == _line(kernel, "for k in range")
    loads = {_line(kernel, "a = tl.load"), _line(kernel, "b = tl.load")}
    assert {(ring.line, ring.bytes, ring.buffers, ring.by) for ring in pipeline.rings} == {
        (line, 64 * 32 * 2, 3, "the copy engine") for line in loads
    }
    assert pipeline.products == [_line(kernel, "tl.dot")] and pipeline.in_flight
    assert "3 buffers of 4,096 bytes" in pipeline.said() and "in the next one" in pipeline.said()
    if picture:
        for text in ("buffer 0", "buffer 2", "tensor cores", "copy 3", "product 0"):
            assert text in picture
        assert "buffer 3" not in picture


# --- roofline ----------------------------------------------------------------------------------------------


def test_operations_and_bytes_are_those_of_the_arithmetic(kernels):
    product, scale = kernels["product"].point, kernels["scale"].point
    assert product.flops == 2 * 128 * 192 * 96
    assert product.moved == 2 * (128 * 96 + 96 * 192 + 128 * 192)
    assert scale.moved == 8000 and scale.flops >= 1000


def test_the_limit_is_the_slower_of_the_two():
    peaks = Peaks("cpu", bandwidth=10e9, flops=100e9, element="float32", by="by hand")
    assert Point("copy", 1e6, 1e9, 0.2).bound(peaks) == ("memory", pytest.approx(0.5))
    assert Point("dot", 1e9, 1e6, 0.02).bound(peaks) == ("arithmetic", pytest.approx(0.5))


def test_the_plot_takes_the_colours_of_the_page():
    pytest.importorskip("matplotlib")
    peaks = Peaks("cuda", 10e9, 100e9, "float16", "by hand")
    svg = plot(peaks, [Point("dot", 1e9, 1e6, 0.02), Point("none", 0, 1e6, 0.02)])
    assert 'id="roof-cuda-0"' in svg and 'id="roof-cuda-1"' not in svg
    assert "var(--warm)" in svg and "#0" not in svg.replace('href="#', "").replace("url(#", "")
