"""Triton's environment variables, processes that a posing one starts, and questions about other devices."""

from __future__ import annotations

import os
import subprocess
import sys
import venv

import pytest

from tests.meta.sources import ROOT
from tests.triton_names.test_switch import POSE, run
from tilewright.base.environment import TRITON_NAMES
from tilewright.base.knobs import knobs

SHOW = "print(*[f'{env}={value}' for _, env, value, _ in tilewright.knobs.describe()], sep='\\n')\n"
VALUES = {
    "TRITON_CACHE_DIR": "/some/cache",
    "TRITON_DUMP_DIR": "/some/dump",
    "TRITON_F32_DEFAULT": "ieee",
    "TRITON_LIBCUDA_PATH": "/some/libcuda.so",
    "TRITON_LIBDEVICE_PATH": "/some/libdevice.bc",
    "TRITON_OVERRIDE_DIR": "/some/override",
    "TRITON_PTXAS_PATH": "/some/ptxas",
}
"""Of the others 1 or 0, whichever is not the usual value."""


def values() -> dict[str, str]:
    usual = {variable: value for _, variable, value, _ in knobs.describe()}
    return {theirs: VALUES.get(theirs) or str(int(not usual[ours])) for ours, theirs in TRITON_NAMES.items()}


def settings(first: str, **environment: str) -> dict[str, str]:
    """Text of each knob by variable, in a process that runs `first` and looks then."""
    clean = dict.fromkeys([*TRITON_NAMES, *TRITON_NAMES.values()], "")
    said = run(first + SHOW, **{**clean, **environment})
    return dict(line.split("=", 1) for line in said.splitlines())


def test_every_variable_of_triton_does_what_ours_does():
    theirs = settings(POSE, **values())
    ours = settings(POSE, **{ours: values()[name] for ours, name in TRITON_NAMES.items()})
    nothing = settings(POSE)
    assert theirs == ours
    assert {name for name in ours if ours[name] != nothing[name]} == set(TRITON_NAMES)


def test_without_posing_nothing_is_read():
    assert settings("import tilewright\n", **values()) == settings("import tilewright\n")


def test_our_variable_goes_before_theirs_and_what_python_set_before_both():
    both = settings(POSE, TRITON_DEBUG="1", TILEWRIGHT_DEBUG="0", TRITON_CACHE_DIR="/a", TILEWRIGHT_CACHE_DIR="/b")
    assert (both["TILEWRIGHT_DEBUG"], both["TILEWRIGHT_CACHE_DIR"]) == ("False", "/b")
    first = "import tilewright\ntilewright.knobs.cache.dir = '/c'\ntilewright.as_triton()\n"
    assert settings(first, TRITON_CACHE_DIR="/a")["TILEWRIGHT_CACHE_DIR"] == "/c"


@pytest.mark.parametrize("ours", ["TILEWRIGHT_DUMP_DIR", "TILEWRIGHT_OVERRIDE_DIR"])
def test_switches_of_folders(ours):
    name = ours.removeprefix("TILEWRIGHT_").removesuffix("_DIR")
    folder, switch = f"TRITON_{name}_DIR", f"TRITON_KERNEL_{name}"
    assert settings(POSE, **{switch: "1", folder: "/d"})[ours] == "/d"
    assert settings(POSE, **{switch: "0", folder: "/d"})[ours] == "None"
    assert settings(POSE, **{switch: "1"}, TRITON_CACHE_DIR="/e/cache")[ours] == f"/e/{name.lower()}"


def test_folders_of_home_and_of_inductor():
    assert settings(POSE, TRITON_HOME="/h")["TILEWRIGHT_CACHE_DIR"] == "/h/.triton/cache"
    usual = settings(POSE)["TILEWRIGHT_CACHE_DIR"]
    inductor = {"TORCHINDUCTOR_CACHE_DIR": "/i", "TRITON_CACHE_DIR": "/i/triton/0"}  # torch sets both by itself
    assert settings(POSE, **inductor)["TILEWRIGHT_CACHE_DIR"] == usual


