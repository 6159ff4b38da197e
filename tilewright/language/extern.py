"""The decorators `tl.core.extern` and `tl.core.builtin`, which make functions of the language of Python functions that
take the emitter as `_semantic`; and calls of functions of an external library (`extra/symbols.py` has them for users).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir.types import to_ir
from tilewright.ops.builtin import Builtin, Emitter
from tilewright.ops.math_extern import ExternElementwiseOp
from tilewright.ops.values import tensor


def extern_call(b: Emitter, result: Any, operands: Sequence[tensor], **attrs: Any) -> tensor:
    """A call of an external function on operands of one shape; `attrs` are those of `tt.extern_elementwise`."""
    types = (to_ir(result),)
    return tensor(b.op(ExternElementwiseOp, [o.handle for o in operands], attrs=attrs, result_types=types)[0], result)


def extern(fn: Callable[..., Any]) -> Builtin:
    """Make a function of the language of a Python function.

    It runs while a kernel is compiled, on kernel values, and calls functions of the language with the `_semantic` that
    it is given by keyword: ``tl.arange(0, n, _semantic=_semantic)``.

    Args:
        fn: the function.

    Example:
        >>> @tl.core.builtin
        ... def every_other(n, _semantic=None):
        ...     return tl.mul(tl.arange(0, n, _semantic=_semantic), 2, _semantic=_semantic)
        >>> every_other.__name__
        'every_other'
    """
    signature = inspect.signature(fn)
    shown = [p for p in signature.parameters.values() if p.name != "_semantic"]
    takes_emitter = any(p.name == "_semantic" or p.kind is p.VAR_KEYWORD for p in signature.parameters.values())

    @functools.wraps(fn)
    def function(b: Emitter, *args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs, _semantic=b) if takes_emitter else fn(*args, **kwargs)

    made = Builtin(function)
    made.signature = signature.replace(parameters=shown)
    return made


builtin = extern
