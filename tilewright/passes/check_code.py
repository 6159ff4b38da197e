"""Writes checks: scalars and tiles of integers, addresses, loads and stores of words, in front of an operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.analysis.affine import Poly
from tilewright.analysis.homes import is_direct
from tilewright.ir.op import TileOp
from tilewright.ir.types import bit_width, element_type, i1, i32, i64, pointee_bytes, tile_type, with_element
from tilewright.ir.values import defining_op, is_tile
from tilewright.ops.broadcast import BroadcastOp, SplatOp
from tilewright.ops.casts import ExtSIOp, ExtUIOp, PtrToIntOp, TruncIOp
from tilewright.ops.check import CheckOp
from tilewright.ops.constant import ConstantOp
from tilewright.ops.creation import MakeRangeOp
from tilewright.ops.elementwise import (
    AddIOp,
    AndIOp,
    CmpIOp,
    MulIOp,
    OrIOp,
    SelectOp,
    ShRSIOp,
    SubIOp,
    XOrIOp,
)
from tilewright.ops.elementwise_pointer import AddPtrOp
from tilewright.ops.memory import LoadOp, StoreOp
from tilewright.ops.shape import ReshapeOp
from tilewright.passes.rewriting import insert_before


class Code:
    """Operations in front of `anchor`.

    Args:
        anchor: has the place in the source.
        records: where checks leave records.
    """

    def __init__(self, anchor: Operation, records: SSAValue) -> None:
        self.anchor, self.records = anchor, records

    def put(self, op: Operation) -> SSAValue:
        """A new operation; gives its result."""
        insert_before(op, self.anchor)
        return op.results[0]

    def number(self, value: int | bool, type_: Attribute = i64) -> SSAValue:
        """A constant, the same in every element of a tile."""
        return self.put(ConstantOp.of(value, type_))

    def op(self, kind: type[Operation], *operands: SSAValue) -> SSAValue:
        """An element-wise operation of one type; a scalar beside a tile is the same in every element."""
        shaped = next(filter(is_tile, operands), operands[0])
        return self.put(kind.create(operands=[self.like(v, shaped) for v in operands], result_types=[shaped.type]))

    def like(self, value: SSAValue, other: SSAValue) -> SSAValue:
        """A scalar in the shape of a tile."""
        if is_tile(value) or not is_tile(other):
            return value
        return self.put(SplatOp.create(operands=[value], result_types=[with_element(other.type, value.type)]))

    def add(self, a: SSAValue, b: SSAValue) -> SSAValue:
        return self.op(AddIOp, a, b)

    def sub(self, a: SSAValue, b: SSAValue) -> SSAValue:
        return self.op(SubIOp, a, b)

    def mul(self, a: SSAValue, b: SSAValue) -> SSAValue:
        return self.op(MulIOp, a, b)

    def both(self, a: SSAValue, b: SSAValue) -> SSAValue:
        return self.op(AndIOp, a, b)

    def either(self, a: SSAValue, b: SSAValue) -> SSAValue:
        return self.op(OrIOp, a, b)

    def negated(self, mask: SSAValue) -> SSAValue:
        return self.op(XOrIOp, mask, self.number(True, mask.type))

    def half(self, value: SSAValue, times: int) -> SSAValue:
        """The floor of a value over 2 ** times."""
        return self.op(ShRSIOp, value, self.number(times, value.type)) if times else value

    def compare(self, predicate: str, a: SSAValue, b: SSAValue) -> SSAValue:
        """`a < b` and the like (`arith.cmpi`)."""
        a, b = self.like(a, b), self.like(b, a)
        return self.put(CmpIOp.build_op([a, b], [with_element(a.type, i1)], {"predicate": predicate}))

    def choose(self, condition: SSAValue, a: SSAValue, b: SSAValue) -> SSAValue:
        """`a` where the condition holds, else `b`; scalars or tiles alike."""
        return self.put(SelectOp.create(operands=[condition, a, b], result_types=[a.type]))

    def wide(self, value: SSAValue, unsigned: bool = False) -> SSAValue:
        """An integer, as one of 64 bits."""
        bits = bit_width(element_type(value.type))
        if bits == 64:
            return value
        kind = ExtUIOp if unsigned or bits == 1 else ExtSIOp
        return self.put(kind.create(operands=[value], result_types=[with_element(value.type, i64)]))

    def narrow(self, value: SSAValue) -> SSAValue:
        """A scalar that fits, as one of 32 bits."""
        return self.put(TruncIOp.create(operands=[value], result_types=[i32]))

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
        return self.put(kind.build_op([], [i32], {"axis": axis}))

    def place(self, shape: Sequence[int], dim: int) -> SSAValue:
        """The coordinate of each element of a tile along a dim."""
        extent = shape[dim]
        line = self.put(MakeRangeOp.build_op([], [tile_type((extent,), i32)], {"start": 0, "end": extent}))
        if len(shape) == 1:
            return line
        ones = tuple(extent if n == dim else 1 for n in range(len(shape)))
        turned = self.put(ReshapeOp.create(operands=[line], result_types=[tile_type(ones, i32)]))
        return self.put(BroadcastOp.create(operands=[turned], result_types=[tile_type(tuple(shape), i32)]))

    # -- memory ------------------------------------------------------------------------------------------

    def load(self, words: SSAValue, mask: SSAValue | None, other: int) -> SSAValue:
        """Words of shadow memory; `other` where a mask is false."""
        type_ = with_element(words.type, element_type(words.type).pointee)  # type: ignore[attr-defined]
        rest = [] if mask is None else [mask, self.number(other, type_)]
        return self.put(LoadOp.create(operands=[words, *rest], result_types=[type_]))

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
                made = type(op).create(operands=[total], result_types=[type_], properties=dict(op.properties))
                total = self.put(made)
        return self.number(0) if total is None else total

    def bytes_from(self, address: SSAValue, home: SSAValue) -> SSAValue:
        """Bytes between a parameter and any address."""
        here = self.put(PtrToIntOp.create(operands=[address], result_types=[with_element(address.type, i64)]))
        first = self.put(PtrToIntOp.create(operands=[home], result_types=[i64]))
        return self.sub(here, first)

    def word_at(self, words: SSAValue, address: SSAValue, home: SSAValue) -> SSAValue:
        """The addresses of the words that stand for the elements at an address of `home`."""
        if is_direct(address, home):
            at = self.elements_from(address, home)
        else:
            at = self.half(self.bytes_from(address, home), pointee_bytes(home.type).bit_length() - 1)
        start = self.like(words, at)
        return self.put(AddPtrOp.create(operands=[start, at], result_types=[start.type]))
