"""`OpSpec`: the record that holds everything the compiler knows about one operation.

The registry of specs is what the front end, the verifier, the reference, the analyses,
the back ends and the generated tests all read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from xdsl.ir import Attribute, Operation

from tilewright.base.errors import InternalError
from tilewright.ir.op import TileOp
from tilewright.ir.traits import Lanewise
from tilewright.ops.dims import Dims, lanewise

Array = np.ndarray[Any, Any]
Combine = Callable[..., tuple[Array, ...]]


class Machine(Protocol):
    """What a reference needs of its surroundings: the program's place in the grid, and memory."""

    def program_id(self, axis: int) -> int: ...
    def num_programs(self, axis: int) -> int: ...
    def load(self, addresses: Array, dtype: np.dtype[Any], mask: Array | None) -> Array: ...
    def store(self, addresses: Array, values: Array, mask: Array | None) -> None: ...
    def print(self, text: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Call:
    """One application of an operation, as its `infer` and `reference` see it.

    Args:
        attrs: attributes as Python values.
        operand_types: IR types of the operands, `None` for an optional one left out.
        result_types: IR types of the results; for `infer`, those that the caller asks for (may be empty).
        regions: the bodies as functions from arrays to arrays, elementwise over arrays of any shape.
        machine: surroundings of the evaluation; absent when folding.
    """

    attrs: Mapping[str, Any] = field(default_factory=dict)
    operand_types: tuple[Attribute | None, ...] = ()
    result_types: tuple[Attribute, ...] = ()
    regions: tuple[Combine, ...] = ()
    machine: Machine | None = None


# --- samples for generated tests ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sample:
    """A small case of an op for the generated tests.

    Args:
        operands: arrays in the working form of `operand_types` (see `base.dtypes`); () shaped for scalars.
        operand_types: IR types.
        attrs: attributes.
        result_types: needed where `infer` cannot tell them (casts, splat).
        region: text of a combine body for ops with one, e.g. "arith.addf"; applied pairwise.
        max_ulp: allowed difference to the reference in units in the last place; 0 means bit-exact (NaN equals NaN).
        error: substring of the error expected instead of a result.
    """

    operands: tuple[Array | None, ...]
    operand_types: tuple[Attribute | None, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    result_types: tuple[Attribute, ...] = ()
    region: str | None = None
    max_ulp: float = 0
    error: str | None = None


Infer = Callable[[Call], Sequence[Attribute]]
Reference = Callable[..., Any]
Facts = Callable[..., Any]
Samples = Callable[["np.random.Generator"], Iterable[Sample]]  # as text: numpy loads its random module when it is asked
Vjp = Callable[..., Sequence[Any]]


@dataclass(frozen=True, slots=True)
class NoGradient:
    """Why no gradient flows back through an operation.

    Args:
        reason: what stands after "no gradient flows through ...:".
        hint: what to write instead.
    """

    reason: str
    hint: str


@dataclass(frozen=True, slots=True)
class Monoid:
    """An operation on two elements that is associative (floats: but for rounding) and has a neutral element.

    Args:
        identity: the neutral element of integers of so many bits, or, whatever the number, of floats that are not NaN.
        commutes: exchanging the operands changes no bit of the result.
        idempotent: an element and itself make that element.
    """

    identity: Callable[[int], int | float]
    commutes: bool = True
    idempotent: bool = False


@dataclass(frozen=True, slots=True)
class OpSpec:
    """Everything the compiler knows about one operation.

    Args:
        op: the xDSL class (text form, operands, effects).
        infer: result types from a `Call`; raises `ShapeError`/`DTypeError` on operands that do not fit.
        reference: ``reference(call, *operand_arrays) -> array | tuple of arrays | None`` in working forms.
        samples: random cases and bad cases for the generated tests.
        facts: transfer function of the axis analysis: ``facts(op, operand_facts) -> result facts``; default unknown.
        fold: ``fold(op, constants) -> value | None``: simplification to an operand or constant; the constant folder
            proper uses `reference` and needs nothing here.
        summary: one line for the documentation.
        elementwise: of an operation that acts on its operands element by element: the name under which back ends know
            what it does to one ("addi", "fp_to_fp"); "" for others. An operand has the
            shape of the result, or is a scalar that serves every element.
        monoid: of an operation that reductions and scans may regroup.
        vjp: how gradients of the results become gradients of the operands: ``vjp(reverse) -> one for each operand``,
            with `ops.reverse.Reverse`, `None` for an operand that gets none; or why there is none. An operation on
            floats has one of the two, but for memory and control flow, which `gradients/` knows.
        ring: of an operation on integers that is a sum, a difference, a product or a copy until it wraps: the same of
            numbers of Python, or of anything else that can be added and multiplied.
        dims: which dims of its tiles an operation goes through together: ``dims(op) -> Dims``, None where nothing is
            to be said of them. Elementwise operations need none.
    """

    op: type[TileOp]
    infer: Infer
    reference: Reference | None
    samples: Samples | None = None
    facts: Facts | None = None
    fold: Callable[..., Any] | None = None
    summary: str = ""
    elementwise: str = ""
    monoid: Monoid | None = None
    vjp: Vjp | NoGradient | None = None
    ring: Callable[..., Any] | None = None
    dims: Callable[[Any], Dims | None] | None = None

    @property
    def name(self) -> str:
        return self.op.name


REGISTRY: dict[str, OpSpec] = {}


def register(spec: OpSpec) -> OpSpec:
    """Add `spec` to the registry; each op has exactly one."""
    if spec.name in REGISTRY:
        raise InternalError(f"two specs for {spec.name}")
    REGISTRY[spec.name] = spec
    return spec


def spec_of(op: Operation | type[Operation]) -> OpSpec:
    """The spec of an operation or op class."""
    return REGISTRY[op.name]


def ring_of(op: Operation | None) -> Callable[..., Any] | None:
    """What an operation computes of integers that do not wrap, in any ring; None of operations that are more."""
    spec = None if op is None else REGISTRY.get(op.name)
    return None if spec is None else spec.ring


def dims_of(op: Operation) -> Dims | None:
    """The names of the dims of the tiles of an operation; None where they are not known."""
    spec = REGISTRY.get(op.name)
    if spec is None:
        return lanewise(op) if op.has_trait(Lanewise) else None
    if spec.dims is not None:
        return spec.dims(op)
    return lanewise(op) if spec.elementwise and not op.regions else None


def call_of(op: TileOp, **surroundings: Any) -> Call:
    """The `Call` that describes an existing operation (all operands present, in order)."""
    return Call(
        attrs=op.attr_values(),
        operand_types=tuple(operand.type for operand in op.operands),
        result_types=tuple(result.type for result in op.results),
        **surroundings,
    )
