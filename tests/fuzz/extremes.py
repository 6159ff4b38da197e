"""Random numbers at the ends of their types: bounds of masks and of loops, scalars of the launch, floats, divisions."""

from __future__ import annotations

from tests.fuzz.case import Param, Statement
from tests.fuzz.generator import Generator, family, shape_text
from tests.fuzz.memory import choose_fill, fill_facts, flag_tile, positions
from tests.fuzz.values import INTS, TYPES, Shape, Unsuitable, Value, facts

_SIGNS = ("<", "<=", ">", ">=", "==", "!=")


def _ends(dtype: str) -> tuple[int, int]:
    kind, bits, _ = TYPES[dtype]
    return (0, (1 << bits) - 1) if kind == "uint" else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def extreme(g: Generator, dtype: str) -> int:
    """A number near an end of a type, or near zero."""
    low, high = _ends(dtype)
    return g.random.choice((low, low + 1, low + 9, high, high - 1, high - 9, 0, 3, 17 if high > 17 else 1))


def scalar_of(g: Generator, dtype: str, value: object) -> str:
    """A parameter of the launch of any type; where it is made from a Python number, that number alone says its type."""
    name = g.fresh("n")
    g.params[name] = Param(name, "scalar", dtype, value)
    return name


def _loaded(g: Generator, dtype: str, value: int) -> str:
    """The same number out of memory; what it is stays unknown until the kernel runs."""
    array = g.array(dtype, f"ends {value}", 1, prefix="e")
    name = g.fresh("e")
    g.add(f"{name} = tl.load({array})")
    return name


def _bound(g: Generator, shape: Shape, axis: int) -> str:
    """A number that a mask compares with: of memory or of the launch, or one for each row."""
    dtype = g.random.choice(("int32", "int32", "int64", "int64", "int16", "int8"))
    value = extreme(g, dtype)
    if len(shape) > 1 and g.chance(0.4):
        other = 1 - axis if len(shape) == 2 else (axis + 1) % len(shape)
        array = g.array(dtype, f"near {value}", shape[other], prefix="e")
        return f"tl.load({array} + {positions(g, shape, other)})"
    if dtype == "int32" and g.chance(0.4):
        return scalar_of(g, "int32", value)
    if dtype == "int64" and g.chance(0.4) and not -(2**31) <= value < 2**31:
        return scalar_of(g, "int64", value)
    return _loaded(g, dtype, value)


@family(1.5)
def extreme_masks(g: Generator) -> None:
    """Loads and stores under masks whose bounds are as small or as large as numbers get."""
    shape = g.shape(g.random.choice((1, 1, 2, 2, 3)))
    dtype, axis = g.random.choice(("int32", "float32", "int16", "int64")), g.random.randrange(len(shape))
    numel = 1
    for extent in shape:
        numel *= extent
    terms, step = [], 1
    for dim in reversed(range(len(shape))):
        terms.append(f"{positions(g, shape, dim)} * {step}")
        step *= shape[dim]
    source = g.array(dtype, choose_fill(g, dtype), numel)
    place, at, mask = g.fresh("o"), g.fresh("i"), g.fresh("m")
    g.add(f"{place} = {' + '.join(terms)}")
    wide = g.random.choice(("", "", ".to(tl.int64)"))
    moved = g.random.choice(("", "", f" + {g.program} * {shape[axis]}", " - 2"))
    g.add(f"{at} = {positions(g, shape, axis)}{wide}{moved}")
    tests = []
    for _ in range(g.random.choice((1, 1, 2))):
        bound = _bound(g, shape, axis)
        sides = (f"{at} {g.random.choice(_SIGNS)} {bound}", f"{bound} {g.random.choice(_SIGNS)} {at}")
        tests.append(f"({g.random.choice(sides)})")
    if g.chance(0.5):
        tests.append(f"({positions(g, shape, axis)} < {g.number(g.random.randint(0, shape[axis]))})")
    g.add(f"{mask} = {' & '.join(tests)}")
    other = g.random.choice(("0", "1", "-3", "7"))
    known = fill_facts(dtype, g.params[source].fill)
    known = {**known, "mag": max(8.0, known["mag"])} if known else known
    value = g.define(f"tl.load({source} + {place}, mask={mask}, other={other})", shape, dtype, **known)
    if g.chance(0.5) and not g.in_loop:
        target = g.array(dtype, "sentinel", numel * g.programs, prefix="out")
        g.add(f"tl.store({target} + {g.program} * {numel} + {place}, {value.name}, mask={mask})")
    elif g.chance(0.4):
        g.define(f"tl.where({mask}, {value.name}, {other})", shape, dtype, **known)


