"""Whole products of matrices, as kernels write them: a tile of C for each program, ragged edges, strides of every kind.

rows, columns from the program        past the edge: masked off, or wrapped around by %
for each piece of K, or more          in one of many loops (`walks.py`); pointers that advance, offsets from the loop
    acc += A[rows, piece] @ B[piece, columns]      counter, block pointers or descriptors; or both transposed
C[rows, columns] = acc                masked

What lies around and between the elements of A and B is poison, or a page that must not be touched.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.fuzz.case import Statement
from tests.fuzz.combine import DOTS, STORED, dot_facts, epilogue
from tests.fuzz.generator import Generator
from tests.fuzz.spellings import every
from tests.fuzz.values import TYPES, Value
from tests.fuzz.walks import BEYOND, WALKS, Iterations


@dataclass(frozen=True)
class _Axis:
    """An outer axis of the product.

    Args:
        block: extent of a tile.
        size: extent of the matrix.
        text: `size` in the kernel.
        first: the first position of this program's tile, in the kernel.
        tile: name of the positions of this program's tile, which may pass the end.
        safe: an expression of positions that do not, or the same.
        mask: whether loads must mask what passes the end.
    """

    block: int
    size: int
    text: str
    first: str
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
    safe = f"({tile} % {text})" if wrapped else tile
    return _Axis(block, size, text, f"({number}) * {block}", tile, safe, not (whole or wrapped))


@dataclass(frozen=True)
class _Depth:
    """The inner axis: `text` is `size` in the kernel, `piece` positions within a piece.

    `ragged` says whether pieces may pass the end.
    """

    block: int
    size: int
    text: str
    piece: str
    ragged: bool


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
        line = max(1, inner * step + g.random.choice((0, 0, 3, 16, -inner * step % 16)))
        strides = (line, step) if straight == rows else (step, line)
        size = max(1, (lines - 1) * line + (inner - 1) * step + 1)
        before = g.random.choice((0, 0, 16, 100))
        behind = g.random.choice((0, 0, min(1 << 14, 3 * max(strides) * depth.block)))  # a page follows that stops us
        valid = (before, ((lines, line), (inner, step)))
        self.array = g.array(dtype, fill, before + size + behind, prefix="m", valid=valid)
        self.start = f"{self.array} + {before}" if before else self.array
        self.strides = tuple(str(n) if n == 1 else g.number(n) for n in strides)
        self.rows, self.name = rows, g.fresh("q")
        whole = strides[1 if rows else 0] == 1 and strides[0 if rows else 1] % 16 == 0 and before % 16 == 0
        whole = whole and self.shape[1] * TYPES[dtype][1] >= 128  # bits of a row of the block
        described = ["descriptor"] * (2 * (whole and g.params[self.array].aligned))
        self.how = g.random.choice(("offsets", "pointers", "pointers", "offsets", "block pointer", *described))
        if self.how == "pointers":
            g.add(f"{self.name} = {self._at(depth.piece)}")
        elif self.how == "block pointer":
            g.add(f"{self.name} = tl.make_block_ptr({self._described(('offsets', outer.first, '0'))}, order=(1, 0))")
        elif self.how == "descriptor":
            g.add(f"{self.name} = tl.make_tensor_descriptor({self._described()})")

    def _pair(self, outer: str, deep: str) -> str:
        """Two numbers, in the order of the axes of the tile."""
        return f"({outer}, {deep})" if self.rows else f"({deep}, {outer})"

    def _described(self, *further: tuple[str, str, str]) -> str:
        """Arguments of what describes a block of the matrix."""
        rows = (("shape", self.outer.text, self.depth.text), ("strides", *self.strides), *further)
        pairs = ", ".join(f"{name}={self._pair(outer, deep)}" for name, outer, deep in rows)
        return f"{self.start}, {pairs}, block_shape={self.shape}"

    def _at(self, deep: str) -> str:
        outer, k = self.across
        return f"{self.start} + {self.outer.safe}{outer} * {self.strides[0]} + ({deep}){k} * {self.strides[1]}"

    def load(self, number: str) -> str:
        """Read the tile of the piece `number`; gives what is multiplied."""
        g, name = self.g, self.g.fresh("x")
        if self.how == "block pointer":
            g.add(f'{name} = tl.load({self.name}, boundary_check=(0, 1), padding_option="zero")')
        elif self.how == "descriptor":
            g.add(f"{name} = {self.name}.load({self._pair(self.outer.first, f'{number} * {self.depth.block}')})")
        else:
            self._load_by_pointers(name, number)
        text = name if self.stored == self.dtype else f"{name}.to(tl.{self.dtype})"
        return self._computed(text, f"({number} * {self.depth.block} + {self.depth.piece})")

    def _load_by_pointers(self, name: str, number: str) -> None:
        g, depth, (outer, k) = self.g, self.depth, self.across
        here = self.name if self.how == "pointers" else self._at(f"{number} * {depth.block} + {depth.piece}")
        masks = [f"({self.outer.tile}{outer} < {self.outer.text})"] * self.outer.mask
        if depth.ragged or g.chance(0.3):
            left = f"{depth.piece}{k} < {depth.text} - {number} * {depth.block}"
            masks.append(f"({g.random.choice((left, f'{number} * {depth.block} + {depth.piece}{k} < {depth.text}'))})")
        whole = f"{depth.text} - {number} * {depth.block} >= {depth.block}"
        if len(masks) > self.outer.mask and g.chance(0.2):  # positions of K are masked where they pass the end, alone
            g.add(f"{name} = tl.zeros({self.shape}, tl.{self.stored})")
            branch = g.add(f"if {whole}:")
            branch.body.append(Statement(f"{name} = {_load(g, here, masks[: self.outer.mask])}"))
            branch.orelse.append(Statement(f"{name} = {_load(g, here, masks)}"))
        else:
            g.add(f"{name} = {_load(g, here, masks)}")

    def _computed(self, name: str, deep: str) -> str:
        """What is multiplied: sometimes the loaded elements but for some positions of K."""
        return name if not self.g.chance(0.25) else f"tl.where({deep}{self.across[1]} % 3 != 1, {name}, 0)"

    def advance(self) -> None:
        """Move on to the next piece."""
        if self.how == "pointers":
            self.g.add(f"{self.name} += {self.depth.block} * {self.strides[1]}")
        elif self.how == "block pointer":
            self.g.add(f"{self.name} = tl.advance({self.name}, {self._pair('0', str(self.depth.block))})")


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
    walk, extra = g.random.choice(tuple(WALKS)), g.random.choice((0, 0, 1, 3))
    ragged = bool(size % block or extra or walk in BEYOND)
    depth = _Depth(block, size, g.number(size), g.fresh("d"), ragged)
    g.add(f"{depth.piece} = tl.arange(0, {block})")
    fill = "ints" if dtype == "int8" else g.random.choice(("ints", "quarters", "reals"))
    a = _Operand(g, m, depth, rows=True, dtype=dtype, fill=fill)
    b = _Operand(g, n, depth, rows=False, dtype=dtype, fill=fill)
    sums = [g.fresh("acc") for _ in range(2 if g.chance(0.2) else 1)]
    turned = g.chance(0.2)
    for acc in sums:
        g.add(f"{acc} = tl.zeros({(n.block, m.block) if turned else (m.block, n.block)}, tl.{out})")

    def multiply(x: str, y: str) -> None:
        for acc in sums:
            g.add(g.random.choice(_TURNED if turned else _ADDED).format(acc=acc, x=x, y=y))

    def advance() -> None:
        a.advance()
        b.advance()

    count, text = -(-size // block) + extra, f"tl.cdiv({depth.text}, {block}) + {extra}"
    WALKS[walk](g, Iterations(count, text, lambda number: (a.load(number), b.load(number)), multiply, advance))
    g.spelled |= {walk, a.how, b.how} | ({"turned over"} if turned else set())
    mag, grain = {"ints": (8.0, 1.0), "quarters": (4.0, 0.25), "reals": (4.0, None)}[fill]
    fake = Value("", (), dtype, mag=mag, grain=grain)
    known = dot_facts(fake, fake, None, depth.size, out) if dtype != "int8" else {}
    for acc in sums:
        if turned:
            g.add(f"{acc} = {g.random.choice((f'{acc}.T', f'tl.trans({acc})'))}")
        _written(g, Value(acc, (m.block, n.block), out, **known), m, n)  # type: ignore[arg-type]


SPELLINGS = frozenset((*WALKS, "offsets", "pointers", "block pointer", "descriptor", "turned over"))
_ADDED = (
    "{acc} += tl.dot({x}, {y})",
    "{acc} = tl.dot({x}, {y}, {acc})",
    "{acc} += tl.trans(tl.dot(tl.trans({y}), tl.trans({x})))",
)
_TURNED = (
    "{acc} += tl.dot(tl.trans({y}), tl.trans({x}))",
    "{acc} = tl.dot(tl.trans({y}), tl.trans({x}), {acc})",
    "{acc} += tl.trans(tl.dot({x}, {y}))",
)


def _written(g: Generator, result: Value, m: _Axis, n: _Axis) -> None:
    """Store a tile of a product, and sometimes do something else with it before."""
    g.scopes[-1].append(result)
    if g.chance(0.3):
        epilogue(g, result)
    target = g.array(result.dtype, "sentinel", m.size * n.size, prefix="out", tolerance=result.err)
    masks = [f"({axis.tile}{at} < {axis.text})" for axis, at in ((m, "[:, None]"), (n, "[None, :]"))]
    place = f"{m.tile}[:, None] * {n.text} + {n.tile}[None, :]"
    g.add(f"tl.store({target} + {place}, {result.name}, mask={' & '.join(masks)})")
