"""Calls that are made without Python, where host code does no more than make memory and launch kernels.

Such host code does for arguments of the same layouts and numbers always the same. One call is recorded while it runs
(`host_code.py`), and machine code makes those that follow (`tilewright.compiler.replays`); whatever it does not know
comes back here.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch

from tilewright import lazy_module, syntax
from tilewright.compiler.called import Called
from tilewright.hl.constexpr import ConstExpr, plain
from tilewright.hl.runtime.guard import make_holds
from tilewright.hl.runtime.loaded import Loaded
from tilewright.hl.trace.outside import namespace

if TYPE_CHECKING:
    from tilewright.compiler import replays
    from tilewright.hl.runtime import host_code
    from tilewright.hl.runtime.bound import BoundKernel
else:
    replays = lazy_module("tilewright.compiler.replays")
    host_code = lazy_module("tilewright.hl.runtime.host_code")

_MOST_RECORDED = 64  # calls of one kernel: what differs each time is not worth it
_MOST_REFUSED = 8  # of those that cannot be replayed after all


class Replays:
    """The calls of a kernel that are made without Python.

    Args:
        observed: makes all others.
        lock: held while what is known changes.
    """

    def __init__(self, observed: Callable[..., Any], lock: AbstractContextManager[Any]) -> None:
        self._observed, self._lock = observed, lock
        self._table: replays.Replayed | None = None
        self._recorded = self._refused = self._generation = 0
        self._hosts: dict[Loaded, host_code.Host] = {}

    def forget(self) -> None:
        """Make all calls in Python, until they were recorded again."""
        if self._table is not None:
            self._table.forget()
        self._hosts.clear()
        self._recorded = self._refused = 0
        self._generation += 1

    def run(
        self, kernel: Called, bound: BoundKernel, args: Sequence[Any], positional: int, names: Sequence[str]
    ) -> Any:
        """Make a call, and record it if that is of use.

        Args:
            kernel: whose call it is.
            bound: what it runs; it may be replayed.
            args: its arguments, all by position.
            positional: how many were passed by position.
            names: keywords of the others that were passed.
        """
        with self._lock:
            if self._table is None:
                self._table = replays.Replayed(self._observed)
                self._table.stand_before(kernel)
            host = self._host(bound) if self._table.is_open else None
            given = None if host is None else _given(bound, args, positional, names, host.varying)
            generation = self._generation
        if host is None or given is None:
            return bound(*args)
        run = host.record(tuple(map(plain, args)))
        with self._lock:
            if generation == self._generation:  # else another configuration may be in use
                self._recorded += 1
                self._refused += not self._learn(bound, names, given, run)
        return run.result

    def _learn(
        self, bound: BoundKernel, names: Sequence[str], given: list[replays.Argument], run: host_code.Run
    ) -> bool:
        """Replay calls like one that was made; says whether that can be."""
        if run.launches is None or any(isinstance(argument.value, ConstExpr) for argument in given):
            return False
        before = make_holds([], [], bound.outside, namespace(bound.function)) if bound.outside else None
        fixed = [read.value for read in bound.outside if isinstance(read.value, torch.Tensor)]
        assert self._table is not None
        what = names, given, fixed, run.made, run.launches, run.result, before
        return self._table.learn(replays.Recorded(*what))

    def _host(self, bound: BoundKernel) -> host_code.Host | None:
        """The host code of a binding; None where it is not to be recorded, this time or ever."""
        loaded = bound.loaded
        host = None if loaded is None else self._hosts.get(loaded)
        if host is None and loaded is not None:
            live = any(read.live for read in bound.outside)
            host = None if live else host_code.host_of(loaded)
        if loaded is None or host is None or self._recorded >= _MOST_RECORDED or self._refused >= _MOST_REFUSED:
            bound.may_replay = False
            return None
        self._hosts[loaded] = host
        return host


def _given(
    bound: BoundKernel, args: Sequence[Any], positional: int, names: Sequence[str], varying: frozenset[str]
) -> list[replays.Argument]:
    """The arguments of a call, and which of them may be other numbers."""
    where = {name: at if at < positional else -1 for at, name in enumerate(bound.parameters)}
    where |= {name: positional + at for at, name in enumerate(names)}
    texts = [text for text, _ in bound.traced.guards]
    nodes = [node for text in texts for node in ast.walk(syntax.parse(text))]
    free = varying - {node.id for node in nodes if isinstance(node, ast.Name)}
    return [
        replays.Argument(value, where[name], name in free and type(value) in (int, float))
        for name, value in zip(bound.parameters, args, strict=True)
    ]
