"""The copy engine of the simulated GPU: tensor maps, bulk tensor copies and the barriers that they signal.

A tensor map is what `encode_map`, standing in for the driver, packs into 128 bytes. Copies arrive as late as they may:
those to shared memory when somebody waits for their barrier, those to global memory when their group is waited for.
Until then their places hold noise and count as written by the thread that started the copy. Swizzles are the address
patterns of the PTX ISA ("Tensor Swizzling Modes"). Importing this file adds the intrinsics to the simulator's table.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.backends.nvidia.fake_cuda import FakeCuda, installed
from tests.backends.nvidia.simt_intrinsics import Machine, intrinsic
from tests.backends.nvidia.simt_memory import SimtError
from tests.backends.nvidia.simt_ptx import Statement, ptx
from tests.backends.nvidia.simt_text import NOISE, Inst

Array = np.ndarray
_FORM = struct.Struct(
    "=IIQ5Q5Q5IIII"
)  # element bytes, rank, address, sizes, strides in bytes, box, swizzle, fill, tf32
_SIZES = {0: 1, 1: 2, 2: 4, 3: 4, 4: 8, 5: 8, 6: 2, 7: 4, 8: 8, 9: 2, 11: 4}  # by CUtensorMapDataType
_TF32 = 11
_PHASES = {0: 0, 1: 1, 2: 3, 3: 7}  # by CUtensorMapSwizzle: which bits from 7 on are flipped into bits from 4 on
_MAX_TRANSACTION = (1 << 20) - 1


# --- maps ---------------------------------------------------------------------------------------------


def encode_map(out: int, kind: int, rank: int, address: int, *arrays: Any) -> None:
    """cuTensorMapEncodeTiled, after the driver's own checks."""
    sizes, strides, box, steps, interleave, swizzle, _, fill = arrays
    sizes = list((ctypes.c_uint64 * rank).from_address(sizes))
    strides = [_SIZES[kind], *(ctypes.c_uint64 * (rank - 1)).from_address(strides)] if rank > 1 else [_SIZES[kind]]
    box = list((ctypes.c_uint32 * rank).from_address(box))
    assert list((ctypes.c_uint32 * rank).from_address(steps)) == [1] * rank and not interleave
    row = box[0] * _SIZES[kind]
    assert address % 16 == 0 and all(step % 16 == 0 for step in strides[1:]) and row % 16 == 0
    assert max(box) <= 256 and (not swizzle or row <= 16 << swizzle)
    assert not fill or kind in (6, 7, 8, 9, _TF32)
    five = [list(values) + [0] * (5 - rank) for values in (sizes, strides, box)]
    packed = _FORM.pack(_SIZES[kind], rank, address, *five[0], *five[1], *five[2], swizzle, fill, kind == _TF32)
    ctypes.memmove(out, packed.ljust(128, b"\0"), 128)


@contextmanager
def encoding() -> Iterator[None]:
    """Have tensor maps be made in the form that the simulator reads."""
    library = FakeCuda()
    library.acts["cuTensorMapEncodeTiled"] = encode_map
    with installed(library):
        yield


@dataclass
class _Map:
    """A decoded tensor map; dims are counted from the contiguous one."""

    bytes: int
    address: int
    sizes: list[int]
    strides: list[int]
    box: list[int]
    phases: int
    fill: int
    tf32: bool

    @staticmethod
    def read(m: Machine, pointer: Array) -> _Map:
        raw = m.memory.load(m.spread(pointer)[m.threads[:1]], 128).tobytes()
        size, rank, address, *rest = _FORM.unpack(raw[: _FORM.size])
        parts = [list(rest[5 * i : 5 * i + rank]) for i in range(3)]
        return _Map(size, address, *parts, _PHASES[rest[15]], rest[16], bool(rest[17]))

    def elements(self, corner: list[int], shared: int) -> tuple[Array, Array, Array]:
        """Of every element of a box: its place in shared memory, its address, whether it lies in the tensor."""
        if shared % 128:
            raise SimtError(f"a box at byte {shared} of shared memory is not aligned to 128")
        grids = np.meshgrid(*(np.arange(n) for n in reversed(self.box)), indexing="ij")[::-1]
        places, step = np.full(grids[0].shape, shared), self.bytes
        address, inside = np.full(grids[0].shape, self.address), np.ones(grids[0].shape, bool)
        for grid, first, size, stride, extent in zip(grids, corner, self.sizes, self.strides, self.box, strict=True):
            places = places + grid * step
            step *= extent
            inside &= (grid + first >= 0) & (grid + first < size)
            address = address + (grid + first) * stride
        places ^= (places >> 7 & self.phases) << 4
        return places.reshape(-1), address.reshape(-1), inside.reshape(-1)


