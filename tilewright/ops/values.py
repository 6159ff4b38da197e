"""Values that a kernel's Python code handles: `tensor`, `constexpr`, `tuple`.

A tensor is a language type and a *handle*: an SSA value while IR is being built, an
`EagerValue` while the interpreter runs. The operators of `tensor` are attached by
`ops/builtin.py` from the functions of the families.
"""

from __future__ import annotations

import builtins
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from tilewright.base.dtypes import BlockType, Type, dtype
from tilewright.base.errors import LanguageTypeError
from tilewright.base.lazy import lazy_module

if TYPE_CHECKING:
    import numpy as np
    from xdsl import ir

    from tilewright.base.builtin import Builtin
else:  # programs hold constants and annotations long before there is IR
    ir = lazy_module("xdsl.ir")


class Handle(Protocol):
    """What stands behind a tensor: an SSA value or an eager array; both know their IR type."""

    @property
    def type(self) -> ir.Attribute: ...


class constexpr:
    """A compile-time constant; as an annotation, marks a parameter that must be one.

    Args:
        value: any Python object; a constexpr is unwrapped.
    """

    __slots__ = ("value",)

    type: Any
    """Type of the value where it has one, else a `constexpr_type`; `value_types.py` puts it here."""

    def __init__(self, value: Any) -> None:
        self.value: Any = value.value if isinstance(value, constexpr) else value

    def __repr__(self) -> str:
        return f"constexpr[{self.value!r}]"

    def __eq__(self, other: object) -> Any:
        return constexpr(self.value == unwrap(other))

    def __ne__(self, other: object) -> Any:
        return constexpr(self.value != unwrap(other))

    def __hash__(self) -> int:
        return hash(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __index__(self) -> int:
        return int(self.value.__index__())

    def __int__(self) -> int:
        return int(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __len__(self) -> int:
        return len(self.value)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.value)

    def __getitem__(self, index: Any) -> Any:
        return constexpr(self.value[unwrap(index)])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.value, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.value(*args, **kwargs)

    def __neg__(self) -> constexpr:
        return constexpr(-self.value)

    if TYPE_CHECKING:  # what `_forward` puts here

        def _binary(self, other: int | float | constexpr, /) -> constexpr: ...

        __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _binary
        __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = (
            _binary
        )
        __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __pow__ = __rpow__ = _binary
        __lt__ = __le__ = __gt__ = __ge__ = _binary

    def __pos__(self) -> constexpr:
        return constexpr(+self.value)

    def __invert__(self) -> constexpr:
        return constexpr(~self.value)


def _forward(name: str) -> None:
    """Binary operators of `constexpr`: Python's own on the values; a tensor operand takes over."""

    def method(self: constexpr, other: Any) -> Any:
        if isinstance(other, tensor):
            return NotImplemented
        result = getattr(self.value, name)(unwrap(other))
        if result is NotImplemented and isinstance(unwrap(other), float):
            result = getattr(float(self.value), name)(unwrap(other))
        return result if result is NotImplemented else constexpr(result)

    setattr(constexpr, name, method)


for _stem in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift"):
    _forward(f"__{_stem}__")
    _forward(f"__r{_stem}__")
for _stem in ("lt", "le", "gt", "ge"):
    _forward(f"__{_stem}__")


Integer: TypeAlias = "int | constexpr | tensor"
Operand: TypeAlias = "int | float | np.generic | constexpr | tensor"  # what may stand beside a tensor
Flag: TypeAlias = bool | constexpr
Size: TypeAlias = int | constexpr  # a size, or the number of a dim
Element: TypeAlias = dtype | constexpr  # the type of elements
Word: TypeAlias = str | constexpr  # of a few that a function knows


class const:
    """As an annotation, marks a pointer parameter that the kernel does not store through."""


class tensor:
    """A run-time value in a kernel: a tile or a scalar.

    Args:
        handle: the value behind it.
        type: language type: a `dtype`, `PointerType`, or `BlockType` of one of them.
    """

    __slots__ = ("handle", "type")
    __array_priority__ = 1e3
    """Operators of numpy's numbers leave it to those of tensors."""

    def __init__(self, handle: Handle, type: Type) -> None:
        self.handle = handle
        self.type: Any = type

    @property
    def dtype(self) -> Any:
        """Element type."""
        return self.type.scalar

    @property
    def shape(self) -> tuple:
        """Shape as a tuple of constexprs; empty for a scalar."""
        return tuple([constexpr(n) for n in self.block_shape])

    @property
    def block_shape(self) -> builtins.tuple[int, ...]:
        """Shape as plain integers; () for a scalar."""
        return self.type.shape if isinstance(self.type, BlockType) else ()

    @property
    def numel(self) -> constexpr:
        return constexpr(self.type.numel if isinstance(self.type, BlockType) else 1)

    # -- looking at the data, which only the interpreter has ------------------------------------------

    def _held(self, what: str) -> Any:
        """The handle, if there is data behind it."""
        if isinstance(self.handle, ir.SSAValue) or self.handle is None:
            raise LanguageTypeError(
                f"a tensor of type {self.type} has no {what} while the kernel is being compiled",
                hint="data can be looked at in interpreter mode only; in a kernel use `if`, tl.where, tl.device_print",
            )
        return self.handle

    def _number(self, what: str) -> Any:
        """The value of a scalar, or of a tile of one element, as a Python number."""
        held = self._held(what)
        if isinstance(self.type, BlockType) and self.type.numel != 1:
            raise LanguageTypeError(
                f"{what.capitalize()} of Tensor with more than one value is ambiguous: it has type {self.type}",
                hint="choose element by element with tl.where, or reduce it to a scalar, e.g. tl.max(x, axis=0) != 0",
            )
        number = held.item()
        unsigned = isinstance(number, int) and number < 0 and self.dtype.is_int_unsigned()
        return number + (1 << self.dtype.primitive_bitwidth) if unsigned else number

    def __bool__(self) -> bool:
        return bool(self._number("boolean value"))

    def __index__(self) -> int:
        return operator.index(self._number("integer value"))

    def __int__(self) -> int:
        return int(self._number("integer value"))

    def __float__(self) -> float:
        return float(self._number("float value"))

    def numpy(self) -> Any:
        """The elements as a read-only numpy array; bfloat16 and 8-bit floats as float32, pointers as addresses.

        Raises:
            LanguageTypeError: the kernel is being compiled.
        """
        data = self._held("data").inspect()
        unsigned = data.dtype.kind == "i" and (self.dtype.is_ptr() or self.dtype.is_int_unsigned())
        return data.view(f"uint{8 * data.dtype.itemsize}") if unsigned else data

    @property
    def data(self) -> Any:
        """As :meth:`numpy`."""
        return self.numpy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        array = self.numpy()
        return array if dtype is None and not copy else array.astype(dtype or array.dtype)

    def __format__(self, spec: str) -> str:
        return format(self._number("value"), spec) if spec else repr(self)

    def __repr__(self) -> str:
        if isinstance(self.handle, ir.SSAValue) or self.handle is None:
            return f"{self.dtype}[{', '.join(str(s) for s in self.shape)}]"
        return f"{self.type} {self.numpy()}"

    __hash__ = None  # type: ignore[assignment]

    if TYPE_CHECKING:  # what `ops/functions` and the library put here, as far as functions of the library use it
        to: Builtin

        def _binary(self, other: Operand, /) -> tensor: ...
        def _unary(self) -> tensor: ...

        __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _binary
        __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = (
            _binary
        )
        __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = _binary
        __lt__ = __le__ = __gt__ = __ge__ = _binary
        __eq__ = __ne__ = _binary  # type: ignore[assignment]
        __neg__ = __pos__ = __invert__ = _unary

        def __getitem__(self, index: Operand | slice | Sequence[Operand | slice | None] | None, /) -> tensor: ...


class tuple(builtins.tuple[Any, ...]):
    """A tuple of kernel values; `+`, `*`, indexing, slicing, unpacking and `len` as in Python."""

    def __new__(cls, values: Iterable[Any] = ()) -> tuple:
        return super().__new__(cls, values)

    def __getitem__(self, index: Any) -> Any:
        index = unwrap(index)
        if isinstance(index, builtins.slice):
            parts = (unwrap(index.start), unwrap(index.stop), unwrap(index.step))
            return tuple(super().__getitem__(builtins.slice(*parts)))
        return super().__getitem__(index)

    def __add__(self, other: Any) -> tuple:
        return tuple([*self, *unwrap(other)])

    def __mul__(self, count: Any) -> tuple:
        return tuple(list(self) * int(unwrap(count)))


def unwrap(value: Any) -> Any:
    """The Python value inside a constexpr; anything else as it is; lists and tuples element by element."""
    if isinstance(value, constexpr):
        return value.value
    if type(value) is tuple or type(value) is builtins.tuple:
        return builtins.tuple(unwrap(v) for v in value)
    if type(value) is list:
        return [unwrap(v) for v in value]
    return value


def shape_ints(shape: Sequence[Any]) -> builtins.tuple[int, ...]:
    """A shape argument (ints or constexprs, maybe nested in one sequence) as plain ints."""
    flat = shape[0] if len(shape) == 1 and isinstance(unwrap(shape[0]), (builtins.tuple, list)) else shape
    return builtins.tuple(unwrap(n) for n in unwrap(flat))


__all__ = ["Handle", "const", "constexpr", "dtype", "shape_ints", "tensor", "tuple", "unwrap"]
