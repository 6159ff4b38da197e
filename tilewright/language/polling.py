"""`tl.atomic_poll`, written in the language: wait until memory holds a value."""

from __future__ import annotations

from typing import Any

from tilewright.language.library import constexpr_function, library
from tilewright.language.standard import reduce_or
from tilewright.ops.atomic_functions import atomic_load
from tilewright.ops.debug_functions import static_assert


@constexpr_function
def _pollable(pointer: Any) -> Any:
    """Whether `pointer`, a type, points to integers of 16, 32 or 64 bits."""
    element = pointer.scalar.element_ty if pointer.scalar.is_ptr() else None
    return element is not None and not element.is_ptr() and element.is_int() and element.primitive_bitwidth >= 16


@constexpr_function
def _waits(timeout_ns: Any) -> Any:
    """Whether to wait at all; a time limit other than zero needs a clock."""
    return timeout_ns is None


@constexpr_function
def _known_timeout(timeout_ns: Any) -> Any:
    return timeout_ns is None or timeout_ns == 0


@library(method=True)
def atomic_poll(pointer: Any, expected_value: Any, sem: Any = None, scope: Any = None, timeout_ns: Any = None) -> Any:
    """Read memory, atomically, until every element has an expected value.

    Another program must write the value meanwhile, so its program must be running or have run: programs of one launch
    start in the order of their numbers, but only as many at a time as there are threads. In interpreter mode they run
    one after the other.

    Args:
        pointer: pointer, or tile of pointers, to integers of 16, 32 or 64 bits.
        expected_value: what to wait for; broadcast.
        sem: "acquire" (default) or "relaxed".
        scope: "gpu" (default), "cta" or "sys".
        timeout_ns: None to wait for ever, 0 to look once; other limits need a clock, which a CPU kernel has not.

    Returns:
        int1 of the pointer's shape: whether the element had the expected value.

    Raises:
        CompileTimeAssertionFailure: other elements, or another time limit.
    """
    static_assert(_pollable(pointer.type), "atomic_poll takes pointers to integers of 16, 32 or 64 bits")
    static_assert(_known_timeout(timeout_ns), "atomic_poll on a CPU has no clock: timeout_ns is None or 0")
    done = atomic_load(pointer, sem=sem, scope=scope) == expected_value
    if _waits(timeout_ns):
        if pointer.type.is_block():
            while reduce_or(done ^ True, None):
                done = done | (atomic_load(pointer, sem=sem, scope=scope) == expected_value)
        else:
            while done ^ True:
                done = atomic_load(pointer, sem=sem, scope=scope) == expected_value
    return done
