"""Processor time in which the CPU back end plans the kernels of `tests/decisions/hold_outs.py`.

`python -m benchmarks.planning` prints the least of some passes over them; run it in two trees, in turns, to compare.
"""

from __future__ import annotations

import time

import click

from tests.decisions import hold_outs
from tests.decisions.harness import passed
from tilewright.backends.cpu.plan.module import plan_module
from tilewright.backends.llvm.features import describe


def seconds() -> float:
    """One pass over all kernels, for AVX-512."""
    total = 0.0
    for spelling in (*hold_outs.PRODUCTS, *hold_outs.VECTORS, *hold_outs.ROWS):
        module, _, target = passed(spelling, "avx512")
        isa = describe("x86_64-unknown-linux-gnu", str(target.arch))
        begin = time.process_time()
        plan_module(module, isa)
        total += time.process_time() - begin
    return total


@click.command()
@click.option("--rounds", default=5, help="Passes over the kernels, behind one that is not counted.")
def main(rounds: int) -> None:
    """Measure."""
    seconds()
    print(f"planned in {min(seconds() for _ in range(rounds)) * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
