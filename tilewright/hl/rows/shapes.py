"""Views: the same elements under other dimensions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.hl import exc
from tilewright.hl.dims import block_of
from tilewright.hl.graph.nodes import Node, Value
from tilewright.hl.rows.table import UNKNOWN, Emitter, Pads, Row, row
from tilewright.hl.symbols import Atom


@dataclass(frozen=True)
class View(Row):
    """A row whose result holds its operand's elements: masked lanes hold what they held."""

    keep: tuple[int, ...] | None = (0,)

    def pads(self, node: Node, pads: Pads, out: Value, atom: Atom) -> Any:
        source = node.args[0]
        if source.dtype != out.dtype:
            return UNKNOWN
        atoms = {own for dim in source.dims for own in dim.atoms if block_of(own) == block_of(atom)}
        known = [pads.of(source, own) for own in (atoms or {atom})]
        return known[0] if len(known) == 1 else UNKNOWN

    def emit(self, emitter: Emitter, node: Node) -> None:
        source, out = node.args[0], node.out
        if source.dtype != out.dtype:  # the same bits as another type
            emitter.assign(out, f"{emitter.operand(source)}.to({emitter.dtype(out.dtype)}, bitcast=True)")
        elif source.dims == out.dims:
            emitter.alias(out, source)
        else:
            emitter.assign(out, self.text(emitter, node, emitter.operand(source)))

    def text(self, emitter: Emitter, node: Node, source: str) -> str:
        """The expression, where the dimensions differ."""
        if not node.args[0].dims:
            return f"tl.full({emitter.shape(node.out.dims)}, {source}, {emitter.dtype(node.out.dtype)})"
        return f"tl.reshape({source}, {emitter.shape(node.out.dims)})"


@dataclass(frozen=True)
class Unsqueeze(View):
    """A new dimension of 1."""

    keep: tuple[int, ...] | None = None

    def text(self, emitter: Emitter, node: Node, source: str) -> str:
        if not node.args[0].dims:
            return super().text(emitter, node, source)
        rank = len(node.out.dims)
        at = node.args[1] % rank
        return f"{source}[{', '.join('None' if dim == at else ':' for dim in range(rank))}]"


@dataclass(frozen=True)
class Expand(View):
    """Dimensions of 1 repeated."""

    def text(self, emitter: Emitter, node: Node, source: str) -> str:
        have, want = node.args[0].dims, node.out.dims
        if not have:
            return super().text(emitter, node, source)
        if len(have) < len(want):
            source = f"{source}[{', '.join(['None'] * (len(want) - len(have)) + [':'] * len(have))}]"
        return f"tl.broadcast_to({source}, {emitter.shape(want)})"


@dataclass(frozen=True)
class Permute(View):
    """Dimensions in another order."""

    keep: tuple[int, ...] | None = None

    def order(self, node: Node) -> list[int]:
        """The source dimension of each dimension of the result."""
        rank = len(node.out.dims)
        if self.name == "permute":
            return [dim % rank for dim in node.args[1]]
        order = list(range(rank))
        first, second = node.args[1:] if self.name == "transpose" else (-2, -1)
        if rank > 1:
            order[first], order[second] = order[second], order[first]
        return order

    def emit(self, emitter: Emitter, node: Node) -> None:
        order = self.order(node)
        source = node.args[0]
        if order == sorted(order):
            emitter.alias(node.out, source)
        else:
            emitter.assign(node.out, f"tl.permute({emitter.operand(source)}, {order})")


@dataclass(frozen=True)
class Sole(Row):
    """Our own node `sole`: the only element of a truth, of a tile whose block sizes are 1 in this configuration."""

    def emit(self, emitter: Emitter, node: Node) -> None:
        source, shown = node.args
        if any(emitter.extent(dim) != 1 for dim in source.dims):
            raise several_elements(shown)
        text = f"{emitter.operand(source)}.to(tl.int32)"
        for _ in source.dims:
            text = f"tl.max({text}, axis=0)"
        emitter.assign(node.out, f"{text} != 0")


def several_elements(shown: str) -> exc.ControlFlowTensorMismatch:
    """The error for a condition that is no single truth; `shown` is its type."""
    return exc.ControlFlowTensorMismatch(
        f"the condition is {shown}: each element would go its own way",
        hint="use torch.where, and &, | and ~ for and, or and not; or let it be one element: of a loop with hl.grid, "
        "or of tiles whose block_sizes are 1",
    )


row(Sole("sole"))
for _name in ("view", "_unsafe_view", "squeeze", "flatten", "unflatten", "_reshape_alias", "view_as"):
    row(View(_name))
row(Unsqueeze("unsqueeze"))
row(Expand("expand"))
for _name in ("permute", "transpose", "t"):
    row(Permute(_name))
row(View("slice"))  # a whole one; others are recipes
