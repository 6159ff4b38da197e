"""Random loops that carry floats, pairs and pointers, and use them on the way; exits from kernels; other counters."""

from __future__ import annotations

from tests.fuzz.case import Statement
from tests.fuzz.combine import DOTS
from tests.fuzz.control import change_some
from tests.fuzz.generator import Generator, family, shape_text
from tests.fuzz.memory import choose_fill, fill_facts, positions
from tests.fuzz.values import FLOATS, INTS, TYPES, Shape, Unsuitable, Value, facts


def flat(g: Generator, shape: Shape) -> str:
    """The number of each element of a tile."""
    terms, step = [], 1
    for axis in reversed(range(len(shape))):
        terms.insert(0, positions(g, shape, axis) + (f" * {step}" if step > 1 else ""))
        step *= shape[axis]
    return " + ".join(terms)


def turns_of(g: Generator) -> tuple[str, int]:
    """A number of iterations: of the launch, of memory, or known; and the most that it may be."""
    most = g.random.choice((0, 1, 2, 3, 4))
    if g.chance(0.3):
        array = g.array("int32", "ints", g.programs)
        return f"tl.load({array} + {g.program}) & 3", 3
    if g.chance(0.2):
        return f"min({g.program}, {most})", most
    return g.number(most), most


_CARRIED = (
    "{t} = tl.maximum({t}, {v})", "{t} = {t} + {v}", "{t} -= {v}", "{t} = tl.where({t} > {v}, {v}, {t})",
    "{t} = tl.where({v} > 0, {t}, {v})", "{t} = -{t}", "{t} = tl.minimum({v} - {t}, {t})", "{t}, {u} = {u}, {t} + {v}",
    "{u} = tl.maximum({u}, {t})", "{t} = {v}", "{u} += {t}",
)  # fmt: skip


@family(1.2)
def carried_tiles(g: Generator) -> None:
    """Two tiles that each iteration changes with what it loads; it may store them, or sum what they were."""
    if g.depth >= g.profile.depth or g.in_loop:
        raise Unsuitable
    shape, dtype = (
        g.shape(g.random.choice((1, 2))),
        g.random.choice(("float32", "float32", "float16", "int32", "int64")),
    )
    turns, most = turns_of(g)
    numel = 1
    for extent in shape:
        numel *= extent
    array = g.array(dtype, "ints", numel * max(most, 1))
    t, u, v, k, place = (g.fresh(name) for name in ("t", "u", "x", "k", "o"))
    g.add(f"{place} = {flat(g, shape)}")
    for name in (t, u):
        start = g.random.choice(("0", "1", "-3"))
        g.add(f"{name} = tl.full({shape_text(shape)}, {start}, tl.{dtype})")
    looked = g.chance(0.4)
    target = g.array(dtype, "sentinel", numel * max(most, 1) * g.programs, prefix="out") if looked else ""
    body = g.add(f"for {k} in range({turns}):").body
    body.append(Statement(f"{v} = tl.load({array} + {k} * {numel} + {place})"))
    if dtype in INTS and g.chance(0.5):
        body.append(Statement(f"{v} = {v} >> 3"))
    for _ in range(g.random.randint(1, 3)):
        changed = Statement(g.random.choice(_CARRIED).format(t=t, u=u, v=v))
        if g.chance(0.25):
            test = g.random.choice((f"{k} == 1", f"{k} > 0", f"({k} + {g.program}) % 2 == 0"))
            changed = Statement(f"if {test}:", [changed])
        body.append(changed)
    if looked:
        own = f"({g.program} * {max(most, 1)} + {k}) * {numel}"
        body.append(Statement(f"tl.store({target} + {own} + {place}, {g.random.choice((t, u))})"))
    # Each of up to three changes an iteration at most doubles both and adds what was loaded.
    mag = 3.0 * 2 ** (3 * most) + 8.0 * most * 2 ** (3 * most)
    known = facts(dtype, mag, 1.0, 0.0) if dtype in FLOATS else {}
    if dtype in FLOATS and known["grain"] is None:
        raise Unsuitable
    g.scopes[-1] += [Value(name, shape, dtype, frozen=True, **known) for name in (t, u)]  # type: ignore[arg-type]


