"""The walk of states: what may be the case at each operation of structured tile IR, in the order in which it runs.

::

    head = what enters the loop
    repeat: walk the body from head;  head = join(head, what the next iteration begins with)   until nothing changes

`solver.py` finds facts of values; here a state of the whole program passes through the operations.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from xdsl.ir import Block, Operation

from tilewright.ops.control import ForOp, IfOp, WhileOp

_S = TypeVar("_S")
Loop = ForOp | WhileOp


class StateWalk(ABC, Generic[_S]):
    """A walk whose states form a finite lattice, so that loops come to an end."""

    @abstractmethod
    def operation(self, op: Operation, state: _S) -> _S:
        """The state after an operation without control flow of its own."""

    @abstractmethod
    def join(self, first: _S, second: _S) -> _S:
        """What may be the case where two ways meet."""

    def entering(self, loop: Loop, state: _S) -> _S:
        """What the first iteration of a loop begins with."""
        return state

    def next_iteration(self, loop: Loop, state: _S) -> _S:
        """What a further iteration begins with, from the end of an iteration."""
        return state

    def leaving(self, loop: Loop, state: _S) -> _S:
        """What is the case behind a loop."""
        return state

    def block(self, block: Block, state: _S) -> _S:
        """The state after a block that is entered with `state`."""
        for op in block.ops:
            if isinstance(op, ForOp | WhileOp):
                state = self._loop(op, state)
            elif isinstance(op, IfOp):
                first, second = (self.block(r.block, state) if r.blocks else state for r in op.regions)
                state = self.join(first, second)
            else:
                state = self.operation(op, state)
        return state

    def _loop(self, loop: Loop, state: _S) -> _S:
        head = self.entering(loop, state)
        while True:
            if isinstance(loop, ForOp):
                last, end = head, self.block(loop.body.block, head)
            else:
                last = self.block(loop.before.block, head)  # which decides to end
                end = self.block(loop.after.block, last)
            joined = self.join(head, self.next_iteration(loop, end))
            if joined == head:
                return self.leaving(loop, last)
            head = joined
