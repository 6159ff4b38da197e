"""What a launch in machine code is told of a call that Python has bound, specialised and launched once.

The columns of `backends/cpu/device/fastcall.py` are made here. Whatever they cannot say (tuples, descriptors, arrays of
other libraries, subclasses of tensors, half-precision scalars) is left to Python.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.backends.cpu.device import fastcall as f
from tilewright.backends.cpu.device.builtin import Column, tensor_key
from tilewright.compile.specialize import Param
from tilewright.launch.bind import Call
from tilewright.launch.fastpath import is_lasting

_FLOATS = {"fp32": f.FLOAT32, "fp64": f.FLOAT64}


def columns_of(call: Call, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Column], list[int]] | None:
    """Columns of a call and the column of each slot of the code; None for a call that must stay in Python.

    Args:
        call: the call, bound.
        args, kwargs: as they were passed.
    """
    params = {param.name: param for param in call.params}
    if any(param.kind is inspect.Parameter.VAR_POSITIONAL for param in call.params):
        return None
    given = [param.name for param in call.params[: len(args)]] + list(kwargs)
    if len(given) > f.MOST_COLUMNS or any(len(path) != 1 for path in call.specialization.runtime_paths):
        return None
    types = {path[0]: kind for path, kind in _slots(call)}
    columns: list[Column | None] = []
    for name, value in zip(given, [*args, *kwargs.values()], strict=True):
        param = params.get(name)
        if param is None or param.is_constexpr or value is None:
            columns.append(Column(f.SAME, value) if is_lasting(value) else None)
        else:
            columns.append(_runtime(param, value, types.get(param.index)))
    for param, value in zip(call.params, call.values, strict=True):  # defaults are the same at every such call
        if param.name not in given and (param.index in types or not is_lasting(value)):
            return None
    found = [column for column in columns if column is not None]
    if len(found) < len(columns):
        return None
    return found, [given.index(call.params[path[0]].name) for path, _ in _slots(call)]


def _slots(call: Call) -> list[tuple[Any, str]]:
    specialization = call.specialization
    return list(zip(specialization.runtime_paths, specialization.runtime_types, strict=True))


def _runtime(param: Param, value: Any, kind: str | None) -> Column | None:
    """The column of a run-time argument; `kind` is the type of its slot, None if it became a constant."""
    if type(value) is int:
        return None if param.fixed_type.startswith("*") or kind in _FLOATS else _integer(param, value)
    if type(value) is float:
        return Column(_FLOATS[kind], float) if kind in _FLOATS and not param.fixed_type else None
    torch = sys.modules.get("torch")
    if torch is None or type(value) not in (torch.Tensor, torch.nn.Parameter) or kind is None:
        return None
    key = tensor_key(value)
    return None if key is None or not kind.startswith("*") else Column(f.TENSOR, type(value), 0, key)


def _integer(param: Param, value: int) -> Column | None:
    """The facts of an integer that code is specialised on; as many are told apart as in `fastpath`, or more."""
    if not -(1 << 63) <= value < 1 << 63:
        return None
    mask = f.FACT_DIVISIBLE | f.FACT_ONE | f.FACT_WIDE if param.specialize else f.FACT_WIDE
    facts = 0 if value & 15 else f.FACT_DIVISIBLE
    facts |= f.FACT_ONE if value == 1 else 0
    facts |= 0 if -(1 << 31) <= value < 1 << 31 else f.FACT_WIDE
    return Column(f.INTEGER, int, mask, facts & mask)
