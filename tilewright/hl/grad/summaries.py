"""What inner loops carry out, kept by the forward pass where that is little: the maximum and sum of an online softmax.

    forward, where gradients are wanted           backward
    for rows in tiles:                            for rows in tiles:
        loop: largest, total, acc                     largest, total = kept_largest[rows], kept_total[rows]
        out[rows, :] = acc / total                    ...
        kept_largest[rows] = largest
        kept_total[rows] = total

Then the backward pass need not run the loop again. A result that is as large as what the loop reads is not kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from tilewright.hl.dims import Axis
from tilewright.hl.grad.exchange import buffer, is_placed
from tilewright.hl.grad.extents import is_known, is_zero
from tilewright.hl.grad.program import Program, buffer_of
from tilewright.hl.grad.replay import Env, Replay
from tilewright.hl.grad.simplify import simplify
from tilewright.hl.graph.nodes import EFFECTS, HostTensor, Node, Region, Value, rename, walk
from tilewright.hl.trace.host import Traced
from tilewright.hl.trace.state import raw_shape

Inner = dict[int, tuple[Node, int]]
"""By number of a value in a derived region: the loop of the forward pass that carries it out, and its position."""


@dataclass(frozen=True)
class Summary:
    """A value that the forward pass keeps.

    Args:
        loop: of the forward pass.
        at: position of the value among what it carries out.
        tensor: where it is kept.
    """

    loop: Node
    at: int
    tensor: HostTensor


def load_summaries(made: Region, inner: Inner, top: Node, fresh: Callable[[], int]) -> list[Summary]:
    """Load what inner loops carried out in the place of running them again, where all that is needed is little.

    Args:
        made: the derived region, simplified, with the forward pass in its first loop.
        inner: what its values stand for.
        top: the top-level loop of the forward pass.
        fresh: gives numbers that no value has.

    Returns:
        What the forward pass must keep.
    """
    grid: list[Axis] = top.kwargs["axes"]
    found: list[Summary] = []
    if not _is_plain(top):
        return found
    body = next((node.regions[0] for node in made.nodes if node.op == "loop"), Region())
    for loop in [node for node in body.nodes if node.op == "loop" and node.outs]:
        if not all(out.id in inner and _is_little(loop, inner[out.id], grid) for out in loop.outs):
            continue
        loads, renamed = [], {}
        for out in loop.outs:
            source, at = inner[out.id]
            tensor, entries = buffer("kept", at, source.outs[at], grid)
            value = Value(fresh(), out.dims, out.dtype, out.name)
            loads.append(Node("load", (tensor, entries), {}, loop.line, [value]))
            renamed[out.id] = value
            found.append(Summary(source, at, tensor))
        place = body.nodes.index(loop)
        body.nodes[place : place + 1] = loads
        rename(made, renamed)
    simplify(made)
    return found


def _is_plain(top: Node) -> bool:
    """Whether a loop does nothing but store tiles, over a grid that the host knows."""
    nodes = [inner for region in top.regions for inner in walk(region)]
    known = all(is_zero(axis.begin) and is_known(axis.end) for axis in top.kwargs["axes"])
    return known and all(
        node.op == "store" or not (node.op in EFFECTS or node.op.startswith("atomic") or node.op == "while")
        for node in nodes
    )


def _is_little(loop: Node, made: tuple[Node, int], grid: list[Axis]) -> bool:
    """Whether a value has fewer dimensions than what the loop loads, and a place of its own for each program."""
    source, at = made
    out = source.outs[at]
    most = max((len(node.out.dims) for node in walk(loop.regions[0]) if node.op == "load"), default=0)
    return len(out.dims) < most and is_placed(out, grid)


def keeping(traced: Traced, before: list[Node], top: Node, kept: list[Summary], program: Program) -> Program:
    """The forward pass that keeps summaries as well: `program`, without a region yet, completed.

    Args:
        traced: the kernel.
        before: what the graph computes before the top-level loop.
        top: the loop.
        kept: what is kept.
        program: name and block sizes.
    """
    replay = Replay(traced)

    def run(nodes: list[Node], env: Env) -> None:
        for node in nodes:
            replay.trace.line = node.line
            if node.op == "store":
                replay.trace.record("store", replay.held(node.args, env), None, replay.held(node.kwargs, env))
            elif node.op in ("loop", "if"):
                replay.structure(node, env, run)
            else:
                replay.plain([node], env)
            for one in [one for one in kept if one.loop is node]:
                sample = env[node.outs[one.at].id]
                _, entries = buffer("kept", one.at, node.outs[one.at], top.kwargs["axes"])
                kwargs = {"dims": replay.trace.factors.dims(raw_shape(sample))}
                replay.trace.record("store", (one.tensor, entries, sample), None, kwargs)

    with replay.running() as region, torch.no_grad():
        env: Env = {}
        replay.plain(before, env)
        replay.structure(top, env, run)
    program.region = region
    for one in kept:
        program.made.append(buffer_of(one.tensor.name, one.tensor.shape, one.tensor.dtype))
        program.results.append(one.tensor.name)
    simplify(region)
    return program
