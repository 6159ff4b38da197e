"""Settings from the environment: what cannot be is refused by name, in a fresh process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.base.errors import KnobError
from tilewright.base.hooks import HookChain
from tilewright.base.knobs import Knobs

ROOT = Path(__file__).resolve().parents[2]


def run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TILEWRIGHT", "HOME", "XDG"))}
    return subprocess.run(
        [sys.executable, "-c", program], env=kept | {"PYTHONPATH": str(ROOT)} | environment, capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NUM_THREADS", "abc"),
        ("NUM_THREADS", "-3"),
        ("NUM_THREADS", "0"),
        ("CACHE_SIZE", "zzz"),
        ("INTERPRET", "maybe"),
    ],
)
def test_a_value_that_cannot_be_names_its_variable(name: str, value: str) -> None:
    done = run("import tilewright.base.knobs", **{f"TILEWRIGHT_{name}": value})
    assert done.returncode and f"KnobError: the environment variable TILEWRIGHT_{name}={value!r}" in done.stderr
    assert "hint:" in done.stderr


def test_values_are_read() -> None:
    shown = (
        "from tilewright.base.knobs import knobs; print(knobs.cpu.num_threads, knobs.runtime.debug, knobs.cache.size)"
    )
    assert (
        run(shown, TILEWRIGHT_NUM_THREADS="3", TILEWRIGHT_DEBUG="Off", TILEWRIGHT_CACHE_SIZE="0").stdout
        == "3 False 0\n"
    )


def test_no_home_is_needed() -> None:
    program = """
from pathlib import Path
def nobody():
    raise RuntimeError("Could not determine home directory.")
Path.home = nobody
from tilewright.base.knobs import knobs
print(knobs.cache.dir.name)
"""
    assert run(program).stdout.startswith("tilewright-")


def test_a_dump_folder_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    (tmp_path / "kernels.py").write_text("""
import numpy as np, tilewright, tilewright.language as tl
@tilewright.jit
def one(out_ptr):
    tl.store(out_ptr, 1)
out = np.zeros(1, np.int32)
one[(1,)](out)
print(out[0])
""")
    done = run(
        f"import runpy; runpy.run_path({str(tmp_path / 'kernels.py')!r})",
        TILEWRIGHT_DUMP_DIR=str(blocked), TILEWRIGHT_CACHE_DIR=str(tmp_path / "cache"),
    )  # fmt: skip
    assert done.stdout == "1\n" and f"TILEWRIGHT_DUMP_DIR={blocked}" in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("group", "name", "value"),
    [
        ("runtime", "debug", "maybe"),
        ("runtime", "debug", 1),
        ("cpu", "num_threads", 0),
        ("cpu", "num_threads", True),
        ("cache", "size", "1"),
        ("cache", "dir", 7),
        ("torch", "gradients", "loud"),
        ("runtime", "jit_cache_hook", "print"),
        ("runtime", "launch_enter_hook", 3),
    ],
)
def test_a_value_that_cannot_be_is_refused_when_it_is_set(group: str, name: str, value: object) -> None:
    knobs = Knobs()
    before = getattr(getattr(knobs, group), name)
    with pytest.raises(KnobError, match=name):
        setattr(getattr(knobs, group), name, value)
    assert getattr(getattr(knobs, group), name) is before


def test_hooks_are_functions() -> None:
    with pytest.raises(KnobError, match="a hook is a function"):
        HookChain().add(None)  # type: ignore[arg-type]
    knobs = Knobs()
    chain = knobs.runtime.launch_enter_hook
    knobs.runtime.launch_enter_hook = print  # type: ignore[assignment]
    assert knobs.runtime.launch_enter_hook is chain and chain.calls == [print]
    knobs.runtime.launch_enter_hook = None  # type: ignore[assignment]
    assert not chain.calls


def test_scope_reset_and_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    knobs = Knobs()
    with knobs.scope():
        knobs.cpu.num_threads, knobs.cache.dir = 3, "there"  # type: ignore[assignment]
        knobs.runtime.launch_exit_hook.add(print)
        kept = knobs.copy()
        with knobs.cpu.scope():
            knobs.cpu.num_threads = 4
        assert (knobs.cpu.num_threads, knobs.cache.dir) == (3, Path("there"))
    assert knobs.cpu.num_threads is None and not knobs.runtime.launch_exit_hook.calls
    assert kept.cpu.num_threads == 3 and kept.runtime.launch_exit_hook.calls == [print]
    monkeypatch.setenv("TILEWRIGHT_NUM_THREADS", "5")
    knobs.runtime.debug = True
    knobs.reset()
    assert knobs.cpu.num_threads == 5 and knobs.runtime.debug is False
