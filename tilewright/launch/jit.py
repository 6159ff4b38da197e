"""`@tilewright.jit`: the object that a kernel becomes, and how it is launched.

::

    kernel[grid](*args, **options)
        binder: bind, read arguments, make the key -> table hit: launch
                                                   -> miss: compile, remember, launch
    interpreted: bind, then run the Python function for each program (`interpret.py`)
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, overload

from tilewright.base.callable import BlockFunction, P
from tilewright.base.errors import ArgumentError
from tilewright.base.grids import Grid
from tilewright.base.hooks import AnnouncedList
from tilewright.base.knobs import follow_triton_variables, knobs
from tilewright.base.lazy import lazy_module
from tilewright.base.library import logs
from tilewright.base.memory import memory_may_end
from tilewright.base.target import Target
from tilewright.base.tracebacks import shorten_traceback, shortened
from tilewright.compile import run
from tilewright.compile.build import Image, compile_request
from tilewright.compile.declared import declared_variants
from tilewright.compile.function import KernelFunction
from tilewright.compile.grid import grid3
from tilewright.compile.introspection import plain_name
from tilewright.compile.kernel import CompiledKernel
from tilewright.compile.kernel_effects import effects_without_values
from tilewright.compile.kinds import kinds_of
from tilewright.compile.request import Request, compile_target, complete_options, make_request
from tilewright.compile.shared import Shared
from tilewright.compile.sources import FunctionSource
from tilewright.compile.specialize import Path, register_constant
from tilewright.compile.variants import Variant, VariantKey, reason_of
from tilewright.devices.arrays import HOST
from tilewright.devices.drivers import target_at
from tilewright.devices.wrappers import MockTensor
from tilewright.frontend.hashing import check_globals, used_globals
from tilewright.launch import inline_cache
from tilewright.launch.bind import Binder, Call, Prepared, launch_nothing
from tilewright.launch.hooks import is_refused, tell_compiled
from tilewright.launch.host_copies import on_host
from tilewright.launch.interface import KernelInterface
from tilewright.launch.logged import follow_launches, record_interpreted
from tilewright.launch.meeting import Pair, note_extents, pairs_that_count, shared_memory, tell
from tilewright.launch.members import KernelMembers
from tilewright.launch.prepared import prepare
from tilewright.launch.runs import native_call, native_run
from tilewright.launch.settings import KernelSettings
from tilewright.launch.typed import Typed
from tilewright.ops.values import constexpr

if TYPE_CHECKING:  # loaded when a kernel is compiled, interpreted or checked
    from tilewright.analysis import effects as analysis
    from tilewright.launch import asynchronous, checked, interpret
    from tilewright.launch.proved import Proof
else:
    asynchronous = lazy_module("tilewright.launch.asynchronous")
    checked = lazy_module("tilewright.launch.checked")
    interpret = lazy_module("tilewright.launch.interpret")


class JITFunction(Typed[P], KernelSettings, KernelMembers, KernelFunction, KernelInterface[Any]):
    """A kernel, or a function that kernels call.

    Launch it with ``kernel[grid](*args, **kwargs)``: `grid` is one to three integers or a function from the
    dictionary of bound arguments to them; keywords are parameters or launch options (`num_warps`, `num_threads`, ...).

    Args:
        fn: Python function in the block language.
        version: kept for tools; part of nothing.
        do_not_specialize: parameters (names or indices) not specialised on value.
        do_not_specialize_on_alignment: parameters not specialised on divisibility by 16.
        debug: keep device assertions; so does the knob `runtime.debug`.
        noinline: keep calls to it as calls.
        repr: gives the name of the compiled function; called with the `constants` and the `signature` by name.
        launch_metadata: `f(grid, metadata, args)` gives more facts to launch hooks.
        interpret: run as Python instead of compiling; default is the knob `runtime.interpret` at each launch.

    Attributes:
        pre_run_hooks: called with the arguments of every launch, before it.
    """

    def __init__(
        self,
        fn: Callable[P, Any],
        version: Any = None,
        do_not_specialize: Iterable[int | str] | None = None,
        do_not_specialize_on_alignment: Iterable[int | str] | None = None,
        debug: bool | None = None,
        noinline: bool | None = None,
        repr: Callable[[Any], str] | None = None,
        launch_metadata: Callable[..., Any] | None = None,
        *,
        interpret: bool | None = None,
    ) -> None:
        super().__init__(
            fn,
            noinline=noinline,
            do_not_specialize=do_not_specialize,
            do_not_specialize_on_alignment=do_not_specialize_on_alignment,
        )
        self.debug = debug
        self._interpret = interpret
        self._binder = None
        self._kernels: dict[VariantKey, CompiledKernel] = {}
        self._reasons: dict[VariantKey, str] = {}
        self._compiling: Shared[CompiledKernel | None] = Shared()
        self.version, self.launch_metadata = version, launch_metadata
        self.repr = repr or functools.partial(plain_name, fn.__name__)
        self.pre_run_hooks = AnnouncedList(self._hooks_changed)

    def launcher(self, grid: Grid) -> Callable[..., Any]:
        """What launches over `grid` when it is called with the arguments; no tracer is asked."""
        return functools.partial(self._launch_over if self.waiting is not None else self.ready, grid)

    def _launch_over(self, grid: Grid, /, *args: Any, **kwargs: Any) -> Any:
        try:
            return (self._binder or self._make_binder()).launch(grid, *args, **kwargs)
        except Exception as error:
            shorten_traceback(error)
            raise

    def _instead(self) -> Callable[..., Any] | None:
        """What launches, `(grid, *args, **kwargs)`, while somebody wants to hear of each launch; else None."""
        if self.is_interpreted:
            return self._launch_interpreted
        return self._launch_watched if inline_cache.are_launches_watched() else None

    def effects(
        self,
        types: Mapping[str, Any],
        constants: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
        target: Target | None = None,
    ) -> analysis.Effects[Path]:
        """Through which arguments the kernel reads and writes memory, without generating code.

        Args:
            types: kind by parameter name: "*fp32", "int" (of any value), "float", "bool", or a tuple of kinds.
            constants: value by name of every `constexpr` parameter, and of those that are None.
            options: compile options.
            target: what to compile for; default is the CPU.

        Returns:
            The effects, by path of the argument: `(2,)` is the third, `(2, 0)` the first part of a tuple there.

        Raises:
            CompilationError: the kernel is wrong.
        """
        target = target_at(HOST) if target is None else target
        kinds = kinds_of(self.params, types, constants or {})
        return effects_without_values(self, kinds, complete_options(self._given(options or {}), target), target)

    def prepare(
        self,
        types: Mapping[str, Any],
        constants: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
        *,
        host_only: bool = False,
    ) -> Callable[..., None]:
        """A launch of one signature: it tells calls apart by alignment and integers only, and so takes less time.

        Args:
            types, constants, options: as for `effects`; options of a launch as well.
            host_only: the caller vouches that every array is a torch tensor in the memory of the CPU.

        Returns:
            `launch(gx, gy, gz, *values)` with the run-time values of all arguments in order: torch tensors and numbers.
        """
        kinds = kinds_of(self.params, types, constants or {})
        check = (self._binder or self._make_binder()).before_launch
        return prepare(self.fn.__name__, kinds, dict(options or {}), self.resolve_arguments, check, host_only=host_only)

    def resolve_arguments(self, *args: Any, **kwargs: Any) -> tuple[Call, Prepared]:
        """Bind, specialise and compile for a call."""
        binder = self._binder or self._make_binder()
        call = binder.bind(*args, **kwargs)
        prepared = self._resolve(call)
        binder.check_stores(call, prepared)
        return call, prepared

    def prove(self, *args: Any, grid: Grid, up_to: str = "", **kwargs: Any) -> Proof:
        """What is known of a launch for all contents of memory: no access leaves its argument, no programs race, no
        index wraps. Nothing runs.

        Args:
            args, kwargs: of the launch.
            grid: of the launch.
            up_to: names of integer parameters ("n, m") that may be any number from 0 to what is passed.

        Returns:
            what is proved, with the numbers it goes by; what is not, with the reason. `str` shows it.

        Raises:
            ArgumentError: `up_to` names what is no number of the launch.
        """
        call = (self._binder or self._make_binder()).bind(*args, **kwargs)
        programs = grid3(grid(call.by_name()) if callable(grid) else grid)
        names = frozenset(up_to.replace(",", " ").split())
        return checked.prove(self, call, programs, self._given(call.options), names)

    def _launch_watched(self, grid: Grid, /, *args: Any, **kwargs: Any) -> Any:
        binder = self._binder or self._make_binder()
        call = binder.bind(*args, **kwargs)
        return inline_cache.launch_watched(self, binder, call, self._resolve(call), grid)

    def _launch_interpreted(self, grid: Grid, /, *args: Any, **kwargs: Any) -> None:
        call = (self._binder or self._make_binder()).bind(*args, **kwargs)
        if call.is_warmup:
            return
        programs = grid3(grid(call.by_name()) if callable(grid) else grid)
        record_interpreted(self.fn.__name__, call.by_name(), programs)
        with on_host(call) as staged:
            interpret.launch(self, staged, programs, complete_options(self._given(call.options), interpret.TARGET))

    def warmup(self, *args: Any, grid: Grid | None = None, **kwargs: Any) -> CompiledKernel | None:
        """Compile for these arguments without launching; where launches are interpreted there is nothing to do.

        Arguments may be dtypes in place of tensors. The option `target` ("cuda:90", or a `Target`) says what to compile
        for; the default is the device of the tensors, or of the active driver. No GPU is needed.
        """
        try:
            self._run_hooks(*args, **kwargs)
            if self.is_interpreted:
                return None
            args = tuple(map(MockTensor.wrap_dtype, args))
            kwargs = {name: MockTensor.wrap_dtype(value) for name, value in kwargs.items()}
            binder = self._binder or self._make_binder()
            return self._compiled(binder.bind(*args, **kwargs), warmup=True)
        except Exception as error:
            shorten_traceback(error)
            raise

    @shortened
    def precompile(
        self, signature: Mapping[str, Any], *, target: Target | str | None = None, **options: Any
    ) -> list[CompiledKernel]:
        """Compile every combination of declared types, constants and options; launches that fit find them.

        Args:
            signature: by parameter name: the value of a `tl.constexpr`, else a type ("*fp32:16" is an array at an
                address divisible by 16, "i32" an integer); lists are alternatives:
                `{"x_ptr": "*fp32:16", "BLOCK": [64, 128]}`.
            target: what to compile for; default is the active driver's.
            options: compile options; lists are alternatives.

        Returns:
            The compiled kernels in order; in `AsyncCompileMode` their futures.

        Raises:
            ArgumentError: an entry fits no parameter.
            CompilationError: the kernel is wrong.
        """
        wanted = None if target is None else compile_target(target)
        requests = [
            make_request(FunctionSource(self), specialization, self._given(given), wanted)
            for specialization, given in declared_variants(self, signature, options)
        ]
        kernels = [self._kernel_for(request, warmup=True) for request in requests]
        return [kernel for kernel in kernels if kernel is not None]

    def request(self, *args: Any, **kwargs: Any) -> tuple[Request, Call]:
        """What a launch with these arguments would ask the compiler for, and the call; nothing is compiled."""
        call = (self._binder or self._make_binder()).bind(*args, **kwargs)
        return self._request(call, call.target or target_at(call.place.device)), call

    def variants(self) -> list[Variant]:
        """What was compiled or loaded in this process, in order, each with the reason in one line."""
        return [Variant(kernel, self._reasons[key]) for key, kernel in list(self._kernels.items())]

    def clear(self) -> None:
        """Forget every compiled variant held in memory."""
        self._kernels.clear()
        self._reasons.clear()
        if self._binder is not None:
            self._binder.forget()

    def _make_binder(self) -> Binder:
        """Made at the first launch: the functions that the kernel calls may be defined after it."""
        with memory_may_end(f"preparing the first launch of `{self.fn.__name__}`"):  # modules load
            follow_launches()
        guard = functools.partial(check_globals, self) if used_globals(self) else None
        self._binder = Binder(self.fn.__name__, self.params, self._resolve, before_launch=guard, instead=self._instead)
        self._hooks_changed()
        return self._binder

    def _resolve(self, call: Call) -> Prepared:
        if call.checks:
            return checked.prepare(self, call, self._given(call.options), self._resolve)
        with memory_may_end(f"preparing a launch of `{self.fn.__name__}`"):
            kernel = self._compiled(call, call.is_warmup)
            if kernel is None or call.is_warmup:
                return Prepared(kernel, launch_nothing, lasting=False)
            made, pairs = self._where_arguments_meet(kernel, call)
            if made is None:
                return Prepared(kernel, launch_nothing, lasting=False)
            # A launch gives the kernel that takes any arguments, whichever it was.
            launch = made.launcher(call.placement(kernel.target, self.fn.__name__))
            note_extents(made, call.specialization, call.arguments)
            inline_cache.use_machine_code(self, self._binder or self._make_binder())
        functions = call.specialization.functions()
        lasting = call.place.lasting and not any(map(used_globals, functions))  # which are checked each time
        gpu = call.place.device_for(kernel.target, self.fn.__name__) if call.place.device is None else None
        return Prepared(kernel, launch, frozenset(kernel.metadata["stored"]), lasting, gpu, pairs)

    def _where_arguments_meet(
        self, kernel: CompiledKernel, call: Call
    ) -> tuple[CompiledKernel | None, tuple[Pair, ...]]:
        """The kernel for the addresses of a call, and the pairs of arguments whose addresses decide which that is."""
        stored = None if kernel.metadata["stores_anywhere"] else frozenset(kernel.metadata["stored"])
        pairs = pairs_that_count(call.specialization, call.arguments, stored)
        same, meeting = shared_memory(pairs)
        if not same and not meeting:
            return kernel, pairs
        alike = dataclasses.replace(call.specialization, same=same, meeting=meeting)
        if knobs.runtime.debug:
            tell(self.fn.__name__, alike)
        return self._compiled(dataclasses.replace(call, specialization=alike)), pairs

    def _compiled(self, call: Call, warmup: bool = False) -> CompiledKernel | None:
        """The kernel for a call (in `AsyncCompileMode` a warm-up gets its future); None where a hook asks that it be
        not compiled."""
        return self._kernel_for(self._request(call, call.target or target_at(call.place.device)), warmup)

    def _kernel_for(self, request: Request, warmup: bool) -> CompiledKernel | None:
        key = (request.specialization, request.options, request.target)
        for function in (self, *request.specialization.functions()):
            check_globals(function)
        kernel = self._kernels.get(key)
        if kernel is not None:
            return kernel
        mode = asynchronous.active() if warmup else None
        if mode is not None:
            request = request.settled()

        def make(elsewhere: Callable[[], Image] | None = None) -> CompiledKernel | None:
            return self._kernels.get(key) or self._compile(key, request, warmup, elsewhere)

        if mode is not None:
            future: Any = mode.submit(functools.partial(self._compiling.offer, key), request, make)
            return future  # type: ignore[no-any-return]
        return self._compiling.make(key, make)

    def _compile(
        self, key: VariantKey, request: Request, warmup: bool, elsewhere: Callable[[], Image] | None
    ) -> CompiledKernel | None:
        if is_refused(self, request, warmup):
            return None
        reason = reason_of(self.fn.__name__, list(self._kernels), key)
        if knobs.runtime.explain_variants:
            print(reason, file=sys.stderr)
        logs.compiling.info("%s", reason)
        kernel = compile_request(request, reason if knobs.runtime.no_jit and not warmup else "", elsewhere)
        self._reasons[key] = reason
        self._kernels[key] = kernel
        tell_compiled(self, request, warmup, kernel.from_disk)
        return kernel

    def _request(self, call: Call, target: Target) -> Request:
        return make_request(FunctionSource(self), call.specialization, self._given(call.options), target)

    def _given(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Options of a launch, those of the decorator, and those that hold for launches."""
        return {**_OF_LAUNCHES, **({} if self.debug is None else {"debug": self.debug}), **options}


