"""Writes random kernels: a case from a seed, by adding statements of random families to nested blocks.

The families register themselves in `FAMILIES`; each adds a few statements, or raises `Unsuitable` when the values at
hand do not allow it, and another one is tried. The same seed gives the same kernel while the families are unchanged.
"""

from __future__ import annotations

import bisect
import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from tests.fuzz.case import Case, Param, Statement
from tests.fuzz.values import FLOATS, INTS, TYPES, Shape, Unsuitable, Value

Family = Callable[["Generator"], None]
FAMILIES: list[tuple[float, Family]] = []
ANY_SHAPE: list[tuple[float, Family]] = []  # beside them for kernels with extents that are not powers of two
MAX_TILE = 4096
# What kernels are compiled for, the machine itself most often. The same everywhere: what it lacks is emulated.
_CPUS = ("", "x86-64", "x86-64-v3", "x86-64-v4", "", "", "")
_GPU = {"num_warps": (1, 2, 4, 4, 8), "num_stages": (1, 2, 3, 4), "num_ctas": (1, 1, 1, 2)}
_POWERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_OTHERS = (3, 5, 6, 7, 12, 24, 40, 80, 96, 100)


def _place(row: tuple[float, Family]) -> tuple[str, int]:
    """Where a family is written: seeds draw the same whichever module was imported first."""
    return row[1].__module__, row[1].__code__.co_firstlineno


def family(weight: float, *, any_shape: bool = False) -> Callable[[Family], Family]:
    """Register a family of statements, chosen in proportion to `weight`; with `any_shape`, only for such kernels."""

    def register(function: Family) -> Family:
        bisect.insort(ANY_SHAPE if any_shape else FAMILIES, (weight, function), key=_place)
        return function

    return register


@dataclass(frozen=True)
class Profile:
    """What kernels may be like.

    Args:
        any_shape: tile extents other than powers of two.
        statements: most statements outside of nested blocks.
        depth: how deep control flow nests.
        products: start with a product of matrices over the whole grid.
        cpu: name of the CPU that is compiled for, "host", or empty for a random one.
        long: element by element alone, of as many statements as may be, with a store after every twentieth.
        portable: nothing that Triton's front end lacks.
    """

    any_shape: bool = False
    statements: int = 16
    depth: int = 3
    products: bool = False
    cpu: str = ""
    long: bool = False
    portable: bool = False


# Exits from loops, functions within kernels, aggregates, lengths that are no power of two.
_OURS = re.compile(r"\b(break|continue|lambda|Affine)\b|\bdef |\barange\(0, (?P<length>\d+)\)")


_LESS_PORTABLE = ("blocks", "carried", "extremes", "names")  # with names that Triton's front end takes otherwise


def _is_ours(line: str) -> bool:
    """Whether a line is Tilewright's own language."""
    return any(m["length"] is None or int(m["length"]).bit_count() != 1 for m in _OURS.finditer(line))


