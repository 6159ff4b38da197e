"""A block function as a Python function that behaves like the compiled kernel.

The text of the function is compiled again, with its own file name and positions, so that debuggers, tracebacks and
`inspect` see the user's source. Only what means something else in a kernel than in Python calls a hook:

    x = e                 ->   x = hooks.assigned(e)              numbers become tensors
    x[i] = e              ->   t = e; x = hooks.with_item(x, hooks.INDEX[i], t)
    a and b               ->   hooks.both(t, b) if hooks.goes_on(t := a) else t
    a if c else b         ->   hooks.arm(t, a) if (t := c) else hooks.arm(t, b)
    if c: A               ->   if hooks.decides(t := c): A; hooks.decided(t)
    for i in e            ->   for i in hooks.each(e)
    min, max, range, ...  ->   hooks.min, ...                     unless the user's module defines the name
"""

from __future__ import annotations

import ast
import copy
import inspect
import types
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.backends.reference import hooks
from tilewright.base.callable import BlockFunction
from tilewright.base.syntax import code_of, parse
from tilewright.frontend.source import KernelSource, source_of
from tilewright.ops.values import constexpr

HOOKS = "__tilewright__"
_FUNCTION = "__tilewright_function__"
_ATTRIBUTE = "_python_form"
_ENTERED = "__tilewright_entered__"
_CODES: set[types.CodeType] = set()


def is_kernel_code(code: types.CodeType) -> bool:
    """Whether a code object is a block function, or a function inside one, in its Python form."""
    return code in _CODES


def python_of(fn: BlockFunction) -> Callable[..., Any]:
    """The Python form of `fn`, made at the first call.

    Raises:
        LanguageValueError: the source of `fn` cannot be read.
    """
    found: tuple[Any, Callable[..., Any]] | None = fn.__dict__.get(_ATTRIBUTE)
    if found is None or found[0] is not fn.fn:
        found = fn.__dict__[_ATTRIBUTE] = (fn.fn, _make(source_of(fn), inspect.unwrap(fn.fn)))
    return found[1]


def _make(source: KernelSource, original: Any) -> Callable[..., Any]:
    tree = _Rewriter(source).function(copy.deepcopy(source.tree))
    # Free variables of the function must be free in the new code too: it is compiled inside a function that has them.
    outer = parse(f"def outer({', '.join([HOOKS, *original.__code__.co_freevars])}): pass")
    holder = outer.body[0]
    assert isinstance(holder, ast.FunctionDef)
    name, tree.name = tree.name, _FUNCTION  # under its own name it would be a variable of `outer` to itself
    holder.body = [tree]
    for node in (holder, *holder.args.args):
        ast.copy_location(node, source.tree)
    ast.fix_missing_locations(ast.increment_lineno(outer, source.line_offset))
    code = _inner(_inner(code_of(outer, source.file, "exec"), "outer"), _FUNCTION)
    code = _remember(code.replace(co_name=name), original.__qualname__)
    cells = dict(zip(original.__code__.co_freevars, original.__closure__ or (), strict=True))
    cells[HOOKS] = types.CellType(hooks)
    closure = tuple(cells[name] for name in code.co_freevars)
    made = types.FunctionType(code, original.__globals__, original.__name__, original.__defaults__, closure)
    made.__kwdefaults__ = original.__kwdefaults__
    made.__qualname__ = original.__qualname__
    made.__module__ = original.__module__
    return made


def _inner(code: types.CodeType, name: str) -> types.CodeType:
    """The function called `name` in the constants of `code`."""
    found = [c for c in code.co_consts if isinstance(c, types.CodeType) and c.co_name == name]
    assert len(found) == 1, name
    return found[0]


def _remember(code: types.CodeType, name: str) -> types.CodeType:
    """`code` under the name that the user knows it by, noted as that of a kernel; functions inside it alike."""
    inner = code.co_qualname + ".<locals>."
    constants = [
        _remember(c, f"{name}.<locals>.{c.co_qualname.removeprefix(inner)}") if isinstance(c, types.CodeType) else c
        for c in code.co_consts
    ]
    renamed = code.replace(co_qualname=name, co_consts=tuple(constants))
    _CODES.add(renamed)
    return renamed


class _Hooked(ast.NodeTransformer):
    """Calls of hooks, and variables of our own."""

    def __init__(self) -> None:
        self._temporaries = 0

    def _hook(self, name: str, at: ast.AST, *args: ast.expr) -> ast.expr:
        """`hooks.name(*args)`, standing where `at` stands."""
        owner = ast.copy_location(ast.Name(HOOKS, ast.Load()), at)
        function = ast.copy_location(ast.Attribute(owner, name, ast.Load()), at)
        return ast.copy_location(ast.Call(function, list(args), []), at)

    def _fresh(self) -> str:
        self._temporaries += 1
        return f"__tilewright_{self._temporaries}__"

    def _temporary(self, at: ast.AST, value: ast.expr) -> tuple[ast.expr, ast.expr]:
        """An expression that keeps `value` in a fresh variable, and one that reads it."""
        name = self._fresh()
        store = ast.NamedExpr(ast.copy_location(ast.Name(name, ast.Store()), at), value)
        return ast.copy_location(store, at), ast.copy_location(ast.Name(name, ast.Load()), at)


