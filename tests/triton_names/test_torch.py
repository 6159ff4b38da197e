"""What torch asks of kernels and writes about them, in processes that pose as Triton."""

from __future__ import annotations

import pytest

from tests.triton_names.test_inductor import posing

pytest.importorskip("torch")


def test_effects_of_kernels_whose_integers_decide(tmp_path):
    assert posing(tmp_path, "-m", "tests.triton_names.effects").split() == ["right"]


def test_what_torch_writes_of_the_language_is_what_it_was(tmp_path):
    assert int(posing(tmp_path, "-m", "tests.triton_names.written", str(tmp_path)).split()[0]) > 900
