"""Launch options of Triton's CUDA back end: taken, or refused by name with the reason; on every back end alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.backends.nvidia.options import CudaOptions
from tilewright.base.errors import ArgumentError, UnsupportedError


@tilewright.jit
def fill(out):
    tl.store(out, 1.0)


def launch(**options: Any) -> float:
    out = np.zeros(1, np.float32)
    fill[(1,)](out, **options)
    return float(out[0])


@pytest.mark.parametrize(
    "option",
    [
        {"warp_size": 32}, {"backend_name": "cuda"}, {"arch": None}, {"ptx_version": None}, {"ptx_options": ""},
        {"ir_override": None}, {"enable_reflect_ftz": False}, {"enable_reflect_ftz": True},
        {"instrumentation_mode": ""},
        {"supported_fp8_dtypes": None}, {"extern_libs": None}, {"extern_libs": {}},
    ],
)  # fmt: skip
def test_what_holds_here_may_be_written_out(option: dict[str, Any]) -> None:
    assert launch(**option) == launch(**option) == 1


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ({"warp_size": 64}, "a warp of an NVIDIA GPU has 32 threads"),
        ({"backend_name": "hip"}, 'as in target="cuda:90"'),
        ({"arch": "sm90"}, "the architecture goes with the target"),
        ({"ptx_version": 80}, "the newest that LLVM writes"),
        ({"ptx_options": "-v"}, "where there is no ptxas"),
        ({"ir_override": "k.ttgir"}, "TILEWRIGHT_OVERRIDE_DIR"),
        ({"instrumentation_mode": "fpsan"}, "not instrumented"),
        ({"allowed_dot_input_precisions": ("ieee",)}, "every precision"),
        ({"max_num_imprecise_acc_default": 0}, "tl.dot takes max_num_imprecise_acc"),
        ({"extern_libs": {"mine": "/dev/null"}}, "only NVIDIA's libdevice is linked"),
    ],
)
def test_other_values_are_refused_with_the_reason(option: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason) as caught:
        launch(**option)
    assert next(iter(option)) in str(caught.value)


def test_a_library_is_a_file_and_a_part_of_the_key(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="libdevice is to be read from .*no file"):
        launch(extern_libs={"libdevice": str(tmp_path / "none.bc")})
    path = tmp_path / "libdevice.10.bc"
    path.write_bytes(b"first")
    before = CudaOptions(extern_libs={"libdevice": str(path)})
    assert before.libdevice == path and hash(before) == hash(CudaOptions(extern_libs=(("libdevice", path),)))
    path.write_bytes(b"a second one")
    assert CudaOptions(extern_libs={"libdevice": path}).key() != before.key()
    assert launch(extern_libs={"libdevice": str(path)}) == launch(extern_libs={"libdevice": path}) == 1
