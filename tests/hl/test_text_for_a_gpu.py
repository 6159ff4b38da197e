"""Text that is generated for a GPU alone, executed here; warps mean nothing to a CPU."""

from __future__ import annotations

from random import Random

import pytest
import torch

from tilewright import hl
from tilewright.hl.tune import spec
from tilewright.hl.tune.machine import Machine


@pytest.fixture(autouse=True)
def for_a_gpu(monkeypatch):
    monkeypatch.setattr(spec, "machine_of", lambda device: Machine("cuda", 132, 227 << 10))


def one_after_the_other(x):
    doubled, sums = torch.empty_like(x), torch.empty_like(x[:, 0])
    for rows in hl.tile(x.size(0)):
        doubled[rows, :] = x[rows, :] * 2
    for rows in hl.tile(x.size(0)):
        sums[rows] = doubled[rows, :].sum(-1)
    return doubled, sums


def _launches(config):
    x = torch.randn(9, 16)
    bound = hl.kernel(one_after_the_other, config=hl.Config(block_sizes=[4, 2], **config)).bind((x,))
    for found, wanted in zip(bound(x), (x * 2, (x * 2).sum(-1)), strict=True):
        torch.testing.assert_close(found, wanted)
    return [line.split("sums, ")[-1] for line in bound.to_code().splitlines() if "num_warps=" in line]


def test_kernels_have_options_of_their_own():
    first, second = _launches({"num_warps": [8, 2], "num_stages": [1, 3]})
    assert "num_warps=8, num_stages=1)" in first and "num_warps=2, num_stages=3)" in second
    first, second = _launches({"num_warps": 2, "maxnreg": [None, 64], "pid_type": "persistent_blocked"})
    assert "maxnreg" not in first and "num_warps=2" in first and "num_warps=2" in second and "maxnreg=64" in second


def test_options_of_kernels_are_places_of_a_search():
    choices = hl.kernel(one_after_the_other).bind((torch.randn(9, 16),)).config_spec
    same = choices.normalize({"block_sizes": [4, 2], "num_warps": [2, 2], "num_stages": 1})
    assert (same["num_warps"], same["num_stages"]) == (2, 1)
    one = choices.normalize({"block_sizes": [4, 2], "num_warps": [8, 2], "num_stages": [2, 1]})
    for config in (same, one):
        assert choices.unflatten(choices.flatten(config)) == config
    near = [config["num_warps"] for config in choices.neighbors(one)]
    assert [16, 2] in near and [8, 4] in near and all(isinstance(found, list) for found in near)
    random = [choices.random(Random(seed))["num_warps"] for seed in range(9)]
    assert any(isinstance(found, list) for found in random)


def test_lists_of_options_have_one_for_each_kernel():
    choices = hl.kernel(one_after_the_other).bind((torch.randn(9, 16),)).config_spec
    with pytest.raises(hl.exc.InvalidConfig, match="num_warps has 3 entries, and the kernel has 2 top-level loops"):
        choices.normalize({"block_sizes": [4, 2], "num_warps": [4, 4, 8]})
    with pytest.raises(hl.exc.InvalidConfig, match="powers of two from 1 to 32"):
        choices.normalize({"block_sizes": [4, 2], "num_warps": [4, 3]})


def extremes(x):
    largest, smallest = torch.empty_like(x[:, 0, 0]), torch.empty_like(x[:, :, 0])
    for rows in hl.tile(x.size(0)):
        largest[rows] = x[rows, :, :].amax((1, 2))
        smallest[rows, :] = x[rows, :, :].amin(-1)
    return largest, smallest


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int32])
def test_extremes_are_found_by_one_reduction(dtype):
    x = torch.randn(9, 5, 12).mul(100).to(dtype)
    if dtype.is_floating_point:
        x[2, 3, 4] = x[7, 0, 11] = float("nan")
    bound = hl.kernel(extremes, config=hl.Config(block_sizes=[4])).bind((x,))
    assert "tl.where" not in bound.to_code() and "num_warps" in bound.to_code()
    largest, smallest = bound(x)
    torch.testing.assert_close(largest, x.amax((1, 2)), equal_nan=True)
    torch.testing.assert_close(smallest, x.amin(-1), equal_nan=True)


def may_return_early(x, early: hl.constexpr):
    if early:
        return x + 1
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        out[rows] = x[rows] * 2
    return out


def test_kernels_whose_host_returns_before_loops_have_no_options():
    bound = hl.kernel(may_return_early, autotune_effort="none").bind((torch.ones(3), True))
    assert "num_warps" not in bound.config_spec.default_config()
    assert "num_warps" not in {choice.key for choice in bound.config_spec.choices}
    torch.testing.assert_close(bound(torch.ones(3), True), torch.full((3,), 2.0))
