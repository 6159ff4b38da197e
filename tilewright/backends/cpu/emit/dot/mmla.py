"""Products of 2x2 blocks in vector registers of Arm: SMMLA on int8, BFMMLA on bf16.

    a  = 8 bytes of K of row i    | 8 bytes of K of row i + 1
    b  = 8 bytes of K of column j | 8 bytes of K of column j + 1
    block(i, j) = c[i, j], c[i, j + 1], c[i + 1, j], c[i + 1, j + 1]     += a * b

A word of K has 8 bytes here, so that two neighbours in a row of a packed panel are one operand. Accumulators are blocks
while the loop runs, and are put together to rows behind it.

Method: Arm Architecture Reference Manual, SMMLA and BFMMLA (vector). The latter adds two pairs of products one after
the other, each as BFDOT does: rounded to odd, subnormal numbers as zero.
"""

from __future__ import annotations

from tilewright.backends.cpu.plan.dot import ELEM, DotPlan
from tilewright.backends.llvm.module import Function
from tilewright.backends.llvm.types import V

_NAMES = {"i8": "llvm.aarch64.neon.smmla.v4i32.v16i8", "bf16": "llvm.aarch64.neon.bfmmla"}


def count_blocks(mr: int, nv: int) -> int:
    """Accumulators of `mr` rows, the last of which may be alone in its blocks, and `nv` vectors of four columns."""
    return -(-mr // 2) * 2 * nv


def multiply_blocks(f: Function, plan: DotPlan, blocks: list[V], words: list[V], vectors: list[V]) -> list[V]:
    """Add the products of a word of each row and a word of each column.

    Args:
        f: where to emit.
        plan: of the product.
        blocks: accumulators, of pairs of rows one after the other.
        words: one of each row.
        vectors: four columns' words in each.
    """
    t = ELEM[plan.operand].vec(16 // ELEM[plan.operand].bytes)
    columns = [f.cast("bitcast", pair, t) for vector in vectors for pair in f.split(vector, 2)]
    out: list[V] = []
    for i in range(0, len(words), 2):
        below = words[min(i + 1, len(words) - 1)]
        rows = f.cast("bitcast", f.insert(f.splat(words[i], 2), below, 1), t)
        for column in columns:
            acc = blocks[len(out)]
            out.append(f.call(_NAMES[plan.operand], acc.type, (acc, rows, column)))
    return out


def rows_of_blocks(f: Function, blocks: list[V], mr: int, nv: int) -> list[V]:
    """The `nv` vectors of each of `mr` rows, one row after the other."""
    out: list[V] = []
    for i in range(mr):
        first = i // 2 * 2 * nv
        halves = (0, 1, 4, 5) if i % 2 == 0 else (2, 3, 6, 7)
        out += [f.shuffle(blocks[first + 2 * j], blocks[first + 2 * j + 1], halves) for j in range(nv)]
    return out
