"""Random kernels as text: loops over rows, tiles, single elements or rows of different lengths, with inner loops,
branches, jumps, carried trees, moved accesses, parts that are assigned, merged dimensions, random numbers, accumulators
of registered blocks, subscripts beyond tensors, constants made in bodies, extents of nothing; sizes of tiles that the
kernel gives.

Values are tame (every expression ends in something bounded) and float32, so results can be compared closely.
"""

from __future__ import annotations

import linecache
import random
import re
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from tests.hl.fuzz.kinds import KINDS
from tilewright import hl

_UNARY = (
    "torch.tanh({})",
    "torch.sigmoid({})",
    "torch.sin({})",
    "-{}",
    "{}.abs()",
    "torch.exp(-{}.abs())",
    "{}.relu()",
)
_BINARY = (
    "({} + {})",
    "({} - {})",
    "({} * {})",
    "torch.maximum({}, {})",
    "torch.minimum({}, {})",
    "torch.where({} > {}, 0.5, 0.25)",
    "({} / ({}.abs() + 1.0))",
)
_ROW = ("torch.softmax({}, -1)", "({0} - {0}.mean(-1, keepdim=True))", "{}.cumsum(-1).tanh()")
_REDUCE = (
    "{}.amax(-1)",
    "{}.amin(-1)",
    "{}.mean(-1)",
    "torch.tanh({}.sum(-1))",
    "torch.logsumexp({}, -1)",
    "{}.var(-1)",
)


@dataclass(frozen=True)
class Program:
    """A random kernel.

    Args:
        text: its source.
        kernel: the kernel.
        args: arguments; it writes into the last two, [m, n] and [m].
    """

    text: str
    kernel: Any
    args: tuple[Any, ...]

    def outputs(self, run: Any) -> tuple[Any, Any]:
        """What `run` writes."""
        *inputs, out, sums = self.args
        made = torch.zeros_like(out), torch.zeros_like(sums)
        run(*inputs, *made)
        return made


