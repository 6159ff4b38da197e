"""Loads and stores through addresses that several elements of a tile have: groups, remainders, clamps, zero strides.

What is stored depends on the address alone, so that it does not matter which element of an address stores last.
"""

from __future__ import annotations

from tests.fuzz.generator import Generator, family, shape_text
from tests.fuzz.memory import positions
from tests.fuzz.spellings import below, every, held_back
from tests.fuzz.values import FLOATS, INTS, Shape, Unsuitable


def _of_one_axis(g: Generator, name: str, extent: int) -> tuple[str, int]:
    """An expression of an index that is not one-to-one, most often, and what it is below."""
    size = g.random.choice((1, 2, 3, 4, 8, 16, 64, 128))
    low = max(1, extent // g.random.choice((2, 4, 64)))
    how = g.random.randrange(9)
    if how == 0:
        return f"({name} // {g.number(size)})", (extent - 1) // size + 1
    if how == 1:
        return f"({name} % {g.number(size)})", size
    if how == 2:
        return f"({name} >> {g.random.choice((1, 3, 6))})", extent
    if how == 3:
        return f"({name} & {g.random.choice((0, 3, 5, 7, 63))})", 64
    if how == 4:
        return f"tl.minimum({name}, {g.number(low)})", low + 1
    if how == 5:
        return f"tl.maximum({name}, {g.number(low)})", max(extent, low + 1)
    if how == 6:
        return held_back(g, name, low), max(low, 1)
    if how == 7:
        return f"({name} * {g.number(0)})", 1
    stride = g.random.choice((1, 1, 2, 3))
    return f"{name} * {g.number(stride)}", stride * (extent - 1) + 1


def _address(g: Generator, shape: Shape) -> tuple[str, int]:
    """An expression of offsets for a tile, and what they are below."""
    terms, size, step = [], 1, 1
    for axis in reversed(range(len(shape))):
        name = g.fresh("i")
        g.add(f"{name} = {positions(g, shape, axis)}", plain=None)
        how = g.random.randrange(4)
        if how == 0:
            text, most = _of_one_axis(g, name, shape[axis])
            stride = g.random.choice((0, 1, step))
        else:  # strides of rows: as long as they are, none at all, or one that lets rows overlap
            text, most = name, shape[axis]
            stride = g.random.choice((0, 1, step, step, step, max(1, step // 2)))
        terms.append(text if stride == 1 else f"{text} * {g.number(stride)}")
        size += stride * (most - 1)
        step = max(step, size)
    zeros = f"tl.zeros({shape_text(shape)}, tl.int32)"
    return f"{' + '.join(terms)} + {zeros}" if len(shape) > 1 else terms[0], size


def _by_memory(g: Generator, shape: Shape) -> tuple[str, int]:
    """Offsets that are loaded."""
    count = 1
    for extent in shape:
        count *= extent
    index = g.array("int32", "ints", count)
    flat = _flat(g, shape)
    return f"(tl.load({index} + {flat}) & {g.random.choice((0, 3, 7))})", 8


def _flat(g: Generator, shape: Shape) -> str:
    """The number of each element of a tile."""
    terms, step = [], 1
    for axis in reversed(range(len(shape))):
        terms.append(f"{positions(g, shape, axis)} * {step}")
        step *= shape[axis]
    return " + ".join(terms)


def _mask(g: Generator, shape: Shape) -> str:
    tests = []
    for axis, extent in enumerate(shape):
        if g.chance(0.3):
            name = g.fresh("i")
            g.add(f"{name} = {positions(g, shape, axis)}", plain=None)
            tests.append(below(g, name, g.random.randint(0, extent)))
    return every(g, tests)


def _changed(g: Generator, dtype: str, name: str) -> str:
    changes = ["{0} + 1", "{0} * 2", "tl.maximum({0}, 3)", "~{0}" if dtype in INTS else "-{0}"]
    return g.random.choice(changes).format(name)


@family(1.6)
def at_shared_places(g: Generator) -> None:
    """Load through such addresses, use it on an array of one's own, store through them again, and look."""
    shape = g.shape(g.random.choice((1, 1, 2, 2, 3)))
    dtype = g.random.choice(("float32", "int32", "float16", *INTS))
    if g.in_loop and dtype in FLOATS:
        raise Unsuitable
    offsets, size = _by_memory(g, shape) if g.chance(0.15) else _address(g, shape)
    name = g.array(dtype, "ints", size * g.programs, prefix="io")
    place = g.fresh("o")
    g.add(f"{place} = {g.program} * {size} + {offsets}")
    mask = _mask(g, shape)
    under, other = (f", mask={mask}", f", mask={mask}, other=0") if mask else ("", "")
    known = {"mag": 8.0, "grain": 1.0} if dtype in FLOATS else {}
    loaded = g.define(f"tl.load({name} + {place}{other})", shape, dtype, **known)
    if g.chance(0.5):
        count = 1
        for extent in shape:
            count *= extent
        own, at = g.array(dtype, "ints", count * g.programs, prefix="io"), g.fresh("o")
        g.add(f"{at} = {g.program} * {count} + {_flat(g, shape)}")
        g.add(f"tl.store({own} + {at}, tl.load({own} + {at}) + {loaded.name})")
    known = {"mag": 16.0, "grain": 1.0} if dtype in FLOATS else {}
    first = g.define(_changed(g, dtype, loaded.name), shape, dtype, **known)
    g.add(f"tl.store({name} + {place}, {first.name}{under})")
    if g.chance(0.3):  # what a second store leaves, of the same elements or of all
        constant = g.random.choice(("1", "7"))
        g.add(f"tl.store({name} + {place}, tl.full({shape_text(shape)}, {constant}, tl.{dtype})"
              f"{g.random.choice(('', under))})")  # fmt: skip
    if g.chance(0.6):
        g.define(f"tl.load({name} + {place}{other})", shape, dtype, **known)
