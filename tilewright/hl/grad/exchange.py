"""Loops that change places, so that each gradient has one program that adds it up.

    for m, n in tiles:                      for m, k in tiles:
        for k in tiles:                         for n in tiles:
            acc += x[m, k] @ y[k, n]                sum += grad_acc[m, n] @ y[k, n].T
        out[m, n] = f(acc)                      grad_x[m, k] = sum

What an inner loop loads by its own index, all programs along one axis of the grid load: in its backward pass they would
meet. So the first loop keeps the gradients of what the inner loop carries out, and in a loop of its own the inner index
is an axis of the grid, and the axis along which programs met is inside. One pass of the inner loop is what it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import replace as changed
from typing import Any

import torch

from tilewright.hl.dims import Axis
from tilewright.hl.grad.adjoint import Adjoint, Pass, Sub
from tilewright.hl.grad.extents import agree, is_known, is_zero
from tilewright.hl.grad.history import Histories, largest
from tilewright.hl.grad.maxima import running_maxima
from tilewright.hl.grad.owners import Contribution, place
from tilewright.hl.grad.program import dims_of
from tilewright.hl.grad.replay import unrounded
from tilewright.hl.graph.nodes import HostTensor, Node, Region, Subscript, Value
from tilewright.hl.symbols import Sym, same
from tilewright.hl.trace.state import raw_shape


@dataclass(frozen=True)
class Exchange:
    """Two loops that change places.

    Args:
        inner: the inner loop of the forward pass.
        axis: the axis of the grid that goes inside.
        end: the index behind the last one of the inner loop, whatever the program.
        tensors: whose gradients have owners then.
    """

    inner: Node
    axis: Axis
    end: Any
    tensors: frozenset[str]

    @property
    def own(self) -> Axis:
        """The axis of the inner loop."""
        (axis,) = self.inner.kwargs["axes"]
        found: Axis = axis
        return found


def exchanges(found: dict[str, list[Contribution]], top: Node, histories: Histories) -> list[Exchange]:
    """The exchanges of loops that give owners to gradients that had none.

    Args:
        found: the contributions of a backward pass, by tensor.
        top: the top-level loop of the forward pass.
        histories: the loops whose passes have an order.
    """
    grid: list[Axis] = top.kwargs["axes"]
    groups: dict[tuple[int, int], list[str]] = {}
    loops = [node for node in top.regions[0].nodes if node.op == "loop" and node not in histories]
    inners = {node.kwargs["axes"][0].id: node for node in loops}
    for name, several in found.items():
        (one, *more) = several
        if more or len(one.loops) != len(grid) + 1 or one.loops[-1].id not in inners:
            continue
        missing = [axis for axis in grid if place(axis, one.entries) is None]
        if len(missing) == 1 and place(one.loops[-1], one.entries) is not None and not _has_data(one):
            groups.setdefault((one.loops[-1].id, missing[0].id), []).append(name)
    made = []
    for (inner, axis), names in groups.items():
        end = _end(inners[inner])
        outside = next(one for one in grid if one.id == axis)
        if end is not None and _may_move(inners[inner], outside, top):
            made.append(Exchange(inners[inner], outside, end, frozenset(names)))
    return made


def _has_data(one: Contribution) -> bool:
    return any(entry.kind == "tensor" or isinstance(entry.what, Value) for entry in one.entries)


def _may_move(inner: Node, axis: Axis, top: Node) -> bool:
    """Whether what a pass needs can be had in a program of its own."""
    (own, *several) = inner.kwargs["axes"]
    before = top.regions[0].nodes[: top.regions[0].nodes.index(inner)]
    plain = not several and own.kind == axis.kind == "tile" and own.block is None and is_known(axis.end)
    known = all(is_placed(out, top.kwargs["axes"]) for out in inner.outs)
    return plain and known and is_zero(axis.begin) and not any(node.regions or node.op == "product" for node in before)


def is_placed(out: Value, grid: list[Axis]) -> bool:
    """Whether each program has a part of a buffer of its own, and of its own only, for a value."""
    dims = dims_of(grid, out)
    return None not in dims and all(_is_single(axis) for axis in _uncovered(dims, grid))


def _uncovered(dims: list[Any], grid: list[Axis]) -> list[Axis]:
    """The axes of the grid along which programs differ, but no dimension of a value lies."""
    covered = {dim.id for dim in dims if isinstance(dim, Axis)}
    return [axis for axis in grid if axis.id not in covered]


def _is_single(axis: Axis) -> bool:
    """Whether a program has one index of an axis, whatever the configuration."""
    one = axis.kind == "grid" or (axis.kind == "tile" and axis.block == 1)
    return one and is_zero(axis.begin) and is_known(axis.end)


def _end(inner: Node) -> Any:
    """The index behind the last one that any program reaches in an inner loop; None where only data say."""
    (begin,), (end,) = inner.kwargs["begin"], inner.kwargs["end"]
    return None if isinstance(begin, Value) else largest(end)


def buffer(kind: str, at: int, out: Value, grid: list[Axis]) -> tuple[HostTensor, list[Subscript]]:
    """A tensor that keeps what a loop carries out, or its gradient, and the subscripts of a program's part of it."""
    dims = dims_of(grid, out)
    alone = _uncovered(dims, grid)
    shape = [axis.end for axis in alone]
    entries = [Subscript("scalar", Sym.of(axis.offset), extent=axis.end) for axis in alone]
    for number, dim in enumerate(dims):
        extent = dim.end if isinstance(dim, Axis) else dim
        entry = ("tile", dim.id) if isinstance(dim, Axis) else ("slice", 0)
        shape.append(extent)
        entries.append(Subscript(*entry, number, extent=extent))
    return HostTensor(f"{kind}_{out.name or at}", "", tuple(shape), (), out.dtype), entries


