"""`triton_op(..., autograd=True)`: gradients of an operator, derived from the kernels that it launches.

::

    op(x)              x --host code of the user, kernel[grid](x, y), more host code--> result
    its backward       the function again with autograd on: PyTorch differentiates the host code, and each launch is
                       a function of autograd whose backward launches the kernel's gradient (`tilewright.grad`)

The backward is an operator too, `lib::name_backward`, which compilers keep whole.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from tilewright.base.errors import GradientError
from tilewright.base.grids import Grid
from tilewright.devices.host_descriptor import TensorDescriptor
from tilewright.launch.gradient import Gradient, grad
from tilewright.launch.jit import JITFunction
from tilewright.torch.state import doing

SUFFIX = "_backward"


@functools.lru_cache(maxsize=1024)
def _gradient(kernel: JITFunction[Any], wrt: tuple[str, ...]) -> Gradient:
    return grad(kernel, wrt)


@dataclasses.dataclass(frozen=True, slots=True)
class _Run:
    """A launch that autograd sees.

    Args:
        gradient: of the kernel.
        grid: of the launch.
        values: arguments by parameter.
        options: keywords that are no parameters.
        outputs: parameters through which it stores floats.
        names: of the parameters that are tensors of floats, outputs last.
    """

    gradient: Gradient
    grid: Grid
    values: Mapping[str, Any]
    options: Mapping[str, Any]
    outputs: tuple[str, ...]
    names: tuple[str, ...]

    def forward(self) -> None:
        """Launch the kernel."""
        self.gradient.kernel.launcher(self.grid)(**self.values, **self.options)

    def backward(self, tensors: Sequence[torch.Tensor], grads: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Launch its gradient.

        Args:
            tensors: those of `names` that are no outputs.
            grads: of the outputs, as far as there are any.

        Returns:
            The gradients by parameter.
        """
        values, given = dict(self.values), {}
        for name, tensor in zip(self.names, tensors, strict=False):
            values[name] = _put(values[name], tensor)
        for name in self.outputs:
            out = _tensor_of(values[name])
            assert out is not None
            given[f"d_{name}"] = None if name not in grads else _like(out, out.dtype).copy_(grads[name])
            values[name] = _put(values[name], _like(out, out.dtype))  # which nothing reads or writes
        made = {name: _like(_wanted(values[name], name), _sum_type(values[name])).zero_() for name in self.gradient.wrt}
        given |= {f"d_{name}": shadow for name, shadow in made.items()}
        self.gradient.launcher(self.grid)(**values, **self.options, **given)
        return made


