"""Random kernels through the reference back end and through the statements of their nests.

`python -m tests.loops.agree FIRST COUNT` says where they differ.
"""

from __future__ import annotations

import collections
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tests.fuzz.arguments import working
from tests.fuzz.case import Loaded, Param, load
from tests.fuzz.check import contents, run_reference, tile_ir
from tests.fuzz.generator import Profile, generate
from tests.loops.evaluate import Nest
from tilewright.base.stack import deep_calls
from tilewright.ops.function import FuncOp
from tilewright.passes.pipeline import run_passes

PROFILES = (Profile(statements=8), Profile(statements=8, any_shape=True), Profile(statements=3, products=True))


@dataclass(slots=True)
class Figures:
    """What came of some kernels.

    Args:
        compared: arrays that were compared.
        unknown: reasons why arrays were not.
        differing: what differs, by seed.
        slowest: seconds that the slowest nest took, and its seed.
    """

    compared: int
    unknown: collections.Counter[str]
    differing: dict[int, str]
    slowest: tuple[float, int]


def case_of(seed: int, folder: Path) -> Loaded:
    """The random kernel of a seed, its arguments finite."""
    path = folder / f"case_{seed}.py"
    path.write_text(generate(seed, PROFILES[seed % len(PROFILES)]).source())
    case = load(path)
    params = [replace(p, fill="ints" if p.fill == "special" else p.fill) for p in case.params]
    return replace(case, params=tuple(params))


def agree(seeds: range) -> Figures:
    """Compare what random kernels store with what their nests say."""
    figures = Figures(0, collections.Counter(), {}, (0.0, 0))
    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            try:
                compare(seed, case_of(seed, Path(folder)), figures)
            except Exception as error:
                figures.differing[seed] = repr(error)
    return figures


def compare(seed: int, case: Loaded, figures: Figures) -> None:
    """Compare what a kernel stores with what its nest says; the figures tell."""
    with deep_calls():  # as where kernels are compiled
        _check(seed, case, figures)


def _check(seed: int, case: Loaded, figures: Figures) -> None:
    if any(p.alias for p in case.params):  # a nest is that of arguments that lie apart; launches tell of others
        figures.unknown["arguments that share memory"] += 1
        return
    wanted, found = run_reference(case), contents(case)
    module = run_passes(tile_ir(case))
    (kernel,) = [op for op in module.ops if isinstance(op, FuncOp) and op.is_kernel]
    given = [p for p in case.params if p.kind != "constexpr"]
    arrays = {number: found[p.name] for number, p in enumerate(given) if p.kind == "array"}
    scalars = {number: p.value for number, p in enumerate(given) if p.kind != "array"}
    begin = time.perf_counter()
    nest = Nest(kernel, arrays, scalars, case.grid)
    figures.slowest = max(figures.slowest, (time.perf_counter() - begin, seed))
    nest.run()
    figures.unknown.update(nest.unknown.values())
    for number, param in enumerate(given):
        if param.kind == "array" and nest.is_known(number):
            figures.compared += 1
            wrong = _difference(param, wanted[param.name], found[param.name])
            if wrong:
                figures.differing[seed] = f"{param.name}: {wrong}"


def _difference(param: Param, wanted: np.ndarray, found: np.ndarray) -> str:
    with np.errstate(all="ignore"):
        w, f = (working(array, param).astype(np.float64) for array in (wanted, found))
        cancelled = 1e-12 * np.max(np.abs(w), where=np.isfinite(w), initial=0)
        near = np.abs(w - f) <= 4 * param.tolerance + 2e-3 * np.abs(w) + cancelled
    wrong = ~(near | ~np.isfinite(w) | (w == f))
    some = [f"[{i}] {w[i]!r} -> {f[i]!r}" for i in np.flatnonzero(wrong)[:4]]
    return f"{wrong.sum()} of {w.size}: {', '.join(some)}" if some else ""


if __name__ == "__main__":
    made = agree(range(int(sys.argv[1]), int(sys.argv[1]) + int(sys.argv[2])))
    for seed, text in made.differing.items():
        print(seed, text)
    print(f"{made.compared} arrays compared, {len(made.differing)} kernels differ, slowest {made.slowest}")
    print(made.unknown)
