"""Plain Python in which accumulators keep what they hold in lanes that a cut tile does not have.

PyTorch knows nothing of such lanes, so for a reference the assignments to variables that a loop carries are rewritten:
`acc = torch.maximum(acc, x[rows, columns])` becomes `acc = kept(lambda: acc, torch.maximum(acc, x[rows, columns]))`.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable
from types import CellType, FunctionType
from typing import Any

import torch

from tilewright import syntax
from tilewright.hl.trace import builtins
from tilewright.hl.trace.source import Source

_KEPT = "kept_lanes_of"


def keeping(function: Callable[..., Any], source: Source) -> Callable[..., Any]:
    """A kernel's plain function, rewritten so that accumulators keep their lanes.

    Args:
        function: the function.
        source: its text, with what its loops were found to carry.
    """
    assert isinstance(function, FunctionType)
    tree = copy.deepcopy(source.tree)
    loops = {id(twin): id(node) for node, twin in zip(ast.walk(source.tree), ast.walk(tree), strict=True)}
    tree.decorator_list = []
    _Rewriter(source.carried, loops).visit(tree)
    cells = {
        name: cell.cell_contents
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    }
    names = {**function.__globals__, **cells, _KEPT: _kept}
    exec(syntax.code_of(ast.fix_missing_locations(ast.Module([tree], [])), source.file, "exec"), names)
    made = names[tree.name]
    assert isinstance(made, FunctionType)
    made.__defaults__ = function.__defaults__
    return made


def standing_in(function: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel's plain function, in which names of its module and of functions around it are what they are in kernels:
    torch's `associative_scan`, which on a CPU asks for a GPU, is that of the language."""
    assert isinstance(function, FunctionType)
    held, used = function.__closure__ or (), function.__code__.co_names
    cells = tuple(CellType(builtins.instead(cell.cell_contents, used)) for cell in held)
    names = {name: value for name, value in function.__globals__.items() if name in used}
    others = {name: made for name, value in names.items() if (made := builtins.instead(value, used)) is not value}
    same = all(new.cell_contents is old.cell_contents for new, old in zip(cells, held, strict=True))
    if same and not others:
        return function
    return FunctionType(
        function.__code__, {**function.__globals__, **others}, function.__name__, function.__defaults__, cells
    )


class _Rewriter(ast.NodeTransformer):
    def __init__(self, carried: dict[int, set[Any]], loops: dict[int, int]) -> None:
        self.carried, self.loops = carried, loops
        self.names: frozenset[str] = frozenset()

    def _loop(self, node: Any) -> Any:
        before = self.names
        self.names |= {path[0] for path in self.carried.get(self.loops[id(node)], ())}
        made = self.generic_visit(node)
        self.names = before
        return made

    visit_For = visit_While = _loop

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        if len(node.targets) == 1 and _root(node.targets[0]) in self.names:
            node.value = _call(node.targets[0], node.value)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        if _root(node.target) not in self.names:
            return node
        value = ast.BinOp(_loaded(node.target), node.op, node.value)
        return ast.copy_location(ast.Assign([node.target], _call(node.target, value)), node)


def _root(target: ast.expr) -> str | None:
    while isinstance(target, ast.Subscript | ast.Attribute):
        target = target.value
    return target.id if isinstance(target, ast.Name) else None


def _loaded(target: ast.expr) -> Any:
    return syntax.parse(ast.unparse(target), mode="eval").body


def _call(target: ast.expr, value: ast.expr) -> ast.Call:
    nothing = ast.arguments([], [], None, [], [], None, [])
    return ast.Call(ast.Name(_KEPT, ast.Load()), [ast.Lambda(nothing, _loaded(target)), value], [])


def _kept(before: Callable[[], Any], new: Any) -> Any:
    """`new`, with the lanes of what a variable held before where it has fewer."""
    try:
        old = before()
    except (NameError, KeyError, IndexError, AttributeError):
        return new
    tensors = isinstance(new, torch.Tensor) and isinstance(old, torch.Tensor)
    if not tensors or new.shape == old.shape or new.dim() != old.dim() or new.dtype != old.dtype:
        return new
    made = old.clone()
    made[tuple(map(slice, new.shape))] = new
    return made
