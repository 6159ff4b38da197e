"""Effects of kernels on the memory of their arguments: what is found, and where it says that it does not know."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.base.errors import CompilationError, ReadOnlyError
from tilewright.compile.ast_source import ASTSource
from tilewright.compile.kinds import Constant, Described


def found(kernel: Any, types: dict[str, Any], **constants: Any) -> tuple[str, str, list[str]]:
    """Names of parameters read and written (one letter each), and where the analysis is unsure."""
    effects = kernel.effects(types, constants)
    names = kernel.arg_names
    reads, writes = ("".join(sorted(names[path[0]] for path in side)) for side in (effects.reads, effects.writes))
    first = kernel.fn.__code__.co_firstlineno
    return reads, writes, [f"{u.location.line - first}: {u.reason}" for u in effects.unsure if u.writes]


@tilewright.jit
def copy(a, b, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(b + i, tl.load(a + i, i < n), i < n)


@tilewright.jit
def choose(a, b, c, n):
    p = a
    if n > 3:
        p = b
    tl.store(p, tl.load(c))


@tilewright.jit
def carried(a, b, n):
    for _ in range(n):
        a += 1
        b += 1
        tl.store(a, tl.load(b))


@tilewright.jit
def swapped(a, b, c, n):
    for _ in range(n):
        tl.store(a, 1.0)
        a, b = b, a
    tl.store(c, 1.0)


@tilewright.jit
def waiting(a, b, n):
    p = a
    while tl.load(p) > n:
        p += 1
    tl.store(p, 1.0)
    tl.atomic_add(b, 1)


@tilewright.jit
def gathered(a, b, n, B: tl.constexpr):
    i = tl.load(a + tl.arange(0, B))
    tl.store(b + i, i)


@tilewright.jit
def by_table(t, a):
    p = tl.load(t).to(tl.pointer_type(tl.float32))
    tl.store(p, tl.load(a))


@tilewright.jit
def by_integer(n, a):
    tl.store(n.to(tl.pointer_type(tl.float32)), tl.load(a))


@tilewright.jit
def there_and_back(a, n):
    p = (a.to(tl.int64) + n * 4).to(tl.pointer_type(tl.float32))
    tl.store(p, 1.0)


@tilewright.jit(noinline=True)
def put(p, v):
    tl.store(p, v)


@tilewright.jit(noinline=True)
def later(p, n):
    return p + n


@tilewright.jit
def calling(a, b, n):
    put(later(b, n), tl.load(a))


@tilewright.jit
def exchanged(a, b):
    tl.store(b, tl.atomic_xchg(a, 1))


@tilewright.jit
def looked_at(a, b):
    tl.store(b, tl.load(a, volatile=True))


@tilewright.jit
def described(d, o, B: tl.constexpr):
    tl.store(o + tl.arange(0, B), d.load([0]))
    d.store([8], tl.zeros((B,), tl.float32))


@tilewright.jit
def in_tuple(t, n):
    tl.store(t[1][0], tl.load(t[0]))


@tilewright.jit
def reduced(a, b, B: tl.constexpr):
    tl.store(b, tl.sum(tl.load(a + tl.arange(0, B)), 0))


@tilewright.jit
def null(a):
    tl.store(tl.cast(0, tl.int64).to(tl.pointer_type(tl.float32)), tl.load(a))


F, I = "*fp32", "int"


@pytest.mark.parametrize(
    ("kernel", "types", "constants", "expected"),
    [
        (copy, {"a": F, "b": F, "n": I}, {"B": 16}, ("a", "b", [])),
        (choose, {"a": F, "b": F, "c": F, "n": I}, {}, ("c", "ab", [])),
        (carried, {"a": F, "b": F, "n": I}, {}, ("b", "a", [])),
        (swapped, {"a": F, "b": F, "c": F, "n": I}, {}, ("", "abc", [])),
        (waiting, {"a": F, "b": "*i32", "n": I}, {}, ("ab", "ab", [])),
        (gathered, {"a": "*i32", "b": "*i32", "n": I}, {"B": 16}, ("a", "b", [])),
        (by_table, {"t": "*i64", "a": F}, {}, ("at", "", ["3: an address read from memory in line {2}"])),
        (by_integer, {"n": "i64", "a": F}, {}, ("a", "", ["2: an integer parameter taken as an address"])),
        (there_and_back, {"a": F, "n": I}, {}, ("", "a", ["3: an integer parameter taken as an address"])),
        (calling, {"a": F, "b": F, "n": I}, {}, ("a", "b", [])),
        (exchanged, {"a": "*i32", "b": "*i32"}, {}, ("a", "ab", [])),
        (looked_at, {"a": F, "b": F}, {}, ("a", "b", [])),
        (described, {"d": Described("fp32", (8,)), "o": F}, {"B": 8}, ("d", "do", [])),
        (in_tuple, {"t": (F, (F, I)), "n": I}, {}, ("t", "t", [])),
        (reduced, {"a": F, "b": F}, {"B": 16}, ("a", "b", [])),
        (null, {"a": F}, {}, ("a", "", ["2: an address that no parameter gives"])),
    ],
    ids=lambda value: value.fn.__name__ if hasattr(value, "fn") else "",
)
def test_effects(kernel: Any, types: dict[str, Any], constants: dict[str, Any], expected: Any) -> None:
    first = kernel.fn.__code__.co_firstlineno
    reads, writes, unsure = expected
    lines = range(first, first + 9)
    assert found(kernel, types, **constants) == (reads, writes, [text.format(*lines) for text in unsure])


def test_the_parts_of_a_tuple_are_told_apart() -> None:
    effects = in_tuple.effects({"t": (F, (F, I)), "n": I})
    assert set(effects.reads) == {(0, 0)} and set(effects.writes) == {(0, 1, 0)}


def test_a_store_keeps_its_place() -> None:
    place = copy.effects({"a": F, "b": F, "n": I}, {"B": 16}).writes[(1,)]
    assert place is not None and "tl.store(b + i" in place.source_line()


@tilewright.jit
def wants_int64(a, n):
    total = n
    for _ in range(3):
        total += tl.load(a).to(tl.int64)
    tl.store(a, total)


@tilewright.jit
def wants_one(a, n):
    tl.static_assert(n == 1)
    tl.store(a, 1.0)


@tilewright.jit
def wrong(a, n):
    tl.store(a, nothing)  # noqa: F821


def test_integers_have_no_value() -> None:
    assert set(wants_int64.effects({"a": "*i64", "n": I}).writes) == {(0,)}
    assert set(wants_one.effects({"a": F, "n": I}).writes) == {(0,)}


def test_a_wrong_kernel_says_where() -> None:
    with pytest.raises(CompilationError, match="nothing"):
        wrong.effects({"a": F, "n": I})


@tilewright.jit
def maybe(a, b, FLAG: tl.constexpr):
    if FLAG is not None:
        tl.store(b, tl.load(a))


def test_none_is_a_constant() -> None:
    assert found(maybe, {"a": F, "b": F}, FLAG=None) == ("", "", [])
    assert set(maybe.effects({"a": F, "b": F, "FLAG": Constant(1)}).writes) == {(1,)}


def test_a_read_only_array_behind_a_branch_is_refused() -> None:
    frozen, plain = np.zeros(4, np.float32), np.zeros(4, np.float32)
    frozen.flags.writeable = False
    copy[(1,)](frozen, plain, 4, B=16)
    with pytest.raises(ReadOnlyError, match="`b`"):
        choose[(1,)](plain, frozen, plain, 2)
    assert not frozen.any()


def test_the_gpu_knows_too() -> None:
    source = ASTSource(copy, {"a": F, "b": F, "n": "i32"}, {"B": 16})
    assert tilewright.compile(source, "cuda:90").metadata["stored"] == [1]
