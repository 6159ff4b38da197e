"""Kernels whose programs hand data over by atomics, and the same ones with the order broken."""

from __future__ import annotations

import tilewright
import tilewright.language as tl


@tilewright.jit
def last_one_reduces(x, parts, counter, out, SPLIT: tl.constexpr, BLOCK: tl.constexpr, HOW: tl.constexpr):
    """Each program of a row stores its part; the one that counts last sums them up, and sets the count back."""
    row, me = tl.program_id(0), tl.program_id(1)
    at = tl.arange(0, BLOCK)
    part = tl.load(x + (row * SPLIT + me) * BLOCK + at) * 2
    if HOW == "early":
        tl.atomic_add(counter + row, 0)
    if HOW != "late":
        tl.store(parts + (row * SPLIT + me) * BLOCK + at, part)
    if HOW == "none":
        count = tl.load(counter + row)
        tl.store(counter + row, count + 1)
    elif HOW == "relaxed":
        count = tl.atomic_add(counter + row, 1, sem="relaxed")
    elif HOW == "cta":
        count = tl.atomic_add(counter + row, 1, scope="cta")
    elif HOW == "release":
        count = tl.atomic_add(counter + row, 1, sem="release")
    else:
        count = tl.atomic_add(counter + row, 1)
    if HOW == "late":
        tl.store(parts + (row * SPLIT + me) * BLOCK + at, part)
    if count == SPLIT - 1:
        total = tl.zeros((BLOCK,), tl.float32)
        for other in range(SPLIT):
            total += tl.load(parts + (row * SPLIT + other) * BLOCK + at)
        tl.store(out + row * BLOCK + at, total)
        tl.store(counter + row, 0)


@tilewright.jit
def locked_sum(lock, total, x, BLOCK: tl.constexpr, HOW: tl.constexpr):
    """Programs add to one place, each while it holds a lock."""
    at = tl.arange(0, BLOCK)
    value = tl.load(x + tl.program_id(0) * BLOCK + at)
    if HOW == "relaxed":
        while tl.atomic_cas(lock, 0, 1, sem="relaxed") == 1:
            pass
    elif HOW == "other":
        while tl.atomic_cas(lock + 1 + tl.program_id(0), 0, 1) == 1:
            pass
    elif HOW != "none":
        while tl.atomic_cas(lock, 0, 1) == 1:
            pass
    tl.store(total + at, tl.load(total + at) + value)
    if HOW == "late":
        tl.atomic_xchg(lock, 0)
        tl.store(total + at, value)
    elif HOW == "relaxed":
        tl.atomic_xchg(lock, 0, sem="relaxed")
    elif HOW != "none":
        tl.atomic_xchg(lock, 0)


@tilewright.jit
def look_back(x, sums, flags, out, BLOCK: tl.constexpr, HOW: tl.constexpr):
    """A scan: each program waits for the sum of the one before."""
    me = tl.program_id(0)
    at = me * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at)
    before = 0.0
    if me > 0:
        if HOW != "none":
            while tl.atomic_add(flags + me - (1 if HOW == "right" else 2 if me > 1 else 1), 0) == 0:
                pass
        before = tl.load(sums + me - 1)
    tl.store(sums + me, before + tl.sum(values, 0))
    tl.atomic_xchg(flags + me, 1)
    tl.store(out + at, tl.cumsum(values, 0) + before)


@tilewright.jit
def read_then_reset(x, out, counter, BLOCK: tl.constexpr, HOW: tl.constexpr):
    """All programs read one tile; the last one writes it."""
    at = tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(0) * BLOCK + at, tl.load(x + at))
    if HOW == "none":
        if tl.program_id(0) == tl.num_programs(0) - 1:
            tl.store(x + at, tl.zeros((BLOCK,), tl.float32))
    elif tl.atomic_add(counter, 1) == tl.num_programs(0) - 1:
        tl.store(x + at, tl.zeros((BLOCK,), tl.float32))


@tilewright.jit
def added_then_read(x, total, counter, out, BLOCK: tl.constexpr, HOW: tl.constexpr):
    """All programs add to a tile by relaxed atomics; the last one reads the sum."""
    at = tl.arange(0, BLOCK)
    tl.atomic_add(total + at, tl.load(x + tl.program_id(0) * BLOCK + at), sem="relaxed")
    if HOW == "none":
        if tl.program_id(0) == tl.num_programs(0) - 1:
            tl.store(out + at, tl.load(total + at))
    elif tl.atomic_add(counter, 1) == tl.num_programs(0) - 1:
        tl.store(out + at, tl.load(total + at))


@tilewright.jit
def handed_on(data, flags, out, HOW: tl.constexpr):
    """A value goes from program to program, and the last one reads what the first one stored: order goes on."""
    me = tl.program_id(0)
    if me == 0:
        tl.store(data, 7)
    else:
        while tl.atomic_cas(flags + me - 1, 1, 1) != 1:
            pass
    if me == tl.num_programs(0) - 1:
        tl.store(out, tl.load(data))
    if HOW == "right" or me != 1:
        tl.atomic_xchg(flags + me, 1)
    else:
        tl.atomic_xchg(flags + me, 1, sem="relaxed")


@tilewright.jit
def one_turn(flag, data, out, MASKED: tl.constexpr, HOW: tl.constexpr):
    """Program 0 stores, and sets a flag by a compare-and-swap or a masked exchange; the last one looks."""
    me = tl.program_id(0) + tl.num_programs(0) * tl.program_id(1)
    one = tl.full((), 1, flag.dtype.element_ty)
    none = tl.full((), 0, flag.dtype.element_ty)
    if me == 0:
        tl.store(data, 5)
        if MASKED:
            tl.atomic_xchg(flag, one, mask=HOW == "right")
        else:
            tl.atomic_cas(flag, none if HOW == "right" else one, one)
    if me == tl.num_programs(0) * tl.num_programs(1) - 1:
        found = tl.atomic_cas(flag, one, one)
        tl.store(out, tl.load(data) + (found == one).to(tl.int32))


@tilewright.jit
def first_come(data, counter, out, SEM: tl.constexpr):
    """The first program reads what the second one has stored, if that came before it."""
    me = tl.program_id(0) + tl.num_programs(0) * tl.program_id(1)
    tl.store(data + me, me + 1)
    mine = tl.atomic_add(counter, 1, sem=SEM)
    if (mine > 0) & (me == 0):
        tl.store(out, tl.load(data + 1))


@tilewright.jit
def draw_elsewhere(table, y):
    """A ticket from a place that an array names."""
    ticket = tl.atomic_add(tl.load(table).to(tl.pointer_type(tl.int32)), 1)
    tl.store(y + tl.program_id(0), tl.log(ticket.to(tl.float32)))
