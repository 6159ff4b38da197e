"""Frozen compile options; the cache key is derived from every field, never remembered.

What every target shares is here. Each back end adds its own in `backends/<name>/options.py`: an option that does not
concern a target is accepted in a launch for it, and is no part of the key there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tilewright.base.errors import ArgumentError

INPUT_PRECISIONS = ("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6")
"""What a product of f32 may mean."""


class ExternLibrary(NamedTuple):
    """A library that a kernel calls.

    Args:
        name: as the launch calls it.
        path: of the file.
        stamp: size and time of the file, for keys.
    """

    name: str
    path: str
    stamp: str


def extern_libraries(given: Any) -> tuple[ExternLibrary, ...]:
    """The libraries that an option `extern_libs` names.

    Args:
        given: path by name, or pairs of both, or None.

    Raises:
        ArgumentError: a path is no file.
    """
    rows = given.items() if isinstance(given, Mapping) else (row[:2] for row in given or ())
    made = []
    for name, path in sorted((str(name), str(path)) for name, path in rows):
        if not Path(path).is_file():
            raise ArgumentError(f"extern_libs: {name} is to be read from {path}, which is no file")
        status = Path(path).stat()
        made.append(ExternLibrary(name, path, f"{status.st_size}:{status.st_mtime_ns}"))
    return tuple(made)


@dataclass(frozen=True, slots=True)
class Options:
    """Options of one compilation, given as keywords of a launch.

    Args:
        debug: keep `device_assert` and overflow checks.
        sanitize_overflow: with `debug`, assert that integer arithmetic does not overflow.
        enable_fp_fusion: contract ``x * y + z`` to a fused multiply-add.
        default_dot_input_precision: what `tl.dot` on f32 means when the call does not say: "ieee", "tf32", ...

    Raises:
        ArgumentError: a precision that there is not.
    """

    debug: bool = False
    sanitize_overflow: bool = True
    enable_fp_fusion: bool = True
    default_dot_input_precision: str = "ieee"

    def __post_init__(self) -> None:
        if self.default_dot_input_precision not in INPUT_PRECISIONS:
            raise ArgumentError(
                f"default_dot_input_precision={self.default_dot_input_precision!r}",
                hint=f"it is one of {', '.join(INPUT_PRECISIONS)}",
            )

    def for_all_values(self) -> Options:
        """Options of code that takes all values of its arguments, where that of these may take some only."""
        return self

    def key(self) -> str:
        """Text that differs whenever any field differs; part of the cache key."""
        return ",".join(f"{name}={value!r}" for name, value in sorted(asdict(self).items()))
