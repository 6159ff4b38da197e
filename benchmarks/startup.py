"""Times that need a fresh process: importing, compiling cold, loading from the disk cache; and a launch.

``python -m benchmarks.startup EXAMPLE`` is the child: it prints one JSON object. The parent gives each
pair of children an empty cache folder, so that the first compiles and the second reads the disk. A
compile time is that of the first call, less a later one's, after an empty kernel has loaded LLVM; what
that empty kernel itself takes is reported as the start of the compiler.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[1]
_COLD = {"vector_add": 0.08, "softmax": 0.12, "matmul": 0.25, "attention": 0.4}
_WARM = 0.010
_IMPORT = """
import json, sys, time
import numpy
numpys = time.process_time()
import tilewright
print(json.dumps([time.process_time(), numpys, "torch" in sys.modules, "llvmlite" in sys.modules]))
"""
_NOTHING = "import json, time; print(json.dumps([time.process_time()]))"


@dataclass(frozen=True)
class Timing:
    """A row measured in seconds; `target` is the most that is allowed, None for information only."""

    subject: str
    case: str
    seconds: float
    target: float | None = None
    failure: str = ""

    @property
    def passed(self) -> bool:
        """Whether the time is within the target and nothing forbidden happened."""
        return not self.failure and (self.target is None or self.seconds <= self.target)


def launch_time(seconds: float) -> Timing:
    """The time of launching an empty kernel with six tensors on a grid of one program."""
    import torch

    from benchmarks.kernels import empty_kernel
    from tilewright.tools.timing import compare

    tensors = [torch.zeros(16) for _ in range(6)]
    grid = (1,)
    sample = compare({"launch": lambda: empty_kernel[grid](*tensors)}, seconds=seconds)["launch"]
    return Timing("launch", "empty kernel, 6 tensors, grid 1", sample.median, 10e-6)


def import_time(runs: int) -> Iterator[Timing]:
    """CPU time of ``import tilewright`` and of numpy within it, less that of a bare interpreter.

    It must load neither torch nor LLVM, and may take 1.7 times as long as numpy.
    """
    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as folder:
        _child("-c", _IMPORT, cache=folder)  # writes the bytecode
        pairs = [(_child("-c", _IMPORT, cache=folder), _child("-c", _NOTHING, cache=folder)) for _ in range(runs)]
    loaded = [name for name, index in (("torch", 2), ("llvmlite", 3)) if any(result[index] for result, _ in pairs)]
    whole, numpys = (statistics.median(result[index] - own for result, [own] in pairs) for index in (0, 1))
    yield Timing("import", "import numpy", numpys)
    yield Timing("import", "import tilewright", whole, 1.7 * numpys, f"loads {', '.join(loaded)}" if loaded else "")


def compile_times(runs: int, step: Callable[[str], None]) -> Iterator[Timing]:
    """Cold and warm times of the examples that have a target, medians over `runs` pairs of processes."""
    starts: list[float] = []
    for example, target in _COLD.items():
        cold: list[float] = []
        warm: list[float] = []
        for _ in range(runs):
            step(example)
            with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as folder:
                for times in (cold, warm):
                    result = _child("-m", "benchmarks.startup", example, cache=folder)
                    times.append(result["compile"])
                    if times is cold:
                        starts.append(result["start"])
        name = example.replace("_", " ")
        yield Timing("compile cold", name, statistics.median(cold), target)
        yield Timing("compile warm", name, statistics.median(warm), _WARM)
    yield Timing("compile cold", "first kernel of a process (empty)", statistics.median(starts))


def _child(*arguments: str, cache: str | None = None) -> Any:
    return child_of([sys.executable, *arguments], cache)


def child_of(command: Sequence[str], cache: str | Path | None = None) -> Any:
    """Run a program and return the JSON that it prints.

    Args:
        command: of Python.
        cache: folder of its disk cache. Bytecode is kept beside that, as where packages are installed.
    """
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")]))
    if cache is not None:
        environment |= {"TILEWRIGHT_CACHE_DIR": str(cache), "PYTHONPYCACHEPREFIX": f"{cache}-bytecode"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(command, cwd=_ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def _measure(example: str) -> dict[str, float]:
    """What the child does."""
    import torch

    from benchmarks.kernels import empty_kernel
    from tilewright.tools import examples
    from tilewright.tools.tour.cases import CASES

    work = next(case for case in CASES if case.example == example).prepare(False)
    module = examples.load(example)
    tensors = [torch.zeros(16) for _ in range(6)]
    start = _elapsed(lambda: empty_kernel[(1,)](*tensors))
    first = _elapsed(lambda: work.ours(module))
    later = statistics.median(_elapsed(lambda: work.ours(module)) for _ in range(5))
    return {"start": start, "compile": max(0.0, first - later)}


def _elapsed(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


if __name__ == "__main__":
    print(json.dumps(_measure(sys.argv[1])))
