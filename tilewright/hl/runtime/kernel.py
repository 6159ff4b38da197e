"""`hl.kernel` and `Kernel`: a function with loops over tiles, compiled for each kind of arguments it is called with."""

from __future__ import annotations

import functools
import inspect
import itertools
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import FunctionType, GenericAlias, MethodType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

import torch
from torch.compiler import is_dynamo_compiling

from tilewright import errors, lazy_module, shorten_traceback
from tilewright.compiler.called import Called
from tilewright.hl import exc
from tilewright.hl.config import Config
from tilewright.hl.constexpr import ConstExpr
from tilewright.hl.language import reference
from tilewright.hl.runtime import gradient_slot, tracer_slot
from tilewright.hl.runtime.bound import BoundKernel
from tilewright.hl.runtime.guard import Guard, make_guard
from tilewright.hl.runtime.keys import key_of
from tilewright.hl.runtime.replaying import Replays
from tilewright.hl.settings import Settings
from tilewright.hl.trace.outside import namespace, reads
from tilewright.hl.trace.source import Source
from tilewright.hl.trace.state import current

if TYPE_CHECKING:
    from tilewright.hl.runtime import bundling
    from tilewright.hl.tune import ahead, driver, tables
else:
    bundling = lazy_module("tilewright.hl.runtime.bundling")
    ahead = lazy_module("tilewright.hl.tune.ahead")
    driver = lazy_module("tilewright.hl.tune.driver")
    tables = lazy_module("tilewright.hl.tune.tables")


if TYPE_CHECKING:  # `Kernel` without brackets takes any arguments
    from typing_extensions import ParamSpec as ParamSpecWithDefault
    from typing_extensions import TypeVar as TypeVarWithDefault

    P = ParamSpecWithDefault("P", default=...)
    R = TypeVarWithDefault("R", default=Any)
else:
    P, R = ParamSpec("P"), TypeVar("R")
_CONSTANT = ("constexpr", "ConstExpr")
_numbers = itertools.count()
KERNELS: weakref.WeakValueDictionary[str, Kernel] = weakref.WeakValueDictionary()
"""Every kernel, by its number."""