class _Rewriter(_Hooked):
    """Puts the hooks into one function; see the head of the module."""

    def __init__(self, source: KernelSource) -> None:
        super().__init__()
        self._source = source
        self._ways = sum(isinstance(part, ast.Return) for part in ast.walk(source.tree))
        self._pending: set[str] = set()  # names declared constexpr on an earlier line
        self._bound = _bound_names(source.tree)
        shadowed = self._bound | source.closure.keys() | source.globals.keys()
        self._names = {name: ours for name, ours in hooks.PYTHON_NAMES.items() if name not in shadowed}

    def function(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """The function itself: decorators, defaults and annotations stay with the original."""
        node.decorator_list, node.returns = [], None
        arguments = node.args
        arguments.defaults = [ast.Constant(None) for _ in arguments.defaults]
        arguments.kw_defaults = [None if d is None else ast.Constant(None) for d in arguments.kw_defaults]
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        for argument in every:
            if argument is not None:
                argument.annotation = None
        self.generic_visit(node)
        if self._ways > 1:
            store = ast.copy_location(ast.Name(_ENTERED, ast.Store()), node)
            node.body.insert(0, ast.copy_location(ast.Assign([store], self._hook("entered", node)), node))
        return node

    # -- assignment ----------------------------------------------------------------------------------

    def visit_Assign(self, node: ast.Assign) -> list[ast.stmt]:
        self.generic_visit(node)
        names = _stored_names(node.targets)
        parts: list[ast.stmt] = []
        if self._pending.intersection(n.id for n in names):  # the other names get tensors one by one
            parts = [self._decayed(n) for n in names if n.id not in self._pending]
            self._pending.difference_update(n.id for n in names)
        elif all(isinstance(t, (ast.Name, ast.Tuple, ast.List)) for t in node.targets):
            node.value = self._hook("assigned", node.value, node.value)
        node.targets = [self._without_parts(target, parts) for target in node.targets]
        return [node, *parts]

    def _decayed(self, name: ast.Name) -> ast.stmt:
        """``name = hooks.assigned(name)``."""
        read = ast.copy_location(ast.Name(name.id, ast.Load()), name)
        store = ast.copy_location(ast.Name(name.id, ast.Store()), name)
        return ast.copy_location(ast.Assign([store], self._hook("assigned", name, read)), name)

    def _without_parts(self, target: ast.expr, parts: list[ast.stmt]) -> ast.expr:
        """`target` with a fresh variable for each part of a local variable; the assignments to these go to `parts`."""
        if isinstance(target, (ast.Tuple, ast.List)):
            target.elts = [self._without_parts(item, parts) for item in target.elts]
        if not isinstance(target, ast.Subscript) or not isinstance(target.value, ast.Name):
            return target
        holder = target.value.id
        if holder not in self._bound:
            return target
        fresh = self._fresh()
        store, load = (ast.copy_location(ast.Name(fresh, context), target) for context in (ast.Store(), ast.Load()))
        known = ast.copy_location(ast.Attribute(ast.Name(HOOKS, ast.Load()), "INDEX", ast.Load()), target)
        index = ast.copy_location(ast.Subscript(known, target.slice, ast.Load()), target)
        value = self._hook("with_item", target, target.value, index, load)
        name = ast.copy_location(ast.Name(holder, ast.Store()), target.value)
        parts.append(ast.copy_location(ast.Assign([name], value), target))
        return store

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        constant = self._means_constexpr(node.annotation)
        if isinstance(node.target, ast.Name):
            if node.value is None:
                if constant:
                    self._pending.add(node.target.id)
                return ast.copy_location(ast.Pass(), node)
            value = self.visit(node.value)
            if not constant:
                value = self._hook("assigned", node.value, value)
            return ast.copy_location(ast.Assign([node.target], value), node)
        return self.generic_visit(node)

    def _means_constexpr(self, annotation: ast.expr) -> bool:
        if isinstance(annotation, ast.Constant):
            return str(annotation.value).split(".")[-1] == "constexpr"
        names: list[str] = []
        while isinstance(annotation, ast.Attribute):
            names.append(annotation.attr)
            annotation = annotation.value
        if not isinstance(annotation, ast.Name):
            return False
        space = self._source.closure if annotation.id in self._source.closure else self._source.globals
        value = space.get(annotation.id)
        for name in reversed(names):
            value = getattr(value, name, None)
        return value is constexpr

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt | list[ast.stmt]:
        if isinstance(node.target, ast.Attribute):
            self.generic_visit(node)
            return node
        read: ast.expr = copy.deepcopy(node.target)
        read.ctx = ast.Load()  # type: ignore[attr-defined]
        value = ast.copy_location(ast.BinOp(read, node.op, node.value), node)
        return self.visit_Assign(ast.copy_location(ast.Assign([node.target], value), node))

    def visit_NamedExpr(self, node: ast.NamedExpr) -> ast.NamedExpr:
        self.generic_visit(node)
        if node.target.id in self._pending:
            self._pending.discard(node.target.id)
        else:
            node.value = self._hook("assigned", node.value, node.value)
        return node

    # -- logic ---------------------------------------------------------------------------------------------

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        return self._joined(node, isinstance(node.op, ast.And), [self.visit(value) for value in node.values])

    def _joined(self, at: ast.expr, conjunction: bool, parts: Sequence[ast.expr]) -> ast.expr:
        goes_on, combine = ("true_so_far", "both") if conjunction else ("false_so_far", "either")
        result = parts[0]
        for part in parts[1:]:
            store, load = self._temporary(at, result)
            combined = self._hook(combine, at, load, part)
            result = ast.copy_location(ast.IfExp(self._hook(goes_on, at, store), combined, load), at)
        return result

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        if len(node.ops) == 1:
            return self._comparison(node, node.left, node.ops[0], node.comparators[0])
        parts, left = [], node.left
        for op, item in zip(node.ops[:-1], node.comparators[:-1], strict=True):
            store, load = self._temporary(item, item)
            parts.append(self._comparison(node, left, op, store))
            left = load
        parts.append(self._comparison(node, left, node.ops[-1], node.comparators[-1]))
        return self._joined(node, True, parts)

    def _comparison(self, at: ast.expr, left: ast.expr, op: ast.cmpop, right: ast.expr) -> ast.expr:
        if isinstance(op, (ast.Is, ast.IsNot)):
            return self._hook("same" if isinstance(op, ast.Is) else "different", at, left, right)
        return ast.copy_location(ast.Compare(left, [op], [right]), at)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        return self._hook("negation", node, node.operand) if isinstance(node.op, ast.Not) else node

    def visit_If(self, node: ast.If) -> ast.If:
        self.generic_visit(node)
        store, load = self._temporary(node.test, node.test)
        node.test = self._hook("decides", node.test, store)
        for branch in (node.body, node.orelse):
            if branch:
                branch.append(ast.copy_location(ast.Expr(self._hook("decided", branch[-1], load)), branch[-1]))
        return node

    def visit_Return(self, node: ast.Return) -> ast.Return:
        self.generic_visit(node)
        if node.value is not None and self._ways > 1:
            entered = ast.copy_location(ast.Name(_ENTERED, ast.Load()), node)
            node.value = self._hook("returned", node.value, entered, node.value)
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        self.generic_visit(node)
        store, load = self._temporary(node.test, node.test)
        store = self._hook("decides", node.test, store)
        arms = (self._hook("arm", arm, load, arm) for arm in (node.body, node.orelse))
        return ast.copy_location(ast.IfExp(store, *arms), node)

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        self.generic_visit(node)
        message = node.msg or ast.copy_location(ast.Constant(""), node)
        return ast.copy_location(ast.Expr(self._hook("check", node, node.test, message)), node)

    # -- loops ------------------------------------------------------------------------------------------------

    def visit_For(self, node: ast.For) -> ast.For:
        self.generic_visit(node)
        node.iter = self._hook("each", node.iter, node.iter)
        return node

    def visit_While(self, node: ast.While) -> ast.While:
        self.generic_visit(node)
        node.test = self._hook("condition_of", node.test, node.test)
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.comprehension:
        node.target, node.ifs = self.visit(node.target), [self.visit(test) for test in node.ifs]
        # Python forbids assignment expressions, which the other hooks use, in what a comprehension runs over.
        node.iter = self._hook("items", node.iter, _Names(self).visit(node.iter))
        return node

    # -- names and attributes ------------------------------------------------------------------------------------

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self._names or not isinstance(node.ctx, ast.Load):
            return node
        owner = ast.copy_location(ast.Name(HOOKS, ast.Load()), node)
        return ast.copy_location(ast.Attribute(owner, self._names[node.id], ast.Load()), node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        if node.attr in ("value", "type") and isinstance(node.ctx, ast.Load):
            return self._hook("value_of" if node.attr == "value" else "type_attribute", node, node.value)
        return node

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.FormattedValue:
        self.generic_visit(node)
        node.value = self._hook("unwrap", node.value, node.value)
        return node


class _Names(ast.NodeTransformer):
    """Only the rewriting of names."""

    def __init__(self, rewriter: _Rewriter) -> None:
        self._rewriter = rewriter

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._rewriter.visit_Name(node)


def _stored_names(targets: Sequence[ast.expr]) -> list[ast.Name]:
    """The names among some targets of an assignment, in tuples too."""
    parts = [part for target in targets for part in ast.walk(target)]
    return [part for part in parts if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)]


def _bound_names(tree: ast.FunctionDef) -> set[str]:
    """Names that are variables somewhere in the function."""
    found = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    return found | {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
