"""Random kernels that combine rows at places that they load, as compiled and as interpreted.

    python -m tests.loops.random_rows [--seed S] [--count N] [--folder F]

    for the places of a bag      one at a time, a tile at a time, for several bags at once, until a condition is false
        elements: arithmetic of a row of the table, a weight of the place, a number of each column
        combined: sums, maxima, minima, decaying sums; one or two tiles, with a scalar or without

What `plan/strips.py` and `loops/loaded_rows.py` take, and what they must leave alone, is drawn part by part. A kernel
that differs is kept in the folder.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tests.loops.comparing import compare_seeds, difference

_HEAD = "import tilewright\nimport tilewright.language as tl\n\n\n"
_SIGNATURE = (
    "def kernel(table, ids, weights, offsets, scale, out, D, rows, bags, BD: tl.constexpr, BL: tl.constexpr):\n"
)


class _Kernel:
    """The text of a kernel, drawn from a seed.

    Args:
        seed: of everything.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.width = self.random.choice((16, 32, 64, 256, 512))
        self.columns = self.random.choice((self.width, self.width, self.width - 3, self.width // 2 + 5))
        self.places = self.random.choice((2, 8, 16))
        self.dtype = self.random.choice((np.float32, np.float32, np.float16))
        self.index = self.random.choice((np.int64, np.int32))
        self.form = self.random.choice(("one", "one", "while", "tile", "tile", "bags"))
        self.guarded = self.random.random() < 0.4  # places may be -1
        self.bags = 6
        self.text = _HEAD + _SIGNATURE + "\n".join(f"    {line}" for line in self._lines()) + "\n"

    def _lines(self) -> list[str]:
        pick = self.random.choice
        lines = [
            "cols = tl.program_id(0) * BD + tl.arange(0, BD)",
            "s = tl.load(scale + cols, mask=cols < D, other=1.0)",
        ]
        if self.form == "bags":
            lines += ["bag = tl.program_id(1) * BL + tl.arange(0, BL)", "there = bag < bags"]
            lines += ["start = tl.load(offsets + bag, mask=there, other=0)"]
            lines += ["count = tl.load(offsets + bag + 1, mask=there, other=0) - start"]
        else:
            lines += ["start, end = tl.load(offsets + tl.program_id(1)), tl.load(offsets + tl.program_id(1) + 1)"]
        shape = "[BL, BD]" if self.form == "bags" else "[BD]"
        how = [pick(("sum", "sum", "max", "min", "decay")) for _ in range(pick((1, 1, 2)))]
        if self.form == "tile":
            how = ["sum" if what == "decay" else what for what in how]
        first = {"sum": ("0.0", "1.0"), "decay": ("0.0",), "max": ("-1e30",), "min": ("1e30",)}
        lines += [f"acc{at} = tl.full({shape}, {pick(first[what])}, tl.float32)" for at, what in enumerate(how)]
        counted = self.form != "bags" and self.random.random() < 0.3
        lines += ["seen = start * 0"] * counted
        lines += self._loop([*self._row(), *self._combined(how), *(["seen += 1"] * counted)])
        at, mask = "tl.program_id(1) * D + cols", "cols < D"
        if self.form == "bags":
            at, mask = "bag[:, None] * D + cols[None, :]", "(cols < D)[None, :] & there[:, None]"
        more = " + seen" if counted else ""
        lines += [f"tl.store(out + {n} * bags * D + {at}, acc{n}{more}, mask={mask})" for n in range(len(how))]
        return lines

    def _loop(self, body: list[str]) -> list[str]:
        head, before, behind = {
            "one": ("for j in range(start, end):", [], []),
            "while": ("while j < end:", ["j = start"], ["j += 1"]),
            "tile": ("for base in range(start, end, BL):", [], []),
            "bags": ("for j in range(0, 9):", [], []),
        }[self.form]
        return [*before, head, *(f"    {line}" for line in [*body, *behind])]

    def _row(self) -> list[str]:
        """What an iteration loads: `v`, a row or rows, and `g`, a weight of each."""
        column = self.random.choice(("cols < D", "cols < D", "")) if self.columns == self.width else "cols < D"
        other = self.random.choice(("0.0", "0.0", "0.5"))
        if self.form in ("one", "while"):
            mask = " & ".join(filter(None, [column, "(i >= 0)" if self.guarded else ""]))
            said = f", mask={mask}, other={other}" if mask else ""
            said = said if "cols" in mask or not mask else f", mask=(cols >= 0) & {mask}, other={other}"
            lines = ["i = tl.load(ids + j)", f"v = tl.load(table + i * D + cols{said}).to(tl.float32)"]
            return [*lines, "g = tl.load(weights + j)"]
        if self.form == "tile":
            lines, inside = ["k = base + tl.arange(0, BL)"], "k < end"
            row, axis, at = "i[:, None]", "[None, :]", "k"
        else:
            lines, inside = [], "j < count"
            row, axis, at = "i[:, None]", "[None, :]", "start + j"
        lines.append(f"i = tl.load(ids + {at}, mask={inside}, other={self.random.choice(('0', '-1'))})")
        masks = [f"({inside})[:, None]", f"({column}){axis}" if column else "", f"({row} >= 0)"]
        mask = " & ".join(filter(None, masks))
        lines.append(f"v = tl.load(table + {row} * D + cols{axis}, mask={mask}, other=0.0).to(tl.float32)")
        return [*lines, f"g = tl.load(weights + {at}, mask={inside}, other=0.0)[:, None]"]

    def _combined(self, how: list[str]) -> list[str]:
        made = []
        scale = "s" if self.form in ("one", "while") else "s[None, :]"
        for at, what in enumerate(how):
            forms = (
                "v",
                "v",
                "v * g",
                "v * g",
                f"v * {scale}",
                f"(v + {scale}) * g",
                "tl.abs(v) * g",
                "tl.exp(-tl.abs(v))",
            )
            element = self.random.choice(forms)
            if self.form == "tile":
                neutral = {"sum": "0.0", "max": "-1e30", "min": "1e30"}[what]
                element = f"tl.{what}(tl.where((k < end)[:, None], {element}, {neutral}), 0)"
            elif self.form == "bags":
                kept = f"acc{at}" if what != "sum" else "0.0"
                element = f"tl.where((j < count)[:, None], {element}, {kept})"
            made.append({
                "sum": f"acc{at} += {element}", "decay": f"acc{at} = acc{at} * 0.5 + {element}",
                "max": f"acc{at} = tl.maximum(acc{at}, {element})", "min": f"acc{at} = tl.minimum(acc{at}, {element})",
            }[what])  # fmt: skip
        return made


def differs(seed: int, folder: Path) -> str:
    """Where the compiled kernel of a seed gives something else than the interpreted one; "" if nowhere.

    Args:
        seed: of the kernel.
        folder: for its text, which is removed if nothing differs.
    """
    made, numbers = _Kernel(seed), np.random.default_rng(seed)
    rows, width, bags = 11, made.width, made.bags
    offsets = np.concatenate([[0], numbers.integers(0, 9, bags).cumsum()]).astype(made.index)
    ids = numbers.integers(-1 if made.guarded else 0, rows, offsets[-1] + 64).astype(made.index)
    values = lambda count, dtype: (numbers.integers(-4, 5, count) / 4).astype(dtype)
    table, weights, scale = (
        values(rows * made.columns + width, made.dtype),
        values(len(ids), np.float32),
        values(width, np.float32),
    )
    grid = (1, -(-bags // made.places) if made.form == "bags" else bags)

    def launch(function: Any, out: np.ndarray[Any, Any]) -> None:
        arguments = (table, ids, weights, offsets, scale, out, made.columns, rows, bags)
        function[grid](*arguments, BD=width, BL=made.places)

    return difference(seed, made.text, folder / f"rows_{seed}.py", 2 * bags * made.columns + 64, launch)


if __name__ == "__main__":
    sys.exit(compare_seeds("Random sums of rows at loaded places, compiled and interpreted.", differs))
