"""Assertions that nobody waits for: a failed one ends the context, and whoever hears of it first is told which it was.

Each program has a process of its own, as its GPU is lost.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu
_PROGRAM = """
import sys, time
import torch
import tilewright
import tilewright.language as tl
from tilewright.base.errors import DeviceAssertionError

tilewright.knobs.cuda.assertions = "trap"

@tilewright.jit(debug=True)
def bounded(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, i < n, other=0)
    tl.device_assert(value < 100, "less than a hundred")
    tl.store(out + i, value + 1, i < n)

@tilewright.jit
def plain(x, n):
    tl.store(x, n)

x = torch.arange(1000, dtype=torch.int32, device="cuda") % 100
out = torch.zeros_like(x)
bounded[(4,)](x, out, 1000, BLOCK=256)
assert torch.equal(out, x + 1)
torch.cuda._sleep(200_000_000)
begin = time.perf_counter()
bounded[(4,)](x, out, 1000, BLOCK=256)
assert time.perf_counter() - begin < 0.05, "the launch has waited"
torch.cuda.synchronize()
bad = x.clone()
bad[700] = 100
torch.cuda.synchronize()
bounded[(4,)](bad, out, 1000, BLOCK=256)
"""
_NEXT_LAUNCH = """
time.sleep(0.5)
try:
    plain[(1,)](x, 1)
except DeviceAssertionError as error:
    print(error)
"""
_SYNCHRONIZED = """
try:
    torch.cuda.synchronize()
except RuntimeError as error:
    print("torch:", str(error).splitlines()[0])
"""


def _run(tmp_path: Path, end: str) -> subprocess.CompletedProcess[str]:
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM + end)
    return subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=120)


def test_the_next_launch_says_which(tmp_path: Path) -> None:
    done = _run(tmp_path, _NEXT_LAUNCH)
    assert "device-side assert in bounded: less than a hundred (program (2, 0, 0))" in done.stdout, done


def test_the_end_of_the_process_says_which(tmp_path: Path) -> None:
    done = _run(tmp_path, _SYNCHRONIZED)
    assert done.stdout.startswith("torch: "), done
    assert "DeviceAssertionError: device-side assert in bounded: less than a hundred" in done.stderr, done
