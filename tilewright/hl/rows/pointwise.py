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
from tilewright.hl.rows.dtypes import fitted, opmath, promoted
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
        integer: the template where the operation is computed in integers, if it is another one.
        typed: whether numbers are written with a type: functions of floats take no integers.
    """

    template: Template = ""
    meet: str = "result"
    integer: Template | None = None
    typed: bool = False

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
        except (RuntimeError, TypeError, NotImplementedError, AttributeError):
            return UNKNOWN
        return UNKNOWN if result != result else result

    def emit(self, emitter: Emitter, node: Node) -> None:
        out = node.out
        texts = [self.operand(emitter, node, at) for at in range(len(node.args))]
        whole = self.integer is not None and not node.compute.is_floating_point
        template = self.integer if whole and self.integer is not None else self.template
        options = {name: fitted(value, node.compute) for name, value in node.kwargs.items()}
        made = template.format(*texts) if isinstance(template, str) else template(*texts, **options)
        result = torch.bool if self.meet == "operands" else node.compute
        if result != out.dtype:
            made = f"({made}).to({emitter.dtype(out.dtype)})"
        emitter.assign(out, made)

    def operand(self, emitter: Emitter, node: Node, at: int) -> str:
        """The text of one operand."""
        arg = node.args[at]
        if self.typed and isinstance(arg, Value):
            return emitter.typed(arg, node.compute)
        text = emitter.operand(arg, node.compute)
        return f"tl.full([], {text}, {emitter.dtype(node.compute)})" if self.typed else text


@dataclass(frozen=True)
class Where(Pointwise):
    """`torch.where`: its condition keeps its own type."""

    def pads(self, node: Node, pads: Pads, out: Value, atom: Atom) -> Any:
        known = super().pads(node, pads, out, atom)
        if known is not UNKNOWN:
            return known
        arms = [pads.of(arg, atom) if isinstance(arg, Value) else arg for arg in node.args[1:]]
        same = UNKNOWN not in arms and arms[0] == arms[1]  # whatever the condition is
        return arms[0] if same else UNKNOWN

    def operand(self, emitter: Emitter, node: Node, at: int) -> str:
        return emitter.operand(node.args[at], None if at == 0 else node.compute)


def _table(meet: str, templates: dict[str, Template | tuple[Template, Template]], typed: bool = False) -> None:
    """Rows of one kind; a pair is (template for floats, template for integers)."""
    for name, template in templates.items():
        floats, integers = template if isinstance(template, tuple) else (template, None)
        row(Pointwise(name, None, floats, meet, integers, typed))


def _scaled(sign: str) -> Callable[..., str]:
    def text(left: str, right: str, alpha: Any = 1) -> str:
        return f"{left} {sign} {right}" if alpha == 1 else f"{left} {sign} {alpha} * {right}"

    return text


_FLOOR = "tl.where(({0} % {1} != 0) & (({0} < 0) != ({1} < 0)), {0} // {1} - 1, {0} // {1})"
_MODULO = "tl.where(({0} % {1} != 0) & (({0} < 0) != ({1} < 0)), {0} % {1} + {1}, {0} % {1})"
_FLOOR_FLOATS = (
    "tl.where({1} == 0, {0} / {1}, libdevice.rint(({0} - libdevice.fmod({0}, {1})) / {1} - "
    "((libdevice.fmod({0}, {1}) != 0) & ((libdevice.fmod({0}, {1}) < 0) != ({1} < 0))).to({0}.dtype)))"
)
_MODULO_FLOATS = (
    "tl.where((libdevice.fmod({0}, {1}) != 0) & ((libdevice.fmod({0}, {1}) < 0) != ({1} < 0)), "
    "libdevice.fmod({0}, {1}) + {1}, libdevice.fmod({0}, {1}))"
)
_SIGN = "({0} > 0).to({0}.dtype) - ({0} < 0).to({0}.dtype)"


_table(
    "result",
    {
        "add": _scaled("+"),
        "sub": _scaled("-"),
        "rsub": lambda left, right, alpha=1: _scaled("-")(right, left, alpha),
        "mul": "{0} * {1}",
        "neg": "-{0}",
        "abs": "tl.abs({0})",
        "sign": _SIGN,
        "maximum": "tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
        "minimum": "tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
        "clamp_min": "tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
        "clamp_max": "tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
        "fmax": "tl.maximum({0}, {1})",
        "fmin": "tl.minimum({0}, {1})",
        "relu": "tl.maximum({0}, 0, propagate_nan=tl.PropagateNan.ALL)",
        "floor": ("tl.floor({0})", "{0}"),
        "ceil": ("tl.ceil({0})", "{0}"),
        "trunc": ("libdevice.trunc({0})", "{0}"),
        "bitwise_and": "{0} & {1}",
        "bitwise_or": "{0} | {1}",
        "bitwise_xor": "{0} ^ {1}",
        "bitwise_not": "~{0}",
        "bitwise_left_shift": "{0} << {1}",
        "bitwise_right_shift": "{0} >> {1}",
        "__lshift__": "{0} << {1}",
        "__rshift__": "{0} >> {1}",
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
        "reciprocal": "1 / {0}",
    },
    typed=True,
)
_LIBDEVICE = """
    tan asin acos atan sinh cosh tanh asinh acosh atanh expm1 log1p log10 erfc erfinv lgamma atan2 hypot copysign
