"""A call of a kernel recorded as data: the memory that its host code makes, its launches, what it returns.

The host function runs once with the arguments of the call; its launches compile and are written down. What PyTorch is
asked for on the host may make memory and views of it, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tilewright.compiler.programs import At, Given, Memory, Result, Step, Variant
from tilewright.hl import exc
from tilewright.hl.constexpr import plain

_EMPTY = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"})
_FILLED = frozenset(
    {"zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones", "full", "full_like", "new_full"}
)


class Recording(TorchDispatchMode):  # type: ignore[misc]
    """What happens while a host function runs.

    Args:
        arguments: of the call, by name.
        target: what kernels are compiled for; None for this machine.

    Attributes:
        kernels: what was compiled, by name.
    """

    def __init__(self, arguments: Mapping[str, Any], target: str | None) -> None:
        super().__init__()
        self._target = target
        self.kernels: dict[str, Any] = {}
        self._steps: list[Step] = []
        self._buffers: list[Memory] = []
        self._held: list[torch.Tensor] = []
        self._given = [(name, plain(value)) for name, value in arguments.items()]
        self._storages: dict[int, tuple[int, torch.Tensor]] = {}
        for at, (name, value) in enumerate(self._given):
            if isinstance(value, torch.Tensor):
                if _storage(value) in self._storages:
                    raise exc.UnsupportedOperation(f"{name} shares memory with another argument", hint="pass copies")
                self._storages[_storage(value)] = at, value
            elif not isinstance(value, int | float | str | None):
                raise exc.UnsupportedOperation(
                    f"a bundle for the argument {name} of type {type(value).__name__}",
                    hint="tensors and numbers are taken",
                )

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        name = func._schema.name.removeprefix("aten::")
        outs = [one for one in (made if isinstance(made, list | tuple) else [made]) if isinstance(one, torch.Tensor)]
        fresh = [one for one in outs if _storage(one) not in self._storages]
        if func._schema.is_mutable or len(fresh) > 1 or (fresh and name not in _EMPTY | _FILLED) or not outs:
            raise exc.UnsupportedOperation(
                f"a bundle of host code that computes with PyTorch: {func}",
                hint="compute it in a loop of the kernel, or before the call",
            )
        for one in fresh:
            fill = one.flatten()[0].item() if name in _FILLED and one.numel() else None
            at = len(self._given) + len(self._buffers)
            self._buffers.append(_memory(f"buffer_{len(self._buffers)}", one, fill))
            self._storages[_storage(one)] = at, one
            self._held.append(one)  # so that no other tensor gets its storage
        return made

    def launched(self, kernel: Any, grid: Any, args: Sequence[Any], options: Mapping[str, Any]) -> None:
        """Compile and write down a launch."""
        with torch.utils._python_dispatch._disable_current_modes():
            target = {} if self._target is None else {"target": self._target}
            made = kernel.warmup(*args, grid=grid, **options, **target)
            passed = tuple(self._place(arg) if isinstance(arg, torch.Tensor) else _number(arg) for arg in args)
        known = self.kernels.setdefault(kernel.fn.__name__, made)
        assert known is made, "a kernel is launched at one place"
        sizes = (*(grid if isinstance(grid, tuple) else (grid,)), 1, 1)
        self._steps.append(
            Step(kernel.fn.__name__, (int(sizes[0]), int(sizes[1]), int(sizes[2])), passed, dict(options))
        )

    def _place(self, tensor: torch.Tensor) -> At:
        at, owner = self._storages[_storage(tensor)]
        return At(at, tensor.data_ptr() - owner.data_ptr(), _dtype(tensor))

    def variant(self, returned: Any) -> Variant:
        """The call as data.

        Args:
            returned: what the host function returned.
        """
        single = isinstance(returned, torch.Tensor)
        results = [returned] if single else list(returned or ())
        for one in results:
            if not isinstance(one, torch.Tensor):
                raise exc.UnsupportedOperation(
                    f"a bundle of a kernel that returns a {type(one).__name__}", hint="return tensors"
                )
        with torch.utils._python_dispatch._disable_current_modes():
            found = tuple(Result(self._place(one), tuple(one.shape), tuple(one.stride())) for one in results)
        arguments = tuple(
            _memory(name, value) if isinstance(value, torch.Tensor) else Given(name, value)
            for name, value in self._given
        )
        targets = {str(kernel.target) for kernel in self.kernels.values()}
        return Variant(
            targets.pop() if targets else "", arguments, tuple(self._buffers), tuple(self._steps), found, single
        )


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _memory(name: str, tensor: torch.Tensor, fill: Any = None) -> Memory:
    return Memory(name, _dtype(tensor), tuple(tensor.shape), tuple(tensor.stride()), fill)


def _number(value: Any) -> Any:
    if not isinstance(value, int | float):
        raise exc.UnsupportedOperation(
            f"a bundle of a launch with a {type(value).__name__}", hint="pass tensors and numbers"
        )
    return value
