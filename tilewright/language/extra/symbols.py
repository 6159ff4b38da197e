"""Functions of external libraries, by symbol: `tl.core.extern_elementwise`.

NVIDIA GPUs call the symbol. Elsewhere a symbol of NVIDIA's libdevice is the function of `tl.extra.libdevice` that it
stands for; any other is called in the libraries that the launch gives (`extern_libs`), or refused by name.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from tilewright.base.dtypes import with_shape_of
from tilewright.base.errors import DTypeError, UnsupportedError
from tilewright.language.extern import extern_call
from tilewright.language.extra.libdevice import CASES, FUNCTIONS, REFUSED, symbol_of
from tilewright.ops.broadcast import broadcast_tensors
from tilewright.ops.builtin import Emitter, builtin, to_tensor
from tilewright.ops.casts import cast_to
from tilewright.ops.functions.target import is_cuda
from tilewright.ops.values import tensor, unwrap


@functools.cache
def functions_by_symbol() -> Mapping[str, str]:
    """Name in `tl.extra.libdevice` of each symbol that has a portable form ("__nv_tanhf": "tanh")."""
    pairs = ((name, case.partition(">")[0]) for name, cases in CASES.items() for case in cases.split())
    return {symbol_of(name, letters): name for name, letters in pairs if name not in REFUSED}


@builtin(export=False)
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
        DTypeError: the table has no row for the operands' types, or the symbol takes others.
        UnsupportedError: the symbol has no portable form.
    """
    operands = [to_tensor(b, arg) for arg in args]
    table = {tuple(map(unwrap, unwrap(kinds))): row for kinds, row in unwrap(arg_type_symbol_dict).items()}
    types = tuple(operand.dtype for operand in operands)
    if types not in table:
        rows = ", ".join(f"({', '.join(map(str, row))})" for row in table)
        raise DTypeError(f"input arg type does not match. Expect one of {rows}, got ({', '.join(map(str, types))})")
    symbol, element = table[types]
    operands = list(broadcast_tensors(b, *operands))
    name = functions_by_symbol().get(symbol)
    if is_cuda(b.target) or (name is None and bool(getattr(b.options, "libraries", None))):
        attrs = {"libname": unwrap(lib_name), "libpath": unwrap(lib_path), "symbol": symbol, "pure": unwrap(is_pure)}
        return extern_call(b, with_shape_of(operands[0].type, element), operands, **attrs)
    if name is None:
        raise UnsupportedError(
            f"external function {symbol} is not available on {b.target.backend}: it is code of another device",
            hint="the symbols of tl.extra.libdevice are, and those of libraries that a launch gives as extern_libs",
        )
    return cast_to(b, FUNCTIONS[name].fn(b, *operands), element)
