"""The texts of a kernel's stages with the line of the source behind each of their lines, and what each pass changed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

from tilewright.backends.cpu.backend import features_of
from tilewright.backends.llvm import codegen
from tilewright.compile.kernel import CompiledKernel
from tilewright.compile.metadata import StageTexts
from tilewright.passes import printing
from tilewright.passes.snapshot import LOCATION

_PLACE = re.compile(r'"([^"]+)":(\d+):\d+')
_DEBUG = re.compile(r",? ?!dbg !(\d+)")
_WHERE = re.compile(r"!(\d+) = !DILocation\(line: (\d+)")
_NUMBER = re.compile(r"%\d+|%[A-Za-z]\w*")
_LONGEST = 6000  # lines of a stage that are shown
_UNTIL = {"cpu": "loops", "cuda": "tgir"}  # the last stage that passes make


def stages_of(kernel: CompiledKernel, file: str, lines: range) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The stages and the passes of a kernel, as data for the page.

    Args:
        kernel: compiled.
        file, lines: where its source stands.

    Returns:
        (stages, passes): of a stage its name, its lines and their lines of the source, 0 where there is none; of a pass
        its name and the lines around what it changed, each behind "+", "-" or " ".
    """
    shown: printing.Shown = []
    texts: dict[str, Any] = dict.fromkeys(kernel.asm)
    until = _UNTIL.get(kernel.target.backend, "ttir")
    if isinstance(kernel.asm, StageTexts) and until in kernel.asm:
        with printing.collected() as shown:
            texts |= kernel.asm.made_anew(until)
    stages = []
    for name in texts:
        text = texts[name] if texts[name] is not None else kernel.asm[name]
        if isinstance(text, str):
            stages.append(_stage(name, text, file, lines))
    if kernel.target.backend == "cpu" and isinstance(kernel.asm.get("llir"), str):
        made = codegen.assembly(str(kernel.asm["llir"]), features_of(kernel.target))
        stages.append(_stage("asm", made, file, lines))
    return stages, list(_passes(shown))


def _stage(name: str, text: str, file: str, lines: range) -> dict[str, Any]:
    kept = list(_READERS.get(name, _plain_lines)(text, file, lines))
    rest = len(kept) - _LONGEST
    shown = [*kept[:_LONGEST], (f"... {rest} more lines", 0)] if rest > 0 else kept
    return {"name": name, "lines": [line for line, _ in shown], "source": [number for _, number in shown]}


def _plain_lines(text: str, file: str, lines: range) -> Iterator[tuple[str, int]]:
    yield from ((line, 0) for line in text.splitlines())


def _tile_lines(text: str, file: str, lines: range) -> Iterator[tuple[str, int]]:
    """Tile IR: each operation says where it is from; of calls the place in the kernel counts."""
    for line in text.splitlines():
        found = [int(number) for path, number in _PLACE.findall(line) if path == file and int(number) in lines]
        yield LOCATION.sub("", line), found[-1] if found else 0


def _llvm_lines(text: str, file: str, lines: range) -> Iterator[tuple[str, int]]:
    """LLVM IR: instructions name entries of a table at the end, which is left out."""
    where = {number: int(line) for number, line in _WHERE.findall(text)}
    for line in text.splitlines():
        if line.startswith("!"):
            continue
        found = _DEBUG.search(line)
        number = where.get(found.group(1), 0) if found else 0
        yield _DEBUG.sub("", line), number if number in lines else 0


def _machine_lines(text: str, file: str, lines: range) -> Iterator[tuple[str, int]]:
    """PTX and assembly: `.loc` speaks for what follows it; tables of debug information are left out."""
    number, in_table = 0, False
    for line in text.splitlines():
        if found := re.match(r"\s*\.loc\s+\d+\s+(\d+)", line):
            number = int(found.group(1)) if int(found.group(1)) in lines else 0
            continue
        if re.match(r"\s*\.section\s+(\.debug|\"?\.note)", line):
            in_table = True
        elif re.match(r"\s*(\.text|\.section)\b", line):
            in_table = False
        if in_table or re.match(r"\s*(\.cfi_|\.Ltmp\d+:|\$L__tmp\d+:|\.file\b)", line):
            continue
        is_code = line.startswith(("\t", " ")) and not line.strip().startswith((".", "//", "#"))
        yield line, number if is_code else 0


_READERS = {
    "ttir": _tile_lines, "tgir": _tile_lines, "llir": _llvm_lines, "ptx": _machine_lines, "asm": _machine_lines,
}  # fmt: skip


# --- passes -----------------------------------------------------------------------------------------------


def _passes(shown: Sequence[tuple[str, str]]) -> Iterator[dict[str, Any]]:
    """Passes in order with what they changed; of one that comes later to the same text nothing is kept twice."""
    before: list[str] = []
    for name, text in shown:
        if not text:
            yield {"name": name, "changed": False, "lines": []}
            continue
        after = [LOCATION.sub("", line) for line in text.splitlines()]
        lines = _difference(before, after)
        yield {"name": name, "changed": any(line[0] != " " for line in lines), "lines": lines}
        before = after


def _difference(before: Sequence[str], after: Sequence[str], around: int = 3) -> list[str]:
    """Lines that differ by more than the names of values, with those around them; "…" stands for what is left out."""
    if not before:
        return [" " + line for line in after]
    matcher = SequenceMatcher(None, [*map(_nameless, before)], [*map(_nameless, after)], autojunk=False)
    lines: list[str] = []
    for group in matcher.get_grouped_opcodes(around):
        lines.append("…")
        for kind, i, j, k, m in group:
            if kind == "equal":
                lines += [" " + line for line in after[k:m]]
            else:
                lines += ["-" + line for line in before[i:j]] + ["+" + line for line in after[k:m]]
    return lines


def _nameless(line: str) -> str:
    """A line with all values called alike: a pass that takes one away renames those behind it."""
    return _NUMBER.sub("%", line)


def layouts_named(text: str) -> Mapping[str, str]:
    """Names of layouts in laid-out tile IR, and their texts."""
    return dict(re.findall(r'^#(L\d+) = #tw\.layout<"([^"]*)">', text, re.MULTILINE))
