"""Arguments that code may change in place and that say what is compiled: descriptors, other records, lists.

A hook that sets `block_shape` of a descriptor changes the caller's object, which all candidates of a search share. What
was passed is kept, and put back ahead of each candidate, so that none runs with what a hook left for another one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from tilewright.frontend.content import is_immutable

_ARRAYS = ("data_ptr", "__array_interface__", "__cuda_array_interface__", "__dlpack__")


def may_change(value: Any) -> bool:
    """Whether code that has this argument may change what is compiled for it; elements of arrays are no part of that.

    Args:
        value: an argument as the user passed it.
    """
    if isinstance(value, tuple):
        return any(map(may_change, value))
    return not (is_immutable(value) or any(hasattr(value, name) for name in _ARRAYS))


class Records:
    """What the records among some arguments held when this was made.

    Args:
        arguments: of a launch, as the user passed them.

    Attributes:
        may_change: whether code that has these arguments may change what is compiled for them.
    """

    def __init__(self, arguments: Iterable[Any]) -> None:
        self._lists: list[tuple[list[Any], list[Any]]] = []
        self._fields: list[tuple[Any, dict[str, Any]]] = []
        self.may_change = False
        self._seen: set[int] = set()
        for value in arguments:
            self.may_change = self.may_change or may_change(value)
            self._keep(value)

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._lists or self._fields)

    def put_back(self) -> None:
        """Have them hold the same again; other objects stay as they are."""
        for items, held in self._lists:
            if items != held:
                items[:] = held
        for record, values in self._fields:
            for name, value in values.items():
                if getattr(record, name) is not value:
                    setattr(record, name, value)

    def _keep(self, value: Any) -> None:
        if isinstance(value, tuple | list):
            if isinstance(value, list) and self._is_new(value):
                self._lists.append((value, list(value)))
            for item in value:
                self._keep(item)
        elif _is_record(value) and self._is_new(value):
            values = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if hasattr(value, f.name)}
            self._fields.append((value, values))
            for item in values.values():
                self._keep(item)

    def _is_new(self, value: Any) -> bool:
        known = id(value) in self._seen
        self._seen.add(id(value))
        return not known


def _is_record(value: Any) -> bool:
    how = getattr(type(value), "__dataclass_params__", None)
    return how is not None and not how.frozen
