"""Deadlines of a search in which compiling, host code and measuring go on at once, as for a GPU."""

from __future__ import annotations

import random
import time

import pytest

from tests.hl.test_tuner import BLOCKS, QUIET, SPEC, X, forks, hang
from tilewright import hl
from tilewright.hl.tune import pools, workers
from tilewright.hl.tune.bench import Subject
from tilewright.hl.tune.driver import Driver
from tilewright.hl.tune.outcomes import Job, Plan
from tilewright.launch.asynchronous import active


class Slow:
    """As for a GPU: host code takes a quarter of a second, or what it has compiled does not end."""

    name = "slow"

    def __init__(self, host, part=None):
        self.settings, self.config_spec, self.host, self.part = hl.Settings(**QUIET), SPEC, host, part

    def precompile(self, config, args):
        time.sleep(self.host)
        return [active().executor.submit(self.part)] if self.part else []

    def compile_config(self, config):
        return lambda x, factor: x * factor


@forks
@pytest.mark.parametrize("bound", [Slow(0.25), Slow(0.0, hang)], ids=["host code", "compiling"])
def test_a_deadline_holds_where_compiling_and_measuring_go_on_at_once(bound):
    pool = workers.Pool([], [workers.forked(lambda: Subject((X, 2), bound.compile_config, print))], together=True)
    ahead = pools.Ahead(bound, (X, 2), 2, pool, lambda config: config, lambda: None)
    driver = Driver(bound, (X, 2), workers=(ahead, lambda config: config))
    begin = time.monotonic()
    driver.deadline = begin + 0.6
    driver.race([SPEC.default_config(), *BLOCKS, *(SPEC.random(random.Random(seed)) for seed in range(20))])
    ahead.close()
    assert time.monotonic() - begin < 3 and not driver.failures
    assert driver._fallback() == SPEC.default_config()


def test_the_time_of_a_job_goes_on_while_nobody_has_taken_it():
    job = Job([(0, None)], Plan(seconds=10.0), made=time.monotonic() - 4)
    assert 5 < job.begun().plan.seconds <= 6 and 5 < job.begun().begun().plan.seconds <= 6
