"""Start of a process whose kernels are compiled already: from the disk cache, and from a bundle.

``python -m benchmarks.warm_start`` prints the medians over some fresh processes of what the first launch of a kernel
takes: the first kernel of a process, each further one, and each of a bundle. The launch itself is in it; numpy and
Tilewright are imported before.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.startup import Timing, child_of

_KERNELS = 6
_PROGRAM = """
import importlib.util, json, sys, time
from pathlib import Path
import numpy as np
import tilewright

how, folder = sys.argv[1], Path(sys.argv[2])
x, out, times = np.ones(100, np.float32), np.zeros(100, np.float32), []
if how == "bundle":
    kernels = tilewright.load_bundle(folder / "kernels.twb")
else:
    spec = importlib.util.spec_from_file_location("kernels", folder / "kernels.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["kernels"] = module
    spec.loader.exec_module(module)
    kernels = {name: getattr(module, name) for name in dir(module) if name.startswith("scale")}
made = []
for name in sorted(kernels):
    begin = time.perf_counter()
    made.append(kernels[name][(1,)](x, out, 100, 2.5, BLOCK=128))
    times.append(time.perf_counter() - begin)
    assert (out > 2).all()
    out[:] = 0
if how == "cold":
    tilewright.write_bundle(folder / "kernels.twb", made)
print(json.dumps([times, "llvmlite" in sys.modules]))
"""
_SOURCE = """
@tilewright.jit
def scale{i}(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask) * factor + {i}, mask)
"""


def warm_start_times(runs: int) -> Iterator[Timing]:
    """The rows of the table, medians over `runs` processes each."""
    times: dict[str, list[float]] = {"first": [], "further": [], "first of a bundle": [], "further of a bundle": []}
    loaded = False
    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as name:
        folder = Path(name)
        text = "import tilewright\nimport tilewright.language as tl\n" + "".join(
            _SOURCE.format(i=index) for index in range(_KERNELS)
        )
        (folder / "kernels.py").write_text(text)
        _launches("cold", folder)
        for how, suffix in [("disk", ""), ("bundle", " of a bundle")] * runs:
            seconds, with_llvm = _launches(how, folder)
            loaded = loaded or with_llvm
            times["first" + suffix].append(seconds[0])
            times["further" + suffix].append(statistics.median(seconds[1:]))
    failure = "loads LLVM" if loaded else ""
    most = {"first": 0.025, "further": 0.005, "further of a bundle": 0.001}
    for case, found in times.items():
        yield Timing("warm start", f"{case} kernel", statistics.median(found), most.get(case), failure)


def _launches(how: str, folder: Path) -> tuple[list[float], bool]:
    """Seconds of the first launch of each kernel in a fresh process, and whether it has loaded LLVM."""
    seconds, loaded = child_of([sys.executable, "-c", _PROGRAM, how, str(folder)], folder / "cache")
    return seconds, loaded


def main() -> None:
    """Print the table."""
    for timing in warm_start_times(9):
        most = "" if timing.target is None else f"   at most {timing.target * 1e3:.0f}"
        print(f"{timing.case:34}{timing.seconds * 1e3:8.2f} ms{most} {timing.failure}")


if __name__ == "__main__":
    main()
