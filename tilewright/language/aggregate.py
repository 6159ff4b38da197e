"""Classes whose instances are kernel values: `aggregate`, `aggregate_replace`, and `must_use_result`.

An aggregate is a record of tensors, constants, tuples and other aggregates. In a kernel it is taken apart where it
crosses a branch, a loop or a call, and put together again behind it; nothing of it is left at run time.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any, TypeVar, dataclass_transform

from tilewright.base.callable import BlockFunction, are_block_functions_run
from tilewright.base.errors import ImmutableError, LanguageTypeError
from tilewright.ops.values import constexpr, tensor
from tilewright.ops.values import tuple as tile_tuple

_C = TypeVar("_C", bound=type)
_FIELDS = "_aggregate_fields"
_FROZEN = "_aggregate_frozen"


def _fields_of(cls: type) -> dict[str, Any]:
    """Names and annotations of the fields, those of base classes first."""
    fields: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if base is not object and base is not cls and not hasattr(base, _FIELDS):
            raise TypeError(f"aggregate {cls.__name__} can inherit from aggregates only, not from {base.__name__}")
        fields |= inspect.get_annotations(base) if base is not object else {}
    return fields


@dataclass_transform()
def aggregate(cls: _C) -> _C:
    """Make a class of records of its annotated fields.

    Fields are annotated `tl.tensor`, `tl.constexpr`, `tl.tuple` or another aggregate. The class gets an `__init__` that
    takes them by position or name, with defaults from the class body, unless it defines one; instances do not change.
    Methods are `tl.constexpr_function`s, or are compiled into the kernel.

    Args:
        cls: the class.

    Example:
        >>> @tl.aggregate
        ... class Interval:
        ...     low: tl.constexpr
        ...     high: tl.constexpr
        >>> Interval(1, high=5).high.value
        5
    """
    fields = _fields_of(cls)
    own = cls.__dict__.get("__init__")
    initialise = _automatic(cls, fields) if own is None else getattr(own, "fn", own)

    @functools.wraps(initialise)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        initialise(self, *args, **kwargs)
        if type(self) is cls:
            missing = [name for name in fields if name not in self.__dict__]
            if missing:
                raise LanguageTypeError(f"__init__ of aggregate {cls.__name__} does not set {', '.join(missing)}")
            object.__setattr__(self, _FROZEN, True)

    def set_field(self: Any, name: str, value: Any) -> None:
        if _FROZEN in self.__dict__:
            raise ImmutableError(
                f"cannot assign to field '{name}' on immutable aggregate {cls.__name__}",
                hint=f"use tl.aggregate_replace(value, {name}=...) to make a changed copy",
            )
        if name not in fields:
            raise LanguageTypeError(f"aggregate {cls.__name__} has no field '{name}'")
        object.__setattr__(self, name, _checked(cls, name, fields[name], value))

    own_functions = {"__init__": init, "__setattr__": set_field, "__getattribute__": _attribute, "__repr__": _repr}
    for name, function in own_functions.items():
        setattr(cls, name, function)
    setattr(cls, _FIELDS, tuple(fields))
    return cls


def _automatic(cls: type, fields: dict[str, Any]) -> Callable[..., None]:
    names = list(fields)

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        given = dict(zip(names, args, strict=False))
        unknown = [name for name in kwargs if name not in fields or name in given]
        if len(args) > len(names) or unknown:
            raise LanguageTypeError(
                f"{cls.__name__}() takes the fields {', '.join(names)}, got {len(args)} positional arguments"
                + (f" and {', '.join(unknown)}" if unknown else "")
            )
        given |= kwargs
        for name in names:
            if name not in given and not hasattr(cls, name):
                raise LanguageTypeError(f"{cls.__name__}() is missing field '{name}'")
            setattr(self, name, given[name] if name in given else getattr(cls, name))

    return __init__


def _checked(cls: type, name: str, annotation: Any, value: Any) -> Any:
    """`value` as field `name` holds it.

    Raises:
        LanguageTypeError: it is not what the annotation says.
    """
    kind = annotation.split(".")[-1] if isinstance(annotation, str) else annotation
    if kind in (constexpr, "constexpr"):
        if isinstance(value, tensor):
            raise LanguageTypeError(f"field '{name}' of aggregate {cls.__name__} is a constexpr, not {value.type}")
        return constexpr(value)
    wanted = {"tensor": tensor, "tuple": tile_tuple}.get(kind, kind) if isinstance(kind, str) else kind
    wanted = tuple if wanted is tile_tuple else wanted
    if isinstance(wanted, type) and not isinstance(value, wanted):
        raise LanguageTypeError(
            f"field '{name}' of aggregate {cls.__name__} must be a {wanted.__name__}, not {type(value).__name__}",
            hint="annotate it tl.constexpr, or pass tl.to_tensor(value)" if wanted is tensor else None,
        )
    return _kernel_tuple(value) if wanted is tuple else value


def _kernel_tuple(value: Any) -> Any:
    """A Python tuple as a tuple of kernel values; one of another class, such as a named tuple, as it is."""
    if type(value) is tuple:
        return tile_tuple([_kernel_tuple(part) for part in value])
    return constexpr(value) if value is None or isinstance(value, (bool, int, float, str)) else value


def _attribute(self: Any, name: str) -> Any:
    """An attribute; a method that is a jit function is bound where an interpreter runs it, as the front end binds it.

    Kernels are no descriptors that would bind themselves: Dynamo traces `__get__` of every attribute that has one.
    """
    found = object.__getattribute__(self, name)
    is_method = isinstance(found, BlockFunction) and name not in object.__getattribute__(self, "__dict__")
    return types.MethodType(found, self) if is_method and are_block_functions_run() else found


def _repr(self: Any) -> str:
    fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in getattr(type(self), _FIELDS))
    return f"{type(self).__name__}({fields})"


def aggregate_replace(obj: Any, /, **changes: Any) -> Any:
    """A copy of an aggregate with some fields changed.

    Args:
        obj: instance of a class made by `aggregate`.
        changes: new values by field.

    Raises:
        LanguageTypeError: not an aggregate, or no such field.
    """
    names = getattr(type(obj), _FIELDS, None)
    if names is None:
        raise LanguageTypeError(f"aggregate_replace takes an aggregate, not {type(obj).__name__}")
    made = object.__new__(type(obj))
    unknown = [name for name in changes if name not in names]
    if unknown:
        raise LanguageTypeError(f"aggregate {type(obj).__name__} has no field '{unknown[0]}'")
    for name in names:
        if name in changes:
            setattr(made, name, changes[name])
        else:
            object.__setattr__(made, name, getattr(obj, name))
    object.__setattr__(made, _FROZEN, True)
    return made


def must_use_result(fn: Any) -> Any:
    """Let the compiler refuse a call of `fn` whose result is not used: ``@must_use_result``, or with a message.

    Args:
        fn: a function, before or behind `jit`; or the message, which gives a decorator.
    """
    if isinstance(fn, (str, constexpr)):
        text = fn.value if isinstance(fn, constexpr) else fn

        def mark(function: Any) -> Any:
            function.must_use_result = text
            return function

        return mark
    fn.must_use_result = True
    return fn


KERNEL_FUNCTIONS = frozenset({aggregate_replace})
"""Python functions that kernels call with values of any kind."""
