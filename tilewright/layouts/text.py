"""Layouts as text: what laid-out tile IR prints, and constructors by name as people type them.

register=(0,1); lane=(0,2) (0,4) (1,0) (2,0) (4,0); warp=(8,0); block= : 16x8
blocked((1, 2), (8, 4), (2, 1), (1, 0), (16, 8))
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from typing import Any

from tilewright.base.syntax import parse
from tilewright.layouts import distributed, shared
from tilewright.layouts.distributed import dim_names
from tilewright.layouts.f2 import LayoutError
from tilewright.layouts.linear import LinearLayout

CONSTRUCTORS: Mapping[str, Callable[..., LinearLayout]] = {
    made.__name__: made
    for made in (
        distributed.blocked, distributed.default_blocked, distributed.mma_accumulator, distributed.mma_operand_a,
        distributed.mma_operand_b, distributed.wgmma_accumulator, distributed.wgmma_operand_a, shared.row_major,
        shared.swizzled, shared.hardware_swizzled,
    )
}  # fmt: skip


def spelled(layout: LinearLayout) -> str:
    """The bases of each input and the sizes of the outputs: "register=(0,1) (0,2); lane=(1,0) : 2x4"."""
    bases = layout.bases()
    groups = [f"{dim}={' '.join('(' + ','.join(map(str, b)) + ')' for b in bases[dim])}" for dim, _ in layout.ins]
    return f"{'; '.join(groups)} : {'x'.join(map(str, layout.out_sizes.values()))}"


def parsed(text: str) -> LinearLayout:
    """The layout that `spelled` writes so.

    Raises:
        LayoutError: the text is no layout.
    """
    groups, _, sizes = text.rpartition(":")
    try:
        outs = [int(size) for size in sizes.split("x")]
        bases = {}
        for group in groups.split(";"):
            dim, equals, columns = group.strip().partition("=")
            if not (
                equals and dim.isidentifier() and re.fullmatch(r"(\s*\(\s*\d+(\s*,\s*\d+)*\s*,?\s*\)\s*)*", columns)
            ):
                raise ValueError(group)
            found = re.findall(r"\(([^)]*)\)", columns)
            bases[dim] = [tuple(int(part) for part in column.split(",") if part.strip()) for column in found]
    except ValueError as error:
        raise LayoutError(f"{text!r} is no layout: write 'register=(0,1); lane=(1,0) (2,0) : 4x2'") from error
    return LinearLayout.from_bases(bases, dict(zip(dim_names(len(outs)), outs, strict=True)))


def read(text: str) -> LinearLayout:
    """A layout as somebody types it: in the form of `spelled`, or a call of one of `CONSTRUCTORS`.

    Args:
        text: "lane=(1) (2); register=(4) : 8", or "mma_accumulator((2, 2), shape=(64, 64))".

    Raises:
        LayoutError: it is neither, or the constructor does not take such arguments.
    """
    if not re.match(r"\s*\w+\s*\(", text):
        return parsed(text.removeprefix("#tw.layout<").removesuffix(">").strip('" '))
    try:
        call = parse(text.strip(), mode="eval").body
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
            raise ValueError(text)
        made = CONSTRUCTORS.get(call.func.id)
        args = [ast.literal_eval(argument) for argument in call.args]
        named: dict[str, Any] = {word.arg: ast.literal_eval(word.value) for word in call.keywords if word.arg}
    except (SyntaxError, ValueError) as error:
        example = "blocked((1, 2), (8, 4), (2, 1), (1, 0), (16, 8))"
        raise LayoutError(f"{text!r} is no call with constants: write {example}") from error
    if made is None:
        raise LayoutError(f"there is no layout {call.func.id!r}; there are {', '.join(CONSTRUCTORS)}")
    try:
        return made(*args, **named)
    except (TypeError, IndexError, AttributeError) as error:
        raise LayoutError(f"{text!r}: {error}") from error
