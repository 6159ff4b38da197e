"""Random reductions, scans and products of matrices, also with functions of the kernel's own to combine with."""

from __future__ import annotations

from tests.fuzz.arithmetic import joined, same
from tests.fuzz.generator import Generator, family
from tests.fuzz.memory import load_new
from tests.fuzz.values import Shape, Unsuitable, Value, epsilon, facts


def _without(shape: Shape, axis: int | None, keep: bool) -> Shape:
    if axis is None:
        return tuple(1 for _ in shape) if keep else ()
    return tuple(1 if i == axis else n for i, n in enumerate(shape) if keep or i != axis)


def _sum_type(a: Value) -> str:
    if a.dtype == "int1" or (a.kind == "uint" and a.bits < 32):
        return "uint32"
    return "int32" if a.kind == "int" and a.bits < 32 else a.dtype


def _extremum_type(a: Value) -> str:
    if a.bits >= 32:
        return a.dtype
    return "float32" if a.is_float else "int32"


def _sum_facts(a: Value, count: int) -> dict[str, object]:
    if not a.is_float:
        return {}
    if a.grain is not None and a.err == 0 and count * a.mag <= a.grain / epsilon(a.dtype):
        return facts(a.dtype, count * a.mag, a.grain, 0.0, special=a.special)
    err = count * a.err + epsilon(a.dtype) * count * a.mag * min(count, 64)
    return facts(a.dtype, count * a.mag, None, err, special=a.special, inexact=True)


def _axis(g: Generator, a: Value) -> int | None:
    return g.random.choice((None, *range(len(a.shape)), *range(len(a.shape))))


@family(3)
def reduction(g: Generator) -> None:
    a = g.tile(lambda v: v.numel > 1)
    axis, keep = _axis(g, a), g.chance(0.35)
    count = a.numel if axis is None else a.shape[axis]
    shape = _without(a.shape, axis, keep)
    tail = (f", axis={axis}" if axis is not None or g.chance(0.3) else "") + (", keep_dims=True" if keep else "")
    kind = g.random.choice(("sum", "sum", "max", "min", "xor", "custom"))
    if kind == "sum":
        g.define(f"tl.sum({a.name}{tail})", shape, _sum_type(a), **_sum_facts(a, count))
    elif kind in ("max", "min") and a.dtype != "int1":
        if a.special and g.chance(0.5):
            raise Unsuitable
        g.define(
            f"tl.{kind}({a.name}{tail})",
            shape,
            _extremum_type(a),
            **{**same(a), "product": False} if a.is_float else {},
        )
    elif kind == "xor" and a.is_int:
        g.define(f"tl.xor_sum({a.name}{tail})", shape, a.dtype)
    elif kind == "custom":
        name = g.random.choice(("take_larger", "mix_bits" if a.is_int else "take_larger"))
        if not a.exact or a.special or a.dtype == "int1":
            raise Unsuitable
        keep_text = ", keep_dims=True" if keep else ""
        g.define(f"tl.reduce({a.name}, {axis}, {name}{keep_text})", shape, a.dtype, **same(a))
    else:
        raise Unsuitable


@family(1.2)
def with_index(g: Generator) -> None:
    a = g.tile(lambda v: v.numel > 1 and v.exact and not v.special and v.dtype != "int1")
    axis = g.random.randrange(len(a.shape))
    keep = g.chance(0.3)
    shape = _without(a.shape, axis, keep)
    tail = ", keep_dims=True" if keep else ""
    if g.chance(0.5):
        g.define(f"tl.{g.random.choice(('argmax', 'argmin'))}({a.name}, {axis}{tail})", shape, "int32")
        return
    value, index = Value(g.fresh(), shape, a.dtype, **same(a)), Value(g.fresh(), shape, "int32")  # type: ignore[arg-type]
    name = g.random.choice(("max", "min"))
    g.add(f"{value.name}, {index.name} = tl.{name}({a.name}, {axis}, return_indices=True{tail})")
    g.scopes[-1] += [value, index]


@family(0.7)
def pair_reduction(g: Generator) -> None:
    a = g.tile(lambda v: v.is_int)
    b = g.tile(lambda v: v.is_int and v.shape == a.shape)
    axis = g.random.randrange(len(a.shape))
    shape = _without(a.shape, axis, False)
    function = g.random.choice(("both_sums", "smallest_pair"))
    first, second = Value(g.fresh(), shape, a.dtype), Value(g.fresh(), shape, b.dtype)
    g.add(f"{first.name}, {second.name} = tl.reduce(({a.name}, {b.name}), {axis}, {function})")
    g.scopes[-1] += [first, second]


