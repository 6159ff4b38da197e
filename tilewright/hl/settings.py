"""`Settings`: how a kernel is treated, as against the choices of a `Config`."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from tilewright.hl import exc


@dataclass(frozen=True)
class Settings:
    """How a kernel is traced, compiled and run.

    Args:
        static_shapes: sizes and strides of arguments are constants of the compiled kernel.
        check_trace: trace twice with other samples, to find invented numbers that reach the code.
        fast_math: 16-bit values stay float32 between operations of a chain.
        print_output_code: print the generated module when a configuration is compiled first.
    """

    static_shapes: bool = True
    check_trace: bool = True
    fast_math: bool = False
    print_output_code: bool = False

    @classmethod
    def of(cls, given: dict[str, Any]) -> Settings:
        """Settings from keyword arguments of `hl.kernel`.

        Raises:
            InvalidAPIUsage: a name that no setting has.
        """
        names = {field.name for field in dataclasses.fields(cls)}
        for name in given:
            if name not in names:
                raise exc.InvalidAPIUsage(f"hl.kernel has no setting {name!r}", hint=f"there are {', '.join(names)}")
        return cls(**given)
