"""Every part of the page for kernels of examples, on the CPU and for a GPU that is not there; ten are a small page.

`make test-report` and `make nightly` run it.
"""

from __future__ import annotations

import pytest

from tests.meta.sources import ROOT
from tests.tools.report.test_page import PARTS, _data, _Page
from tilewright.base.knobs import knobs
from tilewright.tools.report import page
from tilewright.tools.report.builds import shown_kernels

pytestmark = pytest.mark.browser
NAMES = ["vector_add", "softmax", "softmax_persistent", "layer_norm", "layer_norm_backward", "dropout", "matmul"]
NAMES += ["attention", "grouped_gemm"]


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """(page, kernels) of one run of many examples."""
    folder = tmp_path_factory.mktemp("examples")
    program = folder / "many.py"
    load = f"load_file(Path({str(ROOT / 'examples')!r}) / f'{{name}}.py', f'shown_{{name}}').main()"
    program.write_text(
        "from pathlib import Path\nfrom tilewright.tools.modules import load_file\n"
        f"for name in {NAMES!r}:\n    {load}\n"
    )
    before, knobs.cache.dir = knobs.cache.dir, folder / "cache"
    try:
        report, recording = page.report_of_program([str(program)], False, None)
        yield report, shown_kernels(recording, ("cuda:90",))
    finally:
        knobs.cache.dir = before


def test_ten_kernels_are_a_small_page(shown):
    report, kernels = shown
    assert len(kernels) >= 10
    assert len(report.text) <= 5_000_000 * max(1.0, len(kernels) / 10)
    assert set(PARTS) <= set(_Page(report.text).ids)


def test_every_kernel_has_every_part_on_both_targets(shown):
    report, kernels = shown
    data = {kernel["name"]: kernel for kernel in _data(report.text)["kernels"]}
    for kernel in kernels:
        host, device = data[kernel.name]["builds"]
        names = [{stage["name"] for stage in build["stages"]} for build in (host, device)]
        assert {"ttir", "nest", "llir", "asm"} <= names[0] and {"ttir", "tgir", "llir", "ptx"} <= names[1]
        assert host["passes"] and device["passes"] and device["layouts"]
        if "grouped" in kernel.name:  # what its tables point to is no argument
            assert "addresses that it reads from memory" in kernel.trace.error
            continue
        assert data[kernel.name]["tensors"] and kernel.point is not None and kernel.seconds > 0