@family(0.6)
def running_softmax(g: Generator) -> None:
    """The maximum and the rescaled sum of rows, piece by piece."""
    if g.in_loop or g.depth >= g.profile.depth:
        raise Unsuitable
    rows, columns = g.random.choice((1, 2, 8, 16)), g.random.choice((4, 16, 32, 64))
    pieces = g.random.randint(1, 4)
    width = max(1, pieces * columns - g.random.choice((0, 0, 1, 3)))
    x = g.array("float32", "quarters", rows * width)
    m, total, new, e, k, n = (g.fresh(name) for name in ("m", "l", "w", "e", "k", "n"))
    size = g.number(width)
    g.add(f"{m} = tl.full(({rows},), float('-inf'), tl.float32)")
    g.add(f"{total} = tl.zeros(({rows},), tl.float32)")
    body = g.add(
        f"for {k} in range(0, {g.random.choice((size, f'tl.cdiv({size}, {columns}) * {columns}'))}, {columns}):"
    ).body
    at = f"{k} + tl.arange(0, {columns})[None, :]"
    body += [
        Statement(f"{n} = {at}"),
        Statement(
            f"{e} = tl.load({x} + tl.arange(0, {rows})[:, None] * {size} + {n}, mask={n} < {size}, other=float('-inf'))"
        ),
        Statement(f"{new} = tl.maximum({m}, tl.max({e}, 1))"),
    ]
    scaled = g.random.choice(("tl.exp({0})", "tl.exp2({0})"))
    added = f"tl.sum({scaled.format(f'{e} - {new}[:, None]')}, 1)"
    body += [Statement(f"{total} = {total} * {scaled.format(f'{m} - {new}')} + {added}"), Statement(f"{m} = {new}")]
    largest = facts("float32", 4.0, 0.25, 0.0, special=True)
    sums = facts("float32", 1.0 * width, None, 4e-6 * width, inexact=True)
    values = (
        Value(m, (rows,), "float32", frozen=True, **largest),
        Value(total, (rows,), "float32", frozen=True, **sums),
    )  # type: ignore[arg-type]
    g.scopes[-1] += values


_READ = (
    "{s} += tl.sum({acc}, 1)", "{s} = tl.maximum({s}, tl.max({acc}, 1))", "{acc} = tl.maximum({acc}, 0)",
    "{acc} = tl.where({k} % 2 == 0, {acc}, {acc} * 2)", "{acc} = {acc} * 2", "{acc} = {acc} + {s}[:, None]",
    "{acc} = tl.where({acc} > 3, 0, {acc})", "{acc} -= {x2}", "{s} = tl.sum({acc}, 1)",
    "{acc} = tl.trans(tl.trans({acc}))",
)  # fmt: skip


@family(1.0)
def product_that_is_read(g: Generator) -> None:
    """Sums of products that the loop also reads or changes in another way."""
    if g.in_loop or g.depth >= g.profile.depth:
        raise Unsuitable
    dtype, out = g.random.choice((*DOTS, *DOTS, ("float8e5", "float32"), ("float8e4nv", "float32")))
    m, n, k = g.random.choice((8, 16, 32)), g.random.choice((8, 16, 32)), g.random.choice((16, 32))
    turns, most = turns_of(g)
    a, b = (g.array(dtype, "ints", max(most, 1) * count) for count in (m * k, k * n))
    acc, s, x, y, i = (g.fresh(name) for name in ("acc", "s", "x", "y", "k"))
    g.add(f"{acc} = tl.zeros(({m}, {n}), tl.{out})")
    g.add(f"{s} = tl.zeros(({m},), tl.{out})")
    body = g.add(f"for {i} in range({turns}):").body
    body.append(Statement(f"{x} = tl.load({a} + {i} * {m * k} + {flat(g, (m, k))})"))
    body.append(Statement(f"{y} = tl.load({b} + {i} * {k * n} + {flat(g, (k, n))})"))
    product = f"tl.dot({x}, {y})"
    first = (f"{acc} = tl.dot({x}, {y}, {acc})", f"{acc} += {product}", f"{acc} = {product} - {acc}")
    body.append(Statement(g.random.choice(first)))
    for _ in range(g.random.randint(1, 2)):
        changed = Statement(g.random.choice(_READ).format(acc=acc, s=s, k=i, x2=product))
        if g.chance(0.3):
            test = g.random.choice((f"{i} == 0", f"{i} > 0", f"{i} + {g.program} == 1"))
            changed = Statement(f"if {test}:", [changed])
        body.append(changed)
    known = {} if out == "int32" else facts(out, _largest(body[2:], n, 64.0 * k, most), 1.0, 0.0)
    if known and known["grain"] is None:
        raise Unsuitable
    shapes = (acc, (m, n)), (s, (m,))
    g.scopes[-1] += [Value(name, shape, out, frozen=True, **known) for name, shape in shapes]  # type: ignore[arg-type]


