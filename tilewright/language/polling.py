"""`tl.atomic_poll`, written in the language: wait until memory holds a value."""

from __future__ import annotations

from typing import Any

from tilewright.base.errors import UnsupportedError
from tilewright.language.annotations import constexpr
from tilewright.language.extra.cuda import globaltimer
from tilewright.language.library import constexpr_function, library
from tilewright.language.standard import reduce_or
from tilewright.ops.builtin import Emitter, builtin
from tilewright.ops.functions.atomic import atomic_load
from tilewright.ops.functions.debug import static_assert
from tilewright.ops.functions.target import is_cuda
from tilewright.ops.values import tensor, unwrap


@constexpr_function
def _pollable(pointer: Any) -> Any:
    """Whether `pointer`, a type, points to integers of 16, 32 or 64 bits."""
    element = pointer.scalar.element_ty if pointer.scalar.is_ptr() else None
    return element is not None and not element.is_ptr() and element.is_int() and element.primitive_bitwidth >= 16


@builtin(export=False)
def _limited(b: Emitter, timeout_ns: Any) -> constexpr:
    """Whether there is a time limit to watch, which needs a clock."""
    limit = unwrap(timeout_ns)
    if limit is None or (not isinstance(limit, tensor) and limit == 0):
        return constexpr(False)
    if not is_cuda(b.target):
        raise UnsupportedError(
            f"atomic_poll with a time limit is not available on {b.target.backend}, which has no clock",
            hint="timeout_ns is None or 0 there",
        )
    return constexpr(True)


@library
def _in_time(start: Any, timeout_ns: Any) -> Any:
    """Whether less than `timeout_ns` has passed since `start` by the clock; without a limit there is none to read."""
    if timeout_ns is None:
        return True
    else:
        return globaltimer() - start < timeout_ns


@library(method=True)
def atomic_poll(pointer: Any, expected_value: Any, sem: Any = None, scope: Any = None, timeout_ns: Any = None) -> Any:
    """Read memory, atomically, until every element has an expected value.

    Another program must write the value meanwhile: one with a smaller number, which goes on whatever the number of
    threads, or any with `launch_cooperative_grid=True`. In interpreter mode programs run one after the other.

    Args:
        pointer: pointer, or tile of pointers, to integers of 16, 32 or 64 bits.
        expected_value: what to wait for; broadcast.
        sem: "acquire" (default) or "relaxed".
        scope: "gpu" (default), "cta" or "sys".
        timeout_ns: None to wait for ever, 0 to look once; other limits, in nanoseconds, need a clock, which GPUs have.

    Returns:
        int1 of the pointer's shape: whether the element had the expected value.

    Raises:
        CompileTimeAssertionFailure: other elements.
        UnsupportedError: a time limit where there is no clock.
    """
    static_assert(_pollable(pointer.type), "atomic_poll takes pointers to integers of 16, 32 or 64 bits")
    start = globaltimer() if _limited(timeout_ns) else 0
    done = atomic_load(pointer, sem=sem, scope=scope) == expected_value
    if timeout_ns is None or _limited(timeout_ns):
        if pointer.type.is_block():
            while reduce_or(done ^ True, None) & _in_time(start, timeout_ns):
                done = done | (atomic_load(pointer, sem=sem, scope=scope) == expected_value)
        else:
            while (done ^ True) & _in_time(start, timeout_ns):
                done = atomic_load(pointer, sem=sem, scope=scope) == expected_value
    return done