class Kernel(Called, Generic[P, R]):
    """A function with loops over tiles.

    Args:
        fn: the function.
        configs: configurations to choose among; empty for the default.
        settings: how it is treated.
        key: additional key of a binding, from the arguments.
        backward: "auto" where calls on tensors that want gradients take part in autograd, None where they do not.

    Copies of a kernel are the kernel itself, as copies of a function are; it is pickled by its name. In a class it is a
    method.

    Attributes:
        name: name of the function.
        signature: its signature.
        number: tells it from every other kernel of the process.
        tables: file of the tables that say which configuration a call has; None for none.
        shapes: gives the arguments that the tables are made for.
        watched: what the last call that wanted gradients ran; one like it finds it sooner.
        derived: what calls that want gradients run, by the kind of their arguments.
    """

    def __init__(
        self,
        fn: Callable[P, R],
        configs: Sequence[Config] = (),
        settings: Settings | None = None,
        key: Callable[..., Any] | None = None,
        backward: str | None = "auto",
    ) -> None:
        if not isinstance(fn, FunctionType):
            raise _no_function(fn)
        functools.update_wrapper(self, fn)
        self.fn, self.name = fn, fn.__name__
        self.signature = inspect.signature(fn)
        self.configs, self.settings, self.key = list(configs), settings or Settings(), key
        self.backward = backward
        self.tables: Path | None = None
        self.shapes: Callable[[], Iterable[Sequence[Any]]] | None = None
        self.source = Source(fn)
        self._bound: dict[Any, list[BoundKernel]] = {}
        self._hot: tuple[Guard, BoundKernel, Guard] | None = None
        self.ready = self._call
        self.watched: gradient_slot.Watched | None = None
        self.derived: dict[Any, list[Any]] = {}
        self._count = len(self.signature.parameters)
        self._defaults = fn.__defaults__ or ()
        self._lock = threading.RLock()
        self._replays = Replays(self._call, self._lock)
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
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            unknown = [name for name in kwargs if name not in self.signature.parameters]
            more = "".join(f"; `{name}` is no parameter" for name in unknown if name not in str(error))
            message = f"{self.name}: {error}{more}"
            raise errors.ArgumentError(message, hint=f"it is {self.name}{self.signature}") from None
        bound.apply_defaults()
        return tuple(bound.arguments.values())

    def specialization_key(self, args: Sequence[Any]) -> Any:
        """What two calls must share to run the same compiled code.

        Where arguments like these are bound, it includes what became a constant: values that were specialised, and what
        the host decided.
        """
        key = self._key(args)
        found = self._find(key, args)
        return key if found is None else found.specialization_key

    def _key(self, args: Sequence[Any]) -> Any:
        """What of the arguments decides where a binding is looked for."""
        found = []
        for name, arg in zip(self.signature.parameters, args, strict=False):
            try:
                found.append(key_of(arg, self.settings.static_shapes))
            except exc.UnsupportedPythonType as error:
                error.message = f"the argument {name} of {self.name} {error.message}"
                raise
        return tuple(found) if self.key is None else (*found, self.key(*args))

    def bind(self, args: Sequence[Any]) -> BoundKernel:
        """The kernel for arguments like these, traced when they are new."""
        if isinstance(args, torch.Tensor):
            raise exc.InvalidAPIUsage(
                "bind of a tensor", hint=f"give it the arguments of a call: {self.name}.bind((x,))"
            )
        args = marked(self, self.normalize_args(*args))
        key = self._key(args)
        found = self._find(key, args)
        if found is None:
            with self._lock:
                found = self._find(key, args)
                if found is None:
                    arguments = dict(zip(self.signature.parameters, args, strict=True))
                    outside, names = reads(self.fn, arguments), namespace(self.fn)
                    given = self.source, self.scope, arguments, self.settings, self.configs
                    found = BoundKernel(self.fn, *given, key, outside, names, self.tables)
                    found.changed = self._replays.forget
                    self._bound.setdefault(key, []).append(found)
        return found

    def _find(self, key: Any, args: Sequence[Any]) -> BoundKernel | None:
        """The binding with this key whose guards hold."""
        return next((bound for bound in self._bound.get(key, ()) if bound.holds(args)), None)

    def autotune(self, args: Sequence[Any], *, force: bool = True, effort: str | None = None) -> Config:
        """Find the fastest configuration for arguments like these and use it; see `BoundKernel.autotune`."""
        try:
            return self.bind(args).autotune(self.normalize_args(*args), force=force, effort=effort)
        except Exception as error:
            shorten_traceback(error)
            raise

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

    def aot(self, sets: Sequence[Sequence[Any]] | None = None, *, effort: str = "quick", force: bool = True) -> Path:
        """Tune ahead: find the fastest configurations for some sets of arguments, write a table of them beside the
        source, and use it from now on. A kernel that is made with `hl.aot_kernel` uses it in every process.

        Args:
            sets: arguments of calls; None for those that `hl.aot_kernel` declares.
            effort: "quick" or "full", of the search for each set.
            force: tune even where the best configuration is known.

        Returns:
            The file.

        Raises:
            InvalidAPIUsage: there are no arguments.
            NoConfigFound: nothing works with some of them.
        """
        path = self.tables or tables.path_beside(self.fn)
        ahead.make(self, path, self.declared() if sets is None else list(sets), effort, force)
        self.tables = path
        self.reset()
        return path

    def bundle(
        self, folder: str | Path, sets: Sequence[Sequence[Any]] | None = None, *, target: str | None = None
    ) -> list[Path]:
        """Compile calls for processes without the compiler, PyTorch, or Python.

        In Python `tilewright.load_bundle("NAME.twb")["NAME"](x)` takes tensors or arrays of numpy; for C there is
        NAME.h with a function for each set of arguments, beside headers and object files of the kernels (of a GPU:
        their sources).

        Args:
            folder: where to write.
            sets: arguments of calls; None for those that `hl.aot_kernel` declares. A call has to have their types,
                shapes, strides and numbers.
            target: what to compile for ("cpu:x86-64-v3", "cuda:90"); None for where the arguments are.

        Returns:
            The files.

        Raises:
            UnsupportedOperation: the host code computes with PyTorch.
        """
        calls = []
        for given in self.declared() if sets is None else sets:
            args = self.normalize_args(*given)
            calls.append((self.bind(args), dict(zip(self.signature.parameters, args, strict=True))))
        return bundling.write(self.name, calls, Path(folder), target)

    def declared(self) -> list[Sequence[Any]]:
        """The arguments that tables are made for, as `hl.aot_kernel` declares them."""
        return [] if self.shapes is None else list(self.shapes())

    def reset(self) -> None:
        """Forget every binding."""
        with self._lock:
            self._hot = self.watched = None
            self._bound.clear()
            self.derived.clear()
            self._replays.forget()

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        """A call that machine code does not know."""
        try:
            hot = self._hot
            if hot is not None and not kwargs:
                missing = self._count - len(args)
                given = (*args, *self._defaults[-missing:]) if missing else args
                if len(given) == self._count:
                    if hot[0](*given):
                        bound = hot[1]
                        if bound.may_replay:
                            return self._replays.run(self, bound, given, len(args), ())
                        return bound.run(*given)
                    watched = self.watched
                    if watched is not None and watched.bound is hot[1] and hot[2](*given) and watched.holds(given):
                        return watched(given)
            if current() is not None:
                raise exc.NestedKernelCallsNotSupported(
                    f"the kernel {self.name} is called inside a kernel",
                    hint="call one after the other, or a plain function",
                )
            if tracer_slot.is_observed((*args, *kwargs.values())):
                return tracer_slot.traced(self, args, kwargs)
            positional = len(args)
            args = self.normalize_args(*args, **kwargs)
            bound = self.found(args)
            if self.backward is not None:
                gradient_slot.refuse_tangents(self, args, bound.outside)
                if gradient_slot.is_wanted(args, bound.outside):
                    return gradient_slot.differentiated(self, args)
            if bound.may_replay and self._hot is not None:
                return self._replays.run(self, bound, args, positional, tuple(kwargs))
            return bound(*args)
        except Exception as error:
            shorten_traceback(error)
            raise

    if TYPE_CHECKING:

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...

    else:

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            """A call until machine code knows one, and for Dynamo, which follows it."""
            if is_dynamo_compiling():
                return tracer_slot.traced(self, args, kwargs)
            try:
                return self.ready(*args, **kwargs)
            except Exception as error:
                shorten_traceback(error)
                raise

    def __getitem__(self, grid: Any) -> Any:
        raise exc.InvalidAPIUsage(
            f"{self.name} is launched with a grid, {grid!r}: kernels of hl make their own",
            hint=f"call it: {self.name}(...)",
        )

    __iter__ = None  # what has items is iterated by them

    def found(self, args: tuple[Any, ...]) -> BoundKernel:
        """What a call with these arguments, all by position, runs; the next one like it finds it sooner."""
        hot = self._hot
        if hot is not None and hot[2](*args):
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

    def _guarded(self, bound: BoundKernel, args: Sequence[Any]) -> tuple[Guard, BoundKernel, Guard] | None:
        """`bound` with the guard of calls like this one that want no gradient, and of all; if there can be one."""
        arguments = dict(zip(self.signature.parameters, marked(self, args), strict=True))
        if self.key is not None:
            return None
        static, facts = self.settings.static_shapes, bound.traced.guards
        rest = static, facts, bound.outside, namespace(self.fn)
        guard = make_guard(arguments, *rest)
        if guard is None:
            return None
        plain = guard if self.backward is None else make_guard(arguments, *rest, detached=True)
        return plain or guard, bound, guard

    def __repr__(self) -> str:
        return f"<hl.Kernel {self.name}>"

    # --- as an object --------------------------------------------------------------------------------

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __class_getitem__(cls, result: Any) -> GenericAlias:
        return GenericAlias(cls, (result,))

    def __copy__(self) -> Kernel:
        return self

    def __deepcopy__(self, memory: Any) -> Kernel:
        return self

    def __reduce__(self) -> Any:
        found: Any = sys.modules.get(self.fn.__module__)
        for part in self.fn.__qualname__.split("."):
            found = getattr(found, part, None)
        return (
            self.fn.__qualname__
            if found is self
            else (Kernel, (self.fn, self.configs, self.settings, self.key, self.backward))
        )


