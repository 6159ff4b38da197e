"""What the front end is told of the parameters of a kernel, from what it is specialised on."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from tilewright.base.dtypes import scalar_from_signature
from tilewright.compile.lazy_compiler import entry
from tilewright.compile.specialize import ALIGNMENT, CONSTEXPR, DIVISIBLE, Specialization
from tilewright.ops.tensor_descriptor import tensor_descriptor
from tilewright.ops.values import constexpr


def parameter_specs(specialization: Specialization) -> list[entry.ParamSpec]:
    """What the front end is told of each parameter."""
    rows = zip(specialization.names, specialization.types, specialization.keys, strict=True)
    marks = itertools.count()
    return [entry.ParamSpec(name, _language_value(kind, key), _promises(kind, key, marks)) for name, kind, key in rows]


def _language_value(kind: Any, key: Any) -> Any:
    """A language type, a constexpr, or a tuple of these with the class of the argument."""
    if isinstance(kind, tuple):
        values = [_language_value(k, v) for k, v in zip(kind, key, strict=True)]
        return getattr(kind, "_make", tuple)(values)
    return constexpr(key) if kind == CONSTEXPR else scalar_from_signature(kind)


def _promises(kind: Any, key: Any, marks: Iterator[int]) -> Any:
    """Facts about a run-time argument; for a tuple one mapping per run-time value in it.

    Args:
        kind, key: of the argument.
        marks: for descriptors of which a copy engine can be told: all parts of one have the same.
    """
    if not isinstance(kind, tuple):
        return {"divisibility": ALIGNMENT} if kind != CONSTEXPR and key == DIVISIBLE else {}
    out: list[dict[str, int]] = []
    for inner_kind, inner_key in zip(kind, key, strict=True):
        found = _promises(inner_kind, inner_key, marks)
        if isinstance(inner_kind, tuple):
            out.extend(found)
        elif inner_kind != CONSTEXPR:
            out.append(found)
    if isinstance(kind, tensor_descriptor) and key[0] == DIVISIBLE:
        mark = next(marks)
        return [{**facts, "host_descriptor": mark} for facts in out]
    return out
