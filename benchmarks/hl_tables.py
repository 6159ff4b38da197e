"""What a table beside the source costs a program that was tuned ahead: `python -m benchmarks.hl_tables`.

* A call: functions that do nothing are chosen among by trees of two, four and eight leaves, in turns with calling one
  at once; printed are medians of the difference, in microseconds of processor time.
* A process: above torch `import tilewright`, `import tilewright.hl` on top of it, and the module and the first call of
  a kernel of `hl.aot_kernel` whose code is in the disk cache, in processor time of fresh processes; which modules of
  the tuner these have loaded.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
import timeit
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.startup import child_of
from tilewright.hl.tune import tables
from tilewright.tools.modules import load_file

_KERNELS = """
import torch
from tilewright import hl


@hl.aot_kernel(static_shapes=False)
def softmax(x):
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        out[rows, :] = torch.softmax(x[rows, :], -1)
    return out
"""
_PROGRAM = """
import json, sys, time
import torch
x = torch.randn(16, 100)
begin = time.process_time()
import tilewright
first = time.process_time()
from tilewright import hl
imported = time.process_time()
sys.path.insert(0, sys.argv[1])
from kernels import softmax
made = softmax(x)
called = time.process_time()
assert torch.allclose(made, torch.softmax(x, -1), atol=1e-6)
own = ("ahead", "bench", "driver", "journal", "pools", "rounds", "strategies", "workers")
tuner = [name for name in (*map("tilewright.hl.tune.".__add__, own), "sklearn") if name in sys.modules]
chosen = softmax.bind((x,)).config.config
seconds = {"tilewright": first - begin, "tilewright.hl": imported - first, "kernel, first call": called - imported}
print(json.dumps({**seconds, "tuner": tuner, "chosen": chosen}))
"""
_RUNS = 7


def tree(low: int, high: int) -> Any:
    """A tree with a leaf for each configuration from `low` to `high`; half of the tests of each path hold."""
    if low == high:
        return low
    middle = (low + high) // 2
    return {"if": f"x.size(0) <= {100 * (middle + 1)}", "then": tree(low, middle), "else": tree(middle + 1, high)}


def seconds(call: Callable[..., Any], x: torch.Tensor, count: int = 20000) -> float:
    """Of processor time, of one of `count` calls."""
    return timeit.timeit(lambda: call(x), timer=time.process_time, number=count) / count


def deployed() -> Iterator[dict[str, Any]]:
    """What fresh processes say that have a kernel with a table beside it; the first one has compiled it."""
    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as folder:
        path = Path(folder) / "kernels.py"
        path.write_text(_KERNELS, encoding="utf-8")
        kernel, x = load_file(path).softmax, torch.randn(16, 100)
        default = kernel.bind((x,)).default_config()
        other = type(default)(**{**default.config, "block_sizes": [4]})
        choose = {"if": "x.size(0) <= 100", "then": 1, "else": 0}
        made = tables.Table(tables.machine_name(x.device), tables.kind_of({"x": x}), "", (default, other), choose)
        tables.write(path.with_suffix(tables.SUFFIX), "softmax", tables.source_hash(kernel.source), [made])
        for run in range(_RUNS + 1):
            found = child_of([sys.executable, "-c", _PROGRAM, folder], cache=Path(folder) / "cache")
            assert found["chosen"]["block_sizes"] == [4]
            if run:
                yield found


def main() -> None:
    """Print what each number of leaves adds, and what a process does."""
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
    runs = list(deployed())
    for what in ("tilewright", "tilewright.hl", "kernel, first call"):
        print(f"{what}: {statistics.median(run[what] for run in runs) * 1e3:.0f} ms")
    print(f"loaded of the tuner: {', '.join(runs[0]['tuner']) or 'nothing'}")


if __name__ == "__main__":
    main()