class _Launch(torch.autograd.Function):  # type: ignore[misc]  # torch is not checked
    """A launch as a function that changes its outputs in place."""

    @staticmethod
    def forward(ctx: Any, run: _Run, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        run.forward()
        inputs, outputs = tensors[: -len(run.outputs)], tensors[-len(run.outputs) :]
        ctx.run = run
        ctx.mark_dirty(*outputs)
        ctx.save_for_backward(*inputs)
        ctx.set_materialize_grads(False)
        return outputs

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> Any:
        run: _Run = ctx.run
        known = {name: g for name, g in zip(run.outputs, grads, strict=True) if g is not None}
        inputs = ctx.saved_tensors
        made = run.backward(inputs, known) if known else {}
        found = [made.get(name) for name in run.names[: len(inputs)]]
        typed = [g if g is None else g.to(x.dtype) for g, x in zip(found, inputs, strict=True)]
        return None, *typed, *[None] * len(run.outputs)


def launch_seen(kernel: Any, grid: Grid, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """A launch in the body of an operator that is differentiated.

    Raises:
        GradientError: the kernel is none of `tilewright.jit`, or writes into a tensor that has a gradient already.
        NotDifferentiableError: it has no gradient.
    """
    if not isinstance(kernel, JITFunction):
        raise GradientError(
            f"gradients of a launch through {type(kernel).__name__} cannot be derived",
            hint="launch a kernel of tilewright.jit itself, or give the operator a backward with register_autograd",
        )
    values, options = _by_name(kernel, args, kwargs)
    floats = {n: t for n, v in values.items() if (t := _tensor_of(v)) is not None and t.is_floating_point()}
    wanted = tuple(name for name, tensor in floats.items() if tensor.requires_grad)
    if not wanted or not torch.is_grad_enabled():
        kernel.launcher(grid)(*args, **kwargs)
        return
    gradient = _gradient(kernel, wanted)
    outputs = tuple(name for name in gradient.outputs(*args, **kwargs) if name in floats)
    for name in outputs:
        if name in wanted:
            raise GradientError(
                f"kernel `{kernel.fn.__name__}` stores through `{name}` into a tensor that has a gradient already",
                hint="store into a new tensor",
            )
    if not outputs:
        kernel.launcher(grid)(*args, **kwargs)
        return
    names = (*(name for name in floats if name not in outputs), *outputs)
    _Launch.apply(_Run(gradient, grid, values, options, outputs, names), *[floats[name] for name in names])


def _by_name(
    kernel: JITFunction[Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments by parameter, and the other keywords."""
    names = kernel.arg_names
    values = dict(zip(names, args, strict=False)) | {n: v for n, v in kwargs.items() if n in names}
    return values, {n: v for n, v in kwargs.items() if n not in names}


def _tensor_of(value: Any) -> torch.Tensor | None:
    tensor = value.base if isinstance(value, TensorDescriptor) else value
    return tensor if isinstance(tensor, torch.Tensor) else None


def _put(value: Any, tensor: torch.Tensor) -> Any:
    return dataclasses.replace(value, base=tensor) if isinstance(value, TensorDescriptor) else tensor


def _like(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=dtype, device=tensor.device)


def _wanted(value: Any, name: str) -> torch.Tensor:
    """The tensor that gets a gradient, each element of which has memory of its own."""
    tensor = _tensor_of(value)
    assert tensor is not None
    if any(size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride(), strict=True)):
        raise GradientError(
            f"the tensor passed as `{name}` was expanded: its elements share memory, and so would their gradients",
            hint="pass it as .contiguous()",
        )
    return tensor


def _sum_type(value: Any) -> torch.dtype:
    """In what gradients add up."""
    tensor = _tensor_of(value)
    return torch.float64 if tensor is not None and tensor.dtype == torch.float64 else torch.float32


# --- the operator ---------------------------------------------------------------------------------------------------


def derive_gradients(op: Any) -> None:
    """Give an operator the backward that is derived from its kernels.

    Args:
        op: made by `triton_op`; it changes no arguments.
    """
    name = f"{op.name}{SUFFIX}"
    arguments = op.schema[: op.schema.rindex("->")].strip()[1:-1]
    schema = f"(Tensor?[] grads, bool[] wanted{', ' * bool(arguments)}{arguments}) -> Tensor[]"
    backward = torch.library.custom_op(name, _backward_of(op), mutates_args=(), schema=schema)
    backward.register_fake(lambda grads, wanted, *args, **kwargs: _empty(op, wanted, args, kwargs))
    params = [argument.name for argument in op.overload._schema.arguments]
    keywords = {argument.name for argument in op.overload._schema.arguments if argument.kwarg_only}

    def setup_context(ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: Mapping[str, Any], output: Any) -> None:
        values = (*inputs, *keyword_only_inputs.values())
        ctx.tensors = [n for n, value in enumerate(values) if isinstance(value, torch.Tensor)]
        ctx.save_for_backward(*[values[n] for n in ctx.tensors])
        ctx.others = [None if isinstance(value, torch.Tensor) else value for value in values]
        ctx.set_materialize_grads(False)

    def formula(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        values = list(ctx.others)
        for n, tensor in zip(ctx.tensors, ctx.saved_tensors, strict=True):
            values[n] = tensor
        wanted = [n in ctx.tensors and _is_float(values[n]) and ctx.needs_input_grad[n] for n in range(len(values))]
        positional = [value for value, key in zip(values, params, strict=True) if key not in keywords]
        named = {key: value for value, key in zip(values, params, strict=True) if key in keywords}
        flat = [g for given in grads for g in (given if isinstance(given, list | tuple) else [given])]
        made = iter(backward(flat, wanted, *positional, **named))
        return tuple(next(made) if want else None for want in wanted[: len(positional)])

    op.register_autograd(formula, setup_context=setup_context if keywords else _without_keywords(setup_context))


def _without_keywords(setup_context: Callable[..., None]) -> Callable[..., None]:
    def short(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        setup_context(ctx, inputs, {}, output)

    return short


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


@contextlib.contextmanager
def _recording() -> Iterator[None]:
    """A block in which autograd records, also below an operator, whose call has switched it off."""
    with contextlib.ExitStack() as stack:
        for key in (torch._C.DispatchKey.AutogradFunctionality, torch._C.DispatchKey.ADInplaceOrView):
            stack.enter_context(torch._C._SetExcludeDispatchKeyGuard(key, False))
        stack.enter_context(torch.enable_grad())
        yield


def _backward_of(op: Any) -> Callable[..., list[torch.Tensor]]:
    def backward(grads: list[Any], wanted: list[bool], *args: Any, **kwargs: Any) -> list[torch.Tensor]:
        values, keys = [*args, *kwargs.values()], list(kwargs)
        # The dispatcher leaves out arguments at the end that have their default: those are no tensors.
        leaves = [v.detach().requires_grad_() if w else v for v, w in zip(values, wanted, strict=False)]
        with _recording(), doing(False, op, launch_seen):
            found = op.fn(*leaves[: len(args)], **dict(zip(keys, leaves[len(args) :], strict=True)))
        results = found if isinstance(found, list | tuple) else [found]
        pairs = [(y, g) for y, g in zip(results, grads, strict=True) if g is not None and y.requires_grad]
        inputs = [leaf for leaf, want in zip(leaves, wanted, strict=False) if want]
        made = (
            torch.autograd.grad([y for y, _ in pairs], inputs, [g for _, g in pairs], allow_unused=True)
            if pairs
            else [None] * len(inputs)
        )
        taken = {g.data_ptr() for g in grads if g is not None}
        return [
            torch.zeros_like(x) if g is None else g.clone() if g.data_ptr() in taken or g._base is not None else g
            for x, g in zip(inputs, made, strict=True)
        ]

    return backward


def _empty(op: Any, wanted: Sequence[bool], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    values = [*args, *kwargs.values()]
    return [torch.empty_like(value) for value, want in zip(values, wanted, strict=False) if want]
