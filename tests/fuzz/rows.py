"""Random computations of rows as kernels write them: windows, every other element, places made of bits, sums of
products, padded products.

Each says one thing in one of a few ways, and notes its name in `Generator.spelled`.
"""

from __future__ import annotations

from tests.fuzz.arithmetic import joined
from tests.fuzz.case import Statement
from tests.fuzz.combine import DOTS, dot_facts
from tests.fuzz.generator import Generator, family
from tests.fuzz.memory import fill_facts
from tests.fuzz.spellings import below, clamped, within
from tests.fuzz.values import Value, facts

_FILLS = ("ints", "quarters")
_SIZES = (8, 16, 32, 64, 128)


@family(0.8)
def window(g: Generator) -> None:
    """Sums of neighbours: what lies outside of the row counts as zero, or as its first or last element."""
    block, taps = g.random.choice(_SIZES), g.random.randint(2, 4)
    size, fill = max(1, block - g.random.choice((0, 0, 1, 5))), g.random.choice(_FILLS)
    array, i, total = g.array("float32", fill, size), g.fresh("i"), g.fresh("w")
    held = g.chance(0.4)
    g.add(f"{i} = tl.arange(0, {block})")
    g.add(f"{total} = tl.zeros(({block},), tl.float32)")
    loop = g.chance(0.4)
    tap = g.fresh("t")
    statement = g.add(f"for {tap} in {g.random.choice(('range', 'tl.static_range'))}({taps}):") if loop else None
    for number in (tap,) if loop else map(str, range(taps)):
        at = f"({i} + {number} - {taps // 2})"
        where = clamped(g, at, size) if held else f"{at}, mask={within(g, at, size)}, other=0"
        line = f"{total} += tl.load({array} + {where})"
        if statement is not None:
            statement.body.append(Statement(line))
        else:
            g.add(line)
    known = fill_facts("float32", fill)
    summed = facts("float32", taps * known["mag"], known["grain"], 0.0)
    g.scopes[-1].append(Value(total, (block,), "float32", **summed))  # type: ignore[arg-type]
    g.spelled.add("clamped window" if held else "masked window")


@family(0.8)
def every_other(g: Generator) -> None:
    """The even and the odd elements of a row, by themselves."""
    block, dtype, fill = g.random.choice(_SIZES), g.random.choice(("float32", "float16", "int32", "int8")), "ints"
    array, i = g.array(dtype, fill, 2 * block), g.fresh("i")
    g.add(f"{i} = tl.arange(0, {block})")
    limit = g.random.choice((block, g.random.randint(0, block)))
    tail = "" if limit == block else f", mask={below(g, i, limit)}, other=0"
    even, odd = g.random.choice(
        ((f"2 * {i}", f"2 * {i} + 1"), (f"{i} * 2", f"({i} * 2 + 1)"), (f"({i} + {i})", f"({i} << 1) + 1"))
    )
    for at in (even, odd):
        g.define(f"tl.load({array} + {at}{tail})", (block,), dtype, **fill_facts(dtype, fill))
    g.spelled.add("every other element")


@family(0.8)
def places_by_bits(g: Generator) -> None:
    """Elements at places that are bits of their index: halves, partners, rows of a flat block, turned squares."""
    block, dtype, fill = g.random.choice(_SIZES), g.random.choice(("float32", "float16", "int32", "int8")), "ints"
    size = block * g.programs
    array, i, at = g.array(dtype, fill, size), g.fresh("i"), g.fresh("at")
    few = g.random.choice([n for n in (2, 4, 8, 16) if n * n <= block] or [2])
    way = g.random.choice(
        (
            f"{i} // {few}",
            f"{i} % {few} + {i} // {block}",
            f"{i} ^ {g.random.randrange(block)}",
            f"({i} & {few - 1}) + ({i} >> {g.random.randint(1, 5)}) * {g.random.choice((0, 1))}",
            f"{i} // {few * few} * {few * few} + {i} % {few} * {few} + {i} // {few} % {few}",
            f"({i} & -{few}) + ({few - 1} - {i} % {few})",
            f"({i} ^ 1) // 2",
        )
    )
    g.add(f"{i} = ({g.program}) * {block} + tl.arange(0, {block})")
    g.add(f"{at} = tl.minimum({way}, {size - 1})" if g.chance(0.2) else f"{at} = ({way}) % {size}")
    limit = g.random.choice((size, g.random.randint(0, size)))
    tail = "" if limit == size else f", mask={below(g, at, limit)}, other=0"
    g.define(f"tl.load({array} + {at}{tail})", (block,), dtype, **fill_facts(dtype, fill))
    g.spelled.add("places by bits")


