"""User functions of the language and the `Emitter` that they build operations with.

A builtin is written once, against an explicit emitter: the front end passes one that
builds IR, the interpreter one that evaluates each op at once. Users see the signature
without that first parameter.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

from xdsl.ir import Attribute

from tilewright.base import dtypes
from tilewright.base.dtypes import BlockType, PointerType, Type
from tilewright.base.errors import OutsideKernelError
from tilewright.base.options import Options
from tilewright.base.target import Target
from tilewright.ir.op import TileOp
from tilewright.ir.types import to_ir
from tilewright.ops.spec import Call, spec_of
from tilewright.ops.values import Handle, constexpr, tensor, unwrap

BodyFn = Callable[..., Sequence[tensor]]


class Emitter(ABC):
    """Builds (or evaluates) operations; the one door between user functions and the IR.

    Attributes:
        target: what is compiled for.
        options: compile options.
    """

    target: Target
    options: Options

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

    # -- short forms used by every family -------------------------------------------------------

    def emit(self, cls: type[TileOp], result: Type, *operands: Any, **attrs: Any) -> tensor:
        """Apply `cls` to tensors (or `None`) and wrap its only result as language type `result`."""
        handles = [o.handle if isinstance(o, tensor) else o for o in operands]
        return tensor(self.op(cls, *handles, attrs=attrs, result_types=(to_ir(result),))[0], result)

    def emit_void(self, cls: type[TileOp], *operands: Any, **attrs: Any) -> None:
        """Apply an op without results."""
        self.op(cls, *[o.handle if isinstance(o, tensor) else o for o in operands], attrs=attrs)


class Builtin:
    """A function of the language.

    Args:
        fn: implementation; its first parameter is the emitter.
        method: also available as ``x.name(...)`` on tensors.
    """

    __name__: str

    def __init__(self, fn: Callable[..., Any], *, method: bool = False) -> None:
        self.fn = fn
        self.method = method
        functools.update_wrapper(self, fn)

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        """What users write: without the emitter. Made when asked for, as importing the language is to be quick."""
        signature = inspect.signature(self.fn)
        return signature.replace(parameters=list(signature.parameters.values())[1:])

    @functools.cached_property
    def __signature__(self) -> inspect.Signature:
        """What may be passed: `_semantic` too, by functions of the language that others write and mark as such."""
        parameters = list(self.signature.parameters.values())
        hidden = inspect.Parameter("_semantic", inspect.Parameter.KEYWORD_ONLY, default=None)
        at = len(parameters) - (bool(parameters) and parameters[-1].kind is inspect.Parameter.VAR_KEYWORD)
        return self.signature.replace(parameters=[*parameters[:at], hidden, *parameters[at:]])

    def __call__(self, *args: Any, _semantic: Emitter | None = None, **kwargs: Any) -> Any:
        """Run on the emitter that is given, by default on that of the kernel being interpreted."""
        if _semantic is not None:
            return self.fn(_semantic, *args, **kwargs)
        return active_emitter(self.__name__).invoke(self, args, kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __repr__(self) -> str:
        return f"<tilewright.language.{self.__name__}>"


METHODS: dict[str, Builtin] = {}
BUILTINS: dict[str, Builtin] = {}


@overload
def builtin(fn: Callable[..., Any], *, method: bool = ..., export: bool = ...) -> Builtin: ...
@overload
def builtin(fn: None = None, *, method: bool = ..., export: bool = ...) -> Callable[[Callable[..., Any]], Builtin]: ...
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


_ACTIVE: list[Emitter] = []


def push_emitter(emitter: Emitter) -> None:
    """Make `emitter` answer direct calls of builtins (interpreter mode)."""
    _ACTIVE.append(emitter)


def pop_emitter() -> None:
    """Undo the last :func:`push_emitter`."""
    _ACTIVE.pop()


def active_emitter(name: str) -> Emitter:
    """The emitter of the kernel being interpreted."""
    if not _ACTIVE:
        raise OutsideKernelError(f"tl.{name} can be called only inside a @jit kernel")
    return _ACTIVE[-1]


def active_target() -> Target | None:
    """Target of the kernel being interpreted; None outside of kernels."""
    return _ACTIVE[-1].target if _ACTIVE else None


def is_interpreting() -> bool:
    """Whether a kernel is being run as Python."""
    return bool(_ACTIVE)


# --- conversions every family needs ---------------------------------------------------------------


def literal_dtype(value: bool | int | float) -> dtypes.dtype:
    """Type of a Python number in a kernel: bool, then the first of int32, uint32, int64, uint64, or fp32/fp64."""
    if isinstance(value, bool):
        return dtypes.int1
    if isinstance(value, int):
        for candidate in (dtypes.int32, dtypes.uint32, dtypes.int64, dtypes.uint64):
            if candidate.get_int_min_value() <= value <= candidate.get_int_max_value():
                return candidate
        raise ValueError("Nonrepresentable integer")
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
    raise TypeError(f"cannot convert {value} of type {type(value)} to tensor")


def is_number(value: Any) -> bool:
    """Whether `value` is a Python number, bare or as constexpr."""
    return isinstance(unwrap(value), (bool, int, float))


__all__ = [
    "BUILTINS", "METHODS", "BlockType", "Builtin", "Emitter", "PointerType", "active_emitter", "builtin", "constexpr",
    "is_number", "literal_dtype", "pop_emitter", "push_emitter", "tensor", "to_tensor", "unwrap",
]  # fmt: skip
