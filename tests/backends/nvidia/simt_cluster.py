"""Clusters of simulated blocks: each is an agent that runs until it waits for the others, in an order of the test.

A block may send to the shared memory of another once it knows that this runs, and that it has read what was there; the
other may look when it has waited for the sender's arrival. Both are known by numbers: the n-th wait ends when every
block has arrived n times. An access that no wait orders after a conflicting one of another block is a race, and so is
memory of a block that may be gone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.backends.nvidia import simt_ops as ops
from tests.backends.nvidia.simt_intrinsics import intrinsic
from tests.backends.nvidia.simt_memory import SimtError
from tests.backends.nvidia.simt_ptx import Statement, ptx, sends
from tests.backends.nvidia.simt_text import Inst, Ty

Array = np.ndarray
Machine = Any  # simt.Machine
_WINDOW = 24  # bits of an address within a block's window


class Cluster:
    """Blocks that run side by side.

    Args:
        machines: the blocks, by rank.
        order: ranks in the order in which blocks that can go on do so.
    """

    def __init__(self, machines: Sequence[Machine], order: Sequence[int]) -> None:
        self.machines, self.order = machines, order
        self.arrived, self.waited = ([0] * len(machines) for _ in range(2))
        self._done, self._quiet = ([False] * len(machines) for _ in range(2))
        self._turn: int | None = None
        self._change = threading.Condition()
        self._failure: BaseException | None = None
        sizes = [machine.shared.data.size for machine in machines]
        self._touched = [np.zeros(size, np.int64) for size in sizes]  # arrivals of the owner when it last looked
        self._sent = [np.full(size, -1) for size in sizes]  # arrivals of the sender when it wrote
        for rank, machine in enumerate(machines):
            machine.cluster, machine.rank = self, rank
            machine.registers["cluster.ctarank"] = np.array([rank], np.uint32)
            machine.shared.watch = lambda places, rank=rank: self._looks(rank, places)

    # -- running -----------------------------------------------------------------------------------------

    def run(self, body: Callable[[Machine], None]) -> None:
        """Run `body` on every block.

        Raises:
            SimtError: a race, or all wait for each other.
        """
        threads = [threading.Thread(target=self._agent, args=(rank, body)) for rank in range(len(self.machines))]
        for thread in threads:
            thread.start()
        while not all(self._done):
            ready = [rank for rank in self.order if not self._done[rank] and self._may_go_on(rank)]
            if not ready and self._failure is None:
                waits = ", ".join(
                    f"block {r} for arrival {self.waited[r] + 1}" for r in self.order if not self._done[r]
                )
                self._failure = SimtError(f"the blocks of a cluster wait for each other: {waits}")
            for rank in [r for r in self.order if not self._done[r]] if self._failure else ready[:1]:
                self._hand_over(rank)
        for thread in threads:
            thread.join()
        if self._failure is not None:
            raise self._failure
        self._check_end()

    def _hand_over(self, rank: int) -> None:
        with self._change:
            self._turn = rank
            self._change.notify_all()
            self._change.wait_for(lambda: self._turn is None)

    def _agent(self, rank: int, body: Callable[[Machine], None]) -> None:
        try:
            self._await_turn(rank)
            body(self.machines[rank])
        except BaseException as error:
            self._failure = self._failure or error
        self._done[rank] = True
        with self._change:
            self._turn = None
            self._change.notify_all()

    def _await_turn(self, rank: int) -> None:
        with self._change:
            self._change.wait_for(lambda: self._turn == rank)
        if self._failure is not None:
            raise SimtError("another block failed")

    def _may_go_on(self, rank: int) -> bool:
        """Whether all have arrived that a block waits for; before its first instruction it waits for nobody."""
        machine = self.machines[rank]
        return not machine.parked or min(self.arrived) > self.waited[rank]

    # -- what blocks do ------------------------------------------------------------------------------------

    def arrive(self, machine: Machine) -> None:
        """barrier.cluster.arrive."""
        _check_whole(machine)
        rank = machine.rank
        if self.arrived[rank] != self.waited[rank]:
            raise SimtError(f"block {rank} arrives twice without waiting")
        self.arrived[rank] += 1
        self._quiet[rank] = True

    def wait(self, machine: Machine) -> None:
        """barrier.cluster.wait."""
        _check_whole(machine)
        rank = machine.rank
        if self.arrived[rank] == self.waited[rank]:
            raise SimtError(f"block {rank} waits without having arrived")
        machine.parked = True
        with self._change:
            self._turn = None
            self._change.notify_all()
        self._await_turn(rank)
        machine.parked = False
        self.waited[rank] += 1
        if self._quiet[rank]:  # else what was done since the arrival is ordered by nothing
            machine.shared.barrier()

    def send(self, machine: Machine, addresses: Array, values: Array) -> None:
        """Bytes (access, size) to mapped addresses."""
        own, owners = machine.rank, (addresses >> _WINDOW) - 1
        places = (addresses & (1 << _WINDOW) - 1)[:, None] + np.arange(values.shape[1])
        for rank in np.unique(owners):
            here = places[owners == rank]
            if rank < 0 or rank >= len(self.machines) or here.max() >= self._sent[rank].size:
                raise SimtError(f"block {own} sends to no memory of a block: {rank}, byte {here.max()}")
            late = np.maximum(self._touched[rank][here], self._sent[rank][here])
            if (self.waited[own] < late + 1).any():
                raise SimtError(f"race: block {own} sends to block {rank}, which may not run or have read yet")
            self._sent[rank][here] = self.arrived[own]
            self.machines[rank].shared.data[here] = values[owners == rank]

    def _looks(self, rank: int, places: Array) -> None:
        if (self._sent[rank][places] + 1 > self.waited[rank]).any():
            raise SimtError(f"race: block {rank} looks at what another block may be sending")
        self._touched[rank][places] = self.arrived[rank]
        self._quiet[rank] = False

    def _check_end(self) -> None:
        for rank, sent in enumerate(self._sent):
            if self.arrived[rank] != self.waited[rank]:
                raise SimtError(f"block {rank} ends between arriving and waiting")
            if sent.max(initial=-1) + 1 > self.waited[rank]:
                raise SimtError(f"block {rank} may have ended when another sends to it")


def _check_whole(machine: Machine) -> None:
    if not (machine.mask | machine.exited).all():
        raise SimtError("a barrier of the cluster is reached by a part of the block")


@intrinsic("llvm.nvvm.barrier.cluster.arrive.aligned", "llvm.nvvm.barrier.cluster.arrive.relaxed.aligned")
def _arrive(m: Machine, inst: Inst) -> None:
    m.cluster.arrive(m)


@intrinsic("llvm.nvvm.barrier.cluster.wait.aligned")
def _wait(m: Machine, inst: Inst) -> None:
    m.cluster.wait(m)


@ptx("mapa")
def _mapa(s: Statement) -> None:
    u32 = Ty("i32")
    address, rank = s.arg(1, u32), s.arg(2, u32)
    s.result(address + (rank + np.uint32(1) << np.uint32(_WINDOW)), u32)


@sends
def _send(s: Statement, t: Ty, value: Array) -> None:
    """st.shared::cluster."""
    m = s.machine
    m.cluster.send(m, m.active(s.address(s.operands[0])).astype(np.int64), ops.bits_of(t, m.active(value)))
