"""A kernel that was compiled for a file in one folder is taken from the disk for the same file in another: places are
those of whoever asks."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright.base.cache_layers import disk_cache
from tilewright.base.knobs import knobs
from tilewright.compile.build import compile_request, image_of
from tilewright.compile.request import make_request
from tilewright.compile.rooting import rooted, uprooted
from tilewright.compile.sources import FunctionSource

KERNELS = """
import tilewright
import tilewright.language as tl
from moved_helpers import half


@tilewright.jit
def picked(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    at = tl.load(x + i, i < n).to(tl.int32)
    tl.device_assert(at < n, "wild")
    tl.store(y + i, half(tl.load(y + at)), i < n)
"""
HELPERS = """
import tilewright
import tilewright.language as tl


@tilewright.jit
def half(v):
    return v * tl.sum(v) / 2
"""


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Loads the module of a folder, under the same name each time."""
    before = dict(sys.modules)

    def load(folder: str) -> ModuleType:
        made = tmp_path / folder
        made.mkdir()
        for name, text in (("moved_helpers", HELPERS), ("moved_kernels", KERNELS)):
            (made / f"{name}.py").write_text(text)
            spec = importlib.util.spec_from_file_location(name, made / f"{name}.py")
            assert spec is not None and spec.loader is not None
            sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(sys.modules[name])
        return sys.modules["moved_kernels"]

    with knobs.cache.scope():
        knobs.cache.dir = tmp_path / "cache"
        yield load
    for name in ("moved_helpers", "moved_kernels"):
        sys.modules.pop(name, None)
    assert before.keys() <= sys.modules.keys()


def launched(module: ModuleType, **options: Any) -> Any:
    x, y = np.zeros(8, np.float32), np.ones(8, np.float32)
    return module.picked[(1,)](x, y, 8, B=8, **options)


def places(kernel: Any) -> set[str]:
    """Every file that a compiled kernel names."""
    found = {str(kernel.metadata["file"])}
    for decision in kernel.decisions:
        found |= {decision.file, decision.cause_file}
    return {str(Path(name).parent) for name in found if name}


def test_places_are_those_of_the_file_that_is_run(folders, tmp_path):
    first = launched(folders("first"))
    assert not first.from_disk and places(first) == {str(tmp_path / "first")}
    second = launched(folders("second"))
    assert second.from_disk, "the same text under the same names is the same kernel"
    assert places(second) == {str(tmp_path / "second")}
    assert [d.record() | {"file": "", "cause_file": ""} for d in first.decisions] == [
        d.record() | {"file": "", "cause_file": ""} for d in second.decisions
    ]


def test_entries_hold_no_path_of_the_source(folders, tmp_path):
    kernel = launched(folders("first"), debug=True)
    entry = disk_cache().get(kernel.hash)
    assert entry is not None and "wild" in kernel.metadata["asserts"]
    assert str(tmp_path) not in json.dumps(entry.metadata)


def test_what_another_process_compiled_is_named_as_here(folders, tmp_path):
    """A worker on another machine may have the module elsewhere."""
    folders("first")
    sent = image_of(_request(sys.modules["moved_kernels"]))
    assert str(tmp_path) not in json.dumps(sent.metadata)
    folders("second")
    disk_cache().local.clear()
    received = compile_request(_request(sys.modules["moved_kernels"]), elsewhere=lambda: sent)
    assert received.seconds == sent.seconds and places(received) == {str(tmp_path / "second")}


def _request(module: ModuleType) -> Any:
    x = np.zeros(8, np.float32)
    kernel = module.picked.warmup(x, x, 8, B=8, grid=(1,))
    return make_request(FunctionSource(module.picked), kernel.specialization)


def test_only_whole_paths_are_replaced():
    files = {"m.f": "/a/k.py", "m.g": "/a/k.py", "n.h": "/a/k.py.txt", "w.k": r"C:\x\k.py"}
    told = {"file": "/a/k.py", "text": ["at /a/k.py:3", "of /a/k.py.txt, not /b/a/k.py", r"C:\x\k.py"], "n": (1, None)}
    kept = uprooted(told, files)
    assert "/a/k.py:" not in json.dumps(kept) and "/b/a/k.py" in json.dumps(kept)
    assert rooted(kept, files) == told
    elsewhere = dict.fromkeys(files, "/c/d.py")
    assert rooted(kept, elsewhere)["text"][0] == "at /c/d.py:3"
    assert rooted(kept, {})["file"] == "m.f"  # a name is better than the path of somebody else


def test_paths_of_tilewright_itself_move_too():
    place = str(Path(tilewright.__file__).parent / "language" / "standard.py")
    kept = uprooted({"file": place}, {})
    assert "language/standard.py" in kept["file"].replace("\\", "/") and place not in kept["file"]
    assert rooted(kept, {}) == {"file": place}
