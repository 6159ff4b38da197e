"""Host code that does no more than make memory, launch kernels and give memory back: what it does, written down.

Such code is told by its text. It may ask for sizes, types and numbers, and compute with them; what a tensor holds it
may not ask for, nor call anything else. A second text of it, which runs in its place, writes down what it makes and
launches.
"""

from __future__ import annotations

import ast
import builtins
import math
from collections.abc import Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch

import tilewright
from tilewright import lazy_module, syntax
from tilewright.hl.runtime.loaded import Loaded

if TYPE_CHECKING:
    from tilewright.compiler import replays
else:
    replays = lazy_module("tilewright.compiler.replays")

_FACTS = frozenset(("dtype", "device", "shape", "ndim", "is_cuda", "is_cpu", "itemsize"))
_ASKED = frozenset(("size", "stride", "dim", "numel", "nelement", "element_size", "is_contiguous", "index", "count"))
_VIEWS = frozenset(("view", "view_as", "reshape", "unsqueeze", "squeeze", "transpose", "permute", "t", "flatten"))
_VIEWS |= {"unflatten", "contiguous", "expand", "expand_as", "narrow", "select", "detach"}
_METHODS = {"new_empty": False, "new_zeros": True, "new_empty_strided": False}  # whether what they make is zero
_MAKERS = {torch.empty: False, torch.empty_like: False, torch.empty_strided: False}
_MAKERS |= {torch.zeros: True, torch.zeros_like: True}
_KEYWORDS = frozenset(("size", "input", "dtype", "device", "stride", "memory_format"))  # of these
_FUNCTIONS: tuple[Any, ...] = (
    *(len, min, max, abs, int, float, bool, sum, tuple, round, math.sqrt, math.ceil, math.floor, math.prod),
    *(torch.Size, tilewright.cdiv, tilewright.next_power_of_2),
)
_EXPRESSIONS: tuple[type[ast.AST], ...] = (
    *(ast.Constant, ast.Tuple, ast.List, ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.IfExp, ast.NamedExpr),
    *(ast.Subscript, ast.Slice, ast.Starred, ast.keyword),
    *(ast.operator, ast.unaryop, ast.cmpop, ast.boolop, ast.expr_context),
)
_STATEMENTS = (ast.Assign, ast.AnnAssign, ast.Expr, ast.Return, ast.Pass, ast.Assert, ast.If, ast.Raise)
_OWN = frozenset(("_made", "_launch", "_plain"))  # names of what writes down


class _Other(Exception):
    """Host code that does something else."""


class Host:
    """Host code that can be replayed.

    Args:
        loaded: the module whose host function it is.

    Attributes:
        varying: names of parameters that are no more than passed on to kernels.

    Raises:
        _Other: it cannot.
    """

    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded
        tree = loaded.host_tree()
        recorder = _Recorder(tree, loaded.names)
        module = ast.fix_missing_locations(ast.Module([recorder.visit(tree)], []))
        made: dict[str, Any] = {}
        exec(syntax.code_of(module, loaded.generated, "exec"), made)
        self._function: FunctionType = made[tree.name]
        self._sites = recorder.sites
        self.varying = recorder.varying

    def record(self, args: Sequence[Any]) -> Run:
        """Run it with these arguments, all by position, and write down what it does."""
        run = Run(self._sites)
        names = {**self._loaded.names, "_made": run.memory, "_launch": run.launch, "_plain": run.plain}
        run.result = self._loaded.placed(FunctionType(self._function.__code__, names))(*args)
        return run


class Run:
    """What host code did.

    Args:
        sites: for each launch in its text the parameters among its arguments: their numbers by place.

    Attributes:
        made: tensors, and whether they were filled with zeros.
        launches: what was launched; None once one was not made by machine code.
        result: what it gave.
    """

    def __init__(self, sites: list[dict[int, int]]) -> None:
        self._sites = sites
        self.made: list[tuple[Any, bool]] = []
        self.launches: list[replays.Launch] | None = []
        self.result: Any = None

    def memory(self, tensor: Any, zero: bool) -> Any:
        self.made.append((tensor, zero))
        return tensor

    def plain(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):  # the next one may hold something else
            self.launches = None
        return value

    def launch(self, site: int, kernel: Any, grid: Any, args: Sequence[Any], options: dict[str, Any]) -> None:
        known = replays.launched(kernel, grid, args, options)
        if known is None:
            self.launches = None
        elif self.launches is not None:
            given = (*args, *options.values())
            self.launches.append(replays.Launch(kernel, grid, given, self._sites[site], known))


