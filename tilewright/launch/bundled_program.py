"""Host functions that come from a bundle: memory is allocated, kernels are launched, and no PyTorch is asked."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.base.errors import NotCompiledError, UnsupportedError
from tilewright.compile.programs import At, Given, Memory, Number, Program, Result, Variant


class BundledProgram:
    """A host function of a bundle, called with tensors of PyTorch or arrays of numpy.

    Args:
        program: what it does.
        kernels: of the bundle.
    """

    def __init__(self, program: Program, kernels: Mapping[str, Any]) -> None:
        self.name, self._program, self._kernels = program.name, program, kernels
        self._found: dict[Any, Variant] = {}

    def variants(self) -> list[str]:
        """A line for each variant: its target and the arguments that it is for."""
        return [f"{one.target}: {', '.join(map(_shown, one.arguments))}" for one in self._program.variants]

    def __call__(self, *args: Any) -> Any:
        key = tuple(map(_key, args))
        variant = self._found.get(key)
        if variant is None:
            variant = self._found[key] = self._fitting(key)
        made = [_allocated(memory, args) for memory in variant.buffers]
        memories = [*args, *made]
        for step in variant.steps:
            passed = [_argument(argument, memories) for argument in step.arguments]
            self._kernels[step.kernel][step.grid](*passed, **step.options)
        results = [_result(result, memories, variant) for result in variant.results]
        return results[0] if variant.single else tuple(results) if results else None

    def _fitting(self, key: tuple[Any, ...]) -> Variant:
        for variant in self._program.variants:
            if tuple(map(_key_of, variant.arguments)) == key:
                return variant
        raise NotCompiledError(
            f"{self.name}: the bundle has no variant for arguments like these",
            hint="it has " + "; ".join(self.variants()),
        )


def _shown(argument: Memory | Given) -> str:
    if isinstance(argument, Given):
        return f"{argument.name} = {argument.value!r}"
    return f"{argument.name}: {argument.dtype} {list(argument.shape)}, strides {list(argument.strides)}"


def _key_of(argument: Memory | Given) -> Any:
    if isinstance(argument, Given):
        return type(argument.value).__name__, argument.value
    return argument.dtype, argument.shape, _steps(argument.shape, argument.strides)


def _key(value: Any) -> Any:
    """What a variant is found by: of a number the number, of a tensor its type, shape and strides."""
    if not hasattr(value, "dtype") or not hasattr(value, "shape"):
        return type(value).__name__, value
    dtype, shape = str(value.dtype).removeprefix("torch."), tuple(value.shape)
    if isinstance(value, np.ndarray):
        return dtype, shape, _steps(shape, tuple(step // value.itemsize for step in value.strides))
    return dtype, shape, _steps(shape, tuple(value.stride()))


def _steps(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of the dimensions in which there is a step."""
    return tuple(step for extent, step in zip(shape, strides, strict=True) if extent > 1)


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _allocated(memory: Memory, args: tuple[Any, ...]) -> Any:
    """Memory like that of the arguments: a tensor where one of them is one, else an array."""
    tensors = [value for value in args if _is_tensor(value)]
    if tensors:
        torch = sys.modules["torch"]
        made = torch.empty_strided(
            memory.shape, memory.strides, dtype=getattr(torch, memory.dtype), device=tensors[0].device
        )
        return made if memory.fill is None else made.fill_(memory.fill)
    try:
        flat = np.empty(memory.elements, np.dtype(memory.dtype))
    except TypeError:
        raise UnsupportedError(f"numpy has no type {memory.dtype}", hint="pass tensors of PyTorch") from None
    if memory.fill is not None:
        flat.fill(memory.fill)
    return _strided(flat, memory.shape, memory.strides)


def _strided(flat: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    return np.lib.stride_tricks.as_strided(flat, shape, [step * flat.itemsize for step in strides])


class _Place:
    """An address inside of a tensor, with the type of what lies there, as arguments of kernels are read."""

    def __init__(self, address: int, dtype: Any, owner: Any) -> None:
        self._address, self.dtype, self.owner = address, dtype, owner

    def data_ptr(self) -> int:
        """The address."""
        return self._address


def _address(value: Any) -> int:
    return int(value.data_ptr() if hasattr(value, "data_ptr") else value.__array_interface__["data"][0])


def _argument(argument: At | Number, memories: list[Any]) -> Any:
    if not isinstance(argument, At):
        return argument
    owner = memories[argument.memory]
    if not argument.offset and str(owner.dtype).removeprefix("torch.") == argument.dtype:
        return owner
    dtype = getattr(sys.modules["torch"], argument.dtype) if _is_tensor(owner) else np.dtype(argument.dtype)
    return _Place(_address(owner) + argument.offset, dtype, owner)


def _result(result: Result, memories: list[Any], variant: Variant) -> Any:
    owner, memory = memories[result.at.memory], variant.memories[result.at.memory]
    assert isinstance(memory, Memory)
    if result.at == At(result.at.memory, 0, memory.dtype) and (result.shape, result.strides) == (
        memory.shape,
        memory.strides,
    ):
        return owner
    if _is_tensor(owner):
        flat = owner.as_strided((memory.elements,), (1,)).view(getattr(sys.modules["torch"], result.at.dtype))
        first = flat.storage_offset() + result.at.offset // flat.itemsize
        return flat.as_strided(result.shape, result.strides, first)
    flat = _strided(owner, (memory.elements,), (1,)).view(np.dtype(result.at.dtype))
    return _strided(flat[result.at.offset // flat.itemsize :], result.shape, result.strides)
