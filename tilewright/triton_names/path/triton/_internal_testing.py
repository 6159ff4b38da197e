"""`triton._internal_testing`: questions about the device that programs take from there."""

from typing import Any

from tilewright import knobs
from tilewright.devices.drivers import driver


def is_interpreter() -> bool:
    """Whether kernels run as Python."""
    return knobs.runtime.interpret


def get_current_target() -> Any:
    """Target of the active driver; None where kernels run as Python."""
    return None if is_interpreter() else driver.active.get_current_target()


def _backend() -> str:
    target = get_current_target()
    return "" if target is None else str(target.backend)


def _capability() -> int:
    return int(get_current_target().arch) // 10 if is_cuda() else 0


def is_cuda() -> bool:
    """Whether launches go to an NVIDIA GPU."""
    return _backend() == "cuda"


def is_cpu() -> bool:
    """Whether launches go to the CPU."""
    return _backend() == "cpu"


def is_ampere_or_newer() -> bool:
    """Whether they go to a GPU of compute capability 8.0 or more."""
    return _capability() >= 8


def is_hopper() -> bool:
    """Whether they go to a GPU of compute capability 9.0."""
    return _capability() == 9


def is_hopper_or_newer() -> bool:
    """Whether they go to a GPU of compute capability 9.0 or more."""
    return _capability() >= 9


def is_blackwell() -> bool:
    """Whether they go to a GPU of compute capability 10."""
    return _capability() == 10


def is_sm12x() -> bool:
    """Whether they go to a GPU of compute capability 12."""
    return _capability() == 12


def _no() -> bool:
    """Whether launches go to a device for which there is no back end: no."""
    return False


is_hip = is_hip_cdna = is_hip_cdna2 = is_hip_cdna3 = is_hip_cdna4 = _no
is_hip_rdna = is_hip_rdna3 = is_hip_rdna4 = is_hip_gfx1250 = is_xpu = _no


def get_arch() -> str:
    """Architecture of the target as text; "" where kernels run as Python."""
    target = get_current_target()
    return "" if target is None else str(target.arch)


__all__ = [
    "get_arch", "get_current_target", "is_ampere_or_newer", "is_blackwell", "is_cpu", "is_cuda", "is_hip",
    "is_hip_cdna", "is_hip_cdna2", "is_hip_cdna3", "is_hip_cdna4", "is_hip_gfx1250", "is_hip_rdna", "is_hip_rdna3",
    "is_hip_rdna4", "is_hopper", "is_hopper_or_newer", "is_interpreter", "is_sm12x", "is_xpu",
]  # fmt: skip
