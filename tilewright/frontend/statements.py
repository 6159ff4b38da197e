"""Statements other than branches and loops: assignment, `return`, `assert`, and syntax that is refused.

A visitor of a statement tells whether control ends there; `return` does. Plain assignment turns
numbers into tensors, ``name: tl.constexpr = value`` keeps them.
"""

from __future__ import annotations

import ast
from typing import Any

from tilewright.frontend.expressions import binary, bind_target, decay, wrap
from tilewright.frontend.frame import NOTHING, VISITORS, Frame, visit, visits
from tilewright.frontend.structure import name_leaves, type_text
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
        name = target.id
        scope = frame.scope
        if name in scope.pending:  # declared as constexpr on an earlier line
            scope.pending.discard(name)
            scope.constants[name] = target
        else:
            value = decay(frame, origin, value)
            if scope.constants:
                scope.constants.pop(name, None)
        scope.bind(name, value)
        name_leaves(value, name)
    elif isinstance(target, (ast.Tuple, ast.List)):
        bind_target(frame, target, decay(frame, origin, wrap(value)))
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
    if not isinstance(target, ast.Name):
        bind_target(frame, target, None)  # says why it cannot be assigned
    else:
        left = visit(frame, ast.copy_location(ast.Name(target.id, ast.Load()), target))
        assign(frame, target, node, binary(frame, node, node.op, left, visit(frame, node.value)))


@visits(ast.Expr)
def _expression(frame: Frame, node: ast.Expr) -> None:
    if not isinstance(node.value, ast.Constant):  # a docstring, or a constant without effect
        visit(frame, node.value)


@visits(ast.Pass)
def _pass(frame: Frame, node: ast.Pass) -> None:
    pass


@visits(ast.Return)
def _return(frame: Frame, node: ast.Return) -> bool:
    if frame.in_loop:
        raise frame.unsupported(
            node,
            "Cannot have `return` statements inside `while` or `for` statements: this one is in a run-time "
            f"`{frame.in_loop}` loop",
            hint="set a variable in the loop and return behind it",
        )
    value = NOTHING if node.value is None else visit(frame, node.value)
    if isinstance(value, constexpr) and value.value is None:
        value = NOTHING
    frame.value = value
    frame.returns.append((node, value))
    return True


@visits(ast.Assert)
def _assert(frame: Frame, node: ast.Assert) -> None:
    test = visit(frame, node.test)
    message = constexpr("") if node.msg is None else visit(frame, node.msg)
    if isinstance(message, tensor):
        raise frame.error(node.msg or node, f"the message of an assert must be text, not {type_text(message)}")
    frame.at(node)
    BUILTINS["device_assert"].fn(frame.builder, test, message)


# --- syntax that the language does not have ------------------------------------------------------------------

_NESTED = (
    "nested function definitions are not allowed inside a @tilewright.jit kernel. "
    "Move the helper function to module level and decorate it with @tilewright.jit."
)
_REFUSED: dict[str, tuple[str, str | None]] = {
    "FunctionDef": (_NESTED, None),
    "AsyncFunctionDef": (_NESTED, None),
    "ClassDef": ("unsupported AST node type: ClassDef", "define the class at module level"),
    "Break": ("unsupported AST node type: Break", "put the condition into a `while`, or mask the rest of the work"),
    "Continue": ("unsupported AST node type: Continue", "put the rest of the loop body under an `if`"),
    "Try": ("unsupported AST node type: Try", "kernels have no exceptions; test conditions with `if`"),
    "Raise": ("unsupported AST node type: Raise", "use tl.static_assert, or tl.device_assert at run time"),
    "Import": ("unsupported AST node type: Import", "import at module level"),
    "ImportFrom": ("unsupported AST node type: ImportFrom", "import at module level"),
    "Global": ("unsupported AST node type: Global", "kernels cannot assign globals; return a value"),
    "Nonlocal": ("unsupported AST node type: Nonlocal", "kernels cannot assign outer variables; return a value"),
    "Delete": ("unsupported AST node type: Delete", "leave it out: a value that is not used costs nothing"),
    "With": ("unsupported AST node type: With", "kernels have no context managers"),
    "Match": ("unsupported AST node type: Match", "write if/elif/else"),
    "Dict": ("unsupported AST node type: Dict", "use a tuple, or a named tuple class defined outside"),
    "Set": ("unsupported AST node type: Set", "use a tuple"),
    "DictComp": ("unsupported AST node type: DictComp", "use a list comprehension"),
    "SetComp": ("unsupported AST node type: SetComp", "use a list comprehension"),
    "GeneratorExp": ("unsupported AST node type: GeneratorExp", "use a list comprehension: [f(x) for x in xs]"),
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
