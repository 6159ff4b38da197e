"""Random elementwise statements: operators, comparisons, selections, mathematical functions, casts, constants."""

from __future__ import annotations

from tests.fuzz.generator import Generator, constant, family, shape_text
from tests.fuzz.memory import load_new
from tests.fuzz.values import FLOATS, INTS, TYPES, WIDE_FLOATS, Unsuitable, Value, facts


def broadcasts(a: Value, b: Value) -> tuple[int, ...]:
    """Shape of both together.

    Raises:
        Unsuitable: they do not broadcast.
    """
    if not a.shape or not b.shape:
        return a.shape or b.shape
    if len(a.shape) != len(b.shape):
        raise Unsuitable
    out = []
    for m, n in zip(a.shape, b.shape, strict=True):
        if m != n and 1 not in (m, n):
            raise Unsuitable
        out.append(max(m, n))
    count = 1
    for extent in out:
        count *= extent
    if count > 16384:
        raise Unsuitable
    return tuple(out)


def partner(g: Generator, a: Value) -> Value:
    """A second operand of the type of `a` that broadcasts with it: found, or loaded."""

    def fits(v: Value) -> bool:
        if v.dtype != a.dtype:
            return False
        try:
            return bool(broadcasts(a, v)) or True
        except Unsuitable:
            return False

    if g.chance(0.75):
        return g.find(fits)
    return load_new(g, a.shape or None, a.dtype)


@family(3)
def integer_operator(g: Generator) -> None:
    a = g.find(lambda v: v.is_int)
    operation = g.random.choice("+ - * & | ^ + - * // % << >>".split())
    if g.chance(0.3):
        low = 0 if a.kind == "uint" or operation in ("<<", ">>") else -3
        number = g.random.randint(low, 7)
        if operation in ("<<", ">>"):
            number %= a.bits
        if operation in ("//", "%") and number == 0:
            number = 3
        text = f"{a.name} {operation} {number}"
        if g.chance(0.2) and operation not in ("<<", ">>", "//", "%"):
            text = f"{number} {operation} {a.name}"
        g.define(text, a.shape, a.dtype)
        return
    b = partner(g, a)
    g.define(f"{a.name} {operation} {b.name}", broadcasts(a, b), a.dtype)


@family(1)
def mixed_integers(g: Generator) -> None:
    """Operands of different integer types, converted as in C."""
    a = g.find(lambda v: v.is_int)
    b = g.find(lambda v: v.is_int and v.dtype != a.dtype)
    if a.kind == b.kind:
        dtype = a.dtype if a.bits > b.bits else b.dtype
    else:
        unsigned, signed = (a, b) if a.kind == "uint" else (b, a)
        dtype = unsigned.dtype if unsigned.bits >= signed.bits else signed.dtype
    g.define(f"{a.name} {g.random.choice('+-*&|^')} {b.name}", broadcasts(a, b), dtype)


@family(1)
def integer_unary(g: Generator) -> None:
    a = g.find(lambda v: v.is_int)
    choices = ["~{0}", "tl.abs({0})", "-{0}"] if a.kind == "int" else ["~{0}", "{0} ^ 1"]
    g.define(g.random.choice(choices).format(a.name), a.shape, a.dtype)


@family(0.6)
def high_product(g: Generator) -> None:
    a = g.find(lambda v: v.is_int and v.bits >= 32)
    b = partner(g, a)
    g.define(f"tl.umulhi({a.name}, {b.name})", broadcasts(a, b), a.dtype)


@family(3)
def float_operator(g: Generator) -> None:
    a = g.find(lambda v: v.is_float)
    b = partner(g, a)
    operation = g.random.choice("+-*+-*/")
    if operation == "/":
        divide(g, a, b)
        return
    special = a.special or b.special
    if operation == "*":
        grain = a.grain * b.grain if a.grain and b.grain else None
        err = a.mag * b.err + b.mag * a.err + a.err * b.err
        known = facts(a.dtype, a.mag * b.mag, grain, err, special=special)
        known["product"] = g.fused and known["grain"] is None
    else:
        grain = min(a.grain, b.grain) if a.grain and b.grain else None
        inexact = g.fused and (a.product or b.product)
        known = facts(a.dtype, a.mag + b.mag, grain, a.err + b.err, special=special, inexact=inexact)
    g.define(f"{a.name} {operation} {b.name}", broadcasts(a, b), a.dtype, **known)


