"""What is known of the device that a kernel is configured for."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from typing import Any

from tilewright import runtime


@dataclass(frozen=True)
class Machine:
    """A device.

    Args:
        kind: "cpu" or "cuda".
        processors: threads of a launch, or multiprocessors.
        cache: bytes of the cache next to a core that a tile should fit in; of a GPU the shared memory of a program.
    """

    kind: str
    processors: int
    cache: int

    @property
    def vector(self) -> int:
        """Of how many lanes rows that are reduced are made: of a CPU the float32 numbers of its longest vectors."""
        return 16 if self.kind == "cpu" else 1


def machine_of(device: Any) -> Machine:
    """The machine behind a `torch.device`; one that cannot be asked counts as a usual one of its kind."""
    return _machine(device.type, device.index or 0)


@functools.cache
def _machine(kind: str, index: int) -> Machine:
    driver = runtime.driver.active
    if driver.get_current_target().backend != kind:
        return Machine("cpu", os.cpu_count() or 1, 1 << 20) if kind == "cpu" else Machine(kind, 132, 227 << 10)
    found = driver.utils.get_device_properties(index)
    return Machine(kind, found["multiprocessor_count"], found["max_shared_mem"])


def get_num_sm(device: Any, reserved: int = 0) -> int:
    """How many programs run at once on a `torch.device`, less `reserved`; persistent kernels launch a multiple."""
    return max(1, machine_of(device).processors - reserved)
