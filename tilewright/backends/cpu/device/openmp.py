"""Finding the OpenMP runtime that this process should share.

Two OpenMP runtimes, or one beside a pool of our own, each keep a full set of spinning threads; alternating
between them halved the speed of both when measured. So: the runtime that torch is linked with; if torch is
installed but not imported, the one it will load; any that is already loaded; the system's. torch itself is
never imported here.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from tilewright.base import system
from tilewright.base.record import Record

_STEMS = ("libgomp", "libomp", "libiomp")
_SYSTEM_NAMES = {
    "linux": ("libgomp.so.1", "libomp.so.5", "libomp.so", "libiomp5.so"),
    "darwin": ("libomp.dylib",),
    "win32": ("libiomp5md.dll", "libomp140.x86_64.dll"),
}


class OpenMP(Record):
    """Entry points of an OpenMP runtime, as addresses.

    Args:
        path: the library, for people to read.
        interface: `"gomp"` (GNU entry points) or `"kmpc"` (LLVM/Intel entry points).
        fork: `GOMP_parallel` or `__kmpc_fork_call`.
        thread_num: `omp_get_thread_num`.
        push_num_threads: `__kmpc_push_num_threads`, or 0.
        global_thread_num: `__kmpc_global_thread_num`, or 0.
    """

    path: str
    interface: str
    fork: int
    thread_num: int
    push_num_threads: int = 0
    global_thread_num: int = 0


def find_openmp() -> OpenMP | None:
    """The runtime to share, or None when there is none."""
    for path in _candidates():
        found = _open(path)
        if found is not None:
            return found
    return None


def _candidates() -> Iterator[str]:
    folder = _torch_folder()
    if folder is not None:
        if sys.modules.get("torch") is not None:  # what libtorch is linked with gives the symbols looked up through it
            for name in ("libtorch_cpu.so", "libtorch_cpu.dylib"):
                if (folder / name).exists():
                    yield str(folder / name)
        yield from sorted(str(p) for p in folder.glob("lib*omp*") if p.name.startswith(_STEMS))
    yield from _loaded()
    yield from _SYSTEM_NAMES.get(sys.platform, ())


def _torch_folder() -> Path | None:
    module = sys.modules.get("torch")
    origin = getattr(module, "__file__", None)
    if origin is None:
        try:
            spec = importlib.util.find_spec("torch")  # looks, does not import
        except (ImportError, ValueError):
            return None
        origin = spec.origin if spec is not None else None
    return Path(origin).parent / "lib" if origin else None


def _loaded() -> Iterator[str]:
    """OpenMP libraries already mapped into the process, where the system says."""
    paths = dict.fromkeys(path for _, _, _, path in system.this().mappings())
    return (path for path in paths if os.path.basename(path).startswith(_STEMS))


def _open(path: str) -> OpenMP | None:
    try:
        library = ctypes.CDLL(path)
    except OSError:
        return None

    def address(name: str) -> int:
        try:
            return ctypes.cast(library[name], ctypes.c_void_p).value or 0
        except AttributeError:
            return 0

    thread_num = address("omp_get_thread_num")
    gomp = address("GOMP_parallel")
    if thread_num and gomp:
        return OpenMP(path, "gomp", gomp, thread_num)
    kmpc = [address(f"__kmpc_{name}") for name in ("fork_call", "push_num_threads", "global_thread_num")]
    if thread_num and all(kmpc):
        return OpenMP(path, "kmpc", kmpc[0], thread_num, kmpc[1], kmpc[2])
    return None


@functools.cache
def torch_threads() -> int:
    """Address of torch's function that says how many threads it uses, `int at::get_num_threads()`; 0 where it has none
    by that name. torch is loaded."""
    torch = sys.modules["torch"]
    try:
        library = ctypes.CDLL(str(next(Path(torch.__file__ or "").parent.glob("lib/*torch_cpu.*"))))
        function = library._ZN2at15get_num_threadsEv
    except (StopIteration, OSError, AttributeError):
        return 0
    return ctypes.cast(function, ctypes.c_void_p).value or 0 if function() == torch.get_num_threads() else 0
