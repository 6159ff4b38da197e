"""What programs of Helion ask of versions and devices, answered for Tilewright."""

from __future__ import annotations

import collections
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tilewright import __version__

counters: collections.defaultdict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
"""What Helion counts; nothing is counted here."""

_TRITON = "3.9.0"  # whose names there are
_WARP = 32


class Version(tuple[int, ...]):
    """Numbers of a version, compared one by one.

    Args:
        text: such as "3.9.0" or "2.13.0+cpu".
    """

    def __new__(cls, text: str) -> Version:
        return super().__new__(cls, map(int, re.findall(r"\d+", text.split("+")[0])[:3]))

    def __str__(self) -> str:
        return ".".join(map(str, self))


def get_triton_version() -> Version:
    """The version of Triton whose names there are."""
    return Version(_TRITON)


def requires_torch_version(min_version: str) -> bool:
    """Whether torch is at least of this version."""
    return Version(torch.__version__) >= Version(min_version)


def requires_cuda_version(min_version: str) -> bool:
    """Whether torch was built for CUDA of at least this version."""
    return torch.version.cuda is not None and Version(torch.version.cuda) >= Version(min_version)


def triton_is_available() -> bool:
    """Yes: kernels compile everywhere."""
    return True


def prev_power_of_2(n: int) -> int:
    """The largest power of two that is not above `n`, and 1 below 1."""
    return 1 << max(n, 1).bit_length() - 1


# --- devices -------------------------------------------------------------------------------------------


def _yes(*args: Any) -> bool:
    """Yes."""
    return True


def _no(*args: Any) -> bool:
    """No."""
    return False


is_hip = supports_amd_cdna_tunables = supports_mtia_tunables = supports_tf32_precision_on_amd = _no
supports_host_tensor_descriptor = supports_torch_compile_fusion = _no
supports_block_ptr = supports_tensor_descriptor = _yes


def supports_maxnreg() -> bool:
    """Whether there is a GPU, whose compiler takes a limit of registers."""
    return bool(torch.cuda.is_available())


def target_device_capability(device: torch.device | None = None) -> tuple[int, int] | None:
    """What a GPU can do, such as (9, 0); None for other devices."""
    if not torch.cuda.is_available() or (device is not None and device.type != "cuda"):
        return None
    major, minor = torch.cuda.get_device_capability(device)
    return major, minor


def min_dot_size(device: torch.device, lhs: torch.dtype, rhs: torch.dtype) -> tuple[int, int, int]:
    """The least sizes (rows, columns, inner) of a product: any."""
    return 1, 1, 1


def num_compute_units() -> int:
    """Multiprocessors of the GPU, or threads of the CPU."""
    return device_num_sm() if torch.cuda.is_available() else torch.get_num_threads()


def device_num_sm(device: torch.device | int | None = None) -> int:
    """Multiprocessors of a GPU; 1 where there is none."""
    return torch.cuda.get_device_properties(device).multi_processor_count if torch.cuda.is_available() else 1


def warps_to_threads(num_warps: int) -> int:
    """Threads of so many warps."""
    return num_warps * _WARP


def get_device_name(device: torch.device | None = None) -> str | None:
    """The name of a GPU; None for other devices."""
    return torch.cuda.get_device_name(device) if target_device_capability(device) is not None else None


def extract_device(args: Sequence[Any]) -> torch.device | None:
    """The device of the first tensor among arguments."""
    for arg in args:
        first = arg[0] if isinstance(arg, list | tuple) and arg else arg
        if isinstance(first, torch.Tensor):
            return first.device
    return None


@dataclass(frozen=True)
class HardwareInfo:
    """A device in words, for names of files.

    Args:
        device_kind: "cuda" or "cpu".
        hardware_name: of the device.
        runtime_version: of CUDA, or of Tilewright.
        compute_capability: such as "sm90", or "cpu".
    """

    device_kind: str
    hardware_name: str
    runtime_version: str
    compute_capability: str

    @property
    def hardware_id(self) -> str:
        """All in one word."""
        return f"{self.device_kind}_{self.hardware_name.replace(' ', '_')}_{self.runtime_version}"


def get_hardware_info(device: torch.device | None = None) -> HardwareInfo:
    """The device in words; None for the one that there is."""
    capability = target_device_capability(device)
    if capability is None:
        return HardwareInfo("cpu", "cpu", __version__, "cpu")
    name = torch.cuda.get_device_name(device)
    return HardwareInfo("cuda", name, str(torch.version.cuda), "sm{}{}".format(*capability))
