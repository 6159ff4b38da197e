"""Reductions and scans by a function of the user: `reduce_fn` and `scan_fn`, whose region is the function's body.

The region's parameters are two elements of each operand, those of the left side first; its results are one each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tilewright.hl import exc
from tilewright.hl.graph.nodes import Node, Region, Value
from tilewright.hl.rows.table import Emitter, Need, Row, row
from tilewright.hl.trace.samples import sample_of
from tilewright.hl.trace.state import device_trace, raw_shape


@dataclass(frozen=True)
class ReduceFunction(Row):
    """`reduce_fn(operands, dims, others, keep)`: dimensions reduced one after the other, the last first."""

    def needs(self, node: Node) -> list[Need]:
        operands, dims, others, _ = node.args
        return [Need(value, tuple(dims), other) for value, other in zip(operands, others, strict=True)]

    def emit(self, emitter: Emitter, node: Node) -> None:
        operands, dims, _, keep = node.args
        name = emitter.function("combine", node.regions[0])
        text = _packed([emitter.operand(value) for value in operands])
        for dim in reversed(dims):
            text = f"tl.reduce({text}, {dim}, {name}{', keep_dims=True' if keep else ''})"
        emitter.assign_all(node.outs, text)


@dataclass(frozen=True)
class ScanFunction(Row):
    """`scan_fn(operands, dim, reverse)`: masked lanes are behind the valid ones and do not reach them."""

    def emit(self, emitter: Emitter, node: Node) -> None:
        operands, dim, reverse = node.args
        name = emitter.function("combine", node.regions[0])
        text = _packed([emitter.operand(value) for value in operands])
        made = f"tl.associative_scan({text}, {dim}, {name}{', reverse=True' if reverse else ''})"
        emitter.assign_all(node.outs, made)


def _packed(texts: list[str]) -> str:
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


row(ReduceFunction("reduce_fn"))
row(ScanFunction("scan_fn"))


def traced(function: Callable[..., Any], operands: list[Any]) -> Region:
    """The body of a combine function, for elements of these operands.

    Args:
        function: takes the elements of the left side, then those of the right one, and returns as many.
        operands: tiles.

    Raises:
        InvalidAPIUsage: it returns another number of elements.
    """
    trace = device_trace("a combine function")
    outer, region = trace.region, Region()
    trace.region = region
    try:
        with trace.silence():
            samples = [sample_of(trace, (), operand.dtype) for operand in operands * 2]
        region.params = [trace.fresh(sample) for sample in samples]
        made = function(*samples)
        results = list(made) if isinstance(made, list | tuple) else [made]
        if len(results) != len(operands):
            raise exc.InvalidAPIUsage(
                f"the combine function returns {len(results)} values for {len(operands)} operands",
                hint="return one value for each operand",
            )
        region.results = [_result(trace, one, operand.dtype) for one, operand in zip(results, operands, strict=True)]
    finally:
        trace.region = outer
    return region


def _result(trace: Any, made: Any, dtype: torch.dtype) -> Value:
    tensor = made if isinstance(made, torch.Tensor) else trace.number(made)
    if raw_shape(tensor):
        raise exc.ShapeMismatch("the combine function returns a tile", hint="it combines two elements into one")
    value = trace.lift(tensor.to(dtype) if tensor.dtype != dtype else tensor)
    if not isinstance(value, Value):
        value = trace.lift(trace.number(value))
    assert isinstance(value, Value)
    return value
