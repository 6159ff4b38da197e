"""Random loads and stores: strided, masked, gathered, in place, through pointer tiles, of scalars; and atomics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.fuzz.generator import Generator, family, shape_text
from tests.fuzz.spellings import below, every, held_back
from tests.fuzz.values import FLOATS, INTS, TYPES, Shape, Unsuitable, Value

_POLICIES = ("", "", "", "", ', cache_modifier=".cg"', ', eviction_policy="evict_last"')


@dataclass(frozen=True)
class Access:
    """Where a tile lies in an array.

    Args:
        offsets: expression of the tile of offsets.
        mask: expression of the mask; empty for none.
        size: number of elements that the array must have.
    """

    offsets: str
    mask: str
    size: int


def positions(g: Generator, shape: Shape, axis: int) -> str:
    """The expression of indices along `axis`, of rank 1 or expanded to the rank of `shape`."""
    text = f"tl.arange(0, {shape[axis]})"
    if len(shape) == 1:
        return text
    where = ", ".join(":" if i == axis else "None" for i in range(len(shape)))
    return f"{text}[{where}]"


def access(g: Generator, shape: Shape, *, injective: bool, masked: bool, spread: bool = True) -> Access:
    """A random affine access of a tile.

    Args:
        shape: of the tile; not empty.
        injective: every element has a place of its own, also across programs.
        masked: ragged ends may be masked off.
        spread: programs access different places.
    """
    order = list(range(len(shape)))
    g.random.shuffle(order) if g.chance(0.3) else order.reverse()
    strides, step = [0] * len(shape), 1
    for axis in order:
        strides[axis] = step
        step *= shape[axis]
        if g.chance(0.15):
            step += g.random.choice((1, 3, 16))
    if not injective and g.chance(0.25):
        axis = g.random.randrange(len(shape))
        strides[axis] = g.random.choice((0, 0, 1, 2, 3, -1, strides[axis]))
    elif g.chance(0.1):
        axis = g.random.choice(order)
        strides[axis] = -strides[axis]
    limits = list(shape)
    if masked and g.chance(0.6):
        for axis in range(len(shape)):
            if g.chance(0.6):
                limits[axis] = g.random.randint(0, shape[axis])
    reach = list(limits)
    names, terms, tests = [], [], []
    for axis, (extent, stride, limit) in enumerate(zip(shape, strides, limits, strict=True)):
        name = g.fresh("i")
        g.add(f"{name} = {positions(g, shape, axis)}", plain=None)
        names.append(name)
        terms.append(name if stride == 1 else f"{name} * {g.number(stride)}")
        if limit < extent:
            tests.append(below(g, name, limit))
        elif not injective and g.chance(0.12):
            reach[axis] = g.random.randint(1, extent)
            g.add(f"{name} = {held_back(g, name, reach[axis])}", plain=None)
    spans = [s * max(0, n - 1) for s, n in zip(strides, reach, strict=True)]
    base = -sum(s for s in spans if s < 0)
    size = base + sum(s for s in spans if s > 0) + 1
    if base:
        terms.append(g.number(base))
    if g.programs > 1 and (injective or (spread and g.chance(0.6))):
        pitch = max(size, 1) if injective else g.random.choice((1, size, 16))
        terms.insert(0, f"{g.program} * {g.number(pitch)}")
        size += pitch * (g.programs - 1)
    mask = every(g, tests)
    if tests and len(shape) > 1 and len(tests) == 1 and g.chance(0.5):
        mask = every(g, [tests[0], flag_tile(g, shape)])
    return Access(" + ".join(terms), mask, size if all(limits) else max(size, 1))


def flag_tile(g: Generator, shape: Shape) -> str:
    """A mask of exactly `shape` from the values at hand, or all true."""
    try:
        value = g.tile(lambda v: v.dtype == "int1" and v.shape == shape)
    except Unsuitable:
        return f"tl.full({shape_text(shape)}, True, tl.int1)"
    return value.name


def fill_facts(dtype: str, fill: str) -> dict[str, Any]:
    """What is known of loaded elements."""
    if TYPES[dtype][0] != "float":
        return {}
    bounds = {
        "ints": (8.0, 1.0),
        "special": (8.0, 1.0),
        "quarters": (4.0, 0.25),
        "reals": (4.0, None),
        "zeros": (0.0, 1.0),
    }
    mag, grain = bounds[fill]
    return {"mag": mag, "grain": grain, "special": fill == "special"}


def choose_fill(g: Generator, dtype: str) -> str:
    if TYPES[dtype][0] != "float":
        return "ints"
    return g.random.choice(("ints", "ints", "quarters", "reals", "special"))


def load_new(g: Generator, shape: Shape | None = None, dtype: str | None = None, fill: str | None = None) -> Value:
    """Load a tile from a new array or one that is there."""
    shape, dtype = shape or g.shape(), dtype or g.dtype()
    known = [p for p in g.params.values() if p.kind == "array" and p.dtype == dtype and p.name.startswith("p")]
    known = [p for p in known if fill in (None, p.fill)]
    at = access(g, shape, injective=False, masked=True)
    if known and g.chance(0.5):
        name = g.random.choice(known).name
        g.grow(name, at.size)
    else:
        name = g.array(dtype, fill or choose_fill(g, dtype), at.size)
    found = fill_facts(dtype, g.params[name].fill)
    pointer = f"{name} + {at.offsets}" if g.chance(0.8) else f"{at.offsets} + {name}"
    if g.chance(0.3):
        pointers = g.fresh("q")
        g.add(f"{pointers} = {pointer}")
        pointer = pointers
    return g.define(f"tl.load({full_pointer(pointer, at, shape)}{g.random.choice(_POLICIES)})", shape, dtype, **found)


def full_pointer(pointer: str, at: Access, shape: Shape) -> str:
    """Pointer, mask and replacement of a load."""
    if not at.mask:
        return pointer
    return f"{pointer}, mask={at.mask}, other=0"


@family(3)
def load(g: Generator) -> None:
    load_new(g)


@family(1)
def load_scalar(g: Generator) -> None:
    dtype = g.dtype()
    name = g.array(dtype, choose_fill(g, dtype), 8 + g.programs)
    place = g.random.choice((g.program, str(g.random.randrange(8)), f"{g.program} + {g.number(3)}"))
    g.define(f"tl.load({name} + {place})", (), dtype, **fill_facts(dtype, g.params[name].fill))


@family(1.5)
def gather_load(g: Generator) -> None:
    index = g.tile(lambda v: v.is_int)
    dtype = g.dtype()
    size = g.random.choice((1, 8, 64, 1024))
    name = g.array(dtype, choose_fill(g, dtype), size)
    limit = "" if g.chance(0.5) else f", mask={flag_tile(g, index.shape)}, other=0"
    at = f"({index.name} & {size - 1})" if index.bits > 8 or size < 64 else f"({index.name} & 31)"
    if index.bits == 8 and size >= 64:
        g.grow(name, 64)
    text = f"tl.load({name} + {at}{limit})"
    g.define(text, index.shape, dtype, **fill_facts(dtype, g.params[name].fill))


@family(1.2)
def use_without_other(g: Generator) -> None:
    """What a masked load leaves undefined goes nowhere but under the same mask."""
    shape, dtype = g.shape(), g.dtype()
    mask = flag_tile(g, shape)
    at = access(g, shape, injective=True, masked=False)
    source = g.array(dtype, choose_fill(g, dtype), at.size)
    target = g.array(dtype, "sentinel", at.size, prefix="out")
    name = g.fresh("w")
    g.add(f"{name} = {at.offsets}")
    g.add(f"tl.store({target} + {name}, tl.load({source} + {name}, mask={mask}), mask={mask})")


# --- stores -------------------------------------------------------------------------------------------------


def store(g: Generator, value: Value) -> None:
    """Store a tile to an array of its own; in a loop every turn overwrites the last."""
    if g.in_loop and value.err > 0:
        raise Unsuitable
    at = access(g, value.shape, injective=True, masked=True)
    target = store_type(g, value)
    name = g.array(target, "sentinel", at.size, prefix="out", tolerance=value.err)
    mask = at.mask
    if not mask and g.chance(0.3):
        mask = flag_tile(g, value.shape)
    tail = f", mask={mask}" if mask else ""
    g.add(f"tl.store({name} + {at.offsets}, {value.name}{tail})")


def store_type(g: Generator, value: Value) -> str:
    """Element type of the array that a value is stored to; the store converts."""
    if g.chance(0.85) or value.err > 0 or value.product:
        return value.dtype
    if value.is_float and value.mag < 400 and value.dtype in ("float16", "float32", "bfloat16"):
        return g.random.choice(("float8e5", "float8e4nv", "float16", "bfloat16", "float32"))
    if value.is_int:
        return g.random.choice(INTS)
    return value.dtype


@family(2.5)
def store_tile(g: Generator) -> None:
    store(g, g.tile())


@family(0.7)
def store_scalar(g: Generator) -> None:
    value = g.find(lambda v: not v.shape and (v.err == 0 or not g.in_loop))
    name = g.array(value.dtype, "sentinel", g.programs + 2, prefix="out", tolerance=value.err)
    g.add(f"tl.store({name} + {g.program}, {value.name})")


@family(1.2)
def in_place(g: Generator) -> None:
    """Load, change and store one array with shifts, so that the order of accesses matters."""
    shape = g.shape(g.random.choice((1, 1, 2)))
    dtype = g.random.choice((*INTS, "float32", "float16"))
    span = 1
    for extent in shape:
        span *= extent
    shift = g.random.choice((0, 0, 1, span // 2, span))
    name = g.array(dtype, "ints", (span + shift) * g.programs, prefix="io")
    first, second = g.random.choice(((0, shift), (shift, 0), (0, 0)))
    other = name
    if first == second and g.chance(0.5):  # arrays under two names may coincide, not overlap with a shift in one tile
        other = g.fresh("alias")
        g.params[other] = type(g.params[name])(
            other, "array", dtype, size=g.params[name].size, fill="ints", aligned=g.params[name].aligned, alias=name
        )
    at = access(g, shape, injective=False, masked=False, spread=False)
    base, offset = g.fresh("b"), g.fresh("o")
    g.add(f"{base} = {g.program} * {span + shift}")
    index = " + ".join(f"{positions(g, shape, axis)} * {stride}" for axis, stride in enumerate(_row_major(shape)))
    del at
    g.add(f"{offset} = {index}")
    mag = {"mag": 8.0, "grain": 1.0} if dtype in FLOATS else {}
    loaded = g.define(f"tl.load({name} + {base} + {offset} + {first})", shape, dtype, **mag)
    change = g.random.choice(("{0} + 1", "-{0}", "{0} * 2", "tl.maximum({0}, 3)"))
    if dtype.startswith("uint"):
        change = change.replace("-{0}", "~{0}")
    changed = {"mag": 16.0, "grain": 1.0} if dtype in FLOATS else {}
    result = g.define(change.format(loaded.name), shape, dtype, **changed)
    g.add(f"tl.store({other} + {base} + {offset} + {second}, {result.name})")
    if g.chance(0.6):
        again = {"mag": 16.0, "grain": 1.0} if dtype in FLOATS else {}
        if g.in_loop and dtype in FLOATS:
            raise Unsuitable
        g.define(f"tl.load({name} + {base} + {offset} + {g.random.choice((0, shift))})", shape, dtype, **again)
    elif g.in_loop and dtype in FLOATS:
        raise Unsuitable


def _row_major(shape: Shape) -> list[int]:
    strides, step = [], 1
    for extent in reversed(shape):
        strides.insert(0, step)
        step *= extent
    return strides


# --- atomics -------------------------------------------------------------------------------------------------------


def _order(g: Generator) -> str:
    """Arguments that name a memory order and who sees it; often none."""
    sem = g.random.choice(("", "", *(f', sem="{name}"' for name in ("acq_rel", "acquire", "release", "relaxed"))))
    return sem + g.random.choice(("", "", *(f', scope="{name}"' for name in ("gpu", "cta", "sys"))))


@family(0.8)
def atomic(g: Generator) -> None:
    """Commuting updates of places that lanes and programs share, without use of the old values."""
    dtype = g.random.choice(("int32", "uint32", "int64", "float32", "float32", "float16", "bfloat16"))
    value = g.tile(lambda v: v.dtype == dtype and v.exact and not v.special and v.mag <= 64)
    if dtype in FLOATS and (value.grain is None or g.in_loop):
        raise Unsuitable
    operations = ["max", "min"] + ["add"] * (dtype not in ("float16", "bfloat16"))  # sums of halves round
    operations += [] if dtype in FLOATS else ["and", "or", "xor"]
    operation = g.random.choice(operations)
    index = positions(g, value.shape, g.random.randrange(len(value.shape)))
    index = f"({index} & {g.random.choice((0, 3, 15))}) + tl.zeros({shape_text(value.shape)}, tl.int32)"
    name = g.array(dtype, "ints", 16, prefix="at")
    mask = f", mask={flag_tile(g, value.shape)}" if g.chance(0.4) else ""
    g.add(f"tl.atomic_{operation}({name} + {index}, {value.name}{mask}{_order(g)})")


@family(0.6)
def atomic_old(g: Generator) -> None:
    """Updates of places of their own, whose old values are used."""
    dtype = g.random.choice(("int32", "uint32", "int64"))
    value = g.tile(lambda v: v.dtype == dtype)
    at = access(g, value.shape, injective=True, masked=False)
    name = g.array(dtype, "ints", at.size, prefix="at")
    operation = g.random.choice(("add", "max", "min", "and", "or", "xor", "xchg"))
    g.define(f"tl.atomic_{operation}({name} + {at.offsets}, {value.name}{_order(g)})", value.shape, dtype)


@family(0.3)
def atomic_scalar(g: Generator) -> None:
    name = g.array("int32", "ints", 4, prefix="at")
    operation = g.random.choice(("add", "max", "xor", "cas"))
    if operation == "cas":
        # Programs that share a place write the same, and what they write is not what they wait for: any order will do.
        g.add(f"tl.atomic_cas({name} + {g.program} % 4, 3, {g.program} % 4 + 4{_order(g)})")
    else:
        g.add(f"tl.atomic_{operation}({name} + {g.program} % 4, {g.program} + 5{_order(g)})")


@family(0.3)
def atomic_copy(g: Generator) -> None:
    """Atomic loads of places that nobody writes, and atomic stores to places of one's own."""
    shape, dtype = g.shape(), g.random.choice(("int32", "int64", "float32", "float16", "uint8"))
    at = access(g, shape, injective=True, masked=True)
    source = g.array(dtype, choose_fill(g, dtype), at.size)
    target = g.array(dtype, "sentinel", at.size, prefix="out")
    mask = f", mask={at.mask}" if at.mask else ""
    load = g.random.choice(("", ', sem="relaxed"', ', sem="acquire", scope="sys"'))
    store = g.random.choice(("", ', sem="relaxed"', ', sem="release", scope="sys"'))
    value = g.fresh("w")
    g.add(f"{value} = tl.atomic_load({source} + {at.offsets}{mask}{load})")
    g.add(f"tl.atomic_store({target} + {at.offsets}, {value}{mask}{store})")
