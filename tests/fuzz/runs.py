"""Random addresses that are one number along runs of elements, and sums over the rows of tiles either way round."""

from __future__ import annotations

from tests.fuzz.case import Statement
from tests.fuzz.generator import Generator, family, shape_text
from tests.fuzz.memory import choose_fill, fill_facts
from tests.fuzz.values import Unsuitable, facts

_ROWS = 8  # of a table


def _row_and_column(g: Generator, place: str, columns: int) -> tuple[str, str]:
    """Expressions of the row and of the column of an element, in a random spelling."""
    by = g.number(columns)
    ways = [
        (f"{place} // {by}", f"{place} % {by}"),
        (f"({place} - {place} % {by}) // {by}", f"{place} % {by}"),
        (f"({place}.to(tl.uint32) // {columns}).to(tl.int32)", f"({place}.to(tl.uint32) % {columns}).to(tl.int32)"),
    ]
    if columns & (columns - 1) == 0:
        bits = columns.bit_length() - 1
        ways += [(f"({place} >> {bits})", f"({place} & {columns - 1})")] * 2
    return g.random.choice(ways)


@family(1.0)
def rows_by_number(g: Generator) -> None:
    """Elements of rows of a table, the rows by a list of numbers, of a block that is flat."""
    extent = g.random.choice([n for n in g.extents if n >= 8] or [32])
    columns = g.random.choice((extent, max(1, extent // 4), 8, 16, 12, 5, 3 * 16, 64))
    flat = g.chance(0.7)
    shape = (extent,) if flat else (extent, 1)
    place = g.fresh("e")
    lanes = f"tl.arange(0, {extent})" + ("" if flat else "[:, None]")
    g.add(f"{place} = {g.program} * {extent} + {lanes}")
    row, column = _row_and_column(g, place, columns)
    size = extent * g.programs
    limit = g.random.randint(0, size) if g.chance(0.5) else size
    inside = f", mask={place} < {g.number(limit)}, other=0" if limit < size else ""
    ids = g.array("int32", "ints", -(-size // columns) + 1)
    number = g.fresh("row")
    g.add(f"{number} = tl.load({ids} + {row}{inside}) & {_ROWS - 1}")
    if g.chance(0.3):
        g.add(f"{number} = tl.where({number} > 3, {number} - 3, {number})")
    dtype = g.dtype()
    table = g.array(dtype, choose_fill(g, dtype), _ROWS * columns)
    at = f"{number} * {columns} + {column}" if g.chance(0.5) else f"({column} + {columns} * {number})"
    g.define(f"tl.load({table} + {at}{inside})", shape, dtype, **fill_facts(dtype, g.params[table].fill))


@family(0.7)
def sums_of_columns(g: Generator) -> None:
    """A loop adds tiles of rows to a tile, either way round, that is summed at the end."""
    if g.in_loop:
        raise Unsuitable
    columns, rows = g.random.choice((4, 8, 16, 32, 12)), g.random.choice((2, 4, 8))
    turned, iterations = g.chance(0.7), g.random.randint(1, 3)
    dtype = g.random.choice(("int32", "float32"))
    shape = (columns, rows) if turned else (rows, columns)
    x = g.array(dtype, "ints", columns * rows * iterations)
    total, i, j = g.fresh("total"), g.fresh("i"), g.fresh("j")
    along, across = ("[:, None]", "[None, :]") if turned else ("[None, :]", "[:, None]")
    g.add(f"{j} = tl.arange(0, {columns}){along}")
    g.add(f"{total} = tl.zeros({shape_text(shape)}, tl.{dtype})")
    limit = g.number(g.random.randint(1, columns))
    value = f"tl.load({x} + {i} * {columns} + {j}, mask=({j} < {limit}) & ({i} >= 0), other=0)"
    more = [
        f"{total} += {value}",
        f"{total} = tl.where({j} < {limit}, {total} + {value}, {total})",
    ]
    loop = f"for {g.fresh('t')} in range({g.number(iterations)}):"
    iteration = loop.split()[1]
    body = [
        Statement(f"{i} = {iteration} * {rows} + tl.arange(0, {rows}){across}"),
        Statement(g.random.choice(more)),
    ]
    g.body.append(Statement(loop, body))
    known = {"mag": 8.0 * rows * iterations, "grain": 1.0} if dtype == "float32" else {}
    g.define(f"tl.sum({total}, {1 if turned else 0})", (columns,), dtype, **known)


@family(0.7)
def shares_of_rows(g: Generator) -> None:
    """Rows divided by their sums, which are as small or as large as numbers get."""
    rows, columns = (
        g.random.choice((1, 2, 8)),
        g.random.choice((4, 16, 32, 12, 100) if g.profile.any_shape else (4, 16, 64)),
    )
    x = g.array("float32", "ints", rows * columns)
    i, j = (f"tl.arange(0, {n})" for n in (rows, columns))
    scale = g.random.choice((-149, -140, -130, -126, 0, 100, 115))
    part = g.fresh("part")
    if g.chance(0.5):
        g.add(f"{part} = (tl.abs(tl.load({x} + {j})) + 1) * {2.0**scale!r}")
        shape, total = (columns,), f"tl.sum({part}, 0)"
    else:
        g.add(f"{part} = (tl.abs(tl.load({x} + {i}[:, None] * {columns} + {j}[None, :])) + 1) * {2.0**scale!r}")
        shape, total = (rows, columns), f"tl.sum({part}, 1)[:, None]"
    g.define(f"{part} / {total}", shape, "float32", **facts("float32", 1.0, None, 4e-7, inexact=True))
