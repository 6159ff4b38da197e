"""The switch: what `import helion` gives in a process that poses, in those that it starts, and where it must not."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.meta.sources import ROOT
from tests.triton_names.test_switch import run

POSE = "import tilewright; tilewright.as_helion()\n"


def test_modules_are_found_by_every_way_of_importing():
    run(
        POSE
        + """if 1:
        import importlib, importlib.metadata, importlib.util, sys
        assert "torch" not in sys.modules  # nothing is loaded before it is wanted
        import helion
        import helion.language as hl
        import tilewright.hl as ours
        from helion.runtime.config import Config
        from helion.runtime import kernel as module, settings
        from tilewright.helion_names.surface import MODULES
        for name in MODULES:
            found = importlib.import_module(name)
            value = helion
            for part in name.split(".")[1:]:
                value = getattr(value, part)
            assert name == "helion.runtime.kernel" or value is found is sys.modules[name], name
            assert importlib.util.find_spec(name).name == name
        assert helion.kernel is helion.jit is ours.kernel and hl.tile is ours.tile and Config is ours.Config
        assert helion.exc is ours.exc and helion.Kernel is ours.Kernel and hl.constexpr is ours.constexpr
        assert helion.__version__ == importlib.metadata.version("helion") == "1.5.1"
        import triton
        assert triton.__tilewright__
        tilewright.as_helion()  # a second call does nothing
    """
    )


def test_triton_is_left_alone_where_that_is_asked_for():
    run(
        """if 1:
        import sys, tilewright
        tilewright.as_helion(triton=False)
        import helion
        assert not getattr(sys.modules.get("triton"), "__tilewright__", False)
        tilewright.as_triton()  # both, one after the other
        import triton
        assert triton.__tilewright__ and helion.__tilewright__
    """
    )


def test_a_real_helion_is_not_replaced(tmp_path):
    (tmp_path / "helion.py").write_text("real = True")
    run(
        """if 1:
        import helion, tilewright
        try:
            tilewright.as_helion()
        except tilewright.errors.PosingError as error:
            assert "helion.py" in str(error) and "before the first import of helion" in str(error)
        else:
            raise AssertionError
        assert helion.real
    """,
        FIRST=str(tmp_path),
    )
    run(POSE + "import helion; assert helion.__tilewright__", FIRST=str(tmp_path))  # one that is only installed


def test_processes_that_are_started_pose_too(tmp_path):
    (tmp_path / "helion.py").write_text("real = True")
    run(
        POSE
        + """if 1:
        import os, subprocess, sys
        say = "import helion, sys; print(getattr(helion, '__tilewright__', False))"
        def answer(**environment):
            wanted = {**os.environ, **environment}
            command = [sys.executable, "-W", "error", "-c", say]
            return subprocess.run(command, env=wanted, capture_output=True, text=True)
        done = answer()
        assert done.stdout == "True\\n" and not done.stderr, done
        assert answer(TILEWRIGHT_AS_HELION="").stdout == "False\\n"  # the one that is installed there
    """,
        FIRST=str(tmp_path),
    )


def test_variables_of_helion_are_settings():
    run(
        "import os; os.environ.pop('TILEWRIGHT_CACHE_DIR', None)\n"
        + POSE
        + """if 1:
        from pathlib import Path
        import helion
        before = helion.Settings()
        assert before.autotune_effort == "quick" and not before.static_shapes and before.dot_precision == "ieee"
        assert before.ref_mode is helion.RefMode.EAGER and before.autotune_config_overrides == {"num_warps": 2}
        assert before.autotune_budget_seconds == 2.5 and before.index_dtype is None and not before.fast_math
        assert helion.Settings(static_shapes=True).static_shapes  # an argument goes first
        assert tilewright.knobs.cache.dir == Path("/tmp/of_helion")
        assert repr(helion.Config(num_warps=4)) == "helion.Config(num_warps=4)"
        assert repr(helion.Settings()).startswith("helion.Settings(")
    """,
        HELION_AUTOTUNE_EFFORT="quick",
        HELION_AUTOTUNE_BUDGET_SECONDS="2.5",
        HELION_STATIC_SHAPES="0",
        HELION_INTERPRET="1",
        HELION_INDEX_DTYPE="auto",
        HELION_FAST_MATH="1",
        TILEWRIGHT_HL_FAST_MATH="0",  # ours go first
        TRITON_F32_DEFAULT="ieee",
        HELION_AUTOTUNE_CONFIG_OVERRIDES='{"num_warps": 2}',
        HELION_CACHE_DIR="/tmp/of_helion",
    )


def test_variables_of_helion_mean_nothing_elsewhere():
    run(
        "from tilewright import hl; assert hl.Settings().static_shapes and repr(hl.Config()) == 'hl.Config()'",
        HELION_STATIC_SHAPES="0",
    )


def test_a_pasted_decorator_and_keys_of_other_back_ends(tmp_path):
    (tmp_path / "pasted.py").write_text("""
import torch, helion, helion.language as hl

@helion.kernel(config=helion.Config(block_sizes=[8], cute_pdl=True, tcgen05_cluster_m=2, pallas_pre_broadcast=False,
                                    num_ctas=2, xcd_remap=1), backend="triton", cute_region_fission=True)
def twice(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * 2
    return out

x = torch.randn(20)
torch.testing.assert_close(twice(x), x * 2)
twice.bind((x,)).to_code(twice.configs[0])
line = twice.bind((x,)).format_kernel_decorator(helion.Config(block_sizes=[4]), helion.Settings(fast_math=True))
assert line == "@helion.kernel(config=helion.Config(block_sizes=[4]), fast_math=True)", line
exec(line[1:])  # it can be written there
""")
    command = [sys.executable, "-m", "tilewright.as_helion", str(tmp_path / "pasted.py")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    notes = [line for line in done.stderr.splitlines() if "is ignored" in line]
    assert len(notes) == 5  # one for each key, whatever is asked afterwards


def test_kernels_are_operators_of_torch_compile(tmp_path):
    (tmp_path / "compiled.py").write_text("""
import torch, helion, helion.language as hl

@helion.kernel
def scaled(x, s: float):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * s
    return out

x = torch.randn(100)
call = torch.compile(lambda x: scaled(x + 1, 3.0).sin(), fullgraph=True, backend="eager")
torch.testing.assert_close(call(x), (x * 3 + 3).sin())
""")
    run("", "-m", "tilewright.as_helion", str(tmp_path / "compiled.py"))


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_how_it_is_used(arguments):
    done = subprocess.run(
        [sys.executable, "-m", "tilewright.as_helion", *arguments], capture_output=True, text=True, timeout=60
    )
    assert "usage: python -m tilewright.as_helion (program.py | -m module)" in done.stdout + done.stderr
    assert done.returncode == (not arguments)
