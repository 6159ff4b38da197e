"""Loads of a warp whose elements are all on: predicated loads have a version without predicates beside them.

A thread has seven predicates. Where it loads many elements under masks of their own, and computes on each for long
before it stores, the assembler moves loads down to where predicates are free again, and each is waited for by itself:

    p = all of the masks, in all lanes
    p:      w0 = load a0; w1 = load a1; ...
    not p:  w0 = load a0 if m0; w1 = load a1 if m1; ...

No load leaves its block. What the versions cost, a test of every mask and a branch before memory is asked, is more than
what they bring where elements are reduced or exchanged: there all loads are waited for anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from xdsl.ir import Operation

from tilewright.backends.llvm.types import I1, I32, V, const
from tilewright.backends.nvidia import tuning
from tilewright.backends.nvidia.emit.context import Kernel
from tilewright.ir.values import uses_behind
from tilewright.ops.dims import lanewise
from tilewright.ops.spec import REGISTRY


@dataclass(frozen=True, slots=True)
class Access:
    """A load of the elements that one instruction takes.

    Args:
        address: of the first.
        start: words of those that are off.
        on: the mask.
    """

    address: V
    start: list[V]
    on: V


def versioned(k: Kernel, accesses: Sequence[Access], load: Callable[[Access], list[V]]) -> list[list[V]]:
    """Words of loads, in two versions.

    Args:
        k: the kernel.
        accesses: the loads, some of which have a mask.
        load: makes one.
    """
    f = k.f
    masks = [access.on for access in accesses if access.on.const is None]
    whole = masks[0]
    for mask in masks[1:]:
        whole = f.and_(whole, mask)
    versions = [f.label("whole"), f.label("masked")]
    done = f.label("loaded")
    f.cond_br(f.call("llvm.nvvm.vote.all.sync", I1, (const(I32, -1), whole)), *versions)
    made = []
    for label, unmasked in zip(versions, (True, False), strict=True):
        f.start(label)
        made.append([load(replace(a, on=const(I1, 1)) if unmasked and a.on.const is None else a) for a in accesses])
        f.br(done)
    f.start(done)
    return [
        [f.phi(words[0].type, list(zip(words, versions, strict=True))) for words in zip(*both, strict=True)]
        for both in zip(*made, strict=True)
    ]


def is_worth_versions(op: Operation, accesses: Sequence[Access]) -> bool:
    """Whether many masked loads are followed by long arithmetic on each element up to where it is stored."""
    if sum(access.on.const is None for access in accesses) < tuning.VERSIONED_LOADS:
        return False
    users = [use.operation for use in uses_behind(op.results, lambda _: True)]
    return any(map(_is_long, users)) and all(map(_by_elements, users))


def _is_long(user: Operation) -> bool:
    """Whether it is a function of many instructions: of the mathematical ones, or of a library."""
    return user.dialect_name() == "math" or "symbol" in user.properties


def _by_elements(user: Operation) -> bool:
    spec = REGISTRY.get(user.name)
    return spec is not None and (bool(spec.elementwise) or spec.dims is lanewise)


__all__ = ["Access", "is_worth_versions", "versioned"]
