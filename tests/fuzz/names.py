"""Random uses of names of the language that no other family spells: library functions, promises, rarer arguments."""

from __future__ import annotations

from tests.fuzz.arithmetic import broadcasts, partner, same
from tests.fuzz.carried import flat
from tests.fuzz.combine import dot_facts
from tests.fuzz.generator import Generator, family, shape_text
from tests.fuzz.memory import choose_fill, fill_facts, flag_tile
from tests.fuzz.values import FLOATS, Unsuitable, Value, facts


@family(1.2)
def other_shapes(g: Generator) -> None:
    a = g.tile()
    dims = len(a.shape)
    choices = [(f"tl.ravel({a.name})", (a.numel,)), (f"tl.unsqueeze({a.name}, {dims})", (*a.shape, 1))]
    choices.append((f"tl.view({a.name}, {shape_text((1, a.numel))})", (1, a.numel)))
    ones = [dim for dim, extent in enumerate(a.shape) if extent == 1]
    if ones and dims > 1:
        dim = g.random.choice(ones)
        choices += [(f"tl.squeeze({a.name}, {dim})", (*a.shape[:dim], *a.shape[dim + 1 :]))] * 4
    text, shape = g.random.choice(choices)
    if len(shape) > 4:
        raise Unsuitable
    g.define(text, shape, a.dtype, **same(a))


@family(0.5)
def broadcast_both(g: Generator) -> None:
    a = g.tile()
    b = g.tile(lambda v: v.name != a.name)
    shape = broadcasts(a, b)
    x, y = (Value(g.fresh(), shape, v.dtype, **same(v)) for v in (a, b))  # type: ignore[arg-type]
    g.add(f"{x.name}, {y.name} = tl.broadcast({a.name}, {b.name})")
    g.scopes[-1] += [x, y]


@family(1.3)
def named_operators(g: Generator) -> None:
    a = g.find(lambda v: v.is_int)
    b = partner(g, a)
    shape = broadcasts(a, b)
    if g.chance(0.5):
        sides = f"({a.name} > {g.random.randint(0, 3)})", f"({b.name} != 0)"
        name = g.random.choice(("logical_and", "logical_or"))
        g.define(f"{sides[0]}.{name}({sides[1]})", shape, "int1")
        return
    name = g.random.choice(("add", "sub", "mul"))
    g.define(f"tl.{name}({a.name}, {b.name}{g.random.choice(('', ', sanitize_overflow=False'))})", shape, a.dtype)


@family(0.8)
def rounded_up(g: Generator) -> None:
    a = g.find(lambda v: v.dtype in ("int32", "int64"))
    if g.chance(0.5):
        g.define(f"tl.cdiv({a.name} & 1023, {g.number(g.random.choice((2, 3, 16, 100)))})", a.shape, a.dtype)
        return
    rows, columns, group = (g.number(g.random.randint(2, 7)) for _ in range(3))
    x, y = g.fresh(), g.fresh()
    place = f"{a.name} & 31"
    g.add(
        f"{x}, {y} = tl.swizzle2d(({place}) // {columns} % {rows}, ({place}) % {columns}, {rows}, {columns}, {group})"
    )
    g.scopes[-1] += [Value(name, a.shape, a.dtype) for name in (x, y)]


@family(0.4)
def mapped(g: Generator) -> None:
    a = g.tile(lambda v: v.dtype in ("int32", "int64") and v.numel <= 64)
    b = g.find(lambda v: v.dtype == a.dtype and v.shape in (a.shape, ()))
    g.define(f"tl.map_elementwise(counted_down, {a.name}, {b.name})", a.shape, a.dtype)


