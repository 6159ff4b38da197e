"""A process without torch: kernels of the language run, and what needs torch says what to install."""

from __future__ import annotations

import subprocess
import sys

import pytest

WITHOUT = "import sys; sys.modules['torch'] = None\n"
KERNEL = """
import numpy as np
import tilewright, tilewright.language as tl

@tilewright.jit
def double(x, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, i < n) * 2, i < n)

x = np.arange(50, dtype=np.float32)
double[(1,)](x, 50, BLOCK=64)
double[(1,)](x, 50, BLOCK=64)
assert (x == 4 * np.arange(50)).all()
"""


def run(tmp_path, text: str) -> subprocess.CompletedProcess[str]:
    program = tmp_path / "program.py"  # a kernel has its source in a file
    program.write_text(WITHOUT + text)
    return subprocess.run([sys.executable, str(program)], capture_output=True, text=True)


def test_kernels_run(tmp_path):
    done = run(tmp_path, KERNEL)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "wanted, named",
    [
        ("from tilewright import hl", "tilewright.hl"),
        ("import tilewright.hl.language", "tilewright.hl"),
        ("import tilewright.torch", "tilewright.torch"),
        ("from tilewright.tools.timing import threads\nwith threads(1): pass", "timing beside PyTorch"),
    ],
)
def test_what_needs_torch_says_so(tmp_path, wanted, named):
    done = run(tmp_path, wanted)
    assert done.returncode == 1
    assert f"MissingPackageError: {named} needs PyTorch" in done.stderr
    assert "pip install 'tilewright[torch]'" in done.stderr


def test_it_is_an_import_error(tmp_path):
    done = run(tmp_path, "try:\n    from tilewright import hl\nexcept ImportError as error:\n    print(error.hint)")
    assert "tilewright[torch]" in done.stdout, done.stderr


def test_another_missing_module_is_not_taken_for_torch(tmp_path):
    text = "from tilewright.base.lazy import torch_needed\nwith torch_needed('x'):\n    import no_such_module"
    assert "ModuleNotFoundError: No module named 'no_such_module'" in run(tmp_path, text).stderr
