"""`ConfigSpec`: the configurations that a kernel has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.hl import exc
from tilewright.hl.config import Config
from tilewright.hl.symbols import Sym
from tilewright.hl.trace.host import Traced


class ConfigSpec:
    """The choices that a kernel leaves open, from the facts of its trace."""

    def __init__(self, traced: Traced) -> None:
        self.traced = traced

    def default_config(self) -> Config:
        """What is taken when nothing was given or found."""
        count = len([axis for axis in self.traced.slots if axis.top])
        sizes = []
        for axis in self.traced.slots:
            size = 64 if not axis.top else {1: 1024, 2: 64}.get(count, 16)
            extent = axis.end - axis.begin if isinstance(axis.end, int) and isinstance(axis.begin, int) else None
            if extent is not None and not isinstance(extent, Sym):
                size = min(size, 1 << max(0, (extent - 1).bit_length()))
            sizes.append(size)
        return Config(block_sizes=sizes)

    def normalize(self, config: Mapping[str, Any]) -> Config:
        """`config` checked, with every choice made.

        Raises:
            InvalidConfig: a choice that the kernel does not have, or a list of the wrong length.
        """
        choices = dict(config)
        for name in choices:
            if name != "block_sizes":
                raise exc.InvalidConfig(f"{name!r} is no choice of this kernel", hint="there is: block_sizes")
        sizes = choices.get("block_sizes", [])
        if len(sizes) != len(self.traced.slots):
            raise exc.InvalidConfig(
                f"block_sizes has {len(sizes)} entries, and the kernel has {len(self.traced.slots)} tile loops to size",
                hint=f"in this order: {', '.join(axis.name for axis in self.traced.slots)}",
            )
        return Config(**choices)
