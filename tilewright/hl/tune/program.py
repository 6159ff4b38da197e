"""Candidates and arguments that can be sent to a process that knows nothing of the kernel.

A candidate is the text of its generated module with the names that the text uses; the arguments are bytes of
`torch.save`. So the user's program is not run again elsewhere, and kernels of notebooks and of `__main__` work; what
cannot be pickled is a `NotPortable`.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import io
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import ModuleType
from typing import Any, Protocol

import torch

import tilewright
from tilewright import syntax, testing
from tilewright.hl.config import Config
from tilewright.hl.runtime.loaded import Loaded
from tilewright.hl.tune import fork_server
from tilewright.hl.tune.agreement import tensors_in
from tilewright.hl.tune.bench import Subject
from tilewright.hl.tune.workers import Process, Slot, Start, live


class Generated(Protocol):
    """A bound kernel, as far as its programs go."""

    name: str
    scope: Mapping[str, Any]
    traced: Any
    source: Any

    def module(self, config: Config) -> Any:
        """The generated module for a configuration."""


class NotPortable(Exception):
    """A kernel, or arguments, that no other process can be sent."""


@dataclass(frozen=True)
class Program:
    """A configuration of a kernel, generated.

    Args:
        name: of the host function.
        module: the generated module.
        names: values of the names that it uses, pickled.
        modules: names that stand for Python modules.
        file: of the user's kernel.
    """

    name: str
    module: Any
    names: bytes
    modules: dict[str, str]
    file: str

    def loaded(self) -> Loaded:
        """The module, executed."""
        modules = {name: importlib.import_module(module) for name, module in self.modules.items()}
        return Loaded(self.name, self.module, {**pickle.loads(self.names), **modules}, self.file)


def program_of(bound: Generated, config: Config) -> Program:
    """What another process needs to compile and run a configuration.

    Raises:
        NotPortable: the host code uses a name whose value cannot be pickled.
    """
    module = bound.module(config)
    used = {node.id for node in ast.walk(syntax.parse(module.text)) if isinstance(node, ast.Name)}
    scope = {**bound.scope, **bound.traced.captured}
    found = {name: scope[name] for name in sorted(used & scope.keys())}
    modules = {name: value.__name__ for name, value in found.items() if isinstance(value, ModuleType)}
    try:
        names = pickle.dumps({name: value for name, value in found.items() if name not in modules})
    except Exception as error:
        raise NotPortable(f"the kernel uses what cannot be sent to another process: {error}") from error
    return Program(bound.name, module, names, modules, bound.source.file)


@dataclass(frozen=True)
class Portable:
    """Arguments, and what is right for them, for any process.

    Args:
        args: bytes of `torch.save`.
        expected: the same of right results, and of the arguments behind that call; None for the first candidate's.
    """

    args: bytes
    expected: bytes | None

    def subject(self, device: str | None = None) -> Subject:
        """For the workers of a process.

        Args:
            device: where tensors of GPUs are put; None: where they were.
        """
        args = _read(self.args, device)
        right = None if self.expected is None else _read(self.expected, device)  # results, and arguments behind them
        known: dict[str, Loaded] = {}

        def loaded(program: Program) -> Loaded:
            text = program.module.text
            if text not in known:
                known[text] = program.loaded()
            return known[text]

        def expected(*given: Any) -> Any:
            assert right is not None
            for arg, value in zip(tensors_in(given), tensors_in(right[1]), strict=True):
                arg.copy_(value)
            return right[0]

        return Subject(
            args,
            lambda program: loaded(program).run,
            lambda program: loaded(program).compile_for(args),
            None if right is None else expected,
        )


def portable(args: Sequence[Any], expected: Callable[..., Any] | None) -> Portable:
    """Arguments that can be sent.

    Args:
        args: of the kernel.
        expected: computes what is right; it is called here, on copies.

    Raises:
        NotPortable: some of them cannot be pickled.
    """
    try:
        sent = _bytes(tuple(args))
        if expected is None:
            return Portable(sent, None)
        copies = _read(sent, None)
        return Portable(sent, _bytes((expected(*copies), copies)))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise NotPortable(f"the arguments cannot be sent to another process: {error}") from error


def _bytes(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def _read(data: bytes, device: str | None) -> Any:
    gpus = range(torch.cuda.device_count()) if device is not None else ()
    places = {f"cuda:{at}": device for at in gpus} or None
    return torch.load(io.BytesIO(data), map_location=places, weights_only=False)


def fresh(sent: Portable, device: str | None) -> Start:
    """Workers that have nothing of this process but its knobs, such as the folder of the cache, where they find what
    was compiled ahead; they use `device` in place of the GPU that the arguments are on."""

    def start(connection: Connection, file: int) -> Process:
        knobs = {name: value for name, _, value, _ in tilewright.knobs.describe()}
        with tempfile.TemporaryFile() as given:
            pickle.dump(sys.path, given)
            pickle.dump((dict(os.environ), _folder(), knobs, sent, device), given)
            given.seek(0)
            files = connection.fileno(), file, given.fileno()
            return _SERVER.fork(files) if testing.can_fork() else _Started(files)

    return start


def _folder() -> str:
    """The working directory; where it was removed, one that is there."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return os.sep


_SERVER = fork_server.ForkServer(f"from {fork_server.__name__} import serve; from {__name__} import work; serve(work)")


class _Started:
    """A process that was started, in the words of `Process`.

    Args:
        files: descriptors that it is given.
    """

    def __init__(self, files: Sequence[int]) -> None:
        program = f"import sys; from {__name__} import work; work([*map(int, sys.argv[1:])])"
        self._process = subprocess.Popen(
            [sys.executable, "-c", program, *map(str, files)],
            env=fork_server.environment(),
            pass_fds=files,
            start_new_session=True,  # Ctrl-C is the driver's
        )

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end."""
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return

    @property
    def exitcode(self) -> int | None:
        """Its status."""
        return self._process.poll()


def work(files: Sequence[int]) -> None:
    """The life of such a worker.

    Args:
        files: descriptors of its pipe, its slot, and what it is given.
    """
    connection, slot = Connection(files[0]), Slot(files[1])
    with open(files[2], "rb") as given:
        sys.path[:] = pickle.load(given)
        environment, folder, knobs, sent, device = pickle.load(given)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    tilewright.knobs.take(knobs)
    subject = functools.cache(lambda: sent.subject(device))
    with contextlib.suppress(Exception):  # the first job says what is wrong
        subject()  # a GPU takes a second to be used: meanwhile the first candidates compile
    live(subject, connection, slot)
