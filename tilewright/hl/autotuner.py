"""What programs name when they leave choices open: fragments, and the configurations of a kernel."""

from tilewright.hl.tune.fragments import (
    BooleanFragment,
    EnumFragment,
    Fragment,
    IntegerFragment,
    PermutationFragment,
    PowerOfTwoFragment,
)
from tilewright.hl.tune.spec import ConfigSpec

__all__ = [
    "BooleanFragment",
    "ConfigSpec",
    "EnumFragment",
    "Fragment",
    "IntegerFragment",
    "PermutationFragment",
    "PowerOfTwoFragment",
]