def divide(g: Generator, a: Value, b: Value) -> None:
    """Division by something that is at least 1, or by integers of which some may be 0."""
    target = a.dtype if a.dtype in WIDE_FLOATS else "float32"
    special = a.special or b.special
    if b.exact and b.grain and g.chance(0.3):
        if a.err > 0:
            raise Unsuitable
        known = facts(target, a.mag / b.grain, None, 0.0, special=True, inexact=True)
        g.define(f"{a.name} / {b.name}", broadcasts(a, b), target, **known)
        return
    err = a.err + a.mag * b.err
    known = facts(target, a.mag, None, err, special=special, inexact=True)
    g.define(f"{a.name} / (tl.abs({b.name}) + 1)", broadcasts(a, b), target, **known)


@family(1.5)
def float_with_number(g: Generator) -> None:
    a = g.find(lambda v: v.is_float)
    number = g.random.choice((0.5, 2.0, -1.0, 1.0, 0.25, 3))
    operation = g.random.choice("+-*")
    if operation == "*":
        grain = a.grain * 0.25 if a.grain else None
        known = facts(a.dtype, a.mag * 3, grain, a.err * 3, special=a.special)
        known["product"] = g.fused and known["grain"] is None
    else:
        grain = min(a.grain, 0.25) if a.grain else None
        inexact = g.fused and a.product
        known = facts(a.dtype, a.mag + 3, grain, a.err, special=a.special, inexact=inexact)
    text = f"{a.name} {operation} {number}" if g.chance(0.7) else f"{number} {operation} {a.name}"
    g.define(text, a.shape, a.dtype, **known)


@family(1)
def float_unary(g: Generator) -> None:
    a = g.find(lambda v: v.is_float)
    text = g.random.choice(("-{0}", "tl.abs({0})"))
    g.define(text.format(a.name), a.shape, a.dtype, **same(a))


def same(a: Value) -> dict[str, object]:
    """What is known of elements that are those of `a` up to sign and place."""
    if not a.is_float:
        return {}
    return {"mag": a.mag, "grain": a.grain, "err": a.err, "special": a.special, "product": a.product}


def joined(*values: Value) -> dict[str, object]:
    """What is known of elements each of which is from one of `values`."""
    if not values[0].is_float:
        return {}
    grains = [v.grain for v in values]
    return {
        "mag": max(v.mag for v in values),
        "grain": min(filter(None, grains)) if all(grains) else None,
        "err": max(v.err for v in values),
        "special": any(v.special for v in values),
        "product": any(v.product for v in values),
    }


@family(1.5)
def extremum(g: Generator) -> None:
    a = g.find(lambda v: v.dtype != "int1")
    b = partner(g, a)
    shape = broadcasts(a, b)
    rule = ""
    if a.is_float and g.chance(0.3):
        rule = ", propagate_nan=tl.PropagateNan.ALL"
    if g.chance(0.2) and a.is_float and not b.special:
        text = f"tl.clamp({a.name}, -2.0, 5.0{rule})"
        known = facts(a.dtype, max(a.mag, 5.0), a.grain if a.grain and a.grain <= 1 else None, a.err, special=a.special)
        g.define(text, a.shape, a.dtype, **known)
        return
    name = g.random.choice(("minimum", "maximum"))
    g.define(f"tl.{name}({a.name}, {b.name}{rule})", shape, a.dtype, **joined(a, b))


@family(2)
def compare(g: Generator) -> None:
    a = g.find(lambda v: v.dtype != "int1" and v.exact)
    sign = g.random.choice(("<", "<=", ">", ">=", "==", "!="))
    if g.chance(0.4):
        g.define(f"{a.name} {sign} {g.random.randint(0, 5)}", a.shape, "int1")
        return
    b = partner(g, a)
    if not b.exact:
        raise Unsuitable
    g.define(f"{a.name} {sign} {b.name}", broadcasts(a, b), "int1")


