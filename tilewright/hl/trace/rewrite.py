"""Expressions of statements that Python would evaluate past the values of a trace: rewritten into calls.

`a and b`, `not a`, `a < b < c`, `a in (b, c)` and `a if c else b` ask for the truth of a value at once. A value of the
device has none while a kernel is traced, so these become calls of `trace.choices`, which take what is evaluated later,
or not at all, as functions.

A number before a size that is not one of Python's integers (`0.5 * n`, `True & n`, `numpy.int64(3) < n`) takes the size
for the integer that it invents: such arithmetic and comparisons ask the size first, in loops and on the host.
"""

from __future__ import annotations

import ast
from typing import Any, TypeVar

CHOICES = "__choices"  # the name under which statements find them
_SYMBOLS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
}
_ORDERS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
}
_Code = TypeVar("_Code", bound=ast.AST)


def rewritten(code: _Code, device: bool, test: bool = False) -> _Code:
    """A copy of an expression or statement that asks `trace.choices` for truths; itself where it asks for none.

    Args:
        code: what is rewritten.
        device: whether it runs in a loop over tiles; truths that the host asks for are rewritten in its functions
            alone, which loops may call.
        test: whether nothing but the truth of the expression counts.
    """
    wanted = _asks if device else _defines
    if not any(wanted(node) or _may_lead(node) for node in ast.walk(code)):
        return code
    made = _Rewriter(device).rewrite(code, test)
    ast.fix_missing_locations(made)
    return made


def _asks(node: ast.AST) -> bool:
    if isinstance(node, ast.Compare):
        return len(node.ops) > 1 or isinstance(node.ops[0], ast.In | ast.NotIn)
    truth = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "bool"
    return truth or isinstance(node, ast.BoolOp | ast.IfExp) or _is_not(node)


def _may_lead(node: ast.AST) -> bool:
    """Whether a number that is no plain integer may stand before a size, in arithmetic or a comparison."""
    if isinstance(node, ast.AugAssign):
        return isinstance(node.target, ast.Name) and type(node.op) in _ARITHMETIC
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        right = node.right
    elif isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _ORDERS:
        right = node.comparators[0]
    else:
        return False
    before = not isinstance(node.left, ast.Constant) or isinstance(node.left.value, float | complex | bool)
    return before and not isinstance(right, ast.Constant)


def _is_not(node: ast.AST) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


def _defines(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.Lambda) and any(map(_asks, ast.walk(node)))


def _binds(node: ast.AST) -> bool:
    """Whether an expression assigns a variable, which it cannot do from inside of a function."""
    return any(isinstance(inner, ast.NamedExpr) for inner in ast.walk(node))


class _Rewriter:
    def __init__(self, device: bool) -> None:
        self.device = device

    def rewrite(self, node: _Code, test: bool = False) -> _Code:
        """A copy of `node`; where only its truth counts, of its parts too."""
        device, self.device = self.device, self.device or isinstance(node, ast.FunctionDef | ast.Lambda)
        made: Any = self._asking(node, test) if self.device and isinstance(node, ast.expr) else None
        if isinstance(node, ast.BinOp) and _may_lead(node):
            sides = self.rewrite(node.left), self.rewrite(node.right)
            made = _call(node, "combined", ast.Constant(_ARITHMETIC[type(node.op)]), *sides)
        if isinstance(node, ast.Compare) and _may_lead(node):
            sides = self.rewrite(node.left), self.rewrite(node.comparators[0])
            made = _call(node, "ordered", ast.Constant(_SYMBOLS[type(node.ops[0])]), *sides)
        if isinstance(node, ast.AugAssign) and _may_lead(node) and isinstance(node.target, ast.Name):
            own = ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target)
            value = _call(own, "augmented", ast.Constant(_ARITHMETIC[type(node.op)]), own, self.rewrite(node.value))
            made = ast.Assign([node.target], value)
        if made is None:
            made = type(node)(**{name: self._field(name, value) for name, value in ast.iter_fields(node)})
        self.device = device
        ast.copy_location(made, node)
        return made  # type: ignore[no-any-return]

    def _field(self, name: str, value: Any) -> Any:
        if isinstance(value, list):
            return [self._field(name, item) for item in value]
        return self.rewrite(value, name in ("test", "ifs")) if isinstance(value, ast.AST) else value

    def _asking(self, node: ast.expr, test: bool) -> ast.expr | None:
        """The call that stands for an expression that asks for a truth; None for others."""
        if isinstance(node, ast.BoolOp) and not any(map(_binds, node.values[1:])):
            first, *rest = node.values
            stop = isinstance(node.op, ast.Or)
            return _call(
                node,
                "chain",
                ast.Constant(stop),
                ast.Constant(test),
                self.rewrite(first, test),
                *(self._later(item, test) for item in rest),
            )
        if isinstance(node, ast.IfExp) and not _binds(node.body) and not _binds(node.orelse):
            arms = [self.rewrite(arm, test) for arm in (node.body, node.orelse)]
            arms = [_call(arm, "truth", arm) for arm in arms] if test else arms
            return _call(node, "choose", self.rewrite(node.test, True), *map(_lambda, arms))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return _call(node, "negated", self.rewrite(node.operand, True))
        if isinstance(node, ast.Compare) and _asks(node) and not any(map(_binds, node.comparators[1:])):
            ops = [ast.Constant(_SYMBOLS[type(op)]) for op in node.ops]
            right, *rest = node.comparators
            steps = [self.rewrite(right), *(self._later(item) for item in rest)]
            names = ast.Tuple(list(ops), ast.Load())
            return _call(node, "compared", ast.Constant(test), names, self.rewrite(node.left), *steps)
        if isinstance(node, ast.Call) and _asks(node) and len(node.args) == 1 and not node.keywords:
            return _call(node, "truth_by", self.rewrite(node.func), self.rewrite(node.args[0], True))
        return None

    def _later(self, node: ast.expr, test: bool = False) -> ast.expr:
        return _lambda(self.rewrite(node, test))


def _lambda(body: ast.expr) -> ast.expr:
    return ast.copy_location(ast.Lambda(ast.arguments([], [], None, [], [], None, []), body), body)


def _call(place: ast.expr, name: str, *arguments: ast.expr) -> ast.expr:
    choices = ast.Name(CHOICES, ast.Load())
    made = ast.Call(ast.Attribute(choices, name, ast.Load()), list(arguments), [])
    for part in (choices, made.func, made):
        ast.copy_location(part, place)
    return made
