"""A derived kernel as text of hl that people can read, run and change.

    @hl.kernel
    def softmax_backward(grad_out: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        grad_x = torch.empty([103, 70], ...)
        for rows in hl.tile(103):
            ...

The text is what is compiled: nothing of a derived kernel is known to anybody in another form.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable
from typing import Any

import torch

from tilewright.hl import exc
from tilewright.hl.dims import Axis
from tilewright.hl.grad.extents import agree, is_zero
from tilewright.hl.grad.program import Program, uses
from tilewright.hl.graph.nodes import HostNumber, HostTensor, Node, Region, Subscript, Value
from tilewright.hl.symbols import Atom, Sym, same
from tilewright.hl.symbols import text as symbol_text

_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">"}
_INFIX |= {"ge": ">=", "bitwise_and": "&", "bitwise_or": "|"}
_RESHAPED = frozenset(("view", "_unsafe_view", "_reshape_alias"))
_WHERE = frozenset(("device", "layout", "pin_memory", "memory_format", "implicit", "non_blocking"))
_LONGEST = 90  # of an expression that stands inside another one
_OWN = {
    "sort_lanes": "from tilewright.hl.rows.gather import sort_lanes\n",
    "Dividing": "from tilewright.hl.trace.tiles import Dividing\n",
}
_HEAD = "import torch\n\nfrom tilewright import hl\n\n\n"


def program_text(program: Program) -> str:
    """The module of a program: its imports and the kernel."""
    writer = _Writer(program)
    device = f"{(program.tensors or ['torch'])[0]}.device"
    body = [
        *writer.sizes(),
        *(one.line(device, writer.value) for one in program.made),
        *writer.region(program.region),
        f"return {_tuple(program.results)}",
    ]
    tensors = {*program.tensors}
    parameters = [f"{name}: torch.Tensor" if name in tensors else name for name in program.parameters]
    settings = "(static_shapes=False)" if program.is_open else ""
    lines = [
        f"@hl.kernel{settings}",
        f"def {program.name}({', '.join(parameters)}):",
        *(f"    {line}" for line in body),
    ]
    text = "\n".join(body)
    head = "from math import inf, nan\n\n" if re.search(r"\b(inf|nan)\b", text) else ""
    own = "".join(line for name, line in _OWN.items() if f"{name}(" in text)
    return head + _HEAD.replace("import hl\n", f"import hl\n{own}") + "\n".join(lines) + "\n"


def _tuple(items: list[str]) -> str:
    return ", ".join(items) + ("," if len(items) == 1 else "")


class _Writer:
    """Writes the region of a program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.taken = {
            *program.tensors,
            *program.numbers,
            *program.own,
            "torch",
            "hl",
            "inf",
            "nan",
            *_OWN,
            *keyword.kwlist,
        }
        self.uses, self.inside = uses(program.region), 0
        self.names: dict[int, str] = {}
        self.axes: dict[int, str] = {}
        for axis in program.axes:
            if axis.id not in self.axes:
                self.axes[axis.id] = self.fresh(axis.name)
        self.blocks = program.blocks
        self.around: list[Axis] = []
        self.extents: list[tuple[Any, str]] = []
        self.kinds = {axis.id: axis for axis in program.axes}

    def fresh(self, wanted: str) -> str:
        """A name that nothing has yet."""
        name, at = wanted if wanted.isidentifier() else "value", 1
        while name in self.taken:
            at += 1
            name = f"{wanted}_{at}"
        self.taken.add(name)
        return name

    # --- statements ----------------------------------------------------------------------------------

    def sizes(self) -> list[str]:
        """Names for open sizes: each is an extent of one tensor, and those of others are as large."""
        lines, checks = [], []
        for tensor, at, size in self.program.sizes:
            known = next((name for other, name in self.extents if same(size, other)), None)
            if known is None and isinstance(size, Sym):
                known = str(size.atom.key) if size.atom is not None else self.fresh(f"{tensor}_size_{at}")
                self.extents.append((size, known))
                lines.append(f"{known} = {tensor}.size({at})")
            elif known is not None or size > 1:  # sizes of 0 and 1 are never open
                checks.append(f"assert {tensor}.size({at}) == {size if known is None else known}")
        return lines + checks

    def region(self, region: Region) -> list[str]:
        """The lines of a region's nodes."""
        lines: list[str] = []
        around, self.inside = self.inside, id(region)
        for node in region.nodes:
            lines += _STATEMENTS[node.op](self, node) if node.op in _STATEMENTS else self.assignment(node)
        self.inside = around
        return lines

    def assignment(self, node: Node) -> list[str]:
        """An expression under a name, unless it stands where it is used."""
        text = self.expression(node)
        if len(node.outs) > 1:
            self.name_all(node.outs)
            return [f"{', '.join(self.names[out.id] for out in node.outs)} = {text}"]
        out = node.out
        once = self.uses.get(out.id) == [self.inside]  # elsewhere it would be computed in every pass of a loop
        inline = once and not out.name and len(text) <= _LONGEST and node.op != "load"
        if inline or re.fullmatch(r"[\w.]+", text):
            self.names[out.id] = text
            return []
        self.name_all(node.outs)
        return [f"{self.names[out.id]} = {text}"]

    def name_all(self, values: list[Value]) -> None:
        """Give values names of their own."""
        for value in values:
            self.names[value.id] = self.fresh(re.sub(r"\W", "_", value.name) or "v")

    def store(self, node: Node) -> list[str]:
        """A subscript that is assigned."""
        tensor, entries, value = node.args
        rank = len(node.kwargs["dims"])
        if node.kwargs.get("mask") is not None:
            index = self.listed(entries, rank, node.kwargs["dims"])
            mask = self.value(node.kwargs["mask"])
            return [f"hl.store({tensor.name}, [{index}], {self.value(value)}, extra_mask={mask})"]
        return [f"{self.place(tensor, entries, rank, node.kwargs['dims'])} = {self.value(value)}"]

    def atomic(self, node: Node) -> list[str]:
        """An atomic addition of which the result is not used."""
        tensor, entries, value = node.args
        index = self.listed(entries, len(node.out.dims), node.out.dims)
        return [f"hl.atomic_add({tensor.name}, [{index}], {self.value(value)})"]

    def loop(self, node: Node) -> list[str]:
        """A loop over tiles; what it carries is assigned before it and at the end of its body."""
        (region,) = node.regions
        axes = node.kwargs["axes"]
        lines = []
        inits = node.args[0] if node.args else []
        for param, init, out in zip(region.params, inits, node.outs, strict=True):
            self.name_all([param])
            self.names[out.id] = self.names[param.id]
            lines.append(f"{self.names[param.id]} = {self.value(init)}")
        targets = ", ".join(self.axes[axis.id] for axis in axes)
        lines.append(f"for {targets} in {self.range(node, axes)}:")
        self.around += axes
        body = self.region(region)
        del self.around[len(self.around) - len(axes) :]
        if region.params:
            names = ", ".join(self.names[param.id] for param in region.params)
            body.append(f"{names} = {', '.join(map(self.value, region.results))}")
        return lines + [f"    {line}" for line in body or ["pass"]]

    def range(self, node: Node, axes: list[Axis]) -> str:
        """What a loop iterates."""
        kind = axes[0].kind
        if kind == "jagged":
            return _ordered(axes, f"hl.jagged_tile({self.value(axes[0].parent)})")
        begins, ends = ([self.value(item) for item in node.kwargs[key]] for key in ("begin", "end"))
        inside = (f"Dividing({axis.within})" if axis.within and axis.block is None else "" for axis in axes)
        known = [text or self.value(axis.block) for text, axis in zip(inside, axes, strict=True)]
        join = (lambda items: items[0]) if len(axes) == 1 else (lambda items: f"[{', '.join(items)}]")
        parts = [join(ends)] if all(begin == "0" for begin in begins) else [join(begins), join(ends)]
        if kind == "tile" and any(text != "None" for text in known):
            parts.append(f"block_size={join(known)}")
        return _ordered(axes, f"hl.{kind}({', '.join(parts)})")

    def branch(self, node: Node) -> list[str]:
        """An `if`; both arms assign what it results in."""
        self.name_all(node.outs)
        lines = []
        for head, region in zip((f"if {self.value(node.args[0])}:", "else:"), node.regions, strict=True):
            body = self.region(region)
            body += [f"{self.names[o.id]} = {self.value(r)}" for o, r in zip(node.outs, region.results, strict=True)]
            lines += [head, *(f"    {line}" for line in body or ["pass"])]
        return lines

    # --- expressions -----------------------------------------------------------------------------------

    def value(self, item: Any) -> str:
        """An operand."""
        if isinstance(item, Value):
            return self.names[item.id]
        if isinstance(item, Sym):
            known = next((name for size, name in self.extents if same(size, item)), None)
            return known or symbol_text(item, self.atom)
        if isinstance(item, HostNumber):
            return item.name
        if isinstance(item, list | tuple):
            return f"[{', '.join(map(self.value, item))}]"
        return str(item) if isinstance(item, torch.dtype) else repr(item)

    def atom(self, atom: Atom) -> str:
        """A symbol that is not made of others."""
        if atom.kind == "host":
            return str(atom.key)
        if atom.kind not in ("block", "begin", "tunable", "valid"):
            raise exc.NotDifferentiable(f"the size {atom.text or atom.kind} in a derived kernel")
        if atom.kind == "block" and atom.key in self.blocks and atom.key not in self.axes:
            tile = next((self.axes[axis.id] for axis in reversed(self.around) if axis.size == atom), "")
            return f"{tile}.block_size" if tile else str(self.blocks[int(atom.key)])
        if atom.kind == "tunable" or atom.key not in self.axes:
            raise exc.NotDifferentiable(
                "a number that the program lets the configuration tune",
                hint="write hl.register_block_size, or a number",
            )
        name = self.axes[int(atom.key)]
        if atom.kind == "valid":
            return f"({name}.end - {name}.begin)"
        if self.kinds[int(atom.key)].kind == "grid":
            return name
        return f"{name}.block_size" if atom.kind == "block" else f"{name}.begin"

    def expression(self, node: Node) -> str:
        """What a node computes."""
        if node.function is not None or node.op in _INFIX:
            return self.call(node)
        written = _EXPRESSIONS.get(node.op)
        if written is None:
            raise exc.NotDifferentiable(f"{node.op} has no text in a derived kernel")
        return written(self, node)

    def call(self, node: Node) -> str:
        """A call of PyTorch."""
        args = [self.value(arg) for arg in node.args]
        named = {key: value for key, value in node.kwargs.items() if key not in _WHERE and value is not None}
        if node.op in _INFIX and len(args) == 2 and not named:
            return f"({args[0]} {_INFIX[node.op]} {args[1]})"
        if node.op == "neg":
            return f"(-{args[0]})"
        if node.op == "_to_copy" and "dtype" not in named:
            return args[0]
        if node.op == "_to_copy":
            return f"{args[0]}.to({self.value(node.kwargs['dtype'])})"
        if node.op in _RESHAPED:
            name = "view" if isinstance(node.args[1], torch.dtype) else "reshape"
            return f"{args[0]}.{name}({args[1]})"
        if node.op == "expand":
            return f"{args[0]}.expand({args[1]})"
        given = ", ".join([*args, *(f"{key}={self.value(value)}" for key, value in named.items())])
        known = hasattr(torch, node.op) and not node.op.startswith("_")
        return f"torch.{node.op}({given})" if known else f"torch.ops.aten.{node.op}({given})"

    def load(self, node: Node) -> str:
        """A subscript."""
        tensor, entries = node.args[:2]
        mask = node.kwargs.get("mask")
        if mask is not None:
            index = self.listed(entries, len(node.out.dims), node.out.dims)
            return f"hl.load({tensor.name}, [{index}], extra_mask={self.value(mask)})"
        return self.place(tensor, entries, len(node.out.dims), node.out.dims)

    def place(self, tensor: HostTensor, entries: list[Subscript], rank: int, dims: Any) -> str:
        """`tensor[...]`."""
        return f"{tensor.name}[{self.subscripts(entries, rank, dims) or '()'}]"

    def listed(self, entries: list[Subscript], rank: int, dims: Any) -> str:
        """Subscripts as items of a list, where slices are calls."""
        items = self.subscripts(entries, rank, dims).split(", ")
        return ", ".join(_slice(item) for item in items)

    def subscripts(self, entries: list[Subscript], rank: int, dims: Any) -> str:
        """The subscripts of an access to a tile of `rank` dimensions."""
        texts, filled = [], 0
        together = max((entry.what.dims for entry in entries if _is_tile(entry)), key=len, default=())
        common = len(together) if len(together) > 1 else 0  # index tensors that broadcast together
        placed = False
        for entry in entries:
            at = entry.at
            while at is not None and filled < at and not (common and _is_tile(entry)):
                texts.append("None")
                filled += 1
            texts.append(self.subscript(entry, dims))
            if at is not None and not (common and _is_tile(entry) and placed):
                filled += common if common and _is_tile(entry) else 1
                placed = placed or _is_tile(entry)
        texts += ["None"] * (rank - filled)
        return ", ".join(texts)

    def subscript(self, entry: Subscript, dims: Any) -> str:
        """One subscript."""
        plain = type(entry.offset) is int and entry.offset == 0
        if entry.kind == "tile":
            name = self.axes[entry.what]
            return name if plain else f"{name} + {self.value(entry.offset)}"
        if entry.kind != "slice":
            return self.value(entry.what)
        length = dims[entry.at].size()
        first, step = entry.what, entry.step
        if is_zero(first) and step == 1 and agree(length, entry.extent):
            return ":"
        if type(first) is int and type(length) is int:
            return f"{first}:{first + (length - 1) * step + 1}" + (f":{step}" if step != 1 else "")
        return f"{self.value(first)}:{self.value(first + length * step)}" + (f":{step}" if step != 1 else "")

    # --- operations of ours ------------------------------------------------------------------------------

    def product(self, node: Node) -> str:
        """A product of matrices."""
        a, b, acc = node.args
        added = f", acc={self.value(acc)}" if acc is not None else ""
        return f"hl.dot({self.value(a)}, {self.value(b)}{added}, out_dtype={node.out.dtype})"

    def constant(self, node: Node) -> str:
        """A number, or a tile of it."""
        shape = self.value([dim.size() for dim in node.out.dims])
        return f"torch.full({shape}, {self.value(node.args[0])}, dtype={node.out.dtype})"

    def packed(self, items: list[Any]) -> str:
        """One operand, or a tuple of several."""
        return self.value(items[0]) if len(items) == 1 else f"({', '.join(map(self.value, items))})"

    def combine(self, node: Node) -> str:
        """The function of a scan or reduction, as a lambda."""
        (region,) = node.regions
        names = [f"{side}{at}" for side in "ab" for at in range(len(region.params) // 2)]
        self.names |= {param.id: name for param, name in zip(region.params, names, strict=True)}
        for inner in region.nodes:
            self.names[inner.out.id] = self.expression(inner)
        return f"lambda {', '.join(names)}: {self.packed(region.results)}"


def _ordered(axes: list[Axis], text: str) -> str:
    """A range in the order of its passes."""
    return f"reversed({text})" if axes[0].backward else text


def _slice(item: str) -> str:
    """A subscript with colons as a call of `slice`."""
    return f"slice({', '.join(part or 'None' for part in item.split(':'))})" if ":" in item else item


def _is_tile(entry: Subscript) -> bool:
    return entry.kind == "tensor" and isinstance(entry.what, Value)


def _scan(writer: _Writer, node: Node) -> str:
    """A scan with a function."""
    tiles, dim, reverse = node.args
    end = ", reverse=True" if reverse else ""
    return f"hl.associative_scan({writer.combine(node)}, {writer.packed(tiles)}, {dim}{end})"


def _reduction(writer: _Writer, node: Node) -> str:
    """A reduction with a function."""
    tiles, dims, others, keep = node.args
    dim = "None" if len(dims) > 1 else str(dims[0])
    other = writer.packed(others)
    return f"hl.reduce({writer.combine(node)}, {writer.packed(tiles)}, {dim}, {other}, {keep})"


def _compared(writer: _Writer, node: Node) -> str:
    """Two symbols compared."""
    op, left, right = node.args
    return f"({writer.value(left)} {op} {writer.value(right)})"


def _lanes(writer: _Writer, node: Node) -> str:
    """Positions along a dimension."""
    return f"hl.arange({writer.value(node.out.dims[0].size())}, dtype=torch.int32)"


def _drawn(writer: _Writer, node: Node) -> str:
    """Random numbers with a seed, counted by places."""
    seed, counter = map(writer.value, node.args[:2])
    shape = writer.value([dim.size() for dim in node.out.dims])
    return f"hl.rand({shape}, {seed}, offsets={counter})"


def _gathered(writer: _Writer, node: Node) -> str:
    """An index into a tile."""
    source, index, dim = node.args
    return f"torch.gather({writer.value(source)}, {dim}, {writer.value(index)}.to(torch.int64))"


def _summed(writer: _Writer, node: Node) -> str:
    """Running sums or products that are no call of PyTorch's."""
    source, dim = node.args[:2]
    reverse = ", reverse=True" if node.kwargs.get("reverse") else ""
    return f"hl.{node.op}({writer.value(source)}, {dim}{reverse})"


_STATEMENTS: dict[str, Any] = {
    "store": _Writer.store,
    "atomic_add": _Writer.atomic,
    "loop": _Writer.loop,
    "if": _Writer.branch,
}
_EXPRESSIONS: dict[str, Callable[..., str]] = {
    "load": _Writer.load,
    "product": _Writer.product,
    "compare": _compared,
    "lanes": _lanes,
    "draw_uniform": _drawn,
    "cumsum": _summed,
    "cumprod": _summed,
    "reduce_fn": _reduction,
    "scan_fn": _scan,
    "sort_lanes": lambda writer, node: f"sort_lanes({writer.value(node.args[0])})",
    "take_lanes": _gathered,
    "largest": lambda writer, node: f"torch.amax({writer.value(node.args[0])}, {writer.value(node.args[1])}, True)",
    "sym": lambda writer, node: writer.value(node.args[0]),
    "full": lambda writer, node: writer.constant(node),
    "tile_index": lambda writer, node: f"{writer.axes[node.args[0]]}.index",
    "sole": lambda writer, node: writer.value(node.args[0]),
}
