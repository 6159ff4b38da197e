"""The keys of a configuration, one class each: values, defaults, and what is wrong with other values."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.hl import exc
from tilewright.hl.dims import Axis
from tilewright.hl.graph.nodes import Value
from tilewright.hl.passes.decide import check_multiple
from tilewright.hl.tune.defaults import (
    default_blocks,
    default_group,
    default_order,
    default_stages,
    default_warps,
)
from tilewright.hl.tune.facts import Facts, dividing, extent, product_sizes, uncut_sizes
from tilewright.hl.tune.fragments import (
    BooleanFragment,
    EnumFragment,
    Fragment,
    IntegerFragment,
    PermutationFragment,
    PowerOfTwoFragment,
)

log = logging.getLogger("tilewright.hl.config")

LARGEST_BLOCK = LARGEST_TILE = 1 << 20  # elements
LONGEST_READ = 1 << 10  # indices of a tile of a range that the kernel reads, in a search: there are many short ranges
OF_PRODUCTS = 16, 256  # rows, columns and depth of products on a GPU in a search: what its units take, and tiles hold
LONGEST_ROW = 1 << 15  # elements that a tile spans at most when nothing is said; longer rows are taken in chunks


@dataclass(frozen=True)
class Key:
    """A choice of every kernel, such as `num_warps`.

    Args:
        name: the key.
        searched: whether a search varies it.
    """

    name: str
    searched: bool = True

    def fragment(self, facts: Facts, at: int) -> Fragment:
        """The values that it may have; `at` is the place in the list, for keys with one."""
        raise NotImplementedError

    def check(self, value: Any, facts: Facts, at: int) -> Any:
        """The value as it is used.

        Raises:
            InvalidConfig: the kernel cannot have it.
        """
        if not self.fragment(facts, at).holds(value):
            raise exc.InvalidConfig(f"{self.name}={value!r}", hint=f"values are {in_words(self.fragment(facts, at))}")
        return value

    def on(self, kind: str) -> bool:
        """Whether the key changes anything on a kind of device; where not, it is accepted and dropped."""
        return True


def in_words(fragment: Fragment) -> str:
    """The values of a fragment as an error says them."""
    if isinstance(fragment, EnumFragment):
        return ", ".join(map(repr, fragment.choices))
    if isinstance(fragment, PermutationFragment):
        return f"orders of {list(range(fragment.length))}"
    assert isinstance(fragment, IntegerFragment)
    kind = "powers of two" if isinstance(fragment, PowerOfTwoFragment) else "integers"
    return f"{kind} from {fragment.low} to {fragment.high}"


@dataclass(frozen=True)
class ListKey(Key):
    """A choice per loop, axis, access or extent: a list."""

    alias: str = ""


class LaunchKey(Key):
    """An option of launches, which a search chooses for each of the kernel's top-level loops.

    A configuration has one value for all of them, or a list with one for each.
    """

    def default(self, facts: Facts, at: int, blocks: Sequence[int]) -> Any:
        """What a loop has with these block sizes, if nothing is said."""
        return self.fragment(facts, at).default()


# --- tiles and loops -------------------------------------------------------------------------------------


class BlockSizes(ListKey):
    """Lanes along each axis that the program leaves open: any number, of which a search takes powers of two."""

    def fragment(self, facts: Facts, at: int) -> Fragment:
        axis = facts.slots[at]
        low, high = bounds(axis)
        low = 1 << (max(low, axis.least) - 1).bit_length()
        high = max(low, min(high, axis.within or high))
        if axis.size in uncut_sizes(facts):
            high = max(low, min(high, dividing(facts, axis)))
        if facts.machine.kind != "cpu" and axis.size in product_sizes(facts):
            low, high = max(low, min(high, OF_PRODUCTS[0])), min(high, max(low, OF_PRODUCTS[1]))
        default = min(max(default_blocks(facts)[at], low), high)
        measured = facts.extent_in_call(axis)  # what a search times; other calls have larger ones, and the default
        if axis.kind == "tile" and measured is not None:
            high = min(high, max(1 << max(0, measured - 1).bit_length(), default, low))
        if axis.multiple == 1:
            return PowerOfTwoFragment(low, high, default)
        unit = axis.multiple // (axis.multiple & -axis.multiple)  # its odd factor: powers of two times that
        low, high, default = (_power_times(unit, max(size, axis.multiple)) for size in (low, high, default))
        return PowerOfTwoFragment(low, high, default, unit)

    def check(self, value: Any, facts: Facts, at: int) -> Any:
        axis = facts.slots[at]
        low, high = bounds(axis) if axis.kind == "block" else (1, LARGEST_BLOCK)
        if type(value) is not int or not low <= value <= high:
            raise exc.InvalidConfig(
                f"the block size of {axis.name} is {value!r}",
                hint=f"block sizes are integers from {low} to {high}",
            )
        check_multiple(axis, value)
        if axis.within % value:
            raise exc.InvalidConfig(
                f"the block size of {axis.name} is {value}, and its tiles lie in tiles of {axis.within}",
                hint=f"block sizes of {axis.name} divide {axis.within}",
            )
        return value


def _power_times(unit: int, size: int) -> int:
    """The largest power of two times `unit` that is at most `size`, at least `unit`."""
    return unit << max(0, (size // unit).bit_length() - 1)


def bounds(axis: Axis) -> tuple[int, int]:
    """(smallest, largest) block size that makes sense for an axis; the largest is a power of two."""
    if axis.kind == "block":
        low = axis.begin if type(axis.begin) is int else 1
        return low, 1 << (axis.end - 1).bit_length() if type(axis.end) is int and axis.end > 0 else LARGEST_BLOCK
    known = extent(axis)
    if known is None:
        return 1, LONGEST_READ if isinstance(axis.begin, Value) or isinstance(axis.end, Value) else LARGEST_BLOCK >> 4
    return 1, 1 << max(0, known - 1).bit_length()


class LoopOrders(ListKey):
    """The order of the ranges of a loop; of a grid the first is the fastest."""

    def fragment(self, facts: Facts, at: int) -> Fragment:
        order = default_order(facts, facts.entries[self.name][at])
        return PermutationFragment(len(order), order)


class FlattenLoops(ListKey):
    """Take several ranges as one."""

    def fragment(self, facts: Facts, at: int) -> Fragment:
        return BooleanFragment()


class L2Groupings(ListKey):
    """How many tiles of the first range of a grid are visited for one of the second before the next one."""

    def fragment(self, facts: Facts, at: int) -> Fragment:
        return PowerOfTwoFragment(1, 64, default_group(facts, facts.entries[self.name][at]))


class ReductionLoops(ListKey):
    """None: a row is in one tile. A number: it is visited in chunks of this many elements, once per reduction."""

    def fragment(self, facts: Facts, at: int) -> Fragment:
        _, dim = facts.entries[self.name][at]
        known = dim.static if not dim.atoms else None
        sizes = [1 << power for power in range(6, 15) if known is None or 1 << power < known]
        if known is not None and known > LONGEST_ROW:
            return EnumFragment((4096, *(size for size in sizes if size != 4096), None))
        return EnumFragment((None, *sizes))

    def check(self, value: Any, facts: Facts, at: int) -> Any:
        _, dim = facts.entries[self.name][at]
        if value is None:
            return None
        if type(value) is not int or not 0 < value <= LARGEST_BLOCK:
            raise exc.InvalidConfig(f"{self.name}: {value!r}", hint="None, or how many elements a chunk has")
        return None if not dim.atoms and value >= dim.static else max(value, 8)


class StaticRanges(ListKey):
    """Unroll an inner loop altogether."""

    def fragment(self, facts: Facts, at: int) -> Fragment:
        return BooleanFragment()


@dataclass(frozen=True)
class RangeCounts(ListKey):
    """A number that `tl.range` takes; 0 leaves it out."""

    def fragment(self, facts: Facts, at: int) -> Fragment:
        return IntegerFragment(0, 4, 0)

    def on(self, kind: str) -> bool:
        return kind != "cpu"


@dataclass(frozen=True)
class RangeFlags(ListKey):
    """A flag that `tl.range` takes; None leaves it out."""

    def fragment(self, facts: Facts, at: int) -> Fragment:
        return EnumFragment((None, False, True))

    def on(self, kind: str) -> bool:
        return kind != "cpu"


# --- accesses --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Access(ListKey):
    """A form or hint of each access.

    Args:
        choices: its values, the default first.
        everywhere: whether the CPU tells them apart.
    """

    choices: tuple[Any, ...] = ()
    everywhere: bool = False

    def fragment(self, facts: Facts, at: int) -> Fragment:
        return EnumFragment(self.choices)

    def on(self, kind: str) -> bool:
        return self.everywhere or kind != "cpu"


# --- the launch ------------------------------------------------------------------------------------------


class PidType(Key):
    """How programs find their tiles."""

    def fragment(self, facts: Facts, at: int) -> Fragment:
        kinds = ["flat", "xyz", "persistent_blocked", "persistent_interleaved"]
        if not all(2 <= len(axes) <= 3 for axes in facts.grids):
            kinds.remove("xyz")
        return EnumFragment(kinds)


class NumWarps(LaunchKey):
    """Warps of a program."""

    def fragment(self, facts: Facts, at: int) -> Fragment:
        return PowerOfTwoFragment(1, 32, self.default(facts, at, default_blocks(facts)))

    def default(self, facts: Facts, at: int, blocks: Sequence[int]) -> int:
        return default_warps(facts, facts.graphs[at], blocks)

    def on(self, kind: str) -> bool:
        return kind != "cpu"


class NumStages(LaunchKey):
    """Depth of the software pipeline."""

    def fragment(self, facts: Facts, at: int) -> Fragment:
        return IntegerFragment(1, 8, self.default(facts, at, default_blocks(facts)))

    def default(self, facts: Facts, at: int, blocks: Sequence[int]) -> int:
        return default_stages(facts, facts.graphs[at], blocks)

    def on(self, kind: str) -> bool:
        return kind != "cpu"


class NumSmMultiplier(Key):
    """Programs per processor of persistent kernels."""

    def fragment(self, facts: Facts, at: int) -> Fragment:
        return PowerOfTwoFragment(1, 128, 1)


class NumThreads(Key):
    """Threads of a launch; None for as many as all launches have, and for a list, which other back ends have."""

    def fragment(self, facts: Facts, at: int) -> Fragment:
        return EnumFragment((None,))

    def check(self, value: Any, facts: Facts, at: int) -> Any:
        if isinstance(value, list):
            log.warning("num_threads=%r is ignored: threads of a launch on the CPU are one number", value)
            return None
        if type(value) is not int or value < 1:
            raise exc.InvalidConfig(f"{self.name}={value!r}", hint="a positive integer")
        return value

    def on(self, kind: str) -> bool:
        return kind == "cpu"


class EpilogueSubtile(Key):
    """In how many parts what products give is stored; None for one."""

    def fragment(self, facts: Facts, at: int) -> Fragment:
        return EnumFragment((None, 2, 4)) if facts.has_product() else EnumFragment((None,))


class MaxNReg(LaunchKey):
    """Registers of a thread."""

    def fragment(self, facts: Facts, at: int) -> Fragment:
        return EnumFragment((None, 32, 64, 128, 256))

    def check(self, value: Any, facts: Facts, at: int) -> Any:
        return value if type(value) is int and 16 <= value <= 256 else super().check(value, facts, at)

    def on(self, kind: str) -> bool:
        return kind != "cpu"


@dataclass(frozen=True)
class Ignored(Key):
    """A key of other back ends: accepted, and without meaning here."""

    searched: bool = False

    def fragment(self, facts: Facts, at: int) -> Fragment:
        return EnumFragment((None,))

    def check(self, value: Any, facts: Facts, at: int) -> Any:
        return None

    def on(self, kind: str) -> bool:
        return False


KEYS: dict[str, Key] = {
    key.name: key
    for key in (
        BlockSizes("block_sizes", alias="block_size"),
        LoopOrders("loop_orders", alias="loop_order"),
        FlattenLoops("flatten_loops", alias="flatten_loop"),
        L2Groupings("l2_groupings", alias="l2_grouping"),
        ReductionLoops("reduction_loops", alias="reduction_loop"),
        StaticRanges("static_ranges", alias="static_range"),
        RangeCounts("range_unroll_factors", alias="range_unroll_factor"),
        RangeCounts("range_num_stages", alias="range_num_stage"),
        RangeFlags("range_warp_specializes", alias="range_warp_specialize"),
        RangeFlags("range_multi_buffers", False, "range_multi_buffer"),  # no back end has a use for these two
        RangeFlags("range_flattens", False, "range_flatten"),
        Access("indexing", choices=("pointer", "block_ptr", "tensor_descriptor"), everywhere=True),
        Access("atomic_indexing", choices=("pointer", "tensor_descriptor"), everywhere=True),
        Access("load_eviction_policies", alias="load_eviction_policy", choices=("", "first", "last")),
        Access("load_cache_modifiers", False, "load_cache_modifier", ("", ".ca", ".cg", ".cs", ".cv")),
        Access("store_cache_modifiers", False, "store_cache_modifier", ("", ".wb", ".cg", ".cs", ".wt")),
        PidType("pid_type"),
        NumWarps("num_warps"),
        NumStages("num_stages"),
        NumSmMultiplier("num_sm_multiplier"),
        MaxNReg("maxnreg"),
        NumThreads("num_threads", searched=False),
        EpilogueSubtile("epilogue_subtile"),
        *(
            Ignored(name)
            for name in (
                "advanced_controls_file",
                "cross_loop_pipeline",
                "host_tensor_descriptors",
                "matrix_instr_nonkdim",
                "num_ctas",
                "occupancy",
                "reduction_fusion",
                "waves_per_eu",
                "xcd_remap",
            )
        ),
    )
}

ALIASES = {key.alias: key.name for key in KEYS.values() if isinstance(key, ListKey) and key.alias}

FOREIGN = ("cute_", "pallas_", "tcgen05_")
"""How keys begin that Helion has for back ends which Tilewright has not: they are ignored."""
