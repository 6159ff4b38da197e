"""Tile products on the CPU: plans, packers and micro-kernels as internal functions of the module being emitted.

    plan = plan_dot(isa, m, n, k, ...)
    pack(f, plan, "a", ...); pack(f, plan, "b", ...)   any K range, into any place of a larger panel buffer
    dot(f, plan, acc, ..., words, fresh)            acc (+)= a * b over a run-time number of K words
    dot_in_place(f, plan, acc, ...)                 the same with B where it lies

Emitted functions are deduplicated by name and may be called from loops. Kernels whose plan `is_amx` need
`amx.configure` once before and `amx.release` after; `device.permission` once per process.
"""

from __future__ import annotations

from tilewright.backends.cpu.emit.dot.call import dot, dot_in_place, pack
from tilewright.backends.cpu.plan.dot import DotPlan, plan_dot

__all__ = ["DotPlan", "dot", "dot_in_place", "pack", "plan_dot"]
