"""Loads, stores and scratch access of a chunk of lanes.

An address is split into a scalar part, emitted at the loop level on which it depends, and what each lane adds: known
byte offsets (affine, constant strides) or a vector computed at run time. Known offsets choose the access: one vector,
one scalar for all lanes, a few vectors and a shuffle, else a gather or scatter, or a loop where the hardware has none.

    base ptr + constant      before the nest
      + row * stride         in the row loop
        + column * 4         in the chunk loop        lane l: + 4 l   ->  one vector
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from functools import partial

from xdsl.ir import Operation, SSAValue

from tilewright.analysis.affine import Form, PointerForm, Poly, divisor_of
from tilewright.analysis.constants import constant_elements
from tilewright.analysis.index import CONST, LANE, Coord, Field, Index
from tilewright.backends.cpu.emit.address import Address, Offsets, neighbours
from tilewright.backends.cpu.emit.answers import tell_access, tell_scalar
from tilewright.backends.cpu.emit.dummy_address import shared_condition
from tilewright.backends.cpu.emit.scalarize import for_each_lane, gathers, scatters
from tilewright.backends.cpu.emit.source_lines import at_line_of
from tilewright.backends.cpu.emit.values import Values
from tilewright.backends.cpu.emit.wraps import order_of, read_between_wraps, read_whole
from tilewright.backends.cpu.plan.steps import Buffer, Sink, memory_bytes, tile_buffer
from tilewright.backends.llvm.casts import convert, from_working_float, load_bool, storage, store_bool, to_working_float
from tilewright.backends.llvm.types import I1, I8, I64, PTR, T, V, const, const_vector, zero
from tilewright.base.errors import UnsupportedError
from tilewright.ir.types import TilePointerType, element_type, ir_name, pointee_bytes, shape_of

LINE = 64


# --- addresses --------------------------------------------------------------------------------------


def _prefix(ev: Values, value: object, base: V, form: Form, level: int) -> V:
    """`base` plus the parts of a form that depend on loops at depth `level` or less, uniform over lanes."""
    key = _prefix_key(ev, value, level)
    found = ev.recall(key)
    if found is not None:
        return found
    f = ev.f
    if level == 0:
        pointer = f.gep(base, ev.poly(form.constant))
    else:
        pointer = _prefix(ev, value, base, form, level - 1)
    for coord, stride in form.coords.items():
        if _level(ev, coord) == level:
            pointer = f.gep(pointer, f.mul(ev.coord(coord), ev.poly(stride)))
    return ev.remember(key, pointer)


def _prefix_key(ev: Values, value: object, level: int) -> object:
    """Under what the part of an address is remembered; other forms lead to other parts."""
    return ("address", value, level, ev.analysis)


def _level(ev: Values, coord: Coord) -> int:
    return ev.level_of((coord,))


def hoist_address(ev: Values, value: SSAValue, index: Index) -> None:
    """Emit the part of an address that does not depend on loops that are still closed."""
    form = ev.analysis.pointer(value, index)
    base = form.base
    if base is not None:
        _hoist(ev, (value, index), lambda: ev.scalar(base), form.offset)


def hoist_shifted(ev: Values, value: SSAValue, index: Index, distance: V) -> object:
    """As `hoist_address` for the place so many bytes on; gives what `address_of` is told to find it.

    Frozen, as LLVM's loops do no better for seeing the sum: taking it apart again took 3 % of a compile.
    """
    form, level, key = (
        ev.analysis.pointer(value, index),
        max(ev.nest.depth.values(), default=0),
        (value, index, "shifted"),
    )
    assert form.base is not None
    hoist_address(ev, value, index)
    start = _prefix(ev, (value, index), ev.scalar(form.base), form.offset, level)
    ev.remember(_prefix_key(ev, key, level), ev.f.freeze(ev.f.gep(start, distance)))
    return key


def hoist_scratch(ev: Values, buffer: Buffer, index: Index) -> None:
    """As `hoist_address` for a place in scratch."""
    _hoist(ev, (buffer, index), lambda: _arena(ev, buffer), _scratch_form(buffer, index))


def _hoist(ev: Values, key: object, base: Callable[[], V], form: Form) -> None:
    level = max(ev.nest.depth.values(), default=0)
    for poly in (form.constant, *form.coords.values()):
        ev.poly(poly)
    _prefix(ev, key, base(), form, level)


def _arena(ev: Values, buffer: Buffer) -> V:
    return ev.f.gep(ev.arena, buffer.offset)


def _scratch_form(buffer: Buffer, index: Index) -> Form:
    size = memory_bytes(buffer.elem)
    form = Form()
    for coord, stride in zip(index, buffer.strides, strict=True):
        if coord:
            form = form.plus(Form(coords={coord: Poly.of(stride * size)}))
    return form


def _address(ev: Values, key: object, base: V, form: Form) -> Address:
    """The address of a chunk at the current place in the nest."""
    level = max(ev.nest.depth.values(), default=0)
    address = Address(_prefix(ev, key, base, form, level))
    for coord, stride in form.coords.items():
        lanes = ev.lanes_of(coord)
        if lanes is None:
            continue
        step = stride.constant
        if step is not None:
            address.offsets = _moved(address.offsets, lanes, step)
        else:
            wide, each = I64.vec(len(lanes)), ev.poly(stride)
            _vary(ev, address, ev.f.mul(ev.f.splat(each, len(lanes)), const_vector(wide, list(lanes))), each, lanes)
    for value, at, scale in form.residual:
        offset = ev.f.mul(_widened(ev, value, at), _scaled(ev, scale, value, at))
        if offset.type.lanes:
            _vary(ev, address, offset)
        else:
            address.base = ev.f.gep(address.base, offset)
    if address.offsets is not None and not any(address.offsets):
        address.offsets = None
    return address


@functools.cache
def _moved(offsets: Offsets | None, lanes: tuple[int, ...], step: int) -> Offsets:
    """`offsets`, none of them being zeros, plus `step` bytes for each of the places `lanes`."""
    added = [lane * step for lane in lanes]
    return tuple(added if offsets is None else map(operator.add, offsets, added))


def _widened(ev: Values, value: SSAValue, at: Index) -> V:
    return ev.f.cast("sext", ev.eval(value, at), I64)


def _scaled(ev: Values, scale: Poly, value: SSAValue, at: Index) -> V:
    return ev.f.splat(ev.poly(scale), ev.eval(value, at).type.lanes)


def _vary(ev: Values, address: Address, offset: V, step: V | None = None, multiples: tuple[int, ...] = ()) -> None:
    alone = address.varying is None
    address.step, address.multiples = (step, multiples) if alone else (None, ())
    address.varying = offset if address.varying is None else ev.f.add(address.varying, offset)


def address_of(ev: Values, pointer: SSAValue, index: Index, key: object = None) -> Address:
    """The address of a tile of pointers (or a scalar pointer) at an index; `key` as `hoist_shifted` gave it."""
    form: PointerForm = ev.analysis.pointer(pointer, index)
    if form.base is not None:
        address = _address(ev, key or (pointer, index), ev.scalar(form.base), form.offset)
        address.form = form
        return address
    assert form.tile is not None
    tile, at = form.tile
    base = ev.eval(tile, at)
    if not base.type.lanes:
        return _address(ev, (pointer, index), base, form.offset)
    address = _address(ev, (pointer, index), const(PTR, 0), form.offset)
    moved = ev.f.gep(base, ev.f.splat(ev.f.cast("ptrtoint", address.base, I64), base.type.lanes))
    return Address(moved, address.offsets, address.varying)


def lane_pointers(ev: Values, address: Address, lanes: int) -> V:
    """One pointer per lane."""
    f = ev.f
    pointers = address.base
    if address.varying is not None:
        pointers = f.gep(pointers, f.splat(address.varying, lanes))
    if address.offsets is not None:
        pointers = f.gep(pointers, const_vector(I64.vec(lanes), list(address.offsets)))
    return f.splat(pointers, lanes)


def first_neighbour(ev: Values, pointer: SSAValue, index: Index) -> V | None:
    """Where the first lane is, if all others lie behind it, side by side; None else."""
    address, size = address_of(ev, pointer, index), pointee_bytes(pointer.type)
    offsets = address.known
    if offsets is None or neighbours(offsets, size) < len(offsets):
        return None
    return ev.f.gep(address.base, offsets[0])


def pointers(ev: Values, value: SSAValue, index: Index) -> V:
    """A tile of pointers as values."""
    address = address_of(ev, value, index)
    return address.base if address.uniform else lane_pointers(ev, address, ev.nest.lanes)


# --- reading ----------------------------------------------------------------------------------------


def _read(ev: Values, t: T, address: Address, mask: V | None, other: V | None) -> V:
    """Lanes of `t` (a scalar type) at an address; a scalar where all lanes agree."""
    f, size = ev.f, max(1, t.bits // 8)
    if mask is not None and mask.const is not None:
        if not mask.const:
            return zero(t) if other is None else other
        mask = None
    if address.uniform and (mask is None or not mask.type.lanes):
        return _read_scalar(ev, t, address.base, mask, other)
    if (run := address.run(size)) is not None:
        return _read_runs(ev, t, address, run, mask, other)
    if address.known is not None and mask is not None and (order := order_of(address.known, size)) is not None:
        return read_whole(ev, t, f.gep(address.base, min(address.known)), f.splat(mask, len(order)), other, order)
    if address.known is not None and mask is None and (shuffled := _read_shuffled(ev, t, address)) is not None:
        return shuffled
    apart = partial(_read_apart, ev, t, address, mask, other)
    beside = read_between_wraps(ev, t, address, mask, other, apart)
    return apart(0, ev.nest.lanes) if beside is None else beside


def _read_apart(ev: Values, t: T, address: Address, mask: V | None, other: V | None, start: int, count: int) -> V:
    """`count` lanes from `start` on, at any places."""
    f, lanes = ev.f, ev.nest.lanes
    if not gathers(f.isa, t, lanes):
        return f.slice(_read_by_lane(ev, t, address, mask, other), start, count)
    vt = t.vec(count)
    fill = zero(vt) if other is None else f.slice(f.splat(other, lanes), start, count)
    wanted = None if mask is None else f.slice(f.splat(mask, lanes), start, count)
    return f.gather(vt, f.slice(lane_pointers(ev, address, lanes), start, count), wanted, fill)


def _read_scalar(ev: Values, t: T, pointer: V, mask: V | None, other: V | None) -> V:
    f = ev.f
    if mask is None:
        return f.load(t, pointer)
    lanes = 0 if other is None else other.type.lanes
    fill = zero(t.vec(lanes)) if other is None else other
    return f.if_else(mask, lambda: [f.splat(f.load(t, pointer), lanes)], lambda: [fill])[0]


def _read_by_lane(ev: Values, t: T, address: Address, mask: V | None, other: V | None) -> V:
    f, bits = ev.f, t.as_int if t.is_float else t  # LLVM calls a library for floats that the CPU does not have
    fill = zero(bits) if other is None else f.cast("bitcast", other, bits.vec(other.type.lanes))

    def one(pointer: V, scalars: list[V]) -> V:
        if mask is None:
            return f.load(bits, pointer)
        return f.if_else(scalars[0], lambda: [f.load(bits, pointer)], lambda: [scalars[1]])[0]

    read = _by_lane(ev, address, [] if mask is None else [mask, fill], one)
    assert read is not None
    return f.cast("bitcast", read, t.vec(read.type.lanes))


def _by_lane(ev: Values, address: Address, values: list[V], body: Callable[[V, list[V]], V | None]) -> V | None:
    """`for_each_lane` with the address of the lane."""
    f, step = ev.f, address.even
    if step is not None and not address.base.type.lanes:
        return for_each_lane(ev, values, lambda lane, rest: body(f.gep(address.base, f.mul(lane, step)), rest))
    pointers = lane_pointers(ev, address, ev.nest.lanes)
    return for_each_lane(ev, [pointers, *values], lambda _, scalars: body(scalars[0], scalars[1:]))


def _read_runs(ev: Values, t: T, address: Address, run: int, mask: V | None, other: V | None) -> V:
    """Vectors of `run` neighbours each."""
    f, lanes = ev.f, ev.nest.lanes
    parts = []
    mask = None if mask is None else f.splat(mask, lanes)
    other = None if other is None else f.splat(other, lanes)
    for start in range(0, lanes, run):
        pointer = _start(ev, address, start)
        if mask is None:
            parts.append(f.load(t.vec(run), pointer))
        else:
            fill = None if other is None else f.slice(other, start, run)
            pointer = _existing(ev, address, pointer)
            parts.append(f.masked_load(t.vec(run), pointer, f.slice(mask, start, run), 0, fill))
    return f.concat(parts)


def _start(ev: Values, address: Address, lane: int) -> V:
    """Where a lane is whose run has an instruction of its own."""
    assert address.offsets is not None
    base = (
        address.base
        if address.step is None
        else ev.f.gep(address.base, ev.f.mul(address.step, address.multiples[lane]))
    )
    return ev.f.gep(base, address.offsets[lane])


def _existing(ev: Values, address: Address, pointer: V) -> V:
    """A pointer of an address, or a place that exists where nobody wants what is there."""
    return pointer if address.wanted is None else ev.f.select(address.wanted, pointer, ev.dummy)


def _read_shuffled(ev: Values, t: T, address: Address) -> V | None:
    """All bytes between the first and the last lane, then a shuffle; only where nothing between is out of bounds.

    True for lanes that repeat elements, for offsets without gaps in another order, and for every second element: what
    lies between two elements that are wanted is in a page of one of them. So is the other element of a pair that begins
    at a multiple of its size: those who load the other one of each pair load the same vectors.
    """
    f, size = ev.f, max(1, t.bits // 8)
    assert address.offsets is not None
    distinct = sorted(set(address.offsets))
    count, steps = len(distinct), {b - a for a, b in itertools.pairwise(distinct)}
    if len(steps) > 1 or steps - {size, 2 * size} or count & (count - 1):
        return None
    step = next(iter(steps), size) // size
    lanes = [(offset - distinct[0]) // size for offset in address.offsets]
    if step == 1:
        return f.shuffle(f.load(t.vec(count), f.gep(address.base, distinct[0])), None, lanes)
    side = _side_of_pair(ev, address, distinct[0], size)
    first = f.gep(address.base, distinct[0] - (side or 0) * size)
    # Of no known pair the last `count` elements begin with the last that was loaded.
    loads = [f.load(t.vec(count), f.gep(first, start * size)) for start in (0, count - (side is None))]
    picks = [n + (n >= count) for n in lanes] if side is None else [n + side for n in lanes]
    return f.shuffle(loads[0], loads[1], picks)


def _side_of_pair(ev: Values, address: Address, offset: int, size: int) -> int | None:
    """Which element of a pair of elements of `size` bytes an address leads to: 0 or 1, or None if that is not known."""
    form, facts = address.form, ev.analysis.facts
    if form is None or form.base is None or facts is None:
        return None
    number = form.offset.constant.terms.get((), 0)
    parts = [form.offset.constant + Poly.of(-number), *(scale for _, _, scale in form.offset.residual)]
    for coord, stride in form.offset.coords.items():
        known = sum(part.lo << part.pos for part in coord if part.src == CONST)
        lowest = min((part.pos for part in coord if part.src != CONST), default=0)
        number += known * (stride.constant or 0)
        parts.append(stride * Poly.of(1 << lowest if stride.constant is not None else 1))
    if math.gcd(*facts[form.base].divisibility, *(divisor_of(part, facts) for part in parts)) % (2 * size):
        return None
    return {0: 0, size: 1}.get((number + offset) % (2 * size))


def load_tile(ev: Values, op: Operation, index: Index) -> V:
    """A `tt.load` at an index."""
    name = ir_name(element_type(op.results[0].type))
    size = max(1, storage(name).bits // 8)
    address = address_of(ev, op.operands[0], index)
    mask = ev.eval(op.operands[1], index) if len(op.operands) > 1 else None
    rows = address.rows(size)
    turned = _exchanged(index, rows.bit_length() - 1) if rows else None
    if turned is not None:  # read along the rows, then turned
        index = turned
        address = address_of(ev, op.operands[0], index)
        mask = mask if mask is None or mask.const is not None else ev.eval(op.operands[1], index)
    other = ev.eval(op.operands[2], index) if len(op.operands) > 2 else None
    if mask is not None and mask.const is None:
        address.wanted = shared_condition(ev, op.operands[1], index)
    tell_access(ev.decisions, op, address, size, ev.nest.lanes)
    with at_line_of(ev.f, op):
        if name != "i1":
            read = _read(ev, storage(name), address, mask, other)
        else:
            byte = _read(ev, I8, address, mask, None if other is None else store_bool(ev.f, other))
            read = load_bool(ev.f, byte)
        return ev.f.concat(ev.f.turned(ev.f.split(read, rows))) if turned is not None and read.type.lanes else read


def _exchanged(index: Index, bits: int) -> Index | None:
    """An index whose lanes are the columns of a square of which they were the rows; None if a coordinate takes bits of
    a lane's number from both."""

    def moved(field: Field) -> Field:
        return field._replace(lo=(field.lo + bits) % (2 * bits)) if field.src == LANE else field

    if any(field.src == LANE and field.lo < bits < field.lo + field.width for coord in index for field in coord):
        return None
    return tuple(tuple([moved(field) for field in coord]) for coord in index)


