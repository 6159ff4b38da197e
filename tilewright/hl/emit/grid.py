"""The grid of a kernel: from the number of a program to the first index along each axis."""

from __future__ import annotations

from typing import Any

from tilewright.hl.dims import Axis
from tilewright.hl.emit.kernel import Kernel
from tilewright.hl.symbols import Sym, substitute, text


def emit_grid(kernel: Kernel, axes: list[Axis]) -> None:
    """Write the offsets of every axis, the first axis fastest."""
    several = len(axes) > 1
    if several:
        kernel.lines.write("pid = tl.program_id(0)")
    for at, axis in enumerate(axes):
        last = at == len(axes) - 1
        number = "tl.program_id(0)" if not several else "pid" if last else f"pid % {trips(kernel, axis)}"
        emit_offset(kernel, axis, number)
        if not last:
            kernel.lines.write(f"pid = pid // {trips(kernel, axis)}")


def emit_offset(kernel: Kernel, axis: Axis, number: str) -> None:
    """Write the first index of the tile with this number."""
    block, begin = kernel.decision.block(axis), kernel.symbol(axis.begin)
    name = kernel.offsets[axis.id] = kernel.names.new(stem("offset", axis))
    text = number if block == 1 else f"({number}) * {block}" if " " in number else f"{number} * {block}"
    kernel.lines.write(f"{name} = {text if begin == '0' else f'{begin} + {text}'}")


def stem(what: str, axis: Axis) -> str:
    """The wish for a name: `index_m` for the index of `tile_m`."""
    short = axis.name.removeprefix("tile_")
    if axis.kind == "grid":
        return short
    return what if short == "tile" else f"{what}_{short}"


def trips(kernel: Kernel, axis: Axis) -> str:
    """How many tiles an axis has, as text of the kernel."""
    count = _trips(kernel, axis)
    return str(count) if not isinstance(count, str) else count


def _trips(kernel: Kernel, axis: Axis) -> Any:
    extent = substitute(axis.end - axis.begin, kernel.decision.number)
    block = kernel.decision.block(axis)
    if not isinstance(extent, Sym):
        return -(-extent // block)
    written = kernel.symbol(extent)
    return written if block == 1 else f"tl.cdiv({written}, {block})"


def grid_text(kernel: Kernel, axes: list[Axis]) -> str:
    """The number of programs as text of the launcher."""
    counts = []
    for axis in axes:
        extent = substitute(axis.end - axis.begin, kernel.decision.number)
        block = kernel.decision.block(axis)
        if isinstance(extent, Sym):
            written = text(extent, lambda atom: atom.text)
            counts.append(written if block == 1 else f"tilewright.cdiv({written}, {block})")
        else:
            counts.append(str(max(0, -(-extent // block))))
    return " * ".join(counts)