@family(1)
def logic(g: Generator) -> None:
    a = g.find(lambda v: v.dtype == "int1")
    if g.chance(0.25):
        g.define(g.random.choice(("~{0}", "{0} == 0")).format(a.name), a.shape, "int1")
        return
    b = g.find(lambda v: v.dtype == "int1")
    g.define(f"{a.name} {g.random.choice('&|^')} {b.name}", broadcasts(a, b), "int1")


@family(2)
def select(g: Generator) -> None:
    flag = g.find(lambda v: v.dtype == "int1")
    a = g.find(lambda v: True)
    b = partner(g, a)
    broadcasts(a, b)
    shape = broadcasts(flag, Value("", broadcasts(a, b), a.dtype))
    g.define(f"tl.where({flag.name}, {a.name}, {b.name})", shape, a.dtype, **joined(a, b))


@family(1)
def fused_multiply_add(g: Generator) -> None:
    a = g.find(lambda v: v.is_float)
    b, c = partner(g, a), partner(g, a)
    shape = broadcasts(Value("", broadcasts(a, b), a.dtype), c)
    grain = min(a.grain * b.grain, c.grain) if a.grain and b.grain and c.grain else None
    err = a.mag * b.err + b.mag * a.err + a.err * b.err + c.err
    special = a.special or b.special or c.special
    known = facts(a.dtype, a.mag * b.mag + c.mag, grain, err, special=special, inexact=c.product)
    g.define(f"tl.fma({a.name}, {b.name}, {c.name})", shape, a.dtype, **known)


# --- mathematical functions -----------------------------------------------------------------------------------

# expression, bound of the result, bound of the derivative, largest argument
_MATH = (
    ("tl.exp({0})", 2.3e4, 2.3e4, 10.0),
    ("tl.exp(-tl.abs({0}))", 1.0, 1.0, 1e4),
    ("tl.exp2({0})", 1.1e3, 1.1e3, 10.0),
    ("tl.log(tl.abs({0}) + 1)", 80.0, 1.0, 1e30),
    ("tl.log2(tl.abs({0}) + 1)", 120.0, 1.5, 1e30),
    ("tl.sin({0})", 1.0, 1.0, 1e3),
    ("tl.cos({0})", 1.0, 1.0, 1e3),
    ("tl.sqrt(tl.abs({0}) + 1)", 0.0, 1.0, 1e30),
    ("tl.rsqrt(tl.abs({0}) + 1)", 1.0, 1.0, 1e30),
    ("tl.erf({0})", 1.0, 1.2, 1e4),
    ("tl.sigmoid({0})", 1.0, 1.0, 60.0),
)


@family(2.6)
def mathematics(g: Generator) -> None:
    a = g.find(lambda v: v.dtype in WIDE_FLOATS)
    text, bound, slope, largest = g.random.choice(_MATH)
    if a.mag > largest:
        raise Unsuitable
    mag = bound or a.mag + 1
    known = facts(
        a.dtype,
        4 * mag,
        None,
        slope * (a.err + 2 ** (2 - TYPES[a.dtype][2]) * (a.mag + 1)),
        special=a.special,
        inexact=True,
    )
    g.define(text.format(a.name), a.shape, a.dtype, **{**known, "mag": mag})


@family(0.7)
def rounding(g: Generator) -> None:
    a = g.find(lambda v: v.dtype in WIDE_FLOATS and v.exact)
    text = g.random.choice(("tl.floor({0})", "tl.ceil({0})"))
    g.define(text.format(a.name), a.shape, a.dtype, **facts(a.dtype, a.mag + 1, 1.0, 0.0, special=a.special))


@family(0.5)
def negative_root(g: Generator) -> None:
    """Arguments outside of the domain."""
    a = g.find(lambda v: v.dtype in WIDE_FLOATS and v.exact)
    text = g.random.choice(("tl.sqrt({0})", "tl.log({0})", "tl.log2({0})"))
    known = facts(a.dtype, 4 * a.mag + 800, None, 0.0, special=True, inexact=True)
    g.define(text.format(a.name), a.shape, a.dtype, **known)


# --- casts and constants -------------------------------------------------------------------------------------------