class Writer:
    """Writes the text of a kernel.

    Args:
        rng: of all choices.
        columns: of `x`; 0 where that is not known when the kernel is compiled.
    """

    def __init__(self, rng: random.Random, columns: int) -> None:
        self.rng, self.columns = rng, columns
        self.lines: list[str] = []
        self.names: list[str] = []
        self.count = 0

    def expression(self, atoms: list[str], depth: int) -> str:
        """An expression over some atoms, all of one shape or scalars of the host."""
        if depth == 0 or self.rng.random() < 0.2:
            return self.rng.choice(atoms)
        if self.rng.random() < 0.4:
            return self.rng.choice(_UNARY).format(self.expression(atoms, depth - 1))
        return self.rng.choice(_BINARY).format(self.expression(atoms, depth - 1), self.expression(atoms, depth - 1))

    def condition(self, numbers: list[str], depth: int = 2) -> str:
        """A truth about numbers of one element: comparisons, chains of them, `and`, `or`, `not`, choices."""
        rng = self.rng
        kind = rng.randint(0, 8) if depth else rng.randint(0, 2)
        one, other = rng.choice(numbers), rng.choice([*numbers, "1", "2", "3"])
        if kind < 2:
            return f"{one} {rng.choice(('>', '<', '>=', '!='))} {rng.choice((other, '1', '2'))}"
        if kind == 2:
            return rng.choice((f"0 <= {one} < 3", f"{one} in (0, 2, 4)", f"1 < {one} <= {other}", f"not {one}", one))
        left, right = (self.condition(numbers, depth - 1) for _ in range(2))
        if kind < 7:
            return f"({left} {rng.choice(('and', 'or'))} {right})"
        return f"not ({left})" if kind == 7 else f"({left} if {right} else {one} > 1)"

    def assign(self, indent: int, expression: str) -> str:
        """Write an assignment to a new variable."""
        self.count += 1
        name = f"v{self.count}"
        self.line(indent, f"{name} = {expression}")
        return name

    def line(self, indent: int, text: str) -> None:
        self.lines.append("    " * indent + text)

    # --- kinds of kernels ----------------------------------------------------------------------------

    def rows(self) -> None:
        """Whole rows in tiles of rows."""
        rng = self.rng
        self.line(1, "for rows in hl.tile(x.size(0)):")
        atoms = ["x[rows, :]", "y[rows, :]", "w[None, :]", "u[rows][:, None].expand(x[rows, :].shape)"]
        values = [self.assign(2, f"{self.expression(atoms, 2)} + 0 * x[rows, :]") for _ in range(rng.randint(1, 3))]
        if self.columns > 3 and rng.random() < 0.3:
            self.part(values[0])
        values.append(self.assign(2, rng.choice(_ROW).format(rng.choice(values))) if rng.random() < 0.6 else values[0])
        if rng.random() < 0.4:
            self.branch(2, self.condition(["rows.begin", "k", "x.size(0)"]), values)
        self.line(2, f"sums[rows] = {rng.choice(_REDUCE).format(self._wide(values))}")
        self.line(2, f"out[rows, :] = torch.tanh({self.expression(values, 2)}) + 0 * x[rows, :]")

    def tiles(self) -> None:
        """Tiles of both dimensions."""
        self.line(1, "for rows, columns in hl.tile(x.shape):")
        atoms = ["x[rows, columns]", "y[rows, columns]", "w[columns][None, :]", "u[rows][:, None]"]
        atoms.append("x[rows, columns + 1]" if self.rng.random() < 0.5 else "y[rows - 1, columns]")
        values = [self.assign(2, f"{self.expression(atoms, 2)} + 0 * x[rows, columns]") for _ in range(2)]
        if self.rng.random() < 0.4:
            self.branch(2, self.condition(["rows.begin", "k", "x.size(0)"]), values)
        if self.rng.random() < 0.3:  # a number of the tile: the reference has the same tiles
            merged = self.rng.choice(("{}", "{}.transpose(0, 1)")).format(f"({values[0]} + 1)")
            self.line(2, f"{values[1]} = {values[1]} + torch.tanh({merged}.reshape(-1).amax(-1))")
        if self.rng.random() < 0.3:
            self.line(2, f"{values[0]} = {values[0]} + hl.rand([rows, columns], k)")
        self.line(2, f"out[rows, columns] = torch.tanh({self.expression(values, 2)})")

    def elements(self) -> None:
        """One element after the other, in loops that are left and passes that are cut short."""
        self.line(1, "for row in hl.grid(x.size(0)):")
        self.line(2, "total, count = 0.0, 0")
        self.line(2, "for column in hl.grid(x.size(1)):")
        atoms = ["x[row, column]", "y[row, column]", "w[column]", "u[row]"]
        for jump in self.rng.sample(("break", "continue", "break"), self.rng.randint(1, 2)):
            numbers = [self.expression(atoms, 1), "row", "column", "k", "count", "x.size(1)"]
            self.line(3, f"if {self.condition(numbers)}:")
            self.line(4, "count += 1")
            self.line(4, jump)
            added = f"torch.tanh({self.expression(atoms, 1)})"
            if self.rng.random() < 0.5:
                other = self.rng.choice((f"torch.tanh({self.expression(atoms, 1)})", "0.5", "3"))
                added = f"({added} if {self.condition(numbers)} else {other})"
            self.line(3, f"total = total + {added}")
        self.line(2, "sums[row] = total + count")

    def lengths(self) -> None:
        """Rows of different lengths."""
        rng = self.rng
        self.line(1, "for rows in hl.tile(x.size(0)):")
        self.line(2, "lengths = (u[rows].abs() * 100).to(torch.int32) % (x.size(1) + 1)")
        self.line(2, "total, most = hl.zeros([rows]), hl.full([rows], -3.0)")
        self.line(2, "for columns in hl.jagged_tile(lengths):")
        atoms = ["x[rows, columns]", "y[rows, columns]", "w[columns][None, :]", "u[rows][:, None]"]
        value = self.assign(3, f"torch.tanh({self.expression(atoms, 2)}) + 1 + 0 * x[rows, columns]")
        self.line(3, f"total = total + {value}.sum(-1)")
        self.line(3, f"most = torch.maximum(most, {value}.amax(-1))")
        if rng.random() < 0.5:
            self.line(3, f"out[rows, columns] = {value} * 2")
        self.line(2, "sums[rows] = torch.where(lengths > 0, most, 0) + torch.tanh(total * 0.1)")

    def part(self, name: str) -> None:
        """A part of a tile of whole rows that is assigned."""
        first, last = sorted(self.rng.sample(range(self.columns), 2))
        choice = self.rng.randint(0, 2)
        if choice == 0:
            self.line(2, f"{name}[:, {first}] = u[rows]")
        elif choice == 1:
            self.line(2, f"{name}[:, {first}:{last}] += y[rows, {first}:{last}]")
        else:
            self.line(2, f"{name}[{name} > 0.5] = 0.25")

    def inner(self) -> None:
        """Tiles of rows, and an inner loop over columns that carries something."""
        rng = self.rng
        self.line(1, "for rows in hl.tile(x.size(0)):")
        self.line(2, 'state = {"sum": hl.zeros([rows]), "list": [hl.full([rows], -3.0), u[rows]]}')
        self.line(2, "for columns in hl.tile(x.size(1)):")
        atoms = ["x[rows, columns]", "y[rows, columns]", "w[columns][None, :]"]
        value = self.assign(3, f"torch.tanh({self.expression(atoms, 2)}) + 0 * x[rows, columns]")
        self.line(3, f'state["sum"] = state["sum"] + {value}.sum(-1)')
        self.line(3, f'state["list"][0] = torch.maximum(state["list"][0], {value}.amax(-1))')
        if rng.random() < 0.5:
            self.line(3, f'state["list"][1].add_(({value} * {rng.choice(atoms)}).sum(-1))')
        if rng.random() < 0.5:
            self.line(2, "for columns in hl.tile(x.size(1)):")
            self.line(3, f'out[rows, columns] = {self.expression(atoms, 1)} + torch.tanh(state["sum"])[:, None]')
        self.line(2, 'sums[rows] = torch.tanh(state["sum"] * 0.1) + state["list"][0] + torch.tanh(state["list"][1])')

    def blocks(self) -> None:
        """Accumulators as large as a registered block, which is seldom a divisor."""
        rng = self.rng
        self.line(1, "block = hl.register_block_size(2, 32)")
        self.line(1, "for rows in hl.tile(x.size(0)):")
        self.line(2, 'most, state = hl.full([rows, block], -3.0), {"sum": hl.zeros([rows, block])}')
        self.line(2, "place, seen = hl.zeros([rows, block], dtype=torch.int32), hl.zeros([rows])")
        self.line(2, "for columns in hl.tile(x.size(1), block_size=block):")
        atoms = ["x[rows, columns]", "y[rows, columns]", "w[columns][None, :]"]
        value = self.assign(3, f"torch.tanh({self.expression(atoms, 2)}) + 0 * x[rows, columns]")
        self.line(3, f"place = torch.where({value} > most, columns.index[None, :], place)")
        self.line(
            3, rng.choice(("most = torch.maximum(most, {})", "most = torch.where({0} > most, {0}, most)")).format(value)
        )
        added = rng.choice(("{}", "torch.exp({})", "{} * 2 + 1"))
        self.line(3, rng.choice(('state["sum"] = state["sum"] + ', 'state["sum"] += ')) + added.format(value))
        if rng.random() < 0.5:
            self.line(3, rng.choice((f"seen = seen + ({value} * most).sum(-1)", 'seen = seen + state["sum"].mean(-1)')))
        if rng.random() < 0.4:
            self.line(3, f"if {self.condition(['columns.begin', 'k', 'x.size(1)'])}:")
            self.line(4, rng.choice((f"most = torch.maximum(most, -{value})", "most = most * 0.5")))
        if rng.random() < 0.5:
            self.line(2, "for columns in hl.tile(x.size(1), block_size=block):")
            self.line(
                3, f"out[rows, columns] = {self.expression(atoms, 1)} + torch.tanh(most.amax(-1) + seen)[:, None]"
            )
        total = 'torch.tanh(state["sum"].sum(-1) * 0.05) + most.amax(-1) + torch.tanh(seen * 0.1)'
        self.line(2, f"sums[rows] = {total} + 0.01 * (place * (most > 0.2)).sum(-1)")

    def beyond(self) -> None:
        """Subscripts that are no tiles, many of them beyond the tensors; stores of constants."""
        rng = self.rng
        self.line(1, f"few, one = w[: {rng.randint(1, 3)}], u[:1]")
        moves = ("{0}", "{0} + 1", "{0} - 1", "{0} * 2 - 3", "{0} // 2", "{0} % 3", "({0} + 2) % 5 - 1")

        def at(name: str) -> str:
            return rng.choice(moves).format(name)

        if rng.random() < 0.5:
            self.line(1, "for row in hl.grid(x.size(0)):")
            self.line(2, "for columns in hl.tile(x.size(1)):")
            atoms = [f"x[{at('row')}, columns]", f"y[row, {at('columns.index')}]", f"few[{at('columns.index')}]"]
            atoms += [
                f"u[{at('row')}]",
                f"one[{at('row')}]",
                f"x[{at('row')}, {at('columns.index')}]",
                f"few[{at('row')}]",
            ]
            value = self.assign(3, f"torch.tanh({self.expression(atoms, 2)}) + 0 * x[row, columns]")
            self.line(
                3,
                f"out[row, {at('columns.index')}] = {rng.choice((value, '0.5'))}"
                if rng.random() < 0.3
                else f"out[row, columns] = {value}",
            )
            self.line(2, f"sums[row] = {rng.choice(('1', '0.25'))}")
        else:
            self.line(1, "for rows, columns in hl.tile(x.shape):")
            atoms = [
                f"x[{at('rows.index')}, columns]",
                f"few[{at('columns.index')}][None, :]",
                f"one[{at('rows.index')}][:, None]",
            ]
            atoms += [
                f"u[{at('rows.begin')}]",
                f"few[{at('columns.begin')}]",
                f"x[rows, {at('columns.index')}]",
                "few[0]",
            ]
            atoms += [f"y[{at('rows.index[:, None]')}, {at('columns.index[None, :]')}]"]
            value = self.assign(2, f"torch.tanh({self.expression(atoms, 2)}) + 0 * x[rows, columns]")
            self.line(2, f"out[rows, columns] = {rng.choice((value, '1.5'))}")

    def nothing(self) -> None:
        """Extents without elements beside others, and a constant made in the body."""
        rng = self.rng
        self.line(1, f"none, flag = x[:, :0], hl.constexpr({rng.choice(('k > 2', 'None', 'True', '0'))})")
        self.line(1, "for rows in hl.tile(x.size(0)):")
        self.line(2, "empty = torch.tanh(none[rows, :] * 2) + hl.zeros([rows, 0])")
        reductions = ["{}.sum(-1)", "{}.prod(-1)", "(w[None, :0] + {}).sum(-1)"]
        reductions += ["torch.cat([{}, y[rows, :]], 1).sum(-1)"] if self.columns else []
        self.line(2, f"total = {rng.choice(reductions).format('empty')} + u[rows]")
        self.line(2, "for columns in hl.tile(none.size(1)):")
        self.line(3, "total = total + none[rows, columns].sum(-1)")
        self.line(2, "sums[rows] = torch.tanh(total) if not flag else total * 0.5")
        self.line(2, rng.choice(("out[rows, :] = 2", "out[rows, 0] = 0.5", "out[rows, :0] = empty")))

    def branch(self, indent: int, condition: str, values: list[str]) -> None:
        """A branch on a number of the host that changes one of the values."""
        name = self.rng.choice(values)
        self.line(indent, f"if {condition}:")
        self.line(indent + 1, f"{name} = {self.expression(values, 1)} + {name} * 0.5")
        if self.rng.random() < 0.5:
            self.line(indent, "else:")
            self.line(indent + 1, f"{name} = {name} * 0.25")

    def _wide(self, values: list[str]) -> str:
        return f"(torch.tanh({self.expression(values, 1)}) + 0 * x[rows, :])"


