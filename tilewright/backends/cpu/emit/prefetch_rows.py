"""Prefetches of the next program's rows (`plan/prefetch_rows.py`), line by line beside the chunks of a pass.

distance = bytes to the next program's row, or 0 where rows are so long that the second cache has no room for two
distance = that of a later program's, where rows are so short that the next one's would come too late
for chunk: ...; prefetch line of chunk + distance
"""

from __future__ import annotations

from tilewright.analysis.index import Index
from tilewright.backends.cpu import tuning
from tilewright.backends.cpu.emit import memory
from tilewright.backends.cpu.emit.evaluator import Evaluator
from tilewright.backends.cpu.plan.prefetch_rows import RowPrefetch
from tilewright.backends.llvm.types import I64, const
from tilewright.ir.types import pointee_bytes

_SECOND_CACHE = 2  # LLVM's locality of a prefetch that leaves the first cache alone
_DOUBLINGS = 3  # of the distance, at most


class RowPrefetchEmitter:
    """A row of the next program; make it where the loops but the innermost are open.

    Args:
        ev: evaluator.
        row: what is asked for.
        index: of the chunks.
    """

    def __init__(self, ev: Evaluator, row: RowPrefetch, index: Index) -> None:
        self.ev, self.pointer, self.index = ev, row.pointer, index
        f, distance = ev.f, ev.poly(row.distance)
        size, doublings = f.intrinsic("smax", distance, f.sub(0, distance)), const(I64, 0)
        for count in range(1, _DOUBLINGS + 1):
            doublings = f.add(doublings, f.cast("zext", f.icmp("sle", size, tuning.PREFETCH_LEAD >> count), I64))
        lead = f.select(f.icmp("sgt", size, tuning.PREFETCH_BYTES), 0, f.shl(distance, doublings))
        self.place = memory.hoist_shifted(ev, row.pointer, index, lead)

    def ask(self) -> None:
        """Ask for the lines of the current chunk's counterpart."""
        f, address = self.ev.f, memory.address_of(self.ev, self.pointer, self.index, self.place)
        size = pointee_bytes(self.pointer.type)
        lanes = range(0, max(1, self.ev.nest.lanes) * size, size) if address.offsets is None else address.offsets
        for line in sorted({offset // memory.LINE for offset in lanes}):
            f.prefetch(f.gep(address.base, line * memory.LINE), locality=_SECOND_CACHE)
