"""`python -m tests.decisions`: write the golden texts anew; the diff shows which kernels gained and which lost."""

from __future__ import annotations

from tests.decisions.families import CASES, kernels_of
from tests.decisions.harness import GOLDEN, golden_file, golden_text

if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for family, target in CASES:
        golden_file(family, target).write_text(golden_text(kernels_of(family), target), encoding="utf-8")
        print(golden_file(family, target).name)
