"""The CPU as the active driver's device, under the names that Triton uses for a GPU.

The CPU is device 0 and has no streams. Properties that only a GPU has get the value that makes the usual occupancy
formulas come out right on a CPU: one "multiprocessor" is one thread of a launch, a warp is one lane wide.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.backends.driver import DriverBase
from tilewright.base.cache_layers import SmallObjects
from tilewright.base.errors import UnsupportedError
from tilewright.base.host_map import MapWriter
from tilewright.base.lazy import lazy_module
from tilewright.base.refusal import Refusal
from tilewright.base.target import Target

if TYPE_CHECKING:
    from tilewright.backends.cpu import backend as cpu
    from tilewright.backends.llvm import codegen
else:
    codegen = lazy_module("tilewright.backends.llvm.codegen")
    cpu = lazy_module("tilewright.backends.cpu.backend", lambda module: module.set_cache(SmallObjects()))


class CpuUtils(MapWriter):
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

    set_printf_fifo_size = Refusal(
        "driver.active.utils.set_printf_fifo_size", "what kernels print on a CPU goes out at once, through no buffer"
    )

    def load_binary(self, name: str, kernel: bytes, shared: int, device: int) -> tuple[Any, int, int, int, int]:
        """Load an object file.

        Args:
            name: symbol of the kernel in it.
            kernel: `CompiledKernel.kernel`.
            shared, device: 0; a CPU has neither.

        Returns:
            What keeps the code alive, the address of the kernel, and for programs that ask GPUs: no registers, no
            spills, one thread.

        Raises:
            InternalError: the bytes are no loadable object with this symbol.
        """
        library = codegen.load(kernel, [name])
        return library, library.address(name), 0, 0, 1

    def unload_module(self, module: Any) -> None:
        """Nothing: code goes when nobody holds what keeps it alive."""


class CpuDriver(DriverBase):
    """The CPU as a device.

    Attributes:
        utils: see `CpuUtils`.
    """

    def __init__(self) -> None:
        self.utils = CpuUtils()

    has_queue = False  # a launch has finished when it returns

    @staticmethod
    def is_active() -> bool:
        """Always: there is a CPU."""
        return True

    @staticmethod
    def is_preferred() -> bool:
        """Whether launches go here if nobody says where: where there is nothing else."""
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


Driver = CpuDriver


def cache_bytes(level: int) -> int:
    """Bytes of the data cache of a level of core 0, as Linux reports it; 1 MiB where it does not."""
    for folder in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            found = {name: (folder / name).read_text(encoding="ascii").strip() for name in ("level", "type", "size")}
        except OSError:
            continue
        if found["level"] == str(level) and found["type"] != "Instruction" and found["size"][:-1].isdigit():
            scale = {"K": 1 << 10, "M": 1 << 20}.get(found["size"][-1], 0)
            return int(found["size"][:-1]) * scale
    return 1 << 20
