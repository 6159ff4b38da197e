"""From `kernel[grid](...)` to a launch: arguments bound, read, keyed, and handed to compiled code.

A Python function is generated per kernel signature and combination of argument classes. Its body is the least that
is safe (a class test, an address, a dtype and a device per tensor), a look-up, and the launch:

    def add(grid, x, n, BLOCK):
        if x.__class__ is Tensor and n.__class__ is int and BLOCK.__class__ is int:
            launch, kernel = table[x.dtype, x_address & 15 if x.is_cpu else None, <n: 1, %16, width>, BLOCK]
            launch(gx, gy, gz, x_address, n);  return kernel

Everything else (first calls, errors, tuples, DLPack, subclasses) takes the slow path, which explains itself.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tilewright.base.checks import Checks, parse_checks
from tilewright.base.errors import ArgumentError, DeviceError, ReadOnlyError, UnknownOptionError
from tilewright.base.foreign_options import FOREIGN
from tilewright.base.grids import Grid
from tilewright.base.hooks import settings_changed
from tilewright.base.knobs import knobs
from tilewright.base.target import Placement, Target
from tilewright.base.tracebacks import shorten_traceback
from tilewright.compile.grid import grid3
from tilewright.compile.slots import at_path, slot_values
from tilewright.compile.specialize import Param, Specialization, constant_of, specialize_call
from tilewright.devices.arrays import Array, read
from tilewright.devices.drivers import driver
from tilewright.devices.places import Place, place_of, placed, stream_handle
from tilewright.devices.registry import OPTION_NAMES, parse_target
from tilewright.devices.wrappers import MockTensor
from tilewright.launch.fastpath import MISSING, Variant, generate_bind, make_variant
from tilewright.launch.meeting import Pair

LAUNCH_OPTIONS = frozenset(
    {"num_threads", "num_cpu_threads", "target", "stream", "warmup", "device", "device_type", "sanitize"}
)
"""Keywords that are no compile options: threads of the launch, what to compile for, checks, those of older programs."""
_KEYWORDS = LAUNCH_OPTIONS | FOREIGN.keys()


class NamedArguments(dict[str, Any]):
    """Arguments of a launch as functions of the user read them; it says which it has when it is asked for another."""

    def __missing__(self, name: Any) -> Any:
        raise UnknownOptionError(
            f"the launch has no argument {name!r}", hint=f"a grid or heuristic can ask for {', '.join(self) or 'none'}"
        )


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a kernel, bound and specialised.

    Args:
        params: of the kernel.
        values: what was passed, by parameter, defaults filled in.
        arguments: the same with arrays read.
        specialization: what to compile for.
        options: keywords that are compile options.
        place: where the arrays are.
        num_threads: threads of the launch, or None.
        target: what to compile for, if the call says so.
        stream: handle of the stream of a GPU, if the call names one.
        is_warmup: compile and do not launch.
        checks: what is looked for while the kernel runs.
    """

    params: tuple[Param, ...]
    values: tuple[Any, ...]
    arguments: tuple[Any, ...]
    specialization: Specialization
    options: dict[str, Any]
    place: Place = Place(None)
    num_threads: int | None = None
    target: Target | None = None
    stream: int | None = None
    is_warmup: bool = False
    checks: Checks = ()

    def by_name(self) -> dict[str, Any]:
        """What was passed, by parameter name: what a callable grid and hooks are given."""
        return NamedArguments({param.name: value for param, value in zip(self.params, self.values, strict=True)})

    def placement(self, target: Target, kernel: str) -> Placement:
        """Where the launch goes with code for `target`.

        Raises:
            DeviceError: the arrays are elsewhere, or the call names a stream of a CPU.
        """
        if self.stream and target.backend == "cpu":
            raise DeviceError(f"kernel `{kernel}` goes to the CPU, which has no stream {self.stream}")
        return Placement(self.place.device_for(target, kernel), self.stream, self.num_threads)

    def runtime_values(self) -> list[Any]:
        """Addresses and numbers for the kernel's slots."""
        return slot_values(self.arguments, self.specialization.runtime_paths)


