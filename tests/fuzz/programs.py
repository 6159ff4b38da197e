"""Random programs as people write them: loops that end in many ways, functions within functions, aggregates."""

from __future__ import annotations

from tests.fuzz.arithmetic import broadcasts
from tests.fuzz.case import Statement
from tests.fuzz.control import change_some
from tests.fuzz.generator import Generator, family
from tests.fuzz.values import Unsuitable, Value

# First value, condition, last statement of the body; {c} counts, {n} is 2 to 9.
_WHILES = (
    ("{n}", "{c} > 0", "{c} -= 1"),
    ("{n}", "{c} > 1", "{c} = {c} // 2"),
    ("1", "{c} < {n}", "{c} = {c} * 2"),
    ("0", "({c} < {n}) & ({c} != 3)", "{c} += 1"),
    ("0", "({c} < {n}) and ({c} * {c} < 20)", "{c} += 1"),
    ("0", "{n} - {c} > 0", "{c} += 2"),
    ("0", "not {c} >= {n}", "{c} += 1"),
    ("{n} - 12", "{c} <= 0", "{c} += 3"),
    ("{p} % 3", "{c} < {n}", "{c} = {c} + 1 + {c} % 2"),
)


@family(0.8)
def while_variant(g: Generator) -> None:
    """A loop that counts in one of many ways, or leaves in its midst."""
    if g.depth >= g.profile.depth:
        raise Unsuitable
    name, limit = g.fresh("c"), g.scalar(g.random.randint(2, 9))
    start, condition, step = (text.format(c=name, n=limit, p=g.program) for text in g.random.choice(_WHILES))
    g.add(f"{name} = {start}")
    leaves = g.random.choice(("head", "head", "first", "last"))
    statement = g.add(f"while {condition}:" if leaves == "head" else "while True:")
    with g.block(statement.body, loop=True):
        if leaves == "first":
            g.add(f"if not ({condition}):").body.append(Statement("break"))
        g.scopes[-1].append(Value(name, (), "int32", frozen=True))
        g.fill(g.random.randint(1, 3))
        change_some(g, g.random.randint(1, 2))
        g.add(step)
        if leaves == "last":
            g.add(f"if not ({condition}):").body.append(Statement("break"))


@family(0.8)
def loop_with_exits(g: Generator) -> None:
    """A counted loop that is left early, or some of whose iterations end early."""
    if g.depth >= g.profile.depth:
        raise Unsuitable
    name, limit = g.fresh("k"), g.scalar(g.random.randint(2, 5))
    statement = g.add(f"for {name} in range({limit}):")
    with g.block(statement.body, loop=True):
        g.scopes[-1].append(Value(name, (), "int32", frozen=True))
        for exit in g.random.sample(("break", "continue"), g.random.randint(1, 2)):
            change_some(g, 1)
            test = g.random.choice((f"{name} == {g.random.randint(0, 3)}", f"({name} + {g.program}) % 3 == 1"))
            g.add(f"if {test}:").body.append(Statement(exit))
            g.fill(1)
        change_some(g, 1)


@family(1)
def closure(g: Generator) -> None:
    """A function within the kernel, which uses a value of the kernel."""
    a = g.find(lambda v: v.is_int)
    outer = g.find(lambda v: v.dtype == a.dtype)
    shape = broadcasts(a, outer)
    name, operation = g.fresh("f"), g.random.choice("+ - * & | ^".split())
    if g.chance(0.4):
        g.add(f"{name} = lambda x: x {operation} {outer.name}")
    else:
        inside = g.add(f"def {name}(x):").body
        if g.chance(0.5):
            inside.append(Statement(f"x = x {g.random.choice('+-^')} {g.random.randint(1, 5)}"))
        inside.append(Statement(f"return x {operation} {outer.name}"))
    made = g.define(f"{name}({a.name})", shape, a.dtype)
    if g.chance(0.4):
        g.define(f"{name}({name}({made.name}))", shape, a.dtype)


@family(0.9)
def aggregate(g: Generator) -> None:
    """Two tiles and a constant as one value, with methods; loops may carry it."""
    a = g.tile(lambda v: v.is_int)
    b = g.find(lambda v: v.dtype == a.dtype and v.shape == a.shape)
    name, factor = g.fresh("g"), g.random.randint(1, 5)
    g.add(f"{name} = Affine({a.name}, {b.name}, {factor})")
    if g.depth < g.profile.depth and g.chance(0.5):
        inside = g.add(f"for {g.fresh('k')} in range({g.scalar(g.random.randint(2, 4))}):").body
        step = (
            f"{name} = {name}.turned({b.name})",
            f"{name} = tl.aggregate_replace({name}, shift={name}.at({a.name}))",
        )
        inside.append(Statement(g.random.choice(step)))
    g.define(f"{name}.at({g.random.choice((a, b)).name})", a.shape, a.dtype)
    g.define(f"{name}.{g.random.choice(('scale', 'shift'))}", a.shape, a.dtype)
