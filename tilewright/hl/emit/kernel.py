"""One `tl` kernel: the state of its code generator, and the operands that rows ask it for."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch

from tilewright.hl import exc
from tilewright.hl.dims import Axis, Dim, part_of
from tilewright.hl.emit.lines import Line, Lines
from tilewright.hl.emit.names import Names
from tilewright.hl.graph.nodes import HostNumber, HostTensor, Region, Value, operands
from tilewright.hl.passes.decide import Decision
from tilewright.hl.rows.dtypes import NAMES, fitted, literal
from tilewright.hl.rows.table import ROWS
from tilewright.hl.symbols import Atom, Sym, substitute, text


class Kernel:
    """The code generator of one top-level loop; rows see it as their `Emitter`.

    Args:
        name: name of the kernel.
        decision: the configuration applied.

    Attributes:
        lines: the body, written so far.
        tensors: host tensors in the order of their first use.
        scalars: numbers of the host that the kernel takes, name -> expression of the launcher.
        indices: names of offsets, indices and masks that exist at this point, by what they are.
        current: the axis that a size of blocks is of, at this point: several loops may share one.
        head: lines that come before the body.
        descriptors: names of the tensor descriptors in it, by their text.
        functions: functions of the module that the kernel calls.
    """

    def __init__(self, name: str, decision: Decision) -> None:
        self.name, self.decision = name, decision
        self.lines = Lines()
        self.names = Names(frozenset((name,)))
        self.tensors: dict[str, HostTensor] = {}
        self.scalars: dict[str, str] = {}
        self._parameters: dict[str, str] = {}
        self._powers: dict[str, int] = {}  # of two that the launcher computes, by their text
        self.values: dict[int, Any] = {}
        self.offsets: dict[int, str] = {}
        self.indices: dict[Any, str] = {}
        self.current: dict[Atom, Axis] = {}
        self.masks: dict[Any, str] = {}
        self.wanted: set[Any] = set()
        self.readers: Counter[int] = Counter()
        self.head: list[str] = []
        self.descriptors: dict[str, str] = {}
        self.functions: list[list[Line]] = []

    # --- what rows ask -----------------------------------------------------------------------------

    @property
    def gpu(self) -> bool:
        """Whether the text is for a GPU."""
        return self.decision.gpu

    def operand(self, arg: Any, dtype: torch.dtype | None = None) -> str:
        """The text of a value, number or symbol, converted to `dtype` where it has another."""
        if isinstance(arg, Sym):
            return self.symbol(arg)
        if isinstance(arg, HostNumber):
            return self._scalar(arg.name, arg.text)
        if isinstance(arg, torch.dtype):
            return self.dtype(arg)
        if not isinstance(arg, Value):
            return literal(fitted(arg, dtype))
        known = self.values[arg.id]
        if not isinstance(known, str):  # an alias of a number or symbol: weak, as in PyTorch
            return self.operand(known, dtype)
        return known if dtype is None or arg.dtype == dtype else f"{known}.to({self.dtype(dtype)})"

    def typed(self, value: Value, dtype: torch.dtype) -> str:
        """The text of a value converted to `dtype`: numbers and symbols get their type."""
        text = self.operand(value, dtype)
        return text if isinstance(self.values[value.id], str) else f"tl.full([], {text}, {self.dtype(dtype)})"

    def symbol(self, value: Any) -> str:
        """The text of a number, symbol or value in an index or a bound."""
        if isinstance(value, Value):
            return self.operand(value)
        return text(substitute(value, self.decision.number), self._atom, floors=False)

    def _atom(self, atom: Atom) -> str:
        if atom.kind == "host":
            return self._scalar(str(atom.key), atom.text)
        if atom.kind == "op":  # the next power of two
            written = text(Sym.of(atom), lambda inner: inner.text)
            return self._scalar(f"power_above_{self._powers.setdefault(written, len(self._powers))}", written)
        if atom.kind == "whole":
            return str(atom.key)
        axis = self.decision.axes[int(atom.key)]
        if atom.kind == "valid":
            return self.valid(axis)
        return self.offsets[axis.id]

    def valid(self, axis: Axis) -> str:
        """How many lanes of the current tile of an axis are valid."""
        return f"min({self.decision.block(axis)}, {self.symbol(axis.end)} - {self.offsets[axis.id]})"

    def extent(self, dim: Dim) -> int | str:
        """The number of lanes of a dimension."""
        return self.decision.lanes(dim)

    def shape(self, dims: tuple[Dim, ...]) -> str:
        """The text of a shape."""
        return f"[{', '.join(str(self.extent(dim)) for dim in dims)}]"

    def dtype(self, dtype: torch.dtype) -> str:
        """A type of PyTorch as `tl` writes it.

        Raises:
            UnsupportedOperation: `tl` has no such type.
        """
        if dtype not in NAMES:
            raise exc.UnsupportedOperation(f"tiles of {dtype} are not supported")
        return NAMES[dtype]

    def assign(self, value: Value, expression: str) -> None:
        """Write an assignment to `value`."""
        self.lines.write(f"{self.name_of(value)} = {expression}")

    def assign_all(self, values: list[Value], expression: str) -> None:
        """Write an assignment to one value or to several."""
        self.lines.write(f"{', '.join(self.name_of(value) for value in values)} = {expression}")

    def write(self, text: str) -> None:
        """Write a statement."""
        self.lines.write(text)

    def module_text(self, text: str) -> None:
        """Put definitions beside the kernel, once."""
        lines = [Line(line, self.lines.origin) for line in text.splitlines()]
        if lines not in self.functions:
            self.functions.append(lines)

    def function(self, wish: str, region: Region) -> str:
        """The name of a function of elements whose body is `region`, written once beside the kernel.

        Raises:
            InvalidAPIUsage: it uses a value that is none of its parameters.
        """
        made = Kernel(f"{self.name}_{wish}_{len(self.functions)}", self.decision)
        made.lines.origin, known = self.lines.origin, {param.id for param in region.params}
        half = len(region.params) // 2
        for at, param in enumerate(region.params):
            made.name_of(param, f"{'left' if at < half else 'right'}{at % half if half > 1 else ''}")
        parameters = ", ".join(made.name_of(param) for param in region.params)
        with made.lines.indented():
            for node in region.nodes:
                if any(value.id not in known for value in operands(node)):
                    break
                ROWS[node.op].emit(made, node)
                known.update(out.id for out in node.outs)
            outside = any(value.id not in known for value in region.results)
            if outside or made.scalars or made.tensors:
                raise exc.InvalidAPIUsage(
                    "a combine function uses a value of the kernel",
                    hint="give it as one more tile of a tuple, or make it a constant",
                )
            made.lines.write(f"return {', '.join(made.typed(value, value.dtype) for value in region.results)}")
        head = [Line("@tilewright.jit"), Line(f"def {made.name}({parameters}):", self.lines.origin)]
        self.functions.append([*head, *made.lines.lines])
        return made.name

    def name_of(self, value: Value, wish: str = "") -> str:
        """The name of a value, chosen at its first use."""
        if value.id not in self.values:
            self.values[value.id] = self.names.new(value.name or wish or f"v{value.id}")
        return str(self.values[value.id])

    def alias(self, value: Value, of: Any) -> None:
        """`value` is another name of `of`."""
        self.values[value.id] = self.values[of.id] if isinstance(of, Value) else of

    # --- indices and masks --------------------------------------------------------------------------

    def axis(self, atom: Atom) -> Axis:
        """The axis whose block size `atom` is."""
        return self.current[atom]

    def count(self, atom: Atom) -> str:
        """How many lanes are valid: of a tile, or of an extent that a tile spans whole."""
        if atom.kind in ("host", "whole"):
            return self._atom(atom)
        found = part_of(atom)
        valid = self.valid(self.axis(atom))
        return valid if found is None else f"{valid} // {found[1]}"

    def index(self, key: Any) -> str:
        """The name of a vector of indices, marked as used; `key` is the number of an axis or a dimension."""
        if isinstance(key, Dim) and key not in self.indices:
            self._whole(key)
        self.wanted.add(("index", key))
        return self.indices[key]

    def _whole(self, dim: Dim) -> None:
        """Indices of a dimension that a tile spans whole; made once, at the head of the kernel."""
        lanes = self.extent(dim)
        name = self.indices[dim] = self.names.new(f"lane_{str(lanes).lower()}")
        self.head.append(f"{name} = tl.arange(0, {lanes})")

    def mask(self, atom: Atom) -> str:
        """The name of the mask of a masked axis, marked as used."""
        if atom.kind in ("host", "whole") and atom not in self.masks:
            dim = Dim(1, (atom,))
            index = self.index(dim)
            name = self.masks[atom] = self.names.new(f"mask_{atom.key}")
            self.head.append(f"{name} = {index} < {self.count(atom)}")
        self.wanted.add(("mask", atom))
        return self.masks[atom]

    def tensor(self, tensor: HostTensor) -> str:
        """The name of a host tensor's pointer."""
        name = self._parameter(tensor.name)
        self.tensors.setdefault(name, tensor)
        return name

    def _scalar(self, wish: str, text: str) -> str:
        """The name of a number of the host, whose expression in the launcher is `text`."""
        name = self._parameter(wish)
        self.scalars.setdefault(name, text)
        return name

    def _parameter(self, wish: str) -> str:
        """The name of a parameter: the user's, unless a variable has it or the language does."""
        if wish not in self._parameters:
            self._parameters[wish] = self.names.new(wish)
        return self._parameters[wish]


def placed(name: str, at: int, own: int, rank: int) -> str:
    """A tile of `own` dimensions as dimensions `at`, `at` + 1, ... of a tile of `rank`."""
    if own == rank:
        return name
    return f"{name}[{', '.join(['None'] * at + [':'] * own + ['None'] * (rank - at - own))}]"