@family(1.0)
def rarer_reductions(g: Generator) -> None:
    a = g.tile(lambda v: v.numel > 1 and (v.is_int or v.dtype == "int1"))
    axis = g.random.randrange(len(a.shape))
    shape = tuple(n for dim, n in enumerate(a.shape) if dim != axis)
    kind = g.random.choice(("or", "sum", "three", "argmax", "all"))
    if kind == "or":
        g.define(f"tl.reduce_or({a.name}, {axis})", shape, a.dtype)
    elif a.dtype == "int1":
        raise Unsuitable
    elif kind == "sum":
        wide = g.random.choice(("int64", a.dtype) if a.kind == "int" else ("uint64", a.dtype))
        g.define(f"tl.sum({a.name}, {axis}, dtype=tl.{wide})", shape, wide)
    elif kind == "three":
        b, c = (g.tile(lambda v: v.is_int and v.shape == a.shape) for _ in range(2))
        names = [Value(g.fresh(), shape, v.dtype) for v in (a, b, c)]
        g.add(f"{', '.join(v.name for v in names)} = tl.reduce(({a.name}, {b.name}, {c.name}), {axis}, three_of_each)")
        g.scopes[-1] += names
    elif kind == "argmax":  # many ties
        g.define(f"tl.{g.random.choice(('argmax', 'argmin'))}({a.name} & 3, {axis})", shape, "int32")
    else:
        flat_name = f"tl.reshape({a.name}, ({a.numel},))"
        g.define(f"tl.{g.random.choice(('argmax', 'argmin'))}({flat_name}, 0)", (), "int32")


@family(0.8)
def rarer_scans(g: Generator) -> None:
    a = g.tile(lambda v: v.is_int)
    axis, tail = g.random.randrange(len(a.shape)), g.random.choice(("", "", ", reverse=True"))
    kind = g.random.choice(("last", "or", "segments", "typed"))
    if kind == "typed":
        wide = ("int64" if a.kind == "int" else "uint64") if g.chance(0.5) else a.dtype
        name = g.random.choice(("cumsum", "cumprod"))
        g.define(f"tl.{name}({a.name}, {axis}, dtype=tl.{wide}{tail})", a.shape, wide)
    elif kind == "segments":
        b = g.tile(lambda v: v.dtype == a.dtype and v.shape == a.shape)
        flag = g.define(f"({b.name} & 3 == 0).to(tl.{a.dtype})" if g.chance(0.5) else f"{b.name} & 1", a.shape, a.dtype)
        x, y = Value(g.fresh(), a.shape, a.dtype), Value(g.fresh(), a.shape, a.dtype)
        g.add(f"{x.name}, {y.name} = tl.associative_scan(({flag.name}, {a.name}), {axis}, by_segments{tail})")
        g.scopes[-1] += [x, y]
    else:
        function = "keep_last" if kind == "last" else "either_bit"
        g.define(f"tl.associative_scan({a.name}, {axis}, {function}{tail})", a.shape, a.dtype)


@family(1.8)
def rounded_floats(g: Generator) -> None:
    """Divisions and roots that are correctly rounded, softmax, casts that round toward zero."""
    a = g.tile(lambda v: v.dtype == "float32" and v.exact and not v.special)
    kind = g.random.choice(("div_rn", "sqrt_rn", "fdiv", "softmax", "rtz"))
    if kind == "div_rn":
        g.define(f"tl.div_rn({a.name}, tl.abs({a.name}) + 3.0)", a.shape, "float32", **facts("float32", 1.0, None, 0.0))
    elif kind == "sqrt_rn":
        g.define(f"tl.sqrt_rn(tl.abs({a.name}))", a.shape, "float32", **facts("float32", a.mag + 1, None, 0.0))
    elif kind == "fdiv":
        known = facts("float32", a.mag, None, 0.0, inexact=True)
        g.define(f"tl.fdiv({a.name}, tl.abs({a.name}) + 1.0)", a.shape, "float32", **known)
    elif kind == "rtz":
        small = g.random.choice(("float16", "bfloat16"))
        if a.mag > 3e4:
            raise Unsuitable
        g.define(
            f'tl.cast({a.name}, tl.{small}, fp_downcast_rounding="rtz")',
            a.shape,
            small,
            **facts(small, a.mag, None, 0.0),
        )
    else:
        if a.mag > 64:
            raise Unsuitable
        axis = g.random.randrange(len(a.shape))
        g.define(
            f"tl.softmax({a.name}, {axis})", a.shape, "float32", **facts("float32", 1.0, None, 1e-5 * (1 + a.mag / 8))
        )


