"""`triton.profiler.language`: names that Proton gives to parts of kernels, taken and not measured.

Proton writes a clock where a scope begins and ends, if told so; a launch is the smallest thing that is timed here.
"""

from __future__ import annotations

import warnings

from tilewright.base.scope import KernelScope

_told: list[bool] = []


def _tell() -> None:
    if not _told:
        _told.append(True)
        warnings.warn("scopes within kernels are not measured here: launches are", stacklevel=3)


class scope(KernelScope):
    """A part of a kernel, `with scope("loads"):`; not measured. The name is Proton's.

    Args:
        name: of the part.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        _tell()


def record(is_start: bool, scope_name: str) -> None:
    """A part of a kernel begins or ends here; not measured.

    Args:
        is_start: whether it begins.
        scope_name: its name.
    """
    _tell()


def enter_scope(name: str) -> None:
    """A part of a kernel of this name begins here; not measured."""
    _tell()


def exit_scope(name: str) -> None:
    """The part of this name ends here."""
    _tell()


def enable_semantic(semantic_name: str) -> None:
    """Measure scopes of kernels written in a language: no effect."""
    _tell()


def disable_semantic(semantic_name: str) -> None:
    """Measure no scopes of kernels written in a language: no effect."""
