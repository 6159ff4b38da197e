"""`tilewright.runtime.driver`: which device launches go to, and what it can do, under the names that Triton uses.

A launch goes where its arrays are; the active driver is asked for everything else: what to compile for when there are
no arrays, and what people want to know of "the device". At the start it is a GPU's if there is one, else the CPU's.

The CPU is device 0 and has no streams. Properties that only a GPU has get the value that makes the usual occupancy
formulas come out right on a CPU: one "multiprocessor" is one thread of a launch, a warp is one lane wide.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tilewright.base.errors import UnsupportedError
from tilewright.base.knobs import knobs
from tilewright.base.target import Target
from tilewright.devices.arrays import HOST
from tilewright.devices.registry import cpu, gpu, nvidia


class CpuUtils:
    """Questions about a device."""

    def get_device_properties(self, device: int = 0) -> dict[str, int]:
        """Properties of the CPU.

        Returns:
            "multiprocessor_count": threads of a launch; "max_shared_mem": bytes of the cache next to a core that
            a tile should fit in (L2); "max_num_regs": vector registers; "warpSize": 1; "vector_bytes": width of one
            register.
        """
        features = cpu.features_of(cpu.target())
        return {
            "multiprocessor_count": cpu.threads(),
            "max_shared_mem": cache_bytes(2),
            "max_num_regs": 32 if features.has_zmm or not features.is_x86 else 16,
            "warpSize": 1,
            "vector_bytes": features.vector_bytes,
        }


class CpuDriver:
    """The CPU as a device.

    Attributes:
        utils: see `CpuUtils`.
    """

    def __init__(self) -> None:
        self.utils = CpuUtils()

    @staticmethod
    def is_active() -> bool:
        """Always: there is a CPU."""
        return True

    def get_current_target(self) -> Target:
        """What kernels are compiled for: `backend`, `arch`, `warp_size`."""
        return cpu.target()

    def get_current_device(self) -> int:
        """0, the only one."""
        return 0

    def set_current_device(self, device: int) -> None:
        """Accepts 0.

        Raises:
            UnsupportedError: another device.
        """
        if device != 0:
            raise UnsupportedError(f"there is no CPU device {device}", hint="the CPU is device 0")

    def get_current_stream(self, device: int = 0) -> int:
        """0: a launch has finished when it returns."""
        return 0

    def get_device_capability(self, device: int = 0) -> tuple[str, int]:
        """("cpu", 0)."""
        return ("cpu", 0)

    def get_active_torch_device(self) -> Any:
        """`torch.device("cpu")`."""
        import torch

        return torch.device("cpu")

    def get_device_interface(self) -> Any:
        """`torch.cpu`, which has `synchronize()`."""
        import torch

        return torch.cpu


class CudaUtils:
    """Questions about a GPU."""

    def get_device_properties(self, device: int = 0) -> dict[str, int]:
        """Properties of a GPU.

        Returns:
            "multiprocessor_count"; "max_shared_mem": bytes that one program may have; "max_num_regs": registers of a
            program; "warpSize"; "sm_clock_rate" and "mem_clock_rate" in kHz; "mem_bus_width" in bits.

        Raises:
            DriverError: there is no such GPU.
        """
        found = gpu.device(device).attributes
        return {
            "multiprocessor_count": found["multiprocessors"],
            "max_shared_mem": found["shared_limit"],
            "max_num_regs": found["registers_per_block"],
            "warpSize": found["warp_size"],
            "sm_clock_rate": found["clock_khz"],
            "mem_clock_rate": found["memory_clock_khz"],
            "mem_bus_width": found["memory_bus_bits"],
        }


class CudaDriver:
    """The NVIDIA GPUs of this machine.

    Attributes:
        utils: see `CudaUtils`.
    """

    def __init__(self) -> None:
        self.utils = CudaUtils()

    @staticmethod
    def is_active() -> bool:
        """Whether there is a driver with a GPU."""
        return bool(gpu.device_count())

    def get_current_target(self) -> Target:
        """What kernels are compiled for: `backend`, `arch`, `warp_size`."""
        return nvidia.target(self.get_current_device())

    def get_current_device(self) -> int:
        """Number of the GPU in use: torch's current one, if torch is loaded."""
        return current_gpu()

    def set_current_device(self, device: int) -> None:
        """Use another GPU.

        Raises:
            DriverError: there is no such GPU.
        """
        torch = _torch_with_cuda()
        if torch is None:
            gpu.set_current_device(device)
        else:
            torch.cuda.set_device(gpu.device(device).ordinal)

    def get_current_stream(self, device: int = 0) -> int:
        """Handle of the stream that launches go to: torch's current one, else the default stream."""
        return gpu.current_stream(device)

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        """Compute capability, such as (9, 0)."""
        major, minor = divmod(gpu.device(device).capability, 10)
        return major, minor

    def get_active_torch_device(self) -> Any:
        """`torch.device("cuda", n)`."""
        import torch

        return torch.device("cuda", self.get_current_device())

    def get_device_interface(self) -> Any:
        """`torch.cuda`, which has `synchronize()` and `Event`."""
        import torch

        return torch.cuda


def current_gpu() -> int:
    """Number of the GPU in use: torch's current one, if torch is loaded."""
    torch = _torch_with_cuda()
    return gpu.current_device() if torch is None else int(torch.cuda.current_device())


def _torch_with_cuda() -> Any:
    """torch, if it is loaded and was built for GPUs."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and getattr(torch.version, "cuda", None) else None


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
            self._default = CudaDriver() if _starts_with_gpu() else CpuDriver()
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
        self.set_active(CpuDriver())

    def set_active_to_gpu(self) -> None:
        """Use the GPUs.

        Raises:
            DriverError: there is no driver, or no GPU.
        """
        gpu.device(0)
        self.set_active(CudaDriver())

    def get_active_gpus(self) -> list[Any]:
        """Drivers of GPUs that launches can go to: one for all NVIDIA GPUs, or none."""
        return [CudaDriver()] if gpu.device_count() else []


def _starts_with_gpu() -> bool:
    wanted = knobs.runtime.default_backend
    if wanted not in ("auto", "cpu", "cuda"):
        raise UnsupportedError(f"there is no device {wanted!r}", hint="TILEWRIGHT_DEFAULT_BACKEND is auto, cpu or cuda")
    if wanted != "auto":
        return wanted == "cuda"
    torch = sys.modules.get("torch")
    return (torch is None or _torch_with_cuda() is not None) and bool(gpu.device_count())


driver = DriverConfig()


def target_at(device: int | None) -> Target:
    """What is compiled for launches on a device.

    Args:
        device: number of the GPU, `HOST`, or None for the active driver's.
    """
    if device is None:
        target: Target = driver.active.get_current_target()
        return target
    return cpu.target() if device == HOST else nvidia.target(device)


def cache_bytes(level: int) -> int:
    """Bytes of the data cache of a level of core 0, as Linux reports it; 1 MiB where it does not."""
    for folder in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            found = {name: (folder / name).read_text().strip() for name in ("level", "type", "size")}
        except OSError:
            continue
        if found["level"] == str(level) and found["type"] != "Instruction" and found["size"][:-1].isdigit():
            scale = {"K": 1 << 10, "M": 1 << 20}.get(found["size"][-1], 0)
            return int(found["size"][:-1]) * scale
    return 1 << 20
