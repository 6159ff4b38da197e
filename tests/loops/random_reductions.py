"""Random kernels that reduce rows over the iterations of a loop, as compiled and as interpreted.

    python -m tests.loops.random_reductions [--seed S] [--count N] [--folder F]

    for each piece of a row      masks, what they leave out, and bounds that hold for some rows
        elements: arithmetic of a row of the matrix, a row that all share, a number of each row, and positions
        combined: sums, maxima, minima; in each iteration, or of a tile that is carried

What the rules of `loops/reduction_loops.py` take, and what they must leave alone, is a matter of conditions and of who
shares what; so each of these is drawn for itself. A kernel that differs is kept in the folder.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tests.loops.comparing import compare_seeds, difference

_HEAD = "import tilewright\nimport tilewright.language as tl\n\n\n"
_SIGNATURE = "def kernel(x, w, v, out, M, N, BM: tl.constexpr, BN: tl.constexpr):\n"
_BEYOND = 4096  # elements behind a matrix that a load without a mask may reach


class _Kernel:
    """The text of a kernel, drawn from a seed.

    Args:
        seed: of everything.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.rows, self.columns = self.random.choice((1, 4, 8, 32)), self.random.choice((4, 16, 32, 64))
        self.M = max(1, self.rows * self.random.choice((1, 3)) - self.random.choice((0, 0, 1)))
        self.N = self.random.choice((self.columns, 3 * self.columns, 3 * self.columns - 1, 5, 130))
        self.dtype = self.random.choice((np.float32, np.float32, np.float32, np.float16, np.int32))
        self.turned = self.random.random() < 0.25  # tiles whose rows run along the second dim
        self.text = _HEAD + _SIGNATURE + "\n".join(f"    {line}" for line in self._lines()) + "\n"

    def _lines(self) -> list[str]:
        m, n = ("m[None, :]", "n[:, None]") if self.turned else ("m[:, None]", "n[None, :]")
        shape, axis = ("(BN, BM)", 0) if self.turned else ("(BM, BN)", 1)
        self.m, self.n, self.shape = m, n, shape
        lines = ["m = tl.program_id(0) * BM + tl.arange(0, BM)"]
        number = m.replace("m[", "r[")
        lines.append(f"r = tl.load(v + m, mask=m < M, other={self._left_out()}).to(tl.float32)")
        half, place = f"tl.full({shape}, 0.5, tl.float32)", f"{n}.to(tl.float32) * 0.01"
        sets = (["a"], ["b"], ["a", "b"], ["a", number], ["b", number, half], ["a", "a", "b", number, half, place])
        self.leaves = self.random.choice(sets)
        how = [self.random.choice(("sum", "sum", "max", "min")) for _ in range(self.random.choice((1, 1, 1, 2)))]
        carried = [self.random.random() < 0.25 for _ in how]
        for at, (what, whole) in enumerate(zip(how, carried, strict=True)):
            first = {"sum": "0.0", "max": "-1e30", "min": "1e30"}[what]
            lines.append(f"acc{at} = tl.full({shape if whole else '(BM,)'}, {first}, tl.float32)")
        lines.append(self._loop())
        inside = [f"a = tl.load(x + {m} * N + {n}{self._mask()}).to(tl.float32)"]
        inside.append(f"b = tl.load(w + {n}{self._mask(shared=True)}).to(tl.float32)")
        for at, (what, whole) in enumerate(zip(how, carried, strict=True)):
            inside.append(f"e{at} = {self._element(3)} + tl.zeros({shape}, tl.float32)")
            element = f"e{at}" if whole else f"tl.{what}(e{at}, {axis})"
            inside.append(self._combined(f"acc{at}", what, element))
        lines += [f"    {line}" for line in inside]
        if self.random.random() < 0.25:  # what is left of the row, or something else, behind the loop
            lines += ["n = N // BN * BN + tl.arange(0, BN)", *inside]
        for at, (what, whole) in enumerate(zip(how, carried, strict=True)):
            total = f"tl.{what}(acc{at}, {axis})" if whole else f"acc{at}"
            lines.append(f"tl.store(out + {at} * M + m, {total}, mask=m < M)")
        return lines

    def _loop(self) -> str:
        bounds = ["N", "N", "tl.cdiv(N, BN) * BN", "min(N, tl.program_id(0) * BM + BM)", "N // BN * BN"]
        bound = self.random.choice(bounds)
        if self.random.random() < 0.3:
            return f"for i in range(tl.cdiv({bound}, BN)):\n        n = i * BN + tl.arange(0, BN)"
        if self.random.random() < 0.2:
            return f"for start in range(({bound} - 1) // BN * BN, -1, -BN):\n        n = start + tl.arange(0, BN)"
        return f"for start in range(0, {bound}, BN):\n        n = start + tl.arange(0, BN)"

    def _left_out(self) -> str:
        return self.random.choice(("0.0", "0.0", "1.0", "-2.0")) if self.dtype != np.int32 else "0"

    def _mask(self, shared: bool = False) -> str:
        choices = ["", f"{self.n} < N", f"{self.n} < N"]
        if not shared:
            choices += [f"({self.n} < N) & ({self.m} < M)", f"{self.m} < M", f"{self.n} <= {self.m}"]
        mask = self.random.choice(choices)
        return f", mask={mask}, other={self._left_out()}" if mask else ""

    def _condition(self) -> str:
        own = (
            f"({self.n} <= {self.m})", f"({self.n} < N)", f"({self.m} < M)", f"({self.n} > {self.m} - 5)",
            f"({self.m} % 2 == 0)", f"({self.leaves[0]} > 0)", f"({self.n} != 7)", f"({self.n} >= 3)",
            f"({self.n} < {self.m} + 3)",
        )  # fmt: skip
        return " & ".join(self.random.sample(own, self.random.choice((1, 1, 2))))

    def _element(self, depth: int) -> str:
        if depth == 0 or self.random.random() < 0.15:
            return self.random.choice(self.leaves)
        kinds = ("+", "-", "*", "*", "where", "where", "square", "exp", "abs", "half", "maximum", "count")
        kind = self.random.choice(kinds)
        one = self._element(depth - 1)
        if kind in "+-*":
            return f"({one} {kind} {self._element(depth - 1)})"
        if kind == "where":
            other = self.random.choice(("0.0", "0.0", "-1.5", "1.0", self._element(depth - 1)))
            return f"tl.where({self._condition()}, {one}, {other})"
        if kind == "count":
            return f"(({one} > 0) & {self._condition()}).to(tl.float32)"
        if kind == "half":
            return f"({one}).to(tl.float16).to(tl.float32)"
        forms = {
            "square": f"({one}) * ({one})", "exp": f"tl.exp(-tl.abs({one}))", "abs": f"tl.abs({one})",
            "maximum": f"tl.maximum({one}, {self.leaves[0]})",
        }  # fmt: skip
        return f"({forms[kind]})"

    def _combined(self, acc: str, what: str, element: str) -> str:
        if what != "sum":
            return f"{acc} = tl.{what}imum({acc}, {element})"
        forms = [f"{acc} += {element}"] * 4 + [f"{acc} -= {element}", f"{acc} = {acc} * 0.5 + {element}"]
        return self.random.choice(forms)


def differs(seed: int, folder: Path) -> str:
    """Where the compiled kernel of a seed gives something else than the interpreted one; "" if nowhere.

    Args:
        seed: of the kernel.
        folder: for its text, which is removed if nothing differs.
    """
    made, numbers = _Kernel(seed), np.random.default_rng(seed)

    def values(count: int) -> Any:
        return (numbers.integers(-4, 5, count) / (1 if made.dtype == np.int32 else 4)).astype(made.dtype)

    rows = -(-made.M // made.rows) * made.rows
    x, w, v = values(rows * made.N + _BEYOND), values(made.N + _BEYOND), values(rows)

    def launch(function: Any, out: np.ndarray[Any, Any]) -> None:
        function[(rows // made.rows,)](x, w, v, out, made.M, made.N, BM=made.rows, BN=made.columns)

    return difference(seed, made.text, folder / f"reductions_{seed}.py", 2 * made.M + 64, launch)


if __name__ == "__main__":
    sys.exit(compare_seeds("Random reductions over iterations, compiled and interpreted.", differs))