class Generator:
    """The state of one kernel while it is written.

    Args:
        seed: of all random choices.
        profile: what the kernel may be like.
    """

    def __init__(self, seed: int, profile: Profile) -> None:
        self.seed, self.profile = seed, profile
        self.random = random.Random(seed)
        self.params: dict[str, Param] = {}
        self.body: list[Statement] = []
        self.scopes: list[list[Value]] = [[]]
        self.depth = 0
        self.in_loop = 0
        self.counter = 0
        self.spelled: set[str] = set()
        self.grid = self.random.choice([(1,), (1,), (2,), (3,), (5,), (2, 3), (3, 1, 2)])
        self.options: dict[str, Any] = {} if self.random.random() < 0.5 else {"enable_fp_fusion": False}
        self.fused = not self.options
        self.extents = self._extents()
        self.program = self._program()

    # -- choices ------------------------------------------------------------------------------------------

    def _extents(self) -> list[int]:
        """The few extents that this kernel builds its shapes from, so that values fit together."""
        pool = _POWERS + (_OTHERS * 2 if self.profile.any_shape else ())
        found = [self.random.choice(pool) for _ in range(2)]
        return [*found, self.random.choice((1, 2, 4, 8, 16))]

    def shape(self, rank: int | None = None) -> Shape:
        """A random tile shape."""
        rank = rank or self.random.choice((1, 1, 1, 2, 2, 2, 3))
        dims = [self.random.choice(self.extents) for _ in range(rank)]
        while _count(dims) > MAX_TILE:
            at = max(range(rank), key=lambda i: dims[i])
            dims[at] = dims[at] // 2 if dims[at] % 2 == 0 else 1
        return tuple(dims)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def dtype(self) -> str:
        """A random element type, the common ones more often."""
        if self.chance(0.45):
            return self.random.choice(("float32", "int32"))
        return self.random.choice(tuple(TYPES))

    # -- values ------------------------------------------------------------------------------------------------

    def visible(self) -> Iterator[Value]:
        for scope in self.scopes:
            yield from scope

    def find(self, wanted: Callable[[Value], bool]) -> Value:
        """A visible value with a property, later ones more likely.

        Raises:
            Unsuitable: there is none.
        """
        found = [v for v in self.visible() if wanted(v)]
        if not found:
            raise Unsuitable
        return found[max(self.random.randrange(len(found)) for _ in range(2))]

    def tile(self, wanted: Callable[[Value], bool] = lambda v: True) -> Value:
        """A visible tile with a property."""
        return self.find(lambda v: bool(v.shape) and wanted(v))

    def fresh(self, prefix: str = "v") -> str:
        self.counter += 1
        return f"{prefix}{self.counter}"

    # -- statements -------------------------------------------------------------------------------------------------

    def add(self, text: str, *, plain: str | None = None) -> Statement:
        """Append a statement to the current block."""
        statement = Statement(text, plain=plain)
        self.body.append(statement)
        return statement

    def define(self, expression: str, shape: Shape, dtype: str, **known: Any) -> Value:
        """Give an expression a name; it becomes visible in the current block."""
        value = Value(self.fresh(), shape, dtype, **known)
        self.add(f"{value.name} = {expression}", plain=f"{value.name} = {constant(value)}")
        self.scopes[-1].append(value)
        return value

    def define_copy(self, value: Value) -> Value:
        """A new name for a value, which may be assigned again."""
        known = {"mag": value.mag, "grain": value.grain, "err": value.err, "special": value.special}
        return self.define(value.name, value.shape, value.dtype, product=value.product, **known)

    def replace_value(self, old: Value, new: Value) -> None:
        """`new` is what is known of the name of `old` from here on."""
        for scope in self.scopes:
            scope[:] = [new if v.name == old.name else v for v in scope]

    @contextmanager
    def block(self, body: list[Statement], *, loop: bool = False) -> Iterator[None]:
        """Statements go to `body`, and names that are defined there are forgotten afterwards."""
        outer, self.body = self.body, body
        self.scopes.append([])
        self.depth += 1
        self.in_loop += loop
        try:
            yield
        finally:
            self.body = outer
            self.scopes.pop()
            self.depth -= 1
            self.in_loop -= loop

    def fill(self, count: int) -> None:
        """Add statements of random families until `count` families have succeeded."""
        families = FAMILIES + (ANY_SHAPE if self.profile.any_shape else [])
        if self.profile.long:
            families = [
                row for row in families if row[1].__module__.endswith("arithmetic") and row[1].__name__ != "call"
            ]
        if self.profile.portable:
            families = [row for row in families if row[1].__module__.rpartition(".")[2] not in _LESS_PORTABLE]
        weights = [w for w, _ in families]
        done = 0
        for _ in range(count * 12):
            if done >= count:
                return
            function = self.random.choices(families, weights)[0][1]
            mark = self._mark()
            try:
                function(self)
                if self.profile.portable and any(_is_ours(line) for s in self.body[mark[0] :] for line in s.lines(0)):
                    raise Unsuitable
                done += 1
            except Unsuitable:
                self._undo(mark)

    def attempt(self, function: Callable[[], Any]) -> Any:
        """Result of `function`, or None with its statements taken back if it is unsuitable."""
        mark = self._mark()
        try:
            return function()
        except Unsuitable:
            self._undo(mark)
            return None

    def _mark(self) -> Any:
        return len(self.body), [list(s) for s in self.scopes], dict(self.params), set(self.spelled)

    def _undo(self, mark: Any) -> None:
        count, scopes, params, self.spelled = mark
        del self.body[count:]
        self.scopes = scopes
        self.params = params

    # -- parameters ---------------------------------------------------------------------------------------------------

    def array(self, dtype: str, fill: str, size: int, *, prefix: str = "p", **known: Any) -> str:
        """A new array parameter; returns its name."""
        name = self.fresh(prefix)
        aligned = self.chance(0.7)
        self.params[name] = Param(name, "array", dtype, size=size, fill=fill, aligned=aligned, **known)
        return name

    def grow(self, name: str, size: int) -> None:
        """An array must have at least `size` elements."""
        param = self.params[name]
        self.params[name] = replace(param, size=max(param.size, size))

    def number(self, value: int) -> str:
        """An integer as a literal, a constexpr parameter or a run-time parameter."""
        how = self.random.choice(("literal", "constexpr", "scalar", "scalar"))
        if how == "literal" or value == 1:
            return str(value)
        name = self.fresh("n" if how == "scalar" else "K")
        self.params[name] = Param(name, how, "int32" if how == "scalar" else "", value)
        return name

    def scalar(self, value: int) -> str:
        """An integer as a run-time parameter."""
        name = self.fresh("n")
        self.params[name] = Param(name, "scalar", "int32", value if value != 1 else 2)
        return name

    # -- the whole ------------------------------------------------------------------------------------------

    def _program(self) -> str:
        """Name of the linear program number, and of its parts."""
        linear = "pid0"
        for axis in range(len(self.grid)):
            self.add(f"pid{axis} = tl.program_id({axis})")
        if len(self.grid) > 1:
            parts = ["pid0", "pid1 * tl.num_programs(0)", "pid2 * tl.num_programs(0) * tl.num_programs(1)"]
            self.add(f"pid = {' + '.join(parts[: len(self.grid)])}")
            linear = "pid"
        for axis in range(len(self.grid)):
            self.scopes[0].append(Value(f"pid{axis}", (), "int32", frozen=True))
        return linear

    @property
    def programs(self) -> int:
        return _count(self.grid)


