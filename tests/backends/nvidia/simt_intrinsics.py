"""What intrinsics of NVPTX do to a simulated block: barriers, shuffles, votes, matrix loads, asynchronous copies.

Each is a function ``(machine, inst, *operands)`` registered under the names that it serves; the operands are arrays of
shape (threads,), or (1,) for what all threads share. Written from the PTX ISA's descriptions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.backends.nvidia.simt_memory import SimtError
from tests.backends.nvidia.simt_text import NOISE, Inst

Array = np.ndarray
Machine = Any  # simt.Machine

_CYCLES_BETWEEN_LOOKS = 100
Intrinsic = Callable[..., Any]
INTRINSICS: dict[str, Intrinsic] = {}


def intrinsic(*names: str) -> Callable[[Intrinsic], Intrinsic]:
    """Decorator: this function ``(machine, inst, *operands)`` runs calls of these names."""

    def register(function: Intrinsic) -> Intrinsic:
        for name in names:
            INTRINSICS[name] = function
        return function

    return register


@intrinsic("llvm.nvvm.barrier.cta.sync.aligned.all", "llvm.nvvm.barrier0")
def _barrier(m: Machine, inst: Inst, *args: Array) -> None:
    if not (m.mask | m.exited).all():
        raise SimtError("a barrier is reached by a part of the block")
    _wait_together(m)


def _wait_together(m: Machine) -> None:
    m.shared.barrier()
    if m.shared.clocks is not None:
        m.shared.clocks.join(np.unique(m.threads // 32))


@intrinsic("llvm.nvvm.barrier.cta.sync.aligned.count")
def _named_barrier(m: Machine, inst: Inst, number: Array, count: Array) -> None:
    if len(m.threads) != int(count[0]) or len(np.unique(m.agents.agent[m.threads])) > 1:
        raise SimtError(f"barrier {number[0]} for {count[0]} threads is reached by {len(m.threads)}")
    _wait_together(m)


@intrinsic("llvm.nvvm.read.ptx.sreg.clock")
def _clock(m: Machine, inst: Inst) -> Array:
    """Goes on when somebody looks."""
    m.registers["clock"] = m.registers["clock"] + np.uint32(_CYCLES_BETWEEN_LOOKS)
    return np.array(m.registers["clock"])


@intrinsic("llvm.nvvm.bar.warp.sync")
def _warp_barrier(m: Machine, inst: Inst, *args: Array) -> None:
    m.shared.warp_barrier(m.whole_warps())


def shuffled(m: Machine, kind: str, value: Array, where: Array, clamp: Array) -> tuple[Array, Array]:
    """PTX ISA, shfl.sync: the value of another lane of the segment, and whether there was one."""
    m.whole_warps()
    lane, where, clamp = np.arange(m.count) % 32, m.spread(where).astype(int) & 31, m.spread(clamp).astype(int)
    segment, limit = clamp >> 8 & 31, clamp & 31
    most, least = (lane & segment) | (limit & ~segment), lane & segment
    source = {"up": lane - where, "down": lane + where, "bfly": lane ^ where, "idx": least | (where & ~segment)}[kind]
    there = source >= most if kind == "up" else source <= most
    source = np.where(there, source, lane)
    return m.spread(value)[np.arange(m.count) // 32 * 32 + source], there


def permuted(m: Machine, a: Array, b: Array, places: Array) -> Array:
    """PTX ISA, prmt.b32: bytes of two words; the fourth bit of a place spreads the sign of its byte."""
    both = np.stack([m.spread(a), m.spread(b)], axis=1).view(np.uint8)
    picks = [m.spread(places) >> 4 * i & 15 for i in range(4)]
    made = [both[np.arange(len(both)), p & 7] for p in picks]
    made = [np.where(p & 8, np.where(x & 0x80, 0xFF, 0), x).astype(np.uint8) for p, x in zip(picks, made)]
    return np.ascontiguousarray(np.stack(made, axis=1)).view(np.uint32)[:, 0]


@intrinsic("llvm.nvvm.prmt")
def _prmt(m: Machine, inst: Inst, a: Array, b: Array, places: Array) -> Array:
    return permuted(m, a, b, places)


def _register_shuffles() -> None:
    for kind in ("up", "down", "bfly", "idx"):
        for t in ("i32", "f32"):
            name = f"llvm.nvvm.shfl.sync.{kind}.{t}"
            intrinsic(name)(lambda m, inst, _, v, w, c, kind=kind: shuffled(m, kind, v, w, c)[0])
            intrinsic(name + "p")(lambda m, inst, _, v, w, c, kind=kind: shuffled(m, kind, v, w, c))


_register_shuffles()


def by_warp(m: Machine, value: Array, combine: Callable[[Array], Any], dtype: Any = np.uint32) -> Array:
    """`combine` of the 32 values of each warp, given to all its lanes."""
    m.whole_warps()
    return np.repeat(np.array([combine(row) for row in m.spread(value).reshape(-1, 32)], dtype), 32)


@intrinsic("llvm.nvvm.vote.ballot.sync")
def _ballot(m: Machine, inst: Inst, _: Array, flag: Array) -> Array:
    return by_warp(m, flag, lambda row: sum(int(bit) << i for i, bit in enumerate(row)))


@intrinsic("llvm.nvvm.vote.any.sync")
def _vote_any(m: Machine, inst: Inst, _: Array, flag: Array) -> Array:
    return by_warp(m, flag, np.any, bool)


@intrinsic("llvm.nvvm.vote.all.sync")
def _vote_all(m: Machine, inst: Inst, _: Array, flag: Array) -> Array:
    return by_warp(m, flag, np.all, bool)


def _register_redux() -> None:
    forms = {"add": np.sum, "umin": np.min, "umax": np.max, "and": np.bitwise_and.reduce, "or": np.bitwise_or.reduce}
    forms |= {"xor": np.bitwise_xor.reduce}
    forms |= {"min": lambda r: r.view(np.int32).min(), "max": lambda r: r.view(np.int32).max()}
    for name, combine in forms.items():
        intrinsic(f"llvm.nvvm.redux.sync.{name}")(
            lambda m, inst, value, _, combine=combine: by_warp(m, value, lambda r: int(combine(r)) & 0xFFFFFFFF)
        )


_register_redux()


@intrinsic("llvm.trap", "llvm.nvvm.exit", "llvm.debugtrap")
def _trap(m: Machine, inst: Inst) -> None:
    raise SimtError("the kernel trapped")


# --- matrices in shared memory ------------------------------------------------------------------------------


def _rows(m: Machine, address: Array, count: int) -> tuple[Array, Array]:
    """Of `count` 8x8 matrices: threads that pass the row addresses and those addresses, (warp, matrix, row)."""
    warps = m.whole_warps()
    threads = warps[:, None] * 32 + np.arange(8 * count)
    return threads.reshape(-1, count, 8), m.spread(address)[threads].reshape(-1, count, 8)


def _check_rows(addresses: Array) -> None:
    if (addresses % 16).any():
        raise SimtError("a matrix row is not aligned to 16 bytes")


def load_matrices(m: Machine, address: Array, count: int, transposed: bool) -> list[Array]:
    """ldmatrix: one i32 for each of `count` 8x8 matrices of 16-bit elements."""
    threads, addresses = _rows(m, address, count)
    _check_rows(addresses)
    raw = m.shared.load(threads.reshape(-1), addresses.reshape(-1), 16)
    halves = np.ascontiguousarray(raw).view(np.uint16).reshape(*addresses.shape, 8)  # warp, matrix, row, column
    if transposed:
        halves = halves.swapaxes(2, 3)
    words = np.ascontiguousarray(halves).view(np.uint32).reshape(len(addresses), count, 32)
    result = np.zeros((count, m.count // 32, 32), np.uint32)
    result[:, m.whole_warps()] = words.swapaxes(0, 1)
    return [row.reshape(-1) for row in result]


def store_matrices(m: Machine, address: Array, words: list[Array], transposed: bool) -> None:
    """stmatrix: the inverse of `load_matrices`."""
    threads, addresses = _rows(m, address, len(words))
    _check_rows(addresses)
    held = np.stack([m.spread(w).reshape(-1, 32)[m.whole_warps()] for w in words], axis=1)
    halves = np.ascontiguousarray(held).view(np.uint16).reshape(*addresses.shape, 8)
    if transposed:
        halves = halves.swapaxes(2, 3)
    raw = np.ascontiguousarray(halves).view(np.uint8).reshape(-1, 16)
    m.shared.store(threads.reshape(-1), addresses.reshape(-1), raw)


def _register_matrices() -> None:
    for count in (1, 2, 4):
        for trans in (False, True):
            name = f"matrix.sync.aligned.m8n8.x{count}{'.trans' if trans else ''}.b16"

            def load(m: Machine, inst: Inst, a: Array, count: int = count, trans: bool = trans) -> Any:
                made = load_matrices(m, a, count, trans)
                return made[0] if count == 1 else tuple(made)

            def store(m: Machine, inst: Inst, a: Array, *words: Array, trans: bool = trans) -> None:
                store_matrices(m, a, list(words), trans)

            intrinsic(f"llvm.nvvm.ld{name}.p3")(load)
            intrinsic(f"llvm.nvvm.st{name}.p3")(store)


_register_matrices()


# --- asynchronous copies ------------------------------------------------------------------------------------


def async_copy(m: Machine, target: Array, source: Array, size: int, used: Array | None = None) -> None:
    """cp.async: `size` bytes, those from `used` on zero. They arrive at the wait; until then the place is in use."""
    used = np.array([size], np.uint32) if used is None else used
    threads, target, source, used = m.threads, m.active(target), m.active(source), m.active(used).astype(int)
    if (target % size).any() or ((source % size != 0) & (used > 0)).any():
        raise SimtError(f"cp.async of {size} bytes at an address that is not aligned to them")
    raw = np.zeros((len(threads), size), np.uint8)
    for length in np.unique(used):
        rows = np.nonzero(used == length)[0]
        if length:
            raw[rows, :length] = m.memory.load(source[rows], int(length))
    m.shared.store(threads, target, np.full_like(raw, NOISE))
    m.pending[-1].append(lambda: m.shared.store(threads, target, raw))


@intrinsic("llvm.nvvm.cp.async.commit.group")
def commit_group(m: Machine, inst: Inst) -> None:
    """The copies issued so far form a group."""
    m.pending.append([])


@intrinsic("llvm.nvvm.cp.async.wait.group")
def wait_group(m: Machine, inst: Inst, left: Array) -> None:
    """At most `left` groups stay in flight."""
    while len(m.pending) - 1 > int(left[0]):
        for arrive in m.pending.pop(0):
            arrive()


@intrinsic("llvm.nvvm.cp.async.wait.all")
def wait_all(m: Machine, inst: Inst) -> None:
    """Nothing stays in flight."""
    commit_group(m, inst)
    wait_group(m, inst, np.zeros(1, int))


def _register_copies() -> None:
    for cache, size in (("ca", 4), ("ca", 8), ("ca", 16), ("cg", 16)):
        name = f"llvm.nvvm.cp.async.{cache}.shared.global.{size}"
        intrinsic(name)(lambda m, inst, d, s, size=size: async_copy(m, d, s, size))
        intrinsic(name + ".s")(lambda m, inst, d, s, used, size=size: async_copy(m, d, s, size, used))


_register_copies()
