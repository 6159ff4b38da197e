"""`triton.profiler`: times of kernels by scopes, under the names of Triton's profiler Proton.

A session hears of launches by the hooks of `knobs.runtime` and times each with its device's clock: events in the stream
of a GPU, the time of the call on the CPU. `finalize` writes a tree of scopes and kernels to `NAME.hatchet`, in the form
that hatchet reads; `tilewright.tuning.profile_view` prints it.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tilewright.base.errors import ArgumentError, DriverError
from tilewright.base.hooks import LazyDict
from tilewright.base.knobs import knobs
from tilewright.devices.registry import gpu

DEFAULT_PROFILE_NAME = "proton"
TIME, COUNT, CPU_TIME = "time (ns)", "count", "cpu_time (ns)"
Metrics = dict[str, float]


@dataclass
class Node:
    """A scope or a kernel in the tree of a session.

    Args:
        name: of it.
        metrics: sums of what was measured here, without what lies below.
        children: nodes by name.
        device: "CPU", "CUDA", or "" for scopes.
    """

    name: str
    metrics: Metrics = field(default_factory=dict)
    children: dict[str, Node] = field(default_factory=dict)
    device: str = ""

    def child(self, name: str) -> Node:
        """The node of this name below, made if there is none."""
        return self.children.setdefault(name, Node(name))

    def add(self, metrics: Metrics) -> None:
        """Add numbers to those of this node."""
        for name, value in metrics.items():
            self.metrics[name] = self.metrics.get(name, 0) + value

    def literal(self) -> dict[str, Any]:
        """The tree as hatchet reads it."""
        known = {"device_type": self.device, "device_id": "0"} if self.device else {}
        children = [child.literal() for child in self.children.values()]
        frame = {"name": self.name, "type": "function"}
        return {"frame": frame, "metrics": {**self.metrics, **known}, "children": children}


@dataclass
class Session:
    """What was measured since a `start`.

    Args:
        name: path of the profile without its suffix.
        with_metadata: whether the facts of `launch_metadata` count, too.
        active: whether launches are recorded.
    """

    name: str
    with_metadata: bool = False
    active: bool = True
    root: Node = field(default_factory=lambda: Node("ROOT"))
    pending: list[tuple[Node, Any, Any]] = field(default_factory=list)

    def node(self, path: list[str]) -> Node:
        """The node at a path of scopes."""
        return functools.reduce(Node.child, path, self.root)

    def settle(self) -> None:
        """Wait for what GPUs have not finished, and add its times."""
        for node, begin, end in self.pending:
            with contextlib.suppress(DriverError):  # of a launch in a graph that is being captured there is no time
                node.add({TIME: end.milliseconds_since(begin) * 1e6})
        self.pending.clear()

    def write(self) -> None:
        """Write the profile."""
        self.settle()
        file = Path(f"{self.name}.hatchet")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps([self.root.literal(), {}], indent=1), encoding="utf-8")


_sessions: dict[int, Session] = {}
_numbers = itertools.count()
_local = threading.local()


def _stack(name: str) -> list[Any]:
    stack: list[Any] = vars(_local).setdefault(name, [])
    return stack


def _active() -> list[Session]:
    return [session for session in _sessions.values() if session.active]


# --- launches -----------------------------------------------------------------------------------------------


def _enter(facts: LazyDict) -> None:
    if facts.device is None:
        begin: Any = time.perf_counter_ns()
    else:
        begin = gpu.Event(facts.device)
        begin.record(facts.data["stream"])
    _stack("launches").append((facts, begin))


def _leave(facts: LazyDict) -> None:
    launches = _stack("launches")
    while launches:  # a launch that raised has left its own behind
        entered, begin = launches.pop()
        if entered is facts:
            break
    else:
        return
    end: Any = time.perf_counter_ns()
    if facts.device is not None:
        end = gpu.Event(facts.device)
        end.record(facts.data["stream"])
    for session in _active():
        more = facts.get() if session.with_metadata else facts.data
        node = session.node([*_stack("scopes"), *_stack("states")[-1:]]).child(str(more["name"]))
        node.device = "CPU" if facts.device is None else "CUDA"
        numbers = {key: value for key, value in more.items() if type(value) in (int, float) and key != "stream"}
        node.add({COUNT: 1, **(numbers if session.with_metadata else {})})
        if facts.device is None:
            node.add({TIME: end - begin})
        else:
            session.pending.append((node, begin, end))


def _listen() -> None:
    """Have the hooks called exactly while a session is active."""
    runtime = knobs.runtime
    for chain, function in ((runtime.launch_enter_hook, _enter), (runtime.launch_exit_hook, _leave)):
        (chain.add if _active() else chain.remove)(function)


# --- sessions -----------------------------------------------------------------------------------------------


def start(
    name: str | None = None,
    *,
    context: str = "shadow",
    data: str = "tree",
    backend: str | None = None,
    mode: Any = None,
    hook: Any = None,
) -> int:
    """Begin to measure launches.

    Args:
        name: path of the profile, without its suffix; "proton" by default.
        context, data, backend, mode: how Proton's library would measure: taken, and without effect here.
        hook: "triton" records what `launch_metadata` of kernels says, too.

    Returns:
        The number of the session.
    """
    number = next(_numbers)
    _sessions[number] = Session(DEFAULT_PROFILE_NAME if name is None else str(name), hook == "triton")
    _listen()
    return number


def _chosen(session: int | None) -> list[Session]:
    if session is None:
        return list(_sessions.values())
    if session not in _sessions:
        raise ArgumentError(f"there is no session {session!r}", hint="start() gives the number of one")
    return [_sessions[session]]


def activate(session: int | None = None) -> None:
    """Record launches again, in a session or in all."""
    for each in _chosen(session):
        each.active = True
    _listen()


def deactivate(session: int | None = None, flushing: bool = False) -> None:
    """Record no launches for now, in a session or in all.

    Args:
        session: its number.
        flushing: wait for what GPUs have not finished.
    """
    for each in _chosen(session):
        each.active = False
        if flushing:
            each.settle()
    _listen()


def finalize(session: int | None = None, output_format: str = "hatchet") -> None:
    """End a session, or all, and write the profile to `NAME.hatchet`.

    Args:
        session: its number.
        output_format: "hatchet" or "", which mean the same.

    Raises:
        ArgumentError: no such session, or another format.
    """
    if output_format not in ("", "hatchet"):
        raise ArgumentError(f"profiles are not written as {output_format!r}", hint='write "hatchet"')
    chosen = _chosen(session)
    for number in [number for number, each in _sessions.items() if each in chosen]:
        del _sessions[number]
    _listen()
    for each in chosen:
        each.write()


def profile(func: Callable[..., Any] | None = None, *, name: str | None = None, **how: Any) -> Any:
    """A decorator: every call is a session of its own, which `finalize` writes.

    Args:
        func: the function; without it this makes a decorator.
        name, how: as for `start`.
    """
    if func is None:
        return functools.partial(profile, name=name, **how)

    @functools.wraps(func)
    def measured(*args: Any, **kwargs: Any) -> Any:
        session = start(name, **how)
        try:
            return func(*args, **kwargs)
        finally:
            deactivate(session)

    return measured


# --- scopes -------------------------------------------------------------------------------------------------


def enter_scope(name: str, *, metrics: Metrics | None = None) -> int:
    """Count what this thread launches from now on under a name; gives -1 where nobody measures."""
    _stack("scopes").append(name)
    sessions = _active()
    for session in sessions:
        session.node(_stack("scopes")).add(metrics or {})
    return len(_stack("scopes")) if sessions else -1


def exit_scope(name: str | None = None, *, metrics: Metrics | None = None) -> int:
    """Leave the scope that was entered last."""
    for session in _active():
        session.node(_stack("scopes")).add(metrics or {})
    if _stack("scopes"):
        _stack("scopes").pop()
    return len(_stack("scopes")) if _active() else -1


class scope(contextlib.ContextDecorator):
    """A block, or by `@scope(name)` a function, whose launches count under a name.

    Args:
        name: of the scope.
        metrics: numbers to add up there, such as bytes.
    """

    def __init__(self, name: str, metrics: Metrics | None = None) -> None:
        self._name, self._metrics = name, metrics

    def __enter__(self) -> Self:
        enter_scope(self._name, metrics=self._metrics)
        return self

    def __exit__(self, *error: object) -> None:
        exit_scope(self._name)


class cpu_timed_scope(scope):
    """A scope whose own time on the host is recorded, too."""

    def __enter__(self) -> Self:
        super().__enter__()
        _stack("begins").append(time.perf_counter_ns())
        return self

    def __exit__(self, *error: object) -> None:
        exit_scope(self._name, metrics={CPU_TIME: time.perf_counter_ns() - _stack("begins").pop()})


def enter_state(name: str) -> None:
    """Count what this thread launches from now on under a state of the scope."""
    _stack("states").append(name)


def exit_state() -> None:
    """Leave the state that was entered last."""
    if _stack("states"):
        _stack("states").pop()


class state(contextlib.ContextDecorator):
    """A block, or by `@state(name)` a function, in a state of the scope that is open then.

    Args:
        name: of the state.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> Self:
        enter_state(self.name)
        return self

    def __exit__(self, *error: object) -> None:
        exit_state()


class metadata_state(state):
    """The state in which facts about launches are computed."""

    def __init__(self) -> None:
        super().__init__("__proton_launch_metadata")


__all__ = [
    "DEFAULT_PROFILE_NAME", "activate", "cpu_timed_scope", "deactivate", "enter_scope", "enter_state", "exit_scope",
    "exit_state", "finalize", "metadata_state", "profile", "scope", "start", "state",
]  # fmt: skip