def _count(dims: Any) -> int:
    total = 1
    for extent in dims:
        total *= extent
    return total


def constant(value: Value) -> str:
    """An expression of the type of `value` that needs nothing else."""
    return f"tl.full({shape_text(value.shape)}, 1, tl.{value.dtype})"


def shape_text(shape: Shape) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def generate(seed: int, profile: Profile | None = None) -> Case:
    """The case of a seed."""
    from tests.fuzz import (  # noqa: F401  (families)
        arithmetic,
        blocks,
        carried,
        combine,
        control,
        extremes,
        memory,
        names,
        programs,
        rows,
        runs,
        shapes,
        shared,
    )
    from tests.fuzz.memory import load_new, store
    from tests.fuzz.products import product

    g = Generator(seed, profile or Profile())
    if g.profile.products:
        g.attempt(lambda: product(g))
    for _ in range(g.random.randint(1, 3)):
        g.attempt(lambda: load_new(g))
    g.fill(g.profile.statements if g.profile.long else g.random.randint(3, g.profile.statements))
    for _ in range(max(3, g.profile.statements // 20)):
        g.attempt(lambda: store(g, g.tile()))
    cpu = g.random.choice(_CPUS)
    if g.profile.cpu:
        cpu = "" if g.profile.cpu == "host" else g.profile.cpu
    gpu = {name: g.random.choice(values) for name, values in _GPU.items()}
    return Case(seed, list(g.params.values()), g.body, g.grid, cpu, g.options, gpu, spelled=g.spelled)


__all__ = ["FLOATS", "INTS", "Generator", "Profile", "family", "generate"]
