"""Random programs on buffers in shared memory: their text, what they compute, and a run on the simulator.

A program is a list of statements; a loop or a branch holds lists. Tiles are 16 x 16 of i32 in one of several layouts,
rings have three buffers. Races that a missing barrier leaves are found by the simulator's shared memory.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.backends.nvidia.op_kernels import NoFacts
from tests.backends.nvidia.simt import Result, run_kernel
from tilewright.backends.llvm.types import I64, PTR
from tilewright.backends.nvidia.arch import arch_of, features_of
from tilewright.backends.nvidia.emit import control, convert, elementwise, shape, shared
from tilewright.backends.nvidia.emit.context import Kernel
from tilewright.backends.nvidia.emit.module import NvModule
from tilewright.backends.nvidia.options import CudaOptions
from tilewright.backends.nvidia.plan.allocate import allocate
from tilewright.backends.nvidia.plan.barriers import place_barriers
from tilewright.backends.nvidia.tgir.ops import parse_module, print_module
from tilewright.backends.nvidia.tgir.types import layout_attr, layout_of
from tilewright.ir.decisions import Decisions
from tilewright.layouts.distributed import default_blocked, mma_accumulator
from tilewright.layouts.shared import row_major, swizzled

EMITTERS = (control, convert, elementwise, shape, shared)  # importing them registers them
SHAPE, WARPS, RING = (16, 16), 2, 3
LAYOUTS = (
    default_blocked(SHAPE, WARPS, vector=2),
    default_blocked(SHAPE, WARPS, order=(0, 1), vector=2),
    mma_accumulator((1, WARPS), SHAPE),
)
BUFFERS = (row_major(SHAPE), swizzled(SHAPE, 4, 1, 4))
Array = np.ndarray[Any, Any]


def tile(layout: int) -> str:
    return f"tensor<16x16xi32, #T{layout}>"


def memdesc(buffer: int, ring: bool = False) -> str:
    return f"!ttg.memdesc<tensor<{f'{RING}x' if ring else ''}16x16xi32, #S{buffer}>>"


def statements(rng: random.Random, depth: int, length: int) -> list[Any]:
    """Random statements on the variables x, y (tiles) and the buffers a, b, r (a ring)."""
    kinds = ["store", "load", "convert", "add", "stage_store", "stage_load"] + ["for", "if"] * (depth > 0)
    made: list[Any] = []
    for _ in range(length):
        kind = rng.choice(kinds)
        if kind in ("for", "if"):
            made.append((kind, statements(rng, depth - 1, rng.randint(2, 4)), statements(rng, depth - 1, 2)))
        else:
            made.append((kind, rng.choice("xy"), rng.choice("ab"), rng.randrange(len(LAYOUTS)), rng.randrange(RING)))
    return made


# --- text -----------------------------------------------------------------------------------------------


@dataclass
class Text:
    """Writes a program as laid-out tile IR; variables are (name, layout)."""

    lines: list[str] = field(default_factory=list)
    count: int = 0

    def fresh(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def emit(self, text: str) -> str:
        name = self.fresh()
        self.lines.append(f"{name} = {text}")
        return name

    def converted(self, variable: tuple[str, int], layout: int) -> tuple[str, int]:
        name, own = variable
        if own == layout:
            return variable
        return self.emit(f'"ttg.convert_layout"({name}) : ({tile(own)}) -> {tile(layout)}'), layout

    def run(self, program: Sequence[Any], env: dict[str, tuple[str, int]], stage: str) -> None:
        """Write statements; `stage` is the number that stands for stage 0 here."""
        for kind, *rest in program:
            if kind == "for":
                self._for(rest[0], env)
            elif kind == "if":
                self._if(rest[0], rest[1], env, stage)
            else:
                self._simple(kind, *rest, env=env, stage=stage)

    def _simple(
        self, kind: str, x: str, buffer: str, layout: int, number: int, env: dict[str, tuple[str, int]], stage: str
    ) -> None:
        name, own = env[x]
        place, which = f"%{buffer}", "ab".index(buffer)
        if kind.startswith("stage"):
            index = self.emit(f"arith.addi {stage}, %c{number} : i32")
            wraps = self.emit(f"arith.cmpi sge, {index}, %c3 : i32")
            lower = self.emit(f"arith.subi {index}, %c3 : i32")
            index = self.emit(f"arith.select {wraps}, {lower}, {index} : i32")
            place = self.emit(f'"ttg.memdesc_index"(%r, {index}) : ({memdesc(1, True)}, i32) -> {memdesc(1)}')
            which = 1
        if kind.endswith("store"):
            self.lines.append(f'"ttg.local_store"({name}, {place}) : ({tile(own)}, {memdesc(which)}) -> ()')
        elif kind.endswith("load"):
            env[x] = self.emit(f'"ttg.local_load"({place}) : ({memdesc(which)}) -> {tile(layout)}'), layout
        elif kind == "convert":
            env[x] = self.converted(env[x], layout)
        else:
            other = self.converted(env["y" if x == "x" else "x"], own)[0]
            env[x] = self.emit(f"arith.addi {name}, {other} : {tile(own)}"), own

    def _for(self, body: Sequence[Any], env: dict[str, tuple[str, int]]) -> None:
        made, stage, x, y = self.fresh(), self.fresh(), self.fresh(), self.fresh()
        (first, a), (second, b) = env["x"], env["y"]
        types = f"({tile(a)}, {tile(b)}, i32)"
        self.lines.append(
            f"{made}:3 = scf.for %i{made[1:]} = %c0 to %c4 step %c1 "
            f"iter_args({x} = {first}, {y} = {second}, {stage} = %c0) -> {types} : i32 {{"
        )
        inner = {"x": (x, a), "y": (y, b)}
        self.run(body, inner, stage)
        ends = [self.converted(inner[v], layout)[0] for v, layout in (("x", a), ("y", b))]
        following = self.emit(f"arith.addi {stage}, %c1 : i32")
        wraps = self.emit(f"arith.cmpi eq, {following}, %c3 : i32")
        wrapped = self.emit(f"arith.select {wraps}, %c0, {following} : i32")
        self.lines.append(f"scf.yield {ends[0]}, {ends[1]}, {wrapped} : {types[1:-1]}\n}}")
        env["x"], env["y"] = (f"{made}#0", a), (f"{made}#1", b)

    def _if(self, yes: Sequence[Any], no: Sequence[Any], env: dict[str, tuple[str, int]], stage: str) -> None:
        flag = self.emit(f"arith.cmpi eq, {stage}, %c1 : i32")
        made, (_, a), (_, b) = self.fresh(), env["x"], env["y"]
        self.lines.append(f"{made}:2 = scf.if {flag} -> ({tile(a)}, {tile(b)}) {{")
        for number, side in enumerate((yes, no)):
            inner = dict(env)
            self.run(side, inner, stage)
            ends = [self.converted(inner[v], layout)[0] for v, layout in (("x", a), ("y", b))]
            self.lines.append(
                f"scf.yield {ends[0]}, {ends[1]} : {tile(a)}, {tile(b)}\n}}" + (" else {" if not number else "")
            )
        env["x"], env["y"] = (f"{made}#0", a), (f"{made}#1", b)


def text_of(program: Sequence[Any]) -> str:
    """The module of a program: it fills all buffers, runs the statements and returns x + y."""
    heads = [f"#T{i} = {layout_attr(layout)}" for i, layout in enumerate(LAYOUTS)]
    heads += [f"#S{i} = {layout_attr(buffer)}" for i, buffer in enumerate(BUFFERS)]
    text = Text([f"%c{n} = arith.constant {n} : i32" for n in range(5)])
    text.lines += [f'%{name} = "ttg.local_alloc"() : () -> {memdesc(i)}' for i, name in enumerate("ab")]
    text.lines.append(f'%r = "ttg.local_alloc"() : () -> {memdesc(1, True)}')
    env = {"x": ("%x", 0), "y": ("%y", 1)}
    fill = [("store", "x", "a", 0, 0), ("store", "y", "b", 0, 0)]
    fill += [("stage_store", v, "a", 0, n) for n, v in enumerate("xyx")]
    text.run([*fill, *program, ("add", "x", "a", 0, 0)], env, "%c0")
    result = text.converted(env["x"], 0)[0]
    arguments = f"%x: {tile(0)}, %y: {tile(1)}"
    body = "\n".join(text.lines)
    return (
        "\n".join(heads)
        + f"\nmodule {{\ntt.func public @k({arguments}) -> {tile(0)} {{\n{body}\ntt.return {result} : {tile(0)}\n}}\n}}"
    )


# --- meaning --------------------------------------------------------------------------------------------


def evaluate(program: Sequence[Any], x: Array, y: Array) -> Array:
    """What the program returns."""
    env = {"x": x, "y": y, "a": x, "b": y, 0: x, 1: y, 2: x}
    _evaluate(program, env, 0)
    return env["x"] + env["y"]


def _evaluate(program: Sequence[Any], env: dict[Any, Array], stage: int) -> None:
    for kind, *rest in program:
        if kind == "for":
            for iteration in range(4):
                _evaluate(rest[0], env, iteration % RING)
            continue
        if kind == "if":
            _evaluate(rest[0] if stage == 1 else rest[1], env, stage)
            continue
        x, buffer, _, number = rest
        place = (stage + number) % RING if kind.startswith("stage") else buffer
        if kind.endswith("store"):
            env[place] = env[x]
        elif kind.endswith("load"):
            env[x] = env[place]
        elif kind == "add":
            env[x] = env[x] + env["y" if x == "x" else "x"]


# --- running --------------------------------------------------------------------------------------------


def run(text: str, x: Array, y: Array, barriers: bool = True) -> tuple[Array, Result, str]:
    """Run a program of `text_of` on the simulator; gives the result, counts and the text with barriers."""
    module = parse_module(text)
    if barriers:
        place_barriers(module, Decisions())
    function: Any = next(iter(module.ops))
    allocation = allocate(function)
    llvm = NvModule(features_of(90))
    f = llvm.kernel("k", [I64, I64, I64], "")
    k = Kernel(f, arch_of(90), CudaOptions(num_warps=WARPS), NoFacts(), allocation.offsets)  # type: ignore[arg-type]
    k.start()
    places = [f.cast("inttoptr", arg, PTR) for arg in f.args]
    block = function.body.block
    for argument, base in zip(block.args, places):
        t = k.element(argument)
        k.set(argument, [f.load(t, f.gep(base, offset, t)) for offset in _flat(k, argument)])
    k.emit_block(block)
    (result,) = block.last_op.operands
    for offset, value in zip(_flat(k, result), k.tile(result), strict=True):
        f.store(value, f.gep(places[2], offset, value.type))
    f.ret()
    out = np.zeros(SHAPE, np.int32)
    ran = run_kernel(llvm.render(), "k", (1,), WARPS, [x.copy(), y.copy(), out], allocation.total)
    return out, ran, print_module(module)


def _flat(k: Kernel, value: Any) -> list[Any]:
    rows, columns = (k.coordinates(layout_of(value), axis) for axis in (0, 1))
    return [k.f.add(k.f.mul(row, SHAPE[1]), column) for row, column in zip(rows, columns, strict=True)]
