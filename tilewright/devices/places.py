"""Where the arguments of a launch live, and so where the launch goes.

A launch goes to the GPU whose memory its arrays are in, else to the CPU. Arrays on two GPUs, or on a GPU and the CPU,
are refused by name; but a GPU reaches pinned memory of the host. A launch without arrays goes to the active driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from tilewright.base.errors import ArgumentError, DeviceError
from tilewright.base.target import Target
from tilewright.devices.arrays import HOST, Array, read
from tilewright.devices.drivers import driver
from tilewright.devices.host_descriptor import TensorDescriptor
from tilewright.devices.registry import gpu


class Place(NamedTuple):
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


def placed(place: Place, device: Any, device_type: str | None) -> Place:
    """Where a launch goes that names its device, which must be where its arrays are if it has any.

    Args:
        place: where the arrays are.
        device: number of a device, or torch's object for one; None if the launch does not say.
        device_type: "cpu" or "cuda"; None if the launch does not say.

    Raises:
        ArgumentError: they name no device.
        DeviceError: the arrays are elsewhere.
    """
    if device is None and device_type is None:
        return place
    kind, number = device_type or getattr(device, "type", None), getattr(device, "index", device)
    if kind is None:
        here = place.device == HOST if place.device is not None else not driver.active.has_queue
        kind = "cpu" if here else "cuda"
    if kind not in ("cpu", "cuda") or not isinstance(number, int | None):
        raise ArgumentError(f"device={device!r}, device_type={device_type!r} name no device", hint="as in device=0")
    wanted = HOST if kind == "cpu" else gpu.current_gpu() if number is None else number
    if place.device not in (None, wanted):
        raise DeviceError(
            f"argument `{place.argument}` is on {_device_name(place.device)}, but the launch names "
            f"{_device_name(wanted)}",
            hint="leave out device: a launch goes where its arrays are",
        )
    return Place(wanted, "device", place.lasting and (number is not None or wanted in (HOST, place.device)))


def stream_handle(stream: Any) -> int | None:
    """The handle of a stream: of torch's object for one, or as it is.

    Raises:
        ArgumentError: it is neither.
    """
    found = getattr(stream, "cuda_stream", stream)
    if found is not None and not isinstance(found, int):
        raise ArgumentError(f"stream={stream!r} is no stream", hint="pass a stream of torch, or its handle")
    return found


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
        if isinstance(value, tuple):
            ordinal = gpu_of(value)
            if ordinal is not None:
                return ordinal
            continue
        inner = value.base if isinstance(value, TensorDescriptor) else value
        on_gpu = getattr(inner, "is_cuda", None)
        if on_gpu or (on_gpu is None and hasattr(inner, "__cuda_array_interface__")):
            array = read(inner, "argument")
            assert isinstance(array, Array)
            return array.device
    return None
