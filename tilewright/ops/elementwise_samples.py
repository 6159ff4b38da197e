"""Random and edge-value arrays from which the element-wise families make their generated samples.

One small tile per element type: the edge values of the type first, then random ones, so
that each sample meets zeros, extremes, infinities, NaN and ordinary numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.base import minifloat
from tilewright.ir.types import dtype_of, scalar_type
from tilewright.ops.elementwise_base import tile
from tilewright.ops.spec import Array, Sample, Samples

SIZE = 64
INTEGERS = ("i1", "i8", "i16", "i32", "i64")
FLOATS = ("f16", "bf16", "f32", "f64")
FLOAT8S = ("f8E4M3FN", "f8E5M2", "f8E4M3B11FNUZ", "f8E4M3FNUZ", "f8E5M2FNUZ")
WIDE_FLOATS = ("f32", "f64")


def integers(rng: np.random.Generator, name: str, size: int = SIZE) -> Array:
    """Edge and random integers of element type `name` in a random order."""
    work = dtype_of(scalar_type(name)).work_dtype
    if name == "i1":
        return rng.integers(0, 2, size).astype(np.bool_)
    info = np.iinfo(work)
    edges = np.array([0, 1, -1, 2, 3, -2, 7, info.min, info.max, info.min + 1, info.max - 1], dtype=work)
    small = rng.integers(-100, 100, size, dtype=np.int8).astype(work)
    anything = rng.integers(info.min, info.max, size, dtype=work, endpoint=True)
    pool = np.concatenate([edges, np.where(rng.random(size) < 0.5, small, anything)])[:size]
    return rng.permutation(pool)


def floats(rng: np.random.Generator, name: str, size: int = SIZE, *, nan: bool = True) -> Array:
    """Edge and random floats of element type `name`, in working form and a random order."""
    type_ = dtype_of(scalar_type(name))
    edges = [0.0, 1.0, -1.0, 0.5, -2.0, 1.5, 3.0, np.inf, -np.inf, 65504.0, 448.0, -57344.0, 1e-7, 3e38, 1e-40, 6e-8]
    edges += [np.nan] if nan else []
    scale = np.exp(rng.uniform(-8, 8, size))
    pool = np.concatenate([np.array(edges), rng.standard_normal(size) * scale])[:size]
    return rng.permutation(minifloat.round_to(pool, type_))


def values(rng: np.random.Generator, name: str, size: int = SIZE) -> Array:
    """Integers or floats, as the element type asks."""
    return integers(rng, name, size) if name[0] == "i" else floats(rng, name, size)


def same_type_samples(
    arity: int,
    names: Sequence[str],
    *,
    attrs: Sequence[Mapping[str, Any]] = ({},),
    ulp: Callable[[str], float] = lambda name: 0,
    draw: Callable[[np.random.Generator, str], Array] = values,
    wrong: str = "",
) -> Samples:
    """Samples of an op whose operands share one type.

    Args:
        arity: number of operands.
        names: element types.
        attrs: each set of attributes is tried with each type.
        ulp: allowed error by element type.
        draw: makes one operand.
        wrong: an element type that the op refuses.
    """

    def samples(rng: np.random.Generator) -> list[Sample]:
        out = []
        for name in names:
            for extra in attrs:
                operands = tuple(draw(rng, name) for _ in range(arity))
                out.append(Sample(operands, (tile(name, (SIZE,)),) * arity, extra, max_ulp=ulp(name)))
        first = names[-1]
        scalars = tuple(np.asarray(draw(rng, first)[0]) for _ in range(arity))
        out.append(Sample(scalars, (tile(first, ()),) * arity, attrs[0], max_ulp=ulp(first)))
        out.extend(_bad(rng, arity, first, wrong, attrs[0], draw))
        return out

    return samples


def _bad(
    rng: np.random.Generator,
    arity: int,
    name: str,
    wrong: str,
    attrs: Mapping[str, Any],
    draw: Callable[[np.random.Generator, str], Array],
) -> list[Sample]:
    """Operands of different shapes, of different types, and of a refused type."""
    out = []
    eight = draw(rng, name)[:8]
    if arity > 1:
        rest = (tile(name, (4,)),) * (arity - 1)
        shapes = Sample((eight, *[eight[:4]] * (arity - 1)), (tile(name, (8,)), *rest), attrs, error="shapes")
        other = "i32" if name != "i32" else "i64"
        mixed = (tile(name, (8,)), *[tile(other, (8,))] * (arity - 1))
        out += [shapes, Sample((eight,) * arity, mixed, attrs, error="types")]
    if wrong:
        refused = values(rng, wrong, 8)
        out.append(Sample((refused,) * arity, (tile(wrong, (8,)),) * arity, attrs, error="takes"))
    return out
