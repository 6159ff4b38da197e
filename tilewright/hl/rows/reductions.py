"""Reductions over one dimension, several or all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tilewright.hl.graph.nodes import Node, Region, Value
from tilewright.hl.rows.dtypes import highest, lowest, opmath
from tilewright.hl.rows.table import ROWS, Emitter, Need, Pads, Row, row
from tilewright.hl.symbols import Atom


def reduced(node: Node) -> tuple[tuple[int, ...], bool]:
    """(dimensions that a reduction node reduces, whether they stay as 1); none given means all."""
    source = node.args[0]
    rank = len(source.dims)
    dims = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    keep = node.args[2] if len(node.args) > 2 else node.kwargs.get("keepdim", False)
    if dims is None or dims == []:
        dims = list(range(rank))
    listed = dims if isinstance(dims, list | tuple) else [dims]
    return tuple(sorted(dim % rank for dim in listed)) if rank else (), bool(keep)


@dataclass(frozen=True)
class Reduction(Row):
    """A reduction whose operation has a neutral element.

    Args:
        function: name in `tl`.
        neutral: type -> neutral element.
        combine: aten name of the operation that joins two partial results, element by element.
    """

    function: str = ""
    neutral: Callable[[Any], Any] = lambda dtype: 0
    combine: str = ""

    def compute_type(self, args: tuple[Any, ...], out: Any) -> Any:
        return opmath(out.dtype)

    def needs(self, node: Node) -> list[Need]:
        source = node.args[0]
        return [Need(source, reduced(node)[0], self.neutral(source.dtype))]

    def emit(self, emitter: Emitter, node: Node) -> None:
        dims, keep = reduced(node)
        out = node.out
        text = emitter.operand(node.args[0], node.compute)
        for dim in reversed(dims):
            text = f"{self.function}({text}, axis={dim}{', keep_dims=True' if keep else ''})"
        if node.compute != out.dtype:
            text = f"({text}).to({emitter.dtype(out.dtype)})"
        emitter.assign(out, text)


@dataclass(frozen=True)
class Extreme(Reduction):
    """A maximum or minimum; booleans are compared as integers."""

    def compute_type(self, args: tuple[Any, ...], out: Any) -> Any:
        return torch.int8 if out.dtype == torch.bool else out.dtype


@dataclass(frozen=True)
class Careful(Extreme):
    """A maximum or minimum that is NaN where an element is; `tl.max` and `tl.min` skip NaN.

    A GPU combines two elements so by one instruction; on a CPU a second reduction that looks for NaN is as fast.
    """

    def emit(self, emitter: Emitter, node: Node) -> None:
        if not node.out.dtype.is_floating_point:
            super().emit(emitter, node)
        elif emitter.gpu:
            self._combined(emitter, node)
        else:
            super().emit(emitter, node)
            self._marked(emitter, node)

    def _combined(self, emitter: Emitter, node: Node) -> None:
        (dims, keep), own = reduced(node), node.out.dtype
        dtype = torch.float32 if own.itemsize == 2 else own  # as what is computed of them; 16 bits are taken apart
        left, right, larger = (Value(-number, (), dtype) for number in (1, 2, 3))
        joined = Node(self.combine, (left, right), {}, node.line, [larger], compute=dtype)
        name = emitter.function(self.combine, Region([left, right], [joined], [larger]))
        text = emitter.operand(node.args[0], dtype)
        for dim in reversed(dims):
            text = f"tl.reduce({text}, {dim}, {name}{', keep_dims=True' if keep else ''})"
        emitter.assign(node.out, text if dtype == own else f"{text}.to({emitter.dtype(own)})")

    def _marked(self, emitter: Emitter, node: Node) -> None:
        source, out = node.args[0], node.out
        dims, keep = reduced(node)
        text = emitter.operand(source)
        text = f"({text} != {text}).to(tl.int32)"
        for dim in reversed(dims):
            text = f"tl.max({text}, axis={dim}{', keep_dims=True' if keep else ''})"
        emitter.assign(out, f'tl.where({text} != 0, float("nan"), {emitter.operand(out)})')


@dataclass(frozen=True)
class Product(Reduction):
    """A product: the last of the running products."""

    def emit(self, emitter: Emitter, node: Node) -> None:
        dims, keep = reduced(node)
        source, out = node.args[0], node.out
        text = emitter.operand(source, node.compute)
        rank = len(source.dims)
        for dim in reversed(dims):
            last = emitter.extent(source.dims[dim])
            lane = f"tl.arange(0, {last})[{', '.join(':' if at == dim else 'None' for at in range(rank))}]"
            text = f"tl.sum(tl.where({lane} == {last} - 1, tl.cumprod({text}, axis={dim}), 0), axis={dim}"
            text += ", keep_dims=True)" if keep else ")"
            rank -= 0 if keep else 1
        emitter.assign(out, f"({text}).to({emitter.dtype(out.dtype)})")


@dataclass(frozen=True)
class Scan(Row):
    """A running sum or product: masked lanes are behind the valid ones and reach them from the end only.

    Args:
        function: name in `tl`.
        neutral: the neutral element.
    """

    function: str = ""
    neutral: int = 0

    def compute_type(self, args: tuple[Any, ...], out: Any) -> Any:
        return opmath(out.dtype)

    def needs(self, node: Node) -> list[Need]:
        source, dim = node.args[:2]
        if not node.kwargs.get("reverse"):
            return []
        return [Need(source, (dim % len(source.dims),), self.neutral)]

    def emit(self, emitter: Emitter, node: Node) -> None:
        source, dim = node.args[:2]
        reverse = ", reverse=True" if node.kwargs.get("reverse") else ""
        text = f"{self.function}({emitter.operand(source, node.compute)}, axis={dim % len(source.dims)}{reverse})"
        emitter.assign(node.out, f"{text}.to({emitter.dtype(node.out.dtype)})")


@dataclass(frozen=True)
class Masked(Row):
    """Our own node `mask_to`: its operand with a constant in the lanes that masks cut off."""

    def pads(self, node: Node, pads: Pads, out: Value, atom: Atom) -> Any:
        source, dims, neutral = node.args
        inside = any(atom in source.dims[dim].atoms for dim in dims)
        return neutral if inside else pads.of(source, atom)


@dataclass(frozen=True)
class Accumulate(Row):
    """Our own node `accumulate`: a partial result joined with a chunk, element by element."""

    def needs(self, node: Node) -> list[Need]:
        _, source, dim, name = node.args
        reduction = ROWS[name]
        assert isinstance(reduction, Reduction)
        return [Need(source, (dim,), reduction.neutral(source.dtype))]

    def emit(self, emitter: Emitter, node: Node) -> None:
        so_far, source, _, name = node.args
        reduction = ROWS[name]
        assert isinstance(reduction, Reduction)
        joined = Node(reduction.combine, (so_far, source), {}, node.line, node.outs, compute=node.compute)
        ROWS[reduction.combine].emit(emitter, joined)


@dataclass(frozen=True)
class Matches(Row):
    """Our own node `count_matches`: how often each place of a range is among the keys of a row."""

    def needs(self, node: Node) -> list[Need]:
        return [Need(node.args[0], (0,), -1)]

    def emit(self, emitter: Emitter, node: Node) -> None:
        (keys,), bins = node.args, emitter.extent(node.out.dims[0])
        text = emitter.operand(keys)
        mask = f", mask=({text} >= 0) & ({text} < {bins})"  # of others Triton says nothing
        emitter.assign(node.out, f"tl.histogram({text}, {bins}{mask}).to({emitter.dtype(node.out.dtype)})")


row(Reduction("sum", None, "tl.sum", lambda dtype: 0, "add"))
row(Careful("amax", None, "tl.max", lowest, "maximum"))
row(Careful("amin", None, "tl.min", highest, "minimum"))
row(Extreme("largest", None, "tl.max", lowest, "maximum"))  # of numbers that NaN need not reach
row(Product("prod", None, "", lambda dtype: 1, "mul"))
row(Scan("cumsum", None, "tl.cumsum"))
row(Scan("cumprod", None, "tl.cumprod", 1))
row(Matches("count_matches"))
row(Masked("mask_to"))
row(Accumulate("accumulate"))