@family(1.2)
def more_random_numbers(g: Generator) -> None:
    a = g.tile(lambda v: v.dtype in ("int32", "uint32"))
    kind = g.random.choice(("randint4x", "rand4x", "philox", "randn"))
    seed = g.number(g.random.randint(2, 99))
    if kind == "randn":
        known = facts("float32", 8.0, None, 1e-4, inexact=True)
        g.define(f"tl.randn({seed}, {a.name})", a.shape, "float32", **known)
        return
    names = [g.fresh() for _ in range(4)]
    if kind == "rand4x":
        g.add(f"{', '.join(names)} = tl.rand4x({seed}, {a.name})")
        g.scopes[-1] += [Value(name, a.shape, "float32", mag=1.0, product=g.fused) for name in names]
        return
    text = f"tl.randint4x({seed}, {a.name})" if kind == "randint4x" else f"tl.philox({seed}, {', '.join([a.name] * 4)})"
    g.add(f"{', '.join(names)} = {text}")
    g.scopes[-1] += [Value(name, a.shape, "uint32") for name in names]


_HINTS = (
    ", volatile=True", ', cache_modifier=".ca"', ', cache_modifier=".cs"', ', cache_modifier=".cv"',
    ', eviction_policy="evict_first"', ', eviction_policy="evict_normal"',
)  # fmt: skip


@family(0.9)
def promises(g: Generator) -> None:
    """Promises that hold, assertions, barriers and hints around a load."""
    shape, dtype = g.shape(1), g.dtype()
    (extent,) = shape
    array = g.array(dtype, choose_fill(g, dtype), extent * g.programs)
    at = g.fresh("o")
    g.add(f"{at} = {g.program} * {extent} + tl.arange(0, {extent})")
    power = extent & -extent
    promised = (
        f"{at} = tl.multiple_of({at}, {power})", f"{at} = tl.max_contiguous({at}, {extent})",
        f"{at} = tl.max_constancy({at}, 1)", f"tl.assume({g.program} >= 0)", "tl.static_assert(True)",
        f"{at} = tl.max_contiguous(tl.multiple_of({at}, {power}), {power})", "tl.debug_barrier()",
        f"tl.device_assert({at} >= 0)", f"tl.assume(tl.num_programs(0) > {g.program})",
    )  # fmt: skip
    for text in g.random.sample(promised[: 8 if len(g.grid) > 1 else 9], g.random.randint(1, 2)):
        g.add(text)
    g.define(
        f"tl.load({array} + {at}{g.random.choice(_HINTS)})", shape, dtype, **fill_facts(dtype, g.params[array].fill)
    )


_WIDER = (
    ("float8e5", "float8e4nv", "float32"), ("float8e4nv", "float8e4nv", "float32"), ("float8e5", "float8e5", "float32"),
    ("int8", "int8", "int32"), ("float16", "float16", "float16"), ("bfloat16", "bfloat16", "float32"),
)  # fmt: skip


@family(0.7)
def rarer_products(g: Generator) -> None:
    """Products of 8-bit floats, of small and of odd sides, into float16."""
    left, right, out = g.random.choice(_WIDER)
    m, n, k = (g.random.choice((1, 2, 4, 8, 16, 32)) for _ in range(3))
    k = min(k, 16) if out == "float16" else k
    x, y = g.fresh("x"), g.fresh("y")
    for name, dtype, shape in ((x, left, (m, k)), (y, right, (k, n))):
        g.add(f"{name} = tl.load({g.array(dtype, 'ints', shape[0] * shape[1])} + {flat(g, shape)})")
    tail = ", out_dtype=tl.float16" if out == "float16" else ""
    tail += g.random.choice(("", ", max_num_imprecise_acc=0")) if left.startswith("float8") else ""
    fake = Value("", (), left if left in FLOATS else "float16", mag=8.0, grain=1.0)
    known = {} if left == "int8" else dot_facts(fake, fake, None, k, out)
    g.define(f"tl.dot({x}, {y}{tail})", (m, n), out, **known)


