"""`EagerValue`: an array in place of an SSA value, behind each tensor of a kernel that is interpreted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from xdsl.ir import Attribute

from tilewright.ops.spec import Array


class LaneDependent(Exception):
    """One Python value was asked of many lanes, which may disagree."""


@dataclass(frozen=True, slots=True)
class Product:
    """That a value is a product.

    Args:
        factors: what was multiplied.
        made: number of the product among all.
        stretch: the part of the program, without a branch or loop of run time, in which it was made.
    """

    factors: tuple[EagerValue, EagerValue]
    made: int
    stretch: int


class EagerValue:
    """An array with its IR type.

    Where the type is a scalar and the array has several elements, these are lanes computed side by side.

    Args:
        type: IR type.
        data: elements in the working form of the type; never written to.

    Attributes:
        product: what it is a product of, if a sum may take it in (`products.py`).
    """

    reads: ClassVar[int] = 0
    """How often Python looked at the data of any value: what it does then may depend on what it saw."""

    __slots__ = ("data", "product", "type")

    def __init__(self, type: Attribute, data: Array) -> None:
        self.type = type
        self.data = data
        self.product: Product | None = None

    def item(self) -> Any:
        """The only element, as a Python number.

        Raises:
            LaneDependent: there are several.
        """
        if self.data.size != 1:
            raise LaneDependent
        return self.inspect().item()

    def inspect(self) -> Array:
        """The data, for Python code to look at but not to change."""
        EagerValue.reads += 1
        view = np.asarray(self.data).view()
        view.flags.writeable = False
        return view
