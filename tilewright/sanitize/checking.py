"""A block in which all kernels run with checks."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tilewright.base.checks import UNINITIALISED, parse_checks
from tilewright.base.knobs import knobs
from tilewright.base.lazy import lazy_module
from tilewright.launch.faults import Collected, collect_faults

if TYPE_CHECKING:
    from tilewright.sanitize import storages
else:  # imports torch
    storages = lazy_module("tilewright.sanitize.storages")


def follow_process() -> None:
    """Follow PyTorch, if it is installed, in this thread to the end of the process."""
    if importlib.util.find_spec("torch") is not None:
        storages.StorageWatch().__enter__()


@contextlib.contextmanager
def checking(wanted: bool | str = True) -> Iterator[Collected]:
    """Run all kernels of a block with checks, and collect what they find.

    Args:
        wanted: names of checks, as for the option `sanitize`. With "uninitialised", PyTorch is followed in this thread:
            what `torch.empty` makes has no contents.

    Raises:
        ArgumentError: there is no such check.
    """
    names = parse_checks(wanted)
    with contextlib.ExitStack() as stack:
        stack.enter_context(knobs.runtime.scope())
        knobs.runtime.sanitize = ",".join(names)
        if UNINITIALISED in names:
            stack.enter_context(storages.StorageWatch())
        yield stack.enter_context(collect_faults())