def read_scratch(ev: Values, buffer: Buffer, index: Index, name: str) -> V:
    """A value that lives in scratch, as elements of type `name`."""
    address = _address(ev, (buffer, index), _arena(ev, buffer), _scratch_form(buffer, index))
    if buffer.elem == "i1":
        return load_bool(ev.f, _read(ev, I8, address, None, None))
    value = _read(ev, storage(buffer.elem), address, None, None)
    return convert_element(ev, value, buffer.elem, name)


def read_constant(ev: Values, op: Operation, index: Index) -> V:
    """A constant tile whose elements differ: a table in the object."""
    value = op.results[0]
    name = ir_name(element_type(value.type))
    buffer = tile_buffer(value.type)
    t = I8 if name == "i1" else storage(name)
    if name.startswith("f8"):
        raise UnsupportedError("a constant tile of 8-bit floats whose elements differ")
    elements = constant_elements(op)
    key = f"table.{name}.{'x'.join(map(str, buffer.shape))}.{hash(tuple(elements)) & 0xFFFFFFFFFFFF:x}"
    base = ev.f.module.constant(key, t, [const(t, v) for v in elements])
    read = _read(ev, t, _address(ev, (op, index), base, _scratch_form(buffer, index)), None, None)
    return load_bool(ev.f, read) if name == "i1" else read


