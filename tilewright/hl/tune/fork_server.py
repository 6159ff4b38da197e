"""A server that forks workers off: it has loaded what they need, and has used no GPU.

    a search --socket: ends of pipes--> fork server --fork--> worker, worker, ...
             <--a socket for each worker: how it ended--'

A forked process cannot use a GPU that its parent has used, and a fresh one takes seconds to load PyTorch. The server is
started by the first search that measures on a GPU; it serves all searches of its process, and what takes the place of
workers that have died, and ends with that process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait

_STATUS = struct.Struct("<i")  # of a worker that has ended; minus a signal
_TICK = 0.02  # seconds between two looks at which workers have ended
_STREAMS = 1, 2  # of the process that asks for a worker, which the worker has too


class Forked:
    """A worker of the server, in the words of `workers.Process`.

    Args:
        status: tells how it ended; it is ended when nothing can be sent to it any more.

    Attributes:
        exitcode: its status; minus a signal that ended it; None while it lives, or is not waited for.
    """

    def __init__(self, status: socket.socket) -> None:
        self._status = status
        self.exitcode: int | None = None

    def kill(self) -> None:
        """End it at once."""
        if self.exitcode is None:
            with contextlib.suppress(OSError):  # the server is no more
                self._status.shutdown(socket.SHUT_WR)

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end."""
        if self.exitcode is None and wait([self._status], timeout):
            said = self._status.recv(_STATUS.size)
            self.exitcode = _STATUS.unpack(said)[0] if said else -signal.SIGKILL  # it went with the server
            self._status.close()


def environment() -> dict[str, str]:
    """The variables of a Python process that finds the modules that this one does."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


class ForkServer:
    """The server, as the process sees it that asks for workers.

    Args:
        program: of Python, with a call of `serve`; the number of its socket is its argument.
    """

    def __init__(self, program: str) -> None:
        self._program, self._lock = program, threading.Lock()
        self._requests: socket.socket | None = None

    def fork(self, files: Sequence[int]) -> Forked:
        """A worker.

        Args:
            files: descriptors that it is given.
        """
        ours, theirs = socket.socketpair()
        with theirs, self._lock:
            given = [theirs.fileno(), *_STREAMS, *files]
            try:
                socket.send_fds(self._requests or self._started(), [b"1"], given)
            except (BrokenPipeError, ConnectionResetError):  # somebody has ended it
                socket.send_fds(self._started(), [b"1"], given)
        return Forked(ours)

    def _started(self) -> socket.socket:
        """Start it; as a child of nobody, so that nobody has to wait for its end."""
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-c", f"import os; os.fork() and os._exit(0); {self._program}"]
            subprocess.run(
                [*command, str(theirs.fileno())],
                env=environment(),
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is the driver's
                check=True,
            )
        return self._requests


def serve(live: Callable[[Sequence[int]], None]) -> None:
    """The life of the server, until nobody is there any more who could ask for a worker.

    Args:
        live: the life of a worker, which is given descriptors.
    """
    requests = socket.socket(fileno=int(sys.argv[1]))
    workers: dict[socket.socket, int] = {}  # numbers of processes by where their ends are told
    watched = {requests}
    while requests in watched:
        heard = wait(list(watched), _TICK if workers else None)
        for status in watched.intersection(heard) - {requests}:  # nobody wants this worker any more
            os.kill(workers[status], signal.SIGKILL)
            watched.discard(status)
        if requests in heard:
            asked, files, _, _ = socket.recv_fds(requests, 1, 16)
            if asked:
                status = socket.socket(fileno=files[0])
                workers[status] = _fork(live, files[1:], [requests, status, *workers])
                watched.add(status)
            else:
                watched.discard(requests)
        for status, pid in list(workers.items()):
            ended, code = os.waitpid(pid, os.WNOHANG)
            if ended:
                _tell(status, os.waitstatus_to_exitcode(code))
                watched.discard(status)
                del workers[status]
    for pid in workers.values():
        os.kill(pid, signal.SIGKILL)


def _tell(status: socket.socket, code: int) -> None:
    with status, contextlib.suppress(OSError):  # who asked for the worker is no more
        status.sendall(_STATUS.pack(code))


def _fork(live: Callable[[Sequence[int]], None], files: list[int], sockets: list[socket.socket]) -> int:
    """Fork a worker off, which is given `files` and has none of the server's sockets; the number of its process."""
    pid = os.fork()
    if pid:
        for file in files:
            os.close(file)
        return pid
    status = 1
    try:
        for one in sockets:
            one.close()
        for file, stream in zip(files, _STREAMS, strict=False):
            os.dup2(file, stream)
            os.close(file)
        live(files[len(_STREAMS) :])
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)