"""
for _name in _LIBDEVICE.split():
    _operands = "{0}, {1}" if _name in ("atan2", "hypot", "copysign") else "{0}"
    row(Pointwise(_name, None, f"libdevice.{_name}({_operands})", "float", typed=True))
for _name, _function in {
    "i0": "cyl_bessel_i0",
    "special_i1": "cyl_bessel_i1",
    "special_modified_bessel_i0": "cyl_bessel_i0",
    "special_modified_bessel_i1": "cyl_bessel_i1",
    "special_bessel_j0": "j0",
    "special_bessel_j1": "j1",
    "special_bessel_y0": "y0",
    "special_bessel_y1": "y1",
    "special_erfcx": "erfcx",
    "special_ndtri": "normcdfinv",
}.items():
    row(Pointwise(_name, None, f"libdevice.{_function}({{0}})", "float", typed=True))
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
        "isinf": ('tl.abs({0}) == float("inf")', "{0} != {0}"),
        "isfinite": ('tl.abs({0}) < float("inf")', "{0} == {0}"),
        "logical_and": "({0} != 0) & ({1} != 0)",
        "logical_or": "({0} != 0) | ({1} != 0)",
        "logical_xor": "({0} != 0) ^ ({1} != 0)",
        "logical_not": "{0} == 0",
    },
)
row(Where("where", None, "tl.where({0}, {1}, {2})"))


@dataclass(frozen=True)
class Chosen(Pointwise):
    """An operation whose template depends on its other arguments.

    Args:
        choose: from the node and whether it is computed in floats to the template.
    """

    choose: Callable[[Node, bool], str] = lambda node, floats: ""

    def emit(self, emitter: Emitter, node: Node) -> None:
        template = self.choose(node, node.compute.is_floating_point)
        plain = Node(node.op, node.args, {}, node.line, node.outs, compute=node.compute)
        Pointwise(self.name, None, template, self.meet, None, self.typed).emit(emitter, plain)


def _divide(node: Node, floats: bool) -> str:
    mode = node.kwargs.get("rounding_mode", "floor" if node.op == "floor_divide" else None)
    if mode is None:
        return "{0} / {1}"
    if mode == "trunc":
        return "libdevice.trunc({0} / {1})" if floats else "{0} // {1}"
    return _FLOOR_FLOATS if floats else _FLOOR


def _power(node: Node, floats: bool) -> str:
    exponent = node.args[1]
    if isinstance(exponent, int | float) and exponent in _POWERS:
        return _POWERS[exponent]
    if floats:
        return "libdevice.pow({0}, {1})"
    return " * ".join(["{0}"] * exponent)


def _round(node: Node, floats: bool) -> str:
    if not floats:
        return "{0}"
    decimals = node.kwargs.get("decimals", 0)
    ten = f"{10.0 ** abs(decimals)!r}"
    if decimals == 0:
        return "libdevice.rint({0})"
    return f"libdevice.rint({{0}} * {ten}) / {ten}" if decimals > 0 else f"libdevice.rint({{0}} / {ten}) * {ten}"


# How PyTorch computes powers with these exponents.
_POWERS: dict[int | float, str] = {
    0: "tl.full({0}.shape, 1, {0}.dtype)",
    0.5: "tl.sqrt({0})",
    1: "{0}",
    2: "{0} * {0}",
    3: "{0} * {0} * {0}",
    -0.5: "1 / tl.sqrt({0})",
    -1: "1 / {0}",
    -2: "1 / ({0} * {0})",
}

row(Chosen("div", None, typed=True, choose=_divide))
row(Chosen("floor_divide", None, typed=True, choose=_divide))
row(Chosen("pow", None, typed=True, choose=_power))
row(Chosen("round", None, choose=_round))
row(Pointwise("remainder", None, _MODULO_FLOATS, "result", _MODULO, True))
row(Pointwise("fmod", None, "libdevice.fmod({0}, {1})", "result", "{0} % {1}", True))
row(Pointwise("nextafter", None, "libdevice.nextafter({0}, {1})", "result", typed=True))
