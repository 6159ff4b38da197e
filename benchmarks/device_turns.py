"""Times of functions on a GPU, called in turns."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any, TypeVar

import torch

_CACHE_BYTES = 256 << 20  # several times the L2 of any GPU so far
_WARM = 3

Name = TypeVar("Name")


def in_turns(functions: dict[Name, Callable[[], Any]], rounds: int = 40) -> dict[Name, float]:
    """Median seconds of each function by events of the device, its cache overwritten before every call.

    The host does not wait between the calls of a round: what a call costs there is hidden behind the work before it.
    Each round begins with another one, as the first is called on a device that has just waited.
    """
    flush = torch.empty(_CACHE_BYTES, dtype=torch.uint8, device="cuda")
    events: dict[Name, list[Any]] = {name: [] for name in functions}
    order = list(functions)
    for at in range(rounds + _WARM):
        for name in order:
            flush.zero_()
            pair = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            pair[0].record()
            functions[name]()
            pair[1].record()
            events[name] += [pair] if at >= _WARM else []
        torch.cuda.synchronize()
        order.append(order.pop(0))
    return {name: statistics.median(a.elapsed_time(b) * 1e-3 for a, b in pairs) for name, pairs in events.items()}
