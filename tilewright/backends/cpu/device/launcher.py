"""From the address of a compiled kernel to a Python callable that runs it over a grid.

A launch packs one block of bytes (record, threads, arena, then the slots of the kernel ABI) and makes one
foreign call with it, which releases the GIL; every further ctypes argument would cost as much as packing five
slots. The block is an immutable object of that launch, so launches from several Python threads share nothing.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.backends.cpu.device import ir
from tilewright.backends.cpu.device.arena import Memory, arena_stride, arenas, spare
from tilewright.backends.cpu.device.cooperative import make_cooperative_launch
from tilewright.backends.cpu.device.native import native
from tilewright.backends.cpu.device.team import team
from tilewright.backends.llvm.slots import coerce
from tilewright.backends.protocol import ByteCache, Packing
from tilewright.base.record import Record

Launch = Callable[..., None]

_HALVES = frozenset({"fp16", "bf16"})  # scalars that Python rounds
_FLOAT_FORMATS = {"fp16": "e6x", "fp32": "f4x", "fp64": "d", "bf16": "H6x"}


class KernelCode(Record):
    """A loaded kernel and what its launches need to know.

    Args:
        address: of `i64 kernel(i64 lo, i64 hi, ptr args, ptr arena, ptr stop)`.
        types: signature type of each run-time parameter in order (`"*fp32"`, `"i32"`, `"fp64"`, ...).
        scratch_bytes: scratch that one thread needs.
        serial_below: grids of fewer programs run on the caller's thread.
        cooperative: all programs of a grid run at once.
        in_order: programs may wait for earlier ones, so threads take them one by one from the first on.
        owner: kept alive with the launch function (the loaded library).
    """

    address: int
    types: tuple[str, ...]
    scratch_bytes: int = 0
    serial_below: int = 2
    cooperative: bool = False
    in_order: bool = False
    owner: object = None


def describe_threads(cache: ByteCache | None = None) -> str:
    """One line for people: how many threads run a grid, and whose they are."""
    team.start(native(cache))
    return team.describe()


def slot_format(kind: str) -> str:
    """`struct` format of the 8-byte slot of a parameter of signature type `kind`."""
    if kind.startswith("*") or kind == "u64":
        return "Q"
    return _FLOAT_FORMATS.get(kind, "q")


def coerce_slot(value: Any, kind: str) -> int | float:
    """`value` as `struct` takes it for a slot of type `kind`: rounded and wrapped as a C cast would."""
    return coerce(value, kind, slot_format(kind))


def make_launch(code: KernelCode, *, num_threads: int | None = None, cache: ByteCache | None = None) -> Launch:
    """A function that runs the kernel over a grid and returns when all programs have finished.

    Args:
        code: the kernel.
        num_threads: threads of every launch; by default the team's current number.
        cache: object cache for the launcher's own code.

    Returns:
        `launch(gx, gy, gz, *values)`: the grid (positive integers), then an address, integer or float per
        run-time parameter.
    """
    loaded = native(cache)
    if code.cooperative:
        return make_cooperative_launch(code.address, code.scratch_bytes, _packers(code.types)[1])
    record = Memory(ir.RECORD_BYTES)
    stride = arena_stride(code.scratch_bytes)
    record.word(ir.RECORD_KERNEL).value = code.address
    record.word(ir.RECORD_GRID).value = 8 * len(code.types)
    record.word(ir.RECORD_STRIDE).value = stride
    record.word(ir.RECORD_RUNTIME).value = team.start(loaded)
    record.word(ir.RECORD_IN_ORDER).value = code.in_order
    launch = _launch_function(code, loaded.launch, _packers(code.types), record, stride, num_threads)
    if not _HALVES.intersection(code.types):
        teller = functools.partial(_members if stride else team.threads, num_threads)
        slots = tuple((ir.BLOCK_ARGS + 8 * index, 8) for index in range(len(code.types)))
        serial = max(code.serial_below, 2)
        scratch = (ctypes.addressof(spare.words), stride, spare.borrow) if stride else None
        packing = Packing(
            loaded.launch_address, record.address, slots, serial, 1, teller, owner=launch, scratch=scratch,
            streams=(loaded.address["tw_threads"], num_threads or 0),
        )  # fmt: skip
        launch.packing = packing  # type: ignore[attr-defined]
    return launch


def _members(wanted: int | None) -> int:
    return min(team.threads(wanted), ir.MAX_TEAM)


Pack = Callable[..., bytes]


def _packers(types: Sequence[str]) -> tuple[Pack, Pack]:
    """Two forms of `pack(record, threads, arena, *values, gx, gy, gz)`: a quick one, which raises `struct.error` or
    `OverflowError` for what it does not take, and one that converts as a C cast would."""
    plain = struct.Struct("=QqQ" + "".join(map(slot_format, types)) + "qqq").pack

    def converting(record: int, threads: int, arena: int, *slots: Any) -> bytes:
        values = [coerce_slot(value, kind) for value, kind in zip(slots, types, strict=False)]
        return plain(record, threads, arena, *values, *slots[len(types) :])

    return (converting if "bf16" in types else plain), converting


def _launch_function(
    code: KernelCode,
    run: Callable[[bytes], None],
    packers: tuple[Pack, Pack],
    record: Memory,
    stride: int,
    wanted: int | None,
) -> Launch:
    address, serial_below, threads = record.address, max(code.serial_below, 2), team.threads
    take, give = arenas.take, arenas.give
    pack, convert = packers

    def launch(gx: int, gy: int, gz: int, *values: Any) -> None:
        count = 1 if gx * gy * gz < serial_below else threads(wanted)
        try:
            block = pack(address, count, 0, *values, gx, gy, gz)
        except (OverflowError, struct.error):  # a float too large for f32, a negative unsigned
            block = convert(address, count, 0, *values, gx, gy, gz)
        run(block)

    def launch_with_scratch(gx: int, gy: int, gz: int, *values: Any) -> None:
        count = 1 if gx * gy * gz < serial_below else _members(wanted)
        arena = take(stride * count)
        try:
            block = pack(address, count, arena.address, *values, gx, gy, gz)
        except (OverflowError, struct.error):
            block = convert(address, count, arena.address, *values, gx, gy, gz)
        run(block)
        give(arena)

    chosen = launch_with_scratch if stride else launch
    chosen.kept = (code, record)  # type: ignore[attr-defined]
    return chosen
