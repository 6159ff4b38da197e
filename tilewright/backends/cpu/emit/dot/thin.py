"""Products of so few rows that packing the right operand would cost more than multiplying with it.

Both operands are read where they lie and converted to f32 on the way. What runs along memory has the lanes:

B along N:  for groups of columns:  acc[i][j] = 0                    j: vectors of columns
              for k: acc[i][j] += splat(A[i, k]) * B[k, j]
              C (+)= acc
B along K:  for groups of columns:  acc[i][j] = 0                    j: columns
              for chunks of K: acc[i][j] += A[i, chunk] * B[chunk, j]      the last one masked, where K may end in it
              C (+)= sums over the lanes of acc
"""

from __future__ import annotations

from tilewright.backends.cpu.emit.dot.micro import first_lanes
from tilewright.backends.cpu.emit.dot.pack import Order
from tilewright.backends.cpu.plan.dot import ELEM, DotPlan, thin_vectors
from tilewright.backends.llvm.casts import to_working_float
from tilewright.backends.llvm.module import Function, Module
from tilewright.backends.llvm.types import F32, I1, I64, PTR, VOID, V, const, zero

_PARAMS = (PTR, I64, PTR, I64, I64, PTR, I64, I64, I64, I1)


def emit_thin(module: Module, plan: DotPlan, order: Order, *, cut: bool) -> str:
    """Define (once) the product for B along N ("mn") or along K ("k"); gives its name. Where it is `cut`, K may end
    anywhere, else behind whole vectors.

    Parameters of the emitted function: accumulator and its row stride; A with its strides along M and K; B with its
    strides along N and K; elements of K; whether the accumulator's old value is ignored.
    """
    name = f"dot.thin.{order}.k{plan.k}.{plan.name}{'.cut' * cut}"
    if module.has(name):
        return name
    f = module.function(name, VOID, _PARAMS, attrs="nounwind noinline")
    _Thin(f, plan, order, cut=cut).emit()
    f.ret()
    return name


class _Thin:
    """One function under construction."""

    def __init__(self, f: Function, plan: DotPlan, order: Order, *, cut: bool) -> None:
        self.f, self.plan, self.order, self.cut = f, plan, order, cut
        self.acc, self.acc_stride, self.a, self.a_mn, self.a_k, self.b, self.b_n, self.b_k, self.k, self.fresh = f.args
        self.a_t, self.b_t = ELEM[plan.a_dtype], ELEM[plan.b_dtype]

    def emit(self) -> None:
        """All columns: whole groups in a loop, then what is left."""
        f, plan = self.f, self.plan
        width = plan.lanes if self.order == "mn" else 1
        group = thin_vectors(plan, f.isa) * width
        body = self._across if self.order == "mn" else self._along
        if plan.n >= group:
            with f.loop(0, plan.n // group * group, group, unroll=False) as loop:
                body(loop.index, [width] * (group // width))
        if rest := _pieces(plan.n % group, width):
            body(const(I64, plan.n // group * group), rest)

    def _across(self, column: V, widths: list[int]) -> None:
        """Vectors of columns, one step of K at a time."""
        f, plan = self.f, self.plan
        starts = [sum(widths[:number]) for number in range(len(widths))]
        first = f.gep(self.b, f.mul(column, self.b_n))
        init = [zero(F32.vec(width) if width > 1 else F32) for _ in range(plan.m) for width in widths]
        with f.loop(0, self.k, init=init, unroll=False) as loop:
            row = f.gep(first, f.mul(loop.index, self.b_k))
            vectors = []
            for start, width in zip(starts, widths, strict=True):
                t = self.b_t.vec(width) if width > 1 else self.b_t
                vectors.append(to_working_float(f, f.load(t, f.gep(row, start * self.b_t.bytes), 1), plan.b_dtype))
            sums = list(loop.values)
            for i in range(plan.m):
                at = f.gep(f.gep(self.a, f.mul(self.a_mn, i)), f.mul(loop.index, self.a_k))
                number = to_working_float(f, f.load(self.a_t, at), plan.a_dtype)
                for j, vector in enumerate(vectors):
                    n = i * len(widths) + j
                    sums[n] = _multiply_add(f, f.splat(number, vector.type.lanes), vector, sums[n])
            loop.next(*sums)
        self._store(loop.results, column, starts)

    def _along(self, column: V, widths: list[int]) -> None:
        """Sums over K of single columns, in chunks of K."""
        f, lanes = self.f, self.plan.lanes_of_k
        columns = [f.gep(self.b, f.mul(f.add(column, j), self.b_n)) for j in range(len(widths))]
        rows = [f.gep(self.a, f.mul(self.a_mn, i)) for i in range(self.plan.m)]
        whole = f.op("and", self.k, const(I64, -lanes)) if self.cut else self.k
        sums = [zero(F32.vec(lanes))] * (len(rows) * len(columns))
        with f.loop(0, whole, lanes, init=sums, unroll=False) as loop:
            loop.next(*self._chunk(rows, columns, loop.index, loop.values))
        sums = loop.results
        if self.cut:
            with f.loop(whole, self.k, lanes, init=sums, unroll=False) as loop:
                mask = first_lanes(f, lanes, f.sub(self.k, loop.index))
                loop.next(*self._chunk(rows, columns, loop.index, loop.values, mask))
            sums = loop.results
        self._store([f.reduce("fadd", acc) for acc in sums], column, list(range(len(widths))))

    def _chunk(self, rows: list[V], columns: list[V], k: V, sums: list[V], mask: V | None = None) -> list[V]:
        """The sums with the products of a chunk of K, or of those of its elements that exist."""
        f, lanes = self.f, self.plan.lanes_of_k

        def read(places: list[V], source: str) -> list[V]:
            t = ELEM[source].vec(lanes)
            at = [f.gep(place, k, t.scalar) for place in places]
            if mask is None:
                return [to_working_float(f, f.load(t, place, 1), source) for place in at]
            found = [f.masked_load(t.as_int, place, mask, 1) for place in at]  # integers: all AVX-512 targets can
            return [to_working_float(f, f.cast("bitcast", value, t), source) for value in found]

        left, right = read(rows, self.plan.a_dtype), read(columns, self.plan.b_dtype)
        pairs = [(x, y) for x in left for y in right]
        return [_multiply_add(f, x, y, acc) for (x, y), acc in zip(pairs, sums, strict=True)]

    def _store(self, sums: list[V], column: V, starts: list[int]) -> None:
        """Write sums to C, or add them to it."""
        f = self.f
        first = f.gep(self.acc, column, F32)
        places = [f.gep(f.gep(first, f.mul(self.acc_stride, i)), 4 * s) for i in range(self.plan.m) for s in starts]

        def write(*, add: bool) -> None:
            for value, at in zip(sums, places, strict=True):
                f.store(f.fadd(f.load(value.type, at, 4), value) if add else value, at, 4)

        f.if_else(self.fresh, lambda: write(add=False), lambda: write(add=True))


def _pieces(columns: int, widest: int) -> list[int]:
    """Powers of two that add up, none wider than a vector."""
    out = []
    while columns:
        width = min(widest, 1 << (columns.bit_length() - 1))
        out.append(width)
        columns -= width
    return out


def _multiply_add(f: Function, x: V, y: V, z: V) -> V:
    return f.fma(x, y, z) if f.isa.has_fma else f.fadd(f.fmul(x, y), z)
