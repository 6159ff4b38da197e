"""Random kernels of float64 whose derivative is known along any direction: by differences of the kernel itself.

python -m tests.gradients.random_kernels --cases 500 --seed 1000
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import tilewright

SIZE, PROGRAMS = 21, 3
_HEAD = """import tilewright
import tilewright.language as tl


@tilewright.jit
def kernel(x_ptr, y_ptr, out_ptr, sums_ptr, n, times):
    lanes = tl.program_id(0) * 8 + tl.arange(0, 8)
    mask = lanes < n
    v0 = tl.load(x_ptr + lanes, mask, other=0.5)
    v1 = tl.load(y_ptr + lanes % 5, mask, other=0.25)
"""
_UNARY = (
    "tl.sin({0})", "tl.sigmoid({0})", "tl.exp(tl.sin({0}))", "tl.sqrt(1.0 + {0} * {0})", "tl.log(1.5 + {0} * {0})",
    "tl.cumsum({0}, 0) * 0.25", "tl.sum({0}) * 0.125 + {0}", "tl.max({0}, 0) * {0}", "tl.abs({0})", "tl.erf({0})",
    "tl.gather({0}, 7 - tl.arange(0, 8), 0)", "tl.reshape(tl.trans(tl.reshape({0}, (2, 4))), (8,))",
    "tl.broadcast_to(tl.sum({0}, 0), (8,)) * 0.1",
)  # fmt: skip
_BINARY = (
    "{0} + {1}", "{0} - {1}", "{0} * {1}", "{0} / (1.5 + {1} * {1})", "tl.maximum({0}, {1})", "tl.minimum({0}, {1})",
    "tl.where({0} > {1}, {0}, {1} * 0.5)", "tl.fma({0}, {1}, 0.25)",
)  # fmt: skip
_CARRIES = ("{0} += {1} * 0.5", "{0} = tl.sin({0} + {1})", "{0} = {0} * tl.sigmoid({1}) + {2}")


class Writer:
    """Writes the text of a kernel.

    Args:
        seed: of the choices.
    """

    def __init__(self, seed: int) -> None:
        self.rng, self.lines, self.known, self.made = random.Random(seed), [_HEAD.rstrip()], ["v0", "v1"], 2

    def text(self) -> str:
        """The module that defines the kernel."""
        for _ in range(self.rng.randint(2, 5)):
            self.statement("    ", 0)
        self.lines.append(f"    tl.store(out_ptr + lanes, {self.expression()}, mask)")
        if self.rng.random() < 0.5:
            self.lines.append(f"    tl.atomic_add(sums_ptr + lanes % 3, {self.expression()}, mask)")
        return "\n".join(self.lines) + "\n"

    def expression(self) -> str:
        """A tile made of known ones, of moderate size."""
        form = self.rng.choice(self.rng.choice((_UNARY, _BINARY)))
        made = form.format(self.rng.choice(self.known), self.rng.choice(self.known))
        return f"tl.sin({made})" if form in _BINARY else made

    def new(self) -> str:
        self.made += 1
        return f"v{self.made - 1}"

    def statement(self, indent: str, depth: int) -> None:
        """An assignment, a loop or a branch."""
        kind = self.rng.random()
        name = self.new()
        if kind < 0.5 or depth > 1:
            self.lines.append(f"{indent}{name} = {self.expression()}")
        elif kind < 0.8:
            self.loop(indent, depth, name)
        else:
            self.branch(indent, depth, name)
        self.known.append(name)

    def loop(self, indent: str, depth: int, name: str) -> None:
        """A loop that carries a tile: as a sum, or as something of which the history is wanted."""
        self.lines.append(f"{indent}{name} = {self.expression()}")
        bound = self.rng.choice(("3", "times", "times + tl.program_id(0)", "0", "1, 6, 2"))
        self.lines.append(f"{indent}for i{depth} in range({bound}):")
        before = list(self.known)
        if self.rng.random() < 0.5:
            self.known.append(name)
        self.statement(f"{indent}    ", depth + 1)
        inner = self.known[-1]
        self.lines.append(f"{indent}    {self.rng.choice(_CARRIES).format(name, inner, f'i{depth}')}")
        self.known = before

    def branch(self, indent: str, depth: int, name: str) -> None:
        """A branch on what was loaded, on the program or on a number."""
        before = list(self.known)
        conditions = (f"tl.sum({self.rng.choice(before)}) > 1.0", "tl.program_id(0) == 1", "times > 2")
        self.lines += [f"{indent}{name} = {self.expression()}", f"{indent}if {self.rng.choice(conditions)}:"]
        self.statement(f"{indent}    ", depth + 1)
        self.lines.append(f"{indent}    {name} = tl.sin({name} + {self.known[-1]})")
        self.known = list(before)
        if self.rng.random() < 0.5:
            self.lines += [f"{indent}else:", f"{indent}    {name} = {self.expression()}"]


def kernel_of(text: str, folder: Path, name: str) -> Any:
    """The kernel that a text defines."""
    path = folder / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.kernel


def check(seed: int, folder: Path) -> str:
    """Compare one kernel's gradient with differences; "" where they agree, else what differs."""
    text = Writer(seed).text()
    kernel = kernel_of(text, folder, f"gradient_case_{seed}")
    rng = np.random.default_rng(seed)
    x, y, dx, dy = rng.uniform(-1, 1, SIZE), rng.uniform(-1, 1, 5), np.zeros(SIZE), np.zeros(5)
    seeds, times = (rng.uniform(-1, 1, SIZE), rng.uniform(-1, 1, 3)), int(rng.integers(0, 5))
    along = rng.uniform(-1, 1, SIZE), rng.uniform(-1, 1, 5)

    def value(step: float) -> float:
        out, sums = np.zeros(SIZE), np.zeros(3)
        kernel[(PROGRAMS,)](x + step * along[0], y + step * along[1], out, sums, SIZE, times)
        return float((out * seeds[0]).sum() + (sums * seeds[1]).sum())

    step = 1e-6
    want = (value(step) - value(-step)) / (2 * step)
    gradient = tilewright.grad(kernel, ["x_ptr", "y_ptr"])
    args = (x, y, np.zeros(SIZE), np.zeros(3), SIZE, times)
    given = {"d_out_ptr": seeds[0], "d_sums_ptr": seeds[1]}
    given = {name: given[name] for name in (f"d_{output}" for output in gradient.outputs(*args))}
    gradient[(PROGRAMS,)](*args, **given, d_x_ptr=dx, d_y_ptr=dy)
    got = float((dx * along[0]).sum() + (dy * along[1]).sum())
    if abs(got - want) <= 2e-5 * max(1.0, abs(want)):
        return ""
    return f"seed {seed}: derived {got}, by differences {want}\n{text}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--evaluated", action="store_true", help="through the references of the operations")
    asked = parser.parse_args()
    tilewright.knobs.runtime.interpret = asked.evaluated
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(asked.seed, asked.seed + asked.cases):
            found = check(seed, Path(folder))
            failed += bool(found)
            print(found, end="")
    print(f"{asked.cases} kernels, {failed} wrong")


if __name__ == "__main__":
    main()