def _largest(statements: list[Statement], columns: int, product: float, turns: int) -> float:
    """A bound of the sums of products, and of the sums of their rows, after so many iterations."""
    acc, s = 1.0, 1.0
    for text in [one.text for statement in statements for one in statement.body or [statement]] * turns:
        if text.startswith("acc"):
            acc = acc * (2 if "* 2" in text else 1) + product * ("tl.dot" in text) + s * ("[:, None]" in text)
        else:
            s = s * ("+=" in text or "maximum" in text) + acc * (columns if "tl.sum" in text else 1)
    return max(acc, s)


@family(0.6)
def pairs(g: Generator) -> None:
    """A pair of tiles as one value, carried by a loop, returned by a function."""
    if g.depth >= g.profile.depth:
        raise Unsuitable
    a = g.tile(lambda v: v.is_int)
    b = g.find(lambda v: v.dtype == a.dtype and v.shape == a.shape)
    pair, k = g.fresh("z"), g.fresh("k")
    g.add(f"{pair} = ({a.name}, {b.name})")
    body = g.add(f"for {k} in range({turns_of(g)[0]}):").body
    changed = (
        f"{pair} = ({pair}[1], {pair}[0] + {b.name})",
        f"{pair} = swapped({pair})",
        f"{pair} = (-{pair}[0], {pair}[1] ^ {pair}[0])",
    )
    if a.kind == "uint":
        changed = changed[:2]
    body.append(Statement(g.random.choice(changed)))
    if g.chance(0.3):
        body.append(Statement(f"if {k} == 1:", [Statement(f"{pair} = ({pair}[1], {pair}[0])")]))
    x, y = g.fresh(), g.fresh()
    g.add(f"{x}, {y} = {pair}")
    g.scopes[-1] += [Value(x, a.shape, a.dtype), Value(y, a.shape, a.dtype)]


_STARTS = ("-2", "0", "3", "250", "-129")


@family(1.0)
def kinds_of_counters(g: Generator) -> None:
    """Loops whose bounds are of other types than int32, come from memory, or carry hints."""
    if g.depth >= g.profile.depth:
        raise Unsuitable
    k, dtype = g.fresh("k"), g.random.choice(("int64", "uint32", "int16", "uint8", "int8", "uint64", "int32", "int32"))
    low = "(tl.load({0}) & 3)" if dtype.startswith("u") else "((tl.load({0}) & 3) - 2)"
    array = g.array(dtype, "ints", 2)
    first, last = low.format(array), low.format(f"{array} + 1") + g.random.choice(("", " + 1", " + 2"))
    step = g.random.choice(("", "", ", 2", ", 3") if dtype.startswith("u") else ("", "", ", 2", ", -1", ", -2"))
    if "-" in step:
        first, last = last, first
    hints = g.random.choice(
        ("", ", num_stages=3", ", loop_unroll_factor=2", ", flatten=True", ", disallow_acc_multi_buffer=True")
    )
    name = "tl.range" if hints else "range"
    statement = g.add(f"for {k} in {name}({first}, {last}{step}{hints}):")
    with g.block(statement.body, loop=True):
        counted = dtype if TYPES[dtype][1] >= 32 else "int32"  # the step is one
        g.scopes[-1].append(Value(k, (), counted, frozen=True))
        g.fill(g.random.randint(1, 2))
        g.attempt(lambda: _add_counter(g, k))
        change_some(g, 1)


def _add_counter(g: Generator, k: str) -> None:
    old = g.find(lambda v: v.is_int and not v.frozen and v.name.startswith("v"))
    g.add(f"{old.name} += {k}.to(tl.{old.dtype})")


