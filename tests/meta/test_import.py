"""``import tilewright`` is quick and loads neither torch, nor LLVM, nor the command line's libraries."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.meta.sources import ROOT

PROBE = """
import json, sys, time
start = time.process_time()
import numpy, xdsl.dialects.builtin
others = time.process_time()
import tilewright
import tilewright.language
end = time.process_time()
print(json.dumps([(end - others) / (others - start), sorted({name.split(".")[0] for name in sys.modules})]))
"""


def _probe() -> tuple[float, set[str]]:
    done = subprocess.run([sys.executable, "-c", PROBE], cwd=ROOT, capture_output=True, text=True, check=True)
    ratio, modules = json.loads(done.stdout)
    return ratio, set(modules)


def test_import_loads_no_heavy_library():
    _, modules = _probe()
    assert "numpy" in modules  # the probe does see what is loaded
    assert not modules & {"torch", "llvmlite", "cuda", "click", "rich", "hypothesis"}


def test_import_is_quick():
    # The budget is 0.3 s on a quiet machine (`make bench` measures it); this catches an import gone wrong. It counts in
    # units of importing numpy and xDSL in the same process, as even CPU time doubles on a machine that is busy.
    assert min(_probe()[0] for _ in range(3)) < 3.0
