"""Launches and settings that cannot be: each says what is wrong, also when the kernel is warm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.base.errors import ArgumentError, KnobError, LanguageValueError, UnsupportedError
from tilewright.base.knobs import knobs
from tilewright.compiler import ASTSource


@tilewright.jit
def write(out_ptr, n: tl.int8, m: tl.uint32, BLOCK: tl.constexpr = 4):
    tl.store(out_ptr + tl.arange(0, BLOCK), n + m.to(tl.int32))


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize(
    ("n", "m", "said"),
    [(128, 3, "`n` is annotated i8, which holds -128 to 127, got 128"), (-129, 3, "got -129"),
     (5, -1, "`m` is annotated u32, which holds 0 to 4294967295, got -1"), (5, 1 << 32, "got 4294967296")],
)  # fmt: skip
def test_integers_outside_of_their_annotation(warm: bool, n: int, m: int, said: str) -> None:
    kernel, out = tilewright.jit(write.fn), np.zeros(4, np.int32)
    for _ in range(4 if warm else 0):
        kernel[(1,)](out, -3, 5)
        assert out.tolist() == [2] * 4
    with pytest.raises(ArgumentError, match=said):
        kernel[(1,)](out, n, m)
    kernel[(1,)](out, -128, 130)
    assert out.tolist() == [2] * 4


@pytest.mark.parametrize(
    ("option", "said"),
    [({"num_stages": "three"}, "num_stages is int, got 'three'"), ({"num_warps": 2.0}, "num_warps is int"),
     ({"enable_fp_fusion": "no"}, "enable_fp_fusion is bool"), ({"debug": "yes"}, "debug is bool"),
     ({"maxnreg": True}, "maxnreg is int or None"), ({"ptx_options": 3}, "ptx_options is str or None"),
     ({"default_dot_input_precision": "half"}, "ieee")],
)  # fmt: skip
def test_options_of_the_wrong_kind(option: dict[str, Any], said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        write[(1,)](np.zeros(4, np.int32), 1, 2, **option)


def test_equal_options_are_one_key() -> None:
    out = np.zeros(4, np.int32)
    plain = write[(1,)](out, 3, 4, enable_fp_fusion=True, num_stages=2)
    assert write[(1,)](out, 3, 4, enable_fp_fusion=1, num_stages=np.int64(2)) is plain


@pytest.mark.parametrize("target", ["gpu:1", "cuda:", 5, None])
def test_what_is_no_target(target: Any) -> None:
    source = ASTSource(write, {"out_ptr": "*i32", "n": "i8", "m": "u32"}, {"BLOCK": 4})
    if target is None:
        assert tilewright.compile(source, target=None).name == "write"
        return
    with pytest.raises(UnsupportedError, match="is no target"):
        tilewright.compile(source, target=target)


def test_a_type_that_there_is_not() -> None:
    with pytest.raises(LanguageValueError, match="unknown type 'fp33'"):
        tilewright.compile(ASTSource(write, {"out_ptr": "*fp33", "n": "i8", "m": "u32"}, {"BLOCK": 4}))


def test_hooks_that_cannot_be_called() -> None:
    kernel = tilewright.jit(write.fn)
    runtime = knobs.runtime
    for put in (
        lambda: kernel.add_pre_run_hook(5),
        lambda: kernel.pre_run_hooks.append("f"),
        lambda: runtime.launch_enter_hook.add(5),
        lambda: runtime.launch_exit_hook.calls.extend([print, 5]),
        lambda: setattr(runtime, "jit_cache_hook", 5),
        lambda: setattr(runtime, "kernel_load_start_hook", 5),
        lambda: setattr(knobs.compilation, "listener", "f"),
    ):
        with pytest.raises(KnobError):
            put()
    assert not kernel.pre_run_hooks and not runtime.launch_enter_hook and not runtime.launch_exit_hook


def test_functions_as_constants_are_told_apart() -> None:
    """A function of Python that a kernel is given is evaluated while it compiles; it is keyed by its content."""

    @tilewright.jit
    def applied(out_ptr, F: tl.constexpr):
        tl.store(out_ptr, F(3))

    out = np.zeros(1, np.int32)
    for function, expected in ((lambda v: v, 3), (lambda v: v + 1, 4), (lambda v: v, 3)):
        applied[(1,)](out, function)
        assert out[0] == expected
