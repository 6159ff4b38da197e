"""Statements other than branches and loops: assignment, `return`, `assert`, and syntax that is refused.

A visitor of a statement tells whether control ends there; `return` does. Plain assignment turns numbers into tensors,
``name: tl.constexpr = value`` keeps them. `with` gives a part of a kernel a name.
"""

from __future__ import annotations

import ast
import copy
from typing import Any

from tilewright.base.scope import KernelScope
from tilewright.frontend.exits import NOTHING
from tilewright.frontend.expressions import Method, assign_name, binary, bind_target, unpacked, wrap
from tilewright.frontend.frame import VISITORS, Frame, visit, visit_all, visits
from tilewright.frontend.structure import type_text
from tilewright.ops.builtin import BUILTINS
from tilewright.ops.values import constexpr, tensor, unwrap


@visits(ast.Assign)
def _assign(frame: Frame, node: ast.Assign) -> None:
    value = visit(frame, node.value)
    for target in node.targets:
        assign(frame, target, node.value, value)


def assign(frame: Frame, target: ast.AST, origin: ast.AST, value: Any) -> None:
    """Plain assignment of what the expression `origin` gave."""
    if isinstance(target, ast.Name):
        assign_name(frame, target, origin, value)
    elif isinstance(target, (ast.Tuple, ast.List)):
        for item, part in zip(target.elts, unpacked(frame, target, wrap(value)), strict=True):
            assign(frame, item.value if isinstance(item, ast.Starred) else item, origin, part)
    else:
        bind_target(frame, target, value)


@visits(ast.AnnAssign)
def _annotated(frame: Frame, node: ast.AnnAssign) -> None:
    target = node.target
    if not isinstance(target, ast.Name) or unwrap(_annotation(frame, node.annotation)) is not constexpr:
        if node.value is not None:
            assign(frame, target, node.value, visit(frame, node.value))
        return
    scope, name = frame.scope, target.id
    declared = scope.constants.get(name)
    if name in scope.values and declared is not target:  # an unrolled loop declares its constants again
        raise frame.error(
            target, f"{name} is already defined. constexpr cannot be reassigned.", hint="use another name"
        )
    if node.value is None:
        scope.pending.add(name)
        return
    scope.constants[name] = target
    scope.bind(name, visit(frame, node.value))


