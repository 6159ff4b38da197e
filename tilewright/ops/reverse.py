"""`Reverse`: one application of an operation as its gradient rule sees it, and the arithmetic that rules are made of.

A rule is written once, against an emitter, as functions of the language are: `gradients/` passes one that builds tile
IR, tests one that evaluates at once. `ops/vjps.py` has the rules; the records of the operations name them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.ir import Attribute

from tilewright.base.dtypes import BlockType, Type
from tilewright.base.errors import LanguageValueError
from tilewright.ir.types import bit_width, dtype_of, element_type, i32, shape_of, tile_type, with_element
from tilewright.ops.builtin import Emitter
from tilewright.ops.spec import REGISTRY, Call
from tilewright.ops.values import tensor

Value = Any
"""A handle of the emitter: it has an IR type."""


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Operations on values.

    Args:
        b: where they are put.
    """

    b: Emitter

    def apply(
        self, name: str, *operands: Any, attrs: Mapping[str, Any] | None = None, types: Sequence[Attribute] = ()
    ) -> Value:
        """The first result of the operation `name`.

        Args:
            name: "arith.addf", ...
            operands: its operands.
            attrs: its attributes.
            types: of the results, where they do not follow from the operands.
        """
        return self.apply_all(name, *operands, attrs=attrs, types=types)[0]

    def apply_all(
        self, name: str, *operands: Any, attrs: Mapping[str, Any] | None = None, types: Sequence[Attribute] = ()
    ) -> tuple[Value, ...]:
        """All results of the operation `name`."""
        return self.b.op(REGISTRY[name].op, *operands, attrs=attrs, result_types=types)

    def number(self, value: float, like: Value) -> Value:
        """A constant of the type of `like`."""
        return self.b.constant(value, language_type(like.type)).handle

    def add(self, x: Value, y: Value) -> Value:
        """``x + y``."""
        return self.apply("arith.addf", x, y)

    def sub(self, x: Value, y: Value) -> Value:
        """``x - y``."""
        return self.apply("arith.subf", x, y)

    def mul(self, x: Value, y: Value | float) -> Value:
        """``x * y``; `y` may be a number."""
        return self.apply("arith.mulf", x, self.number(y, x) if isinstance(y, float) else y)

    def div(self, x: Value, y: Value) -> Value:
        """``x / y``."""
        return self.apply("arith.divf", x, y)

    def scaled(self, grad: Value, by: Value | float) -> Value:
        """``grad * by``, and 0 where `grad` is 0 whatever `by` is.

        Lanes that a mask leaves out have a gradient of 0 and may hold anything; a sum over all lanes meets them.
        """
        return self._unless_zero(grad, self.mul(grad, by)) if not isinstance(by, float) else self.mul(grad, by)

    def divided(self, grad: Value, by: Value) -> Value:
        """``grad / by``, and 0 where `grad` is 0 whatever `by` is."""
        return self._unless_zero(grad, self.div(grad, by))

    def _unless_zero(self, grad: Value, value: Value) -> Value:
        zero = self.number(0.0, grad)
        return self.where(self.compare("oeq", grad, zero), zero, value)

    def neg(self, x: Value) -> Value:
        """``-x``."""
        return self.apply("arith.negf", x)

    def math(self, name: str, *x: Value) -> Value:
        """A function of mathematics."""
        return self.apply(f"math.{name}", *x)

    def compare(self, predicate: str, x: Value, y: Value) -> Value:
        """A comparison of floats ("ogt") or integers ("eq")."""
        name = "arith.cmpf" if predicate[0] in "ou" and predicate not in ("ult", "ule") else "arith.cmpi"
        return self.apply(name, x, y, attrs={"predicate": predicate})

    def either(self, x: Value, y: Value) -> Value:
        """``x or y``, of conditions."""
        return self.apply("arith.ori", x, y)

    def where(self, condition: Value, x: Value, y: Value | float) -> Value:
        """`x` where `condition` holds, else `y`, which may be a number."""
        return self.apply("arith.select", condition, x, self.number(y, x) if isinstance(y, float) else y)

    def square(self, x: Value) -> Value:
        """``x * x``."""
        return self.mul(x, x)


