"""Order by atomics: which of the accesses of other programs a program comes behind.

A program counts its releases; that count is its epoch. Programs run one after the other, so one row of what the running
program knows is enough, and a row for each place that atomics release to:

    order   header row: epoch, whether anything was acquired
            K, a row: of program p, how many of its releases the running program comes behind
            a row like K for each of `PLACES` places, by address; then a flag for each that somebody released to it

    acquire at A    K := max(K, row of A)
    release at A    epoch += 1;  row of A := max(row of A, K);  row of A[me] := epoch

    stamp = base + 64 * program + 4 * epoch + bits      an access is ordered if K[program] > its epoch
    W    +1 by an atomic, +2 by atomics of several programs      R    +1 others that are not ordered have read before

Of several programs only the last one is known, so a program that has acquired something is not told of the others.
Epochs stop at 15, and beyond `PLACES` and `MOST_WIDTH` places and programs share words: each takes more for ordered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from tilewright.analysis.homes import homes_of
from tilewright.analysis.waiting import waiting_looks
from tilewright.ir.effect_traits import is_atomic
from tilewright.ir.op import TileOp
from tilewright.ir.types import element_type, i32, i64, is_integer, tile_type
from tilewright.ir.values import is_tile
from tilewright.ir.walk import among, walk
from tilewright.ops.atomic import AtomicCASOp
from tilewright.ops.casts import PtrToIntOp
from tilewright.ops.creation import MakeRangeOp
from tilewright.ops.elementwise import AndIOp, MaxSIOp, MinSIOp, OrIOp
from tilewright.ops.elementwise_pointer import AddPtrOp
from tilewright.ops.function import FuncOp
from tilewright.ops.memory import LoadOp, is_volatile
from tilewright.passes.check_code import Code
from tilewright.passes.check_shadow import LOAD, STORE, NewSite, Words

UNIT = 64
"""Stamps of a program."""
PLACES, MOST_WIDTH, CHUNK = 1024, 4096, 256
_LAST_EPOCH = 15


def width_for(programs: int) -> int:
    """Words of a row, a power of two."""
    return min(max(CHUNK, 1 << (programs - 1).bit_length()), MOST_WIDTH)


def acquires(op: Operation) -> bool:
    """Whether an atomic may put its program behind others: somebody looks at what it found."""
    return _says(op, "acquire") and any(True for _ in op.results[0].uses)


def releases(op: Operation) -> bool:
    """Whether an atomic may put other programs behind its own."""
    return _says(op, "release")


def _says(op: Operation, half: str) -> bool:
    if not isinstance(op, TileOp) or not is_atomic(op) or (half == "acquire" and not op.results):
        return False
    words = op.attr_values()
    return words.get("sem") in (half, "acq_rel") and words.get("scope") != "cta"


def why_not_followed(kernel: FuncOp, *, shared: bool) -> str:
    """Why the order of a kernel's programs is not known from its atomics, or "".

    Args:
        kernel: the function.
        shared: arguments may share memory.
    """
    atomics = [op for op in walk(kernel) if is_atomic(op)]
    acquired = {home for op in atomics if acquires(op) for home in homes_of(op.operands[0])}
    for op in walk(kernel):
        if is_volatile(op):
            return "a volatile load may wait for another program"
    if any(among(waiting_looks(kernel), LoadOp)):
        return "a loop waits by loads that are no atomics"
    for op in atomics:
        if not is_tile(op.operands[0]):
            continue
        homes = homes_of(op.operands[0])
        if acquires(op) or (acquired and releases(op) and (shared or not homes or acquired & set(homes))):
            return "atomics of tiles order programs"
    return ""


def follows(kernel: FuncOp) -> bool:
    """Whether programs of a kernel may come behind others by its atomics."""
    return any(acquires(op) for op in walk(kernel))


@dataclass(frozen=True, slots=True)
class Order:
    """What the running program knows of others.

    Args:
        words: address of the words, see above.
        width: of a row, an i32.
        base: below it lies what was before this launch, an i32.
        me: number of the program, an i32.
    """

    words: SSAValue
    width: SSAValue
    base: SSAValue
    me: SSAValue

    def begin(self, code: Code) -> None:
        """A program starts: it has released nothing, and knows of nobody."""
        for word in range(2):
            code.store(_at(code, self.words, code.number(word, i32)), code.number(0, i32), None)
        known = self._row(code, 1)
        _for_chunks(code, self.width, lambda inner, at: inner.store(_at(inner, known, at), inner.number(0, i32), None))

    def stamp(self, code: Code) -> SSAValue:
        """Of an access that is made now."""
        epoch = code.op(MinSIOp, code.load(self.words, None, 0), code.number(_LAST_EPOCH, i32))
        program = code.add(self.base, code.mul(self.me, code.number(UNIT, i32)))
        return code.add(program, code.mul(epoch, code.number(4, i32)))

    def is_own(self, code: Code, found: SSAValue) -> SSAValue:
        """Whether a word is of the running program."""
        return code.compare("eq", code.half(code.sub(found, self.base), 6), self.me)

    def comes_behind(self, code: Code, found: SSAValue, several: int) -> SSAValue:
        """Whether the access that a word tells of is ordered before what the program does now.

        Args:
            code: writes in front of the access.
            found: words.
            several: bit of a word that stands for more programs than the one it names; 0 to leave it.
        """
        since = code.sub(found, self.base)
        program = code.half(since, 6)
        epoch = code.op(AndIOp, code.half(since, 2), code.number(_LAST_EPOCH, i32))
        place = code.op(AndIOp, program, code.sub(self.width, code.number(1, i32)))
        known = code.load(_at(code, self._row(code, 1), place), None, 0)
        fine = code.either(code.compare("eq", program, self.me), code.compare("sgt", known, epoch))
        if several:
            alone = code.compare("eq", _bits(code, found, several), code.number(0, i32))
            acquired = code.compare("ne", self._acquired(code), code.number(0, i32))
            fine = code.both(fine, code.either(alone, acquired))
        return code.either(code.compare("slt", found, self.base), fine)

    def follow(self, code: Code, op: Operation) -> None:
        """Behind an atomic of one element: what its program has come behind, and who may come behind it.

        Args:
            code: writes behind the atomic.
            op: the atomic.
        """
        address, known = op.operands[0], self._row(code, 1)
        done = getattr(op, "mask", None)
        number = code.cast(PtrToIntOp, address, i64)
        place = code.op(AndIOp, code.narrow(code.half(number, 2)), code.number(PLACES - 1, i32))
        start = code.mul(code.add(place, code.number(2, i32)), self.width)
        row = _at(code, self.words, start)
        flag = _at(code, self._row(code, PLACES + 2), place)
        if acquires(op):
            self._merge(code, known, row, done)
            found = code.op(OrIOp, self._acquired(code), code.load(flag, None, 0))
            code.store(_at(code, self.words, code.number(1, i32)), found, done)
        if not releases(op):
            return
        if isinstance(op, AtomicCASOp) and is_integer(element_type(op.results[0].type)):
            done = code.compare("eq", op.results[0], op.operands[1])  # what has not exchanged has released nothing
        self._merge(code, row, known, done)
        epoch = code.op(
            MinSIOp, code.add(code.load(self.words, None, 0), code.number(1, i32)), code.number(_LAST_EPOCH + 1, i32)
        )
        code.store(self.words, epoch, done)
        mine = code.op(AndIOp, self.me, code.sub(self.width, code.number(1, i32)))
        code.store(_at(code, row, mine), epoch, done)
        code.store(flag, code.number(1, i32), done)

    def _merge(self, code: Code, into: SSAValue, other: SSAValue, done: SSAValue | None) -> None:
        end = self.width if done is None else code.choose(done, self.width, code.number(0, i32))

        def chunk(inner: Code, at: SSAValue) -> None:
            both = [inner.load(_at(inner, row, at), None, 0) for row in (into, other)]
            inner.store(_at(inner, into, at), inner.op(MaxSIOp, *both), None)

        _for_chunks(code, end, chunk)

    def _row(self, code: Code, row: int) -> SSAValue:
        return _at(code, self.words, code.mul(self.width, code.number(row, i32)))

    def _acquired(self, code: Code) -> SSAValue:
        return code.load(_at(code, self.words, code.number(1, i32)), None, 0)


def check_load(code: Code, words: Words, order: Order, new_site: NewSite) -> None:
    """A load of an argument that the kernel writes: it comes behind the last writer; and it is remembered."""
    found = code.load(words.writer, words.mask, 1)
    code.check(new_site("race", STORE), order.comes_behind(code, found, 2), [code.wide(found)])
    assert words.reader is not None
    before = code.load(words.reader, words.mask, 0)
    one = code.number(1, before.type)
    others = code.choose(order.comes_behind(code, before, 0), _bits(code, before, 1), one)
    others = code.choose(code.compare("slt", before, order.base), code.number(0, before.type), others)
    code.store(words.reader, code.op(OrIOp, order.stamp(code), others), words.mask)


def check_change(code: Code, words: Words, order: Order, new_site: NewSite, *, atomic: bool) -> None:
    """A store or an atomic: it comes behind those who read or wrote, but for atomics by atomics."""
    if words.reader is not None:
        before = code.load(words.reader, words.mask, 0)
        code.check(new_site("race", LOAD), order.comes_behind(code, before, 1), [code.wide(before)])
    found = code.load(words.writer, words.mask, 1)
    fine, now = order.comes_behind(code, found, 2), order.stamp(code)
    if not atomic:
        code.check(new_site("race", STORE), fine, [code.wide(found)])
        code.store(words.writer, now, words.mask)
        return
    odd = code.compare("ne", _bits(code, found, 1), code.number(0, i32))
    code.check(new_site("race", STORE), code.either(fine, odd), [code.wide(found)])
    others = code.choose(order.comes_behind(code, found, 0), _bits(code, found, 2), code.number(2, found.type))
    others = code.choose(code.compare("slt", found, order.base), code.number(0, found.type), others)
    new = code.op(OrIOp, code.op(OrIOp, now, code.number(1, i32)), others)
    stored_by_me = code.both(order.is_own(code, found), code.negated(odd))
    code.store(words.writer, code.choose(stored_by_me, found, new), words.mask)


def _bits(code: Code, words: SSAValue, bits: int) -> SSAValue:
    return code.op(AndIOp, words, code.number(bits, i32))


def _at(code: Code, words: SSAValue, at: SSAValue) -> SSAValue:
    return code.op(AddPtrOp, code.like(words, at), at)


def _for_chunks(code: Code, end: SSAValue, body: Callable[[Code, SSAValue], None]) -> None:
    """A loop over the elements of a row, `CHUNK` at a time."""
    loop = code.loop([code.number(0, i32), end, code.number(CHUNK, i32)])
    last = loop.body.block.last_op
    assert last is not None
    inner = Code(last, code.records)
    line = inner.make(MakeRangeOp, tile_type((CHUNK,), i32), start=0, end=CHUNK)
    body(inner, inner.add(line, loop.induction_var))
