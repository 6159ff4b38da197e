"""Which storages of PyTorch have been made without contents, and who reads them: for the check `uninitialised`.

torch.empty(...)            nobody has written it: kernels that read it are at fault
out-of-place operations     what they give is written
x.fill_(0), out=x           x is written
any other use of x          a fault, where a kernel has stored to x and left elements of it out
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tilewright.launch.extents import Extent
from tilewright.launch.faults import Fault, tell_faults
from tilewright.launch.shadow import Watched, shadow
from tilewright.launch.tracer_slot import onlookers

_EMPTY = frozenset({"empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided", "empty_permuted"})


class StorageWatch(TorchDispatchMode):  # type: ignore[misc]
    """A block in which storages are followed from their making on."""

    only_looks_on = True

    def __enter__(self) -> StorageWatch:
        onlookers.count += 1
        super().__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)
        onlookers.count -= 1

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        if func.namespace.startswith("tilewright"):  # a launch that PyTorch sees as an operator: its kernel is checked
            made = func(*args, **given)
            for tensor in _tensors(made):
                shadow.forget(_extent(tensor)[0])
            return made
        name = func._schema.name.split("::")[-1]
        if not func.is_view and name not in _EMPTY:
            for tensor in _read(func, args, given):
                _check_read(tensor)
        made = func(*args, **given)
        if name in _EMPTY:
            for tensor in _tensors(made):
                shadow.watch(_extent(tensor))
        elif func._schema.is_mutable:
            for tensor in _written(func, args, given):
                _note_written(tensor)
        elif not func.is_view:
            for tensor in _tensors(made):
                shadow.forget(_extent(tensor)[0])
        return made


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """Tensors in memory of the host, to any depth; sparse ones have no memory of their own, their parts have."""
    leaves = (leaf for leaf in tree_leaves(value) if type(leaf) is torch.Tensor)
    return (leaf for leaf in leaves if leaf.device.type == "cpu" and leaf.layout is torch.strided)


def _extent(tensor: torch.Tensor) -> Extent:
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.data_ptr() + storage.nbytes()


def _arguments(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterable[tuple[bool, Any]]:
    """The arguments, each with whether it is written."""
    for number, argument in enumerate(func._schema.arguments):
        value = args[number] if number < len(args) else kwargs.get(argument.name)
        yield argument.alias_info is not None and argument.alias_info.is_write, value


def _read(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[torch.Tensor]:
    return (tensor for written, value in _arguments(func, args, kwargs) if not written for tensor in _tensors(value))


def _written(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[torch.Tensor]:
    return (tensor for written, value in _arguments(func, args, kwargs) if written for tensor in _tensors(value))


def _watched(tensor: torch.Tensor) -> Watched | None:
    found = shadow.watched.get(_extent(tensor)[0])
    return found if found is not None and found.extent == _extent(tensor) else None


def _words(tensor: torch.Tensor, watched: Watched) -> torch.Tensor:
    """The words of the elements of a tensor, in its shape."""
    words = torch.from_numpy(watched.at(tensor.element_size()))
    return words.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def _note_written(tensor: torch.Tensor) -> None:
    watched = _watched(tensor)
    if watched is None or not tensor.numel():
        return
    with _unwatched():
        words = _words(tensor, watched)
        words.clamp_(min=1)
    if watched.words[: tensor.untyped_storage().nbytes() // watched.granule].all():
        shadow.forget(watched.extent[0])


def _check_read(tensor: torch.Tensor) -> None:
    watched = _watched(tensor)
    if watched is None or not watched.kernel or not tensor.numel():
        return
    with _unwatched():
        missing = int(np.count_nonzero(_words(tensor, watched).numpy() == 0))
    if missing:
        kernel, watched.kernel = watched.kernel, ""  # once
        fault = Fault("never written", kernel, None, "", watched.argument, (0, 0, 0), times=missing)
        tell_faults([fault], asked=False)


def _unwatched() -> Any:
    """A block whose operations nobody follows."""
    return torch.utils._python_dispatch._disable_current_modes()
