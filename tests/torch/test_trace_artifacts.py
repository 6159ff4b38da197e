"""torch's own logging: `TORCH_LOGS` has our records, `TORCH_TRACE` our stages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests.meta.sources import ROOT

torch = pytest.importorskip("torch")
PROGRAM = """
import torch
import tilewright
import tilewright.language as tl
import tilewright.torch

@tilewright.jit
def double(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, 2 * tl.load(x + i, i < n), i < n)

double[(1,)](torch.ones(64), 64, BLOCK=64)
"""


def test_records_and_stages(tmp_path):
    path, trace = tmp_path / "program.py", tmp_path / "trace"
    path.write_text(PROGRAM)
    settings = {"TORCH_LOGS": "+tilewright", "TORCH_TRACE": str(trace), "PYTHONPATH": str(ROOT)}
    environment = {**os.environ, **settings, "TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, str(path)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "double: first variant" in done.stderr and "double[1]: x=float32[64]" in done.stderr
    (file,) = trace.iterdir()
    assert {"facts", "source", "ttir", "llir"} == set(artifacts(file.read_text()))
    assert "tt.store" in artifacts(file.read_text())["ttir"]
    assert json.loads(artifacts(file.read_text())["facts"])["kernel"] == "double"


def test_nothing_is_rendered_where_no_trace_is_written(monkeypatch):
    from torch._logging import _internal

    from tilewright.torch.trace_artifacts import _trace

    for folder, rendered in ((None, []), ("traces", ["facts", "ttir"])):
        said = []
        monkeypatch.setattr(_internal.trace_log, "handlers", [_internal.LazyTraceHandler(folder)])
        monkeypatch.setattr("tilewright.torch.trace_artifacts._artifact", lambda kernel, what, *rest: said.append(what))
        _trace(None, SimpleNamespace(from_disk=False, asm={"ttir": ""}))
        assert said == rendered


def artifacts(text: str) -> dict[str, str]:
    """Payload of each artifact of the kernel, by the last word of its name: the indented lines behind a record."""
    found: dict[str, list[str]] = {}
    payload: list[str] = []
    for line in text.splitlines():
        if line.startswith("\t"):
            payload.append(line[1:])
            continue
        payload = []
        record = json.loads(line[line.index("{") :])
        name = record.get("artifact", {}).get("name", "")
        if name.startswith("tilewright_double_"):
            found[name.rpartition("_")[2]] = payload
    return {name: "\n".join(lines) for name, lines in found.items()}
