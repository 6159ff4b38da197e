"""What machine code reads and writes at each launch on a GPU: the current stream, and which kernel was launched last.

Streams are torch's, where torch is loaded: a function of Python says which is current, and so does one of C that torch
has for compiled models, in a tenth of the time. Without torch a launch goes to the default stream.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any

_MOST_GPUS = 256


class Recent(MutableMapping[int, str]):
    """Name of the kernel that was launched last on each GPU, by ordinal, in words that machine code can write."""

    def __init__(self) -> None:
        self._words = (ctypes.c_int64 * _MOST_GPUS)()
        self._names = [""]  # by the number that a word has; 0 is none
        self._numbers: dict[str, int] = {}

    def mark(self, ordinal: int, name: str) -> tuple[int, int]:
        """The address of a GPU's word, and the number that stands for a name."""
        if name not in self._numbers:
            self._names.append(name)
            self._numbers[name] = len(self._names) - 1
        return ctypes.addressof(self._words) + 8 * ordinal, self._numbers[name]

    def __getitem__(self, ordinal: int) -> str:
        if not 0 <= ordinal < _MOST_GPUS or not self._words[ordinal]:
            raise KeyError(ordinal)
        return self._names[self._words[ordinal]]

    def __setitem__(self, ordinal: int, name: str) -> None:
        self._words[ordinal] = self._numbers.get(name) or self.mark(ordinal, name)[1]

    def __delitem__(self, ordinal: int) -> None:
        self._words[ordinal] = 0

    def __iter__(self) -> Iterator[int]:
        return (ordinal for ordinal in range(_MOST_GPUS) if self._words[ordinal])

    def __len__(self) -> int:
        return sum(1 for _ in self)


def torch_streams() -> Callable[[int], int] | None:
    """torch's function from a GPU's number to the handle of its current stream; None where torch has none."""
    found: Callable[[int], int] | None
    found = getattr(getattr(sys.modules.get("torch"), "_C", None), "_cuda_getCurrentRawStream", None)
    return found


def stream_function(ordinal: int) -> int:
    """Address of `int f(int ordinal, void **stream)`, which says what `torch_streams()` says; 0 where there is none."""
    torch, function = sys.modules["torch"], _function_of_torch()
    if function is None or not torch.cuda.is_initialized() or not _agrees(function, ordinal):
        return 0
    with torch.cuda.stream(torch.cuda.Stream(ordinal)):
        return (ctypes.cast(function, ctypes.c_void_p).value or 0) if _agrees(function, ordinal) else 0


@functools.cache
def _function_of_torch() -> Any:
    try:
        folder = Path(sys.modules["torch"].__file__ or "").parent
        function = ctypes.CDLL(str(next(folder.glob("lib/*torch_cuda.*")))).aoti_torch_get_current_cuda_stream
    except (StopIteration, OSError, AttributeError):
        return None
    function.argtypes = ctypes.c_int32, ctypes.c_void_p
    return function


def _agrees(function: Any, ordinal: int) -> bool:
    """Whether the function of C says now what that of Python does."""
    ask, found = torch_streams(), ctypes.c_size_t()
    return function(ordinal, ctypes.addressof(found)) == 0 and ask is not None and found.value == ask(ordinal)
