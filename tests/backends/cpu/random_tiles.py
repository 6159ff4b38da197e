"""Random kernels of tile operations, as text: shapes, reductions, loops, branches, memory in all orders.

Every kernel has four pointers to f32 and i32 data and stores what it computed, so that the reference and the CPU can
be compared. Comparisons that choose are made on integers only: rounding must not change what is chosen.
"""

from __future__ import annotations

import math
import random

REGION = 1 << 13  # elements of each array that belong to one program
Shape = tuple[int, ...]
_SHAPES: tuple[Shape, ...] = (
    (16,),
    (64,),
    (128,),
    (8, 16),
    (16, 8),
    (4, 32),
    (8, 1),
    (1, 16),
    (2, 4, 8),
    (32, 2),
    (16, 16),
)


def type_text(shape: Shape, elem: str) -> str:
    """MLIR text of a tile type."""
    return f"tensor<{'x'.join(map(str, shape))}x{elem}>" if shape else elem


class Writer:
    """Writes one kernel.

    Args:
        seed: of the random choices.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.count = 0
        self.tiles: list[tuple[str, Shape, str]] = []
        self.scalars: list[tuple[str, str]] = []
        self.lines: list[str] = []

    # -- text ----------------------------------------------------------------------------------------

    def emit(self, text: str) -> str:
        self.count += 1
        self.lines.append(f"%{self.count} = {text}")
        return f"%{self.count}"

    def add(self, shape: Shape, elem: str, text: str) -> str:
        name = self.emit(text)
        self.tiles.append((name, shape, elem))
        return name

    def pick(self, elem: str | None = None, shape: Shape | None = None) -> tuple[str, Shape, str]:
        found = [t for t in self.tiles if elem in (None, t[2]) and shape in (None, t[1])]
        if not found:
            shape = shape or self.random.choice(_SHAPES)
            self.make(shape, elem or "f32")
            return self.tiles[-1]
        return self.random.choice(found[-6:])

    def make(self, shape: Shape, elem: str) -> str:
        """A tile out of nothing: a load or a constant."""
        if self.random.random() < 0.8:
            return self.load(shape, elem)
        value = f"{self.random.uniform(-2, 2):.6e}" if elem == "f32" else str(self.random.randint(-9, 9))
        return self.add(shape, elem, f"arith.constant dense<{value}> : {type_text(shape, elem)}")

    # -- memory ----------------------------------------------------------------------------------------

    def offsets(self, shape: Shape) -> str:
        """A tile of distinct offsets within the region, row-major or transposed, shifted and strided."""
        rank = len(shape)
        dims = list(range(rank))
        self.random.shuffle(dims)
        stride = self.random.choice((1, 1, 1, 2, 3))
        total = ""
        for dim in reversed(dims):
            n = shape[dim]
            r = self.emit(f"tt.make_range {{end = {n} : i32, start = 0 : i32}} : tensor<{n}xi32>")
            have: Shape = (n,)
            for axis in range(rank):
                if axis != dim:
                    wide = (*have[:axis], 1, *have[axis:]) if axis < dim else (*have, 1)
                    at = axis if axis < dim else len(have)
                    r = self.emit(
                        f"tt.expand_dims {r} {{axis = {at} : i32}} : {type_text(have, 'i32')} -> {type_text(wide, 'i32')}"
                    )
                    have = wide
            c = self.emit(f"arith.constant dense<{stride}> : {type_text(have, 'i32')}")
            r = self.emit(f"arith.muli {r}, {c} : {type_text(have, 'i32')}")
            if have != shape:
                r = self.emit(f"tt.broadcast {r} : {type_text(have, 'i32')} -> {type_text(shape, 'i32')}")
            total = r if not total else self.emit(f"arith.addi {total}, {r} : {type_text(shape, 'i32')}")
            stride *= n
        shift = self.random.choice((0, 0, 1, 5, 64))
        c = self.emit(f"arith.constant dense<{shift}> : {type_text(shape, 'i32')}")
        return self.emit(f"arith.addi {total}, {c} : {type_text(shape, 'i32')}")

    def pointers(self, shape: Shape, elem: str, array: str | None = None) -> str:
        array = array or self.random.choice(("%p", "%q") if elem == "f32" else ("%u", "%v"))
        p = f"!tt.ptr<{elem}>"
        base = self.emit(f"tt.addptr {array}, %start : {p}, i32")
        s = self.emit(f"tt.splat {base} : {p} -> {type_text(shape, p)}")
        return self.emit(f"tt.addptr {s}, {self.offsets(shape)} : {type_text(shape, p)}, {type_text(shape, 'i32')}")

    def mask(self, shape: Shape) -> str:
        """A mask: a comparison of offsets with a number, or of data."""
        if self.random.random() < 0.7:
            a = self.offsets(shape)
            s = self.emit(f"tt.splat %n : i32 -> {type_text(shape, 'i32')}")
            return self.emit(
                f"arith.cmpi {self.random.choice(('slt', 'sle', 'sgt'))}, {a}, {s} : {type_text(shape, 'i32')}"
            )
        a, _, _ = self.pick("i32", shape)
        b, _, _ = self.pick("i32", shape)
        return self.emit(f"arith.cmpi {self.random.choice(('slt', 'eq', 'ne'))}, {a}, {b} : {type_text(shape, 'i32')}")

    def load(self, shape: Shape, elem: str) -> str:
        p = self.pointers(shape, elem)
        t = type_text(shape, f"!tt.ptr<{elem}>")
        if self.random.random() < 0.5:
            return self.add(shape, elem, f"tt.load {p} : {t}")
        m = self.mask(shape)
        zero = "1.500000e+00" if elem == "f32" else "7"
        other = self.emit(f"arith.constant dense<{zero}> : {type_text(shape, elem)}")
        return self.add(shape, elem, f"tt.load {p}, {m}, {other} : {t}")

    def store(self, value: str, shape: Shape, elem: str) -> None:
        p = self.pointers(shape, elem)
        t = type_text(shape, f"!tt.ptr<{elem}>")
        mask = f", {self.mask(shape)}" if self.random.random() < 0.4 else ""
        self.lines.append(f"tt.store {p}, {value}{mask} : {t}")

    # -- operations --------------------------------------------------------------------------------------

    def elementwise(self) -> None:
        elem = self.random.choice(("f32", "f32", "i32"))
        a, shape, _ = self.pick(elem)
        b, _, _ = self.pick(elem, shape)
        t = type_text(shape, elem)
        if elem == "i32":
            self.add(
                shape, elem, f"arith.{self.random.choice(('addi', 'subi', 'xori', 'minsi', 'muli'))} {a}, {b} : {t}"
            )
            return
        kind = self.random.random()
        if kind < 0.2:
            half = self.emit(f"arith.constant dense<5.000000e-01> : {t}")
            self.add(shape, elem, f"arith.mulf {a}, {half} : {t}")
        elif kind < 0.35:
            m = self.mask(shape)
            self.add(shape, elem, f"arith.select {m}, {a}, {b} : {type_text(shape, 'i1')}, {t}")
        elif kind < 0.45:
            bound = self.emit(f"arith.constant dense<3.000000e+00> : {t}")
            low = self.emit(f"arith.minnumf {a}, {bound} : {t}")
            self.add(shape, elem, f"math.exp {low} : {t}")
        else:
            self.add(shape, elem, f"arith.{self.random.choice(('addf', 'subf', 'maxnumf', 'minnumf'))} {a}, {b} : {t}")

    def reshape(self) -> None:
        a, shape, elem = self.pick()
        size = math.prod(shape)
        targets = [s for s in _SHAPES if math.prod(s) == size and s != shape] or [(size,)]
        target = self.random.choice(targets)
        self.add(target, elem, f"tt.reshape {a} : {type_text(shape, elem)} -> {type_text(target, elem)}")

    def trans(self) -> None:
        a, shape, elem = self.pick()
        order = list(range(len(shape)))
        self.random.shuffle(order)
        target = tuple(shape[i] for i in order)
        text = ", ".join(map(str, order))
        self.add(
            target,
            elem,
            f"tt.trans {a} {{order = array<i32: {text}>}} : {type_text(shape, elem)} -> {type_text(target, elem)}",
        )

    def join_split(self) -> None:
        a, shape, elem = self.pick()
        b, _, _ = self.pick(elem, shape)
        t = type_text(shape, elem)
        kind = self.random.choice(("join", "split", "cat"))
        if kind == "join" and len(shape) < 3:
            self.add((*shape, 2), elem, f"tt.join {a}, {b} : {t} -> {type_text((*shape, 2), elem)}")
        elif kind == "cat" and len(shape) == 1:
            self.add((2 * shape[0],), elem, f"tt.cat {a}, {b} : {t} -> {type_text((2 * shape[0],), elem)}")
        elif shape[-1] == 2 and len(shape) > 1:
            self.count += 1
            name, half = f"%s{self.count}", shape[:-1]
            self.lines.append(f"{name}:2 = tt.split {a} : {t} -> {type_text(half, elem)}")
            self.tiles += [(f"{name}#0", half, elem), (f"{name}#1", half, elem)]

    def reduce(self) -> None:
        a, shape, elem = self.pick()
        axis = self.random.randrange(len(shape))
        rest = shape[:axis] + shape[axis + 1 :]
        ops = (
            ("arith.addf", "arith.maxnumf", "arith.minnumf")
            if elem == "f32"
            else ("arith.addi", "arith.maxsi", "arith.xori")
        )
        op = self.random.choice(ops)
        scan = self.random.random() < 0.25
        end, tail = (
            ("tt.scan.return", ", reverse = " + self.random.choice(("true", "false")))
            if scan
            else ("tt.reduce.return", "")
        )
        target = shape if scan else rest
        t = type_text(shape, elem)
        name = self.emit(
            f'"tt.{"scan" if scan else "reduce"}"({a}) <{{axis = {axis} : i32{tail}}}> ({{\n'
            f"^bb0(%x: {elem}, %y: {elem}):\n  %z = {op} %x, %y : {elem}\n  {end} %z : {elem}\n}}) : ({t}) -> {type_text(target, elem)}"
        )
        if not target:
            self.scalars.append((name, elem))
        elif not scan and self.random.random() < 0.6:
            wide = (*rest[:axis], 1, *rest[axis:])
            e = self.emit(
                f"tt.expand_dims {name} {{axis = {axis} : i32}} : {type_text(rest, elem)} -> {type_text(wide, elem)}"
            )
            self.add(shape, elem, f"tt.broadcast {e} : {type_text(wide, elem)} -> {t}")
        else:
            self.tiles.append((name, target, elem))

    def splat(self) -> None:
        if not self.scalars:
            return
        name, elem = self.random.choice(self.scalars)
        shape = self.random.choice(_SHAPES)
        self.add(shape, elem, f"tt.splat {name} : {elem} -> {type_text(shape, elem)}")

    def dot(self) -> None:
        m, n, k = (self.random.choice((4, 8, 16)) for _ in range(3))
        a, b = (self.pick("f32", s)[0] for s in ((m, k), (k, n)))
        c = self.pick("f32", (m, n))[0]
        ta, tb, tc = (type_text(s, "f32") for s in ((m, k), (k, n), (m, n)))
        self.add((m, n), "f32", f"tt.dot {a}, {b}, {c} : {ta} * {tb} -> {tc}")

    def gather(self) -> None:
        a, shape, elem = self.pick()
        axis = self.random.randrange(len(shape))
        i, _, _ = self.pick("i32", shape)
        t = type_text(shape, "i32")
        limit = self.emit(f"arith.constant dense<{shape[axis] - 1}> : {t}")
        i = self.emit(f"arith.andi {i}, {limit} : {t}")
        self.add(
            shape,
            elem,
            f"tt.gather {a}[{i}] {{axis = {axis} : i32}} : ({type_text(shape, elem)}, {t}) -> {type_text(shape, elem)}",
        )

    # -- regions -----------------------------------------------------------------------------------------

    def inside(self, budget: int) -> tuple[list[str], list[tuple[str, Shape, str]]]:
        """Lines of a body, and the tiles that it made."""
        lines, tiles, scalars = self.lines, list(self.tiles), list(self.scalars)
        self.lines = []
        self.steps(budget)
        made = [t for t in self.tiles if t not in tiles]
        body, self.lines, self.tiles, self.scalars = self.lines, lines, tiles, scalars
        return body, made

    def loop(self, budget: int) -> None:
        carried = [self.pick() for _ in range(self.random.randint(1, 3))]
        self.count += 1
        name = f"%l{self.count}"
        names = [f"{name}_{n}" for n in range(len(carried))]
        tiles = list(self.tiles)
        self.tiles += [(n, t[1], t[2]) for n, t in zip(names, carried, strict=True)]
        body, made = self.inside(budget)
        available = [*made, *[(n, t[1], t[2]) for n, t in zip(names, carried, strict=True)], *tiles]
        yields = [self.random.choice([a[0] for a in available if a[1:] == t[1:]][:4]) for t in carried]
        self.tiles = tiles
        types = ", ".join(type_text(s, e) for _, s, e in carried)
        args = ", ".join(f"{n} = {t[0]}" for n, t in zip(names, carried, strict=True))
        self.lines.append(
            f"{name}:{len(carried)} = scf.for {name}_i = %c0 to %iterations step %c1 iter_args({args}) -> ({types})  : i32 {{"
        )
        self.lines += ["  " + line for line in body]
        self.lines += [f"  scf.yield {', '.join(yields)} : {types}", "}"]
        self.tiles += [(f"{name}#{n}" if len(carried) > 1 else name, s, e) for n, (_, s, e) in enumerate(carried)]
        if len(carried) == 1:
            self.lines = [line.replace(f"{name}:1 =", f"{name} =") for line in self.lines]

    def branch(self, budget: int) -> None:
        wanted = [self.pick() for _ in range(self.random.randint(1, 2))]
        sides = []
        for _ in range(2):
            body, made = self.inside(budget)
            names = [self.random.choice([a[0] for a in [*made, *self.tiles] if a[1:] == t[1:]][:4]) for t in wanted]
            sides.append((body, names))
        self.count += 1
        name = f"%b{self.count}"
        types = ", ".join(type_text(s, e) for _, s, e in wanted)
        many = f":{len(wanted)}" if len(wanted) > 1 else ""
        self.lines.append(f"{name}{many} = scf.if %odd -> ({types}) {{")
        for number, (body, names) in enumerate(sides):
            self.lines += ["  " + line for line in body]
            self.lines += [f"  scf.yield {', '.join(names)} : {types}", "} else {" if number == 0 else "}"]
        self.tiles += [(f"{name}#{n}" if len(wanted) > 1 else name, s, e) for n, (_, s, e) in enumerate(wanted)]

    def steps(self, budget: int) -> None:
        """Some operations."""
        plain = [self.elementwise] * 6 + [self.reduce] * 3 + [self.reshape, self.trans, self.join_split, self.splat]
        plain += [self.dot, self.gather]
        while budget > 0:
            budget -= 1
            kind = self.random.random()
            if kind < 0.10:
                self.make(self.random.choice(_SHAPES), self.random.choice(("f32", "f32", "i32")))
            elif kind < 0.25:
                self.store(*self.pick())
            elif kind < 0.31 and budget > 3:
                self.loop(budget // 2)
                budget -= budget // 2
            elif kind < 0.36 and budget > 3:
                self.branch(budget // 3)
                budget -= budget // 3
            else:
                self.random.choice(plain)()

    def write(self, budget: int) -> str:
        """The kernel `random(p, q: f32*, u, v: i32*, n, iterations)` with about `budget` operations."""
        self.steps(budget)
        for value in self.random.sample(self.tiles, min(6, len(self.tiles))):
            self.store(*value)
        body = "\n    ".join("\n".join(self.lines).split("\n"))
        return f"""module {{
  tt.func public @random(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %u: !tt.ptr<i32>, %v: !tt.ptr<i32>, %n: i32, %iterations: i32) attributes {{noinline = false}} {{
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %pid = tt.get_program_id x : i32
    %region = arith.constant {REGION} : i32
    %start = arith.muli %pid, %region : i32
    %bit = arith.andi %pid, %c1 : i32
    %odd = arith.cmpi eq, %bit, %c1 : i32
    {body}
    tt.return
  }}
}}
"""