def _annotation(frame: Frame, node: ast.expr) -> Any:
    """What an annotation means; text that is no expression of the kernel's world means nothing."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return constexpr if node.value.split(".")[-1] == "constexpr" else None
    return visit(frame, node) if isinstance(node, (ast.Name, ast.Attribute)) else None


@visits(ast.AugAssign)
def _augmented(frame: Frame, node: ast.AugAssign) -> None:
    target = node.target
    if isinstance(target, ast.Attribute):
        bind_target(frame, target, None)  # says why it cannot be assigned
    read: ast.expr = ast.Name(target.id, ast.Load()) if isinstance(target, ast.Name) else copy.copy(target)
    if isinstance(read, ast.Subscript):
        read.ctx = ast.Load()
    left = visit(frame, ast.copy_location(read, target))
    assign(frame, target, node, binary(frame, node, node.op, left, visit(frame, node.value)))


@visits(ast.Expr)
def _expression(frame: Frame, node: ast.Expr) -> None:
    if isinstance(node.value, ast.Constant):  # a docstring, or a constant without effect
        return
    visit(frame, node.value)
    call = node.value
    if isinstance(call, ast.Call) and isinstance(call.func, (ast.Name, ast.Attribute)):
        _check_use(frame, call)


def _check_use(frame: Frame, call: ast.Call) -> None:
    """Refuse a call whose result is not used although its function asks for that."""
    fn = visit(frame, call.func)
    fn = unwrap(fn.fn if isinstance(fn, Method) else fn)
    asked = getattr(fn, "must_use_result", None) or getattr(getattr(fn, "fn", None), "must_use_result", None)
    name = getattr(fn, "__name__", "this function")
    if getattr(fn, "only_returns", False):
        frame.builder.warn(f"the result of {name} is not used, so the call does nothing: assign it, x = {name}(...)")
    elif asked:
        why = "" if asked is True else f" {asked}"
        raise frame.error(call, f"The result of {name} is not being used.{why}", f"assign it, e.g. `x = {name}(...)`")


@visits(ast.Pass)
def _pass(frame: Frame, node: ast.Pass) -> None:
    pass


@visits(ast.Return)
def _return(frame: Frame, node: ast.Return) -> bool:
    value = NOTHING if node.value is None else visit(frame, node.value)
    if isinstance(value, constexpr) and value.value is None:
        value = NOTHING
    frame.value = frame.returned(value)
    frame.returns.append((node, value))
    return True


@visits(ast.Break, ast.Continue)
def _leave_iteration(frame: Frame, node: ast.Break | ast.Continue) -> bool:
    assert frame.loop is not None
    breaks = isinstance(node, ast.Break)
    frame.loop.broken |= breaks
    frame.value = frame.loop.exit(frame.scope, go=not breaks)
    return True


@visits(ast.Assert)
def _assert(frame: Frame, node: ast.Assert) -> None:
    test = visit(frame, node.test)
    message = constexpr("") if node.msg is None else visit(frame, node.msg)
    if isinstance(message, tensor):
        raise frame.error(node.msg or node, f"the message of an assert must be text, not {type_text(message)}")
    frame.at(node)
    BUILTINS["device_assert"].fn(frame.builder, test, message)


@visits(ast.With)
def _with(frame: Frame, node: ast.With) -> bool:
    for item in node.items:
        value = visit(frame, item.context_expr)
        if not isinstance(unwrap(value), KernelScope):
            hint = "only scopes of a profiler may stand behind `with` in a kernel"
            raise frame.unsupported(node, "unsupported AST node type: With", hint)
        if item.optional_vars is not None:
            assign(frame, item.optional_vars, item.context_expr, value)
    return visit_all(frame, node.body)


# --- syntax that the language does not have ------------------------------------------------------------------

_REFUSED: dict[str, tuple[str, str | None]] = {
    "AsyncFunctionDef": ("unsupported AST node type: AsyncFunctionDef", "kernels do not wait; use `def`"),
    "ClassDef": ("unsupported AST node type: ClassDef", "define the class at module level"),
    "Try": ("unsupported AST node type: Try", "kernels have no exceptions; test conditions with `if`"),
    "Raise": ("unsupported AST node type: Raise", "use tl.static_assert, or tl.device_assert at run time"),
    "Import": ("unsupported AST node type: Import", "import at module level"),
    "ImportFrom": ("unsupported AST node type: ImportFrom", "import at module level"),
    "Global": ("unsupported AST node type: Global", "kernels cannot assign globals; return a value"),
    "Nonlocal": ("unsupported AST node type: Nonlocal", "kernels cannot assign outer variables; return a value"),
    "Delete": ("unsupported AST node type: Delete", "leave it out: a value that is not used costs nothing"),
    "Set": ("unsupported AST node type: Set", "use a tuple"),
    "DictComp": ("unsupported AST node type: DictComp", "write dict([(key, value) for ...])"),
    "SetComp": ("unsupported AST node type: SetComp", "use a list comprehension"),
    "Starred": ("unsupported AST node type: Starred", "unpack into a call or a tuple"),
    "Yield": ("unsupported AST node type: Yield", "return a tuple"),
    "Await": ("unsupported AST node type: Await", None),
}


def _refuse(frame: Frame, node: ast.AST) -> None:
    name = type(node).__name__
    message, hint = _REFUSED.get(name, (f"unsupported AST node type: {name}", None))
    raise frame.unsupported(node, message, hint)


def _refuse_the_rest() -> None:
    for base in (ast.stmt, ast.expr):
        for cls in base.__subclasses__():
            VISITORS.setdefault(cls, _refuse)


_refuse_the_rest()
