"""Where the pieces of NVIDIA's toolkit are: libraries and programs, from wheels, a toolkit folder, or the system.

Searched in this order, the cheapest first: the folders of the nvidia-* wheels (and of Triton's, which carries ptxas
and nvdisasm), a CUDA toolkit that the environment names, the PATH, and last cuda-pathfinder if it is installed, which
knows more places but takes a while to import.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tilewright.base.lazy import lazy_module

_pathfinder: Any = lazy_module("cuda.pathfinder")
_WHEEL_LIBRARIES = ("cu*/lib", "nvjitlink/lib")
_WHEEL_PROGRAMS = ("nvidia/cu*/bin", "nvidia/cuda_nvcc/bin", "triton/backends/nvidia/bin")
_WHEEL_BITCODE = ("nvidia/cu*/nvvm/libdevice", "nvidia/cuda_nvcc/nvvm/libdevice", "triton/backends/nvidia/lib")
_HOMES = ("CUDA_HOME", "CUDA_PATH")


def _roots() -> Iterator[Path]:
    """Folders that wheels are installed in."""
    for entry in sys.path:
        if entry.endswith(("site-packages", "dist-packages")):
            yield Path(entry)


def _homes() -> Iterator[Path]:
    for name in _HOMES:
        if os.environ.get(name):
            yield Path(os.environ[name])
    yield Path("/usr/local/cuda")


def libraries(stem: str) -> list[tuple[int, Path]]:
    """Versions of a shared library that are installed, newest first.

    Args:
        stem: as in lib<stem>.so.13.

    Returns:
        (major version, path) pairs, one per major version; none where nothing is found.
    """
    found: dict[int, Path] = {}
    for path in _library_files(stem):
        version = re.search(r"\.so\.(\d+)", path.name)
        if version:
            found.setdefault(int(version[1]), path)
    if not found:
        located = _from_pathfinder(stem)
        version = re.search(r"\.so\.(\d+)", located.name) if located else None
        if located and version:
            found[int(version[1])] = located
    return sorted(found.items(), reverse=True)


def _library_files(stem: str) -> Iterator[Path]:
    for root in _roots():
        for pattern in _WHEEL_LIBRARIES:
            yield from sorted(root.glob(f"nvidia/{pattern}/lib{stem}.so.*"))
    for home in _homes():
        yield from sorted(home.glob(f"lib64/lib{stem}.so.*"))


def _from_pathfinder(stem: str) -> Path | None:
    try:
        path = _pathfinder.load_nvidia_dynamic_lib(stem).abs_path
    except Exception:  # not installed, or one of its several ways to say no
        return None
    return None if path is None else Path(path)


@functools.cache
def program(name: str) -> Path | None:
    """A program of the toolkit ("ptxas", "nvdisasm"), or None."""
    for root in _roots():
        for pattern in _WHEEL_PROGRAMS:
            for found in sorted(root.glob(f"{pattern}/{name}"), reverse=True):
                return found
    for home in _homes():
        if (home / "bin" / name).is_file():
            return home / "bin" / name
    on_path = shutil.which(name)
    if on_path:
        return Path(on_path)
    try:
        located = _pathfinder.find_nvidia_binary_utility(name)
    except Exception:
        return None
    return None if located is None else Path(located)


@functools.cache
def bitcode(name: str) -> Path | None:
    """A file of LLVM bitcode ("libdevice.10.bc"), or None."""
    for root in _roots():
        for pattern in _WHEEL_BITCODE:
            for found in sorted(root.glob(f"{pattern}/{name}"), reverse=True):
                return found
    for home in _homes():
        if (home / "nvvm/libdevice" / name).is_file():
            return home / "nvvm/libdevice" / name
    return None


def identity(path: Path) -> str:
    """Text that tells one build of a tool from another without loading it."""
    status = path.stat()
    return f"{path.name}:{status.st_size}:{status.st_mtime_ns}"
