"""Functions of external libraries, by symbol: `tl.core.extern_elementwise`; and the decorators `tl.core.extern` and
`tl.core.builtin`, which make functions of the language of Python functions that take the emitter as `_semantic`.

NVIDIA GPUs call the symbol. Elsewhere, symbols of NVIDIA's libdevice that have a mathematical operation are that
operation; any other is code of one kind of device and is refused by name.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.base.dtypes import with_shape_of
from tilewright.base.errors import DTypeError, UnsupportedError
from tilewright.ir.types import to_ir
from tilewright.ops.broadcast import broadcast_tensors
from tilewright.ops.builtin import Builtin, Emitter, to_tensor
from tilewright.ops.builtin import builtin as language_function
from tilewright.ops.math import OPS
from tilewright.ops.math_extern import ExternElementwiseOp, math_name
from tilewright.ops.values import tensor, unwrap


@language_function(export=False)
def extern_elementwise(
    b: Emitter, lib_name: Any, lib_path: Any, args: Any, arg_type_symbol_dict: Any, is_pure: Any = True
) -> tensor:
    """A function of an external library, element by element.

    Args:
        lib_name, lib_path: the library, on targets that link one.
        args: operands, broadcast together.
        arg_type_symbol_dict: tuple of element types to (symbol, element type of the result).
        is_pure: no side effects.

    Returns:
        Tensor of the type that the table gives.

    Raises:
        DTypeError: the table has no row for the operands' types.
        UnsupportedError: the symbol has no portable form.
    """
    operands = [to_tensor(b, arg) for arg in args]
    table = {tuple(map(unwrap, unwrap(kinds))): row for kinds, row in unwrap(arg_type_symbol_dict).items()}
    types = tuple(operand.dtype for operand in operands)
    if types not in table:
        rows = ", ".join(f"({', '.join(map(str, row))})" for row in table)
        raise DTypeError(f"input arg type does not match. Expect one of {rows}, got ({', '.join(map(str, types))})")
    symbol, element = table[types]
    name = math_name(symbol)
    operands = list(broadcast_tensors(b, *operands))
    result = with_shape_of(operands[0].type, element)
    if b.target.backend == "cuda":
        attrs = {"libname": unwrap(lib_name), "libpath": unwrap(lib_path), "symbol": symbol, "pure": unwrap(is_pure)}
        return extern_call(b, result, operands, **attrs)
    if name is None or any(kind != element for kind in types):
        raise UnsupportedError(
            f"external function {symbol} is not available on {b.target.backend}: it is code of another device",
            hint=f"symbols with a portable form are those of {', '.join(OPS)}",
        )
    return b.emit(OPS[name], result, *operands)


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
