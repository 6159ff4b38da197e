"""Records as arguments of a kernel: instances of dataclasses, taken apart when it is launched.

The runtime knows tuples. A dataclass instance is handed on as a tuple of a class of its own, named after the
dataclass and the text of its methods; the kernel gets the record back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from tilewright.frontend.hashing import class_digest
from tilewright.frontend.structure import record_fields
from tilewright.ops.values import constexpr


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


def _parts_class(cls: type) -> type[RecordParts]:
    made = _CLASSES.get(cls)
    if made is None:
        name = f"{cls.__module__}.{cls.__qualname__}:{class_digest(cls)}"
        made = type(name, (RecordParts,), {"__slots__": (), "record_class": staticmethod(lambda: cls)})
        _CLASSES[cls] = made
    return made


def taken_apart(value: Any) -> RecordParts | None:
    """The fields of a dataclass instance, those annotated `tl.constexpr` as constants; `None` for other values."""
    cls = type(value)
    if record_fields(cls) is None or not dataclasses.is_dataclass(cls):
        return None
    return _parts_class(cls)(
        constexpr(getattr(value, f.name)) if _is_constexpr(f.type) else getattr(value, f.name)
        for f in dataclasses.fields(cls)
    )


def _is_constexpr(annotation: Any) -> bool:
    return annotation is constexpr or (isinstance(annotation, str) and annotation.split(".")[-1] == "constexpr")
