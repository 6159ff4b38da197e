"""`triton.knobs` as a module: the groups of settings of `tilewright.knobs`, which are the same objects."""

from tilewright import knobs as _knobs

amd = _knobs.amd
autotuning = _knobs.autotuning
build = _knobs.build
cache = _knobs.cache
compilation = _knobs.compilation
language = _knobs.language
nvidia = _knobs.nvidia
proton = _knobs.proton
redis = _knobs.redis
refresh_knobs = _knobs.refresh_knobs
runtime = _knobs.runtime

__all__ = [
    "amd", "autotuning", "build", "cache", "compilation", "language", "nvidia", "proton", "redis", "refresh_knobs",
    "runtime",
]  # fmt: skip