# --- scans ----------------------------------------------------------------------------------------------------


@family(1.2)
def scan(g: Generator) -> None:
    a = g.tile()
    axis = g.random.randrange(len(a.shape))
    reverse = g.random.choice(("", "", ", reverse=True"))
    count = a.shape[axis]
    kind = g.random.choice(("cumsum", "cumsum", "cumprod", "max", "pair"))
    if kind == "cumsum":
        g.define(f"tl.cumsum({a.name}, {axis}{reverse})", a.shape, _sum_type(a), **_sum_facts(a, count))
    elif kind == "cumprod" and a.is_int:
        g.define(f"tl.cumprod({a.name}, {axis}{reverse})", a.shape, _sum_type(a))
    elif kind == "max" and a.exact and not a.special and a.dtype != "int1":
        g.define(f"tl.associative_scan({a.name}, {axis}, take_larger{reverse})", a.shape, a.dtype, **same(a))
    elif kind == "pair" and a.is_int:
        b = g.tile(lambda v: v.dtype == a.dtype and v.shape == a.shape)
        first, second = Value(g.fresh(), a.shape, a.dtype), Value(g.fresh(), a.shape, a.dtype)
        call = f"tl.associative_scan(({a.name}, {b.name}), {axis}, recurrence{reverse})"
        g.add(f"{first.name}, {second.name} = {call}")
        g.scopes[-1] += [first, second]
    else:
        raise Unsuitable


# --- products of matrices -------------------------------------------------------------------------------------


DOTS = (
    ("float32", "float32"),
    ("float16", "float32"),
    ("bfloat16", "float32"),
    ("int8", "int32"),
    ("float64", "float64"),
)


def _operand(g: Generator, shape: Shape, dtype: str) -> Value:
    """A matrix that is there, its transpose, or a new one."""
    how = g.random.choice(("found", "found", "load", "load", "transposed", "cast"))
    if how == "found":
        found = g.attempt(lambda: g.tile(lambda v: v.shape == shape and v.dtype == dtype and not v.special))
        if found is not None:
            return found  # type: ignore[no-any-return]
    fill = g.random.choice(("ints", "quarters", "reals")) if dtype != "int8" else "ints"
    if how == "transposed":
        other = load_new(g, shape[:-2] + (shape[-1], shape[-2]), dtype, fill)
        return g.define(f"tl.trans({other.name})", shape, dtype, **same(other))
    if how == "cast" and dtype != "int8":
        return cast_operand(g, load_new(g, shape, g.random.choice(STORED), "quarters"), dtype)
    return load_new(g, shape, dtype, fill)


STORED = ("float32", "float16", "bfloat16", "float64")
"""Types that hold quarters up to 4, which every type of an operand holds too."""


def cast_operand(g: Generator, value: Value, dtype: str) -> Value:
    """A matrix as the product takes it, perhaps by way of another type or after a change that is exact."""
    text = value.name
    if g.chance(0.3):
        text = g.random.choice((f"(-{text})", f"tl.abs({text})", f"tl.where({text} > 0, {text}, 0.0)"))
    if g.chance(0.3):
        text = f"{text}.to(tl.{g.random.choice(STORED)})"
    return g.define(f"{text}.to(tl.{dtype})", value.shape, dtype, **same(value))


def dot_facts(a: Value, b: Value, c: Value | None, depth: int, dtype: str) -> dict[str, object]:
    """Facts of `a @ b + c` with sums over `depth` products."""
    if not a.is_float:
        return {}
    mag = depth * a.mag * b.mag + (c.mag if c else 0.0)
    grain = a.grain * b.grain if a.grain and b.grain else None
    if c is not None:
        grain = min(grain, c.grain) if grain and c.grain else None
    err = depth * (a.mag * b.err + b.mag * a.err + a.err * b.err) + (c.err if c else 0.0)
    if grain is not None and err == 0 and mag <= grain / epsilon(dtype):
        return facts(dtype, mag, grain, 0.0)
    # A sum of n terms in any order errs by at most n - 1 roundings of the sum of their sizes (Higham 2002, 4.2).
    return facts(dtype, mag, None, err + epsilon(dtype) * max(8, depth / 2) * mag, inexact=True)


