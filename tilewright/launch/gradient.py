"""`tilewright.grad(kernel, wrt=[...])`: the gradient of a kernel, launched as the kernel is.

::

    g[grid](*args, d_y_ptr=.., d_x_ptr=..)
        what goes through it is looked at: gradients are there, of the right form, and share no memory with what is read
        gradients of what may be stored more than once are copied, as they are used up
        loops that keep values: their iterations are counted, by another kernel, and memory is made for that many
        launch of the gradient kernel
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.backends.reference.address_space import Memory
from tilewright.backends.reference.evaluate import Evaluator
from tilewright.base.errors import ArgumentError, UnsupportedError
from tilewright.base.grids import Grid
from tilewright.base.target import Target
from tilewright.compile.gradient_source import GradientSource
from tilewright.compile.grid import grid3
from tilewright.compile.lazy_compiler import derive
from tilewright.compile.request import Request, make_request
from tilewright.compile.specialize import Param
from tilewright.devices.arrays import Array
from tilewright.devices.drivers import target_at
from tilewright.devices.ranges import Range, meet, range_of
from tilewright.launch import interpret
from tilewright.launch.bind import Binder, Call, Prepared
from tilewright.launch.host_copies import on_host
from tilewright.launch.interface import KernelInterface
from tilewright.launch.jit import JITFunction

FLOATS = ("fp16", "bf16", "fp32", "fp64")
"""Types that the elements of gradients may have: those that memory adds up."""


class _Derived(JITFunction[Any]):
    """A kernel that is made of another one.

    Args:
        kernel: the other one.
        wrt: names of its parameters that get gradients.
        more: names of parameters behind those of the kernel.
        counts: the kernel that counts iterations.
    """

    def __init__(self, kernel: JITFunction[Any], wrt: Sequence[str], more: Iterable[str], *, counts: bool) -> None:
        super().__init__(kernel.fn, debug=kernel.debug, repr=kernel.repr)
        self.kernel, self.wrt, self.counts = kernel, tuple(wrt), counts
        first = len(kernel.params)
        extra = [Param(first + n, name, inspect.Parameter.KEYWORD_ONLY, None) for n, name in enumerate(more)]
        if not counts:  # the last is a number of any size
            extra[-1] = dataclasses.replace(extra[-1], fixed_type="i64", specialize=False)
        self.params = (*kernel.params, *extra)

    @property
    def is_interpreted(self) -> bool:
        """As the kernel that it is made of."""
        return bool(self.kernel.is_interpreted)

    def _request(self, call: Call, target: Target) -> Request:
        source = GradientSource(self.kernel, len(self.kernel.params), self.wrt, self.counts)
        return make_request(source, call.specialization, self._given(call.options), target)

    def _resolve(self, call: Call) -> Prepared:
        if call.checks:
            raise UnsupportedError(
                f"the gradient of `{self.fn.__name__}` runs without checks",
                hint=f"check `{self.fn.__name__}` itself: its gradient goes to the same places",
            )
        return super()._resolve(call)

    def binding(self) -> Binder:
        """What binds calls."""
        return self._binder or self._make_binder()

    def derived(self, call: Call) -> derive.Derived:
        """The tile IR for a call, before the passes, and what is known of it."""
        target = interpret.TARGET if self.is_interpreted else call.target or target_at(call.place.device)
        request = self._request(call, target)
        assert isinstance(request.source, GradientSource)
        return request.source.derived(request)

    def _launch_interpreted(self, grid: Grid, /, *args: Any, **kwargs: Any) -> None:
        """Evaluate the tile IR, operation by operation: there is no Python of a gradient."""
        call = self.binding().bind(*args, **kwargs)
        programs = grid3(grid(call.by_name()) if callable(grid) else grid)
        request = self._request(call, interpret.TARGET)
        assert isinstance(request.source, GradientSource)
        module = request.source.derived(request).module
        with on_host(call) as staged:
            memory = Memory()
            interpret.open_arguments(staged, memory)
            Evaluator(module, memory).launch(request.name, programs, staged.runtime_values())


class Gradient(KernelInterface[Any]):
    """The gradient of a kernel; `grad` makes it.

    Launch it as the kernel, with a gradient for each output, `d_NAME=` by the name of the parameter, and one for each
    parameter in `wrt`, to which it adds.

    Args:
        kernel: the kernel.
        wrt: names of its parameters that get gradients.

    Attributes:
        kernel, wrt: as given; `fn` is the kernel, too, as wrappers of kernels have it.
        params: names of the parameters that a launch takes.
    """

    def __init__(self, kernel: JITFunction[Any], wrt: Sequence[str]) -> None:
        self.kernel, self.fn, self.wrt = kernel, kernel, tuple(wrt)
        self.__name__, self.__module__ = f"{kernel.fn.__name__}_gradient", kernel.fn.__module__
        names = [f"{derive.PREFIX}{param.name}" for param in kernel.params if not param.is_constexpr]
        taken = sorted({*names, derive.TAPE, derive.ITERATIONS} & set(kernel.arg_names))
        if taken:
            raise ArgumentError(
                f"kernel `{kernel.fn.__name__}` has a parameter {taken[0]}, which its gradient needs",
                hint=f"rename it: gradients are passed as {derive.PREFIX}NAME",
            )
        self._main = _Derived(kernel, wrt, [*names, derive.TAPE, derive.ITERATIONS], counts=False)
        self._counting = _Derived(kernel, wrt, [*names, derive.ITERATIONS], counts=True)
        self._names = frozenset(names)
        self.params = [param.name for param in self._main.params[:-2]]
        self.number = self._main.number
        self._known: dict[Any, derive.Derived] = {}

    def __repr__(self) -> str:
        return f"<gradient of {self.kernel.fn.__name__} with respect to {', '.join(self.wrt)}>"

    def launcher(self, grid: Grid) -> Callable[..., Any]:
        """What launches over `grid`."""
        return functools.partial(self._launch, grid)

    def warmup(self, *args: Any, grid: Grid | None = None, **kwargs: Any) -> Any:
        """Compile for these arguments without launching, as `kernel.warmup`; gradients may be dtypes."""
        return self._main.warmup(*args, grid=grid, **kwargs)

    def outputs(self, *args: Any, **kwargs: Any) -> tuple[str, ...]:
        """Names of the parameters through which the kernel stores floats, for these arguments of the kernel."""
        return self._facts(self._main.binding().bind(*args, **kwargs)).outputs

    def _launch(self, grid: Grid, /, *args: Any, **kwargs: Any) -> Any:
        call = self._main.binding().bind(*args, **kwargs)
        self._check_kinds(call)
        facts = self._facts(call)
        self._check(call, facts, kwargs)
        if callable(grid):
            grid = grid({param.name: value for param, value in zip(call.params, call.values, strict=True)})
        passed = dict(kwargs)
        for name in facts.consumed:
            key = f"{derive.PREFIX}{name}"
            if passed.get(key) is not None:
                passed[key] = _copy(passed[key])
        if facts.tape_bytes:
            passed |= self._tape(call, grid, facts.tape_bytes, args, passed)
        return self._main.launcher(grid)(*args, **passed)

    def _facts(self, call: Call) -> derive.Derived:
        """What is known of the gradient for a call."""
        options = tuple(sorted(call.options.items(), key=repr))
        key = (self.kernel.cache_key, self._main.is_interpreted, call.specialization, options, call.place.device)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._main.derived(call)
        return found

    def _tape(
        self, call: Call, grid: Grid, size: int, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Memory for what loops keep."""
        like = next((a.owner for a in call.arguments if isinstance(a, Array)), None)
        longest = _memory(like, 8)
        self._counting.launcher(grid)(*args, **{**kwargs, derive.ITERATIONS: longest})
        iterations, programs = int(longest[0]), int(np.prod(grid3(grid)))
        memory = _memory(like, max(1, -(-size * iterations * programs // 8)) * 8)
        return {derive.TAPE: memory.view(_bytes_of(memory)), derive.ITERATIONS: iterations}

    # --- what a launch must be given --------------------------------------------------------------------------------

    def _check_kinds(self, call: Call) -> None:
        """Raise ArgumentError for a gradient that is no array of floats."""
        for param, gradient in zip(call.params, call.arguments, strict=True):
            if param.name not in self._names or gradient is None:
                continue
            if not isinstance(gradient, Array) or gradient.dtype not in FLOATS:
                found = f"an array of {gradient.dtype}" if isinstance(gradient, Array) else "no array"
                raise ArgumentError(
                    f"`{param.name}` is {found}", hint=f"gradients are arrays of {', '.join(FLOATS)} elements"
                )

    def _check(self, call: Call, facts: derive.Derived, kwargs: Mapping[str, Any]) -> None:
        """Raise ArgumentError where the gradients of a launch could not be right."""
        name = self.kernel.fn.__name__
        given = dict(zip((param.name for param in call.params), call.arguments, strict=True))
        for wanted in self.wrt:
            if given[f"{derive.PREFIX}{wanted}"] is None:
                raise ArgumentError(
                    f"the gradient of `{name}` with respect to `{wanted}` has nowhere to go",
                    hint=f"pass {derive.PREFIX}{wanted}=, an array to which it is added",
                )
        for output in facts.outputs:
            if f"{derive.PREFIX}{output}" not in kwargs:
                raise ArgumentError(
                    f"the gradient of what `{name}` stores through `{output}` is missing",
                    hint=f"pass {derive.PREFIX}{output}=, an array like `{output}`, or None where it is 0",
                )
        for key in sorted(self._names & kwargs.keys()):
            of = key.removeprefix(derive.PREFIX)
            if kwargs[key] is None:
                continue
            if of not in facts.outputs and of not in self.wrt:
                raise ArgumentError(
                    f"`{key}` is of no use: `{name}` stores no floats through `{of}`, and `{of}` is not in wrt",
                    hint=f"leave it out; outputs are {', '.join(facts.outputs) or 'none'}",
                )
            _check_form(given[of], given[key], of, key)
        self._check_memory(given, facts, name)

    def _check_memory(self, given: Mapping[str, Any], facts: derive.Derived, name: str) -> None:
        """Raise where something is written that the gradient, or the kernel before it, reads."""
        shadows = {f"{derive.PREFIX}{wanted}" for wanted in self.wrt}
        read = [(n, given[n]) for n in facts.inputs]
        others = [(n, v) for n, v in given.items() if n in self._names and n not in shadows]
        pairs = [(row, other) for row in [(n, given[n]) for n in facts.outputs] for other in read]
        pairs += [(row, other) for row in [(n, given[n]) for n in sorted(shadows)] for other in read + others]
        for (one, first), (other, second) in pairs:
            if isinstance(first, Array) and isinstance(second, Array) and meet(_range(first), _range(second)):
                raise ArgumentError(
                    f"`{one}` and `{other}` share memory: the gradient of `{name}` reads one and the other is written",
                    hint="pass arrays that lie apart; what a kernel changes in place is gone when its gradient runs",
                )


def _range(array: Array) -> Range:
    return range_of(array, f"*{array.dtype}")


def _check_form(value: Any, gradient: Any, name: str, key: str) -> None:
    """Raise unless a gradient has its elements where the argument has them."""
    if not isinstance(value, Array):
        return
    have, want = _form(gradient.owner), _form(value.owner)
    if have is not None and want is not None and have != want:
        raise ArgumentError(
            f"`{key}` has sizes and strides {have}, but `{name}` has {want}: elements would be taken for others",
            hint=f"make it by torch.empty_like({name}), or copy it into such a tensor",
        )


def _form(owner: Any) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Sizes and strides in elements of an array; None where they are not known. Dims of one element have no stride."""
    if hasattr(owner, "untyped_storage"):
        sizes, strides = tuple(owner.shape), tuple(owner.stride())
    elif isinstance(owner, np.ndarray):
        sizes, strides = owner.shape, tuple(stride // owner.itemsize for stride in owner.strides)
    else:
        return None
    return sizes, tuple(stride if size != 1 else 0 for size, stride in zip(sizes, strides, strict=True))


def _copy(array: Any) -> Any:
    """A copy with the same strides."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        made = torch.empty_strided(array.shape, array.stride(), dtype=array.dtype, device=array.device)
        return made.copy_(array.detach())
    if isinstance(array, np.ndarray):
        span = sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)) + array.itemsize
        made = np.empty(span, np.uint8)
        view = np.lib.stride_tricks.as_strided(made[: array.itemsize].view(array.dtype), array.shape, array.strides)
        view[...] = array
        return view
    raise ArgumentError(
        f"the gradient of an output that is stored more than once is copied, which {type(array).__name__} cannot be",
        hint="pass a tensor of torch or an array of numpy",
    )


def _memory(like: Any, size: int) -> Any:
    """Bytes as an array of int64, all 0, where another array is."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(like, torch.Tensor):
        return torch.zeros(size // 8, dtype=torch.int64, device=like.device)
    if isinstance(like, np.ndarray):
        return np.zeros(size // 8, np.int64)
    raise ArgumentError(
        f"the gradient keeps values of loops, in memory like that of its arguments, which are {type(like).__name__}",
        hint="pass tensors of torch or arrays of numpy",
    )


def _bytes_of(memory: Any) -> Any:
    """The type of bytes of whoever an array belongs to."""
    return np.uint8 if isinstance(memory, np.ndarray) else sys.modules["torch"].uint8


def grad(kernel: Any, wrt: Sequence[str] | str) -> Gradient:
    """The gradient of a kernel, as something that is launched over the same grid with the same arguments.

    Args:
        kernel: made by `tilewright.jit`.
        wrt: names of the parameters that get gradients: pointers to floats, tensor descriptors, or floats.

    Returns:
        What is launched as `g[grid](*args, d_OUT=.., d_IN=..)`: `args` as the kernel was given them; for each parameter
        OUT through which the kernel stores floats the gradient of what it stored, of the form of OUT, or None for 0;
        for each IN of `wrt` an array of the form of IN (of one element for a number), to which the gradient is added.

    Raises:
        ArgumentError: `kernel` is no kernel, or has no parameter that `wrt` names.
        NotDifferentiableError: at the launch; the kernel has no gradient, and the message shows where.

    Example:
        >>> g = tilewright.grad(exp_kernel, wrt=["x_ptr"])
        >>> g[grid](x, y, n, BLOCK=1024, d_y_ptr=torch.ones_like(y), d_x_ptr=dx)
    """
    names = [wrt] if isinstance(wrt, str) else list(wrt)
    if not isinstance(kernel, JITFunction) or isinstance(kernel, _Derived):
        raise ArgumentError(
            f"grad takes a kernel made by tilewright.jit, got {type(kernel).__name__}",
            hint="of an autotuned kernel, or one with heuristics, differentiate `kernel.fn`",
        )
    unknown = [name for name in names if name not in {p.name for p in kernel.params if not p.is_constexpr}]
    if unknown or not names:
        raise ArgumentError(
            f"kernel `{kernel.fn.__name__}` has no parameter `{unknown[0]}` of run time" if names else "wrt is empty",
            hint=f"its parameters are {', '.join(p.name for p in kernel.params if not p.is_constexpr)}",
        )
    return Gradient(kernel, names)
