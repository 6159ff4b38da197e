"""Codecs between Python values and the MLIR attributes in which operations keep them.

An op class lists its attributes once (`ATTRS`); building, printing, the reference and
the folder all see plain Python values through these codecs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from xdsl.dialects.builtin import (
    BoolAttr,
    DenseArrayBase,
    IntegerAttr,
    StringAttr,
    UnitAttr,
)
from xdsl.ir import Attribute

from tilewright.ir.types import i1, i32, i64


@dataclass(frozen=True, slots=True)
class Codec:
    """How one attribute is kept.

    Args:
        encode: Python value to attribute; ``None`` means "leave the attribute out".
        decode: attribute, or ``None`` when it is absent, to Python value.
    """

    encode: Callable[[Any], Attribute | None]
    decode: Callable[[Any], Any]


@functools.cache
def _integer(value: int, bits: int) -> IntegerAttr[Any]:
    return IntegerAttr(value, {1: i1, 32: i32, 64: i64}[bits])


def _int_codec(bits: int) -> Codec:
    return Codec(
        lambda v: None if v is None else _integer(int(v), bits), lambda a: None if a is None else int(a.value.data)
    )


I32 = _int_codec(32)
BOOL = Codec(lambda v: BoolAttr.from_bool(bool(v)), lambda a: a is not None and bool(a.value.data))
UNIT = Codec(lambda v: UnitAttr() if v else None, lambda a: a is not None)
STR = Codec(lambda v: None if v is None else StringAttr(v), lambda a: None if a is None else a.data)
I32_ARRAY = Codec(
    lambda v: None if v is None else DenseArrayBase.from_list(i32, [int(x) for x in v]),
    lambda a: None if a is None else tuple(int(x) for x in a.get_values()),
)
