"""What a `triton_op` declares to change, held against what it writes at its first run."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tilewright.base.errors import TilewrightError
from tilewright.torch import operators

log = logging.getLogger("tilewright.torch")


class MutationError(TilewrightError, RuntimeError):
    """An operator writes an argument that it does not declare to change."""


@contextlib.contextmanager
def checked_writes(schema: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[None]:
    """Watch everything that is called inside for writes to the memory of the arguments.

    Args:
        schema: of the operator that runs.
        name: of it.
        args, kwargs: of the call.

    Raises:
        MutationError: an argument that is not declared to change is about to be written.
    """
    watch = _Writes(schema, name, args, kwargs)
    with watch:
        yield
    for argument in watch.unwritten():
        log.warning("operator %s declares to change `%s`, but did not write it", name, argument)


class _Writes(TorchDispatchMode):  # type: ignore[misc]  # torch is not checked
    """Looks at the operators called while an operator runs, before each takes place."""

    def __init__(self, schema: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        super().__init__()
        self._name = name
        self._owners: dict[int, set[str]] = {}
        self._allowed: set[str] = set()
        self._written: set[str] = set()
        for index, argument in enumerate(schema.arguments):
            value = args[index] if index < len(args) else kwargs.get(argument.name)
            if argument.alias_info is not None and argument.alias_info.is_write:
                self._allowed.add(argument.name)
            for tensor in tree_leaves(value):
                if isinstance(tensor, torch.Tensor):
                    self._owners.setdefault(_storage(tensor), set()).add(argument.name)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for index, argument in enumerate(func._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                value = args[index] if index < len(args) else kwargs.get(argument.name)
                for tensor in tree_leaves(value):
                    if isinstance(tensor, torch.Tensor):
                        self._note(func, index, self._owners.get(_storage(tensor), set()))
        return func(*args, **kwargs)

    def _note(self, func: Any, index: int, owners: set[str]) -> None:
        """Args: the operator that writes, the index of its argument, and whose memory that is."""
        self._written |= owners
        if not owners or owners & self._allowed:
            return
        owner = sorted(owners)[0]
        raise MutationError(
            f"operator {self._name} changes its argument `{owner}`: {_explain(func, index)}",
            hint=f'write mutates_args={{"{owner}"}}, or work on {owner}.clone()',
        )

    def unwritten(self) -> list[str]:
        """Arguments declared to change that nothing wrote."""
        return sorted(self._allowed - self._written) if self._owners else []


def _explain(func: Any, index: int) -> str:
    """Who writes, and where in a kernel's source."""
    operator = operators.OPERATORS.get(func._schema.name.partition("::")[2])
    if operator is None:
        return f"{func} writes it"
    name, place = operator.leaves[index][0], operator.written.get(index)
    where = "" if place is None else f"\n{place.render()}"
    return f"kernel `{operator.base.fn.__name__}` writes it through `{name}`{where or f' ({operator.unsure})'}"


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
