"""Writes docs/state.md: every name of the language with its state on each back end.

The names come from `surface.py`, their state from the namespace itself: what is not there shows as missing, what raises
says why. `tilewright.tools.docgen` writes the page together with the language reference.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import tilewright.language
from tilewright.ops.builtin import METHODS
from tilewright.ops.tensor_descriptor import tensor_descriptor
from tilewright.ops.values import tensor
from tilewright.tools.remains import REMAINS
from tilewright.tools.surface import DESCRIPTOR_MEMBERS, GROUPS, MEMBERS, MODULES, REFUSED_ON, REMARKS

_HEAD = """\
# State of the language

Written by `make docs` from the namespace `tilewright.language` and the list of names in `tilewright/tools/surface.py`;
edit those. "CPU" is compiled code, "interpreter" the mode in which kernels run as Python (of the same functions),
"CUDA" compiled code for NVIDIA GPUs. A refused name exists and raises an error that says what the table says; what is
said of the CPU holds for the interpreter too. Every name has a kernel in `tests/gpu/language_kernels.py`: it runs on a
GPU, and where there is none it is compiled and simulated. What works in PyTorch is in [torch.md](torch.md), every
name of Triton's host side in [state_host.md](state_host.md), what runs under the name `triton` (Inductor, Helion,
libraries, with their versions) in [as_triton.md](as_triton.md), every name of Helion in
[state_helion.md](state_helion.md).
"""


def missing(path: str) -> bool:
    """Whether the name `path`, as "exp" or "extra.libdevice.tanh", is not in `tl`."""
    try:
        operator.attrgetter(path)(tilewright.language)
    except AttributeError:
        return True
    return False


def names() -> Iterator[tuple[str, str]]:
    """(section, path) of every name of the language outside of classes."""
    for section, listed in GROUPS.items():
        yield from ((section, name) for name in listed.split())
    for module, listed in MODULES.items():
        yield from ((f"`tl.{module}`", f"{module}.{name}") for name in listed.split())


def missing_members() -> list[str]:
    """Members of tensors and tensor descriptors that are not there."""
    found = [f"tensor.{n}" for n in MEMBERS.split() if n not in METHODS and not _has(tensor, n)]
    return found + [f"tensor_descriptor.{n}" for n in DESCRIPTOR_MEMBERS.split() if not hasattr(tensor_descriptor, n)]


def _has(cls: Any, name: str) -> bool:
    return hasattr(cls, name)


_TITLES = {"": "", "cpu": "CPU: ", "cuda": "CUDA: "}


def state(path: str, backend: str) -> str:
    """What a back end, "cpu" or "cuda", does with a name: "yes", "refused" or "missing"."""
    return "missing" if missing(path) else "refused" if path in REFUSED_ON[backend] else "yes"


def _row(path: str) -> list[str]:
    notes = {**REMARKS.get(path, {}), **{b: refused[path] for b, refused in REFUSED_ON.items() if path in refused}}
    remark = "; ".join(f"{_TITLES[backend]}{text}" for backend, text in notes.items())
    cpu = state(path, "cpu")
    return [f"`{path}`", cpu, cpu, state(path, "cuda"), remark]


def _table(rows: list[list[str]]) -> str:
    lines = [["name", "CPU", "interpreter", "CUDA", "remark"], ["---"] * 5, *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def markdown() -> str:
    """The whole page as text."""
    sections: dict[str, list[list[str]]] = {}
    for section, path in names():
        sections.setdefault(section, []).append(_row(path))
    parts = [_HEAD, *(f"## {section}\n\n{_table(rows)}" for section, rows in sections.items())]
    for title, cls, listed in (
        ("Members of tensors", "tensor", MEMBERS),
        ("Members of tensor descriptors", "tensor_descriptor", DESCRIPTOR_MEMBERS),
    ):
        lost = missing_members()
        here = [f"`{name}`" for name in listed.split() if f"{cls}.{name}" not in lost]
        gone = [f"`{name}`" for name in listed.split() if f"{cls}.{name}" in lost]
        parts.append(f"## {title}\n\nThere: {', '.join(here)}.\n\nMissing: {', '.join(gone) or 'none'}.\n")
    for title, remaining in REMAINS.items():
        lines = ["| what | why |", "| --- | --- |", *(f"| {what} | {why} |" for what, why in remaining)]
        parts.append(f"## {title}\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts).rstrip() + "\n"