class Keeping(Adjoint):
    """The first loop of an exchange: it keeps what the others need, and leaves them their gradients."""

    exchanges: list[Exchange]
    grid: list[Axis]
    kept: dict[str, HostTensor]

    def leaving(self, sub: Sub, known: dict[int, Any]) -> None:
        """Store what an inner loop carried out and what is known of its gradients."""
        if not any(one.inner is sub.node for one in self.exchanges):
            return
        maxima = running_maxima(sub.node)
        for at, out in enumerate(sub.node.outs):
            if at in maxima:
                self._keep("last", at, out, sub.after[out.id].detach())
            elif out.id in known:
                self._keep("grad_of", at, out, known[out.id])

    def _keep(self, kind: str, at: int, out: Value, sample: Any) -> None:
        tensor, entries = buffer(kind, at, out, self.grid)
        self.kept[tensor.name] = tensor
        kwargs = {"dims": self.trace.factors.dims(raw_shape(sample))}
        self.trace.record("store", (tensor, entries, sample), None, kwargs)

    def is_left(self, name: str) -> bool:
        """Whether another loop has the gradient of a tensor."""
        return any(name in one.tensors for one in self.exchanges)


class Exchanged(Adjoint):
    """A loop of its own for the gradients of an exchange."""

    def is_left(self, name: str) -> bool:
        """What loops and branches of the pass load is left to the first loop, which goes through them as well."""
        return True

    def derive_exchanged(self, one: Exchange, top: Node, kept: dict[str, HostTensor], block: int | None) -> Region:
        """The region of the loop.

        Args:
            one: the exchange.
            top: the top-level loop of the forward pass.
            kept: what the first loop keeps, by name.
            block: how large tiles of the axis that goes inside are; None where that is free.
        """
        grid: list[Axis] = top.kwargs["axes"]
        own = changed(one.own, begin=0, end=one.end, top=True)
        outer = [own if axis is one.axis else changed(axis) for axis in grid]
        begin = _first(one, own, block)
        inside = changed(one.axis, begin=begin, top=False, block=one.axis.block if type(begin) is int else block)
        with self.replay.running() as region:
            loop = _loop(outer, top.line)
            with self.replay.inside(loop):
                self._sum(one, top, kept, _loop([inside], one.inner.line), grid)
            self.replay.append(loop)
        return region

    def _sum(self, one: Exchange, top: Node, kept: dict[str, HostTensor], loop: Node, grid: list[Axis]) -> None:
        """The loop over the axis that went inside, and what it sums for each tensor."""
        with self.replay.inside(loop) as fresh:
            grads = self._pass(one, top, kept, grid)
            totals = []
            for _, grad in grads:
                form = self.replay.lifted(grad)
                wide = torch.float32 if form.dtype.itemsize < 4 else form.dtype
                sample, value = self.replay.parameter(Value(0, form.dims, wide))
                fresh.params.append(value)
                with torch.no_grad():
                    fresh.results.append(self.replay.lifted(sample + grad.to(wide)))
                totals.append(sample)
        with torch.no_grad():
            inits = [torch.zeros(raw_shape(total), dtype=total.dtype) for total in totals]
        loop.args = ([self.replay.lifted(init) for init in inits],)
        self.replay.append(loop)
        axes = [axis for opened in self.trace.loops for axis in opened.kwargs["axes"]]
        for (leaf, _), init in zip(grads, inits, strict=True):
            sample, out = self.replay.parameter(self.replay.lifted(init))
            out.name = f"sum_{leaf.node.args[0].name}"
            loop.outs.append(out)
            kwargs = {"dims": leaf.node.out.dims, "loops": axes}
            self.trace.line = leaf.node.line
            args = leaf.node.args[0], self.replay.held(leaf.node.args[1], {}), sample
            self.trace.record("atomic_gradient", args, None, kwargs)

    def _pass(self, one: Exchange, top: Node, kept: dict[str, HostTensor], grid: list[Axis]) -> list[tuple[Any, Any]]:
        """One pass of the inner loop: its loads, and what it adds to their gradients."""
        nodes = top.regions[0].nodes
        env: dict[int, Any] = {}
        with torch.no_grad():
            self.replay.plain(nodes[: nodes.index(one.inner)], env)
        maxima = running_maxima(one.inner)
        after: dict[int, Any] = {}
        known: dict[int, Any] = {}
        for at, out in enumerate(one.inner.outs):
            kind = "last" if at in maxima else "grad_of"
            tensor, entries = buffer(kind, at, out, grid)
            if tensor.name in kept:
                sample = self.trace.record("load", (tensor, entries), self.replay.blank(out))
                (after if at in maxima else known)[out.id] = sample
        adjoints = [at for at, out in enumerate(one.inner.outs) if out.id in known]
        made = Pass(self, Sub(one.inner, env, after), adjoints, maxima)
        carried = [known[one.inner.outs[at].id] for at in adjoints]
        found = [(leaf, grad) for leaf, grad in made.leaves(carried) if leaf.node.args[0].name in one.tensors]
        with torch.no_grad():
            wide = [(leaf, unrounded(self.replay, grad)) for leaf, grad in found if grad is not None]
            return [(leaf, self._inside(one, leaf.node, grad)) for leaf, grad in wide]

    def _inside(self, one: Exchange, load: Node, grad: Any) -> Any:
        """What lanes add that the inner loop of a program reaches."""
        (begin,), (end,) = one.inner.kwargs["begin"], one.inner.kwargs["end"]
        entry = next(entry for entry in load.args[1] if entry.kind == "tile" and entry.what == one.own.id)
        index = None
        for bound, test in ((begin, torch.ge), (end, torch.lt)):
            if is_zero(bound) or (test is torch.lt and (type(bound) is int or agree(bound, one.end))):
                continue
            if index is None:
                with self.trace.silence():
                    lanes = torch.arange(one.own.prime, dtype=torch.int32, device="cpu")
                index = self.trace.record("tile_index", (one.own.id,), lanes)
                rank = len(load.out.dims)
                index = index.view([one.own.prime if at == entry.at else 1 for at in range(rank)])
            limit = self.trace.scalar(bound) if isinstance(bound, Sym) else bound
            grad = torch.where(test(index, limit), grad, 0.0)
        return grad


def _loop(axes: list[Axis], line: int) -> Node:
    bounds = {"begin": [axis.begin for axis in axes], "end": [axis.end for axis in axes]}
    return Node("loop", (), {"axes": axes, **bounds}, line)


def _first(one: Exchange, own: Axis, block: int | None) -> Any:
    """The first index inside for which the inner loop reaches this program: where its end is that of the tile."""
    (end,) = one.inner.kwargs["end"]
    atom = end.atom if isinstance(end, Sym) else None
    if block is None or atom is None or atom.key != "min":
        return 0
    behind = Sym.of(one.axis.offset) + Sym.of(one.axis.size)
    reaches = any(isinstance(arg, Sym) and same(arg, behind) for arg in atom.args)
    return (Sym.of(own.offset) // block) * block if reaches else 0
