"""Random blocks of tensors: block pointers and descriptors, inside, across the edges and beyond them."""

from __future__ import annotations

from dataclasses import dataclass

from tests.fuzz.case import Statement
from tests.fuzz.generator import MAX_TILE, Generator, family, shape_text
from tests.fuzz.memory import choose_fill, fill_facts
from tests.fuzz.values import FLOATS, INTS, TYPES, Shape, Unsuitable, Value


@dataclass(frozen=True)
class _Tensor:
    """A tensor of which a block is read or written.

    Args:
        sizes: of its dims, and `strides` between neighbours along each.
        numel: elements of the array that holds it.
        first: of the block along each dim.
        block: extents of the block.
    """

    sizes: Shape
    strides: Shape
    numel: int
    first: Shape
    block: Shape

    @property
    def reaches(self) -> tuple[int, ...]:
        """The dims along which the block leaves the tensor."""
        return tuple(
            dim
            for dim, (at, extent, size) in enumerate(zip(self.first, self.block, self.sizes, strict=True))
            if at < 0 or at + extent > size
        )


def _tensor(g: Generator, block: Shape, *, align: int) -> _Tensor:
    """A tensor around a block, whose rows begin at multiples of `align` elements, the last dim without gaps if so."""
    sizes = tuple(max(1, n + g.random.choice((0, 0, 1, -1, n, -(n // 2)))) for n in block)
    order = list(reversed(range(len(block))))
    if align == 1 and g.chance(0.3):
        g.random.shuffle(order)
    strides, step = [0] * len(block), 1
    for number, dim in enumerate(order):
        if number or align == 1:
            step += g.random.choice((0, 0, 1, 5)) if number else g.random.choice((0, 0, 0, 1))
        step += -step % align if number else 0
        strides[dim] = step
        step *= sizes[dim]
    first = tuple(
        g.random.choice((0, 0, 1, -1, n // 2, size - 1, -n, size)) for n, size in zip(block, sizes, strict=True)
    )
    numel = 1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
    return _Tensor(sizes, tuple(strides), numel, first, block)


def _numbers(g: Generator, values: Shape, *, known: bool = False) -> str:
    texts = [str(n) if known or g.chance(0.5) else g.number(n) for n in values]
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def _block_pointer(g: Generator, array: str, t: _Tensor) -> str:
    order = tuple(reversed(range(len(t.block))))
    return (
        f"tl.make_block_ptr({array}, shape={_numbers(g, t.sizes)}, strides={_numbers(g, t.strides)}, "
        f"offsets={_numbers(g, t.first)}, block_shape={shape_text(t.block)}, order={shape_text(order)})"
    )


def _checked(g: Generator, t: _Tensor) -> tuple[int, ...]:
    """The dims that must be checked, and perhaps others."""
    return tuple(dim for dim in range(len(t.block)) if dim in t.reaches or g.chance(0.3))


def _small_shape(g: Generator, ranks: tuple[int, ...]) -> Shape:
    shape = g.shape(g.random.choice(ranks))
    if any(n & (n - 1) for n in shape):
        shape = tuple(1 << (n.bit_length() - 1) for n in shape)
    return shape


@family(0.9)
def block_pointer(g: Generator) -> None:
    """Read a block that may leave its tensor, perhaps further on in each iteration; write one that does."""
    block, dtype = _small_shape(g, (1, 2, 2, 3)), g.dtype()
    t = _tensor(g, block, align=1)
    array = g.array(dtype, choose_fill(g, dtype), t.numel)
    checked = _checked(g, t)
    padding = ""
    known = fill_facts(dtype, g.params[array].fill)
    if checked:
        padding = g.random.choice(("zero", "zero", "nan" if dtype in FLOATS else "zero"))
        known = {**known, "special": known["special"] or padding == "nan"} if known else known
    name = g.fresh("bp")
    g.add(f"{name} = {_block_pointer(g, array, t)}")
    tail = f", boundary_check={checked if len(checked) != 1 else f'({checked[0]},)'}" if checked else ""
    option = f', padding_option="{padding}"' if padding else ""
    if checked == tuple(range(len(block))) and g.chance(0.5):
        moved = g.fresh("w")
        g.add(f"{moved} = tl.load({name}{tail}{option})")
        inside = g.add(f"for {g.fresh('k')} in range({g.number(g.random.randint(0, 3))}):").body
        steps = tuple(g.random.choice((0, 1, -1, n)) for n in block)
        inside.append(Statement(f"{name} = tl.advance({name}, {shape_text(steps)})"))
        inside.append(Statement(f"{moved} = tl.load({name}{tail}{option})"))
        g.scopes[-1].append(Value(moved, block, dtype, frozen=True, **known))
    else:
        g.define(f"tl.load({name}{tail}{option})", block, dtype, **known)


@family(0.7)
def block_pointer_store(g: Generator) -> None:
    value = g.tile(lambda v: v.err == 0 and all(n & (n - 1) == 0 for n in v.shape))
    t = _tensor(g, value.shape, align=1)
    target = g.array(value.dtype, "sentinel", t.numel * g.programs, prefix="out")
    checked = _checked(g, t)
    tail = f", boundary_check={checked if len(checked) != 1 else f'({checked[0]},)'}" if checked else ""
    place = f"{target} + {g.program} * {t.numel}" if g.programs > 1 else target
    name = g.fresh("bp")
    g.add(f"{name} = {_block_pointer(g, place, t)}")
    g.add(f"tl.store({name}, {value.name}{tail})")


def _descriptor(g: Generator, array: str, t: _Tensor, padding: str = "") -> str:
    """The name of a descriptor of a tensor."""
    name = g.fresh("d")
    strides = _numbers(g, t.strides[:-1])[1:-1].rstrip(",")
    given = f"[{strides}{', ' if strides else ''}1]"
    tail = f', padding_option="{padding}"' if padding else ""
    sizes = "[" + _numbers(g, t.sizes)[1:-1].rstrip(",") + "]"
    g.add(f"{name} = tl.make_tensor_descriptor({array}, {sizes}, {given}, {list(t.block)}{tail})")
    return name


def _described(g: Generator) -> tuple[Shape, str, _Tensor]:
    block = list(_small_shape(g, (1, 2, 2, 3)))
    dtype = g.random.choice((*INTS, *FLOATS, "float32", "float16"))
    block[-1] = max(block[-1], 128 // TYPES[dtype][1])
    count = 1
    for n in block:
        count *= n
    if count > MAX_TILE:
        raise Unsuitable
    return tuple(block), dtype, _tensor(g, tuple(block), align=128 // TYPES[dtype][1])


@family(0.8)
def descriptor(g: Generator) -> None:
    """Read a block through a descriptor; write what was read to another one."""
    block, dtype, t = _described(g)
    array = g.array(dtype, choose_fill(g, dtype), t.numel)
    _align(g, array)
    padding = g.random.choice(("", "zero", "nan" if dtype in FLOATS else ""))
    name = _descriptor(g, array, t, padding)
    known = fill_facts(dtype, g.params[array].fill)
    known = {**known, "special": known["special"] or padding == "nan"} if known else known
    load = g.random.choice((f"{name}.load({list(t.first)})", f"tl.load_tensor_descriptor({name}, {list(t.first)})"))
    if g.chance(0.4) and not g.in_loop:
        k, total = g.fresh("k"), g.fresh("w")
        moved = [str(at) for at in t.first]
        dim = g.random.randrange(len(block))
        moved[dim] = f"{k} * {block[dim]} + {t.first[dim]}"
        g.add(f"{total} = {load}")
        body = g.add(f"for {k} in range({g.number(g.random.randint(0, 3))}):").body
        body.append(Statement(f"{total} = tl.maximum({total}, {name}.load([{', '.join(moved)}]))"))
        known = {**known, "special": False} if known else known
        if padding == "nan" or g.params[array].fill == "special":
            raise Unsuitable
        value = Value(total, block, dtype, frozen=True, **known)
        g.scopes[-1].append(value)
    else:
        value = g.define(load, block, dtype, **known)
    if g.chance(0.6):
        _written(g, value, _tensor(g, block, align=128 // TYPES[dtype][1]))


def _align(g: Generator, array: str) -> None:
    if not g.params[array].aligned:
        raise Unsuitable


def _written(g: Generator, value: Value, t: _Tensor) -> None:
    each = t.numel + -t.numel % (128 // TYPES[value.dtype][1])
    kind = g.random.choice(("store", "store", "store", "add", "max"))
    if kind != "store" and (value.dtype not in ("int32", "uint32", "float32") or value.special or value.grain == 0):
        kind = "store"
    if kind != "store" and value.is_float and (value.grain is None or g.in_loop):
        kind = "store"
    if kind == "max" and value.is_float:
        kind = "add"
    fill = "sentinel" if kind == "store" else "ints"
    target = g.array(value.dtype, fill, each * g.programs, prefix="out")
    _align(g, target)
    name = _descriptor(g, f"{target} + {g.program} * {each}", t)
    g.add(f"{name}.{kind if kind == 'store' else f'atomic_{kind}'}({list(t.first)}, {value.name})")


@family(0.5)
def rows_of_descriptor(g: Generator) -> None:
    """Rows by a list of numbers through a descriptor, read, and written where every number occurs once."""
    dtype = g.random.choice(("int32", "float32", "float16", "int16"))
    rows, columns = g.random.choice((8, 16)), g.random.choice((16, 32))
    height, width = g.random.choice((4, 16, 20)), columns * 2
    array = g.array(dtype, "ints", height * width)
    _align(g, array)
    whole = _Tensor((height, width), (width, 1), height * width, (0, 0), (1, columns))
    name, ids = _descriptor(g, array, whole), g.array("int32", "ints", rows)
    number = g.fresh("row")
    g.add(f"{number} = tl.load({ids} + tl.arange(0, {rows})) & 15")
    value = g.define(
        f"{name}.gather({number}, {g.random.choice((0, 8, columns))})",
        (rows, columns),
        dtype,
        **fill_facts(dtype, "ints"),
    )
    if g.chance(0.5):
        each = rows * columns
        target = g.array(dtype, "sentinel", each * g.programs, prefix="out")
        _align(g, target)
        made = _Tensor((rows, columns), (columns, 1), each, (0, 0), (1, columns))
        out = _descriptor(g, f"{target} + {g.program} * {each}", made)
        g.add(f"{out}.scatter({value.name}, {rows - 1} - tl.arange(0, {rows}), {g.random.choice((0, 8))})")