def _no_function(fn: Any) -> exc.InvalidSignature:
    """The error for a kernel of something that is not defined with `def`."""
    kinds = ((staticmethod, "put @staticmethod above @hl.kernel"), (classmethod, "put @classmethod above @hl.kernel"))
    hint = next((hint for kind, hint in kinds if isinstance(fn, kind)), "decorate a function that is defined with def")
    if isinstance(fn, functools.partial):
        hint = "make a kernel of the function, and a functools.partial of the kernel"
    if isinstance(fn, MethodType):
        hint = "decorate the method in its class"
    return exc.InvalidSignature(f"hl.kernel of a {type(fn).__name__}: {fn!r}", hint=hint)


def is_constant(parameter: inspect.Parameter) -> bool:
    """Whether a parameter is declared a constant."""
    declared = parameter.annotation
    return declared is ConstExpr or (isinstance(declared, str) and declared.split(".")[-1] in _CONSTANT)


def marked(kernel: Kernel, args: Sequence[Any]) -> tuple[Any, ...]:
    """Arguments by position; those of parameters that are declared constants are marked as constants."""
    return tuple(map(_marked, kernel.signature.parameters.values(), args))


def _marked(parameter: inspect.Parameter, argument: Any) -> Any:
    return ConstExpr(argument) if is_constant(parameter) and not isinstance(argument, ConstExpr) else argument


