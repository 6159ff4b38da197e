"""The `tl.target_info` namespace: what the kernel is being compiled for, as compile-time constants."""

from __future__ import annotations

from tilewright.ops.functions import target
from tilewright.ops.functions.target import TargetQuestion

current_target = TargetQuestion(target.current_target)
is_cuda = TargetQuestion(target.is_cuda)
is_cpu = TargetQuestion(target.is_cpu)
cuda_capability_geq = TargetQuestion(target.cuda_capability_geq)
is_hip = TargetQuestion(target.is_hip)
is_hip_cdna3 = TargetQuestion(target.is_hip)
is_hip_cdna4 = TargetQuestion(target.is_hip)
is_hip_gfx1250 = TargetQuestion(target.is_hip)

__all__ = [
    "cuda_capability_geq", "current_target", "is_cpu", "is_cuda", "is_hip", "is_hip_cdna3", "is_hip_cdna4",
    "is_hip_gfx1250",
]  # fmt: skip
