"""Structured control flow: counted loops with carried values, while loops, branches with results.

A counted loop is emitted as

    before:  br %head
    head:    %i = phi [lo, before], [%i.next, %latch]; carried phis; br (%i < hi), %body, %exit
    body:    ... %i.next = %i + step; br %head
    exit:

Phis are reserved lines that the end of the loop fills in. A loop that runs exactly once by its literal bounds emits
its body alone, one that never runs emits nothing that can be reached. `if_else` joins its results with phis; literal
conditions emit one side only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tilewright.backends.llvm.instructions import Operand
from tilewright.backends.llvm.masked_memory import MemoryOps
from tilewright.backends.llvm.types import I64, T, V, const


class Loop:
    """A counted loop under construction.

    Inside the `with`: `index`, `values` (the carried values of this iteration); call `next(...)` at the end of the
    body. After it: `results` (the carried values when the loop ended).
    """

    def __init__(self, index: V, values: list[V]) -> None:
        self.index = index
        self.values = values
        self.results: list[V] = values
        self._next: list[V] = values

    def next(self, *values: V) -> None:
        """Give the carried values of the next iteration."""
        if len(values) != len(self.values):
            raise TypeError(f"the loop carries {len(self.values)} values, not {len(values)}")
        self._next = list(values)


class ControlFlow(MemoryOps):
    """Blocks, branches and the structured forms built on them."""

    _block: str
    _blocks: int

    # -- blocks ----------------------------------------------------------------------------------

    @property
    def block(self) -> str:
        """Label of the current block."""
        return self._block

    def label(self, hint: str) -> str:
        """A fresh label; it starts nothing yet."""
        self._blocks += 1
        return f"{hint}.{self._blocks}"

    def start(self, label: str) -> None:
        """Begin the block `label`; the previous one must have been terminated."""
        self._lines.append(f"{label}:")
        self._block = label

    def br(self, label: str, meta: str = "") -> None:
        """Jump; `meta` such as `", !llvm.loop !5"`."""
        self.effect(f"br label %{label}{meta}")

    def cond_br(self, cond: V, then: str, otherwise: str, meta: str = "") -> None:
        """Branch on a scalar `i1`; `meta` such as `", !prof !5"`."""
        self.effect(f"br i1 {cond.ref}, label %{then}, label %{otherwise}{meta}")

    def ret(self, value: V | None = None) -> None:
        """Return from the function."""
        self.effect("ret void" if value is None else f"ret {value.typed}")

    def phi(self, t: T, incoming: Sequence[tuple[V, str]]) -> V:
        """Join values of the blocks that jump here; must come first in a block."""
        return self.emit(t, f"phi {t.text} {_incoming(incoming)}")

    # -- loops ---------------------------------------------------------------------------------------

    @contextmanager
    def loop(
        self, lo: Operand, hi: Operand, step: Operand = 1, init: Sequence[V] = (), *, unroll: bool = True
    ) -> Iterator[Loop]:
        """`for (i = lo; i < hi; i += step)`, signed, with carried values.

        Args:
            lo, hi, step: of one integer type (Python numbers: that of the others, else `i64`); `step` positive.
                `hi + step` must not overflow.
            init: carried values before the first iteration.
            unroll: False forbids LLVM to unroll.
        """
        t = next((v.type for v in (lo, hi, step) if isinstance(v, V)), I64)
        lo, hi, step = (v if isinstance(v, V) else const(t, v) for v in (lo, hi, step))
        if _runs_once(lo, hi, step):
            single = Loop(lo, list(init))
            yield single
            single.results = single._next
            return
        head, body, end = self.label("head"), self.label("body"), self.label("exit")
        before = self.block
        self.br(head)
        self.start(head)
        index, slot = self._reserve(t)
        carried = [self._reserve(v.type) for v in init]
        self.cond_br(self.icmp("slt", index, hi), body, end)
        self.start(body)
        loop = Loop(index, [v for v, _ in carried])
        yield loop
        following = self.add(index, step, "nsw")
        latch = self.block
        self.br(head, "" if unroll else f", !llvm.loop {self.module.no_unroll()}")
        self._fill(slot, index, [(lo, before), (following, latch)])
        for (value, at), first, later in zip(carried, init, loop._next, strict=True):
            self._fill(at, value, [(first, before), (later, latch)])
        self.start(end)

    def while_(
        self, init: Sequence[V], cond: Callable[[list[V]], V], body: Callable[[list[V]], Sequence[V]]
    ) -> list[V]:
        """`while cond(values): values = body(values)`; gives the values for which `cond` was false.

        `cond` may emit code; its values other than the carried ones are not visible to `body`'s caller.
        """
        head, inside, end = self.label("while"), self.label("do"), self.label("done")
        before = self.block
        self.br(head)
        self.start(head)
        carried = [self._reserve(v.type) for v in init]
        values = [v for v, _ in carried]
        self.cond_br(cond(values), inside, end)
        self.start(inside)
        later = body(values)
        latch = self.block
        self.br(head)
        for (value, at), first, last in zip(carried, init, later, strict=True):
            self._fill(at, value, [(first, before), (last, latch)])
        self.start(end)
        return values

    # -- branches ------------------------------------------------------------------------------------

    @contextmanager
    def if_(self, cond: V) -> Iterator[None]:
        """Run the body of the `with` only where the scalar `cond` holds."""
        if cond.const == 1:
            yield
            return
        then, end = self.label("then"), self.label("endif")
        self.cond_br(cond, then, end)
        self.start(then)
        yield
        self.br(end)
        self.start(end)

    def if_else(
        self,
        cond: V,
        then: Callable[[], Sequence[V] | None],
        otherwise: Callable[[], Sequence[V] | None],
        *,
        likely: bool = False,
    ) -> list[V]:
        """Run one of two emitters; gives their results joined (both must give the same number and types).

        Args:
            cond: a scalar `i1`.
            then, otherwise: what runs where it holds, and where it does not.
            likely: whether it nearly always holds.
        """
        if cond.const is not None:
            return list((then if cond.const else otherwise)() or ())
        yes, no, end = self.label("then"), self.label("else"), self.label("endif")
        weights = '!{!"branch_weights", i32 1048575, i32 1}'
        self.cond_br(cond, yes, no, f", !prof {self.module.metadata(weights)}" if likely else "")
        self.start(yes)
        left, from_left = list(then() or ()), self.block
        self.br(end)
        self.start(no)
        right, from_right = list(otherwise() or ()), self.block
        self.br(end)
        self.start(end)
        return [self.phi(a.type, [(a, from_left), (b, from_right)]) for a, b in zip(left, right, strict=True)]

    # -- reserved phis -------------------------------------------------------------------------------

    def _reserve(self, t: T) -> tuple[V, int]:
        """A value whose phi is written later, and the line kept for it."""
        self._count = n = self._count + 1
        self._lines.append("")
        return V(t, f"%v{n}"), len(self._lines) - 1

    def _fill(self, line: int, value: V, incoming: Sequence[tuple[V, str]]) -> None:
        self._lines[line] = f"  {value.ref} = phi {value.type.text} {_incoming(incoming)}"


def _runs_once(lo: V, hi: V, step: V) -> bool:
    if lo.const is None or hi.const is None or step.const is None:
        return False
    return lo.const < hi.const <= lo.const + step.const


def _incoming(pairs: Sequence[tuple[V, str]]) -> str:
    return ", ".join([f"[ {value.ref}, %{label} ]" for value, label in pairs])
