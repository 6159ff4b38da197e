"""`python -m tests.hl.fuzz --cases 2000 --seed 0`: random kernels, three configurations each."""

from __future__ import annotations

import argparse
import sys
import time
import traceback

from tests.hl.fuzz.compare import check


def main() -> int:
    """Run the cases; returns how many failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.hl.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--configurations", type=int, default=3)
    options = parser.parse_args()
    failed, began = [], time.perf_counter()
    for seed in range(options.seed, options.seed + options.cases):
        try:
            check(seed, options.configurations)
        except Exception:
            failed.append(seed)
            traceback.print_exc()
    print(f"{options.cases} kernels, {len(failed)} failed {failed}, {time.perf_counter() - began:.0f} s")
    return len(failed)


if __name__ == "__main__":
    sys.exit(min(main(), 1))
