"""The compiler half of Tilewright, which loads at the first compilation: see `base/lazy.py`."""

from typing import TYPE_CHECKING

from tilewright.base.lazy import lazy_module

if TYPE_CHECKING:
    from tilewright.analysis import effects
    from tilewright.compile import ir_text, shared_objects, stage_facts, walk
    from tilewright.frontend import entry
    from tilewright.gradients import derive
    from tilewright.loops import text as nests
    from tilewright.ops import levels, text
    from tilewright.passes import checks, pipeline, united
else:
    derive = lazy_module("tilewright.gradients.derive")
    effects = lazy_module("tilewright.analysis.effects")
    ir_text = lazy_module("tilewright.compile.ir_text")
    shared_objects = lazy_module("tilewright.compile.shared_objects")
    stage_facts = lazy_module("tilewright.compile.stage_facts")
    walk = lazy_module("tilewright.compile.walk")
    entry = lazy_module("tilewright.frontend.entry")
    nests = lazy_module("tilewright.loops.text")
    levels = lazy_module("tilewright.ops.levels")
    text = lazy_module("tilewright.ops.text")
    checks = lazy_module("tilewright.passes.checks")
    pipeline = lazy_module("tilewright.passes.pipeline")
    united = lazy_module("tilewright.passes.united")

__all__ = [
    "checks",
    "derive",
    "effects",
    "entry",
    "ir_text",
    "levels",
    "nests",
    "pipeline",
    "shared_objects",
    "stage_facts",
    "text",
    "united",
    "walk",
]
