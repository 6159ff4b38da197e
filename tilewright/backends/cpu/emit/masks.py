"""How far a loop may run without masks: the chunks in which all masks of a group are known to be true.

Masks that are conjunctions of comparisons `affine < affine` give a bound on the innermost loop; up to it the chunks are
emitted without masks, the rest with them. Masked stores cost several times a plain one on some CPUs (Zen 4 and 5), and
become branches where there is no AVX-512. A bound from below, `place >= 1`, holds from some chunk on.
What is read from memory for each row, `column < lengths[row]`, is part of a bound as a number of that row. A scalar
that masks all elements, `program < n`, is tested once: masked loads that miss the caches take longer than plain ones
even where all lanes are wanted (Zen 5: 740 µs to sum 16 MiB from memory, 400 without masks).

    begin = the first chunk in which bounds from below hold; 0 without any
    limit = whole chunks below the smallest bound, none if a scalar does not hold
    for chunk = 0 .. begin:        masked loads and stores
    for chunk = begin .. limit:    plain ones
    for chunk = limit .. extent:   masked ones

Where places are quotients or remainders, the plain chunks run from one change of them to the next (`quotients.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from xdsl.ir import SSAValue

from tilewright.analysis.affine import AffineAnalysis, Form, Poly, Residual
from tilewright.analysis.bounds import below_zero, is_conjunction
from tilewright.analysis.constants import constant_of
from tilewright.analysis.elements import At, operand_indices, tiles_behind
from tilewright.analysis.index import LANE, Index, pattern, sources
from tilewright.backends.cpu import tuning
from tilewright.backends.cpu.emit.clamps import Clamps
from tilewright.backends.cpu.emit.evaluator import Evaluator
from tilewright.backends.cpu.emit.quotients import Quotients, has_quotients, is_quotient
from tilewright.backends.cpu.plan.steps import Sink, Step, StoreSink
from tilewright.backends.cpu.plan.subjects import UNMASKED
from tilewright.backends.llvm.types import I32, I64, V, const, const_vector
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.effect_traits import mask_of
from tilewright.ir.types import bit_width, element_type, is_integer
from tilewright.ir.values import defining_op, is_tile
from tilewright.ops.broadcast import SplatOp
from tilewright.ops.debug import AssertOp
from tilewright.ops.elementwise import SelectOp
from tilewright.ops.memory import LoadOp


@dataclass(frozen=True, slots=True)
class Runs:
    """Chunks in which no quotient changes.

    Args:
        holds: comparisons, each at an index, that are true there.
        forms: which are negative there.
        analysis: affine forms there.
    """

    holds: frozenset[At]
    forms: list[Form]
    analysis: AffineAnalysis


class Masks:
    """The comparisons behind the masks of a group, as bounds.

    Args:
        ev: evaluator.
        step: the group.
        indices: of its chunks, one for each side (`plan/sides.py`).
        dim: of the innermost loop, -1 if there is none.
        cut: whether that loop may be cut where quotients change.

    Attributes:
        holds: comparisons, each at an index, that are true in every chunk below `limit`.
        forms: which are negative there.
        complete: whether these are all comparisons that there are.
        scalars: masks of all elements that are true there.
        bounds: the comparisons of which there is a form, each with it.
        analysis: affine forms of what is computed there, if they are others than elsewhere.
        runs: chunks among them in which no quotient changes, if there are quotients.
    """

    def __init__(self, ev: Evaluator, step: Step, indices: Sequence[Index], dim: int, *, cut: bool = False) -> None:
        self.ev, self.dim = ev, dim
        holds: list[tuple[SSAValue, Index]] = []
        comparisons, pointers = _comparisons(ev, step, indices)
        splats = [key for key in comparisons if isinstance(defining_op(key[0]), SplatOp)]
        self.scalars = [key for key in splats if comparisons[key] and ev.has_all([key[0]])]
        comparisons = {key: asked for key, asked in comparisons.items() if not isinstance(defining_op(key[0]), SplatOp)}
        answers = [(key, self._known_below(*key), asked) for key, asked in comparisons.items()]
        self.analysis: AffineAnalysis | None = None
        known = [a.plan for _, a, _ in answers if isinstance(a, Yes)]
        clamps = Clamps(ev, pointers, self._is_even, known if cut else None)
        self.runs = None
        if cut:
            unknown = [key for key, answer, asked in answers if asked and isinstance(answer, No)]
            self.runs = self._runs(clamps, pointers, unknown)
            clamps = clamps if self.runs is not None else Clamps(ev, pointers, self._is_even)
        bounds = self._with_clamps(known, clamps)
        many = len(bounds) > tuning.MASK_COMPARISONS
        for key, answer, asked in answers:
            answer = No(f"more than {tuning.MASK_COMPARISONS} bounds make up the masks") if many else answer
            if asked or isinstance(answer, Yes):
                ev.decisions.note(UNMASKED, defining_op(key[0]), answer)
            if isinstance(answer, Yes):
                holds.append(key)
        self.holds, self.forms = frozenset([*holds, *self.scalars]), [] if many else bounds
        self.bounds = {} if many else {key: a.plan for key, a, _ in answers if isinstance(a, Yes)}
        self.complete = len(holds) == len(comparisons)

    @property
    def any(self) -> bool:
        """Whether there is something to test: chunks without masks are emitted beside those with them."""
        return bool(self.forms or self.scalars)

    def _with_clamps(self, bounds: list[Form], clamps: Clamps) -> list[Form]:
        """The strictest of the bounds of masks, and of those of held places if both are few."""
        both = _strictest([*bounds, *(form for forms in clamps.bounds.values() for form in forms)])
        if not clamps.bounds or len(both) > tuning.MASK_COMPARISONS:
            return _strictest(bounds)
        for value, _ in clamps.bounds:
            self.ev.decisions.note(
                UNMASKED, defining_op(value), Yes(value, "places are looked at once for the chunks of a row")
            )
        self.analysis = clamps.analysis
        return both

    def _runs(self, clamps: Clamps, pointers: list[At], comparisons: list[At]) -> Runs | None:
        """The chunks in which no quotient of an address, or of what masks compare, changes."""
        compared = [operand for key in comparisons for operand in operand_indices(*key)]
        compared = [(value, at) for value, at in compared if is_integer(element_type(value.type))]
        wanted = [*pointers, *compared]
        if not has_quotients(wanted, clamps.analysis if clamps.bounds else self.ev.analysis):
            return None
        found = Quotients(self.ev, self.dim, wanted, clamps.analysis, self._suits_a_run)
        answers = [(key, self._known_below(*key, found.analysis, found.facts)) for key in comparisons]
        holds = {key: answer.plan for key, answer in answers if isinstance(answer, Yes)}
        bounds = _strictest([*found.bounds, *holds.values()])
        if not found.bounds or len(bounds) > tuning.MASK_COMPARISONS:
            return None
        for value in [*found.values, *(key[0] for key in holds)]:
            self.ev.decisions.note(
                UNMASKED,
                defining_op(value),
                Yes(value, "looked at once for the elements up to where a quotient changes"),
            )
        return Runs(frozenset(holds), bounds, found.analysis)

    def _suits_a_run(self, form: Form) -> bool:
        return self._is_of_a_row(form) and self._is_even(form)

    def _is_even(self, form: Form) -> bool:
        return self._is_known(form) and self._changes_evenly(form)

    def _known_below(
        self, value: SSAValue, at: Index, analysis: AffineAnalysis | None = None, negative: Sequence[Form] = ()
    ) -> Answer[Form]:
        """The form that a part of a mask says is negative, if it changes evenly along the innermost loop."""
        analysis = analysis or self.ev.analysis
        answer = below_zero(value, at, analysis, "(i < m) & (j < n)", of_rows=True, negative=negative)
        if isinstance(answer, No):
            return answer
        if not self._is_of_a_row(answer.plan):
            return No("what the mask compares is not affine in the element's place", defining_op(value))
        if not self._is_known(answer.plan):
            return No("what is compared grows by a number that only the launch knows")
        if not self._changes_evenly(answer.plan):
            return No("its bound does not change evenly along the loop")
        return Yes(answer.plan, "tested once for the chunks of a row")

    def _is_of_a_row(self, form: Form) -> bool:
        """Whether what a form has that is not affine are a number or two that are the same all along the loop.

        A sum of more could saturate to both sides, multiples of it overflow (`_with_row`).
        """
        own = {self.dim, LANE}
        return not form.residual or (
            len(form.residual) <= 2
            and self._stride(form, self.dim) in (-1, 0, 1)
            and all(s.constant in (1, -1) or is_quotient(value) for value, _, s in form.residual)
            and all(own.isdisjoint(sources(index)) for _, index, _ in form.residual)
        )

    def _is_known(self, form: Form) -> bool:
        """Whether a form is made of what is computed already, and grows in known steps along the innermost loop and the
        lanes."""
        own = (self.dim, LANE)
        return self.ev.has(form) and all(
            stride.constant is not None or not any(field.src in own for field in coord)
            for coord, stride in form.coords.items()
        )

    def _changes_evenly(self, form: Form) -> bool:
        return _bounds(form, self.dim, self.ev.nest.bits.get(self.dim, 0))

    def settle(self, form: Form) -> frozenset[At]:
        """Take a form for negative, as a loop ends where it is not; the comparisons that are true by that."""
        self.forms = [other for other in self.forms if other != form]
        return frozenset(key for key, other in self.bounds.items() if other == form)

    def falling(self, step: int) -> list[Form]:
        """Bounds from below, which hold from some chunk, of `step` elements, of the innermost loop on."""
        forms = [form for form in self.forms if self._stride(form, self.dim) < 0]
        own = [[field for coord in form.coords for field in coord if field.src == self.dim] for form in forms]
        return [form for form, fields in zip(forms, own, strict=True) if all(step % (1 << f.lo) == 0 for f in fields)]

    def begin(self, forms: Iterable[Form], first: int, extent: int, step: int) -> V:
        """Where the innermost loop comes to the first chunk, of `step` elements, in which bounds from below hold.

        All other loops must be open.
        """
        f, total = self.ev.f, const(I64, first)
        for form in forms:  # chunks that start at i hold when rest + stride * i < 0
            stride, rest = self._split(form, self.dim)
            last = f.op("sdiv", f.intrinsic("smin", rest, const(I64, extent * -stride)), -stride)
            total = f.intrinsic("smax", total, f.add(last, 1))
        return self._whole_chunks(f.intrinsic("smin", total, const(I64, extent)), step)

    def limit(self, extent: int, step: int, but: Container[Form] = ()) -> V:
        """Elements of the innermost loop, a multiple of `step`, below which everything in `holds` is true.

        All other loops must be open. For groups without loops, gives `extent` or 0.

        Args:
            extent: of the loop.
            step: elements of a chunk.
            but: bounds from below that are seen to elsewhere; others must hold in the first chunk.
        """
        f = self.ev.f
        total: V = const(I64, extent)
        for condition in dict.fromkeys(self.ev.eval(*scalar) for scalar in self.scalars):
            total = f.select(condition, total, const(I64, 0))
        for form in [form for form in self.forms if form not in but]:
            stride, rest = self._split(form, self.dim)
            if stride <= 0:
                total = f.select(f.icmp("slt", rest, 0), total, const(I64, 0))
                continue
            # Chunks that start at i hold when rest + stride * i < 0.
            starts = f.sub(0, rest)
            if stride > 1:
                starts = f.op("sdiv", f.add(starts, stride - 1), stride)
            total = f.intrinsic("smin", total, starts)
        return self._whole_chunks(f.intrinsic("smax", total, const(I64, 0)), step)

    def end_of_run(self, runs: Runs, begin: V, limit: V, step: int) -> V:
        """Where the chunks in which no quotient changes end, that begin at `begin`, before `limit`."""
        f, total = self.ev.f, limit
        for form in runs.forms:
            stride, rest = self._split(form, self.dim)
            if stride > 0:
                total = f.intrinsic("smin", total, f.sub(0, rest))
            else:
                holds = f.icmp("slt", f.add(rest, f.mul(begin, stride)), 0)
                total = f.select(holds, total, begin)
        return self._whole_chunks(f.intrinsic("smax", total, begin), step)

    def by_lane(self, value: SSAValue, index: Index) -> V | None:
        """A comparison of numbers of 64 bits that grow from lane to lane by one, made of the numbers of lanes.

        Those have half as many bits, and one number of the chunk says how many lanes there are.
        """
        form = self.bounds.get((value, index))
        if form is None or bit_width(element_type(value.owner.operands[0].type)) < 64:  # type: ignore[union-attr]
            return None
        ev, f, lanes = self.ev, self.ev.f, self.ev.nest.lanes
        strides = [(pattern(coord, lanes), poly.constant) for coord, poly in form.coords.items()] if lanes else []
        varying = [(places, stride) for places, stride in strides if places is not None]
        if len(varying) != 1 or varying[0][0] != tuple(range(lanes)) or varying[0][1] not in (1, -1):
            return None
        rest = ev.bound(form.constant)
        for coord, poly in form.coords.items():
            rest = f.add(rest, f.mul(ev.coord(coord), ev.poly(poly)))
        rest = self._with_row(rest, form.residual)
        rises = varying[0][1] == 1  # lane < -rest, or lane > rest
        least, most = (-lanes, 0) if rises else (-1, lanes - 1)
        held = f.intrinsic("smin", f.intrinsic("smax", rest, const(I64, least)), const(I64, most))
        number = f.splat(f.cast("trunc", f.sub(0, held) if rises else held, I32), lanes)
        return f.icmp("slt" if rises else "sgt", const_vector(I32.vec(lanes), list(range(lanes))), number)

    def ends(self, dim: int, step: int, closed: Container[int] = ()) -> dict[tuple[SSAValue, Index], Form]:
        """The comparisons that are false in all chunks, of `step` elements, from some place of a loop on.

        They do not depend on loops that are still closed.
        """
        return {key: form for key, form in self.bounds.items() if _grows(form, dim, step, closed)}

    def end(self, forms: Iterable[Form], dim: int, step: int) -> V:
        """Elements of a loop, a multiple of `step`, from which none of these forms is negative."""
        f = self.ev.f
        total: V = const(I64, 0)
        for form in _strictest([form.times(Poly.of(-1)) for form in forms]):
            stride, rest = self._split(form, dim)  # chunks that start at i are past the end when rest + stride * i <= 0
            total = f.intrinsic("smax", total, f.op("sdiv", f.add(rest, -stride - 1), -stride))
        return self._whole_chunks(total, step)

    def outer(self, dim: int) -> dict[tuple[SSAValue, Index], Form]:
        """The comparisons that are the same all along a loop, and false from some place of a loop around it on."""
        around = [other for other in self.ev.nest.loops if other != dim]
        return {
            key: form
            for key, form in self.bounds.items()
            if any(_grows(form, other, 1 << 62, (dim,)) for other in around)
        }

    def past(self, forms: Iterable[Form]) -> V:
        """Whether none of these forms, which are the same all along the innermost loop, is negative."""
        f = self.ev.f
        rest = [self._split(form, self.dim)[1] for form in _strictest([form.times(Poly.of(-1)) for form in forms])]
        return functools.reduce(f.and_, [f.icmp("sle", most, 0) for most in rest])

    def _whole_chunks(self, elements: V, step: int) -> V:
        """The next multiple of a chunk."""
        f, total = self.ev.f, self.ev.f.add(elements, step - 1)
        return f.and_(total, -step) if step & (step - 1) == 0 else f.mul(f.op("sdiv", total, step), step)

    def _split(self, form: Form, dim: int) -> tuple[int, V]:
        """Stride along a loop that is closed, and the largest value over the lanes of everything else, which is open.

        Both of the form as often as it takes to make the stride a whole number: half of the loop's index grows by one
        half. What is rounded down there is less than that.
        """
        ev, f = self.ev, self.ev.f
        rest, own = ev.bound(form.constant), self._stride(form, dim)
        for coord, poly in form.coords.items():
            stride = poly.constant
            if stride is None:  # of a loop around the innermost one
                rest = f.add(rest, f.mul(ev.coord(coord), ev.poly(poly)))
                continue
            around = tuple([field for field in coord if field.src != dim])
            rest = f.add(rest, f.mul(ev.coord(around), stride))
            lanes = pattern(coord, ev.nest.lanes) if ev.nest.lanes else None
            if lanes is not None:
                rest = f.add(rest, max(0, stride * max(lanes)))
        return own.numerator, self._with_row(f.mul(rest, own.denominator), form.residual)

    @staticmethod
    def _stride(form: Form, dim: int) -> Fraction:
        """What a form gains from element to element along a loop."""
        strides = [(coord, poly.constant) for coord, poly in form.coords.items()]
        return sum(
            (
                stride * Fraction(1 << field.pos, 1 << field.lo)
                for coord, stride in strides
                if stride is not None
                for field in coord
                if field.src == dim
            ),
            Fraction(),
        )

    def _with_row(self, rest: V, numbers: Sequence[Residual]) -> V:
        """A sum with numbers of a row, which may be any that memory has: it saturates, and so keeps its sign."""
        ev, f = self.ev, self.ev.f
        for value, index, scale in numbers:
            number = f.cast("sext", ev.eval(value, index), I64)
            if scale.constant not in (1, -1):
                number, scale = f.mul(number, ev.poly(scale)), Poly.of(1)
            rest = f.intrinsic("sadd.sat" if scale.constant == 1 else "ssub.sat", rest, number)
        return rest


def _comparisons(
    ev: Evaluator, step: Step, indices: Sequence[Index]
) -> tuple[dict[tuple[SSAValue, Index], bool], list[tuple[SSAValue, Index]]]:
    """The parts of which the masks of a group's loads, stores and selections are conjunctions; and all its addresses.

    Each part with whether a load or store is masked by it; a selection may depend on anything.
    """
    found: dict[tuple[SSAValue, Index], bool] = {}
    stores = [sink.roots for sink in step.sinks if isinstance(sink, StoreSink)]
    said = filter(None, map(_mask, step.sinks))
    masks = [(mask, index) for mask in said for index in indices]
    selections: list[tuple[SSAValue, Index]] = []
    pointers = [(roots[0], index) for roots in stores for index in indices]

    def parts(value: SSAValue, index: Index) -> list[At]:
        if value in ev.placed:
            return []
        return operand_indices(value, index)[2 if isinstance(value.owner, LoadOp) else 0 :]

    for value, index in tiles_behind([(root, index) for root, _ in step.roots() for index in indices], parts):
        if value in ev.placed:
            continue
        if isinstance(value.owner, LoadOp):
            operands = operand_indices(value, index)
            pointers += operands[:1]
            masks += operands[1:2]
        elif isinstance(value.owner, SelectOp):
            selections += operand_indices(value, index)[:1]
    for mask in masks:
        _conjuncts(ev, mask, found, True)
    for condition in selections:
        _conjuncts(ev, condition, found, False)
    return found, pointers


def _mask(sink: Sink) -> SSAValue | None:
    """The tile that says which elements a sink is about; what an assertion says of those that hold is known."""
    if sink.op is None:
        return None
    mask = sink.roots[0] if isinstance(sink.op, AssertOp) else mask_of(sink.op)
    return mask if mask is not None and is_tile(mask) else None


def _conjuncts(
    ev: Evaluator, key: tuple[SSAValue, Index], out: dict[tuple[SSAValue, Index], bool], asked: bool
) -> None:
    """The parts of which a mask is the conjunction."""
    value, _ = key
    op = defining_op(value)
    if not is_tile(value) or value in ev.placed or op is None or constant_of(value) is not None:
        return
    if is_conjunction(op):
        for operand in operand_indices(*key):
            _conjuncts(ev, operand, out, asked)
    else:
        out[key] = out.get(key, False) or asked


def _strictest(forms: Iterable[Form]) -> list[Form]:
    """Of forms that differ by a number, the one that is negative only where all of them are."""
    found: dict[object, Form] = {}
    for form in forms:
        key = (frozenset(form.coords.items()), form.constant.without_number(), frozenset(form.residual))
        known = found.get(key)
        if known is None or known.constant.terms.get((), 0) < form.constant.terms.get((), 0):
            found[key] = form
    return list(found.values())


def _grows(form: Form, dim: int, step: int, closed: Container[int]) -> bool:
    """Whether a form is larger in each chunk along a loop, by the same number."""
    fields = [(field, by) for coord, by in form.coords.items() for field in coord]
    inner = [(field, by) for field, by in fields if field.src == dim]
    numbers = {src for _, index, _ in form.residual for src in sources(index)}
    if not inner or any(field.src in closed for field, _ in fields) or any(s == dim or s in closed for s in numbers):
        return False
    return all((by.constant or 0) > 0 and step % (1 << field.lo) == 0 for field, by in inner)


def _bounds(form: Form, dim: int, bits: int) -> bool:
    """Whether a form changes with the loop over `dim` in equal steps, all up or all down, or does not depend on it."""
    ways: set[bool] = set()
    for coord, poly in form.coords.items():
        inner = [field for field in coord if field.src == dim]
        plain = len(inner) <= 1 and all(f.width >= bits - f.lo for f in inner)
        if inner and not (plain and poly.constant):
            return False
        ways |= {poly.constant > 0 for _ in inner if poly.constant}
    return len(ways) <= 1
