"""Names of the language: real objects whichever way they are reached first, in a process of its own each time."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.meta.sources import ROOT

FIRST = [
    "tl.load",
    "tl.tensor",
    "tl.math.exp",
    "tl.sort",
    "tl.extra.libdevice.tanh",
    "from tilewright.language import load, store, constexpr",
    "from tilewright.language.core import tensor, atomic_poll, map_elementwise, aggregate_replace, slice, load",
    "from tilewright.language.standard import sort, topk, bitonic_merge, ravel, zeros, squeeze, cdiv",
    "from tilewright.language.math import exp",
    "from tilewright.language.extra import libdevice",
    "from tilewright.language.random import philox",
    "import tilewright.language.core as core; core.program_id; core.constexpr",
    "from tilewright.language import *; arange, tensor, static_range",
    "import tilewright.runtime.jit, tilewright.compiler, tilewright.testing",
    "getattr(tl, 'no_such_name', None)",
    "import inspect; inspect.signature(tl.dot)",
    "import copy, pickle; pickle.loads(pickle.dumps(tl.float32))",
]
CHECKS = """
import inspect, types
from tilewright.language import core, standard
from tilewright.ops.builtin import BUILTINS, Builtin
from tilewright.language import names
assert set(names.__all__) <= set(tl.__all__) <= set(dir(tl))
for name in tl.__all__:
    assert getattr(tl, name) is vars(tl)[name], name
assert isinstance(tl.load, Builtin) and tl.load is core.load is BUILTINS["load"] and tl.load.__doc__
assert list(inspect.signature(tl.store).parameters)[:3] == ["pointer", "value", "mask"]
assert tl.sort is standard.sort and tl.zeros is standard.zeros and tl.tensor is core.tensor
assert isinstance(tl.math, types.ModuleType) and tl.math.exp is tl.exp
assert tl.tensor.sum is tl.sum and tl.tensor.to
assert tl.float32 == core.float32 and callable(tl.float32)
for wrong in ("no_such_name", "__wrapped__", "_private"):
    assert not hasattr(tl, wrong)
"""


@pytest.mark.parametrize("first", FIRST)
def test_every_first_use_gives_the_same_names(first):
    text = f"import tilewright\nimport tilewright.language as tl\n{first}\n{CHECKS}"
    subprocess.run([sys.executable, "-c", text], cwd=ROOT, check=True)


def test_threads_may_be_the_first_users_together():
    text = """
import threading
import tilewright.language as tl
names = ["load", "sum", "math", "extra", "sort", "core", "standard", "rand", "dot", "tensor"] * 3
start, found = threading.Barrier(len(names)), []
def use(name):
    start.wait()
    found.append((name, getattr(tl, name)))
threads = [threading.Thread(target=use, args=(name,)) for name in names]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert len(found) == len(names) and all(vars(tl)[name] is value for name, value in found)
"""
    subprocess.run([sys.executable, "-c", text], cwd=ROOT, check=True, timeout=60)


@pytest.mark.parametrize("interpret", ["0", "1"])
def test_kernels_that_use_methods_only(tmp_path, interpret):
    text = """
import numpy as np
import tilewright
@tilewright.jit
def k(x, n):
    x.store(n.to(x.dtype.element_ty).abs() + 1)
x = np.zeros(1, np.float32)
k[(1,)](x, -3)
assert x[0] == 4, x
"""
    (tmp_path / "k.py").write_text(text)
    settings = {"PYTHONPATH": str(ROOT), "TILEWRIGHT_INTERPRET": interpret, "TILEWRIGHT_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, str(tmp_path / "k.py")], env=settings, check=True)
