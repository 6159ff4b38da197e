"""Writes docs/language.md, the language reference, from the functions and operations themselves, and pages of state.

Data types and promotion as tables, operators, then one section per family: each function with signature and
docstring. At the end, the operations of tile IR with what each back end does with them. ``make docs`` runs
this file; ``--check`` writes nothing and fails when the committed text is out of date.
"""

from __future__ import annotations

import enum
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import tilewright.language
from tilewright.backends.lowering import Lowering
from tilewright.base.callable import BlockFunction
from tilewright.base.dtypes import ALL_DTYPES, dtype
from tilewright.base.errors import DTypeError
from tilewright.devices.registry import BACKENDS
from tilewright.ops.builtin import METHODS, Builtin
from tilewright.ops.functions import operators
from tilewright.ops.promotion import computation_type
from tilewright.ops.spec import REGISTRY
from tilewright.tools import helionpage, statepage

_HEAD = """\
# The block language

Written by `make docs` from the operations; edit those. Every function is used inside a kernel, as
`tl.name(...)` after `import tilewright.language as tl`; those marked *method* also as `x.name(...)`.
Examples run in the tests.
"""

_PROMOTION = """\
## Mixed operands

Two tensors of different types are computed in the type where row and column meet (rows and columns of one kind
behave alike); `-` means an error. Shapes broadcast as in numpy: a missing leading dimension counts as 1.

A Python number or compile-time constant yields to the tensor beside it when its kind does not come later in
bool, integer, float: `x_int8 + 5` is int8, `x_float16 * 0.5` is float16, `x_int32 * 0.5` is float32. A name assigned
in a kernel is a tensor, not a number: after `half = 0.5`, `x_float16 * half` is float32.
With `/`, `//` and `%` every float operand smaller than float32 counts as float32, `/` of integers gives float32, and
integers of different signedness are an error for `//` and `%`.
"""

_LOOPS = """\
## Loops

`for i in range(start, end, step)` counts when the kernel runs, with Python's iterations; `tl.range` adds hints, and
`tl.static_range` unrolls. The counter has the type that bounds and step promote to. Behind the loop it is what the last
iteration had, or what it was before the loop if there was no iteration.

The step may be negative, also where only a run finds it. A step of zero is an error where it is a constant; found by a
run it makes no iteration, and fails the launch with the option `debug` and in the interpreter.

A loop that the compiler knows to count upwards (its step is positive, made of block sizes and numbers of programs, or
`tl.assume(step > 0)` says so) is compiled as it stands; any other counts its iterations, which it divides once for.
"""

_SIGNS = {
    "Add": "x + y", "Sub": "x - y", "Mult": "x * y", "Div": "x / y", "FloorDiv": "x // y", "Mod": "x % y",
    "LShift": "x << y", "RShift": "x >> y", "BitAnd": "x & y", "BitOr": "x | y", "BitXor": "x ^ y", "Lt": "x < y",
    "LtE": "x <= y", "Gt": "x > y", "GtE": "x >= y", "Eq": "x == y", "NotEq": "x != y", "USub": "-x", "Invert": "~x",
    "Not": "not x",
}  # fmt: skip
_SECTIONS = ("Args:", "Returns:", "Raises:", "Example:")
_TITLES = {"elementwise": "Element-wise", "gather": "Gather and histogram", "dot": "Matrix product"}
# One representative of each group of types that promote alike.
_REPRESENTATIVES = ("int1", "int8", "int32", "int64", "uint8", "uint32", "fp8e5", "bf16", "fp16", "fp32", "fp64")


def markdown() -> str:
    """The whole reference as text."""
    parts = [_HEAD, _data_types(), _promotion(), _operators(), _LOOPS]
    for family, functions in groupby(sorted(_functions(), key=_order), key=lambda item: _family(item[1])):
        parts.append(f"## {_TITLES.get(family, family.replace('_', ' ').capitalize())}\n")
        parts.extend(_function(name, function) for name, function in functions)
    parts.append(_operations())
    return "\n".join(parts).rstrip() + "\n"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def _language() -> list[tuple[str, Any]]:
    """The names of `tl` and what they stand for."""
    return [(name, getattr(tilewright.language, name)) for name in dir(tilewright.language)]


# --- types and operators -------------------------------------------------------------------------------


def _data_types() -> str:
    names = {value: name for name, value in _language() if isinstance(value, dtype)}
    rows = []
    for type_ in ALL_DTYPES:
        kind = "float" if type_.is_floating() else "bool" if type_.is_bool() else "integer"
        rows.append([f"`tl.{names[type_]}`", f"`{type_}`", str(type_.primitive_bitwidth), kind])
    return "## Data types\n\n" + _table(["name", "prints as", "bits", "kind"], rows)


def _meet(a: dtype, b: dtype) -> str:
    try:
        return str(computation_type(a, b))
    except DTypeError:
        return "-"


def _promotion() -> str:
    types = [dtype(name) for name in _REPRESENTATIVES]
    rows = [[f"**{a}**", *[_meet(a, b) for b in types]] for a in types]
    return _PROMOTION + "\n" + _table(["", *[str(t) for t in types]], rows)


_CONTRACTION = """### Contraction

`x * y + z`, `x * y - z` and `z - x * y` of floats are rounded once, on every target and in the interpreter, where
the product is an operand of the sum as it stands: also through a variable, and whatever else uses it. It is rounded
first if a branch or loop of run time begins or ends between the two, or if it was cast, broadcast, chosen by
`tl.where` or negated in between. Of two products, `a * b + c * d`, the later one is not rounded.
`enable_fp_fusion=False` rounds every operation; so does x86-64 before AVX2, which has no such instruction. A
reduction on a GPU may add products that were not rounded, and `acc * s + tl.dot(a, b)` adds up inside the product.
"""


