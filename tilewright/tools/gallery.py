"""Writes docs/errors.md: mistakes that people make, and what Tilewright says about each.

Every kernel of the page is run and the error that it raises is printed below it, so the page shows what users see.

    python -m tilewright.tools.gallery            writes the page
    python -m tilewright.tools.gallery --check    compares it, exit status 1 if it is out of date
"""

from __future__ import annotations

import importlib.util
import re
import sys
import tempfile
import textwrap
from dataclasses import dataclass
from pathlib import Path

from tilewright.base.errors import TilewrightError
from tilewright.base.knobs import knobs

_FILE = "kernels.py"
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")
_OWN_LINE = re.compile(r"(\(tilewright/[\w/]+\.py):\d+\)")
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
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A mistake.

    Args:
        title: heading.
        code: the lines that make it, after those of `_HEADER`.
        remark: what the reader should take from it, if the error does not say it all.
        debug: whether device assertions are on, as with TILEWRIGHT_DEBUG=1.
    """

    title: str
    code: str
    remark: str = ""
    debug: bool = False


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


def _stable(text: str) -> str:
    """`text` without what differs between runs and versions."""
    return _OWN_LINE.sub(r"\1)", _ADDRESS.sub("0x…", text))


def run(case: Case) -> str:
    """Run the code of a case from a file and return the error as Python would print its last lines.

    Raises:
        RuntimeError: it raised nothing.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / _FILE
        path.write_text(f"{_HEADER}\n{textwrap.dedent(case.code).strip()}\n", encoding="utf-8")
        spec = importlib.util.spec_from_file_location("kernels", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        before, knobs.runtime.debug = knobs.runtime.debug, case.debug
        try:
            spec.loader.exec_module(module)
        except TilewrightError as error:
            return _stable(f"{type(error).__name__}: {error}".replace(str(path), _FILE))
        finally:
            knobs.runtime.debug = before
    raise RuntimeError(f"the case {case.title!r} raises nothing")


def markdown() -> str:
    """The page."""
    parts = [_INTRODUCTION.format(header=_HEADER)]
    for case in CASES:
        parts.append(f"## {case.title}\n\n```python\n{textwrap.dedent(case.code).strip()}\n```\n")
        parts.append(f"```text\n{run(case)}\n```\n")
        if case.remark:
            parts.append(f"{case.remark}\n")
    return "\n".join(parts)


def main(arguments: list[str]) -> int:
    """Write docs/errors.md, or with ``--check`` compare it; returns the exit status."""
    path, text = Path(__file__).resolve().parents[2] / "docs" / "errors.md", markdown()
    if "--check" in arguments:
        return 0 if path.is_file() and path.read_text(encoding="utf-8") == text else 1
    path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
