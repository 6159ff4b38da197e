"""The exercises in order: what each kernel is called with, what must come out, and hints.

A case has arguments by name, as the kernel has them, and the contents that its results must have, by numpy. Results
hold a mark before the launch, so that what nobody writes is known; unless the kernel adds to them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.base.errors import TilewrightError

Numbers = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Case:
    """One launch of an exercise.

    Args:
        arguments: by parameter; results as they are before the launch.
        grid: number of programs.
        wanted: results by parameter.
    """

    arguments: dict[str, Any]
    grid: tuple[int, ...]
    wanted: dict[str, Numbers]


@dataclass(frozen=True, slots=True)
class Exercise:
    """An exercise.

    Args:
        name: of its file, without number and ending.
        kernel: name of the kernel.
        title: in a few words.
        cases: makes its launches; their numbers are the same each time.
        hints: what to say to who asks, the mildest first.
        tolerance: largest difference from the reference, relative and absolute.
    """

    name: str
    kernel: str
    title: str
    cases: Callable[[], list[Case]]
    hints: tuple[str, ...]
    tolerance: float = 1e-4

    @property
    def number(self) -> int:
        """From 1."""
        return EXERCISES.index(self) + 1

    @property
    def file(self) -> str:
        """Its name in the learner's folder."""
        return f"{self.number:02d}_{self.name}.py"


def found(text: str) -> Exercise:
    """The exercise of a number ("3"), a name ("outer_sum") or a file's name.

    Raises:
        TilewrightError: there is none.
    """
    for exercise in EXERCISES:
        if text in (str(exercise.number), f"{exercise.number:02d}", exercise.name, exercise.file):
            return exercise
    raise TilewrightError(f"there is no exercise {text!r}", hint=f"give a number from 1 to {len(EXERCISES)}, or a name")


MARK = np.float32(np.frombuffer(np.uint32(0x7FC5EED5).tobytes(), np.float32)[0])  # a NaN that no operation makes


def untouched(values: Numbers) -> NDArray[np.bool_]:
    """Which elements of a result still hold the mark."""
    if values.dtype != np.float32:
        return np.zeros(values.shape, np.bool_)
    return np.equal(values.view(np.uint32), np.uint32(0x7FC5EED5))


def _marked(*shape: int) -> Numbers:
    return np.full(shape, MARK, np.float32)


