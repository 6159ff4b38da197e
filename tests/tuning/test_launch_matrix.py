"""Every two features of autotuned launches together, on the CPU; `tests/gpu/test_tuning.py` has the same on a GPU."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import tilewright
from tests.tuning import launch_matrix
from tests.tuning.launch_matrix import FACTORS, ROWS, Trial
from tests.tuning.pairwise import pairs_of


@pytest.fixture(scope="module")
def executors():
    with launch_matrix.executors() as executor:
        yield executor


@pytest.mark.filterwarnings("ignore:autotune. use_cuda_graph")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(row.values()))
def test_features_of_launches_together(row, executors, tmp_path, monkeypatch):
    monkeypatch.setattr(tilewright.knobs.cache, "dir", tmp_path)
    workers = lambda count: monkeypatch.setattr(tilewright.knobs.autotuning, "workers", count)
    Trial(row, "cpu", executors, workers).run()


def test_every_pair_is_there():
    held = {pair for row in ROWS for pair in pairs_of(row)}
    counts = list(map(len, FACTORS.values()))
    assert len(held) == sum(a * b for i, a in enumerate(counts) for b in counts[:i])
    assert len(ROWS) < 60