@family(0.9)
def rarer_atomics(g: Generator) -> None:
    """Exchanges under conditions of whole tiles, sums of floats whose old values are used, masks with results."""
    shape, kind = g.shape(g.random.choice((1, 2))), g.random.choice(("cas", "float", "masked", "wide"))
    numel = 1
    for extent in shape:
        numel *= extent
    place = f"{g.program} * {numel} + {flat(g, shape)}"
    dtype = {
        "cas": g.random.choice(("int32", "int64", "int16", "uint32")),
        "float": g.random.choice(("float32", "float64", "float16")),
    }.get(kind, g.random.choice(("int32", "uint64", "int64")))
    name = g.array(dtype, "ints", numel * g.programs, prefix="at")
    if kind == "float" and g.in_loop:
        raise Unsuitable
    if kind == "cas":
        found, put = (f"tl.full({shape_text(shape)}, {n}, tl.{dtype})" for n in (g.random.randint(0, 3), 7))
        g.define(f"tl.atomic_cas({name} + {place}, {found}, {put})", shape, dtype)
    elif kind == "float":
        operation = g.random.choice(("add", "max", "min", *(["xchg"] if dtype != "float16" else [])))
        known = facts(dtype, 16.0, 1.0, 0.0)
        old = g.define(
            f"tl.atomic_{operation}({name} + {place}, tl.full({shape_text(shape)}, 3, tl.{dtype}))",
            shape,
            dtype,
            **known,
        )
        g.define(f"{old.name} + 1", shape, dtype, **known)
    else:
        mask, operation = flag_tile(g, shape), g.random.choice(("add", "max", "min", "and", "or", "xor", "xchg"))
        old = g.fresh("w")
        g.add(
            f"{old} = tl.atomic_{operation}({name} + {place}, tl.full({shape_text(shape)}, 5, tl.{dtype}), mask={mask})"
        )
        g.define(f"tl.where({mask}, {old}, 0)", shape, dtype)


@family(1.2)
def rarer_orders(g: Generator) -> None:
    a = g.tile(lambda v: v.is_int and len(v.shape) == 1 and v.numel <= 256 and v.numel & (v.numel - 1) == 0)
    kind = g.random.choice(("topk", "histogram", "merge", "ties"))
    if kind == "topk" and a.numel >= 2:
        g.define(
            f"tl.topk({a.name}, {a.numel // 2}, descending={g.random.choice(('True', 'False'))})",
            (a.numel // 2,),
            a.dtype,
        )
    elif kind == "histogram" and a.dtype in ("int32", "int64", "uint32"):
        bins = g.random.choice((2, 8, 128))
        g.define(
            f"tl.histogram({a.name} & {2 * bins - 1}, {bins}, mask=({a.name} & {2 * bins - 1}) < {bins})",
            (bins,),
            "int32",
        )
    elif kind == "merge":
        half = g.define(f"tl.sort({a.name})", a.shape, a.dtype)
        g.define(f"tl.bitonic_merge(tl.cat({half.name}, tl.flip({half.name}), dim=0))", (2 * a.numel,), a.dtype)
    elif kind == "ties":
        g.define(f"tl.sort({a.name} & 3)", a.shape, a.dtype)
    else:
        raise Unsuitable


@family(0.6)
def items(g: Generator) -> None:
    """One element of a tile of one; a scalar in arithmetic with tiles."""
    a = g.tile(lambda v: v.numel > 1 and v.is_int and len(v.shape) == 1)
    g.define(
        f"tl.sum({a.name}, 0, keep_dims=True).item()",
        (),
        "int32" if a.kind == "int" and a.bits < 32 else "uint32" if a.bits < 32 else a.dtype,
    )
