"""Writes the language reference, docs/language.md, from the functions and operations themselves.

One section per family: its functions with signature and docstring. At the end, one table of the
operations of tile IR with what each back end does with them. ``make docs`` runs this file; ``--check``
writes nothing and fails when the committed text is out of date.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import tilewright.language
from tilewright.base.callable import BlockFunction
from tilewright.base.dtypes import dtype
from tilewright.ops.builtin import METHODS, Builtin
from tilewright.ops.spec import REGISTRY, ByHand, Decompose, Elementwise, Lowering

_HEAD = """\
# The block language

Written by `make docs` from the operations; edit those. Every function is used inside a kernel, as
`tl.name(...)` after `import tilewright.language as tl`; those marked *method* also as `x.name(...)`.

Data types: {dtypes}.
"""


def markdown() -> str:
    """The whole reference as text."""
    names = [name for name, value in sorted(vars(tilewright.language).items()) if isinstance(value, dtype)]
    parts = [_HEAD.format(dtypes=", ".join(f"`{name}`" for name in names))]
    for family, functions in groupby(sorted(_functions(), key=_order), key=lambda item: _family(item[1])):
        parts.append(f"## {family.replace('_', ' ').capitalize()}\n")
        parts.extend(_function(name, function) for name, function in functions)
    parts.append(_operations())
    return "\n".join(parts)


def _functions() -> Iterator[tuple[str, Builtin | BlockFunction]]:
    for name, value in vars(tilewright.language).items():
        if isinstance(value, Builtin | BlockFunction) and not name.startswith("_"):
            yield name, value


def _family(function: Builtin | BlockFunction) -> str:
    """The file that defines the function, which is named after its family."""
    return str(function.fn.__module__).rpartition(".")[2]


def _order(item: tuple[str, Builtin | BlockFunction]) -> tuple[str, str]:
    name, function = item
    return _family(function), name


def _function(name: str, function: Builtin | BlockFunction) -> str:
    signature = inspect.signature(function.fn)
    if isinstance(function, Builtin):
        signature = signature.replace(parameters=list(signature.parameters.values())[1:])  # without the emitter
    shown = [_parameter(parameter) for parameter in signature.parameters.values()]
    for index, parameter in enumerate(signature.parameters.values()):
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in shown and not any(s.startswith("*") for s in shown):
            shown.insert(index, "*")
    method = " *method*" if name in METHODS else ""
    text = inspect.cleandoc(function.fn.__doc__ or "")
    return f"### `{name}({', '.join(shown)})`{method}\n\n{_arguments(text)}\n"


def _parameter(parameter: inspect.Parameter) -> str:
    star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    default: Any = parameter.default
    return f"{star}{parameter.name}" + ("" if default is parameter.empty else f"={default!r}")


def _arguments(text: str) -> str:
    """The docstring with its ``Args:`` block as a list; the rest is Markdown already."""
    lines, inside = [], False
    for line in text.splitlines():
        if line.rstrip() in ("Args:", "Returns:", "Raises:"):
            inside = line.startswith("Args")
            lines += ["", f"*{line.strip().rstrip(':')}*", ""]
        elif inside and line.startswith("    ") and not line.startswith("     ") and ":" in line:
            name, _, meaning = line.strip().partition(":")
            lines.append(f"- `{name}`:{meaning}")
        else:
            lines.append(line.strip() if inside else line)
    return "\n".join(lines)


def _operations() -> str:
    rows = ["## Operations of tile IR\n", "| operation | meaning | CPU | CUDA |", "|---|---|---|---|"]
    for name in sorted(REGISTRY):
        spec = REGISTRY[name]
        summary = spec.summary or (inspect.getdoc(spec.op) or "").partition("\n")[0]
        cells = [_lowering(spec.lowering.get(backend)) for backend in ("cpu", "cuda")]
        rows.append(f"| `{name}` | {summary} | {cells[0]} | {cells[1]} |")
    return "\n".join(rows) + "\n"


def _lowering(lowering: Lowering | None) -> str:
    match lowering:
        case Elementwise():
            return "lane by lane"
        case ByHand():
            return "own code"
        case Decompose():
            return "rewritten"
        case None:
            return "none"
        case refused:
            return f"refused: {refused.reason}"


def main(arguments: list[str]) -> int:
    """Write docs/language.md, or with ``--check`` compare it; returns the exit status."""
    path, text = Path(__file__).resolve().parents[2] / "docs" / "language.md", markdown()
    if "--check" not in arguments:
        path.write_text(text, encoding="utf-8")
    elif not path.is_file() or path.read_text(encoding="utf-8") != text:
        sys.stderr.write(f"{path} is out of date: run make docs\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
