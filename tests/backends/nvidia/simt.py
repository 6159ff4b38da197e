"""A GPU in numpy: runs the LLVM text that the NVIDIA emitters write, thread by thread, on a machine without a GPU.

All threads of a block advance in lockstep as arrays; where they diverge, the block that stands first in the text runs
first with the others masked off, which brings them together again after ifs and loops. Races in shared memory,
divergent barriers and shuffles, misaligned and out-of-bounds accesses raise `SimtError`. Blocks of the grid run one
after another.

    result = run_kernel(llvm_text, "kernel", grid=(4,), num_warps=4, args=[x, y, 1000], shared_bytes=2048)

Arrays stand for pointers and are changed in place. Intrinsics of NVPTX are in `simt_intrinsics`, instructions of inline
PTX in `simt_ptx`; both are tables that a test may extend.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.backends.nvidia import simt_ops as ops
from tests.backends.nvidia.simt_cluster import Cluster
from tests.backends.nvidia.simt_intrinsics import INTRINSICS
from tests.backends.nvidia.simt_memory import GLOBAL_BASE, SHARED_WINDOW, GlobalMemory, SharedMemory, SimtError
from tests.backends.nvidia.simt_ptx import run_ptx
from tests.backends.nvidia.simt_roles import Agents, Clocks
from tests.backends.nvidia.simt_text import Function, Global, Inst, Local, Module, Offset, Ty, noise, parse_module

Array = np.ndarray


@dataclass
class Result:
    """What a run did.

    Args:
        counts: how often each opcode, intrinsic and PTX instruction ran, in units of whole instructions.
        wavefronts: memory cycles of shared memory (with `count_wavefronts`).
        printed: lines that the kernel printed.
    """

    counts: collections.Counter = field(default_factory=collections.Counter)
    wavefronts: int = 0
    printed: list[str] = field(default_factory=list)


def run_kernel(
    llvm_text: str,
    symbol: str,
    grid: Sequence[int],
    num_warps: int,
    args: Sequence[Any],
    shared_bytes: int = 0,
    *,
    count_wavefronts: bool = False,
    cluster: int = 1,
    order: Sequence[int] = (),
    agents: Callable[[], Agents] | None = None,
) -> Result:
    """Run all programs of a grid.

    Args:
        llvm_text: a module.
        symbol: the kernel.
        grid: programs along x, y, z: blocks, or clusters of them.
        num_warps: warps of a block.
        args: one per parameter: contiguous numpy arrays for pointers (None for null), numbers for scalars; functions
            that make an array of the addresses and numbers before it.
        shared_bytes: size of `@shared`.
        count_wavefronts: count the memory cycles of shared memory.
        cluster: blocks of a program.
        order: their ranks in the order in which those that can go on do so.
        agents: of a block whose warps go their own ways; all in lockstep by default.
    """
    module = parse_module(llvm_text)
    memory, result = GlobalMemory(), Result()
    symbols = {
        name: memory.add(np.frombuffer(raw, np.uint8)) for name, (_, raw, space) in module.globals.items() if space != 3
    }
    function = module.functions[symbol]
    values, mapped = [], []
    for (t, name), arg in zip(function.params, args, strict=True):
        arg = arg([int(v[0]) for v in values]) if callable(arg) else arg
        if isinstance(arg, np.ndarray):
            assert arg.flags.c_contiguous, "only contiguous arrays have an address"
            mapped.append((memory.add(arg), arg))
            values.append(np.array([mapped[-1][0]], np.uint64))
        else:
            values.append(_literal(t, arg))
    memory.start()
    sizes = (*grid, 1, 1, 1)[:3]
    for z, y, x in np.ndindex(*sizes[::-1]):
        blocks = [
            Machine(module, memory, symbols, (x, y, z), sizes, num_warps, shared_bytes, result, count_wavefronts)
            for _ in range(cluster)
        ]
        if agents is not None:
            for block in blocks:
                block.divide(agents())
        _run_program(blocks, lambda block: block.finish(function, values), order)
        result.wavefronts += sum(block.shared.wavefronts for block in blocks)
    for address, array in mapped:
        if array.flags.writeable:
            array.view(np.uint8).reshape(-1)[:] = memory.contents(address, array.nbytes)
    return result


def _run_program(blocks: Sequence[Machine], body: Callable[[Machine], None], order: Sequence[int]) -> None:
    if len(blocks) > 1:
        Cluster(blocks, order or range(len(blocks))).run(body)
    else:
        body(blocks[0])


def _literal(t: Ty, arg: Any) -> Array:
    if t.is_float:
        return ops.rounded(t, np.array([arg], np.float64))
    return np.array([int(arg or 0) & (1 << t.bits) - 1], object).astype(t.dtype)


class Machine:
    """One block of threads; `block` and `grid` count programs, which have the numbers that clusters have.

    Handlers of intrinsics and PTX see: `mask` (threads that run), `threads` (their numbers), `full`, `shared`,
    `memory`, `load`/`store`, `whole_warps`, `agents`, `result`.
    """

    def __init__(
        self,
        module: Module,
        memory: GlobalMemory,
        symbols: dict[str, int],
        block: tuple[int, int, int],
        grid: tuple[int, int, int],
        num_warps: int,
        shared_bytes: int,
        result: Result,
        counts: bool,
    ) -> None:
        self.module, self.memory, self.symbols, self.result = module, memory, symbols, result
        self.count = 32 * num_warps
        self.shared = SharedMemory(shared_bytes, self.count, counts)
        self.local = np.zeros((self.count, 0), np.uint8)
        self.everyone = np.ones(self.count, bool)
        self.exited = np.zeros(self.count, bool)
        self.mask, self.threads, self.full = self.everyone, np.arange(self.count), True
        self.pending: list[list[Callable[[], None]]] = [[]]  # copies in flight, by group; the last one is open
        self.ends: list[Callable[[Machine], None]] = []  # what is done when the block has ended
        self.cluster: Any = None
        self.rank, self.parked = 0, False
        numbers = {"ctaid": block, "nctaid": grid, "ntid": (self.count, 1, 1), "clusterid": block, "nclusterid": grid}
        self.registers = {
            f"{n}.{d}": np.array([v[i]], np.uint32) for n, v in numbers.items() for i, d in enumerate("xyz")
        }
        tid = np.arange(self.count, dtype=np.uint32)
        self.registers |= {"tid.x": tid, "laneid": tid % 32, "tid.y": tid * 0, "tid.z": tid * 0, "warpid": tid // 32}
        self.registers |= {"smid": np.array([0], np.uint32), "clock": np.array([0], np.uint32)}
        self.frame: dict[str, Any] = {}
        self.depth = 0
        self.agents = Agents([num_warps])

    def divide(self, agents: Agents) -> None:
        """Let warps go their own ways."""
        self.agents = agents
        self.shared.clocks = Clocks(self.count // 32, self.shared.data.size)

    # -- running -----------------------------------------------------------------------------------------

    def finish(self, function: Function, args: Sequence[Any]) -> None:
        """Run a kernel to its end."""
        self.run(function, args, self.everyone)
        for end in self.ends:
            end(self)

    def run(self, function: Function, args: Sequence[Any], mask: Array) -> Any:
        """Run a function for the threads of `mask`; gives its result."""
        caller, outer = self.frame, (self.mask, self.threads, self.full)
        self.depth += 1
        self.frame = {name: arg for (_, name), arg in zip(function.params, args, strict=True)}
        labels = list(function.blocks)
        numbers = {label: i for i, label in enumerate(labels)}
        at, before = np.where(mask, 0, -1), np.full(self.count, -1)
        value: Any = None
        while (at >= 0).any():
            runs = self.agents.next(at)
            number = int(at[runs][0])
            self._activate(runs)
            for inst in self._phis(function.blocks[labels[number]], before, numbers):
                if inst.op in ("br", "switch"):
                    before[self.mask] = number
                    at[self.mask] = self._targets(inst, numbers)[self.mask]
                elif inst.op == "ret":
                    if inst.args:
                        value = self._merge(value, self.operand(*inst.args[0]))
                    at[self.mask] = -1
                    if self.depth == 1:
                        self.exited |= self.mask
                else:
                    self.step(inst)
        self.frame = caller
        self.depth -= 1
        self.mask, self.threads, self.full = outer
        return value

    def _activate(self, mask: Array) -> None:
        self.full = bool(mask.all())
        self.mask = self.everyone if self.full else mask
        self.threads = np.nonzero(mask)[0]

    def _phis(self, block: list[Inst], before: Array, numbers: dict[str, int]) -> list[Inst]:
        """Run the phis at the start of a block, all at once; gives the rest."""
        made, rest = [], 0
        while block[rest].op == "phi":
            inst = block[rest]
            value = None
            for (t, operand), label in zip(inst.args, inst.extra["labels"]):
                here = self.mask & (before == numbers[label])
                if here.any():
                    value = self._where(here, self.operand(t, operand), value)
            assert value is not None, "no predecessor of a phi was run"
            made.append((inst.result, value))
            rest += 1
        for name, value in made:
            self.define(name, value)
        return block[rest:]

    def _targets(self, inst: Inst, numbers: dict[str, int]) -> Array:
        labels = [numbers[label] for label in inst.extra["labels"]]
        if not inst.args:
            return np.full(self.count, labels[0])
        value = np.broadcast_to(self.operand(*inst.args[0]), self.count)
        if inst.op == "br":
            return np.where(value, labels[0], labels[1])
        result = np.full(self.count, labels[0])
        for case, label in zip(inst.extra["cases"], labels[1:]):
            result[value == case] = label
        return result

    # -- values ------------------------------------------------------------------------------------------

    def operand(self, t: Ty, operand: Any) -> Any:
        """The value of an operand."""
        if isinstance(operand, Local):
            return self.frame[operand.name]
        if isinstance(operand, Global):
            if operand.name in self.symbols:
                return np.array([self.symbols[operand.name]], np.uint64)
            assert operand.name == "shared", f"@{operand.name} is not laid out"
            return np.array([0], np.uint64)
        if isinstance(operand, Offset):
            return self.operand(t, operand.base) + np.array([operand.bytes]).astype(np.uint64)
        return operand

    def define(self, name: str, value: Any) -> None:
        """Give a name its value in the threads that run."""
        self.frame[name] = value if self.full else self._where(self.mask, value, self.frame.get(name))

    def _merge(self, old: Any, new: Any) -> Any:
        return new if self.full else self._where(self.mask, new, old)

    def _where(self, mask: Array, new: Any, old: Any) -> Any:
        if old is None:
            return new
        if isinstance(new, tuple):
            return tuple(self._where(mask, a, b) for a, b in zip(new, old))
        return np.where(mask[:, None] if max(new.ndim, old.ndim) == 2 else mask, new, old)

    def spread(self, x: Array) -> Array:
        """A value with one entry (row) for each thread."""
        return np.broadcast_to(x, (self.count, *x.shape[1:]))

    def active(self, x: Array) -> Array:
        """The entries (rows) of the threads that run."""
        return self.spread(x)[self.mask]

    def inactive_as(self, t: Ty, rows: Array) -> Array:
        """Rows of the running threads as a value of all; the others hold noise."""
        if self.full:
            return rows
        value = np.array(np.broadcast_to(noise(t), (self.count, *rows.shape[1:])), dtype=rows.dtype)
        value[self.mask] = rows
        return value

    def whole_warps(self) -> Array:
        """The warps that run, all lanes of each."""
        lanes = self.mask.reshape(-1, 32)
        if (lanes.any(axis=1) != lanes.all(axis=1)).any():
            raise SimtError("a warp-wide instruction is run by a part of a warp")
        return np.nonzero(lanes.any(axis=1))[0]

    # -- instructions ------------------------------------------------------------------------------------

    def step(self, inst: Inst) -> None:
        """Run one instruction that is no branch."""
        self.result.counts[inst.extra.get("callee", inst.op)] += 1
        try:
            with np.errstate(all="ignore"):
                value = self._compute(inst, [self.operand(t, operand) for t, operand in inst.args])
        except Exception as error:
            error.add_note(f"at: {inst.text}")
            raise
        if inst.result:
            self.define(inst.result, value)

    def _compute(self, inst: Inst, values: list[Any]) -> Any:
        run = _STEPS.get(inst.op)
        if run is not None:
            return run(self, inst, *values)
        if inst.op in ops.BINARY:
            return ops.BINARY[inst.op](inst.type, *values)
        if inst.op in _CASTS:
            return ops.convert(inst.op, inst.args[0][0], inst.type, values[0])
        raise NotImplementedError(f"the simulator does not know {inst.op}")

    # -- memory ------------------------------------------------------------------------------------------

    def load(self, t: Ty, address: Array, align: int = 1, space: int = 0) -> Array:
        """A value of type `t` from memory; generic addresses may point to shared memory."""
        return self.inactive_as(t, self._load_rows(t, self.active(address), self.threads, align, space))

    def store(self, t: Ty, value: Array, address: Array, align: int = 1, space: int = 0) -> None:
        """A value to memory."""
        self._store_rows(t, self.active(value), self.active(address), self.threads, align, space)

    def load_where(
        self, t: Ty, condition: Array, address: Array, other: Array, align: int = 1, space: int = 0
    ) -> Array:
        """`load` in the threads where `condition` holds, elsewhere `other`."""
        chosen = self.mask & self.spread(condition)
        value = np.array(self.spread(other))
        threads = np.nonzero(chosen)[0]
        value[chosen] = self._load_rows(t, self.spread(address)[chosen], threads, align, space)
        return value

    def store_where(
        self, t: Ty, condition: Array, value: Array, address: Array, align: int = 1, space: int = 0
    ) -> None:
        """`store` in the threads where `condition` holds."""
        chosen = self.mask & self.spread(condition)
        threads = np.nonzero(chosen)[0]
        self._store_rows(t, self.spread(value)[chosen], self.spread(address)[chosen], threads, align, space)

    def _load_rows(self, t: Ty, addresses: Array, threads: Array, align: int, space: int) -> Array:
        _check_alignment(addresses, align)
        raw = np.zeros((len(addresses), t.bytes), np.uint8)
        for part, place in self._spaces(addresses, space):
            rows = np.nonzero(part)[0]
            if place == "shared":
                raw[rows] = self.shared.load(threads[rows], _window(addresses[rows]), t.bytes)
            elif place == "global":
                raw[rows] = self.memory.load(addresses[rows], t.bytes)
            else:
                raw[rows] = self.local[
                    threads[rows][:, None], addresses[rows].astype(int)[:, None] - 64 + np.arange(t.bytes)
                ]
        return ops.from_bits(t, raw)

    def _store_rows(self, t: Ty, values: Array, addresses: Array, threads: Array, align: int, space: int) -> None:
        _check_alignment(addresses, align)
        raw = ops.bits_of(t, values)
        for part, place in self._spaces(addresses, space):
            rows = np.nonzero(part)[0]
            if place == "shared":
                self.shared.store(threads[rows], _window(addresses[rows]), raw[rows])
            elif place == "global":
                self.memory.store(addresses[rows], raw[rows])
            else:
                self.local[threads[rows][:, None], addresses[rows].astype(int)[:, None] - 64 + np.arange(t.bytes)] = (
                    raw[rows]
                )

    def _spaces(self, addresses: Array, space: int) -> list[tuple[Array, str]]:
        if space == 3:
            return [(np.ones(len(addresses), bool), "shared")]
        shared, private = (addresses >= SHARED_WINDOW) & (addresses < GLOBAL_BASE), addresses < SHARED_WINDOW
        parts = [(shared, "shared"), (private, "local"), (~shared & ~private, "global")]
        return [(part, place) for part, place in parts if part.any()]


def _window(addresses: Array) -> Array:
    return np.where(addresses >= SHARED_WINDOW, addresses - np.uint64(SHARED_WINDOW), addresses)


def _check_alignment(addresses: Array, align: int) -> None:
    wrong = addresses.astype(np.int64) % align != 0
    if wrong.any():
        raise SimtError(f"address {int(addresses[wrong][0]):#x} is not aligned to {align} bytes")


# --- instructions that need the machine ---------------------------------------------------------------------

_CASTS = frozenset("trunc zext sext bitcast fptrunc fpext fptosi fptoui sitofp uitofp ptrtoint inttoptr".split())


def _columns(t: Ty, x: Array) -> Array:
    return x if t.lanes or x.ndim == 2 else x[:, None]


def _address(m: Machine, inst: Inst, base: Array, *indices: Array) -> Array:
    elem, total = inst.extra["elem"], base
    for i, index in enumerate(indices):
        if i:
            elem = elem.parts[0]
        t = inst.args[1 + i][0]
        step = ops.signed(t, index).astype(np.int64) * elem.bytes
        if inst.type.lanes:
            total, step = _columns(Ty("ptr"), total), _columns(t, step)
        total = total + step.astype(np.uint64)
    return total


def _alloca(m: Machine, inst: Inst) -> Array:
    at = 64 + m.local.shape[1]  # so that no address is null
    size = -(-inst.extra["bytes"] // 64) * 64
    m.local = np.concatenate([m.local, np.full((m.count, size), 0xDB, np.uint8)], axis=1)
    return np.array([at], np.uint64)


def _select(m: Machine, inst: Inst, condition: Array, a: Any, b: Any) -> Any:
    if isinstance(a, tuple):
        return tuple(np.where(condition, x, y) for x, y in zip(a, b))
    if condition.ndim < max(a.ndim, b.ndim):
        condition = condition[:, None]
    return np.where(condition, a, b)


def _extract(m: Machine, inst: Inst, vector: Array, lane: Array) -> Array:
    if lane.size == 1:
        return vector[:, int(lane[0])]
    return np.take_along_axis(m.spread(vector), m.spread(lane).astype(int)[:, None], axis=1)[:, 0]


def _insert(m: Machine, inst: Inst, vector: Array, value: Array, lane: Array) -> Array:
    rows = np.broadcast_shapes(vector.shape[:1], value.shape, lane.shape)[0]
    result = np.array(np.broadcast_to(vector, (rows, vector.shape[1])))
    result[np.arange(rows), np.broadcast_to(lane.astype(int), rows)] = value
    return result


def _shuffle_lanes(m: Machine, inst: Inst, a: Array, b: Array, indices: Array) -> Array:
    rows = max(len(a), len(b))
    both = np.concatenate([np.broadcast_to(x, (rows, x.shape[1])) for x in (a, b)], axis=1)
    return both[:, np.minimum(indices[0].astype(int), both.shape[1] - 1)]


def _address_space(m: Machine, inst: Inst, address: Array) -> Array:
    source, to = inst.args[0][0].space, inst.type.space
    if source == 3 and to == 0:
        return address + np.uint64(SHARED_WINDOW)
    return _window(address) if to == 3 else address


def _call(m: Machine, inst: Inst, *args: Any) -> Any:
    name = inst.extra["callee"]
    if name in m.module.functions:
        return m.run(m.module.functions[name], args, m.mask)
    types = [t for t, _ in inst.args]
    if name in INTRINSICS:
        return INTRINSICS[name](m, inst, *args)
    if name.startswith("llvm.nvvm.read.ptx.sreg."):
        return m.registers[name.removeprefix("llvm.nvvm.read.ptx.sreg.")]
    if name.startswith("llvm."):
        parts = name.removeprefix("llvm.").split(".")
        if parts[0] in ops.INTRINSICS:
            return ops.INTRINSICS[parts[0]](types[0], *args)
        if parts[1:3] == ["with", "overflow"]:
            return ops.overflow(parts[0], types[0], *args)
        if parts[:2] in (["fptosi", "sat"], ["fptoui", "sat"]):
            return ops.saturate(types[0], inst.type, parts[0] == "fptosi", args[0])
        if parts[0] in ("assume", "lifetime", "dbg", "prefetch", "experimental"):
            return None
    raise NotImplementedError(f"the simulator does not know {name}")


_STEPS: dict[str, Callable[..., Any]] = {
    "icmp": lambda m, inst, a, b: ops.icmp(inst.extra["predicate"], inst.type, a, b),
    "fcmp": lambda m, inst, a, b: ops.fcmp(inst.extra["predicate"], inst.type, a, b),
    "fneg": lambda m, inst, a: ops.from_bits(inst.type, _flip_sign(inst.type, ops.bits_of(inst.type, a))),
    "select": _select, "getelementptr": _address, "alloca": _alloca, "extractelement": _extract,
    "insertelement": _insert, "shufflevector": _shuffle_lanes, "addrspacecast": _address_space, "call": _call,
    "asm": run_ptx, "freeze": lambda m, inst, a: a, "fence": lambda m, inst: None,
    "load": lambda m, inst, a: m.load(inst.type, a, inst.extra["align"], inst.args[0][0].space),
    "store": lambda m, inst, v, a: m.store(inst.type, v, a, inst.extra["align"], inst.args[1][0].space),
    "extractvalue": lambda m, inst, a: a[inst.extra["index"]],
    "insertvalue": lambda m, inst, a, v: (*a[: inst.extra["index"]], v, *a[inst.extra["index"] + 1 :]),
}  # fmt: skip


def _flip_sign(t: Ty, raw: Array) -> Array:
    size = t.bits // 8
    raw = raw.copy()
    raw[:, size - 1 :: size] ^= 0x80
    return raw
