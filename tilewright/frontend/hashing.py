"""Content hash of a block function: its source, everything that it calls, and the variables that it uses.

Two processes that see the same text and the same constants get the same hash, which names the
entry of the disk cache. The variables found on the way are remembered: a kernel compiled with one
value must not be launched with another.
"""

from __future__ import annotations

from tilewright.base.callable import BlockFunction
from tilewright.base.tracebacks import shorten_traceback
from tilewright.frontend.content import Content, GlobalsChangedError, UsedGlobal, hash_function


def content_hash(fn: BlockFunction) -> str:
    """Hash of the source of `fn`, of what it calls and of the constants it uses.

    Functions of Tilewright's own library count by name: the fingerprint of the package, which
    is a part of every cache key, covers their text.

    Raises:
        GlobalsChangedError: a callee was hashed earlier with another value of a global.
    """
    return hash_function(fn).digest


def without_content(fn: BlockFunction) -> str:
    """What `fn` uses that has no content to be hashed (a lock, an open file), in words; "" if there is nothing."""
    return hash_function(fn).missing


def source_files(fn: BlockFunction) -> dict[str, str]:
    """Paths of the files in which `fn` and what it uses are written, by qualified names of functions in them."""
    return hash_function(fn).files


def lasting_hash(fn: BlockFunction) -> str:
    """A `content_hash` that moves with the kernel: to another line, another file, another module.

    It names things that outlive a process and a file, such as operators in saved programs. Compiled code is not named
    by it: messages of assertions in there hold line numbers.
    """
    return hash_function(fn).lasting


def class_digest(cls: type) -> str:
    """Hash of a class whose instances kernels get: its fields and the text of its methods."""
    content = Content()
    content.value(cls)
    return content.hexdigest()[:16]


def used_globals(fn: BlockFunction) -> list[UsedGlobal]:
    """The variables outside of `fn` whose values are part of :func:`content_hash`."""
    return list(hash_function(fn).used.values())


def check_globals(fn: BlockFunction) -> None:
    """Raise `GlobalsChangedError` if a variable used by `fn` has changed since it was hashed."""
    try:
        for entry in hash_function(fn).used.values():
            if (entry.namespace.get(entry.name) is not entry.held or entry.digest) and entry.changed():
                raise GlobalsChangedError(
                    f"Global variable {entry.name} has changed since we compiled this kernel, "
                    f"from {entry.value!r} to {entry.namespace.get(entry.name)!r}",
                    hint="pass a value that changes as a tl.constexpr parameter",
                )
    except Exception as error:
        shorten_traceback(error)
        raise
