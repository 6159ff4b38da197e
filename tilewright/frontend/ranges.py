"""`range(...)` of a run-time loop: its bounds as integers of one type, and its step, which may count down.

A step known to be positive makes a plain `scf.for`. A negative constant counts the distance up, from the other end:

    for i in range(hi, lo, -s)    =>    scf.for %up = lo to hi step s { %i = hi - %up + lo }

Of any other step only a run tells the sign. Its loop is marked, and `passes/unit_loops.py` counts its iterations early,
unless it finds the step to be positive: behind the passes all loops count them. Zero makes no iteration, and fails the
launch with the option `debug`.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from xdsl.dialects.builtin import IntegerAttr, UnitAttr
from xdsl.ir import Attribute, Block, SSAValue

from tilewright.base.dtypes import dtype
from tilewright.base.errors import LanguageTypeError
from tilewright.frontend.expressions import wrap
from tilewright.frontend.frame import Frame
from tilewright.frontend.structure import name_leaves, type_text
from tilewright.ir.types import i32
from tilewright.ops.builtin import BUILTINS, to_tensor
from tilewright.ops.control import ANY_STEP
from tilewright.ops.control import range as run_time_range
from tilewright.ops.functions.operators import BINARY, COMPARE
from tilewright.ops.promotion import promote_integers
from tilewright.ops.signs import always_positive, never_negative
from tilewright.ops.values import tensor, unwrap

ZERO_STEP = "the step of a loop must not be zero"


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a counted loop: lower and upper bound and step, of one type.

    Args:
        lower, upper, step: scalar integers.
        reverse: whether it counts down from `upper` to `lower`.
        sign: the step in its own type if only a run tells its sign; `step` is positive otherwise.
        attributes: options.
    """

    lower: tensor
    upper: tensor
    step: tensor
    reverse: bool
    sign: tensor | None
    attributes: dict[str, Attribute]

    @property
    def unsigned(self) -> bool:
        """Whether bounds must be compared as unsigned numbers."""
        signed_too = all(never_negative(_value(bound), proven=True) for bound in (self.lower, self.upper))
        return self.lower.dtype.is_int_unsigned() and not signed_too

    def counter_before(self, frame: Frame, name: str) -> tensor:
        """The counter behind a loop without iterations: what it was, or the first bound where it was nothing."""
        known = frame.scope.values.get(name)
        kind = self.lower.type
        if isinstance(unwrap(known), int) or (isinstance(known, tensor) and known.type == kind):
            before: tensor = BUILTINS["cast"].fn(frame.builder, to_tensor(frame.builder, known), kind)
            return before
        return self.upper if self.reverse else self.lower

    def bind_counter(self, frame: Frame, node: ast.For, block: Block) -> None:
        """Give the variable of the loop its value, at the begin of the body."""
        builder = frame.builder
        value = tensor(block.args[0], self.lower.type)
        if self.reverse:
            up = BINARY[ast.Sub].fn(builder, self.upper, value)
            value = BINARY[ast.Add].fn(builder, up, self.lower)
        assert isinstance(node.target, ast.Name)
        frame.scope.bind(node.target.id, value)
        name_leaves(value, node.target.id)

    def goes_on(self, frame: Frame, counter: tensor) -> tensor:
        """Whether there is an iteration with a value of the counter that the loop has come to."""
        builder = frame.builder
        up: tensor = COMPARE[ast.Lt].fn(builder, counter, self.upper)
        if self.sign is None:
            return up
        down = COMPARE[ast.Gt].fn(builder, counter, self.upper)
        rises, falls = (COMPARE[order].fn(builder, self.sign, 0) for order in (ast.Gt, ast.Lt))
        falls = BUILTINS["logical_and"].fn(builder, falls, down)
        either: tensor = BUILTINS["where"].fn(builder, rises, up, falls)
        return either


def _value(scalar: tensor) -> SSAValue:
    assert isinstance(scalar.handle, SSAValue)
    return scalar.handle


def read_range(frame: Frame, node: ast.AST, loop: run_time_range) -> Limits:
    """The limits of a loop over `range(...)`, as integers of one type, made in front of it.

    Raises:
        CompilationError: they are no integers, or the step is the constant zero.
    """
    values = [loop.start, loop.end, loop.step]
    _check_integers(frame, node, values)
    step = unwrap(loop.step)
    reverse = isinstance(step, int) and step < 0
    if isinstance(step, int) and step == 0:
        raise frame.error(node, ZERO_STEP)
    if reverse:
        values = [loop.end, loop.start, -step]
    frame.at(node)
    builder = frame.builder
    tensors = [to_tensor(builder, v) for v in values]
    counter = tensors[0].dtype
    for other in tensors[1:]:
        counter = promote_integers(counter, other.dtype)
    lower, upper, by = (BUILTINS["cast"].fn(builder, t, counter) for t in tensors)
    attributes = _attributes(loop)
    if always_positive(_value(tensors[2])):
        return Limits(lower, upper, by, reverse, None, attributes)
    BUILTINS["device_assert"].fn(builder, COMPARE[ast.NotEq].fn(builder, tensors[2], 0), ZERO_STEP)
    if not tensors[2].dtype.is_int_unsigned():
        return Limits(lower, upper, by, False, tensors[2], {**attributes, ANY_STEP: UnitAttr()})
    upper = BUILTINS["where"].fn(builder, COMPARE[ast.Eq].fn(builder, by, 0), lower, upper)
    by = BUILTINS["maximum"].fn(builder, by, 1)
    return Limits(lower, upper, by, False, None, attributes)


def _check_integers(frame: Frame, node: ast.AST, values: list[object]) -> None:
    for value in values:
        scalar = value.type if isinstance(value, tensor) else type(unwrap(value))
        ok = (isinstance(scalar, dtype) and scalar.is_int()) or scalar in (int, bool)
        if not ok:
            texts = ", ".join(type_text(wrap(v)) for v in values)
            raise frame.error(
                node,
                f"For loop bounds and step must all be ints, are ({texts})",
                "convert them with .to(tl.int32); a tile must be reduced to a scalar first"
                if any(isinstance(v, tensor) for v in values)
                else "count with constants that are ints: n // 2, not n / 2",
            )


def _attributes(loop: run_time_range) -> dict[str, Attribute]:
    """Options of tl.range as attributes of the loop."""
    attributes: dict[str, Attribute] = {}
    for name in ("num_stages", "loop_unroll_factor"):
        value = unwrap(getattr(loop, name))
        if value is not None:
            if not isinstance(value, int):
                raise LanguageTypeError(f"{name} of tl.range must be a compile-time int, not {value!r}")
            attributes[f"tt.{name}"] = IntegerAttr(value, i32)
    for name in ("disallow_acc_multi_buffer", "flatten", "warp_specialize", "disable_licm"):
        if unwrap(getattr(loop, name)):
            attributes[f"tt.{name}"] = UnitAttr()
    return attributes
