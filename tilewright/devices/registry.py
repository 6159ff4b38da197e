"""The compiler half of Tilewright, which loads at the first compile or launch: see `base/lazy.py`."""

from typing import TYPE_CHECKING

from tilewright.base.disk_cache import SmallObjects
from tilewright.base.lazy import lazy_module

if TYPE_CHECKING:
    from tilewright.analysis import effects
    from tilewright.backends.cpu import backend as cpu
    from tilewright.backends.nvidia import backend as nvidia
    from tilewright.backends.nvidia.device import driver as gpu
    from tilewright.frontend import entry
    from tilewright.passes import pipeline
else:
    effects = lazy_module("tilewright.analysis.effects")
    cpu = lazy_module("tilewright.backends.cpu.backend", lambda module: module.set_cache(SmallObjects()))
    nvidia = lazy_module("tilewright.backends.nvidia.backend", lambda module: module.set_cache(SmallObjects()))
    gpu = lazy_module("tilewright.backends.nvidia.device.driver")
    entry = lazy_module("tilewright.frontend.entry")
    pipeline = lazy_module("tilewright.passes.pipeline")

__all__ = ["cpu", "effects", "entry", "gpu", "nvidia", "pipeline"]
