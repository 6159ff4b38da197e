"""The backward pass of one loop over tiles, derived from its graph.

    forward                          backward
    load x                           load x                      a leaf of PyTorch's
    v = f(x)                         v = f(x)                    called again: PyTorch records
    loop: s = s + g(v, load y)       loop (again, or its results loaded): s is a leaf
    store out, h(s)                  load grad_out               the seed of h(s)
                                     torch.autograd.grad         its calls are written down
                                     loop: the gradients of g    sums for v, contributions for y
                                     contribution to x

Inner loops run backward with what they carry unknown: whoever needs it needs the history of the loop, an error. Then
passes may come in any order, which is checked too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from tilewright.hl import exc
from tilewright.hl.grad.history import Histories
from tilewright.hl.grad.maxima import running_maxima
from tilewright.hl.grad.program import captured, key_of
from tilewright.hl.grad.replay import WITHOUT, Env, Replay, unrounded
from tilewright.hl.grad.results import Stored, lasting, load_results
from tilewright.hl.graph.nodes import HostTensor, Node, Region, Value
from tilewright.hl.trace.host import Traced
from tilewright.hl.trace.state import raw_shape

Seed = tuple[Any, Any]
"""A sample, and the sample of its gradient."""


@dataclass
class Leaf:
    """A load of a tensor that wants a gradient."""

    sample: Any
    node: Node


@dataclass
class Sub:
    """An inner loop or branch that has been called: its node, what it could read, and what it carried out."""

    node: Node
    before: Env
    after: dict[int, Any]


@dataclass
class Frame:
    """What PyTorch watches at a time: the body of one loop, or of one arm of a branch."""

    leaves: list[Leaf] = field(default_factory=list)
    stores: list[tuple[Node, Any]] = field(default_factory=list)
    subs: list[Sub] = field(default_factory=list)


class Adjoint:
    """Derives the backward pass of a graph.

    Args:
        traced: the kernel, a trace of whole calls.
        wanted: names of the tensors that want gradients.
        histories: the loops whose histories are kept.
        first: number of the first value that is made.
    """

    def __init__(self, traced: Traced, wanted: frozenset[str], histories: Histories, first: int = 0) -> None:
        self.replay, self.histories = Replay(traced, first), histories
        self.replay.blocks = histories.blocks
        self.trace, self.wanted = self.replay.trace, wanted
        self.lasting = lasting(traced)
        self.stored: list[Stored] = []
        self.left: dict[str, set[str]] = {}  # by tensor: contributions that are somebody else's affair
        self.inner: dict[int, tuple[Node, int]] = {}  # by value: which inner loop of the forward pass carries it out

    def derive(self, loop: Node, before: list[Node]) -> Region:
        """The region of the backward pass: the same grid, whose body ends with contributions to gradients.

        Args:
            loop: the top-level loop.
            before: what the graph computes before it.
        """
        with self.replay.running() as region:
            env: Env = {}
            self.replay.plain(before, env)
            self.replay.structure(loop, env, self._grid)
        return region

    def with_results(self, region: Region) -> Region:
        """A derived region that loads what the forward pass has stored."""
        return load_results(region, self.stored, self.fresh)

    def fresh(self) -> int:
        """A number that no value has."""
        return int(self.trace.fresh(torch.empty(())).id)

    def next_number(self) -> int:
        """The same, nor any number above it."""
        return self.fresh() + 1

    def _grid(self, nodes: list[Node], env: Env) -> None:
        frame = Frame()
        self.run(nodes, env, frame)
        with torch.no_grad():
            grads = self.reverse(frame, self.seeds(frame, env), [leaf.sample for leaf in frame.leaves])
            self.contribute(frame, grads, env)

    # --- forward ----------------------------------------------------------------------------------------

    def run(self, nodes: list[Node], env: Env, frame: Frame) -> None:
        """Call nodes again while PyTorch watches."""
        for node in nodes:
            try:
                self._run(node, env, frame)
            except exc.Error as error:
                error.line = error.line or node.line
                raise

    def _run(self, node: Node, env: Env, frame: Frame) -> None:
        if node.op in ("loop", "if"):
            before = dict(env)
            with torch.no_grad():
                self.replay.structure(node, env, self.replay.plain)
            if len(self.trace.loops) == 1 and node.op == "loop":
                self.inner |= {self.replay.lifted(env[out.id]).id: (node, at) for at, out in enumerate(node.outs)}
            after = {out.id: env[out.id] for out in node.outs if out.dtype.is_floating_point}
            for sample in after.values():
                sample.requires_grad_()
            frame.subs.append(Sub(node, before, after))
        elif node.op in ("store", "atomic_add"):
            frame.stores.append((node, env[node.args[2].id] if isinstance(node.args[2], Value) else None))
            if node.op == "atomic_add":
                env[node.out.id] = _Unknown()
        elif node.op.startswith("atomic_") or node.op == "while":
            raise exc.NotDifferentiable(
                f"{node.op.replace('atomic', 'hl.atomic')} has no gradient",
                hint="write a loop over hl.tile or hl.grid, and sums; or call the kernel on detached tensors",
            )
        elif node.op not in WITHOUT:
            self.replay.call(node, env)
            if node.op == "load" and node.args[0].name in self.wanted:
                frame.leaves.append(Leaf(env[node.out.id].requires_grad_(), node))

    # --- backward ---------------------------------------------------------------------------------------

    def seeds(self, frame: Frame, env: Env) -> list[Seed]:
        """What the loop stored, with the gradients that come in."""
        made = []
        for node, value in frame.stores:
            if value is None or not value.requires_grad:
                continue
            tensor, entries = node.args[:2]
            self.trace.line = node.line
            incoming = HostTensor(f"grad_{tensor.name}", "", tensor.shape, tensor.stride, tensor.dtype)
            dims = node.kwargs["dims"] if node.op == "store" else node.out.dims
            form = Value(0, dims, tensor.dtype)
            self._note(node, value, env)
            grad = self.trace.record("load", (incoming, self.replay.held(entries, env)), self.replay.blank(form))
            mask = node.kwargs.get("mask")
            if mask is not None:
                grad = torch.where(env[mask.id], grad, 0.0)
            with torch.enable_grad():
                if raw_shape(value) != raw_shape(grad):
                    value = torch.broadcast_to(value, raw_shape(grad))
            made.append((value, grad.to(value.dtype)))
        return made

    def _note(self, node: Node, sample: Any, env: Env) -> None:
        """Remember what is stored where it is computed: a store in an arm says nothing of what is outside."""
        value, region = self.replay.lifted(sample), self.trace.region
        assert region is not None
        tensor, entries = node.args[:2]
        here = any(out is value for made in region.nodes for out in made.outs)
        if here and node.op == "store" and node.kwargs.get("mask") is None and tensor.name in self.lasting:
            self.stored.append(Stored(value, tensor, self.replay.held(entries, env), tuple(node.kwargs["dims"])))

    def reverse(self, frame: Frame, seeds: list[Seed], inputs: Sequence[Any]) -> list[Any]:
        """The gradients of `inputs`: None where none flows."""
        for sub in reversed(frame.subs):
            adjoints = _gradients(seeds, list(sub.after.values()))
            known = {key: grad for key, grad in zip(sub.after, adjoints, strict=True) if grad is not None}
            self.leaving(sub, known)
            if known or any(
                node.op in ("store", "atomic_add") for region in sub.node.regions for node in _deep(region)
            ):
                self.trace.line = sub.node.line
                seeds = seeds + (self._loop(sub, known) if sub.node.op == "loop" else self._branch(sub, known))
        return _gradients(seeds, inputs)

    def leaving(self, sub: Sub, known: dict[int, Any]) -> None:
        """Called before the way back through an inner loop or branch, with what is known of its gradients."""

    def is_left(self, name: str) -> bool:
        """Whether the gradient of a tensor is somebody else's affair."""
        return False

    def _outer(self, node: Node, env: Env) -> list[Value]:
        """The values from outside of an inner region that have gradients."""
        found = [value for value in captured(node) if value.dtype.is_floating_point]
        return [value for value in found if getattr(env.get(value.id), "requires_grad", False)]

    def _loop(self, sub: Sub, known: dict[int, Any]) -> list[Seed]:
        """Go back through a loop; seeds for what it read from outside."""
        maxima = {} if sub.node in self.histories else running_maxima(sub.node)
        for at in maxima:
            known.pop(sub.node.outs[at].id, None)
        adjoints: list[int] = [at for at, out in enumerate(sub.node.outs) if out.id in known]
        while True:
            snapshot, noted = self.trace.snapshot(), len(self.stored)
            outer = self.trace.region
            assert outer is not None
            length = len(outer.nodes)
            made = Pass(self, sub, adjoints, maxima)
            seeds = made.build(known)
            if made.more <= set(adjoints):
                return seeds
            adjoints = sorted({*adjoints, *made.more})
            self.trace.restore(snapshot)
            del outer.nodes[length:], self.stored[noted:]

    def _branch(self, sub: Sub, known: dict[int, Any]) -> list[Seed]:
        """Go back through a branch: both arms give gradients for all that either read."""
        outer = self._outer(sub.node, sub.before)
        made = Node("if", self.replay.held(sub.node.args, sub.before), {}, sub.node.line)
        for region in sub.node.regions:
            with self.replay.inside(made) as fresh, torch.enable_grad():
                env, frame = dict(sub.before), Frame()
                for value in outer:
                    env[value.id] = self.replay.alias(sub.before[value.id]).requires_grad_()
                self.run(region.nodes, env, frame)
                with torch.no_grad():
                    pairs = zip(sub.node.outs, region.results, strict=True)
                    seeds = [(env[result.id], known[out.id]) for out, result in pairs if out.id in known]
                    inputs = [leaf.sample for leaf in frame.leaves] + [env[value.id] for value in outer]
                    grads = self.reverse(frame, self.seeds(frame, env) + seeds, inputs)
                    self.contribute(frame, grads[: len(frame.leaves)], env)
                    rest = grads[len(frame.leaves) :]
                    for value, grad in zip(outer, rest, strict=True):
                        grad = _zeros(env[value.id]) if grad is None else grad
                        fresh.results.append(self.replay.lifted(grad))
        seeds = []
        for value in outer:
            sample, out = self.replay.parameter(value)
            out.name = f"grad_{value.name}" if value.name else ""
            made.outs.append(out)
            seeds.append((sub.before[value.id], sample))
        self.replay.append(made)
        return seeds

    def contribute(self, frame: Frame, grads: list[Any], env: Env) -> None:
        """Write down what the loads of a frame add to gradients; loads of the same elements add up first."""
        groups: dict[Any, list[tuple[Leaf, Any]]] = {}
        for leaf, grad in zip(frame.leaves, grads, strict=True):
            if grad is None:
                continue
            name, entries = leaf.node.args[0].name, self.replay.held(leaf.node.args[1], env)
            key = str(key_of([entries, self.replay.held(leaf.node.kwargs.get("mask"), env)]))
            if self.is_left(name):
                opened = [axis.id for loop in self.trace.loops for axis in loop.kwargs["axes"]]
                self.left.setdefault(name, set()).add(f"{key} in {opened}")
            else:
                groups.setdefault((name, key), []).append((leaf, grad))
        for several in groups.values():
            leaf, total = several[0]
            for _, grad in several[1:]:
                total = total + grad
            mask = leaf.node.kwargs.get("mask")
            if mask is not None:
                total = torch.where(env[mask.id], total, 0.0)
            tensor, entries = leaf.node.args[:2]
            kwargs = {
                "dims": leaf.node.out.dims,
                "loops": [axis for loop in self.trace.loops for axis in loop.kwargs["axes"]],
            }
            self.trace.line = leaf.node.line
            self.trace.record("atomic_gradient", (tensor, self.replay.held(entries, env), total), None, kwargs)