def _corner(m: Machine, values: tuple[Array, ...]) -> list[int]:
    return [int(np.int32(m.spread(value)[m.threads[0]].astype(np.uint32))) for value in values]


# --- barriers -----------------------------------------------------------------------------------------


@dataclass
class _Barrier:
    count: int
    pending: int
    transactions: int = 0
    phases: int = 0  # that have ended
    arriving: list[Callable[[], int]] = field(default_factory=list)
    left: list[Array] = field(default_factory=list)  # clocks of those who have arrived in this phase
    ended: Array | None = None  # clocks of all who had arrived when the last phase ended

    def settle(self) -> None:
        """Let what is under way arrive; end the phase if that was all."""
        for arrive in self.arriving:
            self.transactions -= arrive()
        self.arriving = []
        if not self.pending and not self.transactions:
            self.phases, self.pending = self.phases + 1, self.count
            self.ended, self.left = np.max(self.left, axis=0) if self.left else None, []


def _barriers(m: Machine) -> dict[int, _Barrier]:
    if not hasattr(m, "tma_barriers"):
        m.tma_barriers = {}
        m.ends.append(_end_copies)
    return m.tma_barriers


def _end_copies(m: Machine) -> None:
    if any(barrier.arriving for barrier in _barriers(m).values()):
        raise SimtError("a block ends while copies to its shared memory are under way")


def _one(m: Machine, value: Array) -> int:
    if len(m.threads) != 1:
        raise SimtError("a copy is started by more than one thread")
    return int(m.spread(value)[m.threads[0]])


def _barrier(m: Machine, address: int) -> _Barrier:
    if address not in _barriers(m):
        raise SimtError(f"there is no barrier at byte {address} of shared memory")
    return _barriers(m)[address]


@intrinsic("llvm.nvvm.mbarrier.init.shared")
def _init(m: Machine, inst: Inst, address: Array, count: Array) -> None:
    place = _one(m, address)
    m.shared.store(m.threads, np.array([place]), np.full((1, 8), NOISE, np.uint8))
    _barriers(m)[place] = _Barrier(int(count[0]), int(count[0]))


