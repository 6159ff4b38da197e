"""Families of forms: a computation and launches of its spellings, which `forms.py` times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.peers import Launch
from tests.decisions.harness import Spelling

Function = Callable[[], Any]
_PAGE = 4096


@dataclass(frozen=True)
class Family:
    """A computation and its spellings.

    Args:
        name: of the computation, with sizes and types.
        forms: launches by the name of the form; each writes `out`.
        out: what they write.
        rival: the same by torch.
        reset: what must be done to `out` before a launch (of forms that add to it).
        tolerance: largest difference from torch's result over its largest element.
    """

    name: str
    forms: Mapping[str, Function]
    out: torch.Tensor
    rival: Function
    reset: Function | None = None
    tolerance: float = 2e-2


def elsewhere_in_pages(x: torch.Tensor) -> torch.Tensor:
    """An array of zeros like `x`, half a page from where `x` lies in its pages.

    A load waits for stores before it whose addresses end in the same twelve bits. Whether a large tensor lies so is up
    to the allocator, and decides more than the form where what was stored is loaded soon, from the other array.
    """
    spare = torch.zeros(x.numel() + _PAGE // x.itemsize, dtype=x.dtype, device=x.device)
    first = (x.data_ptr() + _PAGE // 2 - spare.data_ptr()) % _PAGE // x.itemsize
    return spare[first : first + x.numel()].view(x.shape)


def kernels_of(spellings: list[Spelling], signature: object = None) -> dict[str, Any]:
    """Kernels by name; those with a signature, if one is given."""
    return {s.name: s.fn for s in spellings if signature in (None, s.signature)}


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any) -> Launch:
    """A launch of a kernel."""
    return Launch(kernel, grid, arguments)


def launched(spellings: list[Spelling], grid: tuple[int, ...], *arguments: Any) -> dict[str, Launch]:
    """Launches of all spellings, by name."""
    return {name: launch(fn, grid, *arguments) for name, fn in kernels_of(spellings).items()}