def _random(seed: int, *shape: int) -> Numbers:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def _tiles(size: int, block: int) -> int:
    return -(-size // block)


# --- elements ------------------------------------------------------------------------------------------------


def _constant() -> list[Case]:
    x = _random(0, 64)
    return [Case({"x_ptr": x, "out_ptr": _marked(64), "BLOCK": 64}, (1,), {"out_ptr": x + 10})]


def _vector_add() -> list[Case]:
    def case(n: int) -> Case:
        x, y = _random(1, n), _random(2, n)
        arguments = {"x_ptr": x, "y_ptr": y, "out_ptr": _marked(n), "n": n, "BLOCK": 128}
        return Case(arguments, (_tiles(n, 128),), {"out_ptr": x + y})

    return [case(1000), case(77)]


def _outer_sum() -> list[Case]:
    def case(n: int, m: int) -> Case:
        x, y = _random(3, n), _random(4, m)
        arguments = {"x_ptr": x, "y_ptr": y, "out_ptr": _marked(n, m), "n": n, "m": m, "N": 16, "M": 32}
        return Case(arguments, (1,), {"out_ptr": x[:, None] + y[None, :]})

    return [case(13, 21), case(5, 30)]


def _scaled_rows() -> list[Case]:
    def case(rows: int, columns: int, stride: int) -> Case:
        whole, scale = _random(5, rows, stride), _random(6, columns)
        x = whole[:, :columns]
        arguments = {
            "x_ptr": x, "scale_ptr": scale, "out_ptr": _marked(rows, columns), "rows": rows, "columns": columns,
            "x_stride": stride, "out_stride": columns, "ROWS": 8, "COLUMNS": 16,
        }  # fmt: skip
        wanted = np.maximum(x * scale[None, :], 0)
        return Case(arguments, (_tiles(rows, 8), _tiles(columns, 16)), {"out_ptr": wanted})

    return [case(19, 37, 45), case(3, 5, 7)]


# --- rows ----------------------------------------------------------------------------------------------------


def _of_rows(wanted: Callable[[Numbers], Numbers], block: int, sizes: Sequence[tuple[int, int, int]]) -> list[Case]:
    """Cases of kernels with a program for each row: (rows, columns, stride) of each."""
    cases = []
    for rows, columns, stride in sizes:
        whole = _random(7, rows, stride) * 30
        whole[0] += 200  # exp of these is infinite
        whole[1] -= 200  # and of these 0
        x, result = whole[:, :columns], wanted(whole[:, :columns])
        out = _marked(rows, *(() if result.ndim == 1 else (stride,)))
        arguments = {"x_ptr": x, "out_ptr": out[..., :columns] if out.ndim > 1 else out, "columns": columns}
        cases.append(Case({**arguments, "stride": stride, "BLOCK": block}, (rows,), {"out_ptr": result}))
    return cases


def _softmax(x: Numbers) -> Numbers:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return np.asarray(e / e.sum(axis=1, keepdims=True))


def _row_sum() -> list[Case]:
    return _of_rows(lambda x: np.asarray(x.sum(axis=1)), 64, [(7, 50, 53), (3, 33, 35)])


def _short_softmax() -> list[Case]:
    return _of_rows(_softmax, 64, [(7, 50, 53), (3, 33, 35)])


def _long_softmax() -> list[Case]:
    return _of_rows(_softmax, 32, [(5, 170, 175), (3, 33, 35)])


def _histogram() -> list[Case]:
    def case(n: int) -> Case:
        x = np.random.default_rng(8).integers(0, 10, n).astype(np.int32)
        arguments = {"x_ptr": x, "counts_ptr": np.zeros(10, np.int32), "n": n, "BLOCK": 128}
        return Case(arguments, (_tiles(n, 128),), {"counts_ptr": np.bincount(x, minlength=10).astype(np.int32)})

    return [case(1000), case(77)]


# --- products ------------------------------------------------------------------------------------------------


def _matmul() -> list[Case]:
    def case(m: int, n: int, k: int) -> Case:
        a, b = _random(9, m, k), _random(10, k, n)
        blocks = {"BM": 16, "BN": 32, "BK": 16}
        arguments = {"a_ptr": a, "b_ptr": b, "c_ptr": _marked(m, n), "M": m, "N": n, "K": k, **blocks}
        return Case(arguments, (_tiles(m, 16), _tiles(n, 32)), {"c_ptr": a @ b})

    return [case(37, 45, 51), case(9, 35, 21)]


def _quantised_matmul() -> list[Case]:
    m, n, k = 21, 45, 96
    a, scale = _random(11, m, k), np.abs(_random(12, n)) + 0.1
    packed = np.random.default_rng(13).integers(0, 256, (k // 2, n)).astype(np.uint8)
    bits = np.concatenate([packed & 15, packed >> 4]).astype(np.float32)
    arguments = {
        "a_ptr": a, "packed_ptr": packed, "scale_ptr": scale, "c_ptr": _marked(m, n), "M": m, "N": n, "K": k,
        "BM": 16, "BN": 32, "BK": 16,
    }  # fmt: skip
    return [Case(arguments, (_tiles(m, 16), _tiles(n, 32)), {"c_ptr": a @ ((bits - 8) * scale)})]


def _convolution() -> list[Case]:
    rows, columns, size = 21, 37, 3
    x, w = _random(14, rows, columns), _random(15, size, size)
    padded = np.pad(x, ((0, size - 1), (0, size - 1)))
    wanted = np.zeros_like(x)
    for a in range(size):
        for b in range(size):
            wanted += padded[a : a + rows, b : b + columns] * w[a, b]
    arguments = {
        "x_ptr": x, "w_ptr": w, "out_ptr": _marked(rows, columns), "rows": rows, "columns": columns,
        "SIZE": size, "ROWS": 8, "COLUMNS": 16,
    }  # fmt: skip
    return [Case(arguments, (_tiles(rows, 8), _tiles(columns, 16)), {"out_ptr": wanted})]


def _attention() -> list[Case]:
    def case(n: int) -> Case:
        q, k, v = _random(16, n, 16) * 3, _random(17, n, 16) * 3, _random(18, n, 16)
        arguments = {
            "q_ptr": q, "k_ptr": k, "v_ptr": v, "out_ptr": _marked(n, 16), "n": n, "scale": 0.25,
            "D": 16, "BM": 16, "BN": 32,
        }  # fmt: skip
        return Case(arguments, (_tiles(n, 16),), {"out_ptr": _softmax(q @ k.T * 0.25) @ v})

    return [case(75), case(21)]


EXERCISES: tuple[Exercise, ...] = (
    Exercise(
        "constant", "add_ten", "a program and its tile", _constant,
        ("x = tl.load(x_ptr + offsets)", "tl.store(out_ptr + offsets, x + 10)"),
    ),
    Exercise(
        "vector_add", "add", "a grid of programs, and a mask", _vector_add,
        ("Program p has the elements from p * BLOCK on: add that to tl.arange(0, BLOCK).",
         "mask = offsets < n; both loads and the store take mask=mask"),
    ),
    Exercise(
        "outer_sum", "outer_sum", "tiles of two dimensions", _outer_sum,
        ("The pointers: out_ptr + rows[:, None] * m + columns[None, :], a tile [N, M].",
         "The mask: (rows[:, None] < n) & (columns[None, :] < m)"),
    ),
    Exercise(
        "scaled_rows", "scaled_rows", "strides, and a grid of two dimensions", _scaled_rows,
        ("x[i, j] is at x_ptr + i[:, None] * x_stride + j[None, :]. out has a stride of its own.",
         "scale has one dimension: load it with j and the mask j < columns, multiply by scale[None, :]."),
    ),
    Exercise(
        "row_sum", "row_sum", "a reduction", _row_sum,
        ("Row `row` begins at x_ptr + row * stride.",
         "tl.load(..., mask=j < columns, other=0.0): zeros change no sum"),
    ),
    Exercise(
        "softmax", "softmax", "softmax of short rows", _short_softmax,
        ('other=-float("inf") is never the largest element, and its exponential is 0.',
         "e = tl.exp(x - tl.max(x, axis=0)); the result is e / tl.sum(e, axis=0)."),
    ),
    Exercise(
        "long_softmax", "long_softmax", "rows longer than a tile", _long_softmax,
        ("now = tl.maximum(largest, tl.max(x, axis=0))",
         "total * tl.exp(largest - now) is the old sum taken with the new maximum.",
         "Add tl.sum(tl.exp(x - now), axis=0), then largest = now."),
    ),
    Exercise(
        "histogram", "histogram", "programs that meet", _histogram,
        ("x = tl.load(x_ptr + offsets, mask=mask, other=0) is a tile of integers: counts_ptr + x is one of pointers.",
         "tl.atomic_add(counts_ptr + x, 1, mask=mask)"),
    ),
    Exercise(
        "matmul", "matmul", "product of matrices", _matmul,
        ("a[m, k] is at a_ptr + m[:, None] * K + k[None, :], b[k, n] at b_ptr + k[:, None] * N + n[None, :].",
         "Mask both dimensions of both: in the last step k may be K or more, and 0 times anything adds nothing."),
    ),
    Exercise(
        "quantised_matmul", "quantised_matmul", "weights of 4 bits", _quantised_matmul,
        ("packed & 15 has the low bits, packed >> 4 the high ones; .to(tl.float32), then - 8.",
         "The high halves belong to columns k + K // 2 of a.",
         "acc * tl.load(scale_ptr + n, mask=n < N)[None, :]"),
    ),
    Exercise(
        "convolution", "convolution", "windows that overlap", _convolution,
        ("The tile of x is at rows i + a and columns j + b.",
         "Its mask: ((i + a)[:, None] < rows) & ((j + b)[None, :] < columns), with other=0.0"),
    ),
    Exercise(
        "flash_attention", "attention", "attention without its matrix", _attention,
        ('scores = tl.where(j[None, :] < n, tl.dot(q, tl.trans(k)) * scale, -float("inf"))',
         "It is the loop of long_softmax for BM rows at once: reductions have axis=1, numbers of rows get [:, None].",
         "acc = acc * factor[:, None] + tl.dot(e, v), with factor = tl.exp(largest - now)"),
    ),
)  # fmt: skip
