"""What a `triton_op` declares to change, held against what it writes: when it is defined, and at its first run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tilewright.base.errors import CompilationError, TilewrightError
from tilewright.base.grids import Grid
from tilewright.torch import hl_operators, operators, recording
from tilewright.torch.signature import KernelOperator, Signature
from tilewright.torch.state import doing

log = logging.getLogger("tilewright.torch")


class MutationError(TilewrightError, RuntimeError):
    """An operator writes an argument that it does not declare to change."""


class Writes(TorchDispatchMode):  # type: ignore[misc]  # torch is not checked
    """Looks at everything that is called while an operator runs, before it takes place, for writes to its arguments.

    Args:
        schema: of the operator.
        name: of it.
        args, kwargs: of the call.
    """

    def __init__(self, schema: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        super().__init__()
        self._name = name
        self._owners: dict[int, set[str]] = {}
        self._allowed: set[str] = set()
        self._written: set[str] = set()
        for index, argument in enumerate(schema.arguments):
            value = args[index] if index < len(args) else kwargs.get(argument.name)
            tensors = [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]
            if tensors and argument.alias_info is not None and argument.alias_info.is_write:
                self._allowed.add(argument.name)
            for tensor in tensors:
                self._owners.setdefault(_storage(tensor), set()).add(argument.name)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for index, argument in enumerate(func._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                value = args[index] if index < len(args) else kwargs.get(argument.name)
                for tensor in tree_leaves(value):
                    if isinstance(tensor, torch.Tensor):
                        self._note(_call_text(func, index), self._owners.get(_storage(tensor), set()))
        return func(*args, **kwargs)

    def launched(self, kernel: Any, grid: Grid, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Look at a launch that does not take place; of an autotuned kernel, at its first configuration."""
        signature, values = recording.described(kernel, grid, args, kwargs)
        operator = operators.described(Signature(*signature), most_configs=1)
        for index in operator.written:
            self._note(_launch_text(operator, index), self._owners.get(_storage(values[index]), set()))

    def _note(self, text: str, owners: set[str]) -> None:
        """Args: who writes, and whose memory that is."""
        self._written |= owners
        if not owners or owners & self._allowed:
            return
        owner = sorted(owners)[0]
        raise MutationError(
            f"operator {self._name} changes its argument `{owner}`: {text}",
            hint=f'write mutates_args={{"{owner}"}}, or work on {owner}.clone()',
        )

    def unwritten(self) -> list[str]:
        """Arguments declared to change that nothing wrote."""
        return sorted(self._allowed - self._written)


def _call_text(func: Any, index: int) -> str:
    """Who writes when an operator is called, and where in a kernel's source."""
    name = func._schema.name.partition("::")[2]
    if name in hl_operators.OPERATORS:
        called = hl_operators.OPERATORS[name]
        return f"kernel `{called.kernel.name}` writes it through `{called.names[index]}`"
    operator = operators.OPERATORS.get(name)
    return f"{func} writes it" if operator is None else _launch_text(operator, index)


def _launch_text(operator: KernelOperator, index: int) -> str:
    name, place = operator.leaves[index][0], operator.written.get(index)
    where = "" if place is None else f"\n{place.render()}"
    return f"kernel `{operator.base.fn.__name__}` writes it through `{name}`{where or f' ({operator.unsure})'}"


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


# --- before the first call ------------------------------------------------------------------------------------------

_RANKS = (2, 1, 3, 4)
_SIZE = 16


def writes_in_trial(schema: Any, name: str, fn: Callable[..., Any], operator: Any) -> Writes | None:
    """Run the body of an operator on fake tensors made up from its schema, without launching anything.

    All tensors have the same rank, and sizes of 16; ranks are tried in turn, with elements of float32, then each tensor
    as int64. What they show is true of a call; where none goes through nothing is known before the first call.

    Args:
        schema, name, fn: of the operator.
        operator: the operator.

    Returns:
        What was written in the first run that went through, or None.

    Raises:
        MutationError: an argument that is not declared to change is written.
    """
    tensors = [argument.name for argument in schema.arguments if "Tensor" in str(argument.type)]
    for rank in _RANKS:
        for integers in ("", *tensors):
            try:
                with FakeTensorMode(allow_non_fake_inputs=True):
                    args = [_made_up(argument, rank, argument.name == integers) for argument in schema.arguments]
                    positional = [v for a, v in zip(schema.arguments, args, strict=True) if not a.kwarg_only]
                    named = {a.name: v for a, v in zip(schema.arguments, args, strict=True) if a.kwarg_only}
                    watch = Writes(schema, name, positional, named)
                    with watch, doing(True, operator, watch.launched):
                        fn(*positional, **named)
                return watch
            except MutationError:
                raise
            except CompilationError:  # perhaps of the kinds of elements
                continue
            except Exception as error:  # whatever a user's function raises for such tensors
                log.debug("%s was not tried with %d dimensions: %s", name, rank, error)
                break
    return None


def _made_up(argument: Any, rank: int, integers: bool) -> Any:
    """A value for an argument of a schema.

    Raises:
        LookupError: of what type it is was not foreseen.
    """
    kind = str(argument.type)
    if "Tensor" in kind:
        tensor = torch.empty((_SIZE,) * rank, dtype=torch.int64 if integers else torch.float32)
        return [tensor] if kind.startswith("List") else tensor
    return argument.default_value if argument.has_default_value() else _NUMBERS[kind]


_NUMBERS = {"int": _SIZE, "float": 1.0, "bool": False, "number": 1}
