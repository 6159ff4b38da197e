"""Constants that change: what a kernel was compiled with is noticed, in one process and between two."""

from __future__ import annotations

import copy
import dataclasses
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.base.errors import ArgumentError
from tilewright.frontend.content import digest_of
from tilewright.frontend.hashing import GlobalsChangedError

KIND = tl.int32
LIMIT = tl.constexpr(3)

OUT = np.zeros(1, np.float32)


def run(kernel: Any, *args: Any) -> float:
    out = np.zeros(1, np.float32)
    kernel[(1,)](out, *args)
    return float(out[0])


# --- in one process ------------------------------------------------------------------------------------------------


def test_a_changed_closure_variable_is_noticed() -> None:
    amount = 3

    @tilewright.jit
    def kernel(out):
        tl.store(out, amount)

    assert run(kernel) == 3
    amount = 4
    with pytest.raises(GlobalsChangedError, match="amount has changed .* from 3 to 4"):
        run(kernel)


@pytest.mark.parametrize("where", ["closure", "global"])
def test_a_changed_value_of_a_constexpr_is_noticed(where: str) -> None:
    inner = tl.constexpr(3)

    @tilewright.jit
    def closed(out):
        tl.store(out, inner)

    @tilewright.jit
    def open_(out):
        tl.store(out, LIMIT)

    kernel, constant = (closed, inner) if where == "closure" else (open_, LIMIT)
    assert run(kernel) == 3
    try:
        constant.value = 4
        with pytest.raises(GlobalsChangedError, match=r"from constexpr\[3\] to constexpr\[4\]"):
            run(kernel)
    finally:
        constant.value = 3
    assert run(kernel) == 3


def test_a_rebound_dtype_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    @tilewright.jit
    def kernel(out):
        tl.store(out, tl.full((), 300, tl.int32).to(KIND))

    assert run(kernel) == 300
    monkeypatch.setitem(globals(), "KIND", tl.int8)
    with pytest.raises(GlobalsChangedError, match="KIND has changed"):
        run(kernel)


def test_a_rebound_function_is_noticed() -> None:
    @tilewright.jit
    def one(x):
        return x + 1

    @tilewright.jit
    def two(x):
        return x + 2

    helper = one

    @tilewright.jit
    def kernel(out):
        tl.store(out, helper(1.0))

    assert run(kernel) == 2
    helper = two
    with pytest.raises(GlobalsChangedError, match="helper has changed"):
        run(kernel)


def test_what_a_constexpr_function_reads_is_noticed() -> None:
    factor = 2

    @tl.constexpr_function
    def scaled(n):
        return n * factor

    @tilewright.jit
    def kernel(out):
        tl.store(out, scaled(5))

    assert run(kernel) == 10
    factor = 3
    with pytest.raises(GlobalsChangedError, match="factor has changed"):
        run(kernel)


def test_what_a_function_argument_reads_is_noticed() -> None:
    amount = 2

    @tilewright.jit
    def step(x):
        return x + amount

    @tilewright.jit
    def kernel(out, f: tl.constexpr):
        tl.store(out, f(1.0))

    assert run(kernel, step) == run(kernel, step) == 3
    amount = 5
    with pytest.raises(GlobalsChangedError, match="amount has changed"):
        run(kernel, step)


def test_scalars_of_numpy_are_constants() -> None:
    @tilewright.jit
    def kernel(out, n: tl.constexpr):
        tl.static_assert(tl.arange(0, n).shape[0] == 4)
        tl.store(out, n)

    assert run(kernel, np.int64(4)) == run(kernel, 4) == 4 and len(kernel._kernels) == 1


@dataclasses.dataclass(frozen=True)
class Quiet:
    n: int
    m: int = dataclasses.field(repr=False, compare=False, default=0)

    @property
    def total(self):
        return self.n * 100 + self.m


class Plain:
    def __init__(self, n: int) -> None:
        self.n = n


@tilewright.jit
def total(out, c: tl.constexpr):
    tl.store(out, c.total)


@tilewright.jit
def number(out, c: tl.constexpr):
    tl.store(out, c.n)


def test_fields_that_neither_show_nor_compare_are_keyed() -> None:
    assert [run(total, Quiet(5, 1)), run(total, Quiet(5, 2)), run(total, Quiet(5, 1))] == [501, 502, 501]
    keys = {total.warmup(OUT, Quiet(5, m), grid=(1,)).hash for m in (1, 2)}
    assert len(keys) == 2


def test_objects_without_repr_are_keyed_by_what_is_in_them() -> None:
    assert [run(number, Plain(i)) for i in range(20)] == list(range(20))
    number.clear()
    keys = {number.warmup(OUT, Plain(7), grid=(1,)).hash for _ in range(5)}
    assert len(keys) == 1 and len(number._kernels) == 1


def test_an_object_that_changes_in_place_is_compiled_anew() -> None:
    held = Plain(1)
    assert run(number, held) == 1
    held.n = 2
    assert run(number, held) == 2


def test_a_class_constant_that_changes_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Base:
        SIZE = 4

    class Derived(Base):
        pass

    @tilewright.jit
    def kernel(out):
        tl.store(out, Derived.SIZE)

    assert run(kernel) == 4
    Base.SIZE = 5
    with pytest.raises(GlobalsChangedError, match="SIZE has changed"):
        run(kernel)


