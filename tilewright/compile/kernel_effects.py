"""The effects of a kernel for kinds of arguments: front end and simplification, no code, no cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilewright.base.callable import BlockFunction
from tilewright.base.errors import CompilationError
from tilewright.base.options import Options
from tilewright.base.target import Target
from tilewright.compile.kinds import INTEGERS, ArgumentKind, Integer, specialization_of
from tilewright.compile.lazy_compiler import effects, entry, pipeline
from tilewright.compile.parameters import parameter_specs
from tilewright.compile.specialize import Path

if TYPE_CHECKING:
    from tilewright.analysis.effects import Effects


def effects_without_values(
    fn: BlockFunction, kinds: Sequence[ArgumentKind], options: Options, target: Target
) -> Effects[Path]:
    """What `fn` does to the memory of its arguments, by path, whatever the values of its integers are.

    Integers count as int32; where the kernel does not compile like that, as int64, and then as the constant 1.

    Raises:
        CompilationError: none of these compiles; the error is that of the first.
    """
    first: CompilationError | None = None
    for integer in INTEGERS:
        try:
            return _effects(fn, kinds, integer, options, target)
        except CompilationError as error:
            first = first or error
    assert first is not None
    raise first


def _effects(
    fn: BlockFunction, kinds: Sequence[ArgumentKind], integer: Integer, options: Options, target: Target
) -> Effects[Path]:
    specialization = specialization_of(kinds, integer)
    module = entry.build_module(fn, parameter_specs(specialization), options, target).module
    return effects.effects_of(pipeline.run_passes(module, pipeline.RESOLVE)).named(specialization.runtime_paths)
