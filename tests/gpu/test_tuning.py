"""Autotuned launches on a GPU: every two features together, and hooks that set block shapes of descriptors."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.gpu
torch: Any = pytest.importorskip("torch")

import tilewright  # noqa: E402
from tests.tuning import descriptor_programs, launch_matrix  # noqa: E402
from tests.tuning.launch_matrix import ROWS, Trial  # noqa: E402


@pytest.fixture(scope="module")
def executors():
    with launch_matrix.executors() as executor:
        yield executor


@pytest.mark.filterwarnings("ignore:autotune. use_cuda_graph")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(row.values()))
def test_features_of_launches_together(row, executors, tmp_path, monkeypatch):
    monkeypatch.setattr(tilewright.knobs.cache, "dir", tmp_path)
    workers = lambda count: monkeypatch.setattr(tilewright.knobs.autotuning, "workers", count)
    Trial(row, "cuda", executors, workers).run()


@pytest.mark.parametrize("name", descriptor_programs.PROGRAMS)
def test_hooks_set_the_blocks_of_descriptors(name, tmp_path, monkeypatch):
    monkeypatch.setattr(tilewright.knobs.cache, "dir", tmp_path)
    torch.manual_seed(0)
    tuned, found, expected = descriptor_programs.PROGRAMS[name]("cuda")
    torch.testing.assert_close(found, expected, atol=2e-2, rtol=2e-2)
    assert not tuned.failures and len(tuned.configs_timings) == len(tuned.configs)
