"""A top-level loop as one step of PyTorch's autograd: the launch forward, the derived kernel backward.

What stands around loops on the host is PyTorch's own to differentiate: `q.reshape`, `losses.mean()`, `partial.sum(0)`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import compress
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from tilewright import errors
from tilewright.hl import exc
from tilewright.hl.config import Config
from tilewright.hl.grad import aliases, overwritten, runs
from tilewright.hl.grad.derive import Asked, Derived, derive, place, tensors_of
from tilewright.hl.grad.extents import actual, host_numbers
from tilewright.hl.grad.made import differentiable, kernel_of
from tilewright.hl.grad.program import Program
from tilewright.hl.grad.sizes import Tiles
from tilewright.hl.graph.nodes import walk
from tilewright.hl.runtime import tracer_slot
from tilewright.hl.runtime.kernel import Kernel
from tilewright.hl.settings import Settings
from tilewright.hl.symbols import Sym
from tilewright.hl.trace.host import Traced


class Backward:
    """The backward pass of a loop for certain tensors.

    Args:
        derived: the kernel's program and text.
        loaded: names of the tensors that the loop loads, in the order of its step.
        written: the same of those that it writes.
        settings: of the kernel that is differentiated.
        config: of the derived kernel; None where it is chosen.
        place: of the loop in the user's file.
        writes: what becomes of what the written tensors hold.
        forward_config: of the forward pass that keeps more than results.

    Attributes:
        forward: the forward pass that keeps more than results; None where the launch of the loop does.
        kept: names of what it keeps.
        watched: gives the backward pass that may have a gradient itself: for it nothing more than results is kept.
        saved: names of the tensors that are kept for it.
        places: of these among those that are loaded and written.
        copied: which of the loaded tensors the loop changes, so that a copy is saved.
        added: for each written tensor whether the loop only adds to it.
        is_checked: whether the kernel is known to compile.
        is_by_index: whether it adds up anything in any order, or would, if that were not forbidden.
    """

    def __init__(
        self,
        derived: Derived,
        loaded: list[str],
        written: list[str],
        settings: Settings,
        config: Config | None,
        place: errors.Location,
        writes: overwritten.Writes,
        forward_config: Config | None = None,
    ) -> None:
        self.derived, self.loaded, self.written, self.place = derived, loaded, written, place
        program = derived.program
        self.forward: Kernel | None = None
        self.kept: list[str] = []
        self.watched: Callable[[], Backward] = lambda: self
        if derived.forward is not None and derived.text:
            self.forward = _kernel(derived.forward, derived.forward_text, settings, forward_config)
            self.kept = list(derived.forward.results)
        self.kernel = _kernel(program, derived.text, settings, config) if derived.text else None
        self._twice: Kernel | None = None
        self.is_checked = False
        incoming = {f"grad_{name}" for name in written}
        self.saved = [name for name in program.tensors if name not in incoming]
        self.parameters = program.parameters
        if not derived.text:
            self.saved = self.parameters = []
        self.places = [[*loaded, *written, *self.kept].index(name) for name in self.saved]
        self.is_by_index = any(owner.is_atomic or owner.form == "sorted" for owner in derived.owners)
        self.results = [owner.tensor for owner in derived.owners if owner.form != "joined"]
        held = set(map(overwritten.before, writes.held))
        self.copied = [at for at, name in enumerate(loaded) if name in held & set(self.saved)]
        self.added = [name in writes.added for name in written]

    def __call__(self, given: Mapping[str, Any], watched: bool = False) -> dict[str, Any]:
        """The gradients, by name of the tensor.

        Args:
            given: saved tensors, numbers, and the gradients that come in, by name.
            watched: whether the gradients have gradients themselves.

        Raises:
            NotDifferentiable: they are wanted, and there are none.
        """
        if self.kernel is None:
            return {}
        kernel = self.kernel
        if watched:
            kernel = self._twice = self._twice or differentiable(kernel)
        made = kernel(*(given[name] for name in self.parameters))
        return dict(zip(self.results, made, strict=True))

    def run_forward(self, tensors: tuple[Any, ...], numbers: Mapping[str, Any]) -> tuple[Any, ...]:
        """Run the loop and give what it keeps, from tensors that are loaded and written."""
        assert self.forward is not None and self.derived.forward is not None
        given = {**dict(zip((*self.loaded, *self.written), tensors, strict=True)), **numbers}
        program = self.derived.forward
        with torch.no_grad():
            made = self.forward(*(given[name] for name in program.parameters))
        return tuple(made)

    def check(self, named: Mapping[str, Any]) -> None:
        """Bind the kernel before the loop runs: what cannot be compiled is an error of the forward call.

        Raises:
            NotDifferentiable: something in the kernel has no meaning on tiles.
        """
        self.is_checked = self.is_checked or self.kernel is None
        if self.is_checked or self.kernel is None:
            return
        given = dict(named) | {f"grad_{name}": torch.empty_like(named[name]).contiguous() for name in self.written}
        try:
            with _disable_current_modes():
                if self.forward is not None and self.derived.forward is not None:
                    program = self.derived.forward
                    self.forward.bind(tuple(given[name] for name in program.parameters))
                    device = next(tensor.device for tensor in named.values() if isinstance(tensor, torch.Tensor))
                    kept = [node.args[0] for node in walk(program.region) if node.op == "store"]
                    given |= {
                        one.name: torch.empty(actual(one.shape, given), dtype=one.dtype, device=device)
                        for one in kept
                        if one.name in self.kept
                    }
                self.kernel.bind(tuple(given[name] for name in self.parameters))
        except exc.Error as error:
            raise exc.NotDifferentiable(
                f"the derivative cannot be computed on tiles: {error.message}",
                hint="write the function with others, or call .detach() on what it is given",
            ) from error
        self.is_checked = True


class Step(torch.autograd.Function):  # type: ignore[misc]  # torch is not checked
    """One loop, for PyTorch."""

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """A step of autograd. What PyTorch's own method does besides, 1.2 µs of a call, serves `torch.func`."""
        if tracer_slot.transform() is not None:
            return super().apply(*args)
        return super(torch.autograd.Function, cls).apply(*args)

    @staticmethod
    def forward(
        ctx: Any,
        call: tuple[
            Backward, Callable[[], None], Mapping[str, Any], Mapping[str, Any] | None, Sequence[tuple[Any, int]]
        ],
        *tensors: Any,
    ) -> Any:
        """Run the loop, which writes the last of `tensors`.

        Args:
            ctx: what autograd keeps.
            call: (the way back, the launch, numbers, what is saved in the place of the tensor of a name, if anything,
                views whose elements are saved and their versions).
            tensors: those that are loaded and those that are written.
        """
        ctx.way_back, launch, ctx.numbers, given, ctx.views = call
        kept: tuple[Any, ...] = ()
        if ctx.way_back.forward is None:
            launch()
        else:
            kept = ctx.way_back.run_forward(tensors, ctx.numbers)
        saved = [(*tensors, *kept)[place] for place in ctx.way_back.places]
        if given:
            saved = [given.get(name, own) for name, own in zip(ctx.way_back.saved, saved, strict=True)]
        outs = tensors[len(ctx.way_back.loaded) :]
        ctx.mark_dirty(*outs)
        if saved:
            ctx.save_for_backward(*saved)
        return outs

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Run the derived kernel."""
        backward: Backward = ctx.way_back
        given = dict(zip(backward.saved, ctx.saved_tensors, strict=True)) | ctx.numbers
        if any(view._version != version for view, version in ctx.views):
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: "
                f"the result of {backward.derived.program.name.removesuffix('_backward')}, which is a view"
            )
        given |= {f"grad_{name}": g.contiguous() for name, g in zip(backward.written, grads, strict=True)}
        made = _watched(backward, given) if torch.is_grad_enabled() else backward(given)
        passed = [grad if added else None for grad, added in zip(grads, backward.added, strict=True)]
        return None, *(made.get(name) for name in backward.loaded), *passed


def _watched(backward: Backward, given: dict[str, Any]) -> dict[str, Any]:
    """Gradients that have gradients: the derived kernel is differentiated as any other, or it is said why not."""
    reason = "what the forward pass keeps has no history"
    try:
        whole = backward.watched()
        if given.keys() >= {*whole.saved}:
            return whole(given, watched=True)
    except exc.NotDifferentiable as error:
        reason = error.message or ""
    with torch.no_grad():
        made = backward(given)
    watched = [one for one in given.values() if isinstance(one, torch.Tensor) and one.requires_grad]
    call = backward.derived.program.name, reason, backward.place, len(made)
    return dict(zip(list(made), Once.apply(call, *made.values(), *watched), strict=True))


class Into(torch.autograd.Function):  # type: ignore[misc]  # torch is not checked
    """A view that a loop has written. PyTorch takes the first argument of a function to be the view that it changes."""

    @staticmethod
    def forward(ctx: Any, view: Any, written: Any, added: bool) -> Any:
        """`written` has the elements of `view`, and the gradient."""
        ctx.added = added
        ctx.mark_dirty(view)
        return view

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """What the view held is gone, or added to. PyTorch takes None for a gradient of the whole tensor."""
        return grads[0] if ctx.added else torch.zeros_like(grads[0]), grads[0], None


class Once(torch.autograd.Function):  # type: ignore[misc]  # torch is not checked
    """Gradients that have no gradient themselves: asking for one is an error, not nothing."""

    @staticmethod
    def forward(ctx: Any, call: tuple[str, str, errors.Location, int], *tensors: Any) -> Any:
        """The first of the tensors; `call`: the name of the gradient, why it has none, the loop, and how many."""
        ctx.name, ctx.reason, ctx.place, count = call
        return tuple(tensor.view_as(tensor) for tensor in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Refuse."""
        raise exc.DoubleBackward(
            f"the gradient of {ctx.name}, which is itself a gradient, is not derived: {ctx.reason}",
            ctx.place,
            hint="call loss.backward() without create_graph=True, or compute this part in PyTorch",
        )


