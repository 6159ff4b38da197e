"""Autotuning eight configurations of the tour's matrix product, against compiling and timing them one after another.

``python -m benchmarks.tuning [--rounds N]`` runs both in turns, each time in a fresh process with an empty cache. One
after another means: compile a configuration, time it with `do_bench` of the same warm-up and time, go to the next.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile

PROGRAM = """
import importlib.util, sys, time
import torch, tilewright as tw
from tilewright.testing import do_bench
from examples import matmul

torch.manual_seed(0)
a, b = torch.rand(512, 512), torch.rand(512, 512)
c = torch.empty(512, 512)
kernel = matmul.matmul_kernel
while not isinstance(kernel, tw.JITFunction):
    kernel = kernel.fn
shapes = [(m, n, k) for m in (32, 64) for n in (64, 128) for k in (32, 64)]
configs = [tw.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 8}) for m, n, k in shapes]
grid = lambda meta: (tw.cdiv(512, meta["BLOCK_M"]) * tw.cdiv(512, meta["BLOCK_N"]),)
rest = {"ACC_TYPE": tw.language.float32, "PRECISION": "ieee", "EVEN_K": True}
args = (a, b, c, 512, 512, 512, *a.stride(), *b.stride(), *c.stride())
matmul.matmul(torch.rand(16, 16), torch.rand(16, 16))  # the compiler is loaded in both cases
begin = time.perf_counter()
if sys.argv[1] == "tuned":
    tuned = tw.autotune(configs, key=[])(kernel)
    tuned[grid](*args, **rest)
else:
    for config in configs:
        do_bench(lambda: kernel[grid](*args, **rest, **config.all_kwargs()), quantiles=[0.5, 0.2, 0.8])
print(time.perf_counter() - begin)
"""


def seconds(how: str) -> float:
    """Time of a search in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": folder, "TILEWRIGHT_DEFAULT_BACKEND": "cpu"}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, how], env=environment, capture_output=True, text=True, check=True
        )
    return float(done.stdout.split()[-1])


def main() -> None:
    """Print the median of each and of the paired ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    pairs = [(seconds("tuned"), seconds("one by one")) for _ in range(parser.parse_args().rounds)]
    tuned, single = (statistics.median(times) for times in zip(*pairs))
    ratio = statistics.median(a / b for a, b in pairs)
    print(f"autotune {tuned:.2f} s, one after another {single:.2f} s, ratio {ratio:.2f} (target 0.6)")


if __name__ == "__main__":
    main()