def program(seed: int) -> Program:
    """The kernel with a number, and arguments for it."""
    rng = random.Random(seed)
    m, n = rng.randint(1, 14), rng.choice((rng.randint(2, 20), 32, rng.randint(17, 40)))
    n += n == 33  # every block to 32 would leave one column, which PyTorch broadcasts against the block
    static = rng.random() < 0.7
    writer = Writer(rng, n if static else 0)
    writer.line(0, f"def kernel{seed}(x, y, w, u, k, out, sums):")
    for pair in ("y.size(0)", "u.size(0)", "out.size(0)", "sums.size(0)"):
        writer.line(1, f"assert x.size(0) == {pair}")
    for pair in ("y.size(1)", "w.size(0)", "out.size(1)"):
        writer.line(1, f"assert x.size(1) == {pair}")
    kinds = writer.rows, writer.rows, writer.tiles, writer.tiles, writer.inner, writer.elements, writer.lengths
    newer = writer.blocks, writer.blocks, writer.beyond, writer.beyond, writer.nothing
    wider = tuple(partial(kind, writer) for kind in KINDS for _ in range(2))
    rng.choice(kinds + newer + wider)()
    turned, k = rng.random() < 0.25, rng.randint(0, 5)
    lines = given_sizes(writer.lines, random.Random(f"sizes {seed}"))
    return made_of("\n".join(lines) + "\n", f"kernel{seed}", seed, (m, n), k, static, turned)


