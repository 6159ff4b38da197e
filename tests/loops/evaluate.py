"""The statements of a nest evaluated with numpy: what says that raising and normal forms keep the meaning of a kernel.

A range that is bound gets a new first axis, so that what was evaluated outside of it broadcasts. Sums are of float64,
operations are those of the references. What no evaluation is known of makes the arrays that it is stored to unknown.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.backends.reference.address_space import Memory
from tilewright.backends.reference.evaluate import Evaluator
from tilewright.base.minifloat import from_memory, to_memory
from tilewright.ir.types import bit_width, dtype_of, is_float, scalar_type
from tilewright.ir.walk import walk as operations
from tilewright.loops import nest as n
from tilewright.loops.closed_forms import identity_of
from tilewright.loops.products import SUMS, Combination, Term, quotient
from tilewright.loops.raising import attributes_of, region_text
from tilewright.loops.statements import Branch, Effect, Loop, Statement, Store, Update, statements_of
from tilewright.ops.casts import FPToSIOp, FPToUIOp
from tilewright.ops.elementwise import DivSIOp, MaxSIOp, MinSIOp, MulHiUIOp, RemSIOp
from tilewright.ops.function import FuncOp
from tilewright.ops.spec import Call, call_of, spec_of

Array = np.ndarray[Any, Any]
_MOST = 1 << 22  # elements of an array of an evaluation
_MOST_DIMS = 31  # iterators of numpy take 32
_OF_ANY_BITS = (DivSIOp, MaxSIOp, MinSIOp, RemSIOp)  # which nests have of numbers of 32 and 64 bits alike


class Unknown(Exception):
    """No evaluation is known."""


@dataclass(slots=True)
class Scope:
    """What ranges and carried values are.

    Args:
        ranges: their numbers, along axes of their own.
        depth: number of axes.
        carried: by range of the loop and number, the value, with last axes for the dimensions of the tile.
    """

    ranges: dict[n.Range, Array] = field(default_factory=dict)
    depth: int = 0
    carried: dict[tuple[n.Range, int], Array] = field(default_factory=dict)

    def copy(self) -> Scope:
        return Scope(dict(self.ranges), self.depth, dict(self.carried))


class Expressions:
    """Values of expressions in one program.

    Args:
        function: in tile IR.
        arrays: of the pointer arguments, by number of the argument; those of one memory are one object.
        scalars: other arguments, by number.
        grid: programs along each axis.
    """

    def __init__(
        self, function: FuncOp, arrays: Mapping[int, Array], scalars: Mapping[int, Any], grid: Sequence[int]
    ) -> None:
        self.scalars, self.grid = scalars, (*grid, 1, 1)[:3]
        self.regions = {(type(op), attributes_of(op), region_text(op)): op for op in operations(function) if op.regions}
        self.starts: dict[int, int] = {}
        self.memories: list[tuple[int, Array]] = []
        for number, array in arrays.items():
            same = [start for start, known in self.memories if known is array]
            start = same[0] if same else (len(self.memories) + 1) << 32
            self.starts[number] = start
            if not same:
                self.memories.append((start, array))
        self.unknown: dict[int, str] = {}  # by start of the memory
        self.enter((0, 0, 0))

    def enter(self, program: tuple[int, int, int]) -> None:
        """Become another program."""
        self.program = program
        self._before = {start: array.copy() for start, array in self.memories}
        self._known: dict[Any, tuple[Any, Array]] = {}

    def value(self, node: Any, scope: Scope) -> Array:
        """An expression at all numbers of the ranges of a scope."""
        here = [r for r in n.ranges_of(node) if r in scope.ranges]
        key = (node, frozenset([(r, id(scope.ranges[r])) for r in here]))
        found = self._known.get(key)
        if found is None:
            made = _METHODS.get(type(node))
            if made is None:
                raise Unknown(type(node).__name__)
            value = np.asarray(made(self, node, scope))
            if value.size > _MOST:
                raise Unknown("too many elements")
            found = self._known[key] = ([scope.ranges[r] for r in here], value)  # kept alive beside their ids
        return found[1]

    def bind(self, r: n.Range, scope: Scope) -> Array:
        """Give a range an axis; returns where it is below its extent."""
        extents = self.value(r.extent, scope)
        size = max(0, int(extents.max()) if extents.size else 0)
        if size > _MOST or scope.depth >= _MOST_DIMS:
            raise Unknown("too many elements")
        scope.ranges[r] = np.arange(size).reshape((size, *[1] * scope.depth))
        scope.depth += 1
        return scope.ranges[r] < extents

    def _poly(self, poly: n.Poly, scope: Scope) -> Array:
        total = np.asarray(0, np.int64)
        for monomial, coefficient in poly.key:
            term = np.asarray(_wrapped(coefficient, 64), np.int64)
            for atom in monomial:
                term = term * (_range(atom, scope) if isinstance(atom, n.Range) else self.value(atom.value, scope))
            total = total + term
        return total

    def _named(self, node: n.Named, scope: Scope) -> Any:
        number = int(node.name[-1]) if node.name[-1].isdigit() else 0
        if node.name.startswith("programs"):
            return self.grid[number]
        if node.name.startswith("program"):
            return self.program[number]
        number = int(node.name[3:]) if node.name.startswith("arg") else -1
        if number in self.starts:
            return self.starts[number]
        if number not in self.scalars:
            raise Unknown(node.name)
        return self.scalars[number]

    def _below(self, node: n.Below, scope: Scope) -> Array:
        return _unwrapped(self.value(node.poly, scope)) < 0

    def _every(self, node: n.Every, scope: Scope) -> Array:
        found = np.asarray(True)
        for part in node.parts:
            found = found & self.value(part, scope).astype(bool)
        return found

    def _unless(self, node: n.Unless, scope: Scope) -> Array:
        return ~self.value(node.conditions, scope)

    def _apply(self, node: n.Apply, scope: Scope) -> Array:
        if node.op is MulHiUIOp:  # random numbers, whose signs nests tell as if no product had wrapped
            raise Unknown("integers that wrap")
        if node.op in (FPToSIOp, FPToUIOp) and not isinstance(node.operands[0], n.Load):
            raise Unknown("an integer of a float that is rounded")  # which those of nests are not
        made = node.type if node.types or node.op not in _OF_ANY_BITS else "i64"
        types = [scalar_type(name) for name in (node.types or (made,) * len(node.operands)) if name != "ptr"]
        if len(types) != len(node.operands):
            raise Unknown("pointers as operands")
        operands = [_working(self.of_type(o, t, scope), t) for o, t in zip(node.operands, types, strict=True)]
        call = Call(dict(node.attributes), tuple(types), (scalar_type(made),))
        reference = spec_of(node.op).reference
        if reference is None:
            raise Unknown(node.op.name)
        return _free(np.asarray(reference(call, *np.broadcast_arrays(*operands))))

    def of_type(self, node: n.Node, type_: Any, scope: Scope) -> Array:
        """An expression where a value of this type is asked for, of which a sum may have been narrower."""
        found = self.value(node, scope)
        wide = not is_float(type_) and bit_width(type_) == 64 and isinstance(node, n.Poly)
        return _unwrapped(found) if wide and not all(map(_is_wide, node.atoms)) else found

    def _select(self, node: n.Select, scope: Scope) -> Array:
        return np.where(
            self.value(node.condition, scope), self.value(node.then, scope), self.value(node.otherwise, scope)
        )

    def _load(self, node: n.Load, scope: Scope) -> Array:
        if node.epoch:
            raise Unknown("a load behind a store")
        addresses = self.value(node.base, scope) + self.value(node.offset, scope)
        type_ = dtype_of(scalar_type(node.type))
        size = np.dtype(type_.memory_dtype).itemsize
        out = np.full(
            addresses.shape, np.nan if type_.is_floating() else 77, np.float64 if type_.is_floating() else np.int64
        )
        for start, array in self.memories:
            mine = (addresses >= start) & (addresses < start + array.nbytes) & ((addresses - start) % size == 0)
            if mine.any():
                if start in self.unknown:
                    raise Unknown(self.unknown[start])
                flat = _elements(self._before[start], type_.memory_dtype)
                out[mine] = _free(from_memory(flat[(addresses[mine] - start) // size], type_))
        return out != 0 if type_.is_bool() else out

    # --- reductions --------------------------------------------------------------------------------------

    def _combination(self, node: Combination, scope: Scope) -> Array:
        parts = [self._term(node, term, scope) for term in node.terms]
        found = parts[0] if parts else np.asarray(0.0)
        for part in parts[1:]:
            found = _joined(node, found, part)
        return _unwrapped(found)

    def _term(self, node: Combination, term: Term, scope: Scope) -> Array:
        outside, scope = scope.depth, scope.copy()
        masks = [self.bind(r, scope) for r in term.ranges]
        masks.append(self.value(term.condition, scope))
        made: Any = np.asarray(term.coefficient)
        numerators, divisors = quotient(term)
        for factor in numerators:
            made = made * self.value(factor, scope) if made.ndim or made != 1 else self.value(factor, scope)
        for divisor in divisors:
            made = made / self.value(divisor, scope)
        zero = 0 if node.monoid in SUMS else _identity(node)
        made = np.where(np.all(np.broadcast_arrays(*masks), axis=0), made, zero)
        sizes = [scope.ranges[r].shape[0] for r in reversed(term.ranges)]
        made = _padded(made, scope.depth) if sizes else made
        made = np.broadcast_to(made, (*sizes, *made.shape[len(sizes) :]))
        if made.size > _MOST:
            raise Unknown("too many elements")
        for _ in sizes:
            made = _reduced(node, made, zero)
        return made.reshape(made.shape[made.ndim - outside :]) if made.ndim > outside else made

    # --- recurrences and opaque operations ----------------------------------------------------------------

    def begin(self, scope: Scope, iteration: n.Range, parts: Sequence[Any]) -> None:
        for number, dims, first, _ in parts:
            scope.carried[iteration, number] = self._tile(first, dims, scope)

    def following(self, scope: Scope, iteration: n.Range, parts: Sequence[Any]) -> dict[Any, Array]:
        return {(iteration, number): self._tile(following, dims, scope) for number, dims, _, following in parts}

    def _tile(self, node: n.Node, dims: n.Index, scope: Scope) -> Array:
        """A value with its last axes for the dims of a tile, in order, behind those of a scope."""
        outside, scope = scope.depth, scope.copy()
        for dim in dims:
            if dim is not n.ZERO:
                self.bind(n.range_of(dim), scope)
        made = _padded(self.value(node, scope), scope.depth)
        bound = [scope.ranges[n.range_of(dim)].shape[0] for dim in reversed(dims) if dim is not n.ZERO]
        made = np.broadcast_to(made, (*bound, *made.shape[len(bound) :]))
        made = np.moveaxis(made, range(len(bound)), range(made.ndim - 1, made.ndim - 1 - len(bound), -1))
        sizes = [1 if dim is n.ZERO else scope.ranges[n.range_of(dim)].shape[0] for dim in dims]
        return made.reshape((*made.shape[:outside], *sizes))

    def _picked(self, tile: Array, index: Sequence[n.Poly], scope: Scope) -> Array:
        """The elements at an index of a tile that has its own axes behind those of a scope."""
        depth = tile.ndim - len(index)
        sizes = tile.shape[depth:]
        places = [np.clip(self.value(p, scope), 0, size - 1) for p, size in zip(index, sizes, strict=True)]
        around = [np.arange(s).reshape((s, *[1] * (depth - 1 - axis))) for axis, s in enumerate(tile.shape[:depth])]
        return np.asarray(tile[(*around, *places)])

    def _element(self, node: n.Element, scope: Scope) -> Array:
        return self._picked(self._tile(node.tile.body, node.tile.dims, scope), node.index, scope)

    def _carried(self, node: n.Carried, scope: Scope) -> Array:
        found = scope.carried.get((node.iteration, node.number))
        if found is None:
            raise Unknown("carried outside of its loop")
        return self._picked(found, node.index, scope)

    def _recurrence(self, node: n.Recurrence, scope: Scope) -> Array:
        extents = self.value(node.iteration.extent, scope)
        if extents.size != 1 and extents.min() != extents.max():
            raise Unknown("a recurrence of different lengths")
        inside = scope.copy()
        self.begin(inside, node.iteration, node.parts)
        for k in range(int(extents.max())):
            inside.ranges[node.iteration] = np.asarray(k)
            inside.carried.update(self.following(inside, node.iteration, node.parts))
        return self._picked(inside.carried[node.iteration, node.number], node.index, scope)

    def _opaque(self, node: n.Opaque, scope: Scope) -> Array:
        attributes = tuple([pair for pair in node.attributes if pair[0] != "does"])
        op = self.regions.get((node.op, attributes, dict(node.attributes).get("does")))
        reference = spec_of(node.op).reference
        if op is None or reference is None or len(op.operands) != len(node.operands):
            raise Unknown(node.op.name)
        if not all(isinstance(operand, n.Tile) for operand in node.operands):
            raise Unknown(node.op.name)
        tiles = [self._tile(o.body, o.dims, scope) for o in node.operands]  # type: ignore[attr-defined]
        around = tiles[0].ndim - len(node.operands[0].dims)  # type: ignore[attr-defined]
        shape = tiles[0].shape[around:]
        if any(len(o.dims) != len(shape) for o in node.operands):  # type: ignore[attr-defined]
            raise Unknown(node.op.name)
        tiles = list(np.broadcast_arrays(*tiles))
        evaluator = Evaluator.__new__(Evaluator)
        evaluator.functions, evaluator.memory = {}, Memory()
        regions = tuple([evaluator._combine(region.block, {}, None) for region in op.regions])  # type: ignore[arg-type]
        flat = [tile.reshape((-1, *shape)) for tile in tiles]
        rows = []
        for row in range(len(flat[0])):
            given = [_working(f[row], o.type.element_type) for f, o in zip(flat, op.operands, strict=True)]  # type: ignore[attr-defined]
            made = reference(call_of(op, regions=regions), *given)  # type: ignore[arg-type]
            rows.append(_free(np.asarray(made[node.number] if isinstance(made, tuple) else made)))
        result = np.stack(rows)
        result = result.reshape((*tiles[0].shape[:around], *result.shape[1:]))
        return self._picked(result, node.index, scope)


def _unwrapped(value: Array) -> Array:
    """An integer that has 32 bits in the program, perhaps; nests take those not to wrap."""
    if value.dtype.kind == "i" and value.size and (value.min() < -(1 << 31) or value.max() >= 1 << 31):
        raise Unknown("integers that wrap")
    return value


def _is_wide(atom: n.Atom) -> bool:
    return isinstance(atom, n.Range) or getattr(atom.value, "type", "") == "i64"


def _elements(array: Array, dtype: Any) -> Array:
    data = array.reshape(-1).view(np.uint8)
    return data[: data.size // np.dtype(dtype).itemsize * np.dtype(dtype).itemsize].view(dtype)


def _joined(node: Combination, x: Array, y: Array) -> Array:
    if node.monoid in SUMS:
        return x + y
    type_ = scalar_type(node.type)
    x, y = np.broadcast_arrays(_working(x, type_), _working(y, type_))
    reference = spec_of(node.monoid).reference
    assert reference is not None
    return _free(np.asarray(reference(Call({}, (type_, type_), (type_,)), x, y)))


def _reduced(node: Combination, made: Array, zero: Any) -> Array:
    if node.monoid in SUMS:
        return made.sum(axis=0)
    if not len(made):
        return np.full(made.shape[1:], zero)
    while len(made) > 1:
        even = len(made) // 2 * 2
        made = np.concatenate([_joined(node, made[0:even:2], made[1:even:2]), made[even:]])
    return made[0]


def _range(r: n.Range, scope: Scope) -> Array:
    if r not in scope.ranges:
        raise AssertionError("a range that nothing binds")
    return scope.ranges[r]


def _number(node: n.Number) -> Any:
    return node.text == "True" if node.type == "i1" else float(node.text)


def _identity(node: Combination) -> Any:
    value = identity_of(node.monoid, node.type)
    return value.constant if isinstance(value, n.Poly) else _number(value)  # type: ignore[arg-type]


class Nest:
    """A kernel as the statements of its nest.

    Args:
        function: in tile IR.
        arrays: of the pointer arguments, by number of the argument; those of one memory are one object.
        scalars: other arguments, by number.
        grid: programs along each axis.
    """

    def __init__(
        self, function: FuncOp, arrays: Mapping[int, Array], scalars: Mapping[int, Any], grid: Sequence[int]
    ) -> None:
        self.statements = statements_of(function)
        self._e = Expressions(function, arrays, scalars, grid)

    @property
    def unknown(self) -> dict[int, str]:
        """Why memories are not known, by their starts."""
        return self._e.unknown

    def run(self) -> None:
        """Run all programs in order; the arrays change."""
        for z, y, x in itertools.product(*[range(size) for size in reversed(self._e.grid)]):
            self._e.enter((x, y, z))
            with np.errstate(all="ignore"):
                self._do(self.statements, Scope())

    def is_known(self, number: int) -> bool:
        """Whether the array of an argument is what the kernel makes of it."""
        return self._e.starts[number] not in self._e.unknown

    # --- statements --------------------------------------------------------------------------------------

    def _do(self, statements: Sequence[Statement], scope: Scope) -> None:
        for statement in statements:
            try:
                self._statement(statement, scope)
            except Unknown as reason:
                self._lose(statement, str(reason))

    def _statement(self, statement: Statement, scope: Scope) -> None:
        if isinstance(statement, Store):
            self._store(statement, scope)
        elif isinstance(statement, Update):
            self._update(statement, scope)
        elif isinstance(statement, Loop):
            self._loop(statement, scope)
        elif isinstance(statement, Branch):
            self._do(statement.then if bool(self._e.value(statement.condition, scope)) else statement.otherwise, scope)
        else:
            raise Unknown(type(statement).__name__)

    def _lose(self, statement: Statement, why: str) -> None:
        """Nothing is known of what a statement writes."""
        if isinstance(statement, (Store, Update)):
            self._lose_array(statement.target.base, why)
        elif isinstance(statement, Effect):
            for operand in statement.operands:
                self._lose_array(operand, why)
        elif isinstance(statement, Branch):
            for inner in (*statement.then, *statement.otherwise):
                self._lose(inner, why)
        else:
            for inner in statement.body:
                self._lose(inner, why)

    def _lose_array(self, base: n.Node, why: str) -> None:
        numbers = [int(p.name[3:]) for p in n.walk(base) if isinstance(p, n.Named) and p.name.startswith("arg")]
        starts = [self._e.starts[number] for number in numbers if number in self._e.starts]
        for start in starts or self._e.starts.values():
            self._e.unknown.setdefault(start, why)

    def _loop(self, statement: Loop, scope: Scope) -> None:
        extent = int(self._e.value(statement.iteration.extent, scope))
        scope = scope.copy()
        self._e.begin(scope, statement.iteration, statement.carried)
        for k in range(extent):
            scope.ranges[statement.iteration] = np.asarray(k)
            following = self._e.following(scope, statement.iteration, statement.carried)
            self._do(statement.body, scope)
            scope.carried.update(following)

    def _where(self, statement: Store | Update, scope: Scope) -> tuple[Array, Array, Array]:
        """Addresses, values and mask of the elements that are written."""
        scope = scope.copy()
        masks = [self._e.bind(r, scope) for r in statement.ranges]
        masks.append(self._e.value(statement.condition, scope))
        target = statement.target
        parts = [
            self._e.value(target.base, scope) + self._e.value(target.offset, scope),
            self._e.of_type(statement.value, scalar_type(statement.target.type), scope),
            np.all(np.broadcast_arrays(*masks), axis=0),
        ]
        shape = tuple([scope.ranges[r].shape[0] for r in reversed(statement.ranges)])
        return tuple([np.broadcast_to(_padded(p, len(shape)), shape) for p in parts])  # type: ignore[return-value]

    def _store(self, statement: Store, scope: Scope) -> None:
        addresses, values, mask = self._where(statement, scope)
        type_ = dtype_of(scalar_type(statement.target.type))
        if type_.is_bool():
            made = values.astype(np.int8)
        elif type_.is_floating():
            made = np.asarray(to_memory(values.astype(type_.work_dtype), type_)).astype(type_.memory_dtype)
        else:
            made = values.astype(np.int64).astype(type_.memory_dtype)
        for start, array in self._e.memories:
            mine = mask & (addresses >= start) & (addresses < start + array.nbytes)
            flat = _elements(array, made.dtype)
            flat[(addresses[mine] - start) // made.itemsize] = made[mine]
            mask = mask & ~mine
        if mask.any():
            raise Unknown("a store outside of all arrays")

    def _update(self, statement: Update, scope: Scope) -> None:
        addresses, values, mask = self._where(statement, scope)
        type_ = dtype_of(scalar_type(statement.target.type))
        combine = {"add": np.add, "fadd": np.add, "max": np.maximum, "min": np.minimum}.get(statement.how)
        if combine is None or type_.memory_dtype != type_.work_dtype:
            raise Unknown(f"atomic {statement.how}")
        for start, array in self._e.memories:
            flat = _elements(array, type_.memory_dtype)
            mine = mask & (addresses >= start) & (addresses < start + array.nbytes)
            combine.at(flat, (addresses[mine] - start) // flat.itemsize, values[mine].astype(flat.dtype))


def _padded(value: Array, depth: int) -> Array:
    return value.reshape((*[1] * (depth - value.ndim), *value.shape))


def _wrapped(value: int, bits: int) -> int:
    return (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))


def _working(value: Array, type_: Any) -> Array:
    """A value in the form that references take."""
    value = np.asarray(value)
    if is_float(type_):
        return value.astype(dtype_of(type_).work_dtype)
    bits = bit_width(type_)
    if bits == 1:
        return value.astype(dtype_of(type_).work_dtype)
    value = value.astype(np.int64)
    if bits < 64:
        value = (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
    return value.astype(dtype_of(type_).work_dtype)


def _free(value: Array) -> Array:
    """A value in the form of evaluations."""
    value = np.asarray(value)
    if value.dtype == np.bool_:
        return value
    return value.astype(np.float64 if value.dtype.kind == "f" else np.int64)


_METHODS: dict[type, Any] = {
    n.Poly: Expressions._poly,
    n.Number: lambda _, node, scope: _number(node),
    n.Named: Expressions._named,
    n.Below: Expressions._below,
    n.Every: Expressions._every,
    n.Unless: Expressions._unless,
    n.Apply: Expressions._apply,
    n.Select: Expressions._select,
    n.Load: Expressions._load,
    n.Carried: Expressions._carried,
    n.Recurrence: Expressions._recurrence,
    n.Opaque: Expressions._opaque,
    n.Element: Expressions._element,
    Combination: Expressions._combination,
}
