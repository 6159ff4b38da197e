"""What to write instead: hints for names, functions and methods that a kernel does not have, in the user's spelling."""

from __future__ import annotations

import ast
import difflib
import types
from collections.abc import Iterable, Sequence
from typing import Any

from tilewright import language
from tilewright.base.callable import BlockFunction
from tilewright.base.errors import LanguageTypeError
from tilewright.frontend.source import KernelSource
from tilewright.language.extra import libdevice
from tilewright.ops.builtin import METHODS, Builtin
from tilewright.ops.values import tensor, unwrap

_WRITTEN = (
    ("tilewright.language.", ("tilewright.language", "triton.language"), "tl"),
    ("@tilewright.", ("tilewright", "triton"), "tilewright"),
)
_OTHER_NAMES = {
    "concatenate": "cat", "concat": "cat", "stack": "join", "amax": "max", "amin": "min", "power": "pow",
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "transpose": "trans", "absolute": "abs", "clip": "clamp",
    "empty": "zeros", "ones": "full", "mod": "fmod", "rand_like": "rand", "matmul": "dot",
    "mm": "dot", "bmm": "dot", "relu": "maximum", "permute_dims": "permute", "square": "mul",
}  # fmt: skip
_ATTRIBUTES_OF_TORCH = {
    "size": "x.shape[0]", "dim": "len(x.shape)", "ndim": "len(x.shape)", "nelement": "x.numel", "t": "x.T",
    "float": "x.to(tl.float32)", "half": "x.to(tl.float16)", "double": "x.to(tl.float64)", "int": "x.to(tl.int32)",
    "astype": "x.to(tl.float32)",
    "long": "x.to(tl.int64)", "bool": "x != 0", "unsqueeze": "x[:, None]", "squeeze": "x.reshape(shape)",
}  # fmt: skip
_WRITTEN_OUT = {
    "mean": "tl.sum(x, axis) / n", "average": "tl.sum(x, axis) / n", "norm": "tl.sqrt(tl.sum(x * x, axis))",
    "var": "tl.sum(d * d, axis) / n of d = x - mean", "std": "tl.sqrt(tl.sum(d * d, axis) / n) of d = x - mean",
    "any": "tl.max(x, axis) != 0", "all": "tl.min(x, axis) != 0", "random": "tl.rand(seed, offsets)",
    "thread_id": "tl.arange(0, BLOCK): a program has no threads, it has elements",
    "block_id": "tl.program_id(axis)", "syncthreads": "tl.debug_barrier(), or nothing: tiles need none",
}  # fmt: skip
OPERATORS: dict[type[ast.AST], str] = {
    ast.MatMult: "write tl.dot(a, b)",
    ast.In: "compare with each value, or test constants only",
    ast.NotIn: "compare with each value, or test constants only",
}
NO_SHAPE = "pointers and single numbers have no shape: pass sizes as arguments of the kernel"
_LIST_METHODS = frozenset({"append", "extend", "insert", "pop", "remove", "clear", "sort", "reverse"})


def close_name(name: str, names: Iterable[str]) -> str | None:
    """A question after the name that is most like `name`."""
    close = difflib.get_close_matches(name, list(names), n=1)
    return f"did you mean `{close[0]}`?" if close else None


def function_hint(name: str) -> str | None:
    """How a kernel calls the function that numpy, torch or `math` calls `name`."""
    for known in (name, _OTHER_NAMES.get(name, name)):
        if isinstance(getattr(language, known, None), (Builtin, BlockFunction)):
            return f"write tl.{known}(...)"
        if isinstance(getattr(libdevice, known, None), Builtin):
            return f"write tl.extra.libdevice.{known}(...)"
    return f"write {_WRITTEN_OUT[name]}" if name in _WRITTEN_OUT else None


def tensor_hint(name: str) -> str | None:
    """What to write instead of ``tile.name``, which does not exist."""
    written = _ATTRIBUTES_OF_TORCH.get(name)
    if written is not None:
        return f"write {written}"
    return function_hint(name) or close_name(name, [*METHODS, "shape", "dtype", "type", "numel", "T"])


def attribute_hint(value: Any, name: str) -> str | None:
    """What to write instead of ``value.name``, which does not exist."""
    if value is language and not hasattr(language, name):
        return function_hint(name) or close_name(name, dir(language))
    if isinstance(value, tuple) and name in _LIST_METHODS:
        return "tuples and lists of a kernel do not change: make a new one, x = x + (value,), or store to memory"
    if isinstance(unwrap(value), (bool, int, float)) and hasattr(tensor, name):
        return f"it is a compile-time value here, as an argument that is 1 is: write tl.to_tensor(x).{name}"
    return close_name(name, dir(value)) or function_hint(name)


def operand_hint(operands: Iterable[Any]) -> str | None:
    """What to do about operands that no operator takes."""
    if any(unwrap(operand) is None for operand in operands):
        return "an argument that may be None is asked for first: if x is not None"
    if any(isinstance(operand, tuple) for operand in operands):
        return "take an element of the tuple, n[0], or pass that as the argument"
    return None


def power_hint(exponent: Any) -> str:
    """What to write instead of ``x ** exponent``."""
    number = unwrap(exponent)
    if isinstance(number, (int, float)) and number == 2:
        return "write x * x"
    return "multiply, or write tl.extra.libdevice.pow(x, y), which takes floats, negative ones too"


def refuse_functions(sign: str, operands: Sequence[Any]) -> None:
    """Raise where a function of the language is an operand, as in ``tl.program_id * BLOCK``.

    Raises:
        LanguageTypeError: one is, and the operator is no comparison.
    """
    for called in operands:
        if sign not in ("==", "!=") and isinstance(called, (Builtin, BlockFunction)):
            name = called.fn.__name__
            raise LanguageTypeError(f"an operand of {sign} is the function {name}", hint=f"call it: {name}(...)")


def warn_of_precedence(frame: Any, node: ast.Compare) -> None:
    """Speak of `i < n & j < m`, which is `i < (n & j) < m`."""
    for before, item in zip([node.left, *node.comparators], node.comparators[:-1]):
        if not isinstance(item, ast.BinOp) or not isinstance(item.op, (ast.BitAnd, ast.BitOr)):
            continue
        if "(" in frame.source.text_between(before, item):
            continue
        sign, text = "&" if isinstance(item.op, ast.BitAnd) else "|", ast.unparse(item)
        frame.at(node)
        frame.builder.warn(
            f"{sign} goes before comparisons in Python: this compares with {text}; "
            f"write (a < b) {sign} (c < d) for two conditions, or ({text}) if it is meant"
        )


def call_hint(fn: Any) -> str | None:
    """What to write instead of a call of a Python function."""
    module = (getattr(fn, "__module__", None) or "").partition(".")[0]
    name = getattr(fn, "__name__", "").rpartition(".")[2]
    if isinstance(fn, types.FunctionType) and module not in ("numpy", "torch"):
        return (
            f"decorate `{name}` with @tilewright.jit to call it in a kernel, or with @tilewright.constexpr_function "
            "if it computes on compile-time values"
        )
    return function_hint(name)


def as_written(text: str | None, source: KernelSource) -> str | None:
    """`text` with the package and its language under the names by which the file of a kernel knows them."""
    for written, modules, usual in _WRITTEN:
        if text and written in text:
            names = [n for n, v in source.globals.items() if isinstance(v, types.ModuleType) and v.__name__ in modules]
            text = text.replace(written, written[: written.startswith("@")] + (names or [usual])[0] + ".")
    return text
