"""`triton.knobs` as a module: the groups of settings of `tilewright.knobs`, which are the same objects."""

from tilewright import knobs as _knobs

autotuning = _knobs.autotuning
cache = _knobs.cache
compilation = _knobs.compilation
language = _knobs.language
runtime = _knobs.runtime

__all__ = ["autotuning", "cache", "compilation", "language", "runtime"]
