"""Where the arguments of a launch live, and so where the launch goes.

A launch goes to the GPU whose memory its arrays are in, else to the CPU. Arrays on two GPUs, or on a GPU and the CPU,
are refused by name; but a GPU reaches pinned memory of the host. A launch without arrays goes to the active driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.base.errors import DeviceError
from tilewright.base.target import Target
from tilewright.devices.arrays import HOST, Array, read
from tilewright.devices.host_descriptor import TensorDescriptor
from tilewright.devices.registry import gpu


@dataclass(frozen=True, slots=True)
class Place:
    """Where a launch goes.

    Args:
        device: number of the GPU, `HOST` for the CPU, or None where no array says.
        argument: name of an array there.
        lasting: whether every launch with arguments that look like these goes there too.
    """

    device: int | None
    argument: str = ""
    lasting: bool = True

    def device_for(self, target: Target, kernel: str) -> int | None:
        """Number of the GPU for a kernel that was compiled for `target`: the current one if no array says; None for a
        CPU.

        Raises:
            DeviceError: the arrays are elsewhere.
        """
        on_cpu = target.backend == "cpu"
        if self.device is None:
            return None if on_cpu else gpu.current_gpu()
        if on_cpu == (self.device == HOST):
            return None if on_cpu else self.device
        raise DeviceError(
            f"kernel `{kernel}` was compiled for {target}, but argument `{self.argument}` is on "
            f"{_device_name(self.device)}",
            hint="launch it through the function with @jit, which compiles for the device of its arguments",
        )


def place_of(names: Sequence[str], arguments: Iterable[Any]) -> Place:
    """Where the arrays of a launch are.

    Args:
        names: of the parameters.
        arguments: of each, with arrays read.

    Raises:
        DeviceError: no device reaches all of them.
    """
    found = [(name, array) for name, array in _arrays(names, arguments) if array.device is not None]
    on_host = [row for row in found if row[1].device == HOST]
    on_gpus = [row for row in found if row[1].device != HOST]
    if not on_gpus:
        return Place(HOST, on_host[0][0]) if on_host else Place(None)
    name, device = on_gpus[0][0], on_gpus[0][1].device
    for other, array in [*on_gpus, *on_host]:
        if array.device != device and not (array.device == HOST and _is_pinned(array)):
            raise DeviceError(
                f"argument `{other}` is on {_device_name(array.device)}, but `{name}` is on {_device_name(device)}",
                hint=f"pass {other}.to({name}.device)",
            )
    return Place(device, name, not on_host)


def _device_name(device: int | None) -> str:
    return "the CPU" if device == HOST else f"CUDA device {device}"


def _arrays(names: Sequence[str], arguments: Iterable[Any]) -> Iterator[tuple[str, Array]]:
    for name, argument in zip(names, arguments, strict=True):
        if isinstance(argument, Array):
            yield name, argument
        elif isinstance(argument, tuple):
            yield from _arrays([f"{name}[{index}]" for index in range(len(argument))], argument)


def _is_pinned(array: Array) -> bool:
    asked = getattr(array.owner, "is_pinned", None)
    return bool(asked()) if callable(asked) else False


def gpu_of(values: Iterable[Any]) -> int | None:
    """Number of the GPU that a launch with these arguments goes to, or None; they are looked at, not checked.

    Args:
        values: as the user passed them.
    """
    for value in values:
        inner = value.base if isinstance(value, TensorDescriptor) else value
        on_gpu = getattr(inner, "is_cuda", None)
        if on_gpu or (on_gpu is None and hasattr(inner, "__cuda_array_interface__")):
            array = read(inner, "argument")
            assert isinstance(array, Array)
            return array.device
    return None
