"""Writes checks: scalars and tiles of integers, addresses, loads and stores of words, in front of an operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.ir import Operation, SSAValue

from tilewright.analysis.affine import Poly
from tilewright.analysis.homes import is_direct
from tilewright.ir.op import TileOp
from tilewright.ir.types import bit_width, element_type, i32, i64, pointee_bytes, tile_type, with_element
from tilewright.ir.values import defining_op
from tilewright.ops.casts import ExtSIOp, ExtUIOp, PtrToIntOp, TruncIOp
from tilewright.ops.check import CheckOp
from tilewright.ops.creation import MakeRangeOp
from tilewright.ops.elementwise import (
    ShRSIOp,
)
from tilewright.ops.elementwise_pointer import AddPtrOp
from tilewright.ops.memory import LoadOp, StoreOp
from tilewright.passes.building import Builder
from tilewright.passes.rewriting import insert_before


class Code(Builder):
    """Operations in front of `anchor`.

    Args:
        anchor: has the place in the source.
        records: where checks leave records.
    """

    def __init__(self, anchor: Operation, records: SSAValue) -> None:
        super().__init__(anchor)
        self.records = records

    def half(self, value: SSAValue, times: int) -> SSAValue:
        """The floor of a value over 2 ** times."""
        return self.op(ShRSIOp, value, self.number(times, value.type)) if times else value

    def wide(self, value: SSAValue, unsigned: bool = False) -> SSAValue:
        """An integer, as one of 64 bits."""
        bits = bit_width(element_type(value.type))
        if bits == 64:
            return value
        kind = ExtUIOp if unsigned or bits == 1 else ExtSIOp
        return self.cast(kind, value, i64)

    def narrow(self, value: SSAValue) -> SSAValue:
        """A scalar that fits, as one of 32 bits."""
        return self.cast(TruncIOp, value, i32)

    def poly(self, poly: Poly) -> SSAValue:
        """A polynomial in scalars, computed in 64 bits."""
        total: SSAValue | None = None
        for monomial, factor in poly.terms.items():
            term: SSAValue | None = self.number(factor) if factor != 1 or not monomial else None
            for atom in monomial:
                value = self.wide(atom.value, atom.unsigned)
                term = value if term is None else self.mul(term, value)
            assert term is not None
            total = term if total is None else self.add(total, term)
        return self.number(0) if total is None else total

    def check(self, site: int, holds: SSAValue, shown: Sequence[SSAValue], *, ends: bool = False) -> None:
        """`tt.check`."""
        attrs: dict[str, Any] = {"site": site, "ends": ends}
        insert_before(CheckOp.build_op([holds, self.records, *shown], (), attrs), self.anchor)

    def axis(self, kind: type[TileOp], axis: int) -> SSAValue:
        """`tt.get_program_id` or `tt.get_num_programs` of an axis."""
        return self.make(kind, i32, axis=axis)

    def place(self, shape: Sequence[int], dim: int) -> SSAValue:
        """The coordinate of each element of a tile along a dim."""
        extent = shape[dim]
        line = self.make(MakeRangeOp, tile_type((extent,), i32), start=0, end=extent)
        ones = tuple(extent if n == dim else 1 for n in range(len(shape)))
        return self.viewed(self.viewed(line, tile_type(ones, i32)), tile_type(tuple(shape), i32))

    # -- memory ------------------------------------------------------------------------------------------

    def load(self, words: SSAValue, mask: SSAValue | None, other: int) -> SSAValue:
        """Words of shadow memory; `other` where a mask is false."""
        type_ = with_element(words.type, element_type(words.type).pointee)  # type: ignore[attr-defined]
        rest = [] if mask is None else [mask, self.number(other, type_)]
        return self.make(LoadOp, type_, words, *rest)

    def store(self, words: SSAValue, value: SSAValue, mask: SSAValue | None) -> None:
        value = self.like(value, words)
        insert_before(StoreOp.create(operands=[words, value] + ([] if mask is None else [mask])), self.anchor)

    def elements_from(self, address: SSAValue, home: SSAValue) -> SSAValue:
        """Elements between a parameter and an address that is it, moved directly; as the program has computed them."""
        total: SSAValue | None = None
        moves: list[tuple[Operation, SSAValue]] = []
        assert is_direct(address, home)
        while address is not home:
            op = defining_op(address)
            assert op is not None
            moves.append((op, address))
            address = op.operands[0]
        for op, moved in reversed(moves):
            if isinstance(op, AddPtrOp):
                step = op.operands[1]
                total = step if total is None else self.add(self.wide(total), self.wide(step))
            elif total is not None:
                type_ = with_element(moved.type, element_type(total.type))
                total = self.again(op, type_, total)
        return self.number(0) if total is None else total

    def bytes_from(self, address: SSAValue, home: SSAValue) -> SSAValue:
        """Bytes between a parameter and any address."""
        return self.sub(*(self.cast(PtrToIntOp, value, i64) for value in (address, home)))

    def word_at(self, words: SSAValue, address: SSAValue, home: SSAValue) -> SSAValue:
        """The addresses of the words that stand for the elements at an address of `home`."""
        if is_direct(address, home):
            at = self.elements_from(address, home)
        else:
            at = self.half(self.bytes_from(address, home), pointee_bytes(home.type).bit_length() - 1)
        return self.op(AddPtrOp, self.like(words, at), at)