@family(0.6)
def extreme_sums(g: Generator) -> None:
    """Products and sums along a dim, block after block, of what masks with such bounds let through."""
    if g.depth >= g.profile.depth or g.in_loop:
        raise Unsuitable
    rows, block, turns = g.random.choice((16, 32)), g.random.choice((16, 32)), g.random.randint(1, 3)
    length = block * turns
    left, right = (g.array("float32", "ints", rows * length) for _ in range(2))
    r, k, x, acc, turn = (g.fresh(name) for name in ("r", "k", "x", "acc", "k"))
    dtype = g.random.choice(("int32", "int64"))
    bound, sign = _loaded(g, dtype, extreme(g, dtype)), g.random.choice(_SIGNS[:4])
    of_row = g.chance(0.3)
    test = f"{r if of_row else k}{g.random.choice(('', '', ' - 1', ' + 2'))} {sign} {bound}"
    mask = f"({test}){'[:, None]' if of_row else '[None, :]'}"
    dot = g.chance(0.5)
    shape = (rows, rows) if dot else (rows,)
    g.add(f"{r} = tl.arange(0, {rows})")
    g.add(f"{acc} = tl.zeros({shape_text(shape)}, tl.float32)")
    body = g.add(f"for {turn} in range({g.number(turns)}):").body
    place = f"{left} + {r}[:, None] * {length} + {k}[None, :]"
    if g.chance(0.3):
        loaded = f"tl.where({mask}, tl.load({place}), 0.0)"
    else:
        loaded = f"tl.load({place}, mask={mask}, other=0)"
    other = f"tl.load({right} + {k}[:, None] * {rows} + {r}[None, :])"
    added = f"tl.dot({x}, {other})" if dot else f"tl.sum({x}, 1)"
    lines = f"{k} = {turn} * {block} + tl.arange(0, {block})", f"{x} = {loaded}", f"{acc} += {added}"
    body.extend(Statement(line) for line in lines)
    g.define(acc, shape, "float32", mag=64.0 * length, grain=1.0)


@family(0.6)
def extreme_loops(g: Generator) -> None:
    """Loops that end at, or compare their counter with, a number at an end of its type; they are left soon."""
    if g.depth >= g.profile.depth:
        raise Unsuitable
    dtype = g.random.choice(("int32", "int64"))
    low, high = _ends(dtype)
    k, few = g.fresh("k"), g.random.randint(0, 3)
    value = g.attempt(lambda: g.find(lambda v: v.is_int and not v.frozen and v.name.startswith("v")))
    if value is None:
        raise Unsuitable
    changed = Statement(f"{value.name} += 1")
    bound = _loaded(g, dtype, extreme(g, dtype))
    if g.chance(0.5):
        first = g.random.choice((low, high - 4, high - few - 1))
        end = _loaded(g, dtype, min(high, first + few))
        start = _loaded(g, dtype, first)
        step = g.random.choice(("", "", ", 2", ", 3"))
        g.add(f"for {k} in range({start}, {end}{step}):").body.append(changed)
        return
    test = f"{k} {g.random.choice(_SIGNS)} {bound}"
    inside = g.add(f"for {k} in range({g.number(few + 1)}):").body
    inside.append(Statement(f"if {test}:", [Statement(g.random.choice(("break", "continue", changed.text)))]))
    inside.append(changed)


@family(0.8)
def parameters(g: Generator) -> None:
    """Scalars of the launch of other types than int32."""
    dtype = g.random.choice(("float32", "int1", "int64", "float32"))
    if dtype == "float32":
        value = g.random.choice((0.5, -2.0, 3.0, 0.0, 1.0))
        name = scalar_of(g, dtype, value)
        g.scopes[0].append(Value(name, (), dtype, mag=4.0, grain=0.5, frozen=True))
    elif dtype == "int1":
        name = scalar_of(g, dtype, g.chance(0.5))
        g.scopes[0].append(Value(name, (), dtype, frozen=True))
    else:
        low, high = _ends(dtype)
        name = scalar_of(g, dtype, g.random.choice((low, high, 2**31, -(2**31) - 1, 2**40 + 3, 2**33)))
        g.scopes[0].append(Value(name, (), dtype, frozen=True))


_ON_FLOATS = (
    "tl.maximum({a}, {b})", "tl.minimum({a}, {b})", "tl.where({a} < {b}, {a}, {b})", "tl.where({a} >= {b}, {b}, {a})",
    "-{a}",
    "tl.abs({a})", "{a} + {b}", "{a} - {b}", "{a} * {b}", "{a} * 0.5", "tl.where({a} == {b}, {a}, 0.0)",
    "tl.clamp({a}, -1.0, 1e30)", "tl.maximum({a}, {b}, propagate_nan=tl.PropagateNan.ALL)",
    "tl.where({a} != {a}, 1.0, {a})",
)  # fmt: skip


