"""Records that cost little to define.

A named tuple or a data class compiles code when its class is made, half a millisecond each; a process that launches its
first kernel makes many. The fields of a `Record` are kept as they are given.
"""

from __future__ import annotations

from typing import Any, dataclass_transform


@dataclass_transform()
class Record:
    """A class with the fields that it annotates, in order, which may have defaults."""

    def __init__(self, *values: Any, **named: Any) -> None:
        fields = type(self).__annotations__
        given = dict(zip(fields, values, strict=False)) | named
        if len(values) > len(fields) or len(given) < len(values) + len(named) or not given.keys() <= fields.keys():
            raise TypeError(f"{type(self).__name__} has the fields {', '.join(fields)}")
        missing = [name for name in fields if name not in given and not hasattr(type(self), name)]
        if missing:
            raise TypeError(f"{type(self).__name__} needs {', '.join(missing)}")
        self.__dict__.update(given)
