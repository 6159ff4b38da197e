"""Types of kernel values that are not tensors: tuples, compile-time constants, tensor descriptors.

They answer ``x.type`` and ``isinstance`` in kernels; operations never see one, because such values are
taken apart into their tensors.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.base.dtypes import BlockType, Type, dtype, scalar_from_signature
from tilewright.base.errors import LanguageValueError
from tilewright.ops.values import constexpr, tensor, unwrap
from tilewright.ops.values import tuple as tile_tuple


@dataclass(frozen=True)
class tuple_type(Type):
    """Type of a tuple: the types of its parts and, for a named tuple, their names."""

    types: tuple[Any, ...]
    fields: tuple[str, ...] | None = None

    def __init__(self, types: Sequence[Any], fields: Sequence[str] | None = None) -> None:
        object.__setattr__(self, "types", tuple(types))
        object.__setattr__(self, "fields", None if fields is None else tuple(fields))

    @property
    def name(self) -> str:  # type: ignore[override]
        names = self.fields or ("",) * len(self.types)
        return f"[{','.join(f'{n}:{t}' if n else str(t) for n, t in zip(names, self.types, strict=True))}]"

    __str__ = Type.__str__


@dataclass(frozen=True)
class constexpr_type(Type):
    """Type of one compile-time constant."""

    value: Any

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"constexpr_type[{self.value}]"

    def __repr__(self) -> str:
        return self.name

    def mangle(self) -> str:
        """A text for names of functions that are made for this constant."""
        return f"c{self.value.mangle() if hasattr(self.value, 'mangle') else repr(self.value)}"

    __str__ = Type.__str__


constexpr.type = property(lambda constant: getattr(constant.value, "type", None) or constexpr_type(constant.value))


@dataclass(frozen=True)
class tensor_descriptor_type(Type):
    """Type of a tensor descriptor: that of its blocks, and those of its sizes and strides."""

    block_type: BlockType
    shape_type: tuple_type
    strides_type: tuple_type

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"tensor_descriptor<{self.block_type}>"

    __str__ = Type.__str__


class base_value(ABC):  # noqa: B024  (only a name for `isinstance`)
    """Everything that is a value in a kernel."""


for _class in (tensor, constexpr, tile_tuple):
    base_value.register(_class)


def type_of(value: Any) -> Any:
    """Type of a kernel value: of a tensor, of a tuple part by part, of anything else as a constant."""
    if isinstance(value, tensor):
        return value.type
    own = getattr(value, "type", None)
    if isinstance(value, tuple) and isinstance(own, Type):
        return own
    if isinstance(value, tuple):
        return tuple_type([type_of(part) for part in value], getattr(type(value), "_fields", None))
    return constexpr_type(unwrap(value))


def str_to_ty(name: Any, c: Any = None) -> Any:
    """The type that a specialisation signature names.

    Args:
        name: "i32", "fp16", "*fp32", "*kbf16", "constexpr", "tensordesc<fp16[128, 64]>", or a tuple of such.
        c: value of the constant for "constexpr".

    Raises:
        ValueError: unknown type.
    """
    if isinstance(name, tuple):
        constants = c if isinstance(c, tuple) else (c,) * len(name)
        parts = [str_to_ty(part, value) for part, value in zip(name, constants, strict=True)]
        return tuple_type(parts, getattr(type(name), "_fields", None))
    if name == "constexpr":
        return constexpr_type(unwrap(c))
    if name.startswith("tensordesc"):
        element, _, rest = name.removeprefix("tensordesc<").removesuffix(">").partition("[")
        try:
            shape = tuple(int(n) for n in rest.removesuffix("]").split(","))
        except ValueError as error:
            raise LanguageValueError(f"unknown type {name!r} in a signature") from error
        block = BlockType(scalar_from_signature(element), shape)
        sizes = [dtype("int32")] * len(shape), [dtype("int64")] * len(shape)
        return tensor_descriptor_type(block, tuple_type(sizes[0]), tuple_type(sizes[1]))
    return scalar_from_signature(name)
