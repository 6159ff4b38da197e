"""Records: which classes are some; instances of dataclasses as arguments, taken apart when a kernel is launched.

The runtime knows tuples. A dataclass instance is handed on as a tuple of a class of its own, named after the
dataclass and the text of its methods; the kernel gets the record back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from tilewright.base.naming import home_of
from tilewright.frontend.hashing import class_digest
from tilewright.ops.values import constexpr

_RECORDS: dict[type, tuple[str, ...] | None] = {}


def record_fields(cls: type) -> tuple[str, ...] | None:
    """Names of the fields of a class of records; `None` for other classes, our own among them."""
    if cls not in _RECORDS:
        _RECORDS[cls] = _read_fields(cls)
    return _RECORDS[cls]


def _read_fields(cls: type) -> tuple[str, ...] | None:
    fields: tuple[str, ...] | None = getattr(cls, "_aggregate_fields", None)
    if fields is None and dataclasses.is_dataclass(cls) and not home_of(cls).startswith("tilewright."):
        fields = tuple(field.name for field in dataclasses.fields(cls))
    return fields


class RecordParts(tuple[Any, ...]):
    """The fields of a record. Each class of records has a subclass."""

    __slots__ = ()

    @classmethod
    def _make(cls, parts: Iterable[Any]) -> RecordParts:
        return cls(parts)

    def record(self) -> Any:
        """The record itself."""
        made: Any = object.__new__(self.record_class())
        for name, part in zip(record_fields(self.record_class()) or (), self, strict=True):
            object.__setattr__(made, name, part)
        return made

    @staticmethod
    def record_class() -> type:
        """The class of the record."""
        raise NotImplementedError


_CLASSES: dict[type, type[RecordParts]] = {}


def parts_class(cls: type) -> type[RecordParts]:
    """The class of tuples that stand for instances of a dataclass."""
    made = _CLASSES.get(cls)
    if made is None:
        name = f"{cls.__module__}.{cls.__qualname__}:{class_digest(cls)}"
        made = type(name, (RecordParts,), {"__slots__": (), "record_class": staticmethod(lambda: cls)})
        _CLASSES[cls] = made
    return made


def record_layout(cls: type) -> tuple[tuple[str, bool], ...] | None:
    """Name of each field of a dataclass, and whether it is annotated `tl.constexpr`; `None` for other classes."""
    if record_fields(cls) is None or not dataclasses.is_dataclass(cls):
        return None
    return tuple((f.name, _is_constexpr(f.type)) for f in dataclasses.fields(cls))


def taken_apart(value: Any) -> RecordParts | None:
    """The fields of a dataclass instance, those annotated `tl.constexpr` as constants; `None` for other values."""
    layout = record_layout(type(value))
    if layout is None:
        return None
    return parts_class(type(value))(
        constexpr(getattr(value, name)) if is_constant else getattr(value, name) for name, is_constant in layout
    )


def _is_constexpr(annotation: Any) -> bool:
    return annotation is constexpr or (isinstance(annotation, str) and annotation.split(".")[-1] == "constexpr")
