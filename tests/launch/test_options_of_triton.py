"""Launch options of Triton's CUDA back end: taken, or refused by name with the reason; on every back end alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.backends.nvidia.options import CudaOptions
from tilewright.base import foreign_options
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
        ({"ptx_options": "-v"}, "where there is no ptxas"),
        ({"ir_override": "k.ttgir"}, "TILEWRIGHT_OVERRIDE_DIR"),
        ({"instrumentation_mode": "fpsan"}, "not instrumented"),
        ({"allowed_dot_input_precisions": ("ieee",)}, "every precision"),
        ({"max_num_imprecise_acc_default": 0}, "tl.dot takes max_num_imprecise_acc"),
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


# --- options of other back ends -----------------------------------------------------------------------------


@pytest.fixture
def _untold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign_options, "_told", set())


@pytest.mark.usefixtures("_untold")
def test_options_of_other_back_ends_change_nothing_and_are_told_of_once() -> None:
    plain = fill.warmup(np.zeros(1, np.float32))
    with pytest.warns(UserWarning, match="option waves_per_eu is for AMD GPUs and changes nothing here") as told:
        for _ in range(3):
            launch(waves_per_eu=2, matrix_instr_nonkdim=16, kpack=2)
    assert len([found for found in told if "changes nothing here" in str(found.message)]) == 3
    assert fill.warmup(np.zeros(1, np.float32), kpack=1) is plain


@pytest.mark.usefixtures("_untold")
@pytest.mark.filterwarnings("ignore:option")
def test_configurations_may_have_options_of_other_back_ends() -> None:
    timed: list[Any] = []
    configs = [
        tilewright.Config({"waves_per_eu": 0, "kpack": 2}, num_warps=4),
        tilewright.Config({"waves_per_eu": 2}, num_stages=0, matrix_instr_nonkdim=32),
        tilewright.Config({}, num_consumer_groups=2, num_buffers_warp_spec=3, reg_dec_producer=40, pre_hook=None),
    ]
    assert configs[1].all_kwargs()["matrix_instr_nonkdim"] == 32
    bench = lambda call, quantiles: timed.append(call()) or [1.0]  # type: ignore[func-returns-value]
    out = np.zeros(1, np.float32)
    tilewright.autotune(configs, key=[], do_bench=bench)(fill)[(1,)](out)
    assert out[0] == 1 and len(timed) == 1  # the same code: timed once
    assert (
        tilewright.compile(tilewright.compiler.ASTSource(fill, {"out": "*fp32"}), options={"kpack": 2}).name == "fill"
    )
    with pytest.raises(TypeError, match="there is no option num_wraps"):
        tilewright.Config({}, num_wraps=4)


@pytest.mark.usefixtures("_untold")
def test_a_parameter_called_like_such_an_option_is_a_parameter(recwarn: pytest.WarningsRecorder) -> None:
    @tilewright.jit
    def fill_with(out: Any, kpack: tl.constexpr) -> None:
        tl.store(out, kpack)

    out = np.zeros(1, np.float32)
    fill_with[(1,)](out, kpack=3)
    assert out[0] == 3 and not [found for found in recwarn if "changes nothing" in str(found.message)]


@pytest.mark.parametrize("option", ["num_threads", "num_cpu_threads"])
def test_threads_by_either_name(option: str) -> None:
    assert [launch(**{option: count}) for count in (0, 1, 2, 0)] == [1.0] * 4
    with pytest.raises(ArgumentError, match=f"{option} must be a positive integer, or 0 for all"):
        launch(**{option: -1})
