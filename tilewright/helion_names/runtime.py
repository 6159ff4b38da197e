"""Small things of `helion.runtime` and `helion.autotuner` that Tilewright itself has no use for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from tilewright.hl.autotuner import EnumFragment, Fragment, IntegerFragment, PowerOfTwoFragment
from tilewright.hl.tune.keys import KEYS

DEFAULT_NUM_STAGES, DEFAULT_NUM_WARPS = 1, 4
VALID_KEYS = frozenset(KEYS)
VALID_PID_TYPES = ("flat", "xyz", "persistent_blocked", "persistent_interleaved")
ConfigSpecFragment, BaseIntegerFragment = Fragment, IntegerFragment
cache_classes: dict[str, Any] = {}
initial_population_strategies: dict[str, Any] = {}


@dataclass(frozen=True)
class OutputCodeOptions:
    """What `to_code(options=...)` takes; it changes nothing."""

    allow_helion_deps: bool = True
    jax_fn: bool = False


class BlockSizeFragment(PowerOfTwoFragment):
    """A power of two, as a block size is."""


class NumWarpsFragment(PowerOfTwoFragment):
    """A power of two, as a number of warps is."""


class NumThreadsFragment(EnumFragment):
    """A number of threads: 0 (what the launch has), or a power of two.

    Args:
        high: the most.
    """

    def __init__(self, high: int) -> None:
        super().__init__((0, *(1 << bits for bits in range(high.bit_length()))))


def get_num_sm(device: torch.device, *, reserved_sms: int = 0) -> int:
    """How many programs of a persistent kernel a device has: multiprocessors of a GPU, threads of a CPU.

    Args:
        device: of the tensors.
        reserved_sms: those to leave free.
    """
    if device.type == "cuda":
        count = torch.cuda.get_device_properties(device).multi_processor_count
    else:
        count = torch.get_num_threads()
    return max(1, int(count) - reserved_sms)


def get_num_xcd(device: Any = None) -> int:
    """The parts that a GPU of AMD has: one."""
    return 1


def set_triton_allocator() -> None:
    """Nothing: descriptors need no memory of their own."""


def integer_power_of_two(value: Any) -> bool:
    """Whether it is an integer, and a power of two."""
    return isinstance(value, int) and value > 0 and value & (value - 1) == 0


def assert_integer_power_of_two(value: Any) -> int:
    """The number.

    Raises:
        ValueError: it is no power of two.
    """
    if not integer_power_of_two(value):
        raise ValueError(f"{value!r} is no power of two")
    return int(value)
