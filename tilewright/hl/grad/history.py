"""What loops carry from pass to pass, kept where a gradient goes from the last pass to the first.

    state = 0                             state = 0                                  a loop of its own
    for t in hl.tile(n):                  for t in hl.tile(n):
        state = f(state, x[t])                state_at[t.begin // 32] = state
    out = state                               state = f(state, x[t])
                                          grad = grad_out                            another
                                          for t in reversed(hl.tile(n)):
                                              state = state_at[t.begin // 32]
                                              grad, grad_x[t] = the derivative of f

A loop that only sums needs no history, and its passes come in any order: that is tried first.
"""

from __future__ import annotations

from typing import Any

import torch

from tilewright.hl import exc
from tilewright.hl.dims import Axis
from tilewright.hl.grad.extents import is_known
from tilewright.hl.grad.program import dims_of
from tilewright.hl.grad.replay import Env, Replay
from tilewright.hl.graph.nodes import HostTensor, Node, Region, Subscript, walk
from tilewright.hl.symbols import Sym, cdiv
from tilewright.hl.trace.host import Traced
from tilewright.hl.trace.state import raw_shape


class Histories:
    """The loops whose histories are kept, and where.

    Args:
        sizes: block sizes in the forward pass, by the number of the axis: other tiles make another history.

    Attributes:
        loops: by the identity of the loop the error that says why; it is raised where a history cannot be kept.
        blocks: the block sizes that a history fixes, by the number of the axis.
    """

    def __init__(self, sizes: dict[int, int]) -> None:
        self._sizes = sizes
        self.loops: dict[int, exc.Error] = {}
        self.blocks: dict[int, int] = {}

    def __contains__(self, loop: Node) -> bool:
        return id(loop) in self.loops

    def add(self, loop: Node | None, reason: exc.Error) -> None:
        """Keep the history of a loop; its tiles must be those of the forward pass.

        Raises:
            NotDifferentiable: it is kept already, and more is needed.
        """
        if loop is None or loop in self:
            raise reason
        self.loops[id(loop)] = reason
        for axis in loop.kwargs["axes"]:
            if axis.kind != "grid" and axis.block is None:
                self.blocks[axis.id] = self._sizes[axis.id]

    def place(self, loop: Node, at: int, around: list[Axis]) -> tuple[HostTensor, list[Subscript]] | None:
        """The tensor for the history of what a loop carries at a position, and the subscripts of the pass; None where
        it has an extent that the host does not know.

        Args:
            loop: the loop of the forward pass.
            at: the position.
            around: the axes of all open loops, those of `loop` last.
        """
        value = loop.regions[0].params[at]
        own = {axis.id for axis in loop.kwargs["axes"]}
        dims = dims_of([axis for axis in around if axis.id not in own], value)
        if None in dims:
            return None
        covered = {dim.id for dim in dims if isinstance(dim, Axis)}
        shape: list[Any] = []
        entries: list[Subscript] = []
        for axis in around:
            if axis.id not in covered:
                number, count = self._number(loop, axis)
                entries.append(Subscript("scalar", number, extent=count))
                shape.append(count)
        for number, dim in enumerate(dims):
            extent = self._end(loop, dim) if isinstance(dim, Axis) else dim
            entry = ("tile", dim.id) if isinstance(dim, Axis) else ("slice", 0)
            shape.append(extent)
            entries.append(Subscript(*entry, number, extent=extent))
        name = f"{value.name or 'carried'}_at_{loop.kwargs['axes'][0].name}_{loop.kwargs['axes'][0].id}_{at}"
        return HostTensor(name, "", tuple(shape), (), value.dtype), entries

    def _number(self, loop: Node, axis: Axis) -> tuple[Any, Any]:
        """(the number of the current tile of an axis, how many there are)."""
        end = self._end(loop, axis)
        if axis.kind == "jagged" or type(axis.begin) is not int:
            raise self.loops[id(loop)]
        block = 1 if axis.kind == "grid" else axis.block
        if isinstance(block, Sym) and block.atom is not None:  # one that the program registers
            block = self._sizes.get(int(block.atom.key), block)
        if block is None:
            block = self.blocks[axis.id] = self._sizes[axis.id]
        number = Sym.of(axis.offset) - axis.begin
        count = cdiv(end - axis.begin, block)
        return (number if block == 1 else number // block), max(0, count) if type(count) is int else count

    def _end(self, loop: Node, axis: Axis) -> Any:
        end = largest(axis.end)
        known = type(axis.begin) is int and (axis.begin == 0 or type(end) is int)
        if end is None or not known or axis.begin < 0:
            raise self.loops[id(loop)]
        return end


def largest(end: Any) -> Any:
    """The largest number that the end of a range can be; None where only data say."""
    if is_known(end):
        return end
    atom = end.atom if isinstance(end, Sym) else None
    bounds = [arg for arg in atom.args if is_known(arg)] if atom is not None and atom.key == "min" else []
    return bounds[0] if bounds else None


def kept(
    traced: Traced, before: list[Node], top: Node, histories: Histories, read: set[str], first: int
) -> tuple[list[Node], int]:
    """The loop that keeps histories: the forward pass without what it stores.

    Args:
        traced: the kernel.
        before: what the graph computes before the top-level loop.
        top: the loop.
        histories: which loops.
        read: names of the tensors that the backward pass reads.
        first: number of the first value that is made.

    Returns:
        Its nodes, and a number that no value has.
    """
    replay = Replay(traced, first)
    replay.blocks = histories.blocks

    def store(loop: Node, env: Env) -> None:
        around = [axis for one in replay.trace.loops for axis in one.kwargs["axes"]]
        for at, param in enumerate(loop.regions[0].params):
            found = histories.place(loop, at, around)
            if found is not None and found[0].name in read:
                kwargs = {"dims": replay.trace.factors.dims(raw_shape(env[param.id]))}
                replay.trace.record("store", (*found, env[param.id]), None, kwargs)

    def run(nodes: list[Node], env: Env) -> None:
        for node in nodes:
            if node.op not in ("loop", "if"):
                replay.plain([node], env)
                continue

            def body(inner: list[Node], env: Env, loop: Node = node) -> None:
                if loop in histories:
                    store(loop, env)
                run(inner, env)

            replay.structure(node, env, body)

    with replay.running() as region, torch.no_grad():
        env: Env = {}
        replay.plain(before, env)
        replay.structure(top, env, run)
    return region.nodes, replay.trace.fresh(torch.empty(())).id + 1


def reads(region: Region) -> set[str]:
    """Names of the tensors that a region loads."""
    return {node.args[0].name for node in walk(region) if node.op == "load"}
