"""What a call of a kernel does besides returning results, as one trace shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.hl.trace.carried import Path, tensors
from tilewright.hl.trace.state import Trace, memory_of


@dataclass(frozen=True)
class Effects:
    """See the module.

    Args:
        written: paths of the arguments whose memory is written, by the host or in loops.
        outside: the same of tensors that are no arguments, as expressions.
        anywhere: whether something is stored at addresses that are data.
        is_random: whether seeds are drawn from PyTorch's generator.
    """

    written: frozenset[Path] = frozenset()
    outside: tuple[str, ...] = ()
    anywhere: bool = False
    is_random: bool = False


def effects_of(trace: Trace, arguments: Mapping[str, Any]) -> Effects:
    """The effects that a finished trace shows.

    Args:
        trace: the trace.
        arguments: what the host code was given, by name.
    """
    written = frozenset(path for path, tensor in tensors(arguments) if memory_of(tensor) in trace.written)
    captured = [(read.text, read.value) for read in trace.outside.values()]
    outside = tuple(text for text, tensor in captured if memory_of(tensor) in trace.written)
    return Effects(written, outside, trace.writes_anywhere, trace.drawn > 0)
