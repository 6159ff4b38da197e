"""Software pipelines of a kernel for a GPU: what its loops copy ahead, into how many buffers, and a time line of it.

The plan is read from laid-out tile IR: a loop that copies to one of several buffers is a pipeline of as many stages.
Time counts iterations: the plan says what may be under way beside what, not how long it takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from xdsl.ir import Operation, SSAValue

from tilewright.backends.nvidia.tgir.ops import (
    AsyncCopyOp,
    LocalAllocOp,
    LocalStoreOp,
    MemDescIndexOp,
    TmaLoadOp,
    WarpGroupDotOp,
    WarpGroupDotWaitOp,
    parse_module,
)
from tilewright.backends.nvidia.tgir.types import memdesc_bytes, memdesc_count
from tilewright.ops.control import ForOp
from tilewright.ops.dot import DotOp
from tilewright.tools.report.places import line_of
from tilewright.tools.report.svg import DOT, FAINT, INK, LINE, SOFT, plotting, svg_of

_BY: dict[type[Operation], str] = {
    AsyncCopyOp: "cp.async",
    TmaLoadOp: "the copy engine",
    LocalStoreOp: "computed operand",
}
_FEWEST = 4  # iterations that are drawn


@dataclass(frozen=True, slots=True)
class Filled:
    """What fills a ring of buffers.

    Args:
        line: of the kernel; 0 if it is from none.
        by: the means.
        bytes: of one buffer.
        buffers: of the ring.
    """

    line: int
    by: str
    bytes: int
    buffers: int


@dataclass(slots=True)
class Pipeline:
    """A loop that copies ahead.

    Args:
        line: of the loop.
        rings: what it fills ahead.
        products: lines of its products.
        in_flight: products go on while the next iteration is started.
    """

    line: int
    rings: list[Filled] = field(default_factory=list)
    products: list[int] = field(default_factory=list)
    in_flight: bool = False

    @property
    def stages(self) -> int:
        """Buffers of the longest ring."""
        return max(ring.buffers for ring in self.rings)

    def said(self) -> str:
        """The plan in words."""
        parts = [
            f"line {ring.line or '–'}: {ring.buffers} buffers of {ring.bytes:,} bytes, by {ring.by}"
            for ring in self.rings
        ]
        overlap = (
            "products of an iteration end in the next one" if self.in_flight else "products end in their iteration"
        )
        return "; ".join([*parts, overlap] if self.products else parts)


def pipelines_of(text: str, file: str, lines: range) -> list[Pipeline]:
    """The loops of a kernel that copy ahead, in the order of their lines.

    Where warps of their own copy, the loop stands there twice: with the copies, and with what reads them.

    Args:
        text: laid-out tile IR with locations.
        file, lines: where its source stands.
    """
    found: dict[int, Pipeline] = {}
    for loop in parse_module(text).walk():
        if not isinstance(loop, ForOp):
            continue
        line = line_of(loop, file, lines)
        made = found.setdefault(line or -1 - len(found), Pipeline(line))
        for op in _own(loop):
            buffer = _filled(op)
            if buffer is not None:
                held = (memdesc_bytes(buffer.result.type), memdesc_count(buffer.result.type))
                made.rings.append(Filled(line_of(op, file, lines), _BY[type(op)], *held))
            elif isinstance(op, WarpGroupDotOp | DotOp):
                made.products.append(line_of(op, file, lines))
            elif isinstance(op, WarpGroupDotWaitOp):
                made.in_flight |= bool(op.attr_values()["pendings"])
    return sorted((made for made in found.values() if made.rings), key=lambda pipeline: pipeline.line)


def _own(loop: ForOp) -> Iterator[Operation]:
    """The operations of a loop, without those of loops inside it."""
    for op in loop.body.block.ops:
        yield op
        for region in () if isinstance(op, ForOp) else op.regions:
            for block in region.blocks:
                yield from block.ops


def _filled(op: Operation) -> LocalAllocOp | None:
    """The ring that an operation fills a buffer of."""
    if not isinstance(op, AsyncCopyOp | TmaLoadOp | LocalStoreOp):
        return None
    place: SSAValue = op.dst
    index = place.owner
    if not isinstance(index, MemDescIndexOp) or not isinstance(index.src.owner, LocalAllocOp):
        return None
    return index.src.owner if memdesc_count(index.src.owner.result.type) > 1 else None


def drawing(pipeline: Pipeline, kernel: str) -> str:
    """The time line as SVG: a row for each buffer, and one for products; "" where matplotlib is not installed.

    Args:
        pipeline: what is drawn.
        kernel: whose it is, and for which target; no two of a page have one name.
    """
    made = plotting()
    if made is None:
        return ""
    pyplot, style = made
    stages, shown = pipeline.stages, max(_FEWEST, pipeline.stages + 2)
    late = 0.35 if pipeline.in_flight else 0.0  # of the next iteration, until what is in flight has ended
    with style:
        figure, axes = pyplot.subplots(figsize=(8.2, 0.5 + 0.42 * (stages + 1)))
        for iteration in range(shown):
            row = iteration % stages
            begin = iteration - (stages - 1) + (late if iteration >= stages - 1 else 0)
            _bar(axes, row, begin, iteration, SOFT, f"copy {iteration}", FAINT)
            _bar(axes, row, iteration, iteration + 1 + late, LINE, f"read {iteration}", LINE)
            _bar(
                axes,
                stages,
                iteration + (late if iteration else 0),
                iteration + 1 + late,
                DOT,
                f"product {iteration}",
                DOT,
            )
        axes.axvline(0, color=FAINT, linewidth=1)
        names = [f"buffer {number}" for number in range(stages)]
        axes.set_yticks(range(stages + 1), [*names, "tensor cores"])
        axes.set(xlim=(1 - stages, shown), ylim=(stages + 0.6, -0.6), xlabel="iterations of the loop")
        axes.set_xticks(range(1 - stages, shown + 1))
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(left=False)
        text = svg_of(figure, f"time line of the loop of line {pipeline.line} of {kernel}")
        pyplot.close(figure)
    return text


def _bar(axes: Any, row: int, begin: float, end: float, colour: str, label: str, edge: str) -> None:
    axes.barh(row, end - begin, left=begin, height=0.62, color=colour, alpha=0.55, edgecolor=edge)
    if end - begin >= 0.6:
        axes.text((begin + end) / 2, row, label, ha="center", va="center", fontsize=8, color=INK, clip_on=True)
