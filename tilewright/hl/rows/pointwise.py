"""Operations element by element: templates of `tl` expressions.

Operands are converted to the type in which eager PyTorch computes (float32 for 16-bit floats), the result to the type
that PyTorch says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tilewright.hl.graph.nodes import Node, Value
from tilewright.hl.rows.dtypes import opmath, promoted
from tilewright.hl.rows.table import UNKNOWN, Emitter, Pads, Row, row
from tilewright.hl.symbols import Atom

Template = str | Callable[..., str]


@dataclass(frozen=True)
class Pointwise(Row):
    """An operation element by element.

    Args:
        template: an expression with `{0}`, `{1}`, ... for the operands, or a function from operand texts and the
            node's other arguments (by name) to an expression.
        meet: "result" where operands are converted to the type of the result, "operands" where they meet in the type
            of their own (comparisons, tests), "float" where integers count as float32.
    """

    template: Template = ""
    meet: str = "result"

    def compute_type(self, args: tuple[Any, ...], out: Any) -> Any:
        if self.meet == "result":
            return opmath(out.dtype)
        found = opmath(promoted(args))
        return found if self.meet == "operands" or found.is_floating_point else torch.float32

    def pads(self, node: Node, pads: Pads, out: Value, atom: Atom) -> Any:
        constants = []
        for arg in node.args:
            known = pads.of(arg, atom) if isinstance(arg, Value) else arg
            if known is UNKNOWN or isinstance(known, list):
                return UNKNOWN
            constants.append(torch.tensor(known, dtype=arg.dtype) if isinstance(arg, Value) else known)
        try:
            result = getattr(torch.ops.aten, self.name)(*constants, **node.kwargs).item()
        except (RuntimeError, TypeError, NotImplementedError):
            return UNKNOWN
        return UNKNOWN if result != result else result

    def emit(self, emitter: Emitter, node: Node) -> None:
        out = node.out
        texts = [self.operand(emitter, node, at) for at in range(len(node.args))]
        made = self.template.format(*texts) if isinstance(self.template, str) else self.template(*texts, **node.kwargs)
        result = torch.bool if self.meet == "operands" else node.compute
        if result != out.dtype:
            made = f"({made}).to({emitter.dtype(out.dtype)})"
        emitter.assign(out, made)

    def operand(self, emitter: Emitter, node: Node, at: int) -> str:
        """The text of operand `at`."""
        return emitter.operand(node.args[at], node.compute)


@dataclass(frozen=True)
class Where(Pointwise):
    """`torch.where`: its condition keeps its own type."""

    def operand(self, emitter: Emitter, node: Node, at: int) -> str:
        return emitter.operand(node.args[at], None if at == 0 else node.compute)


def _table(meet: str, templates: dict[str, Template]) -> None:
    for name, template in templates.items():
        row(Pointwise(name, None, template, meet))


def _scaled(sign: str) -> Callable[..., str]:
    def text(left: str, right: str, alpha: Any = 1) -> str:
        return f"{left} {sign} {right}" if alpha == 1 else f"{left} {sign} {alpha} * {right}"

    return text


def _divide(left: str, right: str, rounding_mode: str | None = None) -> str:
    if rounding_mode == "floor":
        return f"tl.floor({left} / {right})"
    return f"{left} / {right}" if rounding_mode is None else f"libdevice.trunc({left} / {right})"


_table(
    "result",
    {
        "add": _scaled("+"),
        "sub": _scaled("-"),
        "rsub": lambda left, right, alpha=1: _scaled("-")(right, left, alpha),
        "mul": "{0} * {1}",
        "div": _divide,
        "neg": "-{0}",
        "abs": "tl.abs({0})",
        "maximum": "tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
        "minimum": "tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
        "clamp_min": "tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
        "clamp_max": "tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
        "relu": "tl.maximum({0}, 0, propagate_nan=tl.PropagateNan.ALL)",
        "bitwise_and": "{0} & {1}",
        "bitwise_or": "{0} | {1}",
        "bitwise_xor": "{0} ^ {1}",
        "bitwise_not": "~{0}",
    },
)
_table(
    "float",
    {
        "exp": "tl.exp({0})",
        "exp2": "tl.exp2({0})",
        "log": "tl.log({0})",
        "log2": "tl.log2({0})",
        "sqrt": "tl.sqrt({0})",
        "rsqrt": "tl.rsqrt({0})",
        "sigmoid": "tl.sigmoid({0})",
        "sin": "tl.sin({0})",
        "cos": "tl.cos({0})",
        "erf": "tl.erf({0})",
        "tanh": "libdevice.tanh({0})",
        "log1p": "libdevice.log1p({0})",
        "expm1": "libdevice.expm1({0})",
        "reciprocal": "1 / {0}",
    },
)
_table(
    "operands",
    {
        "gt": "{0} > {1}",
        "ge": "{0} >= {1}",
        "lt": "{0} < {1}",
        "le": "{0} <= {1}",
        "eq": "{0} == {1}",
        "ne": "{0} != {1}",
        "isnan": "{0} != {0}",
    },
)
row(Where("where", None, "tl.where({0}, {1}, {2})"))