_OF_LAUNCHES = {"tensor_maps": True, "persistent_programs": True}  # which this launcher serves
register_constant(constexpr, lambda value: value.value)
register_constant(BlockFunction)
run.install(native_run, native_call)


@overload
def jit(fn: Callable[P, Any]) -> JITFunction[P]: ...
@overload
def jit(
    *,
    noinline: bool | None = ...,
    do_not_specialize: Iterable[int | str] | None = ...,
    do_not_specialize_on_alignment: Iterable[int | str] | None = ...,
    debug: bool | None = ...,
    interpret: bool | None = ...,
    version: Any = ...,
    repr: Callable[[Any], str] | None = ...,
    launch_metadata: Callable[..., Any] | None = ...,
) -> Callable[[Callable[P, Any]], JITFunction[P]]: ...
@shortened
def jit(fn: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Compile a Python function written in the block language.

    Use it bare (``@tilewright.jit``) or with options (``@tilewright.jit(noinline=True)``); see :class:`JITFunction`.
    """
    if options:
        _check_options(options)
    if fn is None:
        return functools.partial(jit, **options)
    follow_triton_variables()
    return JITFunction(fn, **options)


def _check_options(options: Mapping[str, Any]) -> None:
    """Refuse what `jit` does not take."""
    known = [*inspect.signature(JITFunction.__init__).parameters][2:]
    for name in options:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            meant = f"did you mean {close[0]}? " if close else ""
            raise ArgumentError(
                f"tilewright.jit has no option {name!r}",
                hint=f"{meant}It takes {', '.join(known)}; num_warps and its kin are given at the launch",
            )
