"""`hl.kernel` and `Kernel`: a function with loops over tiles, compiled for each kind of arguments it is called with."""

from __future__ import annotations

import functools
import inspect
import itertools
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch.compiler import is_dynamo_compiling

from tilewright import lazy_module
from tilewright.hl import exc
from tilewright.hl.config import Config
from tilewright.hl.constexpr import ConstExpr
from tilewright.hl.language import reference
from tilewright.hl.runtime import door
from tilewright.hl.runtime.bound import BoundKernel
from tilewright.hl.runtime.guard import Guard, make_guard
from tilewright.hl.runtime.keys import key_of
from tilewright.hl.settings import Settings
from tilewright.hl.trace.outside import namespace, reads
from tilewright.hl.trace.source import Source
from tilewright.hl.trace.state import current

if TYPE_CHECKING:
    from tilewright.hl.tune import driver
else:
    driver = lazy_module("tilewright.hl.tune.driver")

_CONSTANT = ("constexpr", "ConstExpr")
_numbers = itertools.count()
KERNELS: weakref.WeakValueDictionary[str, Kernel] = weakref.WeakValueDictionary()
"""Every kernel, by its number."""


class Kernel:
    """A function with loops over tiles.

    Args:
        fn: the function.
        configs: configurations to choose among; empty for the default.
        settings: how it is treated.
        key: additional key of a binding, from the arguments.

    Attributes:
        name: name of the function.
        signature: its signature.
        number: tells it from every other kernel of the process.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        configs: Sequence[Config] = (),
        settings: Settings | None = None,
        key: Callable[..., Any] | None = None,
    ) -> None:
        functools.update_wrapper(self, fn)
        self.fn, self.name = fn, fn.__name__
        self.signature = inspect.signature(fn)
        self.configs, self.settings, self.key = list(configs), settings or Settings(), key
        self.source = Source(fn)
        self._bound: dict[Any, list[BoundKernel]] = {}
        self._hot: tuple[Guard, BoundKernel] | None = None
        self._count = len(self.signature.parameters)
        self._lock = threading.RLock()
        self.number = f"hl{next(_numbers)}"
        KERNELS[self.number] = self

    @property
    def scope(self) -> dict[str, Any]:
        """The names that the function sees besides its own: those of its module and of functions around it."""
        cells = zip(self.fn.__code__.co_freevars, self.fn.__closure__ or (), strict=True)
        return {**self.fn.__globals__, **{name: cell.cell_contents for name, cell in cells}}

    def kernel_source(self) -> str:
        """The text of the function."""
        return inspect.getsource(self.fn)

    def normalize_args(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Arguments by position, defaults put in."""
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return tuple(bound.arguments.values())

    def specialization_key(self, args: Sequence[Any]) -> Any:
        """What two calls must share to run the same compiled code."""
        key = tuple(key_of(arg, self.settings.static_shapes) for arg in args)
        return (*key, self.key(*args)) if self.key is not None else key

    def bind(self, args: Sequence[Any]) -> BoundKernel:
        """The kernel for arguments like these, traced when they are new."""
        args = tuple(map(_marked, self.signature.parameters.values(), self.normalize_args(*args)))
        key = self.specialization_key(args)
        found = self._find(key, args)
        if found is None:
            with self._lock:
                found = self._find(key, args)
                if found is None:
                    arguments = dict(zip(self.signature.parameters, args, strict=True))
                    outside, names = reads(self.fn, arguments), namespace(self.fn)
                    given = self.source, self.scope, arguments, self.settings, self.configs
                    found = BoundKernel(self.fn, *given, key, outside, names)
                    self._bound.setdefault(key, []).append(found)
        return found

    def _find(self, key: Any, args: Sequence[Any]) -> BoundKernel | None:
        """The binding with this key whose guards hold."""
        return next((bound for bound in self._bound.get(key, ()) if bound.holds(args)), None)

    def autotune(self, args: Sequence[Any], *, force: bool = True, effort: str | None = None) -> Config:
        """Find the fastest configuration for arguments like these and use it; see `BoundKernel.autotune`."""
        return self.bind(args).autotune(self.normalize_args(*args), force=force, effort=effort)

    def autotune_multi(
        self, arg_sets: Sequence[Sequence[Any]], *, aggregation: str = "geomean", force: bool = True
    ) -> Config:
        """Find one configuration for several sets of arguments, and use it for all of them.

        Args:
            arg_sets: the sets.
            aggregation: "geomean" or "max" of the times relative to the default configuration's.
            force: tune even where the best configuration is known.

        Returns:
            The configuration with the smallest aggregate.
        """
        if aggregation not in ("geomean", "max"):
            raise exc.InvalidAPIUsage(f"autotune_multi with aggregation={aggregation!r}", hint='"geomean" or "max"')
        pairs = [(self.bind(args), self.normalize_args(*args)) for args in arg_sets]
        best = driver.several(pairs, aggregation)
        for bound, _ in pairs:
            bound.set_config(best)
        return best

    def reset(self) -> None:
        """Forget every binding."""
        with self._lock:
            self._hot = None
            self._bound.clear()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if is_dynamo_compiling():
            return door.traced(self, args, kwargs)
        hot = self._hot
        if hot is not None and not kwargs and len(args) == self._count and hot[0](*args):
            return hot[1].run(*args)
        if current() is not None:
            raise exc.NestedKernelCallsNotSupported(
                f"the kernel {self.name} is called inside a kernel",
                hint="call one after the other, or a plain function",
            )
        if door.is_observed((*args, *kwargs.values())):
            return door.traced(self, args, kwargs)
        args = self.normalize_args(*args, **kwargs)
        return self.found(args)(*args)

    def found(self, args: tuple[Any, ...]) -> BoundKernel:
        """What a call with these arguments, all by position, runs; the next one like it finds it sooner."""
        hot = self._hot
        if hot is not None and hot[0](*args):
            return hot[1]
        bound = self.bind(args)
        self._hot = self._guarded(bound, args)
        return bound

    def run_host(self, args: Sequence[Any], bound: Callable[[], BoundKernel]) -> Any:
        """Run the host code alone: results have their shapes and types, and the loops do nothing.

        Args:
            args: the arguments, all by position; their sizes may be symbolic.
            bound: gives the binding whose configuration host code sees, if it asks for block sizes.
        """
        return reference.run(self.fn, args, reference.HostOnly(lambda: bound().as_reference()))

    def _guarded(self, bound: BoundKernel, args: Sequence[Any]) -> tuple[Guard, BoundKernel] | None:
        """`bound` with the guard of calls like this one, if there can be one."""
        marked = map(_marked, self.signature.parameters.values(), args)
        arguments = dict(zip(self.signature.parameters, marked, strict=True))
        if self.key is not None:
            return None
        static, facts = self.settings.static_shapes, bound.traced.guards
        guard = make_guard(arguments, static, facts, bound.outside, namespace(self.fn))
        return None if guard is None else (guard, bound)

    def __repr__(self) -> str:
        return f"<hl.Kernel {self.name}>"