class Loop:
    """A top-level loop that takes part in autograd.

    Args:
        name: of the kernel.
        traces: of the kernel, two with other samples.
        at: number of the loop.
        settings: of the kernel.
        tiles: those that the backward pass may have.
        config: of the forward pass.
        closed: where sizes are open in `traces`, gives the same loop with those of the call that runs as constants.
    """

    def __init__(
        self,
        name: str,
        traces: tuple[Traced, Traced],
        at: int,
        settings: Settings,
        tiles: Tiles,
        config: Config,
        closed: Callable[[], Loop] | None = None,
    ) -> None:
        self.name, self.traces, self.at, self.settings = name, traces, at, settings
        self.tiles, self.config, self.closed = tiles, config, closed
        loaded, written = tensors_of(traces[0], at)
        self.writes = overwritten.Writes(traces[0].graphs[at].region)
        self.loaded = {
            overwritten.before(key) if key in self.writes.held else key: tensor for key, tensor in loaded.items()
        }
        held = set(map(overwritten.before, self.writes.held))
        self._apart = [name not in held for name in self.loaded]  # which must not meet what is written
        self.written = {key: tensor for key, tensor in written.items() if _floats(tensor)}
        self.line = traces[0].graphs[at].line
        shapes = [size for tensor in (*self.loaded.values(), *self.written.values()) for size in tensor.shape]
        self._is_open = closed is not None and any(isinstance(size, Sym) for size in shapes)
        self.numbers = Program(name, traces[0].graphs[at].region).numbers | host_numbers(shapes)
        self._views = [] if self.writes.held else aliases.candidates(self.loaded, traces[0].source.tree)
        self._known: dict[Asked, Backward] = {}
        self._wanted: dict[tuple[bool, ...], frozenset[str]] = {}
        self._ready: dict[tuple[bool, ...], Backward] = {}  # what calls like one before need not look at again
        self._shut: set[tuple[bool, ...]] = set()  # calls for which sizes have to be constants

    def text(self, launch: str) -> str:
        """What the host does in the place of the launch."""
        loads = "".join(f"{tensor.text}, " for tensor in self.loaded.values())
        outs = "".join(f"{tensor.text}, " for tensor in self.written.values())
        numbers = ", ".join(f"{name!r}: {text}" for name, text in self.numbers.items())
        return f"_steps[{self.at}](lambda: {launch}, ({loads}), ({outs}), {{{numbers}}})"

    def __call__(
        self, launch: Callable[[], None], loads: tuple[Any, ...], outs: tuple[Any, ...], numbers: dict[str, Any]
    ) -> None:
        """Run the loop; see `text`."""
        run = runs.current()
        if run is None:
            ready = self._ready.get(tuple([tensor.requires_grad for tensor in loads]))
            if ready is None or not torch.is_grad_enabled() or any(out.requires_grad or out._is_view() for out in outs):
                self._step(launch, loads, outs, numbers, {})
                return
            self._check_apart(loads, outs)
            Step.apply((ready, launch, numbers, None, ()), *loads, *outs)
            return
        names = [*self.loaded, *self.written]
        launch, given = run.step(self.at, launch, names)
        saved = self._step(launch, loads, outs, numbers, given, keeps=False)
        run.passed(self.at, dict(zip(names, (*loads, *outs), strict=True)), saved, self.written)

    def _step(
        self,
        launch: Callable[[], None],
        loads: tuple[Any, ...],
        outs: tuple[Any, ...],
        numbers: dict[str, Any],
        given: dict[str, Any],
        keeps: bool = True,
    ) -> list[str]:
        """Run the loop; names of the tensors that are saved for the backward pass."""
        flags = tuple([tensor.requires_grad for tensor in loads])
        changed = [name for name, out in zip(self.written, outs, strict=True) if out.requires_grad]
        wanted = self._wanted.get(flags)
        if wanted is None:
            names = zip(self.loaded, flags, strict=True)
            wanted = self._wanted[flags] = frozenset(name for name, flag in names if flag)
        if not (wanted or changed) or not torch.is_grad_enabled():
            launch()
            return []
        if not outs:
            launch()
            return []
        if self.closed is not None and flags in self._shut:
            return self.closed()._step(launch, loads, outs, numbers, given, keeps)
        try:
            backward = self._way_back(flags, wanted, changed, loads, outs, numbers, keeps)
        except exc.NotDifferentiable:
            if self.closed is None:
                raise
            self._shut.add(flags)
            return self.closed()._step(launch, loads, outs, numbers, given, keeps)
        self._apply(backward, launch, loads, outs, numbers, given)
        return backward.saved

    def _way_back(
        self,
        flags: tuple[bool, ...],
        wanted: frozenset[str],
        changed: list[str],
        loads: tuple[Any, ...],
        outs: tuple[Any, ...],
        numbers: dict[str, Any],
        keeps: bool,
    ) -> Backward:
        """The backward pass of a call, of which everything has been checked."""
        views: aliases.Aliases = frozenset()
        if self._views:
            views = aliases.of_call(self._views, dict(zip(self.loaded, loads, strict=True)))
        asked = Asked(wanted, views, keeps, torch.are_deterministic_algorithms_enabled())
        backward = self.backward(asked)
        if changed:
            self._check_changed(dict(zip(self.written, outs, strict=True)))
        self._check_order(backward)
        self._check_apart(loads, outs)
        if not backward.is_checked:
            named = dict(zip((*self.loaded, *self.written), (*loads, *outs), strict=True)) | numbers
            backward = self._checked(backward, named, asked)
        if keeps and not self._views and not backward.is_by_index and not self.writes.held:
            self._ready[flags] = backward
        return backward

    def _apply(
        self,
        backward: Backward,
        launch: Callable[[], None],
        loads: tuple[Any, ...],
        outs: tuple[Any, ...],
        numbers: dict[str, Any],
        given: dict[str, Any],
    ) -> None:
        """Run the loop as a step of autograd; views that it writes are put into what they are views of."""
        if backward.copied:
            loads = tuple(one.clone() if at in backward.copied else one for at, one in enumerate(loads))
        views: list[tuple[Any, int]] = []
        call = backward, launch, numbers, given, views
        if not any(out._is_view() for out in outs):
            Step.apply(call, *loads, *outs)
            return
        made = Step.apply(call, *loads, *(out.data if out._is_view() else out for out in outs))
        for out, new, added in zip(outs, made, backward.added, strict=True):
            if out._is_view():
                Into.apply(out, new, added)
        kept = [out for name, out in zip(self.written, outs, strict=True) if out._is_view() and name in backward.saved]
        views += [(out.detach(), out._version) for out in kept]

    def _check_changed(self, outs: dict[str, Any]) -> None:
        """Refuse to write what wants a gradient, unless nothing or all of what it held is left."""
        for name, out in outs.items():
            if not out.requires_grad:
                continue
            base = out._base if out._is_view() else out
            if out.is_leaf or (base is not None and base.is_leaf and base.requires_grad):
                reason = "it is a leaf of autograd, or a view of one"
                hint = f"pass {name}.clone(), or call the kernel under torch.no_grad()"
            elif name in self.writes.covered or name in self.writes.added:
                continue
            else:
                reason = "what it held before would have one as well"
                hint = f"write all of it in one statement, or a fresh tensor, torch.empty_like({name})"
            where = place(self.traces[0], self.writes.lines[name])
            raise exc.NotDifferentiable(
                f"{self.name} writes {name}, which wants a gradient: {reason}", where, hint=hint
            )

    def _check_apart(self, loads: tuple[Any, ...], outs: tuple[Any, ...]) -> None:
        """Refuse tensors that have elements in common with one that is written: their names say nothing of that."""
        if not overwritten.share_storage((*loads, *outs)):  # so it is in nearly all calls
            return
        found = overwritten.meeting(outs, [*compress(loads, self._apart)])
        if found is None:
            return
        names = [*self.written, *compress(self.loaded, self._apart)]
        one, other = (names[at] for at in found)
        raise exc.NotDifferentiable(
            f"{one}, which the loop writes, has elements in common with {other}: the gradient of neither is known",
            self._place(),
            hint="write a fresh tensor",
        )

    def _checked(self, backward: Backward, named: dict[str, Any], asked: Asked) -> Backward:
        """A way back whose kernels compile: `backward`, or one for which nothing more is kept."""
        try:
            backward.check(named)
        except exc.Error as error:
            if backward.forward is None:
                raise exc.located(error, self._place()) from error.__cause__
            found = self._known[asked] = self.backward(replace(asked, keeps=False))
            return self._checked(found, named, asked)
        return backward

    def backward(self, asked: Asked) -> Backward:
        """The backward pass, derived at the first call."""
        found = self._known.get(asked)
        if found is None:
            number = f"_{self.at}" if len(self.traces[0].graphs) > 1 else ""
            name = f"{self.name}_backward{number}"
            keeps = asked.keeps and not number and not self.writes.held  # the configuration is that of one loop
            may = replace(asked, keeps=keeps)
            with _disable_current_modes():  # of whoever wants to know whether there is one, without data
                derived = derive(self.traces, self.at, may, name, self.tiles, self._is_open)
            given = list(self.loaded), list(self.written)
            config = config_of(derived.program, self.tiles.blocks)
            forward = None if derived.forward is None else self._forward_config(derived.forward)
            found = Backward(derived, *given, self.settings, config, self._place(), self.writes, forward)
            if found.forward is not None or any(owner.form == "add" for owner in derived.owners):
                found.watched = lambda: self.backward(replace(asked, keeps=False, watched=not asked.ordered))
            self._known[asked] = found
        return found

    def _forward_config(self, program: Program) -> Config | None:
        """What was chosen for the forward pass, as far as it says the same of one that stores more."""
        made = config_of(program, self.tiles.forward)
        same = {key: self.config[key] for key in ("num_warps", "num_stages", "num_threads") if key in self.config}
        return None if made is None else Config(**{**made.config, **same})

    def as_called(self, wanted: frozenset[str]) -> Backward:
        """The backward pass that a call for these tensors has; with the views of one, where there was any."""
        views = next((asked.views for asked in self._known if asked.wanted == wanted), frozenset())
        try:
            return self.backward(Asked(wanted, views, True, torch.are_deterministic_algorithms_enabled()))
        except exc.NotDifferentiable:
            if self.closed is None:
                raise
            return self.closed().as_called(wanted)

    def _place(self) -> Any:
        return place(self.traces[0], self.line)

    def _check_order(self, backward: Backward) -> None:
        """Refuse, or warn of, sums in any order where the user wants the same bits every time."""
        if not torch.are_deterministic_algorithms_enabled():
            return
        atomic = [owner for owner in backward.derived.owners if owner.is_atomic]
        if not atomic:
            return
        message = f"the gradient of {atomic[0].tensor} in {self.name} is summed atomically: {atomic[0].why}"
        if torch.is_deterministic_algorithms_warn_only_enabled():
            warnings.warn(message, stacklevel=2)
            return
        raise exc.NotDifferentiable(
            f"{message}, and torch.use_deterministic_algorithms is on",
            place(self.traces[0], atomic[0].line),
            hint="let the grid's tiles subscript the tensor, or call torch.use_deterministic_algorithms(False)",
        )


def _floats(tensor: Any) -> bool:
    return bool(tensor.dtype.is_floating_point)


def _kernel(program: Program, text: str, settings: Settings, config: Config | None) -> Kernel:
    numbers = program.is_open or bool(program.numbers)
    return kernel_of(text, program.name, settings, config, numbers, not program.is_open)


def config_of(program: Program, blocks: Mapping[int, int] | None) -> Config | None:
    """The configuration in which tiles are as large as those of the kernel that is differentiated."""
    if blocks is None:
        return None
    order = [axis.id for axis in program.axes if axis.kind != "grid" and axis.block is None]
    return Config(block_sizes=[blocks[axis] for axis in order]) if all(axis in blocks for axis in order) else None