class Tiles(Arithmetic):
    """Operations on the types and shapes of values, too."""

    __slots__ = ()

    def cast(self, x: Value, element: Attribute) -> Value:
        """Floats `x` as elements of another type of float."""
        source = element_type(x.type)
        if source == element:
            return x
        wanted, small = (with_element(x.type, element),), dtype_of(source).is_fp8() or dtype_of(element).is_fp8()
        have, want = bit_width(source), bit_width(element)
        if small or have == want:
            rounding = "rtne" if want < have or (want == have and not dtype_of(source).is_fp8()) else None
            return self.apply("tt.fp_to_fp", x, attrs={"rounding": rounding}, types=wanted)
        return self.apply("arith.extf" if want > have else "arith.truncf", x, types=wanted)

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        """The same elements in the same order; scalars are taken out of tiles of one element, and put into them."""
        have, shape = shape_of(x.type), tuple(shape)
        if have == shape:
            return x
        if not shape:
            return self.apply("tt.unsplat", x)
        return self.apply("tt.reshape" if have else "tt.splat", x, types=(tile_type(shape, element_type(x.type)),))

    def expand(self, x: Value, axis: int) -> Value:
        """A tile with one more dim, of size 1, at `axis`; a tile of one element where `x` is a scalar."""
        return self.apply("tt.expand_dims", x, attrs={"axis": axis}) if shape_of(x.type) else self.reshape(x, (1,))

    def repeat(self, x: Value, shape: Sequence[int]) -> Value:
        """`x` along its dims of size 1, or a scalar everywhere."""
        have, wanted = shape_of(x.type), (tile_type(tuple(shape), element_type(x.type)),)
        return x if have == tuple(shape) else self.apply("tt.broadcast" if have else "tt.splat", x, types=wanted)

    def along(self, x: Value, axis: int, shape: Sequence[int]) -> Value:
        """What a reduction left, again at every place along `axis` of a tile of `shape`."""
        return self.repeat(self.expand(x, axis), shape)

    def sum(self, x: Value, axis: int) -> Value:
        """The sum along a dim, without it."""
        return self.combine("tt.reduce", x, {"axis": axis})

    def total(self, x: Value) -> Value:
        """The sum of all elements, a scalar."""
        shape = shape_of(x.type)
        count = 1
        for size in shape:
            count *= size
        return self.sum(self.reshape(x, (count,)), 0) if shape else x

    def running_sum(self, x: Value, axis: int, reverse: bool) -> Value:
        """Running sums along a dim, from its end with `reverse`."""
        return self.combine("tt.scan", x, {"axis": axis, "reverse": reverse})

    def combine(self, name: str, x: Value, attrs: Mapping[str, Any]) -> Value:
        """A reduction or scan by addition."""
        element = dtype_of(element_type(x.type))
        plus = REGISTRY["arith.addf" if element.is_floating() else "arith.addi"].op

        def body(left: tensor, right: tensor) -> list[tensor]:
            return [self.b.emit(plus, left.type, left, right)]

        region = self.b.region([element, element], body, REGISTRY[f"{name}.return"].op)
        return self.b.op(REGISTRY[name].op, [x], attrs=attrs, regions=[region])[0]

    def range(self, size: int) -> Value:
        """0, 1, .. below `size`, as i32."""
        return self.apply("tt.make_range", attrs={"start": 0, "end": size}, types=(tile_type((size,), i32),))


@dataclass(frozen=True, slots=True)
class Reverse(Tiles):
    """An application of an operation, and the gradients of its results.

    Args:
        call: attributes and types.
        operands: values of the operands.
        results: values of the results.
        grads: gradient of each result, of the result's type; `None` where nothing depends on it.
        combines: of a reduction or scan whose body is one operation on its two arguments: the name of that operation.
    """

    call: Call
    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    grads: tuple[Value | None, ...]
    combines: str = ""

    @property
    def grad(self) -> Value:
        """The gradient of the only result."""
        return self.grads[0]

    def refuse(self, message: str, hint: str) -> LanguageValueError:
        """The error of a rule that does not hold for these attributes; whoever asked adds the place."""
        return LanguageValueError(message, hint=hint)


def language_type(type_: Attribute) -> Type:
    """The language type of an IR type of numbers; integers are signed."""
    element, shape = dtype_of(element_type(type_)), shape_of(type_)
    return BlockType(element, shape) if shape else element
