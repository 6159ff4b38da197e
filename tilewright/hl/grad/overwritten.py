"""Tensors that a loop changes: what becomes of what they held before.

    x[rows, :] = f(x[rows, :])           x_before is read, x is written: two tensors for the derivation

A pass reads what was there before any pass has written where all of its reads are of the place that it writes, and
come before that. Where the loop writes all of a tensor nothing of what it held is left; where it only adds to it, all
is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.hl.grad.owners import Contribution, accesses, cover_together, covers, place
from tilewright.hl.grad.program import key_of
from tilewright.hl.graph.nodes import Node, Region, walk


def before(name: str) -> str:
    """The name of what a tensor holds before the loop."""
    return f"{name}_before"


class Writes:
    """What a top-level loop does to the tensors that it writes.

    Args:
        region: of the graph, which ends with the loop.

    Attributes:
        held: names of the tensors that are read before they are written, place by place.
        covered: names of those that are written whole.
        added: names of those to which the loop only adds, atomically.
        lines: of the first statement that writes each.
    """

    def __init__(self, region: Region) -> None:
        self._writes: dict[str, list[Contribution]] = {}
        self._loads: dict[str, list[tuple[Node, Region]]] = {}
        for one in accesses(region):
            name = one.tensor.name
            if one.node.op == "load":
                self._loads.setdefault(name, []).append((one.node, one.region))
            elif one.node.op == "store" or one.node.op.startswith("atomic"):
                self._writes.setdefault(name, []).append(one)
        named = self._writes.items()
        self.lines = {name: several[0].node.line for name, several in named}
        self.covered = frozenset(name for name, several in named if _are_whole(several))
        self.added = frozenset(
            name
            for name, several in named
            if name not in self._loads and all(one.node.op == "atomic_add" for one in several)
        )
        names = self._loads.keys() | self._writes.keys()
        both = [name for name in self.covered if name in self._loads and before(name) not in names]
        self.held = frozenset(name for name in both if self._is_read_first(name))

    def _is_read_first(self, name: str) -> bool:
        """Whether every load of a tensor is of the place that the only store writes afterwards."""
        if len(self._writes[name]) != 1:
            return False
        (store,) = self._writes[name]
        ours = key_of(store.entries)
        nodes = store.region.nodes
        return all(
            region is store.region and nodes.index(load) < nodes.index(store.node) and key_of(load.args[1]) == ours
            for load, region in self._loads[name]
        )


def _are_whole(several: list[Contribution]) -> bool:
    """Whether stores write every element of a tensor."""
    if any(one.node.op != "store" or one.node.kwargs.get("mask") is not None for one in several):
        return False
    data = any(entry.kind == "tensor" for one in several for entry in one.entries)
    placed = all(place(axis, one.entries) is not None for one in several for axis in one.loops)  # else maybe in no pass
    return placed and not data and (any(map(covers, several)) or cover_together(several))


def rename(region: Region) -> None:
    """Let the loads of what a tensor held before the loop name another tensor."""
    held = Writes(region).held
    for node in walk(region) if held else ():
        if node.op == "load" and node.args[0].name in held:
            node.args = (replace(node.args[0], name=before(node.args[0].name)), *node.args[1:])


_TRIES: Any = 10_000
"""How many candidates are tried before two tensors are taken to meet."""

_BASE = 1 << 12
"""Where memory begins for whoever compares places."""


class _Place:
    """Elements of a storage that numpy compares with others, and never reads."""

    def __init__(self, tensor: Any) -> None:
        strides = tuple(stride * tensor.element_size() for stride in tensor.stride())
        form = {"shape": tuple(tensor.shape), "strides": strides, "typestr": f"|V{tensor.element_size()}"}
        start = tensor.storage_offset() * tensor.element_size()  # tensors that are fake have no address
        self.__array_interface__ = {**form, "data": (_BASE + start, True), "version": 3}


def share_storage(tensors: Sequence[Any]) -> bool:
    """Whether any two tensors have one storage."""
    return len({tensor.untyped_storage()._cdata for tensor in tensors}) < len(tensors)


def meeting(written: Sequence[Any], others: Sequence[Any]) -> tuple[int, int] | None:
    """The first pair of tensors with an element in common, of which one is written: positions among all."""
    tensors = [*written, *others]
    storages = [tensor.untyped_storage()._cdata for tensor in tensors]
    for at, one in enumerate(written):
        for to, other in enumerate(tensors):
            if to != at and storages[to] == storages[at] and one.numel() and other.numel() and _meet(one, other):
                return at, to
    return None


def _meet(one: Any, other: Any) -> bool:
    try:
        return bool(np.shares_memory(np.asarray(_Place(one)), np.asarray(_Place(other)), max_work=_TRIES))
    except np.exceptions.TooHardError:
        return True
