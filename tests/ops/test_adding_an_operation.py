"""What docs/layout.md promises of elementwise operations: one that is new needs three files, and runs everywhere."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.meta.sources import ROOT

# File: what stands there, what is put before it.
EDITS = {
    "ops/math.py": {
        '    "floor": (np.floor': '    "cube": (lambda x: x * x * x, "x to the third power.", 2),\n',
        "floor = _unary(": 'cube = _unary("cube", "`x` to the third power.", "tl.cube(2.0)\\n        8.0")\n',
    },
    "backends/llvm/elementwise.py": {
        '        "floor": _intrinsic': '        "cube": lambda f, x, **_: f.op("fmul", x, f.op("fmul", x, x)),\n',
    },
    "language/names.py": {"    cos,\n": "    cube,\n", '    "cumprod",\n': '    "cube",\n'},
}
PROGRAM = """
import numpy as np, tilewright, tilewright.language as tl
from tilewright.tools.aot import source_for

def program(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o + i, tl.cube(tl.load(x + i)))

x = np.linspace(-3, 3, 16, dtype=np.float32)
for interpret in (False, True):
    o = np.zeros_like(x)
    tilewright.jit(program, interpret=interpret)[(1,)](x, o, N=16)
    np.testing.assert_allclose(o, x * x * x, rtol=1e-6)
made = tilewright.compile(source_for(tilewright.jit(program), "*fp32:16, *fp32:16, 16"), target="cuda:90")
assert made.asm["ptx"].count("mul") >= 2, made.asm["ptx"]
print(tl.cube.__doc__.splitlines()[0])
"""


def test_an_elementwise_operation_is_three_files(tmp_path: Path) -> None:
    package = tmp_path / "tilewright"
    shutil.copytree(ROOT / "tilewright", package, ignore=shutil.ignore_patterns("__pycache__"))
    assert len(EDITS) <= 3
    for name, insertions in EDITS.items():
        text = (package / name).read_text()
        for before, line in insertions.items():
            assert text.count(before) == 1, (name, before)
            text = text.replace(before, line + before)
        (package / name).write_text(text)
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {"PYTHONPATH": str(tmp_path), "TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache"), "PATH": ""}
    done = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "`x` to the third power."
