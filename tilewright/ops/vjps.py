"""Gradient rules: the `vjp` slots of the op specs.

A rule gets an application of its operation with the gradients of the results (`ops/reverse.py`) and answers with one
gradient for each operand, of the operand's type; `None` where an operand gets none. It is called only if some result
has a gradient. At a point where a function has no derivative a rule gives what PyTorch gives: half to each of two equal
operands of a maximum, equal shares to all greatest elements of a reduction, 0 for the magnitude of 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tilewright.ir.types import bit_width, dtype_of, element_type, i32, scalar_type, shape_of, tile_type
from tilewright.ops.reverse import Reverse, Value, language_type
from tilewright.ops.spec import NoGradient, Vjp

Grads = Sequence[Value | None]


def constant(r: Reverse) -> Grads:
    """The results are integers, or do not change where they are defined: no operand gets a gradient."""
    return (None,) * len(r.operands)


BITS = NoGradient("it reads the bits of a number", "compute the number itself; `.to(dtype)` converts with a gradient")


# --- element by element -----------------------------------------------------------------------------


def add(r: Reverse) -> Grads:
    """x + y."""
    return r.grad, r.grad


def sub(r: Reverse) -> Grads:
    """x - y."""
    return r.grad, r.neg(r.grad)


def mul(r: Reverse) -> Grads:
    """x * y."""
    x, y = r.operands
    return r.scaled(r.grad, y), r.scaled(r.grad, x)


def div(r: Reverse) -> Grads:
    """x / y."""
    x, y = r.operands
    over = r.divided(r.grad, y)
    return over, r.neg(r.scaled(over, r.div(x, y)))


def remainder(r: Reverse) -> Grads:
    """x - y * trunc(x / y)."""
    x, y = r.operands
    return r.grad, r.neg(r.scaled(r.grad, r.math("trunc", r.div(x, y))))


def neg(r: Reverse) -> Grads:
    """-x."""
    return (r.neg(r.grad),)


def magnitude(r: Reverse) -> Grads:
    """|x|."""
    x = r.operands[0]
    sign = r.math("copysign", r.number(1.0, x), x)
    return (r.scaled(r.grad, r.where(r.compare("oeq", x, r.number(0.0, x)), r.number(0.0, x), sign)),)


def fma(r: Reverse) -> Grads:
    """x * y + z."""
    x, y, _ = r.operands
    return r.scaled(r.grad, y), r.scaled(r.grad, x), r.grad


def extremum(greater: str, *, numbers: bool) -> Vjp:
    """A maximum ("ogt") or minimum ("olt"); with `numbers`, of a number and NaN the number."""

    def vjp(r: Reverse) -> Grads:
        x, y = r.operands
        half = r.where(r.compare("oeq", x, y), r.scaled(r.grad, 0.5), 0.0)

        def share(one: Value, other: Value) -> Value:
            wins = r.compare(greater, one, other)
            wins = r.either(wins, r.compare("uno", other, other)) if numbers else wins
            return r.where(wins, r.grad, half)

        return share(x, y), share(y, x)

    return vjp


def clamp(r: Reverse) -> Grads:
    """min(max(x, low), high); a limit that is reached exactly leaves the gradient to x."""
    x, low, high = r.operands
    below, above = r.compare("olt", x, low), r.compare("ogt", x, high)
    to_high = r.where(above, r.grad, 0.0)
    to_low = r.where(below, r.where(above, r.number(0.0, r.grad), r.grad), 0.0)
    return r.where(r.either(below, above), r.number(0.0, r.grad), r.grad), to_low, to_high


def select(r: Reverse) -> Grads:
    """One of two by a condition."""
    condition = r.operands[0]
    zero = r.number(0.0, r.grad)
    return None, r.where(condition, r.grad, zero), r.where(condition, zero, r.grad)


def convert(r: Reverse) -> Grads:
    """A float as another type of float."""
    return (r.cast(r.grad, element_type(r.operands[0].type)),)


# --- mathematics ------------------------------------------------------------------------------------


def _of_one(derivative: Callable[[Reverse, Value, Value], Value]) -> Vjp:
    """A function of one operand whose gradient is a product; `derivative(r, x, y)` for ``y = f(x)``."""

    def vjp(r: Reverse) -> Grads:
        return (r.scaled(r.grad, derivative(r, r.operands[0], r.results[0])),)

    return vjp


def _over(divisor: Callable[[Reverse, Value, Value], Value]) -> Vjp:
    """A function of one operand whose gradient is a quotient."""

    def vjp(r: Reverse) -> Grads:
        return (r.divided(r.grad, divisor(r, r.operands[0], r.results[0])),)

    return vjp


def _one(r: Reverse, like: Value) -> Value:
    return r.number(1.0, like)


def _negated(rule: Vjp) -> Vjp:
    return lambda r: (r.neg(rule(r)[0]),)


def power(r: Reverse) -> Grads:
    """x to the power y; at y = 0 the gradient of x is 0, and at x = 0 that of y."""
    x, y = r.operands
    zero = r.number(0.0, x)
    slope = r.mul(y, r.math("powf", x, r.sub(y, _one(r, y))))
    of_x = r.scaled(r.grad, r.where(r.compare("oeq", y, zero), zero, slope))
    flat = r.where(r.compare("oeq", x, zero), zero, r.mul(r.results[0], r.math("log", x)))
    return of_x, r.scaled(r.grad, flat)


def atan2(r: Reverse) -> Grads:
    """The angle of (y, x)."""
    y, x = r.operands
    over = r.divided(r.grad, r.add(r.square(x), r.square(y)))
    return r.scaled(over, x), r.neg(r.scaled(over, y))


def copysign(r: Reverse) -> Grads:
    """The magnitude of x with the sign of y, which gets no gradient."""
    x, y = r.operands
    one, zero = _one(r, x), r.number(0.0, x)
    signs = r.mul(r.math("copysign", one, x), r.math("copysign", one, y))
    return r.scaled(r.grad, r.where(r.compare("oeq", x, zero), zero, signs)), None


_sqrt_of_one_less_square = lambda r, x, y: r.math("sqrt", r.sub(_one(r, x), r.square(x)))  # noqa: E731
_one_more_square = lambda r, x, y: r.add(_one(r, x), r.square(x))  # noqa: E731
_asin = _over(_sqrt_of_one_less_square)

sqrt = _over(lambda r, x, y: r.mul(y, 2.0))
FUNCTIONS: dict[str, Vjp] = {
    "exp": _of_one(lambda r, x, y: y),
    "exp2": _of_one(lambda r, x, y: r.mul(y, math.log(2))),
    "expm1": _of_one(lambda r, x, y: r.math("exp", x)),
    "log": _over(lambda r, x, y: x),
    "log2": _over(lambda r, x, y: r.mul(x, math.log(2))),
    "log10": _over(lambda r, x, y: r.mul(x, math.log(10))),
    "log1p": _over(lambda r, x, y: r.add(_one(r, x), x)),
    "sin": _of_one(lambda r, x, y: r.math("cos", x)),
    "cos": _of_one(lambda r, x, y: r.neg(r.math("sin", x))),
    "tan": _of_one(lambda r, x, y: r.add(_one(r, y), r.square(y))),
    "asin": _asin,
    "acos": _negated(_asin),
    "atan": _over(_one_more_square),
    "sinh": _of_one(lambda r, x, y: r.math("cosh", x)),
    "cosh": _of_one(lambda r, x, y: r.math("sinh", x)),
    "tanh": _of_one(lambda r, x, y: r.sub(_one(r, y), r.square(y))),
    "erf": _of_one(lambda r, x, y: r.mul(r.math("exp", r.neg(r.square(x))), 2 / math.sqrt(math.pi))),
    "cbrt": _over(lambda r, x, y: r.mul(r.square(y), 3.0)),
    "sqrt": sqrt,
    "rsqrt": _of_one(lambda r, x, y: r.mul(r.mul(r.square(y), y), -0.5)),
    "floor": constant,
    "ceil": constant,
    "trunc": constant,
    "roundeven": constant,
    "powf": power,
    "atan2": atan2,
    "copysign": copysign,
}
"""By name of the `math` operation."""


# --- shapes -----------------------------------------------------------------------------------------


def splat(r: Reverse) -> Grads:
    """One scalar everywhere: the sum."""
    return (r.total(r.grad),)


def broadcast(r: Reverse) -> Grads:
    """A tile along dims of size 1: the sum along those."""
    grad, have = r.grad, shape_of(r.operands[0].type)
    for axis, (size, wanted) in enumerate(zip(have, shape_of(r.grad.type), strict=True)):
        if size != wanted:
            grad = r.expand(r.sum(grad, axis), axis)
    return (r.reshape(grad, have),)


def reshape(r: Reverse) -> Grads:
    """The same elements in the same order."""
    if r.call.attrs.get("allow_reorder"):
        raise r.refuse(
            "no gradient flows through a reshape that may reorder elements", "leave out can_reorder, or use tl.reshape"
        )
    return (r.reshape(r.grad, shape_of(r.operands[0].type)),)


def expand_dims(r: Reverse) -> Grads:
    """The same elements."""
    return (r.reshape(r.grad, shape_of(r.operands[0].type)),)


def trans(r: Reverse) -> Grads:
    """Dims in another order: back."""
    order = list(r.call.attrs["order"])
    return (r.apply("tt.trans", r.grad, attrs={"order": [order.index(axis) for axis in range(len(order))]}),)


def join(r: Reverse) -> Grads:
    """Two tiles side by side: taken apart."""
    if shape_of(r.operands[0].type):
        return r.apply_all("tt.split", r.grad)
    lane = r.range(2)
    zero = r.b.constant(0, language_type(lane.type)).handle
    first = r.compare("eq", lane, zero)
    nothing = r.number(0.0, r.grad)
    return r.total(r.where(first, r.grad, nothing)), r.total(r.where(first, nothing, r.grad))


def split(r: Reverse) -> Grads:
    """The halves of a last dim: side by side."""
    one, other = (r.number(0.0, y) if g is None else g for g, y in zip(r.grads, r.results, strict=True))
    return (r.apply("tt.join", one, other),)


CAT = NoGradient("the order of the elements is not defined", "use tl.join, tl.permute and tl.reshape")


def unsplat(r: Reverse) -> Grads:
    """The only element."""
    return (r.reshape(r.grad, shape_of(r.operands[0].type)),)


def gather(r: Reverse) -> Grads:
    """Elements by index along a dim: each gets the sum of what was made of it."""
    src, indices = r.operands
    axis, shape, taken = r.call.attrs["axis"], shape_of(src.type), shape_of(indices.type)
    size, wide = shape[axis], (*taken[: axis + 1], shape[axis], *taken[axis + 1 :])
    if bit_width(element_type(indices.type)) < 32:
        indices = r.apply("arith.extsi", indices, types=(tile_type(taken, i32),))
    inside = _clipped(r, indices, size)
    lane: Value = r.range(size)
    if element_type(inside.type) != i32:
        lane = r.apply("arith.extsi", lane, types=(tile_type((size,), element_type(inside.type)),))
    lane = r.reshape(lane, [size if dim == axis + 1 else 1 for dim in range(len(wide))])
    here = r.compare("eq", r.repeat(r.expand(inside, axis + 1), wide), r.repeat(lane, wide))
    spread = r.repeat(r.expand(r.grad, axis + 1), wide)
    return r.sum(r.where(here, spread, 0.0), axis), None


def _clipped(r: Reverse, indices: Value, size: int) -> Value:
    """Indices as a gather takes them: those outside mean the first or last element."""
    low, high = (r.b.constant(n, language_type(indices.type)).handle for n in (0, size - 1))
    return r.apply("arith.minsi", r.apply("arith.maxsi", indices, low), high)


# --- reductions, scans, products --------------------------------------------------------------------

_GREATEST = ("arith.maxnumf", "arith.maximumf", "arith.minnumf", "arith.minimumf")


def reduce(r: Reverse) -> Grads:
    """Sums go to all elements; of greatest and least elements, each of several equal ones gets an equal share."""
    axis = r.call.attrs["axis"]
    if len(r.operands) != 1 or r.combines not in ("arith.addf", *_GREATEST):
        raise r.refuse(
            "no gradient flows through a reduction by a function other than +, max or min",
            "use tl.sum, tl.max or tl.min, without return_indices; or write the sum over logarithms",
        )
    x = r.operands[0]
    shape = shape_of(x.type)
    if r.combines == "arith.addf":
        return (r.along(r.grad, axis, shape),)
    equal = r.compare("oeq", x, r.along(r.results[0], axis, shape))
    count = r.sum(r.where(equal, r.number(1.0, x), 0.0), axis)
    return (r.where(equal, r.along(r.divided(r.grad, count), axis, shape), 0.0),)


def scan(r: Reverse) -> Grads:
    """A running sum: the running sum from the other end."""
    if len(r.operands) != 1 or r.combines != "arith.addf":
        raise r.refuse(
            "no gradient flows through a scan by a function other than +", "use tl.cumsum, or a loop over the elements"
        )
    return (r.running_sum(r.grad, r.call.attrs["axis"], not r.call.attrs["reverse"]),)


def dot(r: Reverse) -> Grads:
    """a @ b + c. Of operands of 16 bits the gradient is rounded to their type first; 8-bit ones are widened."""
    a, b, _ = r.operands
    elements = element_type(a.type), element_type(b.type)
    work = scalar_type("f32") if any(dtype_of(e).is_fp8() for e in elements) else elements[0]
    grad, x, y = r.cast(r.grad, work), r.cast(a, work), r.cast(b, work)
    return (
        r.cast(_product(r, grad, _turned(r, y)), elements[0]),
        r.cast(_product(r, _turned(r, x), grad), elements[1]),
        r.grad,
    )


def _turned(r: Reverse, x: Value) -> Value:
    rank = len(shape_of(x.type))
    return r.apply("tt.trans", x, attrs={"order": [*range(rank - 2), rank - 1, rank - 2]})


def _product(r: Reverse, x: Value, y: Value) -> Value:
    """``x @ y`` with the precision of the product that is differentiated."""
    element = element_type(x.type)
    wide = element if element == scalar_type("f64") else scalar_type("f32")
    shape = (*shape_of(x.type)[:-1], shape_of(y.type)[-1])
    zero = r.b.constant(0.0, language_type(tile_type(shape, wide))).handle
    precision = r.call.attrs.get("inputPrecision") if element == scalar_type("f32") else "ieee"
    return r.apply("tt.dot", x, y, zero, attrs={"inputPrecision": precision, "maxNumImpreciseAcc": 0})