def is_constant(parameter: inspect.Parameter) -> bool:
    """Whether a parameter is declared a constant."""
    declared = parameter.annotation
    return declared is ConstExpr or (isinstance(declared, str) and declared.split(".")[-1] in _CONSTANT)


def _marked(parameter: inspect.Parameter, argument: Any) -> Any:
    """An argument; one of a parameter that is declared a constant is marked as one."""
    return ConstExpr(argument) if is_constant(parameter) and not isinstance(argument, ConstExpr) else argument


def kernel(
    fn: Callable[..., Any] | None = None,
    *,
    config: Config | Mapping[str, Any] | None = None,
    configs: Sequence[Config | Mapping[str, Any]] | None = None,
    key: Callable[..., Any] | None = None,
    settings: Settings | None = None,
    **options: Any,
) -> Any:
    """Make a kernel of a function: `@hl.kernel` or `@hl.kernel(config=...)`.

    Args:
        fn: the function.
        config: the configuration to use.
        configs: configurations to choose among.
        key: additional key of a binding, from the arguments.
        settings: all settings at once.
        options: settings by name.

    Returns:
        A `Kernel`, or a decorator that makes one.
    """
    if fn is None:
        return functools.partial(kernel, config=config, configs=configs, key=key, settings=settings, **options)
    if config is not None and configs is not None:
        raise exc.InvalidAPIUsage("hl.kernel with config and configs", hint="give one of the two")
    given = [config] if config is not None else list(configs or ())
    return Kernel(
        fn,
        [item if isinstance(item, Config) else Config(**item) for item in given],
        settings if settings is not None else Settings(**options),
        key,
    )
