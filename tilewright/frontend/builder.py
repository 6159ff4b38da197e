"""`IRBuilder`: the emitter that writes tile IR, one operation after another, into a block.

A `Position` is a block that is being filled, with the constants already made in it; constants
of enclosing positions are seen and reused, because those blocks dominate it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.dialects.builtin import UnknownLoc
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from tilewright.base import dtypes
from tilewright.base.dtypes import Type
from tilewright.base.options import Options
from tilewright.base.target import Target
from tilewright.frontend.ordered import combine_in_order, runs_in_order
from tilewright.ir.op import TileOp
from tilewright.ir.types import to_ir
from tilewright.ops.broadcast import SplatOp
from tilewright.ops.builtin import BodyFn, Emitter
from tilewright.ops.constant import ConstantOp
from tilewright.ops.function import PoisonOp
from tilewright.ops.promise import PromiseOp
from tilewright.ops.reduce import ReduceOp
from tilewright.ops.scan import ScanOp
from tilewright.ops.spec import Call
from tilewright.ops.values import Handle, tensor

_UNKNOWN = UnknownLoc()


class Position:
    """The end of a block.

    Args:
        block: what operations are appended to.
        parent: the position of the enclosing block whose constants may be reused; `None` isolates.
    """

    __slots__ = ("block", "constants", "parent")

    def __init__(self, block: Block, parent: Position | None = None) -> None:
        self.block = block
        self.parent = parent
        self.constants: dict[tuple[Any, Any], tensor] = {}  # by type and value

    def find(self, key: tuple[Any, Any]) -> tensor | None:
        """A constant made here or in an enclosing block."""
        position: Position | None = self
        while position is not None:
            found = position.constants.get(key)
            if found is not None:
                return found
            position = position.parent
        return None


@dataclass(slots=True)
class Side:
    """One branch: its first block and the position at which it ends."""

    block: Block
    end: Position


class IRBuilder(Emitter):
    """Builds operations at a position, stamped with a location.

    Args:
        target: what is compiled for.
        options: compile options.

    Attributes:
        position: where the next operation goes; assign it to move.
        location: MLIR location given to each operation.
        caller: how :meth:`call` calls block functions and lambdas; set by the front end.
        on_warning: receives what operations say to the user.
        keeps_promises: what users promise becomes operations, which checks look at, and nothing relies on it.
    """

    def __init__(self, target: Target, options: Options) -> None:
        self.target = target
        self.options = options
        self.position = Position(Block())
        self.location: Attribute = _UNKNOWN
        self.caller: Callable[[Any, Sequence[Any], Mapping[str, Any]], Any] | None = None
        self.on_warning: Callable[[str], None] | None = None
        self.keeps_promises = False

    # -- Emitter ------------------------------------------------------------------------------------

    def apply(
        self,
        cls: type[TileOp],
        operands: Sequence[Handle | Sequence[Handle] | None],
        call: Call,
        regions: Sequence[Any],
    ) -> tuple[Handle, ...]:
        """Append an operation; its results are SSA values. A tile of one constant becomes a constant tile."""
        if cls is SplatOp:
            source = operands[0].owner  # type: ignore[union-attr]
            if isinstance(source, ConstantOp):
                return (self._constant_tile(source, call.result_types[0]),)
        if (cls is ReduceOp or cls is ScanOp) and runs_in_order(regions[0], self.target):
            tiles: Any = operands[0]
            return combine_in_order(self, tiles, call.attrs, regions[0], scan=cls is ScanOp)
        op = cls.build_op(operands, call.result_types, call.attrs, regions)  # type: ignore[arg-type]
        return self.append(op).results

    def constant(self, value: bool | int | float, type: Type) -> tensor:
        """A constant of a language type; one is made per block and value."""
        key = (type, repr(value))
        found = self.position.find(key)
        if found is None:
            op = self.append(ConstantOp.of(value, to_ir(type)))
            found = tensor(op.results[0], type)
            self.position.constants[key] = found
        return found

    def promise(self, kind: str, value: tensor, numbers: Sequence[int]) -> bool:
        """`tt.promise`, where promises are kept."""
        if self.keeps_promises:
            self.emit_void(PromiseOp, value, kind=kind, numbers=list(numbers))
        return self.keeps_promises

    def _constant_tile(self, source: ConstantOp, type_: Attribute) -> SSAValue:
        value = source.properties["value"]
        found = self.position.find((type_, value))
        if found is None:
            op = self.append(ConstantOp.create(result_types=[type_], properties={"value": value}))
            found = tensor(op.results[0], dtypes.void)
            self.position.constants[type_, value] = found
        return found.handle  # type: ignore[return-value]

    def region(self, arg_types: Sequence[Type], body: BodyFn, terminator: type[TileOp]) -> Region:
        """A region of one block filled by `body`; it shares no constants with its surroundings."""
        location, outer = self.location, self.position
        block = Block(arg_types=[to_ir(t) for t in arg_types])
        self.position = Position(block)
        try:
            results = body(*(tensor(arg, t) for arg, t in zip(block.args, arg_types, strict=True)))
            self.location = location
            self.finish(terminator, [r.handle for r in results])
        finally:
            self.position, self.location = outer, location
        return Region(block)

    def call(self, fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> Any:
        """Call a function of the kernel's world: builtin, block function or lambda."""
        assert self.caller is not None, "the front end did not say how functions are called"
        location = self.location
        try:
            return self.caller(fn, args, kwargs or {})
        finally:
            self.location = location

    def warn(self, message: str) -> None:
        if self.on_warning is not None:
            self.on_warning(message)

    # -- for the front end ------------------------------------------------------------------------------

    def append(self, op: Operation) -> Operation:
        """Put a finished operation at the current position, with the current location."""
        op.location = self.location  # type: ignore[assignment]
        self.position.block.add_op(op)
        return op

    def finish(self, terminator: type[TileOp], values: Sequence[SSAValue | Handle]) -> None:
        """End the current block."""
        self.append(terminator.create(operands=list(values)))  # type: ignore[arg-type]

    def enter(self, arg_types: Sequence[Attribute] = (), *, isolated: bool = False) -> Block:
        """Start a detached block inside the current one and move into it; its caller moves back."""
        block = Block(arg_types=arg_types)
        self.position = Position(block, None if isolated else self.position)
        return block

    def poison(self, type: Type) -> tensor:
        """A value that nothing may look at."""
        op = self.append(PoisonOp.create(result_types=[to_ir(type)]))
        return tensor(op.results[0], type)