@family(0.9)
def extreme_floats(g: Generator) -> None:
    """One operation on the smallest and largest floats, NaN, infinities and zeros of both signs; bits of the result."""
    if g.in_loop:
        raise Unsuitable
    shape = g.shape(g.random.choice((1, 2)))
    numel = 1
    for extent in shape:
        numel *= extent
    dtype = g.random.choice(("float32", "float32", "float64", "float16", "bfloat16"))
    terms, step = [], 1
    for dim in reversed(range(len(shape))):
        terms.append(f"{positions(g, shape, dim)} * {step}")
        step *= shape[dim]
    place, a, b, made = (g.fresh(name) for name in ("o", "x", "y", "z"))
    g.add(f"{place} = {' + '.join(terms)}")
    for name in (a, b):
        g.add(f"{name} = tl.load({g.array(dtype, 'extreme', numel, prefix='e')} + {place})")
    text = g.random.choice(_ON_FLOATS).format(a=a, b=b)
    if dtype in ("float16", "bfloat16"):
        text = text.replace("1e30", "3e4")
    g.add(f"{made} = {text}")
    target = dtype
    if g.chance(0.5):
        target = g.random.choice(("float32", "float64", "float16", "bfloat16", "float8e5", "float8e4nv", *INTS))
        g.add(f"{made} = {made}.to(tl.{target})")
    out = g.array(target, "sentinel", numel * g.programs, prefix="out")
    g.add(f"tl.store({out} + {g.program} * {numel} + {place}, {made})")


@family(0.5)
def reduced_specials(g: Generator) -> None:
    """Extremes, their places and sums of rows with NaN, infinities and zeros of both signs among their elements."""
    rows, columns = g.random.choice((1, 2, 8)), g.random.choice((16, 32, 64))
    dtype = g.random.choice(("float32", "float16", "float64", "bfloat16"))
    x = g.array(dtype, "special", rows * columns)
    v = g.fresh("x")
    g.add(f"{v} = tl.load({x} + tl.arange(0, {rows})[:, None] * {columns} + tl.arange(0, {columns})[None, :])")
    kind = g.random.choice(("max", "min", "sum", "argmax", "argmin", "both"))
    wide = dtype if dtype == "float64" else "float32"
    if kind in ("argmax", "argmin"):
        g.define(f"tl.{kind}({v}, 1)", (rows,), "int32")
    elif kind == "both":
        value, index = g.fresh(), g.fresh()
        g.add(f"{value}, {index} = tl.{g.random.choice(('max', 'min'))}({v}, 1, return_indices=True)")
        g.scopes[-1].append(Value(index, (rows,), "int32"))
    elif kind == "sum":
        g.define(f"tl.sum({v}.to(tl.{wide}), 1)", (rows,), wide, **facts(wide, 8.0 * columns, 1.0, 0.0, special=True))
    else:
        g.define(f"tl.{kind}({v}, 1)", (rows,), wide, **facts(wide, 8.0, 1.0, 0.0, special=True))


@family(0.7)
def divisions(g: Generator) -> None:
    """Quotients, remainders and shifts by numbers of either sign, of the launch, known, or past the width."""
    a = g.find(lambda v: v.is_int and v.name.startswith("v"))
    low, high = _ends(a.dtype)
    operation = g.random.choice(("//", "%", "<<", ">>"))
    if operation in ("<<", ">>"):
        by = str(g.random.choice((a.bits - 1, 0, 1)))
        if g.chance(0.6):
            by = f"tl.full((), {g.random.choice((a.bits, a.bits - 1, min(high, 2 * a.bits + 1)))}, tl.{a.dtype})"
    else:
        by = str(g.random.choice((3, 7, 1, min(high, 100), *((-1, -2, -7) if low else ()))))
        if g.chance(0.5):
            by = f"tl.full((), {g.random.choice((low or 1, high, 0, 5))}, tl.{a.dtype})"
    g.define(f"{a.name} {operation} {by}", a.shape, a.dtype)


@family(0.6)
def others(g: Generator) -> None:
    """What a masked load gives elsewhere: a number, a scalar or a tile; every element of it is used."""
    a = g.tile(lambda v: not v.is_float or v.err == 0)
    numel, place = 1, []
    for dim in reversed(range(len(a.shape))):
        place.append(f"{positions(g, a.shape, dim)} * {numel}")
        numel *= a.shape[dim]
    array = g.array(a.dtype, "ints", numel)
    mask = flag_tile(g, a.shape)
    known = {}
    if a.is_float:
        known = facts(a.dtype, max(8.0, a.mag), min(1.0, a.grain) if a.grain else None, 0.0, special=a.special)
        known["product"] = a.product
    g.define(f"tl.load({array} + {' + '.join(place)}, mask={mask}, other={a.name})", a.shape, a.dtype, **known)