class Prepared(NamedTuple):
    """A compiled kernel that can be launched for every call of one specialisation.

    Args:
        kernel: what a launch returns to the user.
        launch: `launch(gx, gy, gz, *runtime_values)`.
        stored: indices of the run-time parameters that the kernel stores through.
        lasting: every call that looks like this one may be launched with it at once.
        gpu: where no array says which GPU is meant, so only while this one is in use.
        pairs: addresses of the call of which one is stored to, and what they are to each other in all calls like it.
    """

    kernel: Any
    launch: Callable[..., None]
    stored: frozenset[int] = frozenset()
    lasting: bool = True
    gpu: int | None = None
    pairs: tuple[Pair, ...] = ()


def launch_nothing(gx: int, gy: int, gz: int, *values: Any) -> None:
    """The launch of a warm-up, and of a kernel that a hook kept from being compiled."""


Resolve = Callable[[Call], Prepared]
Learn = Callable[[Any, Prepared, Call, tuple[Any, ...], dict[str, Any]], bool]

_binders: weakref.WeakSet[Binder] = weakref.WeakSet()


def _forget_all() -> None:
    for binder in list(_binders):
        binder.forget()


driver.on_change.append(_forget_all)  # launches without arrays go to the active driver
settings_changed.add(_forget_all)  # knobs are defaults of options


