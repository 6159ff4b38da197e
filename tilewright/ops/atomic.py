"""Atomic read-modify-write: `tt.atomic_rmw`, `tt.atomic_cas`, `tt.atomic_load`, `tt.atomic_store`.

Each lane is atomic by itself; lanes of one tile happen in any order. The old value comes back, undefined
where the mask is false. User functions are in `ops/functions/atomic.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import numpy as np
from xdsl.dialects.builtin import StringAttr, f32
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def, result_def, traits_def, var_operand_def
from xdsl.parser import Parser
from xdsl.printer import Printer

from tilewright.base.errors import DTypeError
from tilewright.ir.asm import (
    FlatOp,
    make,
    parse_operand_list,
    parse_signature,
    print_attrs,
    print_operands,
    print_signature,
    resolve,
)
from tilewright.ir.attrs import STR
from tilewright.ir.effect_traits import Accesses
from tilewright.ir.types import (
    bit_width,
    element_type,
    i1,
    i32,
    is_float,
    pointer_type,
    tile_type,
    with_element,
)
from tilewright.ops.dims import lanewise
from tilewright.ops.memory import expect, load_elements, padded, pointee_tile, store_elements
from tilewright.ops.spec import Array, Call, OpSpec, Sample, register

KINDS = ("and", "or", "xor", "add", "fadd", "max", "min", "umax", "umin", "exch")
_NARROW = ("fadd", "max", "min", "umax", "umin")  # what elements of 16 bits take too
SEMANTICS = ("relaxed", "acquire", "release", "acq_rel")
SCOPES = ("gpu", "cta", "sys")


class _AtomicOp(FlatOp):
    """`op word, word, %a, %b : (T, U) -> V`; the words are the properties listed in `WORDS`."""

    WORDS: ClassVar[tuple[tuple[str, tuple[str, ...]], ...]]

    @classmethod
    def parse(cls, parser: Parser) -> _AtomicOp:
        words: dict[str, Attribute] = {}
        for name, allowed in cls.WORDS:
            word = parser.parse_identifier()
            if word not in allowed:
                parser.raise_error(f"{name} of {cls.name} is one of {', '.join(allowed)}, not {word}")
            words[name] = StringAttr(word)
            parser.parse_punctuation(",")
        operands = parse_operand_list(parser)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        inputs, outputs = cls._parse_types(parser, len(operands))
        return make(cls, resolve(parser, operands, inputs), outputs, attributes, words)

    @classmethod
    def _parse_types(cls, parser: Parser, count: int) -> tuple[list[Attribute], list[Attribute]]:
        return parse_signature(parser)

    def print(self, printer: Printer) -> None:
        values = self.attr_values()
        for name, _ in self.WORDS:
            printer.print_string(f" {values[name]},")
        printer.print_string(" ")
        print_operands(printer, self.operands)
        print_attrs(printer, self, [name for name, _ in self.WORDS])
        printer.print_string(" : ")
        self._print_types(printer)

    def _print_types(self, printer: Printer) -> None:
        print_signature(printer, self.operand_types, self.result_types)


@irdl_op_definition
class AtomicRMWOp(_AtomicOp):
    """Combine a value into memory and return what was there; operands: ptr, val, then mask."""

    name = "tt.atomic_rmw"
    WORDS: ClassVar = (("atomic_rmw_op", KINDS), ("sem", SEMANTICS), ("scope", SCOPES))
    ATTRS: ClassVar = {"atomic_rmw_op": STR, "sem": STR, "scope": STR}
    ptr = operand_def()
    val = operand_def()
    masked = var_operand_def()
    result = result_def()
    atomic_rmw_op = prop_def()
    sem = prop_def()
    scope = prop_def()
    traits = traits_def(Accesses(reads=True, writes=True, atomic=True))

    @property
    def mask(self) -> SSAValue | None:
        return self.operands[2] if len(self.operands) > 2 else None


@irdl_op_definition
class AtomicCASOp(_AtomicOp):
    """Store `val` where memory holds `cmp`, and return what was there."""

    name = "tt.atomic_cas"
    WORDS: ClassVar = (("sem", SEMANTICS), ("scope", SCOPES))
    ATTRS: ClassVar = {"sem": STR, "scope": STR}
    ptr = operand_def()
    cmp = operand_def()
    val = operand_def()
    result = result_def()
    sem = prop_def()
    scope = prop_def()
    traits = traits_def(Accesses(reads=True, writes=True, atomic=True))


@irdl_op_definition
class AtomicLoadOp(_AtomicOp):
    """Read memory with a memory order; operands: ptr, then mask."""

    name = "tt.atomic_load"
    WORDS: ClassVar = (("sem", SEMANTICS), ("scope", SCOPES))
    ATTRS: ClassVar = {"sem": STR, "scope": STR}
    ptr = operand_def()
    masked = var_operand_def()
    result = result_def()
    sem = prop_def()
    scope = prop_def()
    traits = traits_def(Accesses(reads=True, atomic=True, ordered=lambda op: True))

    @property
    def mask(self) -> SSAValue | None:
        return self.operands[1] if len(self.operands) > 1 else None


@irdl_op_definition
class AtomicStoreOp(_AtomicOp):
    """Write memory with a memory order; operands: ptr, value, then mask."""

    name = "tt.atomic_store"
    WORDS: ClassVar = (("sem", SEMANTICS), ("scope", SCOPES))
    ATTRS: ClassVar = {"sem": STR, "scope": STR}
    ptr = operand_def()
    value = operand_def()
    masked = var_operand_def()
    sem = opt_prop_def()
    scope = opt_prop_def()
    traits = traits_def(Accesses(writes=True, atomic=True))

    @property
    def mask(self) -> SSAValue | None:
        return self.operands[2] if len(self.operands) > 2 else None

    @classmethod
    def _parse_types(cls, parser: Parser, count: int) -> tuple[list[Attribute], list[Attribute]]:
        pointer = parser.parse_type()
        return [pointer, pointee_tile(pointer), with_element(pointer, i1)][:count], []

    def _print_types(self, printer: Printer) -> None:
        printer.print_attribute(self.ptr.type)


# --- type rules ----------------------------------------------------------------------------------------------


def _infer_rmw(call: Call) -> Sequence[Attribute]:
    pointer, val, mask = padded(call.operand_types, 3)
    assert pointer is not None
    value = pointee_tile(pointer)
    kind, element = call.attrs["atomic_rmw_op"], element_type(value)
    expect("value of tt.atomic_rmw", val, value)
    expect("mask of tt.atomic_rmw", mask, with_element(pointer, i1))
    if kind != "exch" and is_float(element) != (kind == "fadd"):
        raise DTypeError(f"tt.atomic_rmw {kind} does not take elements of type {element}")
    if bit_width(element) < (16 if kind in _NARROW else 32):
        raise DTypeError(f"tt.atomic_rmw {kind} does not take elements of {bit_width(element)} bits")
    return (value,)


def _infer_cas(call: Call) -> Sequence[Attribute]:
    pointer, cmp, val = call.operand_types
    value = pointee_tile(pointer)
    expect("cmp of tt.atomic_cas", cmp, value)
    expect("val of tt.atomic_cas", val, value)
    if bit_width(element_type(value)) not in (16, 32, 64):
        raise DTypeError(f"tt.atomic_cas takes elements of 16, 32 or 64 bits, not {element_type(value)}")
    return (value,)


def _infer_load(call: Call) -> Sequence[Attribute]:
    pointer, mask = padded(call.operand_types, 2)
    assert pointer is not None
    expect("mask of tt.atomic_load", mask, with_element(pointer, i1))
    return (pointee_tile(pointer),)


def _infer_store(call: Call) -> Sequence[Attribute]:
    pointer, value, mask = padded(call.operand_types, 3)
    assert pointer is not None
    expect("value of tt.atomic_store", value, pointee_tile(pointer))
    expect("mask of tt.atomic_store", mask, with_element(pointer, i1))
    return ()


# --- references -----------------------------------------------------------------------------------------------


def _unsigned(value: Any) -> Any:
    return value.view(np.dtype(f"uint{8 * value.dtype.itemsize}"))


_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "and": lambda old, new: old & new,
    "or": lambda old, new: old | new,
    "xor": lambda old, new: old ^ new,
    "add": lambda old, new: old + new,
    "fadd": lambda old, new: old + new,
    "max": np.maximum,
    "min": np.minimum,
    "umax": lambda old, new: new if _unsigned(new) > _unsigned(old) else old,
    "umin": lambda old, new: new if _unsigned(new) < _unsigned(old) else old,
    "exch": lambda old, new: new,
}


def _update_each(
    call: Call, ptr: Array, mask: Array | None, update: Callable[[int, Array], Array | None], like: Array
) -> Array:
    """Lanes one after the other: load, let `update(lane, old)` say what to store, keep the old value."""
    flat = np.atleast_1d(ptr).reshape(-1)
    keep = np.ones(flat.shape, bool) if mask is None else np.broadcast_to(mask, np.shape(ptr)).reshape(-1)
    out = np.zeros(flat.shape, like.dtype)
    for lane in np.flatnonzero(keep):
        address = flat[lane : lane + 1]
        old = load_elements(call, address, None)
        out[lane] = old[0]
        with np.errstate(all="ignore"):
            new = update(int(lane), old)
        if new is not None:
            store_elements(call, address, np.asarray(new, like.dtype).reshape(1), None)
    return out.reshape(np.shape(ptr))


def _reference_rmw(call: Call, ptr: Array, val: Array, mask: Array | None = None) -> Array:
    combine = _COMBINE[call.attrs["atomic_rmw_op"]]
    values = np.atleast_1d(val).reshape(-1)
    return _update_each(call, ptr, mask, lambda i, old: combine(old, values[i : i + 1]), np.asarray(val))


def _reference_cas(call: Call, ptr: Array, cmp: Array, val: Array) -> Array:
    wanted, values = np.atleast_1d(cmp).reshape(-1), np.atleast_1d(val).reshape(-1)
    return _update_each(
        call,
        ptr,
        None,
        lambda i, old: values[i : i + 1] if old.tobytes() == wanted[i : i + 1].tobytes() else None,
        np.asarray(val),
    )


def _reference_load(call: Call, ptr: Array, mask: Array | None = None) -> Array:
    return load_elements(call, ptr, mask)


def _reference_store(call: Call, ptr: Array, value: Array, mask: Array | None = None) -> None:
    store_elements(call, ptr, value, mask)


# --- samples: mistakes; what a good call does depends on memory, which tests of the back ends provide --------------


def _bad(attrs: dict[str, str], types: Sequence[Attribute], error: str) -> Sample:
    return Sample(tuple(np.zeros(8) for _ in types), tuple(types), attrs, error=error)


_POINTERS, _INTS, _FLOATS = (tile_type((8,), t) for t in (pointer_type(i32), i32, f32))
_ORDER = {"sem": "acq_rel", "scope": "gpu"}


def _samples_rmw(rng: np.random.Generator) -> Iterable[Sample]:
    yield _bad({"atomic_rmw_op": "add", **_ORDER}, (_POINTERS, _FLOATS), "value of tt.atomic_rmw has type")
    yield _bad({"atomic_rmw_op": "fadd", **_ORDER}, (_POINTERS, _INTS), "does not take elements of type i32")
    yield _bad({"atomic_rmw_op": "add", **_ORDER}, (_INTS, _INTS), "a pointer or a tile of pointers")


def _samples_cas(rng: np.random.Generator) -> Iterable[Sample]:
    yield _bad(_ORDER, (_POINTERS, _INTS, _FLOATS), "val of tt.atomic_cas has type")
    yield _bad(_ORDER, (_POINTERS, tile_type((4,), i32), _INTS), "has shape [4] where [8]")


def _samples_load(rng: np.random.Generator) -> Iterable[Sample]:
    yield _bad(_ORDER, (_POINTERS, _INTS), "mask of tt.atomic_load has type")


def _samples_store(rng: np.random.Generator) -> Iterable[Sample]:
    yield _bad(_ORDER, (_POINTERS, _FLOATS), "value of tt.atomic_store has type")


def adds(op: Operation) -> bool:
    """Whether an operation is an atomic sum."""
    return isinstance(op, AtomicRMWOp) and op.attr_values()["atomic_rmw_op"] in ("add", "fadd")


def exchanges(op: Operation) -> bool:
    """Whether an operation writes a value in place of another, whatever that was."""
    return isinstance(op, AtomicRMWOp) and op.attr_values()["atomic_rmw_op"] == "exch"


def _spec(op: type[FlatOp], infer: Any, reference: Any, samples: Any, summary: str) -> None:
    register(OpSpec(op, infer, reference, samples, summary=summary, dims=lanewise))


_spec(AtomicRMWOp, _infer_rmw, _reference_rmw, _samples_rmw, "combine into memory, return the old value")
_spec(AtomicCASOp, _infer_cas, _reference_cas, _samples_cas, "compare and swap, return the old value")
_spec(AtomicLoadOp, _infer_load, _reference_load, _samples_load, "read memory with a memory order")
_spec(AtomicStoreOp, _infer_store, _reference_store, _samples_store, "write memory with a memory order")
