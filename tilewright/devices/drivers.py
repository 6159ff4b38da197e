"""`tilewright.runtime.driver`: which device launches go to, and what it can do, under the names that Triton uses.

A launch goes where its arrays are; the active driver is asked for everything else: what to compile for when there are
no arrays, and what people want to know of "the device". At the start it is a GPU's if there is one, else the CPU's.
The drivers are those of the back ends (`device/active.py` of each); `registry.py` lists them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.base.builtin import answer_on_host_by
from tilewright.base.errors import UnsupportedError
from tilewright.base.knobs import knobs
from tilewright.base.target import Target
from tilewright.devices.arrays import HOST
from tilewright.devices.registry import BACKENDS, cpu, gpu, nvidia


class DriverConfig:
    """The driver in use."""

    def __init__(self) -> None:
        self._default: Any = None
        self._active: Any = None
        self.on_change: list[Callable[[], None]] = []  # called when another driver becomes active

    @property
    def default(self) -> Any:
        """The driver chosen for this machine, on first use: as the knob says, else a GPU's if there is one."""
        if self._default is None:
            self._default = _usual()
        return self._default

    @property
    def active(self) -> Any:
        """The driver in use."""
        return self.default if self._active is None else self._active

    def set_active(self, driver: Any) -> None:
        """Use another driver object."""
        self._active = driver
        for forget in self.on_change:
            forget()

    def reset_active(self) -> None:
        """Use the default again."""
        self.set_active(None)

    def set_active_to_cpu(self) -> None:
        """Use the CPU."""
        self.set_active(_made("cpu"))

    def set_active_to_gpu(self) -> None:
        """Use the GPUs.

        Raises:
            DriverError: there is no driver, or no GPU.
        """
        gpu.device(0)
        self.set_active(_made("cuda"))

    def get_active_gpus(self) -> list[Any]:
        """Drivers of GPUs that launches can go to: one for all NVIDIA GPUs, or none."""
        return [_made("cuda")] if gpu.device_count() else []


def _usual() -> Any:
    """The driver that is active at the start: as the knob says, else that of the last device listed that wants to be.

    Raises:
        UnsupportedError: the knob names no device.
    """
    names = [name for name, entry in BACKENDS.items() if entry.device is not None]
    wanted = knobs.runtime.default_backend
    if wanted in names:
        return _made(wanted)
    if wanted != "auto":
        known = f"auto, {', '.join(names[:-1])} or {names[-1]}"
        raise UnsupportedError(f"there is no device {wanted!r}", hint=f"TILEWRIGHT_DEFAULT_BACKEND is {known}")
    return next(found for found in map(_made, reversed(names)) if found.is_preferred())


def _made(name: str) -> Any:
    return BACKENDS[name].device.Driver()


driver = DriverConfig()
answer_on_host_by(lambda: driver.active.get_current_target())


def target_at(device: int | None) -> Target:
    """What is compiled for launches on a device.

    Args:
        device: number of the GPU, `HOST`, or None for the active driver's.
    """
    if device is None:
        target: Target = driver.active.get_current_target()
        return target
    return cpu.target() if device == HOST else nvidia.target(device)
