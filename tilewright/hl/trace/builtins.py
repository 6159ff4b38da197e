"""Python's built-in functions as statements of a kernel see them: they understand symbols, and refuse to guess."""

from __future__ import annotations

import builtins
import functools
import math
from collections.abc import Callable, Container
from types import ModuleType
from typing import Any

import torch

from tilewright.hl import exc
from tilewright.hl.operands import operand
from tilewright.hl.symbols import Sym, maximum, minimum, number_needed
from tilewright.hl.trace.numbers import Number, calculated, called
from tilewright.hl.trace.state import current
from tilewright.hl.trace.tiles import Tile


def _int(value: Any = 0, *rest: Any) -> Any:
    if isinstance(value, Sym):
        return value
    if isinstance(value, torch.Tensor):
        return value.to(torch.int64) if _is_tile(value) else _int(value.item())
    return builtins.int(value, *rest)


def _float(value: Any = 0.0) -> Any:
    if isinstance(value, Sym):
        return value / 1
    if isinstance(value, torch.Tensor):
        return value.to(torch.float32) if _is_tile(value) else _float(value.item())
    if isinstance(value, builtins.float):
        return value  # a number of the launcher stays one
    return builtins.float(value)


def _is_tile(value: Any) -> bool:
    trace = current()
    return trace is not None and trace.value(value) is not None