class Binder:
    """Binds calls of one kernel.

    Args:
        name: of the kernel, for errors.
        params: of the kernel.
        resolve: compiles, or finds what was compiled; called once per new key.
        options: names of the accepted compile options.
        before_launch: called ahead of every launch (checks of captured globals), or None.
        instead: gives what launches now, called as `(grid, *args, **kwargs)`, while hooks or the interpreter want every
            launch; else None. Hooks ahead of the launch have been called then.

    Attributes:
        builtin: the launch function in machine code, once there is one.
        before_launch: as given.
        hooks: called with the arguments ahead of every launch, or None.
    """

    def __init__(
        self,
        name: str,
        params: Sequence[Param],
        resolve: Resolve,
        *,
        options: Iterable[str] = OPTION_NAMES,
        before_launch: Callable[[], None] | None = None,
        instead: Callable[[], Callable[..., Any] | None] | None = None,
    ) -> None:
        self._instead = instead
        self._generation = 0
        self.name = name
        self.params = tuple(params)
        self._resolve = resolve
        self._options = frozenset(options)
        self.before_launch = before_launch
        self._variants: dict[tuple[type, ...], Variant | None] = {}
        self._seen: set[tuple[type, ...]] = set()
        self._bind = generate_bind(name, self.params)
        self._in_python: Callable[..., Any] = self.launch_slow
        self.builtin: Any = None
        self.hooks: Callable[..., None] | None = None
        self.followers: weakref.WeakSet[Any] = weakref.WeakSet()  # launch functions of autotuners
        self._hopeless: set[Any] = set()  # forms of calls that machine code cannot know
        _binders.add(self)

    def bind(self, *args: Any, **kwargs: Any) -> Call:
        """Bind and specialise without launching.

        Raises:
            ArgumentError: an argument is missing, extra, or unusable.
            UnknownOptionError: a keyword is neither a parameter nor an option.
            DeviceError: an array is on another device.
        """
        try:
            values, extra, options = self._bind(*args, **kwargs)
        except TypeError as error:  # an argument given twice
            raise self._error(str(error)) from None
        return self._specialize(values, extra, options)

    def _check_signature(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise ArgumentError if an argument is given twice."""
        try:
            self._bind(*args, **kwargs)
        except TypeError as error:
            raise self._error(str(error)) from None

    def launch_slow(self, grid: Grid, /, *args: Any, **kwargs: Any) -> Any:
        """`launch` without generated code beyond the signature."""
        try:
            values, extra, options = self._bind(*args, **kwargs)
        except TypeError as error:
            raise self._error(str(error)) from None
        return self.launch_bound(grid, values, extra, options)

    def launch_bound(self, grid: Grid, values: tuple[Any, ...], extra: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Launch with arguments by parameter; the way of every call that the fast path did not know."""
        instead = self._instead() if self._instead is not None else None
        if instead is not None:
            args, kwargs = _as_called(self.params, values)
            return instead(grid, *args, *extra, **kwargs, **options)
        generation = self._generation
        classes = tuple(map(type, values))
        variant = self._variants.get(classes)
        if variant is not None:
            self._in_python = variant.launch
            if not extra and variant.knows(values, options):
                return variant.launch(grid, **{p.name: v for p, v in zip(self.params, values, strict=True)}, **options)
        if self.before_launch is not None:
            self.before_launch()
        call = self._specialize(values, extra, options)
        gx, gy, gz = grid3(grid(call.by_name()) if callable(grid) else grid)
        prepared = self._resolve(call)
        self.check_stores(call, prepared)
        if classes not in self._variants and (self.builtin is None or classes in self._seen):
            variant = make_variant(self.name, self.params, classes, self.launch_bound, self.before_launch)
            self._variants[classes] = variant
            self._in_python = self.launch_slow if variant is None else variant.launch
        self._seen.add(classes)  # machine code may take the next call of this form, or come back here
        if variant is not None and prepared.lasting and prepared.gpu is None and generation == self._generation:
            paths = call.specialization.runtime_paths
            variant.remember(values, options, prepared.launch, prepared.kernel, [path[0] for path in paths])
        if gx * gy * gz:
            prepared.launch(gx, gy, gz, *call.runtime_values())
        return prepared.kernel

    def launch(self, grid: Grid, /, *args: Any, **kwargs: Any) -> Any:
        """Bind, launch and return the kernel."""
        if self.builtin is not None:
            return self.builtin.call(grid, *args, **kwargs)
        if self.hooks is not None:
            self.hooks(*args, **kwargs)
        return self._in_python(grid, *args, **kwargs)

    def hook(self, hooks: Callable[..., None] | None) -> None:
        """Call `hooks(*args, **kwargs)` ahead of every launch, or nothing."""
        self.hooks = hooks
        if self.builtin is not None:
            self.builtin.hook(hooks)
        self.forget()

    def use(self, make: Callable[[Callable[..., Any]], Any], learn: Learn) -> None:
        """Launch through a built-in function, unless there can be none.

        Args:
            make: gives it, from what it calls for a call that it does not know.
            learn: tells it of a call, `(builtin, prepared, call, args, kwargs)`; says whether it could.
        """
        if self.builtin is not None:
            return

        def missed(grid: Grid, /, *args: Any, **kwargs: Any) -> Any:
            generation = self._generation
            try:
                try:
                    launched = self._in_python(grid, *args, **kwargs)
                except TypeError:
                    self._check_signature(args, kwargs)
                    raise
            except Exception as error:
                shorten_traceback(error)
                raise
            form = (*map(type, args), *kwargs, *map(type, kwargs.values()))
            if form not in self._hopeless:
                call = self.bind(*args, **kwargs)
                prepared = self._resolve(call)
                could = prepared.lasting and learn(self.builtin, prepared, call, args, kwargs)
                if not could and generation == self._generation:
                    self._hopeless.add(form)
            return launched

        builtin = make(missed)
        if builtin is not None:
            builtin.hook(self.hooks)
            self.builtin = builtin

    def forget(self) -> None:
        """Drop everything that was resolved (a setting or the source changed), also from launches that are kept."""
        self._generation += 1
        self._hopeless.clear()
        if self.builtin is not None:
            self.builtin.forget()
        for follower in list(self.followers):
            follower.forget()
        for variant in list(self._variants.values()):
            if variant is not None:
                variant.forget()

    def _specialize(self, values: tuple[Any, ...], extra: tuple[Any, ...], options: dict[str, Any]) -> Call:
        missing = [f"`{p.name}`" for p, value in zip(self.params, values, strict=True) if value is MISSING]
        if missing:
            unknown = [name for name in options if name not in self._options and name not in _KEYWORDS]
            beside = f"; {', '.join(f'`{name}`' for name in unknown)} is no parameter" if unknown else ""
            raise self._error(f"missing argument{'s' * (len(missing) > 1)} {', '.join(missing)}{beside}")
        if extra:
            raise self._error(f"{len(extra)} positional argument{'s' * (len(extra) > 1)} too many")
        for keyword in options:
            if keyword not in self._options and keyword not in _KEYWORDS:
                raise self._unknown(keyword)
        is_warmup = bool(options.get("warmup"))
        if is_warmup:  # a type may stand for an array
            values = tuple(map(MockTensor.wrap_dtype, values))
        arguments = tuple(
            value if param.is_constexpr else read(value, param.name)
            for param, value in zip(self.params, values, strict=True)
        )
        compile_options = {name: value for name, value in options.items() if name not in LAUNCH_OPTIONS}
        # A constexpr parameter that is called like an option (num_warps) sets that option too.
        for param, value in zip(self.params, values, strict=True):
            if param.is_constexpr and param.name in self._options and value is not None:
                compile_options[param.name] = constant_of(value)[1]
        place = place_of([param.name for param in self.params], arguments)
        return Call(
            self.params,
            values,
            arguments,
            specialize_call(self.params, arguments),
            compile_options,
            placed(place, options.get("device"), options.get("device_type")),
            _thread_count(options),
            parse_target(options["target"]) if options.get("target") is not None else None,
            stream_handle(options.get("stream")),
            is_warmup,
            _checks(options, is_warmup),
        )

    def check_stores(self, call: Call, prepared: Prepared) -> None:
        """Raise `ReadOnlyError` if the kernel stores through a read-only argument."""
        paths = call.specialization.runtime_paths
        for slot in prepared.stored:
            argument = at_path(call.arguments, paths[slot])
            if isinstance(argument, Array) and not argument.writable:
                name = self.params[paths[slot][0]].name
                raise ReadOnlyError(
                    f"kernel `{self.name}` stores to argument `{name}`, which is read-only",
                    hint=f"pass a writable array, for instance {name}.copy()",
                )

    def _error(self, message: str) -> ArgumentError:
        message = message.removeprefix(f"{self.name}() ")
        return ArgumentError(f"{self.name}: {message}", hint=f"the kernel is {self.describe()}")

    def _unknown(self, keyword: str) -> UnknownOptionError:
        import difflib  # not needed to import the package

        names = [p.name for p in self.params] + sorted(self._options | LAUNCH_OPTIONS)
        close = difflib.get_close_matches(keyword, names, 1)
        hint = f"did you mean {close[0]}? " if close else ""
        return UnknownOptionError(
            f"Keyword argument {keyword} was specified but unrecognised",
            hint=f"{hint}the kernel is {self.describe()}; options are {', '.join(sorted(self._options))}",
        )

    def describe(self) -> str:
        """The signature, as `add(x_ptr, n, BLOCK: constexpr = 64)`."""
        return f"{self.name}({', '.join(map(_describe_param, self.params))})"


def _as_called(params: Sequence[Param], values: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments as a call would pass them; those that are missing are left out."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for param, value in zip(params, values, strict=True):
        if param.kind is inspect.Parameter.VAR_POSITIONAL:
            args.extend(value)
        elif param.kind is inspect.Parameter.KEYWORD_ONLY or kwargs:
            kwargs.update({} if value is MISSING else {param.name: value})
        elif value is MISSING:
            kwargs[param.name] = value
        else:
            args.append(value)
    return args, {name: value for name, value in kwargs.items() if value is not MISSING}


def _describe_param(param: Param) -> str:
    star = "*" if param.kind is inspect.Parameter.VAR_POSITIONAL else ""
    note = ": constexpr" if param.is_constexpr else ""
    default = f" = {param.default!r}" if param.has_default else ""
    return f"{star}{param.name}{note}{default}"


def _checks(options: Mapping[str, Any], is_warmup: bool) -> Checks:
    """The checks that a launch asks for, or the knob."""
    return () if is_warmup else parse_checks(options.get("sanitize", knobs.runtime.sanitize))


def _thread_count(options: Mapping[str, Any]) -> int | None:
    """Threads that a launch asks for, also by the name of other CPU back ends; None for all."""
    name = "num_threads" if options.get("num_threads") is not None else "num_cpu_threads"
    value = options.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ArgumentError(f"{name} must be a positive integer, or 0 for all, got {value!r}")
    return value or None
