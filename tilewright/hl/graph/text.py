"""The tile graph as text: for dumps, golden tests and the comparison of two traces."""

from __future__ import annotations

from typing import Any

from tilewright.hl.dims import Axis
from tilewright.hl.graph.nodes import Graph, Node, Region, Subscript, Value
from tilewright.hl.symbols import Sym, show


def graph_text(graph: Graph) -> str:
    """A graph, one line a node."""
    return "\n".join(region_lines(graph.region, 0))


def region_lines(region: Region, depth: int) -> list[str]:
    """The lines of a region, indented by `depth`."""
    lines: list[str] = []
    for node in region.nodes:
        lines.append("  " * depth + node_text(node))
        for inner in node.regions:
            head = ", ".join(map(_typed, inner.params))
            lines.append("  " * depth + f"  ({head}):")
            lines += region_lines(inner, depth + 2)
            if inner.results:
                lines.append("  " * depth + f"    -> {', '.join(map(repr, inner.results))}")
    return lines


def node_text(node: Node) -> str:
    """One node without its regions."""
    outs = ", ".join(map(_typed, node.outs))
    args = [_shown(arg) for arg in node.args]
    args += [f"{name}={_shown(value)}" for name, value in node.kwargs.items()]
    return (f"{outs} = " if outs else "") + f"{node.op}({', '.join(args)})"


def _typed(value: Value) -> str:
    dtype = str(value.dtype).removeprefix("torch.")
    return f"%{value.id}:{dtype}[{', '.join(map(repr, value.dims))}]"


def _shown(arg: Any) -> str:
    if isinstance(arg, Sym):
        return show(arg)
    if isinstance(arg, list | tuple):
        return "[" + ", ".join(map(_shown, arg)) + "]"
    if isinstance(arg, Axis):
        return f"{arg.name}[{_shown(arg.begin)}:{_shown(arg.end)}]"
    if isinstance(arg, Subscript):
        return _subscript(arg)
    return repr(arg)


def _subscript(entry: Subscript) -> str:
    what = f"tile {entry.what}" if entry.kind == "tile" else _shown(entry.what)
    if entry.kind == "slice":
        what = f"{what}::{entry.step}"
    if not (type(entry.offset) is int and entry.offset == 0):
        what += f" + {_shown(entry.offset)}"
    return what if entry.at is None else f"{what} @{entry.at}"
