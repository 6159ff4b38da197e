"""Random changes of shape: reshape, transposition, new dimensions, broadcasting, join and split, gather, flip, sort."""

from __future__ import annotations

from tests.fuzz.arithmetic import joined, same
from tests.fuzz.generator import MAX_TILE, Generator, family, shape_text
from tests.fuzz.values import Value


def _divisions(g: Generator, numel: int) -> tuple[int, ...]:
    """A random shape of `numel` elements."""
    dims = []
    rest = numel
    for _ in range(g.random.randint(0, 2)):
        divisors = [d for d in range(1, rest + 1) if rest % d == 0]
        pick = g.random.choice(divisors)
        dims.append(pick)
        rest //= pick
    return (*dims, rest)


@family(1)
def reshape(g: Generator) -> None:
    a = g.tile()
    shape = _divisions(g, a.numel)
    text = g.random.choice(("tl.reshape({0}, {1})", "{0}.reshape{1}" if len(shape) > 1 else "tl.reshape({0}, {1})"))
    g.define(text.format(a.name, shape_text(shape)), shape, a.dtype, **same(a))


@family(1.2)
def permute(g: Generator) -> None:
    a = g.tile(lambda v: len(v.shape) >= 2)
    order = list(range(len(a.shape)))
    g.random.shuffle(order)
    shape = tuple(a.shape[i] for i in order)
    text = f"tl.permute({a.name}, {shape_text(tuple(order))})"
    if len(order) == 2 and order == [1, 0]:
        text = g.random.choice((text, f"tl.trans({a.name})", f"{a.name}.T"))
    g.define(text, shape, a.dtype, **same(a))


@family(1.5)
def expand(g: Generator) -> None:
    a = g.tile(lambda v: len(v.shape) <= 2)
    axis = g.random.randint(0, len(a.shape))
    shape = (*a.shape[:axis], 1, *a.shape[axis:])
    index = ", ".join("None" if i == axis else ":" for i in range(len(shape)))
    text = g.random.choice((f"{a.name}[{index}]", f"tl.expand_dims({a.name}, {axis})"))
    g.define(text, shape, a.dtype, **same(a))


@family(1.2)
def broadcast(g: Generator) -> None:
    a = g.tile(lambda v: 1 in v.shape)
    shape = tuple(g.random.choice(g.extents) if n == 1 else n for n in a.shape)
    count = 1
    for n in shape:
        count *= n
    if count > MAX_TILE:
        shape = a.shape
    g.define(f"tl.broadcast_to({a.name}, {shape_text(shape)})", shape, a.dtype, **same(a))


@family(0.7)
def splat(g: Generator) -> None:
    a = g.find(lambda v: not v.shape)
    shape = g.shape()
    g.define(f"tl.broadcast_to({a.name}, {shape_text(shape)})", shape, a.dtype, **same(a))


@family(0.8)
def join(g: Generator) -> None:
    a = g.tile(lambda v: v.numel <= MAX_TILE // 2 and len(v.shape) <= 3)
    b = g.tile(lambda v: v.shape == a.shape and v.dtype == a.dtype)
    known = joined(a, b)
    if g.chance(0.4):
        shape = (*a.shape[:-1], a.shape[-1] * 2)
        g.define(f"tl.interleave({a.name}, {b.name})", shape, a.dtype, **known)
    elif g.chance(0.4):
        g.define(f"tl.cat({a.name}, {b.name}, dim=0)", (a.shape[0] * 2, *a.shape[1:]), a.dtype, **known)
    else:
        g.define(f"tl.join({a.name}, {b.name})", (*a.shape, 2), a.dtype, **known)


@family(0.8)
def split(g: Generator) -> None:
    a = g.tile(lambda v: v.numel % 2 == 0 and v.numel >= 4)
    name = a.name
    if a.shape[-1] != 2 or len(a.shape) == 1:
        shape: tuple[int, ...] = (a.numel // 2, 2)
        name = f"tl.reshape({a.name}, {shape_text(shape)})"
    else:
        shape = a.shape
    left, right = (Value(g.fresh(), shape[:-1], a.dtype, **same(a)) for _ in range(2))  # type: ignore[arg-type]
    g.add(f"{left.name}, {right.name} = tl.split({name})")
    g.scopes[-1] += [left, right]


@family(0.8)
def gather(g: Generator) -> None:
    a = g.tile()
    axis = g.random.randrange(len(a.shape))
    extent = a.shape[axis]
    index = g.tile(lambda v: v.dtype in ("int32", "int64", "int16") and len(v.shape) == len(a.shape))
    if any(m != n for i, (m, n) in enumerate(zip(index.shape, a.shape, strict=True)) if i != axis):
        at = f"tl.zeros({shape_text(a.shape)}, tl.int32) + {extent // 2}"
        shape = a.shape
    else:
        bound = 1 << (extent.bit_length() - 1)
        at, shape = f"{index.name} & {bound - 1}", index.shape
    g.define(f"tl.gather({a.name}, {at}, {axis})", shape, a.dtype, **same(a))


@family(0.5)
def flip(g: Generator) -> None:
    a = g.tile()
    axis = g.random.randrange(len(a.shape))
    g.define(f"tl.flip({a.name}, {axis})", a.shape, a.dtype, **same(a))


@family(0.4)
def sort(g: Generator) -> None:
    a = g.tile(lambda v: v.exact and not v.special and v.dtype != "int1" and v.numel <= 512 and v.shape[-1] <= 64)
    extent = a.shape[-1]
    if extent & (extent - 1):
        return
    descending = g.random.choice(("True", "False"))
    if g.chance(0.3) and extent >= 4:
        g.define(f"tl.topk({a.name}, {extent // 4})", (*a.shape[:-1], extent // 4), a.dtype, **same(a))
    else:
        g.define(f"tl.sort({a.name}, descending={descending})", a.shape, a.dtype, **same(a))


@family(0.4)
def histogram(g: Generator) -> None:
    a = g.tile(lambda v: v.dtype in ("int32", "uint32", "int64") and len(v.shape) == 1)
    bins = g.random.choice((4, 16, 64))
    g.define(f"tl.histogram({a.name} & {bins - 1}, {bins})", (bins,), "int32")


@family(1.5, any_shape=True)
def part(g: Generator) -> None:
    """Elements of a tile at a range of places along each dim; read, or replaced by another element."""
    a = g.tile()
    places, shape = zip(*(_range(g, extent) for extent in a.shape), strict=True)
    if len(shape) > 1 and g.chance(0.3):
        axis = g.random.randrange(len(shape))
        places = (*places[:axis], str(g.random.randrange(-a.shape[axis], a.shape[axis])), *places[axis + 1 :])
        shape = (*shape[:axis], *shape[axis + 1 :])
    if g.chance(0.3):
        changed = g.define_copy(a)
        g.add(f"{changed.name}[{', '.join(places)}] = {a.name}[{', '.join('0' for _ in a.shape)}]")
    else:
        g.define(f"{a.name}[{', '.join(places)}]", shape, a.dtype, **same(a))


def _range(g: Generator, extent: int) -> tuple[str, int]:
    """A slice of a dim, and how many elements it leaves."""
    if g.chance(0.4):
        return ":", extent
    first, last = sorted(g.random.randrange(extent) for _ in range(2))
    step = g.random.choice((1, 1, 2, 3, -1, -2))
    text = f"{first}:{last + 1}:{step}" if step > 0 else f"{last}:{first - 1 if first else ''}:{step}"
    return text, (last - first) // abs(step) + 1
