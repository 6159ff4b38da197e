"""Trees of Python code, from any thread.

Up to Python 3.12 the interpreter has one count of how deep it is in a tree that it makes or reads, for all threads.
Where two do so at once it raises SystemError, "AST constructor recursion depth mismatch" (python/cpython#106905), so
one thread does it at a time.
"""

from __future__ import annotations

import ast
import threading
from types import CodeType
from typing import Literal, overload

_LOCK = threading.Lock()


@overload
def parse(text: str, mode: Literal["exec"] = "exec") -> ast.Module: ...
@overload
def parse(text: str, mode: Literal["eval"]) -> ast.Expression: ...
def parse(text: str, mode: Literal["exec", "eval"] = "exec") -> ast.Module | ast.Expression:
    """The tree of a text; as `ast.parse`.

    Args:
        text: Python code.
        mode: what it is, "exec" or "eval".

    Raises:
        SyntaxError: it is none.
    """
    with _LOCK:
        tree = ast.parse(text, mode=mode)
    assert isinstance(tree, ast.Module | ast.Expression)
    return tree


def code_of(tree: ast.Module | ast.Expression, file: str, mode: str = "exec", flags: int | None = None) -> CodeType:
    """The code of a tree; as `compile`.

    Args:
        tree: of a module, or of an expression.
        file: the name of the file that tracebacks show.
        mode: "exec" or "eval".
        flags: of the features that the code is written for; without them annotations are not evaluated.
    """
    with _LOCK:
        inherited = {} if flags is None else {"flags": flags, "dont_inherit": True}
        code: CodeType = compile(tree, file, mode, **inherited)  # type: ignore[call-overload]
    return code