class Pass:
    """The way back through a loop, and through one pass of it.

    Args:
        adjoint: who asks.
        sub: the loop.
        adjoints: positions of what it carries whose gradients are carried.
        maxima: the running maxima, by position.

    Attributes:
        more: positions of what turned out to have a gradient as well.
    """

    def __init__(self, adjoint: Adjoint, sub: Sub, adjoints: list[int], maxima: dict[int, Value]) -> None:
        self.adjoint, self.replay, self.sub = adjoint, adjoint.replay, sub
        self.adjoints, self.maxima = adjoints, maxima
        (self.region,) = sub.node.regions
        self.has_history = sub.node in adjoint.histories
        self.more: set[int] = set()

    def build(self, known: dict[int, Any]) -> list[Seed]:
        """Record the loop; seeds for what it read from outside."""
        node, replay = self.sub.node, self.replay
        starts = [known.get(node.outs[at].id) for at in self.adjoints]
        outs = [self.sub.after[node.outs[at].id] for at in self.adjoints]
        starts = [_zeros(out) if one is None else one for one, out in zip(starts, outs, strict=True)]
        outer = self.adjoint._outer(node, self.sub.before)
        kwargs = replay.held({key: node.kwargs[key] for key in ("begin", "end")}, self.sub.before)
        axes = [
            replace(axis, backward=axis.backward != self.has_history) for axis in replay.axes_of(node, self.sub.before)
        ]
        made = Node("loop", (), {"axes": axes, **kwargs}, node.line)
        with replay.inside(made) as fresh:
            carried = []
            for at in self.adjoints:
                sample, value = replay.parameter(node.outs[at])
                value.name = f"grad_{node.outs[at].name}" if node.outs[at].name else ""
                fresh.params.append(value)
                carried.append(sample)
            back, sums = self._body(outer, carried)
            fresh.results = [replay.lifted(sample) for sample in back]
            if self.more <= set(self.adjoints) and not self.has_history:
                self._check_order(fresh)
            seeds = [(value, grad) for value, grad in zip(outer, sums, strict=True) if grad is not None]
            totals = []
            for _, grad in seeds:
                sample, value = replay.parameter(_wide(replay.lifted(grad)))
                fresh.params.append(value)
                fresh.results.append(replay.lifted(sample + unrounded(replay, grad).to(sample.dtype)))
                totals.append(sample)
        inits = [*starts, *(torch.zeros(raw_shape(total), dtype=total.dtype) for total in totals)]
        made.args = ([replay.lifted(sample) for sample in inits],)
        found: list[Seed] = []
        inputs = node.args[0] if node.args else []
        targets = [inputs[at] for at in self.adjoints] + [value for value, _ in seeds]
        for at, (target, sample) in enumerate(zip(targets, inits, strict=True)):
            after, out = replay.parameter(replay.lifted(sample))
            out.name = f"grad_{target.name}" if target.name else ""
            made.outs.append(out)
            if fresh.params[at] is fresh.results[at]:  # the gradient of a sum, which no pass changes
                after = sample
            inner = self.sub.before[target.id]
            if inner.requires_grad:
                found.append((inner, after))
        replay.append(made)
        with torch.no_grad():
            return [(inner, after.to(inner.dtype)) for inner, after in found]

    def _body(self, outer: list[Value], carried: list[Any]) -> tuple[list[Any], list[Any]]:
        """(the gradients of what the pass was carried, the gradients of what is outside)."""
        env, frame = self._run(outer)
        with torch.no_grad():
            floats = [at for at, param in enumerate(self.region.params) if env[param.id].requires_grad]
            inputs = [leaf.sample for leaf in frame.leaves]
            inputs += [env[self.region.params[at].id] for at in floats] + [env[value.id] for value in outer]
            grads = self.adjoint.reverse(frame, self._seeds(frame, env, carried), inputs)
            self.adjoint.contribute(frame, grads[: len(frame.leaves)], env)
            back = dict(zip(floats, grads[len(frame.leaves) :], strict=False))
            self.more = {at for at, grad in back.items() if grad is not None}
            found = [back.get(at) for at in self.adjoints]
            found = [_zeros(old) if new is None else new for new, old in zip(found, carried, strict=True)]
        return found, grads[len(frame.leaves) + len(floats) :]

    def leaves(self, carried: list[Any]) -> list[tuple[Leaf, Any]]:
        """The loads of a pass, with their gradients."""
        env, frame = self._run([])
        with torch.no_grad():
            seeds = self._seeds(frame, env, carried)
            grads = self.adjoint.reverse(frame, seeds, [leaf.sample for leaf in frame.leaves])
        return list(zip(frame.leaves, grads, strict=True))

    def _run(self, outer: list[Value]) -> tuple[Env, Frame]:
        """Call the body again while PyTorch watches."""
        env, frame = dict(self.sub.before), Frame()
        settled = dict(self.replay.settled)
        with torch.enable_grad():
            for value in outer:
                env[value.id] = self.replay.alias(self.sub.before[value.id]).requires_grad_()
            for at, param in enumerate(self.region.params):
                env[param.id] = self._entering(at, param, env)
            self.adjoint.run(self.region.nodes, env, frame)
        self.replay.settled = settled
        return env, frame

    def _seeds(self, frame: Frame, env: Env, carried: list[Any]) -> list[Seed]:
        results = [env[self.region.results[at].id] for at in self.adjoints]
        return self.adjoint.seeds(frame, env) + list(zip(results, carried, strict=True))

    def _entering(self, at: int, param: Value, env: Env) -> Any:
        """What a pass is carried: a maximum's last value; nothing that is known of others."""
        out = self.sub.node.outs[at]
        if at in self.maxima:
            last = self.replay.alias(self.sub.after[out.id])
            self.replay.settled[self.maxima[at].id] = last
            return last
        carried = self._carried(at, param)
        return carried.requires_grad_() if param.dtype.is_floating_point else carried

    def _carried(self, at: int, param: Value) -> Any:
        """What the passes before have made of a variable: kept, or not known."""
        trace, node = self.adjoint.trace, self.sub.node
        trace.line = node.line
        around = [axis for loop in trace.loops for axis in loop.kwargs["axes"]]
        found = self.adjoint.histories.place(node, at, around) if self.has_history else None
        if found is None:
            return trace.record("history", (), self.replay.blank(param), {"of": param.name, "loop": node})
        return trace.record("load", found, self.replay.blank(param))

    def _check_order(self, fresh: Region) -> None:
        """Gradients that change from pass to pass would have to be carried from the last pass to the first."""
        for at, param, result in zip(self.adjoints, fresh.params, fresh.results, strict=False):
            if param is not result:
                raise self.needs_history(self.sub.node.outs[at].name)

    def needs_history(self, name: str) -> exc.HistoryNeeded:
        """The error for a variable that is not a plain sum."""
        error = exc.HistoryNeeded(
            "the gradient of this loop goes from its last pass to its first, and how many there are is not known: "
            f"{name or 'what it carries'} is not a plain sum over the passes",
            hint="give the loop a bound that the host knows, and mask; or call the loop's results .detach()",
        )
        error.line, error.loop = self.sub.node.line, self.sub.node
        return error


class _Unknown:
    """What an atomic update gives back, of which a gradient cannot be said."""

    requires_grad = False


def _wide(value: Value) -> Value:
    """The form of a sum of such values: 16-bit ones are summed in float32."""
    dtype = torch.float32 if value.dtype.itemsize < 4 else value.dtype
    return Value(value.id, value.dims, dtype, value.name)


def _zeros(like: Any) -> Any:
    """Zeros with the form of a sample, which they do not read."""
    return torch.zeros(raw_shape(like), dtype=like.dtype)


def _gradients(seeds: list[Seed], inputs: Sequence[Any]) -> list[Any]:
    live = [(out, grad) for out, grad in seeds if out.requires_grad]
    watched = [one for one in inputs if one.requires_grad]
    if not live or not watched:
        return [None] * len(inputs)
    outs, grads = zip(*live, strict=True)
    found = torch.autograd.grad(outs, watched, grads, retain_graph=True, allow_unused=True)
    by = {id(one): grad for one, grad in zip(watched, found, strict=True)}
    return [by.get(id(one)) for one in inputs]


def _deep(region: Region) -> list[Node]:
    return [inner for node in region.nodes for inner in (node, *(deep for r in node.regions for deep in _deep(r)))]
