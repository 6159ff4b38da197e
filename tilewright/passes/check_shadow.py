"""Checks by shadow words: who wrote an element last, and who read it. Programs run one after the other.

Two words stand for each element of an argument:

    W   0 never written · below `base` written before this launch · else stamp of the last writer, odd if by an atomic
    R   below `base` not read in this launch · the stamp of the reader · `several`
    stamp = base + 2 * program          several = base + 2 * programs

    load    W = 0: nobody has written it · W of another program: race          R := me, or several
    store   W or R of another program: race                                     W := me
    atomic  W of another program's store, or R of another program: race         W := me + 1, or several + 1

Of two conflicting accesses the second one sees the first, whichever it is, so two words are enough. The next launch
gets a `base` above all stamps of this one, hence nothing is cleared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from tilewright.ir.types import (
    bit_width,
    element_type,
    i32,
    is_integer,
    is_pointer,
    scalar_type,
)
from tilewright.ops.casts import BitcastOp
from tilewright.ops.elementwise import AndIOp, OrIOp
from tilewright.ops.memory import LoadOp
from tilewright.passes.check_code import Code

LOAD, STORE, ATOMIC = "load", "store", "atomic"
NewSite = Callable[[str, str], int]
"""Gives the number of a new check: its kind, and the access that it looks back at."""


@dataclass(frozen=True, slots=True)
class Stamps:
    """What the words of a launch are compared with, i32 scalars.

    Args:
        base: below it lies what was before this launch.
        me: stamp of the program.
        several: stands for more than one program.
    """

    base: SSAValue
    me: SSAValue
    several: SSAValue


@dataclass(frozen=True, slots=True)
class Words:
    """The shadow of one access.

    Args:
        writer, reader: addresses of its words; None where nobody needs them.
        mask: of the access.
    """

    writer: SSAValue
    reader: SSAValue | None
    mask: SSAValue | None


def check_written(code: Code, words: Words, site: int, mask: SSAValue | None) -> None:
    """Of a load: every element has been written."""
    found = code.load(words.writer, mask, 1)
    code.check(site, code.compare("ne", found, code.number(0, i32)), ())


def check_load(code: Code, words: Words, stamps: Stamps, new_site: NewSite) -> None:
    """A load of an argument that the kernel writes: no other program has; and it is remembered."""
    found = code.load(words.writer, words.mask, 1)
    own = code.compare("eq", _stamp(code, found), stamps.me)
    code.check(new_site("race", STORE), code.either(code.compare("slt", found, stamps.base), own), [code.wide(found)])
    assert words.reader is not None
    before = code.load(words.reader, words.mask, 0)
    first = code.compare("slt", before, stamps.base)
    mine = code.like(stamps.me, before)
    same = code.compare("eq", before, stamps.me)
    several = code.like(stamps.several, before)
    code.store(words.reader, code.choose(code.either(first, same), mine, several), words.mask)


def check_change(code: Code, words: Words, stamps: Stamps, new_site: NewSite, *, atomic: bool) -> None:
    """A store or an atomic: no other program has read or written it, but for atomics by atomics."""
    if words.reader is not None:
        before = code.load(words.reader, words.mask, 0)
        fine = code.either(code.compare("slt", before, stamps.base), code.compare("eq", before, stamps.me))
        code.check(new_site("race", LOAD), fine, [code.wide(before)])
    found = code.load(words.writer, words.mask, 1)
    old = code.compare("slt", found, stamps.base)
    fine = code.either(old, code.compare("eq", _stamp(code, found), stamps.me))
    if not atomic:
        code.check(new_site("race", STORE), fine, [code.wide(found)])
        code.store(words.writer, stamps.me, words.mask)
        return
    odd = code.compare("ne", code.op(AndIOp, found, code.number(1, i32)), code.number(0, i32))
    code.check(new_site("race", STORE), code.either(fine, odd), [code.wide(found)])
    stored_by_me = code.compare("eq", found, stamps.me)
    others = code.both(odd, code.negated(fine))
    by_atomic = code.add(stamps.me, code.number(1, i32))
    by_several = code.add(stamps.several, code.number(1, i32))
    new = code.choose(others, code.like(by_several, found), code.like(by_atomic, found))
    code.store(words.writer, code.choose(stored_by_me, code.like(stamps.me, found), new), words.mask)


def _stamp(code: Code, word: SSAValue) -> SSAValue:
    """A word without the bit of atomics."""
    return code.op(AndIOp, word, code.number(-2, i32))


def mark_written(code: Code, words: Words, stamps: Stamps) -> None:
    """A store or an atomic of an argument of which races are not looked for."""
    code.store(words.writer, stamps.me, words.mask)


def check_stored(code: Code, address: SSAValue, value: SSAValue, mask: SSAValue | None, site: int) -> None:
    """Behind a store: memory holds what every element stored, or several elements have stored different values."""
    element = element_type(value.type)
    found = code.make(LoadOp, value.type, address, *([] if mask is None else [mask]))
    if not is_integer(element):
        bits = scalar_type(f"i{bit_width(element)}")
        found, value = (code.cast(BitcastOp, v, bits) for v in (found, value))
    same = code.compare("eq", found, value)
    code.check(site, same if mask is None else code.op(OrIOp, same, code.negated(mask)), ())


def is_comparable(value: SSAValue) -> bool:
    """Whether `check_stored` can compare values of this type."""
    element = element_type(value.type)
    return not is_pointer(element) and bit_width(element) >= 8


def place_of(code: Code, ids: list[SSAValue], counts: list[SSAValue]) -> SSAValue:
    """The number of the program, counted along x first."""
    return code.add(ids[0], code.mul(counts[0], code.add(ids[1], code.mul(counts[1], ids[2]))))


def stamps_of(code: Code, base: SSAValue, ids: list[SSAValue], counts: list[SSAValue]) -> Stamps:
    """The stamps of the program; `code` writes at the start of the kernel."""
    two = code.number(2, i32)
    place = place_of(code, ids, counts)
    programs = code.mul(counts[0], code.mul(counts[1], counts[2]))
    return Stamps(base, code.add(base, code.mul(two, place)), code.add(base, code.mul(two, programs)))


def words_of(
    code: Code, op: Operation, mask: SSAValue | None, home: SSAValue, shadow: tuple[SSAValue, SSAValue], *, read: bool
) -> Words:
    """The words of an access."""
    writer, reader = shadow
    address = op.operands[0]
    return Words(
        code.word_at(writer, address, home), code.word_at(reader, address, home) if read else None, mask
    )  # fmt: skip
