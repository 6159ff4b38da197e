"""User functions of the language and the `Emitter` that they build operations with.

A builtin is written once, against an explicit emitter: the front end passes one that
builds IR, the interpreter one that evaluates each op at once. Users see the signature
without that first parameter.
"""

from __future__ import annotations

import functools
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, overload

import numpy as np
from xdsl.ir import Attribute

from tilewright.base import dtypes
from tilewright.base.builtin import Builtin
from tilewright.base.callable import P
from tilewright.base.dtypes import BlockType, PointerType, Type
from tilewright.base.errors import LanguageTypeError, LanguageValueError
from tilewright.base.options import Options
from tilewright.base.target import Target
from tilewright.ir.op import TileOp
from tilewright.ir.types import to_ir
from tilewright.ops.spec import Call, spec_of
from tilewright.ops.values import Handle, constexpr, tensor, unwrap

BodyFn = Callable[..., Sequence[tensor]]


class Emitter(ABC):
    """Builds (or evaluates) operations; the one way between user functions and the IR.

    Attributes:
        target: what is compiled for.
        options: compile options.
    """

    target: Target
    options: Options

    @property
    def builder(self) -> Emitter:
        """Itself: where functions that others write for the language look for options (`_semantic.builder.options`)."""
        return self

    def op(
        self,
        cls: type[TileOp],
        *operands: Handle | Sequence[Handle] | None,
        attrs: Mapping[str, Any] | None = None,
        result_types: Sequence[Attribute] = (),
        regions: Sequence[Any] = (),
    ) -> tuple[Handle, ...]:
        """Apply operation `cls`; its `infer` gives and checks the result types.

        Args:
            operands: handles in field order; `None` for an optional operand left out, a sequence for a variadic one.
            attrs: attributes as Python values.
            result_types: IR types asked for, where the op cannot infer them.
            regions: bodies made by :meth:`region`.
        """
        flat: list[Attribute | None] = []
        for operand in operands:
            if isinstance(operand, (list, tuple)):
                flat.extend([o.type for o in operand])
            else:
                flat.append(None if operand is None else operand.type)  # type: ignore[union-attr]
        call = Call(attrs or {}, tuple(flat), tuple(result_types))
        results = tuple(spec_of(cls).infer(call))
        return self.apply(cls, operands, Call(call.attrs, call.operand_types, results), regions)

    @abstractmethod
    def apply(
        self,
        cls: type[TileOp],
        operands: Sequence[Handle | Sequence[Handle] | None],
        call: Call,
        regions: Sequence[Any],
    ) -> tuple[Handle, ...]:
        """Build or evaluate an op whose types are known to be right."""

    @abstractmethod
    def constant(self, value: bool | int | float, type: Type) -> tensor:
        """A constant scalar or tile (every element `value`) of a language type."""

    @abstractmethod
    def region(self, arg_types: Sequence[Type], body: BodyFn, terminator: type[TileOp]) -> Any:
        """A body for :meth:`op`: calls `body` on tensors of `arg_types` and ends with `terminator` of its results."""

    @abstractmethod
    def call(self, fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> Any:
        """Call a block function, builtin or lambda with kernel values."""

    def invoke(self, function: Builtin, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A builtin called by its name, by a kernel that runs as Python."""
        return function.fn(self, *args, **kwargs)

    def warn(self, message: str) -> None:
        """Tell the user something about the construct being compiled; by default through `warnings`."""
        warnings.warn(message, stacklevel=2)

    def promise(self, kind: str, value: tensor, numbers: Sequence[int]) -> bool:
        """Keep what a user promises as an operation of its own, for checks; says whether that was done.

        Args:
            kind: name of the function that promises.
            value: what it is about.
            numbers: one for each dim; none of a condition.
        """
        return False

    # -- short forms used by every family -------------------------------------------------------

    def emit(self, cls: type[TileOp], result: Type, *operands: Any, **attrs: Any) -> tensor:
        """Apply `cls` to tensors (or `None`) and wrap its only result as language type `result`."""
        handles = [o.handle if isinstance(o, tensor) else o for o in operands]
        return tensor(self.op(cls, *handles, attrs=attrs, result_types=(to_ir(result),))[0], result)

    def emit_void(self, cls: type[TileOp], *operands: Any, **attrs: Any) -> None:
        """Apply an op without results."""
        self.op(cls, *[o.handle if isinstance(o, tensor) else o for o in operands], attrs=attrs)


if TYPE_CHECKING:

    class OneOperand(Builtin[[Any]]):
        """A function of one tensor, made by a table."""

        def __call__(self, x: Any) -> Any: ...


METHODS: dict[str, Builtin] = {}
BUILTINS: dict[str, Builtin] = {}


@overload
def builtin(fn: Callable[Concatenate[Any, P], Any], *, method: bool = ..., export: bool = ...) -> Builtin[P]: ...
@overload
def builtin(
    fn: None = None, *, method: bool = ..., export: bool = ...
) -> Callable[[Callable[Concatenate[Any, P], Any]], Builtin[P]]: ...
def builtin(fn: Callable[..., Any] | None = None, *, method: bool = False, export: bool = True) -> Any:
    """Make a language function of an implementation ``fn(b, ...)`` whose first parameter is the `Emitter`."""
    if fn is None:
        return functools.partial(builtin, method=method, export=export)
    made = Builtin(fn, method=method)
    if export:
        BUILTINS[made.__name__] = made
    if method:
        METHODS[made.__name__] = made
        setattr(tensor, made.__name__, made)
    return made


# --- conversions every family needs ---------------------------------------------------------------


def literal_dtype(value: bool | int | float) -> dtypes.dtype:
    """Type of a Python number in a kernel: bool, then the first of int32, uint32, int64, uint64, or fp32/fp64."""
    if isinstance(value, bool):
        return dtypes.int1
    if isinstance(value, int):
        for candidate in (dtypes.int32, dtypes.uint32, dtypes.int64, dtypes.uint64):
            if candidate.get_int_min_value() <= value <= candidate.get_int_max_value():
                return candidate
        raise LanguageValueError("Nonrepresentable integer", hint="integers have at most 64 bits: -2**63 to 2**64 - 1")
    finite_out = value == value and abs(value) != float("inf") and value != 0.0
    if finite_out and not 2.0**-126 <= abs(value) <= 3.4028234663852886e38:
        return dtypes.float64
    return dtypes.float32


def to_tensor(b: Emitter, value: Any) -> tensor:
    """A kernel value as a tensor; Python numbers become constants of their literal type."""
    value = unwrap(value)
    if isinstance(value, tensor):
        return value
    if isinstance(value, (bool, int, float)):
        return b.constant(value, literal_dtype(value))
    hint = "ask for it first: if x is not None" if value is None else None
    raise LanguageTypeError(f"cannot convert {value} of type {type(value)} to tensor", hint=hint)


def python_number(value: Any) -> Any:
    """A number of numpy as the number of Python that it is in a kernel; anything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


def is_number(value: Any) -> bool:
    """Whether `value` is a Python number, bare or as constexpr."""
    return isinstance(unwrap(value), (bool, int, float))


__all__ = [
    "BUILTINS", "METHODS", "BlockType", "Builtin", "Emitter", "PointerType", "builtin", "constexpr", "is_number",
    "literal_dtype", "python_number", "tensor", "to_tensor", "unwrap",
]  # fmt: skip