@family(0.7)
def while_of_many(g: Generator) -> None:
    """A loop whose condition looks at several values that it changes, floats among them; one within another."""
    if g.depth + 1 >= g.profile.depth:
        raise Unsuitable
    a, b, c = (g.fresh(name) for name in ("a", "b", "c"))
    g.add(f"{a} = {g.random.choice(('0', g.program))}")
    g.add(f"{b} = {g.number(g.random.randint(0, 9))} * 1.0")
    joined = g.random.choice(
        ("({a} < {n}) & ({b} > 0.5)", "({a} < {n}) and ({b} != 2.0)", "(({a} + 1 < {n}) | ({b} > 6.0)) & ({a} < 8)")
    )
    statement = g.add(f"while {joined.format(a=a, b=b, n=g.scalar(g.random.randint(0, 6)))}:")
    with g.block(statement.body, loop=True):
        g.scopes[-1].append(Value(a, (), "int32", frozen=True))
        if g.chance(0.4):
            g.add(f"{c} = {a}")
            inner = g.add(f"while {c} > 0:")
            with g.block(inner.body, loop=True):
                change_some(g, 1)
                g.fill(1)
                g.add(f"{c} -= {g.random.choice((1, 2))}")
        change_some(g, 2)
        g.fill(1)
        g.add(f"{b} = {g.random.choice((f'{b} - 1.0', f'{b} * 0.5', f'{b} - {a}'))}")
        g.add(f"{a} += 1")


@family(0.4)
def early_return(g: Generator) -> None:
    """The end of a program in its midst."""
    if g.depth > 1:
        raise Unsuitable
    tests = [
        f"{g.program} == {g.random.randint(0, 3)}",
        f"{g.program} >= {g.scalar(3)}",
        f"{g.scalar(3)} > {g.random.randint(3, 4)}",
    ]
    value = g.attempt(lambda: g.find(lambda v: not v.shape and v.dtype in ("int32", "int64")))
    if value is not None:
        tests.append(f"{value.name} > 100")
    g.add(f"if {g.random.choice(tests)}:").body.append(Statement("return"))


@family(0.8)
def choice(g: Generator) -> None:
    """One value or the other by a scalar, as Python says it."""
    a = g.find(lambda v: v.is_int or v.dtype == "int1")
    b = g.find(lambda v: v.dtype == a.dtype and v.shape == a.shape)
    tests = [
        f"0 <= {g.program} < {g.scalar(2)}", f"{g.program} % 2 == 0 and {g.scalar(3)} > 2", f"not {g.program} == 1",
        f"{g.program} == 0 or {g.scalar(3)} == 4",
    ]  # fmt: skip
    g.define(f"{a.name} if {g.random.choice(tests)} else {b.name}", a.shape, a.dtype)


@family(0.6)
def pointers(g: Generator) -> None:
    """Pointers that are chosen, or moved by a loop that waits for a value."""
    dtype, shape = g.random.choice((*INTS, "float32")), g.shape(1)
    fill = choose_fill(g, dtype)
    (extent,) = shape
    one, other, p = g.array(dtype, fill, 2 * extent + 8), g.array(dtype, fill, 2 * extent + 8), g.fresh("q")
    lanes = f"tl.arange(0, {extent})"
    ways = [
        f"{p} = ({one} if {g.program} % 2 == 0 else {other}) + {lanes}",
        f"{p} = tl.where({lanes} % 3 == 1, {one} + {lanes}, {other} + {lanes})",
        f"{p} = tl.where({g.program} == 1, {one}, {other}) + {lanes} * 2",
        f"{p} = {one} + {lanes}.to(tl.{g.random.choice(('int64', 'uint32', 'int16'))})",
        f"{p} = ({one} + {2 * extent}) - {lanes}",
    ]
    g.add(g.random.choice(ways))
    if g.chance(0.4) and not g.in_loop:
        k = g.fresh("k")
        body = g.add(f"for {k} in range({turns_of(g)[0]}):").body
        body.append(Statement(f"{p} += {g.random.choice(('1', k))}"))
    elif g.chance(0.3):
        g.add(f"if {g.program} == {g.random.randint(0, 1)}:").body.append(Statement(f"{p} = {p} + 1"))
    g.define(f"tl.load({p})", shape, dtype, **fill_facts(dtype, fill))
