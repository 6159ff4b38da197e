"""PyTorch's own errors in the words of the kernel: sample sizes replaced by the names of axes."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.hl.dims import Axis, Dim, cut_atom
from tilewright.hl.graph.nodes import Value
from tilewright.hl.symbols import Sym, next_power_of_2, show
from tilewright.hl.trace.state import Trace

_ATTRIBUTES = {"begin": ".begin", "block": ".block_size", "valid": ".end - begin"}
_SYMBOL = re.compile(r"\b(begin|block|valid)\((\d+)\)|\bblock(\d+)\b")
_PAIR = re.compile(r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\)")
_INSTEAD = {  # what PyTorch says -> what to write
    "converted to Python scalars": "torch.exp(x) for math.exp(x), and so on",
    "combine_mode=": "call hl.associative_scan where the kernel does not call associative_scan itself",
    "recursion depth": "a function calls itself for ever: sizes and numbers can end that, values of tiles cannot",
    "condition to be a boolean tensor": "compare first: torch.where(x > 0, x, 0)",
    "'Tile' object is not iterable": "a tile is worked on as a whole, x[tile]; single indices are those of hl.grid",
    "inside a @jit kernel": "write PyTorch's function: torch.exp(x) for tl.exp(x), x[tile] for tl.load",
}
_NUMBER = re.compile(r"(?<![\w.%])\d+(?![\w.])")


def dim_text(trace: Trace, dim: Dim) -> str:
    """A dimension as users know it: "tile_m", "64", "2*tile_m"."""
    parts = [str(dim.static)] if dim.static != 1 or not dim.atoms else []
    for atom in map(cut_atom, dim.atoms):
        name = trace.axes[int(atom.key)].name if atom.kind == "block" else atom.text
        parts.append(name or named(trace.axes, show(Sym.of(atom))))
    return "*".join(parts)


def type_text(trace: Trace, value: Value) -> str:
    """A value's type as users know it: "float32[tile_m, 64]"."""
    return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(dim_text(trace, dim) for dim in value.dims)}]"


def named(axes: Sequence[Axis], text: str) -> str:
    """`text` with the symbols of axes as the user's code has them: "tile_m.begin" for "begin(0)"."""

    def name(match: re.Match[str]) -> str:
        kind, key, plain = match.groups()
        axis = axes[int(key or plain)].name if int(key or plain) < len(axes) else None
        if axis is None:
            return match.group()
        return axis if plain else f"{axis}{_ATTRIBUTES[kind]}"

    return _SYMBOL.sub(name, text)


def translate(trace: Trace, message: str) -> str:
    """`message` with the sizes of samples replaced by names."""

    def name(match: re.Match[str]) -> str:
        dim = trace.factors.dim(int(match.group()))
        return dim_text(trace, dim) if dim.atoms else match.group()

    return _NUMBER.sub(name, message.splitlines()[0] if message else message)


def hint(trace: Trace, message: str) -> str | None:
    """What to write instead of what PyTorch refuses."""
    pair = _PAIR.search(message)
    if pair is None:
        return next((hint for part, hint in _INSTEAD.items() if part in message), None)
    dims = [trace.factors.dim(int(extent)) for extent in pair.groups()]
    if all(dim.atom is not None and dim.atom.kind == "block" for dim in dims):
        return _LINE_UP
    block = block_for(trace, *dims)
    if block is not None:
        return block
    sizes = [dim.size() for dim in dims]
    for padded, size in (sizes, sizes[::-1]):
        if show(next_power_of_2(size)) == show(padded):
            lanes = show(padded).replace("tilewright.", "hl.")
            return f"x[tile, hl.arange({lanes})] for x[tile, :] has as many lanes, and reads 0 behind the row"
    return f"{_LINE_UP}; sums and means keep theirs with keepdim=True"


_LINE_UP = "tiles line up from the last dimension on, as in PyTorch: value[:, None] has one behind its own"


def like_attribute(node: ast.AST, error: AttributeError, scope: Mapping[str, Any]) -> str | None:
    """What may have been meant by an attribute that is not there.

    Args:
        node: the statement that asks for it.
        error: Python's, or that of a module's own `__getattr__`.
        scope: the names of the kernel.
    """
    wanted = error.name or (re.findall(r"'(\w+)'", str(error)) or [""])[-1]
    owner = error.obj
    for part in ast.walk(node) if owner is None else ():
        if isinstance(part, ast.Attribute) and part.attr == wanted and isinstance(part.value, ast.Name):
            owner = scope.get(part.value.id)
    near = difflib.get_close_matches(wanted, [name for name in dir(owner) if not name.startswith("_")], 1)
    return f"did you mean {near[0]}?" if near else None


def block_for(trace: Trace, one: Dim, other: Dim) -> str | None:
    """What to write where a number stands for the block size that the program gives a loop: its last tile is cut."""
    for tile, number in ((one, other), (other, one)):
        if tile.atom is None or tile.atom.kind != "block" or number.atoms:
            continue
        axis = trace.axes[int(tile.atom.key)]
        if axis.block == number.static:
            return f"write {axis.name}.block_size for {number.static}, of which the last tile may have fewer"
    return None
