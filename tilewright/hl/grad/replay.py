"""The nodes of a graph called once more, in a trace of their own, where PyTorch can watch them.

With gradients enabled PyTorch records what it records for any program: what it then computes as derivatives goes
through the same trace and is written down like everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace as changed
from typing import Any

import torch

from tilewright.hl import exc
from tilewright.hl.dims import Axis, Factors
from tilewright.hl.grad import derivatives
from tilewright.hl.graph.nodes import HostNumber, Node, Region, Value, operands, replace
from tilewright.hl.rows.functions import traced
from tilewright.hl.rows.products import dot
from tilewright.hl.symbols import Sym
from tilewright.hl.trace.host import Traced
from tilewright.hl.trace.modes import DispatchMode
from tilewright.hl.trace.state import Trace, raw_shape, tracing

Env = dict[int, Any]
"""Samples by the numbers of the values that they stand for."""

WITHOUT = frozenset(("print", "assert"))
"""Effects that happen in the forward pass alone."""

VIEWS = frozenset(("view", "_unsafe_view", "_reshape_alias"))
"""Calls that give a tile another shape."""

CONSTANT = frozenset(
    ("compare", "draw_integers", "draw_uniform", "full", "history", "lanes", "sole", "sym", "tile_index")
)
"""Operations of ours that read no value of which a gradient could be wanted."""


class Product(torch.autograd.Function):  # type: ignore[misc]  # torch is not checked
    """A product of ours, and its derivative: gradients are rounded to the operands' type first."""

    @staticmethod
    def forward(ctx: Any, a: Any, b: Any, acc: Any, dtype: Any) -> Any:
        """`a @ b + acc`."""
        ctx.save_for_backward(a, b)
        ctx.type = None if acc is None else acc.dtype
        return dot(a, b, acc, dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """The products of the gradient with the other operand."""
        a, b = ctx.saved_tensors
        (grad,) = grads
        low = grad.to(b.dtype)
        for_a = dot(low, b.transpose(-1, -2), None, _summed(a)) if ctx.needs_input_grad[0] else None
        for_b = dot(a.transpose(-1, -2), low, None, _summed(b)) if ctx.needs_input_grad[1] else None
        return for_a, for_b, None if ctx.type is None else grad.to(ctx.type), None


def _summed(tensor: Any) -> Any:
    return torch.float32 if tensor.dtype.itemsize < 4 else tensor.dtype


class Replay:
    """Calls nodes again.

    Args:
        traced: the kernel that they are of.
        first: number of the first value that is made.

    Attributes:
        trace: where what is called is written down.
        constants: numbers that all elements of a sample are, by its identity.
        settled: samples that stand for values whatever computes them, by the numbers of the values.
        blocks: block sizes that are fixed, by the number of the axis.
    """

    def __init__(self, traced: Traced, first: int = 0) -> None:
        assert traced.sampling is not None
        self.traced = traced
        self.trace = Trace(traced.sampling, traced.device, first)
        self.trace.factors = Factors(dict(traced.factors.atoms))
        self.trace.axes, self.trace.whole = traced.axes, True
        self.constants: dict[int, float] = {}
        self.settled: Env = {}
        self.blocks: dict[int, int] = {}

    @contextmanager
    def running(self) -> Iterator[Region]:
        """Operations of PyTorch inside are written down; yields where."""
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        self.trace.region = Region()
        try:
            with tracing(self.trace), torch.enable_grad(), DispatchMode(self.trace):
                yield self.trace.region
        finally:
            torch.set_num_threads(threads)
            self.trace.region = None

    # --- values ---------------------------------------------------------------------------------------

    def blank(self, value: Value) -> Any:
        """A sample with the form of `value`, standing for nothing yet."""
        return self.trace.sample(value)

    def parameter(self, value: Value) -> tuple[Any, Value]:
        """A sample with the form of `value`, and a new value for it."""
        sample = self.blank(value)
        fresh = self.trace.fresh(sample)
        fresh.name = value.name
        return sample, fresh

    def alias(self, sample: Any) -> Any:
        """Another sample for the same value: a leaf for PyTorch."""
        value = self.trace.value(sample)
        assert value is not None
        fresh = self.blank(value)
        self.trace.bind(fresh, value)
        return fresh

    def held(self, tree: Any, env: Env) -> Any:
        """Arguments of a node with the values that stand for its own here."""

        def change(leaf: Any) -> Any:
            return self.trace.value(env[leaf.id]) if isinstance(leaf, Value) else leaf

        return replace(tree, change)

    def axes_of(self, node: Node, env: Env) -> list[Axis]:
        """The axes of a loop, with bounds of values here."""
        made = []
        for axis in node.kwargs["axes"]:
            begin, end, parent = self.held([axis.begin, axis.end, axis.parent], env)
            block = self.blocks.get(axis.id, axis.block)
            made.append(changed(axis, begin=begin, end=end, parent=parent, block=block))
            ends = env[axis.parent.id] if isinstance(axis.parent, Value) else end
            self.trace.bounds[axis.id] = begin, ends
        return made

    # --- nodes ----------------------------------------------------------------------------------------

    def call(self, node: Node, env: Env) -> None:
        """Call a node that holds no regions."""
        self.trace.line = node.line
        before = len(self.trace.region.nodes) if self.trace.region else 0
        made = self._simple(node, env)
        if made is None:
            made = self._called(node, env)
        outs = made if isinstance(made, tuple | list) else [made]
        for out, sample in zip(node.outs, outs, strict=False):
            env[out.id] = sample
            value = self.trace.value(sample)
            if value is not None and not value.name:
                value.name = out.name
        assert self.trace.region is not None
        for fresh in self.trace.region.nodes[before:]:
            fresh.line = node.line

    def _called(self, node: Node, env: Env) -> Any:
        if node.function is not None and node.op not in _DERIVED:
            args, kwargs = (
                replace(tree, lambda leaf: _argument(self.trace, leaf, env)) for tree in (node.args, node.kwargs)
            )
            if node.op in VIEWS and not isinstance(args[1], torch.dtype):  # samples have other strides here
                return torch.reshape(*args[:2])
            made = node.function(*args, **kwargs)
            _check_cut(node, made, [env[value.id] for value in operands(node)])
            return made
        if node.op == "product":
            a, b, acc = (env[arg.id] if isinstance(arg, Value) else arg for arg in node.args)
            return Product.apply(a, b, acc, node.out.dtype)
        watched = torch.is_grad_enabled() and any(env[value.id].requires_grad for value in operands(node))
        if watched and node.op in _DERIVED:
            return _DERIVED[node.op](self, node, env)
        if watched and node.op != "largest" and node.op not in CONSTANT and node.op != "load":
            raise exc.NotDifferentiable(
                f"{_NAMES.get(node.op, node.op)} has no gradient",
                hint=_INSTEAD.get(node.op, "")
                + "call .detach() on what it is given, if no gradient is meant to flow through it",
            )
        if node.function is not None:
            args, kwargs = (
                replace(tree, lambda leaf: _argument(self.trace, leaf, env)) for tree in (node.args, node.kwargs)
            )
            return node.function(*args, **kwargs)
        return self._recorded(node, env)

    def _recorded(self, node: Node, env: Env) -> Any:
        samples = tuple(map(self.blank, node.outs))
        args, kwargs = self.held(node.args, env), self.held(node.kwargs, env)
        made = self.trace.record(node.op, args, samples, kwargs, node.compute)
        if node.op in ("reduce_fn", "scan_fn"):
            region = traced(self._combine(node), [env[value.id] for value in node.args[0]])
            assert self.trace.region is not None
            self.trace.region.nodes[-1].regions = [region]
        return made

    def _combine(self, node: Node) -> Callable[..., list[Any]]:
        """The function of a scan or reduction, which takes elements or tiles of them."""
        (region,) = node.regions

        def combine(*elements: Any) -> list[Any]:
            inner = dict(zip((param.id for param in region.params), elements, strict=True))
            for one in region.nodes:
                self.call(one, inner)
            return [inner[result.id] for result in region.results]

        return combine

    def _scan(self, node: Node, env: Env) -> Any:
        return derivatives.scan(node, [env[value.id] for value in node.args[0]], self._combine(node))

    def _reduce(self, node: Node, env: Env) -> Any:
        tiles = [env[value.id] for value in node.args[0]]

        def run(*tiles: Any) -> Any:
            given = dict(zip((value.id for value in node.args[0]), tiles, strict=True))
            return self._recorded(node, given)

        return derivatives.reduced(node, tiles, self._combine(node), run)

    def _take(self, node: Node, env: Env) -> Any:
        source, index, dim = node.args
        return derivatives.Take.apply(env[source.id], env[index.id], dim)

    def _cumsum(self, node: Node, env: Env) -> Any:
        source, dim = node.args[:2]
        return derivatives.Cumsum.apply(env[source.id], dim, bool(node.kwargs.get("reverse")))

    def _cumprod(self, node: Node, env: Env) -> Any:
        source, dim = node.args[:2]
        tile = env[source.id].to(node.out.dtype)
        (made,) = derivatives.Scan.apply(_times, 0, dim % tile.dim(), bool(node.kwargs.get("reverse")), tile)
        return made

    def _join(self, node: Node, env: Env) -> Any:
        return torch.stack([env[value.id] for value in node.args], -1)

    def _split(self, node: Node, env: Env) -> Any:
        return tuple(env[node.args[0].id].select(-1, at) for at in (0, 1))

    def _simple(self, node: Node, env: Env) -> Any:
        """What a node is without being called: a settled value, or what constants make of it; None for others."""
        if node.outs and all(out.id in self.settled for out in node.outs):
            return tuple(self.settled[out.id] for out in node.outs)
        if node.function is None or not self.settled:
            return None
        given = [env[arg.id] if isinstance(arg, Value) else arg for arg in node.args]
        numbers = [self.constants.get(id(one)) for one in given]
        if node.op == "sub" and len(given) == 2 and given[0] is given[1]:
            return self._constant(given[0], 0.0)  # a maximum of which all passes know the last value
        if node.op in ("exp", "exp2") and numbers == [0.0]:
            return self._constant(given[0], 1.0)
        if node.op == "mul" and 0.0 in numbers and isinstance(given[1 - numbers.index(0.0)], float):
            return self._constant(given[numbers.index(0.0)], 0.0)
        if node.op in ("unsqueeze", "view", "expand") and numbers[0] is not None:
            made = self._called(node, env)
            self.constants[id(made)] = numbers[0]
            return made
        if node.op == "mul" and 1.0 in numbers:
            other = given[1 - numbers.index(1.0)]
            same = isinstance(other, torch.Tensor) and raw_shape(other) == raw_shape(self.blank(node.out))
            return other if same and other.dtype == node.out.dtype else None
        return None

    def _constant(self, like: Any, number: float) -> Any:
        made = torch.full_like(like, number)
        self.constants[id(made)] = number
        return made

    # --- regions --------------------------------------------------------------------------------------

    def plain(self, nodes: list[Node], env: Env) -> None:
        """Call nodes again without what they change in memory, and those in their regions."""
        for node in nodes:
            if node.op in ("loop", "if"):
                self.structure(node, env, self.plain)
            elif node.op == "while":
                raise exc.NotDifferentiable("`while` has no gradient", hint="write hl.tile or hl.grid with a bound")
            elif node.op != "store" and node.op not in WITHOUT and not node.op.startswith("atomic"):
                self.call(node, env)

    def structure(self, node: Node, env: Env, run: Callable[[list[Node], Env], None]) -> Node:
        """A loop or a branch again, with what `run` makes of its bodies; gives the samples of its results to `env`."""
        axes = self.axes_of(node, env) if node.op == "loop" else []
        kwargs = {
            **self.held({k: v for k, v in node.kwargs.items() if k != "axes"}, env),
            **({"axes": axes} if axes else {}),
        }
        made = Node(node.op, self.held(node.args, env), kwargs, node.line)
        for region in node.regions:
            with self.inside(made) as fresh:
                inner = dict(env)
                for param in region.params:
                    inner[param.id], value = self.parameter(param)
                    fresh.params.append(value)
                run(region.nodes, inner)
                fresh.results = [self.lifted(inner[result.id]) for result in region.results]
        for out in node.outs:
            env[out.id], value = self.parameter(out)
            made.outs.append(value)
        self.append(made)
        return made

    def lifted(self, sample: Any) -> Value:
        """The value that a sample stands for."""
        value = self.trace.value(sample)
        assert value is not None
        return value

    @contextmanager
    def inside(self, node: Node) -> Iterator[Region]:
        """What is called inside is in a new region of `node`."""
        outer, region = self.trace.region, Region()
        self.trace.region = region
        if node.op == "loop":
            self.trace.loops.append(node)
        try:
            yield region
        finally:
            if node.op == "loop":
                self.trace.loops.pop()
            self.trace.region = outer
        node.regions.append(region)

    def append(self, node: Node) -> None:
        """Put a node at the end of the open region."""
        assert self.trace.region is not None
        self.trace.region.nodes.append(node)


def _check_cut(node: Node, made: Any, given: list[Any]) -> None:
    """Refuse a call of PyTorch's that has a floating-point result and no derivative, and says nothing."""
    called = isinstance(node.function, torch._ops.OpOverload) and node.op not in _WITHOUT_OPERANDS
    if not called or not torch.is_grad_enabled() or not any(one.requires_grad for one in given):
        return  # a maximum that is held (`degree.shifts`) is no operator of PyTorch's
    for out in made if isinstance(made, tuple | list) else (made,):
        if out.is_floating_point() and not out.requires_grad:
            raise exc.NotDifferentiable(
                f"torch.{node.op.replace('special_', 'special.')} has no gradient in PyTorch",
                hint="call .detach() on what it is given, if no gradient is meant to flow through it",
            )


def held(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function through whose calls no gradient flows."""

    def run(*args: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            return function(*args, **kwargs)

    return run


def unrounded(replay: Replay, sample: Any) -> Any:
    """A sample for what `sample` was rounded of, if that was the last thing done; else itself.

    Sums over passes are of numbers as they were computed: PyTorch rounds each gradient to the type of its tensor.
    """
    value = replay.lifted(sample)
    assert replay.trace.region is not None
    made = next((node for node in reversed(replay.trace.region.nodes) if value in node.outs), None)
    if made is None or made.op != "_to_copy" or not isinstance(made.args[0], Value):
        return sample
    source = made.args[0]
    if not source.dtype.is_floating_point or source.dtype.itemsize <= value.dtype.itemsize:
        return sample
    fresh = replay.blank(source)
    replay.trace.bind(fresh, source)
    return fresh


def _argument(trace: Trace, leaf: Any, env: Env) -> Any:
    """What a node is called with for a leaf of its arguments: PyTorch's formulas take numbers for constants."""
    if isinstance(leaf, Value):
        return env[leaf.id]
    if isinstance(leaf, HostNumber):
        with trace.silence():
            stands_for = torch.full((), 1.5)
        return trace.record("full", (leaf,), stands_for)
    return leaf.sample if isinstance(leaf, Sym) else leaf


def _times(a: Any, b: Any) -> tuple[Any]:
    """A running product's combine function."""
    return (a * b,)


_DERIVED: dict[str, Callable[[Replay, Node, Env], Any]] = {
    "cumprod": Replay._cumprod,
    "cumsum": Replay._cumsum,
    "join_pair": Replay._join,
    "reduce_fn": Replay._reduce,
    "scan_fn": Replay._scan,
    "silu_backward": lambda _, node, env: derivatives.silu_backward(*(env[arg.id] for arg in node.args)),
    "split_pair": Replay._split,
    "take_lanes": Replay._take,
}
"""Operations whose derivatives are ours, or PyTorch's under another name."""
_WITHOUT_OPERANDS = frozenset(
    "detach empty_like full_like new_empty new_full new_ones new_zeros ones_like zeros_like".split()  # noqa: SIM905
)
"""Calls whose results do not depend on the elements of what they are given, or are not meant to have gradients."""
_NAMES = {
    "assembly": "hl.inline_asm_elementwise",
    "call": "inline code",
    "scaled_product": "hl.dot_scaled",
    "keep": "an accumulator of a block size that the program registers",
    "sort_lanes": "sorting",
}
_INSTEAD = {
    "keep": "reduce each tile in its pass, as in total = total + values.sum(-1), and carry one number a row; or "
}