@overload
def kernel(
    fn: Callable[P, R],
    *,
    config: Config | Mapping[str, Any] | None = ...,
    configs: Sequence[Config | Mapping[str, Any]] | None = ...,
    key: Callable[..., Any] | None = ...,
    settings: Settings | Mapping[str, Any] | None = ...,
    **options: Any,
) -> Kernel[P, R]: ...
@overload
def kernel(
    fn: None = None,
    *,
    config: Config | Mapping[str, Any] | None = ...,
    configs: Sequence[Config | Mapping[str, Any]] | None = ...,
    key: Callable[..., Any] | None = ...,
    settings: Settings | Mapping[str, Any] | None = ...,
    **options: Any,
) -> Callable[[Callable[P, R]], Kernel[P, R]]: ...
def kernel(
    fn: Callable[..., Any] | None = None,
    *,
    config: Config | Mapping[str, Any] | None = None,
    configs: Sequence[Config | Mapping[str, Any]] | None = None,
    key: Callable[..., Any] | None = None,
    settings: Settings | Mapping[str, Any] | None = None,
    backward: str | None = "auto",
    **options: Any,
) -> Any:
    """Make a kernel of a function: `@hl.kernel` or `@hl.kernel(config=...)`.

    Args:
        fn: the function.
        config: the configuration to use.
        configs: configurations to choose among.
        key: additional key of a binding, from the arguments.
        settings: all settings at once.
        backward: "auto", or None for a kernel through which no gradients flow.
        options: settings by name.

    Returns:
        A `Kernel`, or a decorator that makes one.
    """
    if fn is None:
        given_with = {"config": config, "configs": configs, "key": key, "settings": settings, "backward": backward}
        return functools.partial(kernel, **given_with, **options)
    if config is not None and configs is not None:
        raise exc.InvalidAPIUsage("hl.kernel with config and configs", hint="give one of the two")
    if settings is not None and options:
        raise exc.InvalidAPIUsage(
            f"hl.kernel with settings= and {', '.join(options)}", hint="give one of the two: settings by name suffice"
        )
    if isinstance(settings, Mapping):
        settings = Settings(**settings)
    given = [config] if config is not None else list(configs or ())
    return Kernel(
        fn,
        [item if isinstance(item, Config) else Config(**item) for item in given],
        settings if settings is not None else Settings(**options),
        key,
        backward,
    )


def aot_kernel(
    fn: Callable[..., Any] | None = None,
    *,
    shapes: Callable[[], Iterable[Sequence[Any]]] | None = None,
    file: str | Path | None = None,
    **options: Any,
) -> Any:
    """Make a kernel that was tuned ahead: `@hl.aot_kernel(shapes=lambda: [(torch.randn(64, 64),)])`.

    Its configurations come from the table beside its source, chosen by the sizes of a call, without the tuner.
    `kernel.aot()` and `tilewright tuned ahead FILE.py` write the table, `tilewright tuned check FILE.py` holds it
    against the source. Where it has none for a machine or a kind of arguments, the kernel is what `hl.kernel` makes.

    Args:
        fn: the function.
        shapes: gives the arguments that the table is made for.
        file: name of the file, beside the source; None for that of the source with another ending.
        options: as of `hl.kernel`.

    Returns:
        A `Kernel`, or a decorator that makes one.
    """
    if fn is None:
        return functools.partial(aot_kernel, shapes=shapes, file=file, **options)
    made = kernel(fn, **options)
    made.tables, made.shapes = tables.path_beside(fn, file), shapes
    return made
