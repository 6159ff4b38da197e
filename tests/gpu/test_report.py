"""A report on a program whose kernels run on the GPU: its own roofline, times between events, pipelines, faults."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("jinja2")

from tests.tools.report.programs import TWO_KERNELS
from tilewright.tools.report import builds, page

pytestmark = pytest.mark.gpu


@pytest.fixture
def default_device() -> Iterator[None]:
    """The device that tensors of this process are made on by default, put back after a program changed it."""
    import torch

    before = torch.get_default_device()
    yield
    torch.set_default_device(before)


@pytest.mark.usefixtures("default_device")
def test_a_program_on_the_gpu(tmp_path: Path) -> None:
    file = tmp_path / "two_kernels.py"
    on_gpu = TWO_KERNELS.replace("import tilewright\n", "import tilewright\ntorch.set_default_device('cuda')\n", 1)
    file.write_text(on_gpu)
    made, recording = page.report_of_program([str(file)], False, None, "bounds,races")
    assert "matrices does" in made.text and "of float16 matrices" in made.text and "Software pipelines" in made.text
    launches = [event for event in recording.events if event.kind == "launch"]
    assert launches and all(0 < event.in_kernel <= event.seconds for event in launches)
    for kernel in builds.shown_kernels(recording, ()):
        assert kernel.point is not None and kernel.point.backend == "cuda"
        assert kernel.trace is not None and not kernel.trace.error


def test_peaks_are_those_of_a_gpu() -> None:
    from tilewright.tools.report.roofline import measure_peaks

    peaks = measure_peaks("cuda")
    assert peaks.bandwidth > 1e11 and peaks.flops > 1e13 and peaks.element == "float16"