def _len(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.size(0)
    return builtins.len(value)


def _min(*args: Any, **kwargs: Any) -> Any:
    return _extreme(builtins.min, minimum, torch.minimum, args, kwargs)


def _max(*args: Any, **kwargs: Any) -> Any:
    return _extreme(builtins.max, maximum, torch.maximum, args, kwargs)


def _extreme(plain: Any, symbolic: Any, tensors: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    items = builtins.list(args[0]) if builtins.len(args) == 1 else builtins.list(args)
    if any(isinstance(item, torch.Tensor) for item in items):
        result = items[0]
        for item in items[1:]:
            pair = [one if isinstance(one, torch.Tensor) else torch.full((), one) for one in (result, item)]
            result = tensors(*pair)
        return result
    if any(isinstance(item, Number) and item.actual is None for item in items):
        return called(plain.__name__, plain, items)
    if not any(isinstance(item, Sym) for item in items):
        return plain(*args, **kwargs)
    items = [operand(item) for item in items]
    if any(isinstance(item, builtins.float) for item in items):
        return _mixed_extreme(plain, tensors, items)
    result = items[0]
    for item in items[1:]:
        result = symbolic(result, item)
    return result


def _mixed_extreme(plain: Any, tensors: Any, items: list[Any]) -> Any:
    """The least or greatest of sizes or indices and floating-point numbers: the launcher's, or the device's."""
    made = called(plain.__name__, plain, items)
    if made is not NotImplemented:
        return made
    return _extreme(plain, None, tensors, tuple(item / 1 if isinstance(item, Sym) else item for item in items), {})


def _sum(values: Any, start: Any = 0) -> Any:
    total = start
    for value in values:
        total = calculated("+", total, value)
    return total


def _divmod(one: Any, other: Any) -> Any:
    if isinstance(one, Sym) or isinstance(other, Sym):
        return calculated("//", one, other), calculated("%", one, other)
    return builtins.divmod(one, other)


def _pow(base: Any, exponent: Any, *rest: Any) -> Any:
    return builtins.pow(base, exponent, *rest) if rest else calculated("**", base, exponent)


def _any(values: Any) -> Any:
    return _truths(values, True)


def _all(values: Any) -> Any:
    return _truths(values, False)


def _truths(values: Any, stop: bool) -> Any:
    """`any` or `all`: plain values decide at once, the others when the kernel runs."""
    late = None
    for value in values:
        if not isinstance(value, torch.Tensor | Sym):
            if builtins.bool(value) is stop:
                return stop
            continue
        truth = value != 0
        late = truth if late is None else late | truth if stop else late & truth
    return (not stop) if late is None else late


def _range(*args: Any) -> Any:
    trace = current()
    for tile in args:
        if isinstance(tile, Tile):
            raise exc.TileOfTile(
                f"range of {tile!r}, which is a tile", hint="write x[tile] for all of its elements at once"
            )
    if any(isinstance(arg, Sym | torch.Tensor) for arg in args):
        if trace is None or trace.region is None:
            raise number_needed(next(arg for arg in args if isinstance(arg, Sym | torch.Tensor)))
        return _LATE["grid"](*args)
    return builtins.range(*args)


def _read_digits(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function in C that takes integers by their digits, of which those of a symbol are invented."""

    @functools.wraps(function)
    def asked(*args: Any, **kwargs: Any) -> Any:
        symbol = next((arg for arg in (*args, *kwargs.values()) if isinstance(arg, Sym)), None)
        if symbol is not None:
            raise number_needed(symbol)
        return function(*args, **kwargs)

    return asked


def _sqrt(value: Any) -> Any:
    return value**0.5 if isinstance(value, Sym) else math.sqrt(value)


_sqrt.__name__ = "sqrt"
_DIGITS = ("gcd", "lcm", "isqrt", "comb", "perm", "factorial", "log", "log2", "log10", "ldexp")
_MATH = {getattr(math, name): _read_digits(getattr(math, name)) for name in _DIGITS} | {math.sqrt: _sqrt}


def _module(module: ModuleType, **others: Any) -> ModuleType:
    """A module in which some names are others."""
    made = ModuleType(module.__name__, module.__doc__)
    vars(made).update(vars(module), **others)
    return made


# The functions of `math` that are not in the table ask a symbol what it is, or compute with it.
_MATH_MODULE = _module(math, **{function.__name__: asked for function, asked in _MATH.items()})
_SCAN = "torch._higher_order_ops.associative_scan"
_LATE: dict[str, Any] = {}  # what `language` puts in: it is above this room


def scope() -> dict[str, Any]:
    """The `__builtins__` of statements that are traced."""
    return {
        **vars(builtins),
        "int": _Type(builtins.int, _int),
        "float": _Type(builtins.float, _float),
        "len": _len,
        "min": _min,
        "max": _max,
        "sum": _sum,
        "divmod": _divmod,
        "pow": _pow,
        **{name: _read_digits(vars(builtins)[name]) for name in ("bin", "hex", "oct", "chr")},
        "range": _range,
        "any": _any,
        "all": _all,
        **{name: function for name, function in _LATE.items() if name not in ("grid", "scan")},
    }


def instead(value: Any, used: Container[str] = ()) -> Any:
    """What stands in kernels for a global: torch's `associative_scan` is that of the language, and `math` refuses to
    take a size for the number that stands for it.

    Args:
        value: the global.
        used: names of globals and attributes that the kernel's text has.
    """
    if value is math:
        return _MATH_MODULE
    if isinstance(value, ModuleType) and "associative_scan" in used:
        return _with_scan(value, "_higher_order_ops" in used)
    where = getattr(value, "__module__", "") if callable(value) else ""
    if where == "math":
        return _MATH.get(value, value)
    return _LATE["scan"] if where == _SCAN else value


def _with_scan(module: ModuleType, through: bool) -> ModuleType:
    """PyTorch, where a name is reached `through` it, or its module of operations of a higher order, with the language's
    `associative_scan`."""
    if module is torch and through:
        return _module(torch, _higher_order_ops=_with_scan(torch._higher_order_ops, False))
    scan = getattr(vars(module).get("associative_scan"), "__module__", "")
    return _module(module, associative_scan=_LATE["scan"]) if scan == _SCAN else module


def provide(name: str, function: Callable[..., Any]) -> None:
    """Give the scope a function of the language ("grid" for `range` over symbols, "scan", "print")."""
    _LATE[name] = function


class _TypeMeta(type):
    """`isinstance(x, int)` and `x: int` go on meaning the type."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.plain)  # type: ignore[attr-defined]

    def __call__(cls, *args: Any) -> Any:
        return cls.convert(*args)  # type: ignore[attr-defined]

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is cls.plain  # type: ignore[attr-defined]

    def __hash__(cls) -> int:
        return hash(cls.plain)  # type: ignore[attr-defined]


def _Type(plain: type, convert: Any) -> Any:
    return _TypeMeta(plain.__name__, (), {"plain": plain, "convert": staticmethod(convert)})
