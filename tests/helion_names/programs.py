"""Kernels of our own in the idioms of Helion's users, each against PyTorch.

    python -m tilewright.as_helion -m tests.helion_names.programs [names] [--device cuda]

They import what such programs import (`helion`, its language, fragments, `_testing`, and `triton`). The last line is a
summary in JSON. The thirty of `tests/triton_names/helion_kernels.py` are plainer.
"""

from __future__ import annotations

import argparse
import json

import torch
from helion._testing import DEVICE

from tests.helion_names import dense, rows
from tests.helion_names.cases import CASES

assert dense.case is rows.case  # both have entered what they have


def main() -> None:
    """Run the kernels that are asked for, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="of kernels")
    parser.add_argument("--device", default=str(DEVICE))
    asked = parser.parse_args()
    torch.set_default_device(asked.device)
    failures: dict[str, str] = {}
    chosen = {name: row for name, row in CASES.items() if not asked.names or name in asked.names}
    for name, (run, expected, inputs) in chosen.items():
        torch.manual_seed(0)
        args = inputs()
        try:
            torch.testing.assert_close(run(*args), expected(*args), atol=1e-4, rtol=1e-3, check_dtype=False)
        except Exception as error:
            failures[name] = f"{type(error).__name__}: {error}"[:1500]
        print(f"{name:30} {'FAILED' if name in failures else 'right'}", flush=True)
    print(json.dumps({"kernels": len(chosen), "failures": failures}))
    raise SystemExit(bool(failures))


if __name__ == "__main__":
    main()