def convert_element(ev: Values, value: V, source: str, target: str) -> V:
    """Between the element type of an accumulator and that of the tile that it stands for."""
    if source == target:
        return value
    if source.startswith("i"):
        narrows = storage(target).bits < storage(source).bits
        return convert(ev.f, "trunci" if narrows else "extsi", value, source, target)
    return from_working_float(ev.f, to_working_float(ev.f, value, source), target)


def gather_scratch(ev: Values, op: Operation, index: Index) -> V:
    """`tt.gather`: elements of a tile in scratch picked along one dim."""
    source, picks = op.operands
    axis = int(op.properties["axis"].value.data)  # type: ignore[attr-defined]
    buffer = ev.placed[source]
    f, size = ev.f, memory_bytes(buffer.elem)
    at = f.cast("zext", ev.eval(picks, index), I64)
    shape = shape_of(source.type)
    # An index out of range picks some element of the tile, as it does on a GPU, but never memory outside of it.
    at = f.op("urem", at, shape[axis]) if shape[axis] & (shape[axis] - 1) else f.and_(at, shape[axis] - 1)
    rest = tuple(() if dim == axis else coord for dim, coord in enumerate(index))
    address = _address(ev, (buffer, rest), _arena(ev, buffer), _scratch_form(buffer, rest))
    offset = f.mul(at, buffer.strides[axis] * size)
    if offset.type.lanes:
        _vary(ev, address, offset)
    else:
        address.base = f.gep(address.base, offset)
    value = _read(ev, I8 if buffer.elem == "i1" else storage(buffer.elem), address, None, None)
    if buffer.elem == "i1":
        return load_bool(f, value)
    return convert_element(ev, value, buffer.elem, ir_name(element_type(source.type)))


