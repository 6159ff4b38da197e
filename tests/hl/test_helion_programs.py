"""Programs written for Helion run here with their two import lines changed, and nothing else."""

from __future__ import annotations

import pytest
import torch

from tests.meta.sources import ROOT
from tilewright.tools.modules import load_file

LINES = {
    "import helion": "import tilewright.hl as helion",
    "import helion.language as hl": "import tilewright.hl.language as hl",
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """The list that Helion itself runs in `make test-helion`."""
    text = (ROOT / "tests" / "triton_names" / "helion_kernels.py").read_text(encoding="utf-8")
    path = tmp_path_factory.mktemp("helion") / "programs.py"
    path.write_text("\n".join(LINES.get(line, line) for line in text.split("\n")), encoding="utf-8")
    return load_file(path, "helion_programs").CASES


def test_programs_run(programs):
    for name, (kernel, expected, wanted) in programs.items():
        torch.manual_seed(0)
        inputs = [shape() if callable(shape) else torch.randn(shape) for shape in wanted]
        found = kernel(*inputs)
        torch.testing.assert_close(
            found, expected(*inputs), atol=1e-4, rtol=1e-4, msg=lambda text, at=name: f"{at}: {text}"
        )
    assert len(programs) >= 30