@family(0.8)
def row_times_matrix(g: Generator) -> None:
    """A row times a matrix by sums along an axis, over pieces of K; sums at every piece, or once at the end."""
    n, block, pieces = g.random.choice((8, 16, 32)), g.random.choice((16, 32, 64)), g.random.randint(1, 3)
    size, fill = max(1, block * pieces - g.random.choice((0, 0, 3))), g.random.choice((*_FILLS, "reals"))
    dtype = g.random.choice(("float32", "float32", "float16", "bfloat16"))
    row, matrix = g.array(dtype, fill, size), g.array(dtype, fill, size * n)
    i, j, k, acc, text = g.fresh("i"), g.fresh("j"), g.fresh("k"), g.fresh("s"), g.number(size)
    down, late = g.chance(0.5), g.chance(0.3)  # K runs down the columns of the tile
    deep, across = ("[:, None]", "[None, :]") if down else ("[None, :]", "[:, None]")
    shape = (block, n) if down else (n, block)
    g.add(f"{i} = tl.arange(0, {block})")
    g.add(f"{j} = tl.arange(0, {n})")
    g.add(f"{acc} = tl.zeros({shape if late else (n,)}, tl.float32)")
    body = g.add(f"for {k} in range(0, {text}, {block}):").body
    place = f"({k} + {i}){deep} * {n} + {j}{across}" if g.chance(0.5) else f"({k} + {i}){deep} + {j}{across} * {text}"
    x, w = (g.fresh(name) for name in "xw")
    inside = f"{k} + {i} < {text}"
    tail = "" if size % block == 0 and g.chance(0.5) else f", mask={inside}, other=0"
    wide = "" if not tail else f", mask=({inside}){deep}, other=0"
    product = f"{x}{deep} * {w}"
    body += [
        Statement(f"{x} = tl.load({row} + {k} + {i}{tail}).to(tl.float32)"),
        Statement(f"{w} = tl.load({matrix} + {place}{wide}).to(tl.float32)"),
        Statement(f"{acc} += {product if late else f'tl.sum({product}, {0 if down else 1})'}"),
    ]
    if late:
        g.add(f"{acc} = tl.sum({acc}, {0 if down else 1})")
    fake = Value("", (), "float32", **fill_facts("float32", fill))
    known = dot_facts(fake, fake, None, size, "float32")
    g.scopes[-1].append(Value(acc, (n,), "float32", **known))  # type: ignore[arg-type]
    g.spelled.add("row times matrix")


@family(0.6)
def padded_product(g: Generator) -> None:
    """A small product whose tile is larger: rows and columns that nobody stores."""
    dtype, out = g.random.choice(DOTS[:4])
    m, n, k = g.random.randint(1, 15), g.random.randint(1, 16), g.random.choice((5, 12, 16))
    fill = g.random.choice(_FILLS)
    left, right = g.array(dtype, fill, g.programs * m * k), g.array(dtype, fill, g.programs * k * n)
    i, x, y, z = (g.fresh(name) for name in "ixyz")
    rows, columns = f"{i}[:, None]", f"{i}[None, :]"
    other = g.random.choice((", other=0", "")) if k == 16 else ", other=0"  # rows that nobody stores may be anything
    inside = [f"({below(g, rows, m)})"], [f"({below(g, columns, n)})"]
    if k < 16:
        inside[0].append(f"({columns} < {k})")
        inside[1].append(f"({rows} < {k})")
    g.add(f"{i} = tl.arange(0, 16)")
    places = (
        f"{left} + {g.program} * {m * k} + {rows} * {k} + {columns}",
        (f"{right} + {g.program} * {k * n} + {rows} * {n} + {columns}"),
    )
    for name, place, masks in zip((x, y), places, inside, strict=True):
        g.add(f"{name} = tl.load({place}, mask={' & '.join(masks)}{other})")
    g.add(f"{z} = tl.dot({x}, {y})")
    fake = Value("", (), dtype, **fill_facts(dtype, fill)) if out != "int32" else None
    known = dot_facts(fake, fake, None, k, out) if fake else {}
    target = g.array(out, "sentinel", g.programs * m * n, prefix="out", tolerance=known.get("err", 0.0))
    place = f"{target} + {g.program} * {m * n} + {rows} * {n} + {columns}"
    g.add(f"tl.store({place}, {z}, mask=({rows} < {m}) & ({columns} < {n}))")
    g.spelled.add("padded product")


@family(0.6)
def either_way(g: Generator) -> None:
    """A branch both of whose sides load what is used behind it: masked or not, here or there, turned or not."""
    m, n, dtype = g.random.choice((4, 16, 32)), g.random.choice((8, 16, 64)), g.random.choice(("float32", "int32"))
    array, other = (g.array(dtype, "ints", m * n) for _ in range(2))
    i, j, v = (g.fresh(name) for name in "ijv")
    g.add(f"{i} = tl.arange(0, {m})[:, None]")
    g.add(f"{j} = tl.arange(0, {n})[None, :]")
    straight, turned = f"{i} * {n} + {j}", f"{i} + {j} * {m}"
    limit = g.random.randint(0, n)
    sides = [
        f"tl.load({array} + {straight})",
        f"tl.load({array} + {straight}, mask={below(g, j, limit)}, other=0)",
        f"tl.load({other} + {straight})",
        f"tl.load({array} + {turned})",
    ]
    first, second = g.random.sample(sides, 2)
    test = g.random.choice((f"{g.program} % 2 == 0", f"{g.scalar(3)} > {g.random.randint(2, 4)}"))
    branch = g.add(f"if {test}:")
    branch.body.append(Statement(f"{v} = {first}"))
    branch.orelse.append(Statement(f"{v} = {second}"))
    loaded = Value(v, (m, n), dtype, **fill_facts(dtype, "ints"))
    g.scopes[-1].append(loaded.like(**joined(loaded)) if loaded.is_float else loaded)
    g.spelled.add("loads on either side")


SPELLINGS = frozenset((
    "masked window", "clamped window", "every other element", "places by bits", "row times matrix", "padded product",
    "loads on either side",
))  # fmt: skip
