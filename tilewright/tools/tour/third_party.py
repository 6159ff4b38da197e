"""The tour's last step: a program with third-party Triton kernels, as it is, where Tilewright is `triton`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tilewright.base.knobs import knobs
from tilewright.tools import examples

TITLE = "third-party kernel"
PROGRAM = Path("third_party", "program.py")


def unchanged() -> tuple[bool, str]:
    """Run `examples/third_party/program.py` on every kind of device here; it checks its results against PyTorch.

    Returns:
        Whether it ended well, and what it printed: a line a device, or the last line of the error.
    """
    package = str(Path(__file__).resolve().parents[3])
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-m", "tilewright.as_triton", str(examples.folder() / PROGRAM)],
        env={**os.environ, "PYTHONPATH": path, "TILEWRIGHT_CACHE_DIR": str(knobs.cache.dir)},
        capture_output=True,
        text=True,
    )
    if done.returncode == 0:
        return True, done.stdout.strip()
    return False, (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
