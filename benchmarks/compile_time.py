"""How the time of a compile grows with the length of a kernel.

``python -m benchmarks.compile_time [--target cuda:90] [--out FILE] [SHAPE ...]`` prints the curves, and writes them.
Each shape is a family of kernels with a number of statements (or iterations that are unrolled, or elements that are
sorted); a compile should take no more than a little over n times as long for n times as many. Nothing is run, so a
GPU's code needs no GPU.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from benchmarks import report
from benchmarks.startup import Timing
from tilewright.tools.modules import load_file


@dataclass(frozen=True)
class Shape:
    """A family of kernels.

    Args:
        lines: of the body of `kernel(p, q, n)`, for a length. The pointers are to f32, `n` is an i32.
        lengths: that are measured.
        most: seconds that the compile for the CPU of the length `at` may take.
        at: that length.
    """

    lines: Callable[[int], list[str]]
    lengths: tuple[int, ...]
    most: float
    at: int


_TILE = ["i = tl.arange(0, 64)", "x = tl.load(p + i)", "y = x"]
_END = ["tl.store(q + i, y)"]


def _scalar(length: int) -> list[str]:
    return ["a = n", *(f"a = a * 3 + n + {i}" for i in range(length)), "tl.store(q, a.to(tl.float32))"]


def _branches(length: int) -> list[str]:
    steps = (line for i in range(length) for line in (f"if n > {i}:", f"    a += {i}", "else:", "    a *= 3"))
    return ["a = n", *steps, "tl.store(q, a.to(tl.float32))"]


def _returns(length: int) -> list[str]:
    """Each stands in the `else` of the one before."""
    return [line for i in range(length) for line in (f"if n == {i}:", f"    tl.store(q, {i}.0)", "    return")]


def _unrolled(length: int) -> list[str]:
    access = "tl.store(q + j * 64 + i, tl.load(p + j * 64 + i) * 2.0)"
    return [_TILE[0], f"for j in tl.static_range({length}):", f"    {access}"]


def _sort(length: int) -> list[str]:
    return [f"i = tl.arange(0, {length})", "tl.store(q + i, tl.sort(tl.load(p + i)))"]


def _product(length: int) -> list[str]:
    rows, columns = "m[:, None] * n", "m[None, :]"
    return [
        f"m, k = tl.arange(0, {length}), tl.arange(0, 64)",
        f"x, y = tl.load(p + {rows} + k[None, :]), tl.load(p + k[:, None] * n + {columns})",
        f"tl.store(q + {rows} + {columns}, tl.dot(x, y, input_precision='ieee'))",
    ]


def _block(length: int) -> list[str]:
    return [
        f"i = tl.arange(0, {length})",
        "top, total = tl.full(i.shape, -1e30, tl.float32), tl.zeros(i.shape, tl.float32)",
        f"for j in range(0, n, {length}):",
        "    x = tl.load(p + j + i, mask=j + i < n, other=-1e30)",
        "    new = tl.maximum(top, x)",
        "    total, top = total * tl.exp(top - new) + tl.exp(x - new), new",
        "tl.store(q + i, total)",
    ]


def _butterflies(length: int) -> list[str]:
    """As many tiles, each of which is made of all."""
    tiles, steps = range(length), [1 << bit for bit in range(length.bit_length() - 1)]
    return [
        _TILE[0],
        *(f"x{a} = tl.load(p + {64 * a} + i)" for a in tiles),
        *(f"x{a}, x{a | s} = x{a} + x{a | s}, x{a} - x{a | s} * 0.5" for s in steps for a in tiles if not a & s),
        *(f"tl.store(q + {64 * a} + i, x{a})" for a in tiles),
    ]


def _sum(length: int) -> list[str]:
    loads = (f"y += tl.load(p + {8 * number} + i)" for number in range(length))
    return [*_TILE, *loads, *_END]


def _sum_in_place(length: int) -> list[str]:
    """The sum is stored to what was loaded: all loads come first."""
    return [*_sum(length)[:-1], "tl.store(p + i, y)"]


def _overlapping(length: int) -> list[str]:
    """Each store goes to elements that others load."""
    return [_TILE[0], *(f"tl.store(p + {8 * a} + i, tl.load(p + {8 * a + 4} + i) * 2.0)" for a in range(length))]


def _handed_on(length: int) -> list[str]:
    """Loads that go from one name to the next in each iteration."""
    names = [f"x{number}" for number in range(length)]
    last = f"tl.load(p + 64 * k + {64 * length} + i)"
    return [
        _TILE[0],
        *(f"{name} = tl.load(p + {64 * number} + i)" for number, name in enumerate(names)),
        "y = i * 0.0",
        "for k in range(0, n):",
        *(f"    y += {name} * {number}.5" for number, name in enumerate(names)),
        f"    {', '.join(names)} = {', '.join([*names[1:], last])}",
        *_END,
    ]


def _turned(length: int) -> list[str]:
    """Sums over one loop, of whose terms each may go on where another ends."""
    row = f"        y += tl.load(p + k * {64 * length} + ((i + j) % 64))"
    return [_TILE[0], "y = i * 0.0", "for k in range(0, n):", f"    for j in tl.static_range({length}):", row, *_END]


def _states(length: int) -> list[str]:
    """Steps of a recurrence of a matrix, each of which stores a row."""
    steps = [
        "k, v = tl.load(p + j * 16 + i), tl.load(q + j * 16 + i)",
        "h = h * 0.9 + k[:, None] * v[None, :]",
        "tl.store(q + n + j * 16 + i, tl.sum(h * k[:, None], 0))",
    ]
    head = ["i = tl.arange(0, 16)", "h = tl.zeros((16, 16), tl.float32)", f"for j in tl.static_range({length}):"]
    return [*head, *(f"    {step}" for step in steps)]


_MANY = (50, 200, 800, 2000)
SHAPES = {
    "loads and stores": Shape(
        lambda n: [f"tl.store(q + {i}, tl.load(p + {i}) + {i}.0)" for i in range(n)], _MANY, 1.0, 200
    ),
    "scalar chain": Shape(_scalar, _MANY, 1.0, 800),
    "tile chain": Shape(lambda n: [*_TILE, *["y = y * x + 0.5"] * n, *_END], _MANY, 1.0, 800),
    "selections of tiles": Shape(
        lambda n: [*_TILE, *(f"y = tl.where(y > {i}.0, y - x, y * 2.0)" for i in range(n)), *_END], _MANY, 1.0, 200
    ),
    "unrolled tiles": Shape(_unrolled, _MANY, 1.0, 200),
    "tiles that overlap": Shape(_overlapping, _MANY, 1.0, 200),
    "loads into one sum": Shape(_sum, _MANY, 1.0, 200),
    "sum in place": Shape(_sum_in_place, _MANY, 1.0, 400),
    "butterflies": Shape(_butterflies, (16, 32, 64), 1.0, 32),
    "loads handed on": Shape(_handed_on, (8, 32, 128), 1.0, 64),
    "sums over one loop": Shape(_turned, (8, 32, 128), 1.0, 64),
    "states of a recurrence": Shape(_states, (8, 32, 128), 1.0, 64),
    "branches": Shape(_branches, (50, 200, 800), 1.0, 200),
    "early returns": Shape(_returns, (50, 200, 800), 1.0, 100),
    "sort": Shape(_sort, (32, 128, 512), 1.0, 128),
    "sort f16": Shape(
        lambda n: [line.replace("tl.load(p + i)", "tl.load(p + i).to(tl.float16)") for line in _sort(n)],
        (32, 128, 512),
        1.0,
        128,
    ),
    "exact product": Shape(_product, (32, 64, 128), 2.0, 128),
    "large block": Shape(_block, (1024, 8192, 65536), 2.0, 8192),
}


def kernel_of(shape: str, length: int, folder: Path) -> Any:
    """A kernel of a shape, written to a file of `folder`, where the front end finds its text."""
    path = folder / f"{shape.replace(' ', '_')}_{length}.py"
    body = "".join(f"    {line}\n" for line in SHAPES[shape].lines(length))
    head = "import tilewright\nimport tilewright.language as tl\n\n\n@tilewright.jit\ndef kernel(p, q, n):\n"
    path.write_text(head + body)
    return load_file(path).kernel


def seconds_of(shape: str, length: int, target: str | None = None) -> dict[str, float]:
    """Seconds of each stage of a compile, without any cache; for a target as text, or this CPU."""
    import tilewright
    from tilewright.compiler import ASTSource

    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as folder:
        fn = kernel_of(shape, length, Path(folder))
        source = ASTSource(fn, {"p": "*fp32", "q": "*fp32", "n": "i32"})
        before = tilewright.knobs.cache.disabled
        tilewright.knobs.cache.disabled = True
        try:
            return dict(tilewright.compile(source, target).seconds)
        finally:
            tilewright.knobs.cache.disabled = before


def growth_times(step: Callable[[str], None]) -> Iterator[Timing]:
    """A row for each shape and length on this CPU."""
    seconds_of("sort", 4)  # what the first compile of a process loads
    for name, shape in SHAPES.items():
        for length in sorted({*shape.lengths[:3], shape.at}):
            step(f"compile {name} {length}")
            most = shape.most if length == shape.at else None
            yield Timing("compile growth", f"{name}, {length}", sum(seconds_of(name, length).values()), most)


@click.command()
@click.argument("shapes", nargs=-1)
@click.option("--target", default=None, help="Such as cuda:90; default is this CPU.")
@click.option("--rounds", default=3, help="Compiles of each kernel; the quickest counts.")
@click.option("--out", type=click.Path(path_type=Path), help="JSON file.")
def main(shapes: tuple[str, ...], target: str | None, rounds: int, out: Path | None) -> None:
    """Print the curve of each shape."""
    seconds_of("sort", 4, target)
    points = []
    for name in shapes or SHAPES:
        for length in sorted({*SHAPES[name].lengths, SHAPES[name].at}):
            found = min((seconds_of(name, length, target) for _ in range(rounds)), key=lambda at: sum(at.values()))
            most = SHAPES[name].most if length == SHAPES[name].at else None
            total = sum(found.values())
            points.append({"shape": name, "length": length, "seconds": total, "most": most, "stages": found})
            stages = ", ".join(f"{stage} {1e3 * value:.0f}" for stage, value in found.items())
            print(f"{name:20} {length:5}: {1e3 * total:7.0f} ms   ({stages})", flush=True)
    if out is not None:
        document = {**report.where(), "target": target or "this CPU", "rounds": rounds, "points": points}
        out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