def test_texts_and_warmup_do_not_use_changed_constants() -> None:
    amount = 3

    @tilewright.jit
    def kernel(out):
        tl.store(out, amount)

    out = np.zeros(1, np.float32)
    kernel.warmup(out, grid=(1,))
    kernel.clear()
    loaded = kernel.warmup(out, grid=(1,))
    assert loaded.from_disk
    amount = 4
    with pytest.raises(GlobalsChangedError):
        loaded.asm["ttir"]
    with pytest.raises(GlobalsChangedError):
        kernel.warmup(out, grid=(1,))


# --- content ------------------------------------------------------------------------------------------------------


def test_equal_content_has_one_digest() -> None:
    for make in (
        lambda: Plain(3),
        lambda: {"a": [1, (2, Plain(3))], "b": {1, "x", 2.0}},
        lambda: SimpleNamespace(a=np.arange(4), b=np.float32(2)),
        lambda: lambda x: x + 1,
    ):
        first, second = digest_of(make()), digest_of(make())
        assert first == second and first[1] == ""


def test_different_content_has_different_digests() -> None:
    class Other:
        def __init__(self, n: int) -> None:
            self.n = n

    class Count(int):
        pass

    values = [
        1, True, 1.0, "1", b"1", None, (1,), [1], {1}, {1: 1}, (1, 1), ((1,), 1), 0.0, -0.0, Plain(1), Plain(2),
        Other(1), Count(1), Count(2), np.arange(3), np.arange(4), np.arange(3.0), np.int8(1), tl.int8, tl.int16,
        Plain, Other,
        lambda: 1, lambda: 2, range(3), range(4), slice(1), float("inf"), float("nan"), 1j, ..., np.float32, np.float64,
    ]  # fmt: skip
    assert len({digest_of(value)[0] for value in values}) == len(values)


def test_copies_and_pickles_change_no_content() -> None:
    @dataclasses.dataclass
    class Layout:
        block: int

    layout = Layout(3)
    before = digest_of(layout)
    copied = copy.deepcopy(layout)  # leaves a name in the class
    assert digest_of(layout) == digest_of(copied) == before


def test_objects_that_hold_themselves_end() -> None:
    ring: list[Any] = [1]
    ring.append(ring)
    node = Plain(1)
    node.n = node  # type: ignore[assignment]
    assert digest_of(ring)[1] == digest_of(node)[1] == ""


def test_what_has_no_content_says_so_and_stays_out_of_the_disk_cache(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(tilewright.knobs.cache, "dir", tmp_path)
    held = Plain(3)
    held.lock = threading.Lock()  # type: ignore[attr-defined]
    with pytest.warns(UserWarning, match=r"`c` of type Plain is told from others by identity.*_thread.lock"):
        assert run(number, held) == 3
    assert not list(tmp_path.rglob("*.tile"))


def test_a_constant_that_cannot_be_keyed_is_refused_with_the_reason() -> None:
    @dataclasses.dataclass
    class Config:
        n: int
        lock: Any

    with pytest.raises(ArgumentError, match=r"`c` of type Config cannot be keyed: it has no hash, and a _thread.lock"):
        run(number, Config(1, threading.Lock()))

    @dataclasses.dataclass
    class Keyed:
        n: int

    assert run(number, Keyed(8)) == 8  # no hash, but all of it is known


# --- between processes -----------------------------------------------------------------------------------------------

PROGRAM = """
    import sys
    import dataclasses
    import numpy as np
    import tilewright, tilewright.language as tl
    import helper

    @tl.constexpr_function
    def through(n):
        return helper.scale(n)

    @tilewright.jit
    def by_function(out, c: tl.constexpr):
        tl.store(out, through(c.n))

    @tilewright.jit
    def by_property(out, c: tl.constexpr):
        tl.store(out, c.twice)

    @tilewright.jit
    def by_member(out, c: tl.constexpr):
        tl.store(out, c.member(1.0))

    out = np.zeros(1, np.float32)
    for kernel in (by_function, by_property, by_member):
        kernel[(1,)](out, helper.Config(5))
        print(out[0], end=" ")
"""
HELPER = """
    import dataclasses
    import tilewright, tilewright.language as tl

    def scale(n):
        return inner(n)

    def inner(n):
        return n * 2

    @dataclasses.dataclass(frozen=True)
    class Config:
        n: int

        @property
        def twice(self):
            return self.n * 2

        @property
        def member(self):
            return member

    @tilewright.jit
    def member(x):
        return x * 2
"""


def _printed(folder: Path, helper: str) -> str:
    (folder / "program.py").write_text(textwrap.dedent(PROGRAM))
    (folder / "helper.py").write_text(textwrap.dedent(helper))
    cache = {"TILEWRIGHT_CACHE_DIR": str(folder / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **cache}
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_an_edited_helper_of_another_module_is_seen_by_the_next_process(tmp_path: Path) -> None:
    assert _printed(tmp_path, HELPER) == "10.0 10.0 2.0"
    entries = len(list((tmp_path / "cache").rglob("*.tile")))
    assert _printed(tmp_path, HELPER) == "10.0 10.0 2.0"
    assert len(list((tmp_path / "cache").rglob("*.tile"))) == entries, (
        "the second process found what the first had made"
    )
    assert _printed(tmp_path, HELPER.replace("* 2", "* 3")) == "15.0 15.0 3.0"
