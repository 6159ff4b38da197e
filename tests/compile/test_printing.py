"""The knobs that print a kernel after each pass, by our names and by those of MLIR and LLVM."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.base import environment
from tilewright.base.errors import KnobError
from tilewright.base.knobs import knobs

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
import tilewright, tilewright.language as tl
if "triton" in sys.argv:
    tilewright.as_triton()

@tilewright.jit
def first(x, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)

@tilewright.jit
def second(x):
    tl.store(x, 1.0)

target = {"target": "cuda:90"} if sys.argv[1] == "gpu" else {}
first.warmup(tilewright.MockTensor(tl.float32), 100, B=64, grid=(1,), **target)
second.warmup(tilewright.MockTensor(tl.float32), grid=(1,), **target)
"""


def told(tmp_path: Path, device: str, **environment: str) -> str:
    (tmp_path / "program.py").write_text(PROGRAM)
    known = {name: value for name, value in os.environ.items() if "DUMP" not in name}
    posing = [] if any(name.startswith("TILEWRIGHT_") for name in environment) else ["triton"]
    done = subprocess.run(
        [sys.executable, str(tmp_path / "program.py"), device, *posing],
        env={**known, "PYTHONPATH": str(ROOT), "TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache"), **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_nothing_is_printed_unasked(tmp_path: Path) -> None:
    assert not told(tmp_path, "cpu", MLIR_ENABLE_DUMP="0", LLVM_IR_ENABLE_DUMP="")


@pytest.mark.parametrize(("device", "name"), [("cpu", "TILEWRIGHT_PRINT_PASSES"), ("gpu", "MLIR_ENABLE_DUMP")])
def test_tile_ir_after_each_pass(device: str, name: str, tmp_path: Path) -> None:
    told(tmp_path, device)
    text = told(tmp_path, device, **{name: "1"})  # the disk cache hides nothing
    heads = re.findall(r"// -----// (\w+) after ([\w ]+) //----- //", text)
    after = ["the front end", "canonicalize", "dce", "loops" if device == "cpu" else "assign"]
    assert {(kernel, what) for kernel in ("first", "second") for what in after} <= set(heads)
    assert text.count("tt.func public @first") >= 2 and "// as before" in text
    one = told(tmp_path, device, **{name: "second"})
    assert "@second" in one and "first" not in one


@pytest.mark.parametrize(("device", "name"), [("cpu", "LLVM_IR_ENABLE_DUMP"), ("gpu", "TILEWRIGHT_PRINT_LLVM")])
def test_llvm_ir_after_each_pass(device: str, name: str, tmp_path: Path) -> None:
    text = told(tmp_path, device, **{name: "1"})
    assert text.count("IR Dump After") > 10 and "@first(" in text and "@second(" in text
    one = told(tmp_path, device, **{name: "second"})
    assert "IR Dump After" in one and "@second(" in one and "@first(" not in one


# --- lines of a stage's file -----------------------------------------------------------------------------------


@tilewright.jit
def lined(x, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + i, tl.sum(tl.load(x + i, mask=i < n), 0), mask=i < n)


@pytest.mark.parametrize(("stage", "target"), [("ttir", None), ("ttir", "cuda:90"), ("tgir", "cuda:90")])
def test_lines_are_those_of_a_stage(
    stage: str, target: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(knobs.cache, "dir", tmp_path)
    with knobs.compilation.scope():
        knobs.compilation.use_ir_loc = stage.replace("tgir", "ttgir")  # a name of Triton's
        kernel = tilewright.jit(lined.fn).warmup(tilewright.MockTensor(tl.float32), 100, B=64, grid=(2,), target=target)
        text = kernel.asm["llir"]
    (file,) = tmp_path.rglob(f"lined.{stage}")
    assert f'!DIFile(filename: "lined.{stage}"' in text and "test_printing.py" not in text
    written = file.read_text().splitlines()
    assert "loc(" not in file.read_text()
    lines = {int(line) for line in re.findall(r"DILocation\(line: (\d+)", text)}
    assert any("tt.store" in written[line - 1] for line in lines)
    assert any("tt.load" in written[line - 1] for line in lines)
    if target is None:
        x = np.ones(128, np.float32)
        kernel[(2,)](x, 100)
        assert x[:100].tolist() == [64] * 64 + [36] * 36 and x[100:].tolist() == [1] * 28


def test_the_knob_of_lines_by_its_other_names(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = type(knobs.compilation)
    monkeypatch.setenv("USE_IR_LOC", "ttir")
    assert kind().use_ir_loc is None  # nothing of Triton's counts but where we pose
    monkeypatch.delenv("USE_IR_LOC")
    monkeypatch.setattr(environment, "_heeded", [True])
    for name, value, stage in [
        ("USE_TTGIR_LOC", "1", "tgir"), ("USE_IR_LOC", "ttgir", "tgir"), ("USE_IR_LOC", "ttir", "ttir"),
        ("USE_TTGIR_LOC", "0", None),
    ]:  # fmt: skip
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            assert kind().use_ir_loc == stage
    monkeypatch.setenv("USE_IR_LOC", "ptx")
    with pytest.raises(KnobError, match="neither ttir nor tgir"):
        kind()
