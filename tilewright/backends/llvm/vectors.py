"""Instructions that move lanes, and intrinsics that act lane by lane or across lanes.

All take and give values of any lane count; pieces of wide vectors are cut and joined with `slice`/`split`/`concat`,
which LLVM folds away when the pieces are whole registers. Horizontal sums carry `reassoc` because without it they are
serial chains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.backends.llvm.instructions import Emitter, Operand
from tilewright.backends.llvm.types import T, V, const, poison

_REDUCE_FLAGS = {"fadd": "reassoc nsz", "fmul": "reassoc nsz", "fmax": "nnan", "fmin": "nnan"}


class VectorOps(Emitter):
    """Splats, shuffles, lane access, fused multiply-add and other overloaded intrinsics."""

    def splat(self, value: V, lanes: int) -> V:
        """`value` in every lane (`lanes` 0 gives the scalar itself)."""
        if not lanes or value.type.lanes == lanes:
            return value
        t = value.type.vec(lanes)
        if value.const is not None:
            return const(t, value.const)
        one = self.emit(t, f"insertelement {t.text} poison, {value.typed}, i64 0")
        return self.emit(t, f"shufflevector {one.typed}, {t.text} poison, <{lanes} x i32> zeroinitializer")

    def shuffle(self, a: V, b: V | None, indices: Sequence[int]) -> V:
        """Lanes `indices` of the concatenation of `a` and `b` (-1: any value); `b` None when only `a` is used."""
        t = a.type.vec(len(indices))
        if t is a.type and list(indices) == list(range(len(indices))):
            return a
        if t.elem == "bfloat":  # as in `select`: LLVM must see no operation on bfloat
            moved = self.shuffle(self.as_int(a), None if b is None else self.as_int(b), indices)
            return self.cast("bitcast", moved, t)
        mask = ", ".join(["i32 poison" if i < 0 else f"i32 {i}" for i in indices])
        other = poison(a.type) if b is None else b
        return self.emit(t, f"shufflevector {a.typed}, {other.typed}, <{len(indices)} x i32> <{mask}>")

    def as_int(self, a: V) -> V:
        """The bits of `a` as integers of the same width."""
        return self.cast("bitcast", a, a.type.as_int)

    def extract(self, a: V, lane: int | V) -> V:
        """One lane as a scalar."""
        if a.const is not None:
            return const(a.type.scalar, a.const)
        if a.type.elem == "bfloat":
            return self.cast("bitcast", self.extract(self.as_int(a), lane), a.type.scalar)
        return self.emit(a.type.scalar, f"extractelement {a.typed}, {_lane(lane)}")

    def insert(self, a: V, value: V, lane: int | V) -> V:
        """`a` with `lane` replaced by the scalar `value`."""
        if a.type.elem == "bfloat":
            return self.cast("bitcast", self.insert(self.as_int(a), self.as_int(value), lane), a.type)
        return self.emit(a.type, f"insertelement {a.typed}, {value.typed}, {_lane(lane)}")

    def extract_value(self, aggregate: V, index: int, t: T) -> V:
        """Field `index`, of type `t`, of a struct returned by an intrinsic."""
        return self.emit(t, f"extractvalue {aggregate.typed}, {index}")

    def slice(self, a: V, start: int, lanes: int) -> V:
        """`lanes` lanes of `a` from lane `start`."""
        if a.const is not None:
            return const(a.type.vec(lanes), a.const)
        return self.shuffle(a, None, range(start, start + lanes))

    def split(self, a: V, lanes: int) -> list[V]:
        """Pieces of `lanes` lanes each, in order; `a` itself if it has no more lanes than that."""
        if a.type.lanes <= lanes:
            return [a]
        return [self.slice(a, start, lanes) for start in range(0, a.type.lanes, lanes)]

    def concat(self, parts: Sequence[V]) -> V:
        """Join a power-of-two number of equal vectors pairwise."""
        level = list(parts)
        while len(level) > 1:
            lanes = 2 * level[0].type.lanes
            level = [self.shuffle(level[i], level[i + 1], range(lanes)) for i in range(0, len(level), 2)]
        return level[0]

    def interleave(self, a: V, b: V) -> V:
        """`a0 b0 a1 b1 ...`."""
        n = a.type.lanes
        return self.shuffle(a, b, [lane for i in range(n) for lane in (i, n + i)])

    def turned(self, rows: Sequence[V]) -> list[V]:
        """The columns of a square of as many vectors as each has lanes (a power of two).

        First within pieces of 16 bytes, in which x86 moves lanes at the least cost, for as many rows as a piece has
        lanes; then by whole pieces.
        """
        n = len(rows)
        own = min(n, max(1, 128 // rows[0].type.scalar.bits))
        halves = [
            [lane for i in range(n) if i % own // max(1, own // 2) == half for lane in (i, n + i)] for half in (0, 1)
        ]
        blocks: list[list[V]] = []
        for first in range(0, n, own):
            out = list(rows[first : first + own])
            for _ in range(own.bit_length() - 1):  # each time one bit of the row's number becomes one of the lane's
                out = [self.shuffle(out[i], out[i + own // 2], half) for i in range(own // 2) for half in halves]
            blocks.append(out)
        parities = [[lane for lane in range(2 * n) if lane // own % 2 == odd] for odd in (0, 1)]
        columns = [list(column) for column in zip(*blocks, strict=True)]
        for _ in range((n // own).bit_length() - 1):  # and here one of the block's one of the piece's
            columns = [
                [self.shuffle(column[i], column[i + 1], each) for each in parities for i in range(0, len(column), 2)]
                for column in columns
            ]
        return [column[piece] for piece in range(n // own) for column in columns]

    def by_pieces(self, lanes: int, function: Callable[..., V], *args: V) -> V:
        """Apply `function` to pieces of `lanes` lanes of all `args` and join the results.

        For target intrinsics of one fixed width. A wider or equal lane count is passed through unchanged.
        """
        if args[0].type.lanes <= lanes:
            return function(*args)
        pieces = zip(*[self.split(arg, lanes) for arg in args], strict=True)
        return self.concat([function(*piece) for piece in pieces])

    def intrinsic(self, name: str, *args: V, flags: str = "") -> V:
        """`llvm.<name>` overloaded on, and returning, the type of its first argument (`sqrt`, `smax`, `bswap`, ...)."""
        t = args[0].type
        return self.call(f"llvm.{name}.{t.suffix}", t, args, flags=flags)

    def fma(self, a: V, b: Operand, c: Operand, flags: str = "") -> V:
        """`a * b + c` rounded once, on every target (a library call where the hardware has none)."""
        b, c = _like(a, b), _like(a, c)
        return self.call(f"llvm.fma.{a.type.suffix}", a.type, (a, b, c), flags=flags)

    def mad(self, a: V, b: Operand, c: Operand, flags: str = "") -> V:
        """`a * b + c`, fused where that is fast."""
        b, c = _like(a, b), _like(a, c)
        return self.call(f"llvm.fmuladd.{a.type.suffix}", a.type, (a, b, c), flags=flags)

    def reduce(self, kind: str, a: V, start: V | None = None, flags: str | None = None) -> V:
        """Combine the lanes of `a` to a scalar.

        Args:
            kind: `add mul and or xor smax smin umax umin` for integers; `fadd fmul fmax fmin fmaximum fminimum`.
            a: the vector; a scalar is returned as is.
            start: initial value of `fadd`/`fmul` (default -0.0 / 1.0).
            flags: fast-math flags instead of the default (`reassoc nsz` for sums; `nnan` for fmax/fmin: no NaN rules).
        """
        if not a.type.lanes:
            return a
        flags = _REDUCE_FLAGS.get(kind, "") if flags is None else flags
        one = a.type.scalar
        args: tuple[V, ...] = (a,)
        if kind in ("fadd", "fmul"):
            args = (start or const(one, -0.0 if kind == "fadd" else 1.0), a)
        return self.call(f"llvm.vector.reduce.{kind}.{a.type.suffix}", one, args, flags=flags)


def _lane(lane: int | V) -> str:
    return f"i64 {lane}" if isinstance(lane, int) else lane.typed


def _like(a: V, b: Operand) -> V:
    return b if isinstance(b, V) else const(a.type, b)
