"""One random kernel: its statements, parameters and grid, and the file that it is written to.

A case file is a Python module: a dictionary `CASE` says how to make the arguments and how far results may differ,
then come the helper functions in use and the kernel. A failure leaves the same file behind as a
regression test.
"""

from __future__ import annotations

import pprint
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.fuzz.helpers_text import HELPERS
from tilewright.tools.modules import load_file


@dataclass
class Statement:
    """One statement of a kernel.

    Args:
        text: the line; a compound statement ends in a colon.
        body: the statements inside a compound one.
        orelse: those of its `else`.
        plain: a simpler right side of the same type, which shrinking may put in, with the name it defines.
    """

    text: str
    body: list[Statement] = field(default_factory=list)
    orelse: list[Statement] = field(default_factory=list)
    plain: str | None = None

    def lines(self, indent: int) -> Iterator[str]:
        """The statement as source lines."""
        pad = "    " * indent
        yield pad + self.text
        if not self.text.endswith(":"):
            return
        for part in (self.body, self.orelse):
            if part is self.orelse:
                if not self.orelse:
                    return
                yield f"{pad}else:"
            for statement in part:
                yield from statement.lines(indent + 1)
            if not part:
                yield f"{pad}    pass"


@dataclass(frozen=True)
class Param:
    """One parameter of the kernel.

    Args:
        name: its name.
        kind: "array", "scalar" or "constexpr".
        dtype: name of the element type in the language.
        value: of a scalar or constexpr.
        size: number of elements of an array.
        fill: how the elements are made: see `arguments.filled`.
        aligned: whether the address is, and is promised to be, a multiple of 16.
        alias: name of another array parameter that this one is the same memory as.
        tolerance: absolute difference that the results may have.
        valid: elements that the kernel may use, as the first and (count, stride) of each axis; the rest is poison.
    """

    name: str
    kind: str
    dtype: str = ""
    value: Any = None
    size: int = 0
    fill: str = "zeros"
    aligned: bool = True
    alias: str | None = None
    tolerance: float = 0.0
    valid: tuple[int, tuple[tuple[int, int], ...]] | None = None


@dataclass
class Case:
    """A kernel and how to run it.

    Args:
        seed: of the random choices; the contents of the arrays follow from it.
        params: parameters in order.
        body: statements.
        grid: number of programs per axis.
        cpu: name of the CPU that is compiled for, emulated if need be; empty for the host itself.
        options: compile options that differ from the defaults.
        gpu: those of a GPU's back end.
        note: what was wrong, for a regression test.
        spelled: names of the rarer spellings that were drawn.
    """

    seed: int
    params: list[Param]
    body: list[Statement]
    grid: tuple[int, ...]
    cpu: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    gpu: dict[str, Any] = field(default_factory=dict)
    note: str = ""
    spelled: set[str] = field(default_factory=set)

    def source(self) -> str:
        """The text of the case file."""
        kernel = [line for statement in self.body for line in statement.lines(1)] or ["    pass"]
        text = "\n".join(kernel)
        used = [part for name, part in HELPERS.items() if name in text]
        names = ", ".join(p.name + (": tl.constexpr" if p.kind == "constexpr" else "") for p in self.params)
        record = {
            "seed": self.seed,
            "grid": self.grid,
            "cpu": self.cpu,
            "options": self.options,
            "gpu": self.gpu,
            "params": [_brief(p) for p in self.params],
        }
        head = f'"""{self.note or f"Random kernel of seed {self.seed}."}"""\n\n'
        imports = "import tilewright\nimport tilewright.language as tl\n\n"
        data = f"CASE = {pprint.pformat(record, width=110, sort_dicts=False)}\n\n\n"
        functions = "".join(f"{part.strip()}\n\n\n" for part in used)
        return f"{head}{imports}{data}{functions}@tilewright.jit\ndef kernel({names}):\n{text}\n"

    def with_body(self, body: list[Statement]) -> Case:
        """The same case with other statements, and without the parameters that they do not use."""
        text = "\n".join(line for s in body for line in s.lines(0))
        kept = [p for p in self.params if p.name in text]
        names = {p.name for p in kept}
        kept = [replace(p, alias=p.alias if p.alias in names else None) for p in kept]
        return replace(self, body=body, params=kept)


def _brief(param: Param) -> dict[str, Any]:
    """Fields that differ from their defaults."""
    default = asdict(Param("", ""))
    return {k: v for k, v in asdict(param).items() if v != default[k] or k in ("name", "kind")}


@dataclass(frozen=True)
class Loaded:
    """A case file that was imported."""

    kernel: Any
    params: tuple[Param, ...]
    grid: tuple[int, ...]
    seed: int
    cpu: str
    options: dict[str, Any]
    gpu: dict[str, Any]


def load(path: Path) -> Loaded:
    """Import a case file."""
    module = load_file(path, f"fuzz_case_{path.stem}")
    record = module.CASE
    params = tuple(Param(**p) for p in record["params"])
    grid, options, gpu = tuple(record["grid"]), dict(record["options"]), dict(record.get("gpu", {}))
    return Loaded(module.kernel, params, grid, record["seed"], record["cpu"], options, gpu)
