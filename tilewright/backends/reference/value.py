"""`EagerValue`: an array in place of an SSA value, behind each tensor of a kernel that is interpreted."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from xdsl.ir import Attribute

from tilewright.ops.spec import Array


class LaneDependent(Exception):
    """One Python value was asked of many lanes, which may disagree."""


class EagerValue:
    """An array with its IR type.

    Where the type is a scalar and the array has several elements, these are lanes computed side by side.

    Args:
        type: IR type.
        data: elements in the working form of the type; never written to.
    """

    reads: ClassVar[int] = 0
    """How often Python looked at the data of any value: what it does then may depend on what it saw."""

    __slots__ = ("data", "type")

    def __init__(self, type: Attribute, data: Array) -> None:
        self.type = type
        self.data = data

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
