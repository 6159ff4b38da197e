"""One candidate of an autotuner: values of compile-time parameters and launch options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilewright.base.errors import ArgumentError
from tilewright.base.foreign_options import FOREIGN

Hook = Callable[..., Any]


class Config:
    """One set of compile-time parameters and launch options to try.

    Args:
        kwargs: values of meta-parameters by name.
        num_warps: option of the launch; changes nothing on the CPU.
        num_stages: option of the launch; changes nothing on the CPU.
        num_ctas: option of the launch; changes nothing on the CPU.
        maxnreg: option of the launch; changes nothing on the CPU.
        pre_hook: called with the dictionary of all arguments before each run with this configuration.
        ir_override: file with tile IR to use instead of the kernel's own; not supported on the CPU.
        foreign: options of other compilers' back ends (`base/foreign_options.py`), which change nothing.

    Raises:
        TypeError: any other keyword.
    """

    def __init__(
        self,
        kwargs: Mapping[str, Any],
        num_warps: int = 4,
        num_stages: int = 3,
        num_ctas: int = 1,
        maxnreg: int | None = None,
        pre_hook: Hook | None = None,
        ir_override: str | None = None,
        **foreign: Any,
    ) -> None:
        unknown = [name for name in foreign if name not in FOREIGN]
        if unknown:
            raise ArgumentError(
                f"Config: there is no option {unknown[0]}",
                hint=f'write Config({{"{unknown[0]}": ...}}) for a parameter',
            )
        self.kwargs = {**kwargs, **foreign}
        self.num_warps, self.num_stages, self.num_ctas, self.maxnreg = num_warps, num_stages, num_ctas, maxnreg
        self.pre_hook, self.ir_override = pre_hook, ir_override

    def all_kwargs(self) -> dict[str, Any]:
        """Every keyword of a launch with this configuration; options that are None are left out."""
        options = {
            "num_warps": self.num_warps,
            "num_ctas": self.num_ctas,
            "num_stages": self.num_stages,
            "maxnreg": self.maxnreg,
            "ir_override": self.ir_override,
        }
        return self.kwargs | {name: value for name, value in options.items() if value is not None}

    def _identity(self) -> tuple[Any, ...]:
        return (tuple(self.all_kwargs().items()), self.pre_hook)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __str__(self) -> str:
        rows = [f"{name}: {value}" for name, value in self.kwargs.items()]
        rows += [f"num_warps: {self.num_warps}", f"num_ctas: {self.num_ctas}", f"num_stages: {self.num_stages}"]
        return ", ".join([*rows, f"maxnreg: {self.maxnreg}", f"ir_override: {self.ir_override}"])

    def __repr__(self) -> str:
        return f"Config({self})"