def _operators() -> str:
    rows = []
    for table in (operators.BINARY, operators.COMPARE, operators.UNARY):
        for node, function in table.items():
            first = (function.fn.__doc__ or "").partition("\n")[0]
            sign = _SIGNS[node.__name__]
            rows.append([f"`{sign.replace('|', chr(92) + '|')}`", _meaning(first, sign)])
    return "## Operators of tensors\n\n" + _table(["operator", "meaning"], rows) + "\n" + _CONTRACTION


def _meaning(text: str, sign: str) -> str:
    """A docstring's first line without the operator that it starts with."""
    rest = text.replace(f"``{sign}``", "", 1).strip(" ,:;.")
    return (rest[:1].upper() + rest[1:]).replace("|", "\\|")


# --- functions -----------------------------------------------------------------------------------------------


def _functions() -> Iterator[tuple[str, Builtin | BlockFunction]]:
    for name, value in _language():
        if isinstance(value, Builtin | BlockFunction) and not name.startswith("_"):
            yield name, value


def _family(function: Builtin | BlockFunction) -> str:
    """The file that defines the function, which is named after its family."""
    return str(function.fn.__module__).rpartition(".")[2].removesuffix("_functions")


def _order(item: tuple[str, Builtin | BlockFunction]) -> tuple[str, str]:
    name, function = item
    return _family(function), name


def _function(name: str, function: Builtin | BlockFunction) -> str:
    signature = inspect.signature(function.fn)
    parameters = list(signature.parameters.values())
    parameters = parameters[1:] if isinstance(function, Builtin) else parameters  # without the emitter
    shown = [_parameter(parameter) for parameter in parameters]
    for index, parameter in enumerate(parameters):
        if parameter.kind is parameter.KEYWORD_ONLY and not any(text.startswith("*") for text in shown):
            shown.insert(index, "*")
    method = " *method*" if name in METHODS else ""
    return f"### `{name}({', '.join(shown)})`{method}\n\n{_docstring(inspect.cleandoc(function.fn.__doc__ or ''))}\n"


def _parameter(parameter: inspect.Parameter) -> str:
    star = ""
    if parameter.kind is parameter.VAR_POSITIONAL:
        star = "*"
    elif parameter.kind is parameter.VAR_KEYWORD:
        star = "**"
    default: Any = parameter.default
    if default is parameter.empty:
        return f"{star}{parameter.name}"
    return f"{parameter.name}={default if isinstance(default, enum.Enum) else repr(default)}"


def _docstring(text: str) -> str:
    """A docstring as Markdown: arguments as a list, results and errors as paragraphs, the example as code."""
    text = re.sub(r":\w+:`~?([\w.]+)`", r"`\1`", text).replace("``", "`")
    head, sections = _split(text)
    out = [head]
    for title, lines in sections:
        if title == "Example:":
            out.append("```python\n" + "\n".join(lines) + "\n```")
        elif title == "Args:":
            out.append("\n".join(_item(line) for line in _joined(lines)))
        else:
            out.append(f"*{title}* " + " ".join(line.strip() for line in lines))
    return "\n\n".join(out)


def _split(text: str) -> tuple[str, list[tuple[str, list[str]]]]:
    """The text before the first section, and the sections with their lines, indentation removed."""
    head: list[str] = []
    sections: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.rstrip() in _SECTIONS:
            sections.append((line.rstrip(), []))
        elif not sections:
            head.append(line)
        elif line.strip():
            sections[-1][1].append(line.removeprefix("    "))
    return "\n".join(head).strip(), sections


def _joined(lines: list[str]) -> list[str]:
    """Lines with their continuations, which are indented further, put on one line."""
    out: list[str] = []
    for line in lines:
        if line.startswith(" ") and out:
            out[-1] += " " + line.strip()
        else:
            out.append(line)
    return out


def _item(line: str) -> str:
    name, colon, meaning = line.partition(":")
    return f"- `{name}`:{meaning}" if colon else f"- {line}"


# --- operations ------------------------------------------------------------------------------------------------


def _operations() -> str:
    rows = []
    for name in sorted(REGISTRY):
        spec = REGISTRY[name]
        summary = spec.summary or (inspect.getdoc(spec.op) or "").partition("\n")[0]
        cells = [_lowering(BACKENDS[backend].backend.lowering(name)) for backend in ("cpu", "cuda")]
        rows.append([f"`{name}`", summary.rstrip("."), *cells])
    return "## Operations of tile IR\n\n" + _table(["operation", "meaning", "CPU", "CUDA"], rows)


def _lowering(lowering: Lowering | None) -> str:
    if lowering is None:
        return "none"
    return f"{lowering.how}: {lowering.reason}" if lowering.reason else lowering.how


PAGES: dict[str, Callable[[], str]] = {
    "language.md": markdown,
    "state.md": statepage.markdown,
    "state_helion.md": helionpage.markdown,
}


def main(arguments: list[str]) -> int:
    """Write the generated pages of docs/, or with ``--check`` compare them; returns the exit status."""
    stale = False
    for name, write in PAGES.items():
        path, text = Path(__file__).resolve().parents[2] / "docs" / name, write()
        if "--check" not in arguments:
            path.write_text(text, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != text:
            sys.stderr.write(f"{path} is out of date: run make docs\n")
            stale = True
    return int(stale)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
