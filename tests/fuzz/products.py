"""Whole products of matrices, as kernels write them: a tile of C for each program, ragged edges, strides of every kind.

rows, columns from the program        past the edge: masked off, or wrapped around by %
for each piece of K, or more          pointers that advance, or offsets from the loop counter
    acc += A[rows, piece] @ B[piece, columns]
C[rows, columns] = acc                masked

What lies around and between the elements of A and B is poison, or a page that must not be touched.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.fuzz.case import Statement
from tests.fuzz.combine import DOTS, STORED, dot_facts, epilogue
from tests.fuzz.generator import Generator
from tests.fuzz.spellings import every
from tests.fuzz.values import Value


@dataclass(frozen=True)
class _Axis:
    """An outer axis of the product.

    Args:
        block: extent of a tile.
        size: extent of the matrix.
        text: `size` in the kernel.
        tile: name of the positions of this program's tile, which may pass the end.
        safe: an expression of positions that do not, or the same.
        mask: whether loads must mask what passes the end.
    """

    block: int
    size: int
    text: str
    tile: str
    safe: str
    mask: bool


def _axis(g: Generator, number: str, tiles: int, blocks: tuple[int, ...]) -> _Axis:
    """Positions of the tile `number` of `tiles`."""
    block = g.random.choice(blocks)
    size = max(1, block * tiles - g.random.choice((0, 0, 1, block // 2, block + 1)))
    text, tile = g.number(size), g.fresh("r")
    g.add(f"{tile} = ({number}) * {block} + tl.arange(0, {block})")
    whole = size == block * tiles
    wrapped = not whole and g.chance(0.4)
    return _Axis(block, size, text, tile, f"({tile} % {text})" if wrapped else tile, not (whole or wrapped))


@dataclass(frozen=True)
class _Depth:
    """The inner axis: `text` is `size` in the kernel, `piece` positions within a piece, `name` its loop counter.

    `extra` is the number of pieces that lie past the end.
    """

    block: int
    size: int
    text: str
    piece: str
    name: str
    extra: int


class _Operand:
    """A matrix in memory, and the pointers that a program reads it through.

    Args:
        g: the kernel.
        outer: its axis that is not K.
        depth: the axis K.
        rows: whether `outer` runs along the rows of the tile (A), or along its columns (B).
        dtype, fill: of the elements.
    """

    def __init__(self, g: Generator, outer: _Axis, depth: _Depth, *, rows: bool, dtype: str, fill: str) -> None:
        self.g, self.outer, self.depth, self.dtype = g, outer, depth, dtype
        if fill in ("ints", "quarters") and dtype != "int8" and g.chance(0.3):
            dtype = g.random.choice(STORED)
        self.stored = dtype
        self.shape = (outer.block, depth.block) if rows else (depth.block, outer.block)
        self.across = ("[:, None]", "[None, :]") if rows else ("[None, :]", "[:, None]")  # of outer, of K
        straight = g.chance(0.6)  # unit stride along the columns of the tile
        inner, lines = (depth.size, outer.size) if straight == rows else (outer.size, depth.size)
        step = g.random.choice((1, 1, 1, 2))
        line = max(1, inner * step + g.random.choice((0, 0, 3, 16)))
        strides = (line, step) if straight == rows else (step, line)
        size = max(1, (lines - 1) * line + (inner - 1) * step + 1)
        before = g.random.choice((0, 0, 16, 100))
        behind = g.random.choice((0, 0, min(1 << 14, 3 * max(strides) * depth.block)))  # a page follows that stops us
        valid = (before, ((lines, line), (inner, step)))
        self.array = g.array(dtype, fill, before + size + behind, prefix="m", valid=valid)
        self.start = f"{self.array} + {before}" if before else self.array
        self.strides = tuple(str(n) if n == 1 else g.number(n) for n in strides)
        self.advances = g.chance(0.5)
        self.pointers = g.fresh("q")
        if self.advances:
            g.add(f"{self.pointers} = {self._at(depth.piece)}")

    def _at(self, deep: str) -> str:
        outer, k = self.across
        return f"{self.start} + {self.outer.safe}{outer} * {self.strides[0]} + ({deep}){k} * {self.strides[1]}"

    def load(self) -> str:
        """Read the tile of this turn; gives its name."""
        g, depth, (outer, k) = self.g, self.depth, self.across
        here = self.pointers if self.advances else self._at(f"{depth.name} * {depth.block} + {depth.piece}")
        masks = [f"({self.outer.tile}{outer} < {self.outer.text})"] * self.outer.mask
        if depth.size % depth.block or depth.extra or g.chance(0.3):
            left = f"{depth.piece}{k} < {depth.text} - {depth.name} * {depth.block}"
            masks.append(
                f"({g.random.choice((left, f'{depth.name} * {depth.block} + {depth.piece}{k} < {depth.text}'))})"
            )
        name = g.fresh("x")
        whole = f"{depth.text} - {depth.name} * {depth.block} >= {depth.block}"
        if len(masks) > self.outer.mask and g.chance(0.2):  # positions of K are masked where they pass the end, alone
            g.add(f"{name} = tl.zeros({self.shape}, tl.{self.stored})")
            branch = g.add(f"if {whole}:")
            branch.body.append(Statement(f"{name} = {_load(g, here, masks[: self.outer.mask])}"))
            branch.orelse.append(Statement(f"{name} = {_load(g, here, masks)}"))
        else:
            g.add(f"{name} = {_load(g, here, masks)}")
        return self._computed(name if self.stored == self.dtype else f"{name}.to(tl.{self.dtype})", k)

    def _computed(self, name: str, k: str) -> str:
        """What is multiplied: sometimes the loaded elements but for some positions of K."""
        if not self.g.chance(0.25):
            return name
        deep = f"({self.depth.name} * {self.depth.block} + {self.depth.piece})"
        return f"tl.where({deep}{k} % 3 != 1, {name}, 0)"

    def advance(self) -> None:
        if self.advances:
            self.g.add(f"{self.pointers} += {self.depth.block} * {self.strides[1]}")


def _load(g: Generator, place: str, masks: list[str]) -> str:
    """A load that reads zero where one of the masks does not hold."""
    tail = f", mask={every(g, masks)}, other=0" if masks else ""
    return f"tl.load({place}{tail})"


def product(g: Generator) -> None:
    """A product of two matrices over the whole grid."""
    dtype, out = g.random.choice(DOTS)
    across = g.random.choice([n for n in (1, 2, 3) if n <= g.programs])
    blocks = (8, 16, 16, 32, 64)
    places = [(f"{g.program} % {across}", across), (f"{g.program} // {across}", -(-g.programs // across))]
    g.random.shuffle(places)  # rows first or columns first
    m, n = (_axis(g, *place, blocks) for place in places)
    block = g.random.choice((16, 32, 64))
    size = max(1, block * g.random.randint(0, 5) + g.random.choice((0, 0, 1, 3, block // 2)))
    depth = _Depth(block, size, g.number(size), g.fresh("d"), g.fresh("k"), g.random.choice((0, 0, 1, 3)))
    g.add(f"{depth.piece} = tl.arange(0, {block})")
    fill = "ints" if dtype == "int8" else g.random.choice(("ints", "quarters", "reals"))
    a = _Operand(g, m, depth, rows=True, dtype=dtype, fill=fill)
    b = _Operand(g, n, depth, rows=False, dtype=dtype, fill=fill)
    sums = [g.fresh("acc") for _ in range(2 if g.chance(0.2) else 1)]
    for acc in sums:
        g.add(f"{acc} = tl.zeros(({m.block}, {n.block}), tl.{out})")
    loop = g.add(f"for {depth.name} in range(0, tl.cdiv({depth.text}, {block}) + {depth.extra}):")
    with g.block(loop.body, loop=True):
        x, y = a.load(), b.load()
        for acc in sums:
            g.add(g.random.choice((f"{acc} += tl.dot({x}, {y})", f"{acc} = tl.dot({x}, {y}, {acc})")))
        a.advance()
        b.advance()
    mag, grain = {"ints": (8.0, 1.0), "quarters": (4.0, 0.25), "reals": (4.0, None)}[fill]
    fake = Value("", (), dtype, mag=mag, grain=grain)
    known = dot_facts(fake, fake, None, depth.size, out) if dtype != "int8" else {}
    for acc in sums:
        _written(g, Value(acc, (m.block, n.block), out, **known), m, n)  # type: ignore[arg-type]


def _written(g: Generator, result: Value, m: _Axis, n: _Axis) -> None:
    """Store a tile of a product, and sometimes do something else with it before."""
    g.scopes[-1].append(result)
    if g.chance(0.3):
        epilogue(g, result)
    target = g.array(result.dtype, "sentinel", m.size * n.size, prefix="out", tolerance=result.err)
    masks = [f"({axis.tile}{at} < {axis.text})" for axis, at in ((m, "[:, None]"), (n, "[None, :]"))]
    place = f"{m.tile}[:, None] * {n.text} + {n.tile}[None, :]"
    g.add(f"tl.store({target} + {place}, {result.name}, mask={' & '.join(masks)})")
