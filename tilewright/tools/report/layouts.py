"""Layouts of a kernel's tiles, from the algebra: who holds each element, banks of shared memory, conversions.

Operations of laid-out tile IR name the layouts of their operands; what an access or a conversion costs is computed anew
from the two layouts, as the back end does (`layouts/access.py`, `layouts/conversion.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.backends.nvidia.tgir.ops import (
    AsyncCopyOp,
    ConvertLayoutOp,
    LocalAllocOp,
    LocalLoadOp,
    LocalStoreOp,
    WarpGroupDotOp,
    parse_module,
)
from tilewright.backends.nvidia.tgir.types import LayoutAttr, MemDescType
from tilewright.base.errors import UnsupportedError
from tilewright.ir.types import bit_width, element_type, shape_of
from tilewright.layouts import text as layout_text
from tilewright.layouts.access import BANKS, SharedAccess, plan_access, unique_registers
from tilewright.layouts.conversion import plan_conversion
from tilewright.layouts.exchange import SharedPlan
from tilewright.layouts.f2 import LayoutError
from tilewright.layouts.linear import LinearLayout
from tilewright.tools.report.places import line_of
from tilewright.tools.report.stages import layouts_named

_ROWS, _COLUMNS = 128, 128  # elements of a tile that are shown
_BY_MATRICES = (LocalLoadOp, LocalStoreOp)  # ldmatrix, stmatrix
_COPIES = (*_BY_MATRICES, AsyncCopyOp, LocalAllocOp)


def layout_data(layout: LinearLayout, bits: int = 32) -> dict[str, Any]:
    """A layout as a grid of elements, for the page: who holds each of them.

    Args:
        layout: of a tile in registers, or of a buffer (then its input is "offset").
        bits: of an element.

    Returns:
        sizes of the inputs and of the tile, and by input the value at each element, row by row; of elements that
        several positions hold that of the first, with the number of copies. -1 where nobody does.
    """
    sizes = list(layout.out_sizes.values())
    rows, columns = ([1] * (2 - len(sizes)) + sizes)[-2:] if len(sizes) <= 2 else (math.prod(sizes[:-1]), sizes[-1])
    names = list(layout.in_sizes)
    points = np.indices(list(layout.in_sizes.values())).reshape(len(names), -1)[:, ::1]
    coordinates = layout.array(**dict(zip(names, points)))
    flat = np.zeros(points.shape[1], np.int64)
    for name, size in layout.out_sizes.items():
        flat = flat * size + coordinates[name]
    order = np.arange(points.shape[1])[::-1]  # the first position of an element is written last
    held = {name: np.full(rows * columns, -1) for name in names}
    for name, values in zip(names, points):
        held[name][flat[order]] = values[order]
    copies = np.bincount(flat, minlength=rows * columns)
    down, right = min(rows, _ROWS), min(columns, _COLUMNS)
    part = {name: grid.reshape(rows, columns)[:down, :right].ravel().tolist() for name, grid in held.items()}
    if "offset" in part:
        part["bank"] = [offset * bits // 32 % BANKS if offset >= 0 else -1 for offset in part["offset"]]
    return {
        "text": layout_text.spelled(layout), "tile": sizes, "rows": down, "columns": right,
        "cut": (down, right) != (rows, columns),
        "shared": "offset" in names, "bits": bits, "copies": int(copies.max()), "inputs": layout.in_sizes, "held": part,
    }  # fmt: skip


def layouts_of(text: str, file: str, lines: range) -> dict[str, Any]:
    """The layouts of a kernel, its accesses to shared memory and its conversions, as data for the page.

    Args:
        text: laid-out tile IR with locations.
        file, lines: where its source stands.
    """
    names = {spelled: name for name, spelled in layouts_named(text).items()}
    uses: dict[str, _Use] = {}
    accesses: dict[tuple[Any, ...], dict[str, Any]] = {}
    for op in parse_module(text).walk():
        number = line_of(op, file, lines)
        for value in op.results:
            if (tile := _Tile.of(value, names)) is not None:
                uses.setdefault(tile.name, _Use(tile)).add(tile, number, value.name_hint)
        row = _access(op, names)
        if row is not None:
            key = (number, op.name, row["from"], row["to"])
            accesses.setdefault(key, {"line": number, "operation": op.name, "count": 0, **row})["count"] += 1
    shown = [use for use in uses.values() if math.prod(use.tile.layout.out_sizes.values()) > 1]
    shown.sort(key=lambda use: (-min(2, len(use.tile.shape)), -math.prod(use.tile.layout.out_sizes.values())))
    return {"grids": [use.data() for use in shown], "accesses": list(accesses.values())}


@dataclass(frozen=True, slots=True)
class _Tile:
    """The type of a value with a layout: a tile in registers, or a buffer in shared memory."""

    name: str
    shape: tuple[int, ...]
    element: Attribute
    layout: LinearLayout

    @classmethod
    def of(cls, value: SSAValue, names: Mapping[str, str]) -> _Tile | None:
        """That of a value; None if it has no layout."""
        kind = value.type.tile if isinstance(value.type, MemDescType) else value.type
        if not isinstance(kind, TensorType) or not isinstance(kind.encoding, LayoutAttr):
            return None
        spelled = kind.encoding.spelled.data
        return cls(names.get(spelled, spelled), shape_of(kind), element_type(kind), kind.encoding.layout)

    @property
    def bits(self) -> int:
        """Of an element in memory: a byte at least."""
        return max(8, bit_width(self.element))

    @property
    def is_shared(self) -> bool:
        """Whether it is a buffer in shared memory."""
        return "offset" in self.layout.in_sizes


class _Use:
    """What in a kernel has one layout."""

    def __init__(self, tile: _Tile) -> None:
        self.tile = tile
        self._shapes: dict[str, None] = {}
        self._lines: dict[int, None] = {}
        self._values: dict[str, None] = {}

    def add(self, tile: _Tile, line: int, value: str | None) -> None:
        """One more value that has it."""
        self._shapes[f"{'×'.join(map(str, tile.shape))} {tile.element}"] = None
        if line:
            self._lines[line] = None
        if value:
            self._values[f"%{value}"] = None

    def data(self) -> dict[str, Any]:
        """As the page has it."""
        used = {"shapes": list(self._shapes), "lines": list(self._lines), "values": list(self._values)}
        return {"name": self.tile.name, **layout_data(self.tile.layout, self.tile.bits), **used}


def _access(op: Operation, names: Mapping[str, str]) -> dict[str, Any] | None:
    """What an access to shared memory or a conversion takes; None for other operations."""
    tiles = [tile for value in (*op.operands, *op.results) if (tile := _Tile.of(value, names)) is not None]
    buffers, held = [t for t in tiles if t.is_shared], [t for t in tiles if not t.is_shared]
    try:
        if isinstance(op, ConvertLayoutOp) and len(held) == 2:
            return _conversion(*held)
        if isinstance(op, _COPIES) and held and buffers:
            offsets = unique_registers(held[0].layout)[0].invert_and_compose(buffers[0].layout)
            plan = plan_access(offsets, buffers[0].bits, matrix=isinstance(op, _BY_MATRICES))
            return _row(held[0], buffers[0], plan.kind.replace("_", " "), plan)
    except (LayoutError, UnsupportedError):  # a tile that the back end takes to pieces first
        return None
    return _row(buffers[0], held[-1], "wgmma") if isinstance(op, WarpGroupDotOp) and buffers else None


def _conversion(source: _Tile, destination: _Tile) -> dict[str, Any]:
    plan = plan_conversion(source.layout, destination.layout, source.bits)
    if isinstance(plan, SharedPlan):
        return _row(source, destination, plan.kind, plan.store, plan.load)
    return {**_row(source, destination, plan.kind), "instructions": plan.shuffles}


def _row(source: _Tile, destination: _Tile, kind: str, *plans: SharedAccess) -> dict[str, Any]:
    return {
        "from": source.name, "to": destination.name, "kind": kind,
        "instructions": sum(len(plan.instructions) for plan in plans),
        "wavefronts": sum(plan.wavefronts for plan in plans), "conflicts": sum(plan.conflicts for plan in plans),
        "vector": max((plan.vector_bits for plan in plans), default=0),
    }  # fmt: skip
