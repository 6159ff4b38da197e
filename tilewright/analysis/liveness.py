"""How long values live: program order, and the end of a use.

What is used inside a loop that it was made before lives as long as the loop, which may come back:

    0 make a     ┐
    1 for {      │ a lives in [0, 3]
    2   use a    │
    3   other    ┘
      }
"""

from __future__ import annotations

from xdsl.ir import Operation

from tilewright.ir.walk import walk


class ProgramOrder:
    """The operations of a function in the order in which they are written.

    Args:
        function: whose operations are numbered.

    Attributes:
        numbers: of all operations.
        last: of each operation the number of the last one inside it.
    """

    def __init__(self, function: Operation) -> None:
        self.numbers = {op: number for number, op in enumerate(walk(function))}
        self.last: dict[Operation, int] = {}
        for op in reversed(self.numbers):
            inner = [self.last[nested] for region in op.regions for block in region.blocks for nested in block.ops]
            self.last[op] = max([self.numbers[op], *inner])

    def end_of_use(self, user: Operation, maker: Operation) -> int:
        """The last number at which it matters that `user` uses what `maker` makes: the end of the loops between."""
        scope, end, parent = maker.parent_block(), self.last[user], user
        while parent.parent_block() is not scope:
            outer = parent.parent_op()
            assert outer is not None, "a value is used outside of the block that made it"
            parent = outer
            end = max(end, self.last[parent])
        return end