def _leave(m: Machine, barrier: _Barrier, thread: int) -> None:
    """A thread arrives: whoever sees the phase end knows what its warp did."""
    if not barrier.pending:
        raise SimtError("a thread arrives at a barrier whose phase has all that it waits for")
    barrier.pending -= 1
    if m.shared.clocks is not None:
        barrier.left.append(m.shared.clocks.leave(thread // 32))
    m.agents.wake()


@ptx("mbarrier")
def _arrive(s: Statement) -> None:
    assert s.has("arrive") and s.operands[0] == "_"
    m, places = s.machine, s.machine.spread(s.address(s.operands[1]))
    for thread in m.threads:
        barrier = _barrier(m, int(places[thread]))
        _leave(m, barrier, int(thread))
        barrier.settle()


@ptx("setmaxnreg")
def _registers(s: Statement) -> None:
    warps = s.machine.whole_warps()
    if len(warps) % 4 or warps[0] % 4:
        raise SimtError("setmaxnreg is run by a part of a warp group")


@intrinsic("llvm.nvvm.mbarrier.arrive.expect.tx.scope.cta.space.cta")
def _expect(m: Machine, inst: Inst, address: Array, size: Array) -> Array:
    barrier = _barrier(m, _one(m, address))
    if not barrier.pending:
        raise SimtError("a copy for the next phase is started before the last one was waited for")
    _leave(m, barrier, int(m.threads[0]))
    barrier.transactions += int(size[0])
    assert barrier.transactions <= _MAX_TRANSACTION
    return np.zeros(1, np.uint64)


@intrinsic("llvm.nvvm.mbarrier.try.wait.parity.scope.cta.space.cta")
def _try_wait(m: Machine, inst: Inst, address: Array, parity: Array) -> Array:
    places, parities = m.active(address), m.active(parity)
    m.shared.load(m.threads, places, 8)
    ended = np.zeros(m.count, bool)
    for place in np.unique(places):
        barrier = _barrier(m, int(place))
        barrier.settle()
        here = m.threads[places == place]
        ended[here] = barrier.phases & 1 != parities[places == place]
        m.agents.waits_for[here[~ended[here]]] = place
        if m.shared.clocks is not None and barrier.ended is not None:
            m.shared.clocks.take(np.unique(here[ended[here]] // 32), barrier.ended)
    return ended


@intrinsic("llvm.nvvm.fence.proxy.async.shared_cta")
def _fence(m: Machine, inst: Inst) -> None:
    return None


# --- copies -------------------------------------------------------------------------------------------


def _as_tf32(raw: Array) -> Array:
    """Bytes of f32 numbers rounded to tf32, ties away from zero; those that are none stay."""
    bits = np.ascontiguousarray(raw).view(np.uint32)
    finite = (bits & np.uint32(0x7F800000)) != np.uint32(0x7F800000)
    return np.where(finite, (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000), bits).view(np.uint8)


def _load(m: Machine, target: Array, barrier: Array, pointer: Array, *rest: Array) -> None:
    box = _Map.read(m, pointer)
    signalled = _barrier(m, _one(m, barrier))
    places, addresses, inside = box.elements(_corner(m, rest[:-2]), _one(m, target))
    thread = np.full(len(places), m.threads[0])
    noise = np.full((len(places), box.bytes), NOISE, np.uint8)
    m.shared.store(thread, places, noise)
    left = None if m.shared.clocks is None else m.shared.clocks.leave(int(m.threads[0]) // 32)

    def arrive() -> int:
        raw = np.full_like(noise, 0xFF if box.fill else 0)
        raw[inside] = m.memory.load(addresses[inside], box.bytes)
        raw = _as_tf32(raw) if box.tf32 else raw
        where = places[:, None] + np.arange(box.bytes)
        m.shared.data[where] = raw
        if left is None:
            m.shared._writer[where] = -1  # who waited may read
        else:
            signalled.left.append(left)
        return raw.size

    signalled.arriving.append(arrive)
    if m.agents.early:
        signalled.settle()
    m.agents.wake()


@dataclass
class _Leaving:
    """A copy to global memory that is under way."""

    places: Array
    addresses: Array
    raw: Array
    inside: Array

    def read(self, m: Machine) -> None:
        """The engine has read what it copies; it must be there still."""
        if (m.shared.data[self.places[:, None] + np.arange(self.raw.shape[1])] != self.raw).any():
            raise SimtError("shared memory changed while it was copied")


@dataclass
class _Groups:
    """Copies to global memory of one thread: groups, the last of which is open, and those that were read."""

    groups: list[list[_Leaving]] = field(default_factory=lambda: [[]])
    read: list[_Leaving] = field(default_factory=list)


def _groups_of(m: Machine) -> dict[int, _Groups]:
    if not hasattr(m, "tma_groups"):
        m.tma_groups = {}
        m.ends.append(_end_block)
    return m.tma_groups


def _store(m: Machine, source: Array, pointer: Array, *rest: Array) -> None:
    box, threads = _Map.read(m, pointer), m.threads
    for thread in threads:
        corner = [int(np.int32(m.spread(value)[thread].astype(np.uint32))) for value in rest[:-2]]
        places, addresses, inside = box.elements(corner, int(m.spread(source)[thread]))
        raw = m.shared.load(np.full(len(places), thread), places, box.bytes)
        own = _groups_of(m).setdefault(int(thread), _Groups())
        own.groups[-1].append(_Leaving(places, addresses[inside], raw, inside))


@intrinsic("llvm.nvvm.cp.async.bulk.commit.group")
def _commit(m: Machine, inst: Inst) -> None:
    for thread in m.threads:
        _groups_of(m).setdefault(int(thread), _Groups()).groups.append([])


@intrinsic("llvm.nvvm.cp.async.bulk.wait.group.read")
def _wait_read(m: Machine, inst: Inst, left: Array) -> None:
    """What was read is written as late as may be: at a wait for it, or when the block ends."""
    for thread in m.threads:
        own = _groups_of(m).setdefault(int(thread), _Groups())
        while len(own.groups) - 1 > int(left[0]):
            for leaving in own.groups.pop(0):
                leaving.read(m)
                own.read.append(leaving)


@intrinsic("llvm.nvvm.cp.async.bulk.wait.group")
def _wait(m: Machine, inst: Inst, left: Array) -> None:
    _wait_read(m, inst, left)
    for thread in m.threads:
        _land(m, _groups_of(m)[int(thread)])


def _land(m: Machine, own: _Groups) -> None:
    for leaving in own.read:
        m.memory.store(leaving.addresses, leaving.raw[leaving.inside])
    own.read = []


def _end_block(m: Machine) -> None:
    """What has left arrives; the block must not end before its shared memory has been read."""
    for own in _groups_of(m).values():
        if any(own.groups):
            raise SimtError("a block ends while its shared memory is copied")
        _land(m, own)


for _rank in range(1, 6):
    intrinsic(f"llvm.nvvm.cp.async.bulk.tensor.g2s.cta.tile.{_rank}d")(lambda m, inst, *args: _load(m, *args))
    intrinsic(f"llvm.nvvm.cp.async.bulk.tensor.s2g.tile.{_rank}d")(lambda m, inst, *args: _store(m, *args))
