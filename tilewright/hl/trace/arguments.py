"""Arguments of a kernel as its host code sees them: meta tensors and symbols, in containers of the same kinds."""

from __future__ import annotations

from typing import Any

import torch

from tilewright.hl import exc
from tilewright.hl.constexpr import ConstExpr
from tilewright.hl.symbols import Sym, sample
from tilewright.hl.trace import carried
from tilewright.hl.trace.numbers import number
from tilewright.hl.trace.offsets import reaches
from tilewright.hl.trace.samples import literals
from tilewright.hl.trace.state import Trace, raw_shape


def host_view(trace: Trace, argument: Any, path: carried.Path, static: bool, constant: tuple[type, ...]) -> Any:
    """What host code sees for an argument, or for a part of one.

    Args:
        trace: where symbols are made.
        argument: the actual object.
        path: the name of the parameter and the keys below it.
        static: whether sizes and strides are constants.
        constant: the types of numbers that are.
    """
    if isinstance(argument, torch.Tensor):
        return meta_tensor(trace, argument, path, static)
    if isinstance(argument, ConstExpr):
        return argument.value
    if isinstance(argument, int | float) and isinstance(argument, constant) and not isinstance(argument, bool):
        trace.guards.append((carried.path_text(path), argument))
    elif isinstance(argument, int) and not isinstance(argument, bool):
        return trace.host_symbol(carried.path_name(path), carried.path_text(path), argument)
    elif type(argument) is float:
        return number(trace, carried.path_text(path), argument, carried.path_name(path))
    children = carried.children(argument)
    items = {key: host_view(trace, item, (*path, key), static, constant) for key, item in children}
    return carried.rebuilt(argument, items) if children else argument


def meta_tensor(trace: Trace, tensor: torch.Tensor, path: carried.Path, static: bool) -> Any:
    """A tensor of the host: the same form, no data. Where sizes are no constants, those of 0 and 1 are:
    the one have nothing to be computed, the others broadcast."""
    trace.has_wide = trace.has_wide or reaches(tensor)
    with trace.silence():
        if static:
            return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
        name, text = carried.path_name(path), carried.path_text(path)
        shape = [
            extent if extent < 2 else sample(trace.host_symbol(f"{name}_size_{dim}", f"{text}.size({dim})", extent))
            for dim, extent in enumerate(tensor.shape)
        ]
        order = sorted(range(tensor.dim()), key=lambda dim: (tensor.stride(dim), -dim))
        strides, step = [0] * tensor.dim(), 1
        for dim in order:
            if step == 1 and tensor.stride(dim) > 1:
                step = 2  # nothing but that it is not 1 is known of a stride
            strides[dim] = step if tensor.stride(dim) else 0
            step *= shape[dim]
        made = torch.empty_strided(shape, strides, dtype=tensor.dtype, device="meta")
    trace.arguments[id(made)] = made, path, tensor.stride()
    return made


def strides_of(trace: Trace, tensor: torch.Tensor, name: str, text: str) -> tuple[Any, ...]:
    """The strides of a tensor of the host: where sizes are no constants symbols, but for those of 0 and 1.

    Args:
        trace: where symbols are made.
        tensor: the meta tensor.
        name: the kernel's parameter.
        text: expression of the launcher.
    """
    with torch._C.DisableTorchFunction():
        samples: tuple[int, ...] = tensor.stride()
    if trace.static and not any(isinstance(trace.factors.size(extent), Sym) for extent in raw_shape(tensor)):
        return samples
    _, path, actual = trace.arguments.get(id(tensor), (None, (), (None,) * len(samples)))
    if path:
        name, text = carried.path_name(path), carried.path_text(path)
    return tuple(
        step if step < 2 else trace.host_symbol(f"{name}_stride_{dim}", f"{text}.stride({dim})", known)
        for dim, (step, known) in enumerate(zip(samples, actual, strict=True))
    )


def integers(argument: Any) -> list[int]:
    """The integers of an argument that primes must not divide: sizes, strides, numbers."""
    if isinstance(argument, torch.Tensor):
        return list(literals(tuple(argument.shape), argument.stride()))
    children = carried.children(argument)
    return [n for _, item in children for n in integers(item)] if children else list(literals(argument))


def has_numbers(argument: Any, kind: type) -> bool:
    """Whether there are numbers of a type among arguments."""
    return type(argument) is kind or any(has_numbers(item, kind) for _, item in carried.children(argument))


def device_of(arguments: Any) -> Any:
    """The device of the first tensor in nested arguments.

    Raises:
        NoTensorArgs: there is none.
    """
    found = _first_device(arguments)
    if found is None:
        raise exc.NoTensorArgs(
            "no argument is a tensor, so there is no device to run on",
            hint="pass a tensor, or a torch.device as an argument; of a list of numbers torch.tensor(x) makes one",
        )
    return found


def _first_device(tree: Any) -> Any:
    if isinstance(tree, torch.Tensor):
        return tree.device
    if isinstance(tree, torch.device):
        return tree
    below = (_first_device(item) for _, item in carried.children(tree))
    return next((found for found in below if found is not None), None)