def given_sizes(lines: list[str], rng: random.Random) -> list[str]:
    """The lines of a kernel, some of whose tiles have sizes that the text gives: numbers, mostly no divisors.

    Rows of different lengths keep theirs: the reference takes them one by one.
    """
    if any("hl.jagged_tile" in line for line in lines):
        return lines

    def sized(found: re.Match[str]) -> str:
        if rng.random() < 0.8:
            return found[0]
        one, other = (rng.choice((1, 2, 3, 4, 5, 8, 16, 32)) for _ in range(2))
        size = rng.choice((f"[{one}, {other}]", f"[None, {other}]", f"{one}")) if found[1] == "x.shape" else one
        return f"hl.tile({found[1]}, block_size={size}):"

    return [re.sub(r"hl\.tile\((x\.shape|x\.size\(\d\))\):", sized, line) for line in lines]


def made_of(text: str, name: str, seed: int, shape: tuple[int, int], k: int, static: bool, turned: bool) -> Program:
    """A kernel of some text, and arguments for it, `y` transposed in memory where it is turned."""
    file = f"<{name} {seed}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    names: dict[str, Any] = {"torch": torch, "hl": hl}
    exec(compile(text, file, "exec"), names)
    noise = torch.Generator().manual_seed(seed)
    m, n = shape
    inputs = [torch.randn(size, generator=noise) for size in ((m, n), (m, n), (n,), (m,))]
    if turned:
        inputs[1] = torch.randn(n, m, generator=noise).t()
    return Program(text, hl.kernel(names[name], static_shapes=static), (*inputs, k, torch.zeros(m, n), torch.zeros(m)))
