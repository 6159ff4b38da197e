"""The NVIDIA GPUs of this machine as the active driver's devices, under the names that Triton uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.backends.driver import DriverBase
from tilewright.backends.nvidia.device import driver as gpu
from tilewright.base.cache_layers import SmallObjects
from tilewright.base.host_map import MapWriter
from tilewright.base.lazy import lazy_module
from tilewright.base.refusal import Refusal
from tilewright.base.target import Target

if TYPE_CHECKING:
    from tilewright.backends.nvidia import backend as nvidia
else:
    nvidia = lazy_module("tilewright.backends.nvidia.backend", lambda module: module.set_cache(SmallObjects()))


class CudaUtils(MapWriter):
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

    def load_binary(self, name: str, kernel: bytes, shared: int, device: int) -> tuple[Any, int, int, int, int]:
        """Load a cubin.

        Args:
            name: symbol of the kernel in it.
            kernel: `CompiledKernel.kernel`.
            shared: bytes of dynamic shared memory of a launch.
            device: number of the GPU.

        Returns:
            What keeps the code loaded, its CUfunction, registers and spilled 4-byte words of a thread, and the most
            threads of a block.

        Raises:
            DriverError: the driver refuses it.
        """
        made = gpu.Function(kernel, name, device, name, shared)
        return made, made.handle, made.registers, made.local_bytes // 4, made.max_threads

    def unload_module(self, module: Any) -> None:
        """Nothing: code goes when nobody holds what keeps it loaded."""

    set_printf_fifo_size = Refusal(
        "driver.active.utils.set_printf_fifo_size",
        "what kernels print goes through a buffer of ours, not CUDA's printf",
    )


class CudaDriver(DriverBase):
    """The NVIDIA GPUs of this machine.

    Attributes:
        utils: see `CudaUtils`.
    """

    has_queue = True  # launches are taken in order and finish later

    def __init__(self) -> None:
        self.utils = CudaUtils()

    @staticmethod
    def is_active() -> bool:
        """Whether there is a driver with a GPU."""
        return bool(gpu.device_count())

    @staticmethod
    def is_preferred() -> bool:
        """Whether launches go here if nobody says where: a GPU on which torch, if loaded, can have tensors."""
        return not gpu.torch_without_cuda() and bool(gpu.device_count())

    def get_current_target(self) -> Target:
        """What kernels are compiled for: `backend`, `arch`, `warp_size`."""
        return nvidia.target(self.get_current_device())

    def get_current_device(self) -> int:
        """Number of the GPU in use: torch's current one, if torch is loaded."""
        return gpu.current_gpu()

    def set_current_device(self, device: int) -> None:
        """Use another GPU.

        Raises:
            DriverError: there is no such GPU.
        """
        torch = gpu.torch_with_cuda()
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


Driver = CudaDriver