class _Recorder(ast.NodeTransformer):
    """Host code that writes down what it does.

    Args:
        tree: its function.
        names: what it sees.

    Attributes:
        sites: for each launch the parameters among its positional arguments, as `Run` has them.
        varying: parameters that are named nowhere else.
    """

    def __init__(self, tree: ast.FunctionDef, names: dict[str, Any]) -> None:
        self._names, self.sites = names, list[dict[int, int]]()
        nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
        stored = {node.id for node in nodes if isinstance(node.ctx, ast.Store)}
        self._local = {argument.arg for argument in tree.args.args} | stored
        self._left = [node.id for node in nodes]
        if not _OWN.isdisjoint(self._left):
            raise _Other
        self._parameters = [argument.arg for argument in tree.args.args]
        self._kept = {name: at for at, name in enumerate(self._parameters) if name not in stored}

    @property
    def varying(self) -> frozenset[str]:
        """Of the tree that was visited."""
        return frozenset(name for name in self._parameters if name not in self._left)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        for statement in node.body:
            self._check(statement)
        body = [made for statement in node.body for made in [self.visit(statement)]]
        bare = ast.arguments([], [ast.arg(name) for name in self._parameters], None, [], [], None, [])
        return ast.copy_location(ast.FunctionDef(node.name, bare, body, [], None), node)

    def _check(self, statement: ast.stmt) -> None:
        if not isinstance(statement, _STATEMENTS):
            raise _Other
        if isinstance(statement, ast.Assign) and not all(map(_is_names, statement.targets)):
            raise _Other
        if isinstance(statement, ast.AnnAssign) and not isinstance(statement.target, ast.Name):
            raise _Other
        if isinstance(statement, ast.If):
            for inner in (*statement.body, *statement.orelse):
                self._check(inner)

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        return ast.copy_location(ast.Assert(self.visit(node.test), node.msg), node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self._plain(self._name(node)) if isinstance(node.ctx, ast.Load) else node

    def _name(self, node: ast.Name) -> ast.expr:
        if node.id not in self._local and not _is_plain(self._names.get(node.id, self)):
            raise _Other
        return node

    @staticmethod
    def _plain(node: ast.expr) -> ast.expr:
        """An expression whose value is computed with; in the place of a tensor it would be what that holds."""
        return ast.Call(ast.Name("_plain", ast.Load()), [node], [])

    def _passed(self, node: ast.expr) -> Any:
        """An expression whose value is passed on, and may be a tensor."""
        if isinstance(node, ast.Name):
            return self._name(node)
        if isinstance(node, ast.Tuple):
            return ast.Tuple(list(map(self._passed, node.elts)), node.ctx)
        return self._call(node) if isinstance(node, ast.Call) else self.visit(node)

    def visit_Return(self, node: ast.Return) -> ast.AST:
        return ast.copy_location(ast.Return(node.value and self._passed(node.value)), node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        return ast.copy_location(ast.Assign(node.targets, self._passed(node.value)), node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        return ast.copy_location(ast.Expr(self._passed(node.value)), node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        if all(isinstance(op, ast.Is | ast.IsNot) for op in node.ops):
            return ast.Compare(self._passed(node.left), node.ops, list(map(self._passed, node.comparators)))
        return self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        root = _root(node)
        if root is not None and root not in self._local:
            if not _is_plain(self._value(node)):
                raise _Other
            return node
        if node.attr not in _FACTS:
            raise _Other
        return ast.Attribute(self._passed(node.value), node.attr, node.ctx)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        return self._plain(self._call(node))

    def _call(self, node: ast.Call) -> ast.expr:
        if isinstance(node.func, ast.Subscript) and isinstance(node.func.value, ast.Name):
            return self._launch(node, node.func.value, node.func.slice)
        root, passed = _root(node.func), self._passed
        if root is not None and root not in self._local:
            function = self._value(node.func)
            zero = next((zero for maker, zero in _MAKERS.items() if maker is function), None)
            if zero is None and not any(function is known for known in _FUNCTIONS):
                raise _Other
            passed = self.visit if zero is None else passed
        elif isinstance(node.func, ast.Attribute) and node.func.attr in (*_ASKED, *_VIEWS, *_METHODS):
            zero = _METHODS.get(node.func.attr)
            node.func.value = self._passed(node.func.value)
        else:
            raise _Other
        node.args = list(map(passed, node.args))
        node.keywords = [ast.keyword(word.arg, passed(word.value)) for word in node.keywords]
        if zero is None:
            return node
        if any(word.arg not in _KEYWORDS for word in node.keywords):
            raise _Other
        return ast.Call(ast.Name("_made", ast.Load()), [node, ast.Constant(zero)], [])

    def _launch(self, node: ast.Call, kernel: ast.Name, grid: ast.expr) -> ast.expr:
        if not isinstance(self._names.get(kernel.id), tilewright.JITFunction):
            raise _Other
        if any(isinstance(arg, ast.Starred) for arg in node.args) or any(word.arg is None for word in node.keywords):
            raise _Other
        names = {at: arg.id for at, arg in enumerate(node.args) if isinstance(arg, ast.Name)}
        for name in names.values():
            self._left.remove(name)
        self.sites.append({at: self._kept[name] for at, name in names.items() if name in self._kept})
        args, values = list(map(self._passed, node.args)), [self.visit(word.value) for word in node.keywords]
        words = ast.Dict([ast.Constant(word.arg) for word in node.keywords], values)
        given = [ast.Constant(len(self.sites) - 1), kernel, self.visit(grid), ast.Tuple(args, ast.Load()), words]
        return ast.Call(ast.Name("_launch", ast.Load()), given, [])

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if not isinstance(node, (*_EXPRESSIONS, *_STATEMENTS)):
            raise _Other
        return super().generic_visit(node)

    def _value(self, node: ast.expr) -> Any:
        """What an expression of a module's names is."""
        if isinstance(node, ast.Attribute):
            return getattr(self._value(node.value), node.attr, None)
        assert isinstance(node, ast.Name)
        return self._names.get(node.id, getattr(builtins, node.id, None))


def _root(node: ast.expr) -> str | None:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _is_names(target: ast.expr) -> bool:
    if isinstance(target, ast.Tuple | ast.List):
        return all(map(_is_names, target.elts))
    return isinstance(target, ast.Name)


def _is_plain(value: Any) -> bool:
    """Whether a value of the module is a constant, or a tensor, which is asked for its identity at each call."""
    return isinstance(value, bool | int | float | str | torch.dtype | torch.Tensor) or value is None


def host_of(loaded: Loaded) -> Host | None:
    """The host code of a module, if its calls can be replayed."""
    try:
        return Host(loaded)
    except _Other:
        return None
