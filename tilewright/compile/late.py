"""The compiler half of Tilewright, which loads at the first compilation: see `base/lazy.py`."""

from typing import TYPE_CHECKING

from tilewright.base.lazy import lazy_module

if TYPE_CHECKING:
    from tilewright.analysis import effects
    from tilewright.frontend import entry, ordered
    from tilewright.ops import levels
    from tilewright.passes import pipeline
else:
    effects = lazy_module("tilewright.analysis.effects")
    entry = lazy_module("tilewright.frontend.entry")
    ordered = lazy_module("tilewright.frontend.ordered")
    levels = lazy_module("tilewright.ops.levels")
    pipeline = lazy_module("tilewright.passes.pipeline")

__all__ = ["effects", "entry", "levels", "ordered", "pipeline"]
