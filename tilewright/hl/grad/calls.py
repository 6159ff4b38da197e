"""Calls of kernels on tensors that want gradients."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import torch

from tilewright.hl import exc
from tilewright.hl.config import Config
from tilewright.hl.constexpr import plain
from tilewright.hl.grad import counts, names, runs
from tilewright.hl.grad.loops import Backward, Loop
from tilewright.hl.grad.runs import Place, Run, running
from tilewright.hl.grad.sizes import Tiles, has_products, tiles_of_backward
from tilewright.hl.passes.decide import Decision
from tilewright.hl.runtime import gradient_slot
from tilewright.hl.runtime.guard import make_holds
from tilewright.hl.runtime.kernel import Kernel, marked
from tilewright.hl.runtime.keys import key_of
from tilewright.hl.runtime.loaded import Loaded
from tilewright.hl.trace import host
from tilewright.hl.trace.outside import namespace, reads


class Differentiated:
    """A kernel that takes part in autograd, for one kind of arguments.

    Args:
        kernel: it.
        args: the arguments of a call, all by position.
        static: whether sizes are constants of the derivation.

    Attributes:
        bound: the kernel for these arguments.
        places: for backward passes of whole calls (`again`) which results the loops save, by configuration and what
            is wanted; None where loops run again.
    """

    def __init__(self, kernel: Kernel, args: tuple[Any, ...], static: bool) -> None:
        self.kernel, self.bound, self.static = kernel, kernel.found(args), static
        arguments = dict(zip(kernel.signature.parameters, marked(kernel, args), strict=True))
        outside = reads(kernel.fn, arguments)
        options = SimpleNamespace(static_shapes=static, check_trace=True, index_dtype=kernel.settings.index_dtype)
        try:
            self.traces = host.trace_whole(kernel.source, kernel.scope, arguments, options, outside)
        except exc.Error as error:  # of a kernel that compiles
            refused = exc.NotDifferentiable(
                f"it can be compiled, but not be followed by PyTorch: {error.message}", error.location, hint=error.hint
            )
            raise refused from error
        facts, _ = (counts.settle(traced) for traced in self.traces)
        for traced in self.traces:
            names.settle(traced)
        facts = [*self.traces[0].guards, *facts]
        self._holds = make_holds(list(arguments), facts, outside, namespace(kernel.fn))
        self._is_free = not facts and not outside
        if len(self.traces[0].graphs) != len(self.bound.traced.graphs) or self.traces[0].effects.is_random:
            raise exc.NotDifferentiable(
                "random functions of torch in a loop have no gradient, nor has host code that runs other loops for "
                "other sizes",
                kernel.source.location(kernel.source.tree),
                hint="draw with hl.rand(shape, seed), whose numbers can be drawn again",
            )
        self._loops: dict[Config, list[Loop]] = {}
        self._loaded: dict[Any, Loaded] = {}
        self._last: tuple[Config | None, Any] = None, None
        self.places: dict[Any, dict[Place, int] | None] = {}

    def holds(self, args: tuple[Any, ...]) -> bool:
        """Whether what the traces assumed is true of a call."""
        return self._is_free or self._holds(*map(plain, args))

    def __call__(self, args: tuple[Any, ...]) -> Any:
        """Run the kernel; PyTorch goes back through its loops."""
        config = self.bound.config
        if config is None or config is not self._last[0]:
            self.bound.ensure_config_exists(args)
            config = self.bound.config
            assert config is not None
            self._last = config, self._loaded_for(config)
        return self._run(self._last[1], args)

    def run(self, config: Config, args: tuple[Any, ...]) -> Any:
        """The same in a configuration."""
        return self._run(self._loaded_for(config), args)

    def _run(self, loaded: Loaded, args: tuple[Any, ...]) -> Any:
        if self.static:
            return loaded.run(*args)
        with runs.called_with(args):
            return loaded.run(*args)

    def _loaded_for(self, config: Config) -> Loaded:
        loaded = self._loaded.get(config)
        if loaded is None:
            loops = self.loops(config)
            scope = {**self.bound.scope, **self.bound.traced.captured, "_steps": loops}
            module = self.bound.module(config, around=lambda at, launch: loops[at].text(launch))
            loaded = self._loaded[config] = Loaded(self.bound.name, module, scope, self.bound.source.file)
        return loaded

    def loops(self, config: Config | None = None) -> list[Loop]:
        """The top-level loops for a configuration; None for the one that a call has."""
        config = config or self.bound.config or self.bound.default_config()
        found = self._loops.get(config)
        if found is None:
            decision = Decision(config, list(self.bound.traced.axes))
            sizes = {axis.id: decision.block(axis) for axis in self.bound.traced.axes}
            name, settings = self.kernel.name, self.kernel.settings
            found = []
            for at, (graph, whole) in enumerate(zip(self.bound.traced.graphs, self.traces[0].graphs, strict=True)):
                given = self.bound.configs and not has_products(graph.region)
                tiles = Tiles(sizes, fixed=True) if given else tiles_of_backward(graph.region, whole.region, sizes)
                found.append(Loop(name, self.traces, at, settings, tiles, config, self._closed(config, at)))
            self._loops[config] = found
        return found

    def _closed(self, config: Config, at: int) -> Callable[[], Loop] | None:
        """What gives a loop where the sizes of the call that runs are constants."""
        if self.static:
            return None
        return lambda: differentiated(self.kernel, runs.arguments(), static=True).loops(config)[at]


def differentiated(kernel: Kernel, args: tuple[Any, ...], static: bool = False) -> Differentiated:
    """The kernel as a part of autograd for arguments like these, derived when they are new.

    Whatever makes another binding makes another derivative: constants, what the host decided, a key of the user's.

    Args:
        kernel: it.
        args: the arguments of a call, all by position.
        static: whether sizes are constants of the derivation though the kernel leaves them open. They are where it
            cannot be followed otherwise.
    """
    static = static or kernel.settings.static_shapes
    key = kernel.found(args), static, *(key_of(arg, static) for arg in marked(kernel, args))
    several: list[Differentiated | None] = kernel.derived.setdefault(key, [])
    if None in several:
        return differentiated(kernel, args, static=True)
    found = next((one for one in several if one is not None and one.holds(args)), None)
    if found is None:
        try:
            with torch.no_grad():
                found = Differentiated(kernel, args, static)
        except exc.NotDifferentiable:
            if static:
                raise
            several.append(None)
            return differentiated(kernel, args, static=True)
        several.append(found)
    return found


def call(kernel: Kernel, args: tuple[Any, ...]) -> Any:
    """Call a kernel so that PyTorch can go back through it."""
    found = differentiated(kernel, args)
    kernel.watched = found if found.static == kernel.settings.static_shapes else None  # else sizes are not constants
    return found(args)


def backward_of(kernel: Kernel, args: tuple[Any, ...]) -> list[tuple[int, Backward]]:
    """For each top-level loop through which gradients flow its line, and its way back.

    Args:
        kernel: it.
        args: arguments of a call; where none requires a gradient, all floating-point tensors do.
    """
    with torch.no_grad():
        found = differentiated(kernel, args)
    wanted = {name for name, arg in zip(kernel.signature.parameters, args, strict=True) if gradient_slot.wants(arg)}
    given = tuple(_leaf(arg, not wanted or gradient_slot.wants(arg)) for arg in args)
    with suppress(exc.Error), running(Run(launching=False)), torch.enable_grad():  # finds out what are views
        found.run(found.bound.config or found.bound.default_config(), given)
    made = []
    with runs.called_with(args):
        for loop in found.loops():
            floats = [(name, t.text) for name, t in loop.loaded.items() if t.dtype.is_floating_point]
            names = kernel.signature.parameters
            own = [name for name, text in floats if not wanted or text not in names or text in wanted]
            if own and loop.written:
                made.append((loop.line, loop.as_called(frozenset(own))))
    return made


def _leaf(arg: Any, wanted: bool) -> Any:
    """An argument as a leaf of PyTorch's graph."""
    if not isinstance(arg, torch.Tensor):
        return arg
    return arg.detach().requires_grad_(wanted and arg.is_floating_point())
