"""Errors of a system that has no more memory for this process, in whatever form they come, as one class."""

from __future__ import annotations

import contextlib
import errno
import sys
from collections.abc import Iterator

from tilewright.base.errors import OutOfMemoryError, TilewrightError

_WORDS = (
    "failed to map segment", "cannot allocate memory", "cannot create shared object descriptor",  # ld.so
    "error return without exception set",  # CPython, where it does not look whether it got memory
)  # fmt: skip


@contextlib.contextmanager
def memory_may_end(what: str) -> Iterator[None]:
    """Inside, lack of memory raises `OutOfMemoryError`: of Python, of the system, of the loader of libraries.

    Args:
        what: is being done, for the message ("compiling kernel `add`").
    """
    try:
        yield
    except TilewrightError:
        raise
    except (MemoryError, OSError, ImportError, SystemError) as error:
        if not _is_lack(error):
            raise
        raise OutOfMemoryError(
            f"this process may have no more memory while {what}: {_first_line(error)}",
            hint="raise the limit (`ulimit -v`, that of the container), or free memory first",
        ) from error


def require_address_space(size: int, user: str) -> None:
    """Find out whether a limit of address space (`ulimit -v`) leaves so many bytes, before what ends the process at it.

    Args:
        size: bytes.
        user: who wants them, for the message.

    Raises:
        MemoryError: it does not.
    """
    if sys.platform != "linux":
        return
    import mmap
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return
    try:
        mmap.mmap(-1, size).close()
    except OSError as error:
        raise MemoryError(
            f"{user} needs about {size >> 20} MB, which the limit of address space, {limit >> 20} MB, does not leave"
        ) from error


def _is_lack(error: BaseException | None) -> bool:
    """Whether an error, or one that it was raised for, is lack of memory."""
    while error is not None:
        text = str(error).lower()
        if isinstance(error, MemoryError) or any(words in text for words in _WORDS):
            return True
        if isinstance(error, OSError) and error.errno == errno.ENOMEM:
            return True
        error = error.__cause__ or error.__context__
    return False


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
