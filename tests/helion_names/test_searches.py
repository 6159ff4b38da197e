"""Helion's searches by name are strategies of Tilewright's driver."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import random

import torch

from tilewright import hl
from tilewright.helion_names import searches
from tilewright.hl.tune.strategies import Space

PAIR = [hl.Config(block_sizes=[64]), hl.Config(block_sizes=[256])]


def doubled(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * 2
    return out


def bound_of(**options):
    kernel = hl.kernel(doubled, autotune_log_level=0, skip_cache=True, autotune_budget_seconds=1, **options)
    return kernel, kernel.bind((torch.ones(1000),))


def test_every_search_proposes_configurations_of_the_kernel():
    _, bound = bound_of()
    space = Space(bound.config_spec, random.Random(0))
    for name, made in searches.search_algorithms.items():
        more = {"configs": PAIR} if name == "FiniteSearch" else {"max_generations": 3}
        proposed = made(bound, (torch.ones(1000),), **more).propose(space, {bound.default_config(): 1.0}, 4)
        assert proposed and all(bound.config_spec.normalize(config) == config for config in proposed)


def test_a_finite_search_takes_the_fastest_of_those_given():
    _, bound = bound_of()
    found = searches.FiniteSearch(bound, (torch.ones(1000),), PAIR).autotune()
    assert found["block_sizes"] in ([64], [256])
    with pytest.raises(hl.exc.InvalidAPIUsage, match="among 1 configurations"):
        searches.FiniteSearch(bound, (torch.ones(1000),), PAIR[:1])
    own = hl.kernel(doubled, configs=PAIR).bind((torch.ones(1000),))
    assert len(searches.FiniteSearch(own, (torch.ones(1000),)).configs) == 2


def test_a_search_is_what_autotuner_fn_gives():
    kernel, _ = bound_of(autotuner_fn=lambda bound, args: searches.FiniteSearch(bound, args, PAIR))
    assert kernel.autotune((torch.ones(1000),), effort="quick")["block_sizes"] in ([64], [256])
    near, _ = bound_of(autotuner_fn=searches.PatternSearch, autotune_max_generations=1)
    assert "block_sizes" in near.autotune((torch.ones(1000),), effort="quick")