@family(3)
def cast(g: Generator) -> None:
    a = g.find(lambda v: True)
    target = g.random.choice(tuple(TYPES))
    if target == a.dtype:
        raise Unsuitable
    text = f"{a.name}.to(tl.{target})"
    if TYPES[target][0] != "float":
        if a.is_float and not a.exact:
            raise Unsuitable
        g.define(text, a.shape, target)
    elif a.is_float:
        g.define(text, a.shape, target, **facts(target, a.mag, a.grain, a.err, special=a.special, inexact=a.product))
    else:
        if target == "float16" and a.bits > 8:
            text = f"({a.name} & 255).to(tl.{target})"
            g.define(text, a.shape, target, **facts(target, 256.0, 1.0, 0.0))
            return
        g.define(text, a.shape, target, **facts(target, 2.0 ** max(a.bits, 1), 1.0, 0.0))


@family(0.8)
def small_float(g: Generator) -> None:
    """Through an 8-bit float and back."""
    a = g.find(lambda v: v.dtype in ("float16", "bfloat16", "float32") and v.exact and v.mag <= 400)
    small = g.random.choice(("float8e5", "float8e4nv"))
    text = f"{a.name}.to(tl.{small}).to(tl.{a.dtype})"
    # 448 and 57344 are the largest: nothing is cut off but infinities, which become the largest finite value.
    mag = 6e4 if a.special else a.mag
    g.define(text, a.shape, a.dtype, **facts(a.dtype, max(mag, a.mag), 2.0**-14, 0.0, special=a.special))


@family(0.8)
def bitcast(g: Generator) -> None:
    a = g.find(lambda v: v.is_int or (v.is_float and v.exact and not v.special))
    if a.is_float:
        g.define(f"{a.name}.to(tl.int{a.bits}, bitcast=True)", a.shape, f"int{a.bits}")
    else:
        other = ("uint" if a.kind == "int" else "int") + str(a.bits)
        g.define(f"{a.name}.to(tl.{other}, bitcast=True)", a.shape, other)


@family(1.2)
def make(g: Generator) -> None:
    kind = g.random.choice(("range", "full", "zeros", "like"))
    if kind == "range":
        extent = g.shape(1)[0]
        start = g.random.choice((0, 0, 3, -5))
        g.define(f"tl.arange({start}, {start + extent})", (extent,), "int32")
    elif kind == "full":
        dtype, shape = g.dtype(), g.shape()
        number = g.random.randint(0, 5) if dtype not in ("int1",) else g.random.randint(0, 1)
        known = facts(dtype, 8.0, 1.0, 0.0) if dtype in FLOATS else {}
        g.define(f"tl.full({shape_text(shape)}, {number}, tl.{dtype})", shape, dtype, **known)
    elif kind == "zeros":
        dtype, shape = g.dtype(), g.shape()
        known = facts(dtype, 1.0, 1.0, 0.0) if dtype in FLOATS else {}
        g.define(f"tl.zeros({shape_text(shape)}, tl.{dtype})", shape, dtype, **known)
    else:
        a = g.tile()
        known = facts(a.dtype, 1.0, 1.0, 0.0) if a.is_float else {}
        g.define(f"tl.zeros_like({a.name})", a.shape, a.dtype, **known)


@family(0.6)
def random_numbers(g: Generator) -> None:
    a = g.tile(lambda v: v.dtype == "int32")
    if g.chance(0.5):
        g.define(f"tl.randint({g.number(g.random.randint(2, 99))}, {a.name})", a.shape, "uint32")
    else:
        text = f"tl.rand({g.number(g.random.randint(2, 99))}, {a.name})"
        g.define(text, a.shape, "float32", mag=1.0, product=g.fused)  # ends in a multiplication


@family(0.7)
def call(g: Generator) -> None:
    """Functions with an early return, and functions that are not inlined."""
    a = g.find(lambda v: v.is_int)
    if g.chance(0.5):
        n = g.find(lambda v: v.dtype == "int32" and not v.shape)
        b = g.find(lambda v: v.dtype == a.dtype and v.shape == a.shape)
        g.define(f"choose_early({n.name}, {a.name}, {b.name})", a.shape, a.dtype)
    else:
        n, m = (g.find(lambda v: v.dtype == "int32" and not v.shape) for _ in range(2))
        g.define(f"scalar_steps({n.name}, {m.name})", (), "int32")


__all__ = ["INTS", "broadcasts", "constant", "joined", "partner", "same"]
