"""Calls of kernels on tensors that want gradients."""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

import torch

from tilewright.hl import exc
from tilewright.hl.config import Config
from tilewright.hl.constexpr import plain
from tilewright.hl.grad import counts, names
from tilewright.hl.grad.loops import Backward, Loop
from tilewright.hl.grad.runs import Place, Run, running
from tilewright.hl.grad.sizes import depend_on_tiles
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

    Attributes:
        bound: the kernel for these arguments.
        places: for backward passes of whole calls (`again`) which results the loops save, by configuration and what
            is wanted; None where loops run again.
    """

    def __init__(self, kernel: Kernel, args: tuple[Any, ...]) -> None:
        self.kernel, self.bound = kernel, kernel.found(args)
        arguments = dict(zip(kernel.signature.parameters, marked(kernel, args), strict=True))
        outside = reads(kernel.fn, arguments)
        options = SimpleNamespace(static_shapes=True, check_trace=True, index_dtype=kernel.settings.index_dtype)
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
        return self._last[1].run(*args)

    def run(self, config: Config, args: tuple[Any, ...]) -> Any:
        """The same in a configuration."""
        return self._loaded_for(config).run(*args)

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
            fixed = bool(self.bound.configs) or any(depend_on_tiles(graph.region) for graph in self.traces[0].graphs)
            settings = self.kernel.settings
            count = len(self.traces[0].graphs)
            found = [Loop(self.kernel.name, self.traces, at, settings, sizes, fixed, config) for at in range(count)]
            self._loops[config] = found
        return found


_known: WeakKeyDictionary[Kernel, dict[Any, list[Differentiated]]] = WeakKeyDictionary()


def differentiated(kernel: Kernel, args: tuple[Any, ...]) -> Differentiated:
    """The kernel as a part of autograd for arguments like these, derived when they are new.

    Whatever makes another binding makes another derivative: constants, what the host decided, a key of the user's.
    """
    key = kernel.found(args), *(key_of(arg, True) for arg in marked(kernel, args))
    several = _known.setdefault(kernel, {}).setdefault(key, [])
    found = next((one for one in several if one.holds(args)), None)
    if found is None:
        with torch.no_grad():
            found = Differentiated(kernel, args)
        several.append(found)
    return found


def call(kernel: Kernel, args: tuple[Any, ...]) -> Any:
    """Call a kernel so that PyTorch can go back through it."""
    found = differentiated(kernel, args)
    kernel.watched = found if kernel.settings.static_shapes else None  # else sizes are constants here, and not there
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
    for loop in found.loops():
        floats = [(name, t.text) for name, t in loop.loaded.items() if t.dtype.is_floating_point]
        own = [name for name, text in floats if not wanted or text not in kernel.signature.parameters or text in wanted]
        if own and loop.written:
            made.append((loop.line, loop.as_called(frozenset(own))))
    return made


def _leaf(arg: Any, wanted: bool) -> Any:
    """An argument as a leaf of PyTorch's graph."""
    if not isinstance(arg, torch.Tensor):
        return arg
    return arg.detach().requires_grad_(wanted and arg.is_floating_point())
