"""What an instance holds."""

from __future__ import annotations

from typing import Any


def attributes_of(value: Any) -> dict[str, Any]:
    """The attributes of an instance, in `__dict__` and in slots."""
    slots = [name for base in type(value).__mro__ for name in _slots(base) if hasattr(value, name)]
    own = {name: getattr(value, name) for name in slots}
    return {**getattr(value, "__dict__", {}), **own}


def _slots(cls: type) -> list[str]:
    slots = vars(cls).get("__slots__", ())
    return [name for name in ([slots] if isinstance(slots, str) else slots) if not name.startswith("__")]
