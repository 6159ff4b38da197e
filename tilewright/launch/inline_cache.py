"""The inline cache of launches: how machine code learns of calls that Python has launched."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from tilewright.base.grids import Grid
from tilewright.base.knobs import knobs
from tilewright.base.lazy import lazy_module
from tilewright.compile.grid import grid3
from tilewright.launch.bind import Binder, Call, Prepared
from tilewright.launch.hooks import watcher

if TYPE_CHECKING:
    from tilewright.launch.native import builtin, columns
else:  # loaded at the first launch
    builtin = lazy_module("tilewright.launch.native.builtin")
    columns = lazy_module("tilewright.launch.native.columns")


def use_machine_code(fn: Any, binder: Binder) -> None:
    """Launch through machine code from now on, where there can be any.

    Args:
        fn: the kernel.
        binder: its binder.
    """
    binder.use(builtin.make_builtin, functools.partial(_remember, fn, binder))
    if binder.builtin is not None:
        fn.become(binder.builtin.call)


def remember_autotuned(
    fn: Any, told: builtin.Builtin, args: Any, kwargs: Any, chosen: Mapping[str, Any], exact: Collection[str],
    before: Callable[[], Any],
) -> bool:  # fmt: skip
    """Tell the launch function of an autotuner of a call; False if it cannot know it.

    Args:
        fn: the kernel.
        told: the function; it forgets when the kernel does.
        args, kwargs: of the call.
        chosen: what the autotuner adds to them.
        exact: parameters whose numbers must be the same.
        before: called ahead of each launch; False says that this is another call after all.
    """
    if fn.pre_run_hooks:
        return False
    call, prepared = fn.resolve_arguments(*args, **kwargs, **chosen)
    binder: Binder = fn._binder
    binder.followers.add(told)
    return prepared.lasting and _remember(fn, binder, told, prepared, call, args, kwargs, exact, before)


def _remember(
    fn: Any, binder: Binder, told: builtin.Builtin, prepared: Prepared, call: Call, args: Any, kwargs: Any,
    exact: Collection[str] = (), before: Callable[[], Any] | None = None,
) -> bool:  # fmt: skip
    """Tell a launch function, of the kernel or of an autotuner around it; arguments as for `remember_autotuned`."""
    if fn.is_interpreted or prepared.kernel is None:
        return False
    known = columns.columns_of(told.machine, call, args, kwargs, exact, prepared.gpu, prepared.pairs)
    if known is None:
        return False
    watch, leave = _watchers(fn, call, prepared) if are_launches_watched() else (None, None)
    both = _both(binder.before_launch, before)
    facts = prepared.kernel.metadata
    written = known.tensors(None if facts["stores_anywhere"] else prepared.stored)
    told.learn(known, prepared.launch, prepared.kernel, before=both, watch=watch, leave=leave, written=written)
    return True


def are_launches_watched() -> bool:
    """Whether there are launch hooks."""
    return bool(knobs.runtime.launch_enter_hook.calls or knobs.runtime.launch_exit_hook.calls)


def launch_watched(fn: Any, binder: Binder, call: Call, prepared: Prepared, grid: Grid) -> Any:
    """A launch that is bound and compiled, with the launch hooks around it."""
    binder.check_stores(call, prepared)
    programs = grid(call.by_name()) if callable(grid) else grid
    gx, gy, gz = grid3(programs)
    if prepared.kernel is not None and not call.is_warmup:
        watch, leave = _watchers(fn, call, prepared)
        facts = watch(call.by_name(), programs)
        try:
            if gx and gy and gz:
                prepared.launch(gx, gy, gz, *call.runtime_values())
        finally:
            if leave is not None:
                leave(facts)
    return prepared.kernel


def _watchers(
    fn: Any, call: Call, prepared: Prepared
) -> tuple[Callable[[dict[str, Any], Any], Any], Callable[[Any], Any] | None]:
    """What tells the hooks ahead of a launch, see `hooks.watcher`, and what tells those behind it."""
    kernel, leave = prepared.kernel, knobs.runtime.launch_exit_hook
    device = call.place.device_for(kernel.target, kernel.name)
    return watcher(fn, kernel, device), leave if leave.calls else None


def _both(first: Callable[[], Any] | None, second: Callable[[], Any] | None) -> Callable[[], Any] | None:
    """Both, one after the other, and what the second says."""
    if first is None or second is None:
        return first or second

    def both() -> Any:
        first()
        return second()

    return both
