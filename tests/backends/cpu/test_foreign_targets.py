"""Kernels for other machines: they compile and can be looked at, and a launch of them is refused."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.backends.cpu import machine
from tilewright.backends.llvm.features import host
from tilewright.backends.llvm.origin import elsewhere
from tilewright.base.errors import DeviceError
from tilewright.base.target import Target

_TARGETS = {
    "Windows on x86-64": Target("cpu", "x86-64", triple="x86_64-pc-windows-msvc"),
    "macOS on x86-64": Target("cpu", "x86-64", triple="x86_64-apple-macosx14.0.0"),
    "macOS on aarch64": Target("cpu", "apple-m1", triple="arm64-apple-macosx14.0.0"),
    "Linux on aarch64": Target("cpu", "neoverse-n1", triple="aarch64-unknown-linux-gnu"),
    "Linux on x86-64": Target("cpu", "x86-64", triple="x86_64-unknown-linux-gnu"),
}


@tilewright.jit
def _twice(x, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.device_assert(n > 0)
    tl.store(x + i, tl.load(x + i, i < n) * 2, i < n)


def _is_here(where: str) -> bool:
    arch = "x86-64" if host().is_x86 else "aarch64"
    return where == f"{machine.system_of(host().triple)} on {arch}"


@pytest.mark.parametrize("cached", [False, True], ids=["compiled", "from disk"])
@pytest.mark.parametrize("where", _TARGETS)
def test_a_launch_of_foreign_code_is_refused(where, cached):
    x = np.ones(8, np.float32)
    for _ in range(1 + cached):
        kernel = tilewright.jit(_twice.fn).warmup(x, 8, BLOCK=8, grid=(1,), target=_TARGETS[where], debug=True)
    assert kernel.from_disk >= cached
    assert elsewhere(kernel.asm["obj"]) == ("" if _is_here(where) else where)
    if _is_here(where):
        kernel[(1,)](x, 8)
        assert (x == 2).all()
        return
    with pytest.raises(DeviceError, match=rf"`_twice`.*for {where}"):
        kernel[(1,)](x, 8)
    assert (x == 1).all()


@pytest.mark.parametrize("where", _TARGETS)
def test_why_not_looks_at_the_system(where):
    why = machine.why_not(_TARGETS[where])
    assert (why == "") == _is_here(where)
    if not _is_here(where):
        assert why == f"this machine is no {where}"


def test_what_is_no_object_is_from_nowhere():
    for image in (b"", b"\x7fEL", b"\x7fELF", bytes(64), b"\xcf\xfa\xed\xfe", b"MZ" + bytes(30)):
        assert elsewhere(image) == ""
