"""Writes docs/errors.md and docs/hl_errors.md: mistakes that people make, and what Tilewright says about each.

Every kernel of the page is run and the error that it raises is printed below it, so the page shows what users see.

    python -m tilewright.tools.gallery            writes the pages
    python -m tilewright.tools.gallery --check    compares them, exit status 1 if one is out of date
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from tilewright.tools import gallery_hl
from tilewright.tools.error_page import Case, Page, markdown

_HEADER = """\
import numpy as np
import tilewright
import tilewright.language as tl

x = np.arange(64, dtype=np.float32)
out = np.zeros(64, dtype=np.float32)
"""
_INTRODUCTION = """\
# What errors look like

Written by `make docs`: every kernel below is run, and what it raises is shown under it. Each starts with these lines:

```python
{header}```

Every error that Tilewright raises on purpose is a `tilewright.TilewrightError`; `tilewright.errors` has the tree. Most
are also the Python error that one would expect: `TypeError`, `ValueError`, `NameError`. Errors in a kernel are
`CompilationError`s with the place in your file; the mistake that an operation found is its `__cause__`.
The traceback of a launch has the frames of your program alone; with `TILEWRIGHT_FULL_TRACEBACK=1` those of Tilewright,
and the tracebacks of causes, are shown as well.
"""


CASES = (
    Case(
        "A misspelt name",
        """
        @tilewright.jit
        def kernel(out_ptr, BLOCK: tl.constexpr):
            offsets = tl.arange(0, BLOCK)
            tl.store(out_ptr + offset, 1.0)

        kernel[(1,)](out, BLOCK=64)
        """,
    ),
    Case(
        "Shapes that do not fit",
        """
        @tilewright.jit
        def kernel(out_ptr):
            rows = tl.arange(0, 8)
            cols = tl.arange(0, 16)
            tl.store(out_ptr + rows + cols, 1.0)

        kernel[(1,)](out)
        """,
    ),
    Case(
        "A pointer moved by a fraction",
        """
        @tilewright.jit
        def kernel(out_ptr, n):
            half = n / 2
            tl.store(out_ptr + half, 1.0)

        kernel[(1,)](out, 64)
        """,
        "`/` gives a float as in Python; `//` divides integers.",
    ),
    Case(
        "A range that is not known when the kernel is compiled",
        """
        @tilewright.jit
        def kernel(out_ptr, n):
            offsets = tl.arange(0, n)
            tl.store(out_ptr + offsets, 1.0)

        kernel[(1,)](out, 64)
        """,
    ),
    Case(
        "A variable that changes its type in a loop",
        """
        @tilewright.jit
        def kernel(x_ptr, out_ptr, n):
            total = 0
            for i in range(n):
                total += tl.load(x_ptr + i)
            tl.store(out_ptr, total)

        kernel[(1,)](x, out, 64)
        """,
        "Here `total` begins as an integer: write `total = 0.0`.",
    ),
    Case(
        "Branches that disagree",
        """
        @tilewright.jit
        def kernel(out_ptr, n):
            if n > 10:
                y = tl.zeros((16,), tl.float32)
            else:
                y = tl.zeros((32,), tl.float32)
            tl.store(out_ptr + tl.arange(0, 16), y)

        kernel[(1,)](out, 64)
        """,
    ),
    Case(
        "A name that only one branch defines",
        """
        @tilewright.jit
        def kernel(out_ptr, n):
            if n > 10:
                y = 1.0
            tl.store(out_ptr, y)

        kernel[(1,)](out, 64)
        """,
    ),
    Case(
        "A question that a tile cannot answer with yes or no",
        """
        @tilewright.jit
        def kernel(x_ptr, out_ptr):
            x = tl.load(x_ptr + tl.arange(0, 64))
            if x > 0:
                tl.store(out_ptr, 1.0)

        kernel[(1,)](x, out)
        """,
    ),
    Case(
        "Matrices of different types in a product",
        """
        @tilewright.jit
        def kernel(out_ptr):
            a = tl.zeros((16, 16), tl.float32)
            b = tl.zeros((16, 16), tl.float16)
            tl.store(out_ptr, tl.sum(tl.dot(a, b)))

        kernel[(1,)](out)
        """,
    ),
    Case(
        "A mistake inside a function that the kernel calls",
        """
        @tilewright.jit
        def scale(x, factor):
            return tl.exp(x) * factor.to(tl.float99)

        @tilewright.jit
        def kernel(x_ptr, out_ptr, factor):
            x = tl.load(x_ptr + tl.arange(0, 64))
            tl.store(out_ptr + tl.arange(0, 64), scale(x, factor))

        kernel[(1,)](x, out, 2.0)
        """,
        "Both places are shown: the mistake, then the call.",
    ),
    Case(
        "A function of another library",
        """
        @tilewright.jit
        def kernel(x_ptr, out_ptr):
            x = tl.load(x_ptr + tl.arange(0, 64))
            tl.store(out_ptr + tl.arange(0, 64), np.exp(x))

        kernel[(1,)](x, out)
        """,
    ),
    Case(
        "A mistake that a function of the language finds",
        """
        @tilewright.jit
        def kernel(x_ptr, out_ptr):
            x = tl.load(x_ptr + tl.arange(0, 64))
            tl.store(out_ptr, tl.sum(x, axis=1))

        kernel[(1,)](x, out)
        """,
        "Your line comes first; the place in the library is named behind it.",
    ),
    Case(
        "A list that grows",
        """
        @tilewright.jit
        def kernel(x_ptr, out_ptr):
            parts = []
            for i in tl.static_range(4):
                parts.append(tl.load(x_ptr + i))
            tl.store(out_ptr, parts[0])

        kernel[(1,)](x, out)
        """,
    ),
    Case(
        "A size that is a float",
        """
        @tilewright.jit
        def kernel(out_ptr, BLOCK: tl.constexpr):
            tl.store(out_ptr + tl.arange(0, BLOCK), 1.0)

        kernel[(1,)](out, BLOCK=64 / 2)
        """,
    ),
    Case(
        "Recursion without an end",
        """
        @tilewright.jit
        def power(value, n: tl.constexpr):
            return value * power(value, n - 1)

        @tilewright.jit
        def kernel(out_ptr):
            tl.store(out_ptr, power(2.0, 3))

        kernel[(1,)](out)
        """,
    ),
    Case(
        "A function that is not a kernel function",
        """
        def square(value):
            return value * value

        @tilewright.jit
        def kernel(out_ptr):
            tl.store(out_ptr, square(3.0))

        kernel[(1,)](out)
        """,
    ),
    Case(
        "Python that the block language does not have",
        """
        @tilewright.jit
        def kernel(out_ptr):
            try:
                tl.store(out_ptr, 1.0)
            except ValueError:
                pass

        kernel[(1,)](out)
        """,
    ),
    Case(
        "A static assertion",
        """
        @tilewright.jit
        def kernel(out_ptr, BLOCK: tl.constexpr):
            tl.static_assert(BLOCK % 16 == 0, f"BLOCK is {BLOCK}, it must be a multiple of 16")
            tl.store(out_ptr + tl.arange(0, BLOCK), 1.0)

        kernel[(1,)](out, BLOCK=8)
        """,
    ),
    Case(
        "A device assertion",
        """
        @tilewright.jit
        def kernel(x_ptr, out_ptr):
            x = tl.load(x_ptr + tl.arange(0, 64))
            tl.device_assert(x < 10, "x is too large")
            tl.store(out_ptr + tl.arange(0, 64), x)

        kernel[(1,)](x, out)
        """,
        "Checked with `TILEWRIGHT_DEBUG=1`, `@tilewright.jit(debug=True)`, and always in interpreter mode.",
        debug=True,
    ),
    Case(
        "A missing argument",
        """
        @tilewright.jit
        def kernel(out_ptr, n, BLOCK: tl.constexpr):
            tl.store(out_ptr + tl.arange(0, BLOCK), n)

        kernel[(1,)](out, BLOCK=16)
        """,
    ),
    Case(
        "A misspelt option",
        """
        @tilewright.jit
        def kernel(out_ptr):
            tl.store(out_ptr, 1.0)

        kernel[(1,)](out, num_warp=8)
        """,
    ),
    Case(
        "An argument without a type",
        """
        @tilewright.jit
        def kernel(out_ptr, mode):
            tl.store(out_ptr, 1.0)

        kernel[(1,)](out, "fast")
        """,
    ),
    Case(
        "A read-only array",
        """
        @tilewright.jit
        def kernel(out_ptr):
            tl.store(out_ptr, 1.0)

        out.flags.writeable = False
        kernel[(1,)](out)
        """,
    ),
    Case(
        "A grid that is no grid",
        """
        @tilewright.jit
        def kernel(out_ptr):
            tl.store(out_ptr, 1.0)

        kernel[(64 / 16,)](out)
        """,
    ),
    Case(
        "An access out of bounds, found in interpreter mode",
        """
        @tilewright.jit(interpret=True)
        def kernel(out_ptr, n, BLOCK: tl.constexpr):
            offsets = tl.arange(0, BLOCK)
            tl.store(out_ptr + offsets, 1.0)

        kernel[(1,)](out, 64, BLOCK=128)
        """,
        "Compiled code does not check: a missing mask there reads or overwrites other memory.",
    ),
    Case(
        "An autotuner that is to reset what is no parameter",
        """
        @tilewright.autotune([tilewright.Config({"BLOCK": 16})], key=["n"], reset_to_zero=["result_ptr"])
        @tilewright.jit
        def kernel(out_ptr, n, BLOCK: tl.constexpr):
            tl.store(out_ptr + tl.arange(0, BLOCK), n)
        """,
    ),
)


_FOLDER = Path(__file__).resolve().parents[2] / "docs"
PAGE = Page("errors.md", _HEADER, _INTRODUCTION, CASES)


def is_current(page: Page) -> bool:
    """Whether the file of a page has its text."""
    path = _FOLDER / page.name
    return path.is_file() and path.read_text(encoding="utf-8") == markdown(page)


def main(arguments: list[str]) -> int:
    """Write the pages, or with ``--check`` compare them; returns the exit status. That of `hl` needs PyTorch."""
    pages = [PAGE, gallery_hl.PAGE] if importlib.util.find_spec("torch") is not None else [PAGE]
    if "--check" in arguments:
        return 0 if all(map(is_current, pages)) else 1
    for page in pages:
        (_FOLDER / page.name).write_text(markdown(page), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