@family(1.6)
def dot(g: Generator) -> None:
    dtype, out = g.random.choice(DOTS)
    batch = (g.random.choice((2, 4)),) if g.chance(0.1) else ()
    sizes = (16, 16, 32, 64) if g.chance(0.8) else (1, 2, 4, 8)
    m, n = g.random.choice(sizes), g.random.choice(sizes)
    k = g.random.choice((16, 16, 32, 64))
    a, b = _operand(g, (*batch, m, k), dtype), _operand(g, (*batch, k, n), dtype)
    shape = (*batch, m, n)
    c = None
    if g.chance(0.4):
        c = g.attempt(lambda: g.tile(lambda v: v.shape == shape and v.dtype == out and not v.special))
    text = f"{a.name}, {b.name}" + (f", {c.name}" if c else "")
    precision = ', input_precision="ieee"' if dtype == "float32" and g.chance(0.5) else ""
    known = dot_facts(a, b, c, k, out)
    result = g.define(f"tl.dot({text}{precision})", shape, out, **known)
    if g.chance(0.4):
        epilogue(g, result)


def epilogue(g: Generator, result: Value) -> None:
    """What kernels do to a product: a bias of rows or columns, an activation."""
    if not result.is_float:
        g.define(f"tl.maximum({result.name}, 0)", result.shape, result.dtype)
        return
    g.define(f"tl.maximum({result.name}, 0.0)", result.shape, result.dtype, **joined(result))


@family(1.2)
def matmul_loop(g: Generator) -> None:
    """Panels of two matrices through pointer tiles that advance in a loop, with a ragged end masked off."""
    dtype, out = g.random.choice(DOTS[:4])
    m, n, k = (g.random.choice((16, 32, 64)) for _ in range(3))
    steps = g.random.randint(0, 4)
    rest = g.random.choice((0, 0, 3, k // 2))
    depth = steps * k + rest
    count = steps + (rest > 0)
    fill = g.random.choice(("ints", "quarters", "reals"))
    left = g.array(dtype, fill if dtype != "int8" else "ints", max(1, m * depth))
    columns_first = g.chance(0.3)
    right = g.array(dtype, fill if dtype != "int8" else "ints", max(1, depth * n))
    rows, cols, deep, acc, loop = (g.fresh(x) for x in ("rm", "rn", "rk", "acc", "k"))
    size = g.number(depth)
    g.add(f"{rows} = tl.arange(0, {m})")
    g.add(f"{cols} = tl.arange(0, {n})")
    g.add(f"{deep} = tl.arange(0, {k})")
    ap, bp = g.fresh("ap"), g.fresh("bp")
    g.add(f"{ap} = {left} + {rows}[:, None] * {size} + {deep}[None, :]")
    where = (
        f"{cols}[None, :] * {size} + {deep}[:, None]" if columns_first else f"{deep}[:, None] * {n} + {cols}[None, :]"
    )
    g.add(f"{bp} = {right} + {where}")
    g.add(f"{acc} = tl.zeros(({m}, {n}), tl.{out})")
    statement = g.add(f"for {loop} in range(0, {g.number(count)}):")
    am, bm = "", ""
    if rest:
        am = f", mask={deep}[None, :] < {size} - {loop} * {k}, other=0"
        bm = f", mask={deep}[:, None] < {size} - {loop} * {k}, other=0"
    x, y = g.fresh("x"), g.fresh("y")
    with g.block(statement.body, loop=True):
        g.add(f"{x} = tl.load({ap}{am})")
        g.add(f"{y} = tl.load({bp}{bm})")
        g.add(g.random.choice((f"{acc} += tl.dot({x}, {y})", f"{acc} = tl.dot({x}, {y}, {acc})")))
        g.add(f"{ap} += {k}")
        g.add(f"{bp} += {k if columns_first else k * n}")
    mag, grain = {"ints": (8.0, 1.0), "quarters": (4.0, 0.25), "reals": (4.0, None)}[fill]
    fake = Value("", (), dtype, mag=mag, grain=grain)
    known = dot_facts(fake, fake, None, max(depth, 1), out) if dtype != "int8" else {}
    g.scopes[-1].append(Value(acc, (m, n), out, **known))  # type: ignore[arg-type]
