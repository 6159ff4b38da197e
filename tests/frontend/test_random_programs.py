"""Random programs of branches, loops and early returns give what Python gives, run through the references."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

import tilewright.language as tl
from tests.backends.cpu.harness import Compiled
from tests.frontend.helpers import I32, build, i32, jit
from tilewright.backends.reference.address_space import Memory
from tilewright.backends.reference.evaluate import Evaluator
from tilewright.base.callable import BlockFunction

NAMES = ("a", "b", "c", "d")


class Writer:
    """Writes the body of a function of `a` and `b` that returns one integer on every path.

    Args:
        seed: of the random choices.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.counters = 0
        self.loops = 0

    def write(self) -> str:
        self.line(1, "c = a + 1")
        self.line(1, "d = b - a")
        self.block(1, 4, returns=True)
        self.line(1, f"return {self.value()}")
        return "\n".join(self.lines)

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def value(self) -> str:
        pick = self.random
        left = pick.choice(NAMES)
        right = pick.choice([*NAMES, str(pick.randint(-3, 3))])
        return pick.choice([left, f"{left} {pick.choice('+-')} {right}", f"({left} if {self.test()} else {right} + 0)"])

    def test(self) -> str:
        pick = self.random
        simple = f"{pick.choice(NAMES)} {pick.choice(['<', '>', '==', '!='])} {pick.choice([*NAMES, '0', '3', '-2'])}"
        return simple if pick.random() < 0.8 else f"({simple}) {pick.choice(['and', 'or'])} {pick.choice(NAMES)} > 1"

    def block(self, depth: int, budget: int, *, returns: bool) -> None:
        for _ in range(self.random.randint(1, 3)):
            self.statement(depth, budget, returns=returns)

    def statement(self, depth: int, budget: int, *, returns: bool) -> None:
        kinds = ["assign"] * 3
        if budget:
            kinds += ["if"] * 3 + ["for", "while", "static"]
        if returns and depth > 1:
            kinds += ["return"]
        if self.loops:
            kinds += ["break", "continue"]
        kind = self.random.choice(kinds)
        if kind == "assign":
            self.line(depth, f"{self.random.choice(NAMES)} {self.random.choice(['=', '+=', '-='])} {self.value()}")
        elif kind == "return":
            self.line(depth, f"return {self.value()}")
        elif kind in ("break", "continue"):
            self.line(depth, f"if {self.test()}:")
            self.line(depth + 1, kind)
        elif kind == "if":
            self.branch(depth, budget, returns=returns)
        else:
            self.loop(kind, depth, budget, returns=returns)

    def branch(self, depth: int, budget: int, *, returns: bool) -> None:
        self.line(depth, f"if {self.test()}:")
        self.block(depth + 1, budget - 1, returns=returns)
        if self.random.random() < 0.3:
            self.line(depth, f"elif {self.test()}:")
            self.block(depth + 1, budget - 1, returns=returns)
        if self.random.random() < 0.6:
            self.line(depth, "else:")
            self.block(depth + 1, budget - 1, returns=returns)

    def loop(self, kind: str, depth: int, budget: int, *, returns: bool) -> None:
        pick = self.random
        self.counters += 1
        i = f"i{self.counters}"
        inside = budget - 2 if budget > 1 else 0
        if kind == "while":
            self.line(depth, f"{i} = 0")
            self.line(depth, pick.choice([f"while ({i} < 3) & ({pick.choice(NAMES)} < 9):", "while True:"]))
            forever = self.lines[-1].endswith("True:")
            self.line(depth + 1, f"{i} += 1")
            if forever:
                self.line(depth + 1, f"if {i} > 3:")
                self.line(depth + 2, "return a - 7" if returns and pick.random() < 0.3 else "break")
        elif kind == "for":
            self.line(depth, f"{i} = {pick.choice(NAMES)}")
            bounds = pick.choice(["3", "1, 4", "2, -1, -1", f"0, {pick.choice(NAMES)} & 3"])
            self.line(depth, f"for {i} in range({bounds}):")
            self.line(depth + 1, f"{pick.choice(NAMES)} += {i}")
        else:
            inside = budget - 1
            items = pick.choice(["static_range(2)", "(a, 3, b)", "[1, 2]"])
            self.line(depth, f"for {i} in {items}:")
            self.line(depth + 1, f"{pick.choice(NAMES)} -= {i}")
        self.loops += 1
        self.block(depth + 1, inside, returns=returns)
        self.loops -= 1
        if pick.random() < 0.3:
            self.line(depth, "else:")
            self.block(depth + 1, 0, returns=returns)
        if pick.random() < 0.3:
            self.line(depth, f"{pick.choice(NAMES)} += {i}")


@jit
def kernel(p, a, b, function: tl.constexpr):
    tl.store(p, function(a, b))


def _load(path: Path, text: str) -> Callable[[int, int], int]:
    path.write_text(f"def function(a, b):\n{text}\n")
    namespace: dict[str, Any] = {"static_range": range}
    exec(compile(path.read_text(), str(path), "exec"), namespace)
    return namespace["function"]  # type: ignore[no-any-return]


def _module(function: Callable[[int, int], int], *, noinline: bool) -> ModuleOp:
    function.__globals__["static_range"] = tl.static_range
    made: BlockFunction = jit(function, noinline=noinline)
    return build(kernel, I32, i32, i32, made).module


ARGUMENTS = [(x, y) for x in (-2, 0, 1, 4) for y in (-1, 0, 3)]


@pytest.mark.parametrize("seed", range(80))
def test_random_program(tmp_path: Path, seed: int) -> None:
    text = Writer(seed).write()
    python = _load(tmp_path / "python.py", text)
    expected = [int(np.array(python(x, y), np.int64).astype(np.int32)) for x, y in ARGUMENTS]
    module = _module(_load(tmp_path / "kernel.py", text), noinline=seed % 5 == 0)
    evaluator = Evaluator(module, Memory())
    out = np.zeros(1, np.int32)
    address = evaluator.memory.register(out)
    for (x, y), want in zip(ARGUMENTS, expected, strict=True):
        evaluator.launch("kernel", (1,), (address, x, y))
        assert out[0] == want, (x, y, text)
    if seed % 4 == 0:
        native = Compiled(module)
        for (x, y), want in zip(ARGUMENTS, expected, strict=True):
            native((1,), out, x, y)
            assert out[0] == want, (x, y, text)
