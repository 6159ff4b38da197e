"""The rewrite of tile IR to laid-out tile IR by a finished plan of layouts.

Operations on scalars stay. One on tiles is made anew, once per layout that the plan wants its results in, or not at
all; conversions and buffers of a value follow its definition. A value that a loop carries becomes one per layout:

    %r = scf.for ... (%p = %init)        %r0, %r1 = scf.for ... (%p0 = %init.0, %p1 = %init.1)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from xdsl.dialects.builtin import DenseIntOrFPElementsAttr
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue

from tilewright.backends.nvidia.plan.dots import DotPlan
from tilewright.backends.nvidia.plan.operands import OPERAND_LAYOUTS
from tilewright.backends.nvidia.tgir.ops import ConvertLayoutOp, LocalAllocOp, WarpGroupDotOp
from tilewright.backends.nvidia.tgir.types import layout_attr, memdesc_type, with_layout
from tilewright.ir.types import element_type, shape_of
from tilewright.ir.values import is_tile
from tilewright.layouts.linear import LinearLayout
from tilewright.ops.control import ConditionOp, ForOp, IfOp, WhileOp
from tilewright.ops.function import FuncOp
from tilewright.passes.rewriting import erase


@dataclass(frozen=True, slots=True)
class Shared:
    """A form of a value: a buffer in shared memory with this layout."""

    layout: LinearLayout


Form = LinearLayout | Shared


@dataclass(slots=True)
class Plan:
    """What the rewrite is to make.

    Args:
        instances: operation -> layout of its results -> the form in which it takes each operand (None for scalars).
            The layout is None where no result is a tile. Operations on tiles that are not here vanish.
        made: tile -> the layouts in which its definition gives it.
        derived: tile -> other forms of it, each with the layout that it is converted from.
        dots: the plan of each dot.
    """

    instances: dict[Operation, dict[LinearLayout | None, tuple[Form | None, ...]]] = field(default_factory=dict)
    made: dict[SSAValue, dict[LinearLayout, None]] = field(default_factory=dict)
    derived: dict[SSAValue, dict[Form, LinearLayout]] = field(default_factory=dict)
    dots: dict[Operation, DotPlan] = field(default_factory=dict)


def rewrite(function: FuncOp, plan: Plan) -> None:
    """Give every tile of a function its layouts, in place."""
    rewriter = _Rewriter(plan)
    for block in function.body.blocks:
        rewriter.block(block)
    rewriter.clean()


class _Rewriter:
    """The tiles made so far, by the tile that they stand for and their form."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.values: dict[tuple[SSAValue, Form], SSAValue] = {}
        self.dead: list[Operation] = []
        self.dead_arguments: list[BlockArgument] = []

    def clean(self) -> None:
        """Erase what has been replaced."""
        for op in reversed(self.dead):
            erase(op)
        for argument in self.dead_arguments:
            argument.block.erase_arg(argument)

    def block(self, block: Block) -> None:
        """Rewrite the operations of a block; its terminator, if it hands tiles over, is its parent's business."""
        ops = list(block.ops)
        self._arguments(block)
        for op in ops:
            if op.regions and type(op) in _CONTROL:
                _CONTROL[type(op)](self, op)
            elif op in self.plan.instances:
                self._instances(op)
            elif any(map(is_tile, op.results)):
                self.dead.append(op)

    # -- plain operations ----------------------------------------------------------------------------

    def _instances(self, op: Operation) -> None:
        for layout, forms in self.plan.instances[op].items():
            made = self._instance(op, layout, forms)
            made.location = op.location
            self._insert(made, op)
            for old, new in zip(op.results, made.results, strict=True):
                new.name_hint = old.name_hint
                if layout is not None and is_tile(old):
                    self.values[old, layout] = new
                else:
                    old.replace_all_uses_with(new)
        for result in op.results:
            self._derive(result, op)
        self.dead.append(op)

    def _instance(self, op: Operation, layout: LinearLayout | None, forms: Sequence[Form | None]) -> Operation:
        operands = [self._form(operand, form) for operand, form in zip(op.operands, forms, strict=True)]
        types = [with_layout(result.type, layout) for result in op.results]
        plan = self.plan.dots.get(op)
        if plan is not None and plan.kind == "wgmma":
            kept = {name: value for name, value in op.properties.items() if name in WarpGroupDotOp.ATTRS}
            read = plan.fragments
            given = {} if read is None else {OPERAND_LAYOUTS[read.index]: layout_attr(read.layout)}
            return WarpGroupDotOp.create(operands=operands, result_types=types, properties=kept, attributes=given)
        return type(op).create(
            operands=operands,
            result_types=types,
            properties=_properties(op, types),
            attributes=op.attributes.copy(),
            regions=[op.detach_region(region) for region in list(op.regions)],
        )

    def _form(self, value: SSAValue, form: Form | None) -> SSAValue:
        return value if form is None else self.values[value, form]

    def _derive(self, value: SSAValue, before: Operation) -> None:
        """Conversions and buffers of a value that has just been defined."""
        for form, source in self.plan.derived.get(value, {}).items():
            tile = self.values[value, source]
            made: Operation
            if isinstance(form, Shared):
                type_ = memdesc_type(shape_of(value.type), element_type(value.type), form.layout)
                made = LocalAllocOp.create(operands=[tile], result_types=[type_])
            else:
                made = ConvertLayoutOp.create(operands=[tile], result_types=[with_layout(value.type, form)])
            made.location = before.location
            made.results[0].name_hint = value.name_hint
            self._insert(made, before)
            self.values[value, form] = made.results[0]

    @staticmethod
    def _insert(made: Operation, before: Operation) -> None:
        block = before.parent_block()
        assert block is not None
        block.insert_op_before(made, before)

    # -- control flow --------------------------------------------------------------------------------

    def _layouts(self, value: SSAValue) -> Iterable[LinearLayout | None]:
        """One entry for each value that stands for `value` where it is carried; (None,) for a scalar."""
        return self.plan.made.get(value, ()) if is_tile(value) else (None,)

    def _carry(self, values: Sequence[SSAValue], like: Sequence[SSAValue]) -> list[SSAValue]:
        """The values to hand over for `values` to slots whose layouts are those of `like`."""
        pairs = zip(values, like, strict=True)
        return [self._form(value, layout) for value, slot in pairs for layout in self._layouts(slot)]

    def _types(self, values: Sequence[SSAValue]) -> list[Attribute]:
        return [with_layout(value.type, layout) for value in values for layout in self._layouts(value)]

    def _arguments(self, block: Block) -> None:
        """The tiles that a block is handed, split by layout, in place of the old ones."""
        first = block.first_op
        assert first is not None
        for argument in block.args:
            if is_tile(argument):
                for layout in self.plan.made.get(argument, ()):
                    made = block.insert_arg(with_layout(argument.type, layout), argument.index)
                    made.name_hint = argument.name_hint
                    self.values[argument, layout] = made
                self._derive(argument, first)
                self.dead_arguments.append(argument)

    def _replace(self, op: Operation, made: Operation, like: Sequence[SSAValue]) -> None:
        """Put a new operation with regions before the old one, and its results in the place of the old results.

        `like` are the values of whose `_types` the results are: layouts of a result come in the order of theirs, which
        may have been asked for in another order than the result's own.
        """
        self._insert(made, op)
        results = iter(made.results)
        for old, slot in zip(op.results, like, strict=True):
            for layout in self._layouts(slot):
                new = next(results)
                new.name_hint = old.name_hint
                if layout is None:
                    old.replace_all_uses_with(new)
                else:
                    self.values[old, layout] = new
        for old in op.results:
            self._derive(old, op)
        self.dead.append(op)

    def _hand_over(self, block: Block, like: Sequence[SSAValue], kept: int = 0) -> None:
        """The operands of a block's terminator after the first `kept`, for slots such as `like`."""
        last = block.last_op
        assert last is not None
        last.operands = [*last.operands[:kept], *self._carry(last.operands[kept:], like)]

    def _for(self, op: ForOp) -> None:
        body = op.body.block
        carried = list(body.args[1:])
        operands = [*op.operands[:3], *self._carry(op.operands[3:], carried)]
        types = self._types(carried)
        self.block(body)
        self._hand_over(body, carried)
        region = op.detach_region(0)
        self._replace(op, _control(op, operands, types, [region]), carried)

    def _if(self, op: IfOp) -> None:
        types = self._types(op.results)
        for region in op.regions:
            for block in region.blocks:
                self.block(block)
                self._hand_over(block, op.results)
        regions = [op.detach_region(region) for region in list(op.regions)]
        self._replace(op, _control(op, [op.cond], types, regions), op.results)

    def _while(self, op: WhileOp) -> None:
        before, after = op.before.block, op.after.block
        carried, handed = list(before.args), list(after.args)
        operands, types = self._carry(op.operands, carried), self._types(handed)
        self.block(before)
        assert isinstance(before.last_op, ConditionOp)
        self._hand_over(before, handed, kept=1)
        self.block(after)
        self._hand_over(after, carried)
        regions = [op.detach_region(region) for region in list(op.regions)]
        self._replace(op, _control(op, operands, types, regions), handed)


_CONTROL: dict[type[Operation], Callable[[_Rewriter, Any], None]] = {
    ForOp: _Rewriter._for,
    IfOp: _Rewriter._if,
    WhileOp: _Rewriter._while,
}


def _control(
    op: Operation, operands: Sequence[SSAValue], types: Sequence[Attribute], regions: Sequence[Region]
) -> Operation:
    """A loop or branch like `op`."""
    made = type(op).create(
        operands=operands,
        result_types=types,
        properties=op.properties.copy(),
        attributes=op.attributes.copy(),
        regions=regions,
    )
    made.location = op.location
    return made


def _properties(op: Operation, types: Sequence[Attribute]) -> Mapping[str, Attribute]:
    """Properties of an operation; the elements of a tile of different numbers have the tile's type."""
    value = op.properties.get("value")
    if value is not None and isinstance(value, DenseIntOrFPElementsAttr):
        return {"value": DenseIntOrFPElementsAttr(types[0], value.data)}  # type: ignore[arg-type]
    return op.properties.copy()
