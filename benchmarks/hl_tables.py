"""What choosing a configuration by a table adds to a call of an hl kernel: `python -m benchmarks.hl_tables`.

Functions that do nothing are chosen among by trees of two, four and eight leaves, in turns with calling one at once;
printed are medians of the difference, in microseconds of processor time.
"""

from __future__ import annotations

import statistics
import time
import timeit
from collections.abc import Callable
from typing import Any

import torch

from tilewright.hl.tune import tables


def tree(low: int, high: int) -> Any:
    """A tree with a leaf for each configuration from `low` to `high`; half of the tests of each path hold."""
    if low == high:
        return low
    middle = (low + high) // 2
    return {"if": f"x.size(0) <= {100 * (middle + 1)}", "then": tree(low, middle), "else": tree(middle + 1, high)}


def seconds(call: Callable[..., Any], x: torch.Tensor, count: int = 20000) -> float:
    """Of processor time, of one of `count` calls."""
    return timeit.timeit(lambda: call(x), timer=time.process_time, number=count) / count


def main() -> None:
    """Print what each number of leaves adds."""
    x = torch.ones(250)

    def run(x: torch.Tensor) -> torch.Tensor:
        return x

    made: dict[int, Callable[..., Any]] = {1: run}
    for leaves in (2, 4, 8):
        made[leaves] = tables.chooser(tree(0, leaves - 1), ["x"], [run] * leaves)
    rounds = [{leaves: seconds(call, x) for leaves, call in made.items()} for _ in range(31)]
    for leaves in list(made)[1:]:
        more = statistics.median(times[leaves] - times[1] for times in rounds)
        print(f"{leaves} leaves: {more * 1e6:.2f} us a call")


if __name__ == "__main__":
    main()
