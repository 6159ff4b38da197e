"""What programs name when they leave choices open: fragments, the configurations of a kernel, and the
strategies of searches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright import lazy_module
from tilewright.hl.tune.fragments import (
    BooleanFragment,
    EnumFragment,
    Fragment,
    IntegerFragment,
    PermutationFragment,
    PowerOfTwoFragment,
)

if TYPE_CHECKING:
    from tilewright.hl.tune import spec, strategies
    from tilewright.hl.tune.spec import ConfigSpec
else:
    spec = lazy_module("tilewright.hl.tune.spec")
    strategies = lazy_module("tilewright.hl.tune.strategies")

__all__ = [
    "BooleanFragment",
    "ConfigSpec",
    "EnumFragment",
    "Fragment",
    "IntegerFragment",
    "PermutationFragment",
    "PowerOfTwoFragment",
    "strategies",
]


def __getattr__(name: str) -> Any:
    """`ConfigSpec` loads when it is first named: it is above the rooms that `import tilewright.hl` needs."""
    if name == "ConfigSpec":
        return spec.ConfigSpec
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