def test_a_wrong_value_names_the_variable_that_has_it():
    done = subprocess.run(
        [sys.executable, "-c", POSE],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TRITON_INTERPRET": "perhaps"},
        capture_output=True,
        text=True,
    )
    assert "TRITON_INTERPRET='perhaps' is neither 1 nor 0" in done.stderr


def test_a_program_that_sets_a_variable_before_it_imports_triton(tmp_path):
    (tmp_path / "program.py").write_text("""
import os
os.environ["TRITON_INTERPRET"] = "1"
import numpy
import triton
import triton.language as tl

@triton.jit
def kernel(x):
    seen.append("Python")
    tl.store(x, 3)

seen, x = [], numpy.zeros(1, numpy.int32)
kernel[(1,)](x)
print(seen[0], x[0])
""")
    said = run("", "-m", "tilewright.as_triton", str(tmp_path / "program.py"), TRITON_INTERPRET="")
    assert said.split() == ["Python", "3"]


# --- other processes ----------------------------------------------------------------------------------------


def test_a_plain_subprocess_finds_the_same_triton():
    said = run(POSE + """if 1:
        import subprocess, sys
        child = "import triton.language as tl, triton; print(triton.__tilewright__, tl.float32)"
        grand = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], check=True)"
        for program in (child, grand):
            subprocess.run([sys.executable, "-c", program], check=True)
    """)  # fmt: skip
    assert said.split() == ["True", "fp32"] * 2


@pytest.mark.parametrize("real", [True, False])
def test_a_python_without_tilewright_has_its_own_triton_or_none(tmp_path, real):
    """Of another environment: here one without any package."""
    venv.create(tmp_path / "other", symlinks=True, with_pip=False)
    python = tmp_path / "other" / "bin" / "python"
    if real:
        site = next((tmp_path / "other" / "lib").glob("python*/site-packages"))
        (site / "triton").mkdir()
        (site / "triton" / "__init__.py").write_text("__version__ = 'real'")
        (site / "triton" / "language.py").write_text("float32 = 'its own'")
    started = run(POSE + "from tilewright.triton_names.switch import STARTED; print(STARTED)").strip()
    done = subprocess.run(
        [python, "-c", "import triton.language; print(triton.__version__, triton.language.float32)"],
        env={"PYTHONPATH": started, "TILEWRIGHT_AS_TRITON": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    if real:
        assert done.stdout.split() == ["real", "its", "own"], done.stderr
    else:
        assert "ModuleNotFoundError: No module named 'triton'" in done.stderr


# --- questions about other devices --------------------------------------------------------------------------


def test_questions_about_other_devices_are_answered_with_no():
    run(POSE + """if 1:
        import importlib.util
        import triton, triton.language as tl
        from triton import _internal_testing as questions
        from triton.backends import backends
        target = triton.runtime.driver.active.get_current_target()
        assert target.backend in ("cpu", "cuda") and "amd" not in backends and "hip" not in backends
        assert importlib.util.find_spec("triton.backends.amd") is None
        asked = [name for name in questions.__all__ if name.startswith("is_hip")] + ["is_xpu"]
        assert len(asked) > 9 and not any(getattr(questions, name)() for name in asked)
        assert questions.is_cuda() == (target.backend == "cuda") == (not questions.is_cpu())
        assert questions.get_arch() == str(target.arch)
        for name in ("is_hip", "is_hip_cdna3", "is_hip_cdna4", "is_hip_gfx1250"):
            assert getattr(tl.target_info, name)() is False, name
        assert tl.target_info.is_cuda() == (target.backend == "cuda")
        assert tl.target_info.current_target() == target
        assert tl.target_info.cuda_capability_geq(99) is False
        for group in (triton.knobs.amd, triton.knobs.proton):
            for name, value in group.knobs.items():
                setattr(group, name, "anything")
            with group.scope():
                group.reset()
            assert set(group.knobs.values()) == {"anything"}
            group.reset()
        assert triton.knobs.amd.use_buffer_ops is True and triton.knobs.amd.libhip_path is None
        assert not hasattr(triton.knobs.amd, "no_such_setting")
    """)  # fmt: skip