# --- writing ----------------------------------------------------------------------------------------


def _write(ev: Values, value: V, address: Address, mask: V | None) -> None:
    f, lanes = ev.f, ev.nest.lanes
    if mask is not None and mask.const is not None:
        if not mask.const:
            return
        mask = None
    if address.uniform and not value.type.lanes and (mask is None or not mask.type.lanes):
        with f.if_(const(I1, 1) if mask is None else mask):
            f.store(value, address.base)
        return
    value = f.splat(value, lanes)
    size = max(1, value.type.bits // 8)
    if (run := address.run(size)) is not None:
        for start in range(0, lanes, run):
            pointer, part = _start(ev, address, start), f.slice(value, start, run)
            if mask is None and ev.streaming and part.type.bytes % LINE == 0:
                f.store(part, pointer, LINE, f"!nontemporal {f.module.metadata('!{i32 1}')}")
                ev.streamed = True
            elif mask is None:
                f.store(part, pointer)
            else:
                f.masked_store(part, _existing(ev, address, pointer), f.slice(f.splat(mask, lanes), start, run))
        return
    if address.even is None or scatters(f.isa, value.type.scalar, lanes):
        f.scatter(value, lane_pointers(ev, address, lanes), None if mask is None else f.splat(mask, lanes))
    else:
        _write_by_lane(ev, value, address, mask)


def _write_by_lane(ev: Values, value: V, address: Address, mask: V | None) -> None:
    f = ev.f
    bits = f.as_int(value) if value.type.is_float else value

    def one(pointer: V, scalars: list[V]) -> None:
        with f.if_(const(I1, 1) if mask is None else scalars[1]):
            f.store(scalars[0], pointer)

    _by_lane(ev, address, [bits] if mask is None else [bits, mask], one)


def store_tile(ev: Values, sink: Sink, index: Index, values: Sequence[V]) -> None:
    """The store of a sink at an index; `values` are its evaluated operands after the pointer."""
    pointer = sink.roots[0]
    address = address_of(ev, pointer, index)
    value = values[0]
    element = element_type(pointer.type)
    assert isinstance(element, TilePointerType)
    if value.type.elem == "i1" and pointee_bytes(pointer.type) == 1:
        value = store_bool(ev.f, value)
    if len(values) > 1 and values[1].const is None:
        address.wanted = shared_condition(ev, sink.roots[2], index)
    if sink.op is not None:
        tell_access(ev.decisions, sink.op, address, max(1, value.type.bits // 8), ev.nest.lanes)
    with at_line_of(ev.f, sink.op):
        _write(ev, value, address, values[1] if len(values) > 1 else None)


def write_scratch(ev: Values, buffer: Buffer, index: Index, value: V, name: str) -> None:
    """Write elements of type `name` to their place in scratch."""
    address = _address(ev, (buffer, index), _arena(ev, buffer), _scratch_form(buffer, index))
    value = store_bool(ev.f, value) if buffer.elem == "i1" else convert_element(ev, value, name, buffer.elem)
    _write(ev, value, address, None)


def scalar_load(ev: Values, op: Operation) -> V:
    """A `tt.load` of one element."""
    tell_scalar(ev.decisions, op)
    name = ir_name(element_type(op.results[0].type))
    operands = [ev.scalar(operand) for operand in op.operands]
    mask = operands[1] if len(operands) > 1 else None
    other = operands[2] if len(operands) > 2 else None
    if name != "i1":
        return _guarded(ev, storage(name), operands[0], mask, other)
    byte = _guarded(ev, I8, operands[0], mask, None if other is None else store_bool(ev.f, other))
    return load_bool(ev.f, byte)


def _guarded(ev: Values, t: T, pointer: V, mask: V | None, other: V | None) -> V:
    if mask is not None and mask.const is not None:
        if not mask.const:
            return zero(t) if other is None else other
        mask = None
    return _read_scalar(ev, t, pointer, mask, other)


def scalar_store(ev: Values, op: Operation) -> None:
    """A `tt.store` of one element."""
    tell_scalar(ev.decisions, op)
    pointer, value, *rest = [ev.scalar(operand) for operand in op.operands]
    if value.type.elem == "i1":
        value = store_bool(ev.f, value)
    with ev.f.if_(rest[0] if rest else const(I1, 1)):
        ev.f.store(value, pointer)
