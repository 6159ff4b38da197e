"""Compile and launch times of this tree, or of a commit, against another commit's.

``python -m benchmarks.against COMMIT [--of COMMIT] [--rounds 7] [--target cuda:90]`` checks commits out beside this
tree and gives both sides the same work in fresh processes that take turns: the import, compiles of the examples
without any cache, and launches of an empty kernel. Times are of the processor, so that neighbours count little. A
ratio above 1 means slower than COMMIT.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table

_ROOT = Path(__file__).resolve().parents[1]

# The child speaks only the names that every commit has; it runs with the tree to measure on its path.
_CHILD = """
import importlib.util, json, statistics, sys, time
from pathlib import Path

times = {}
start = time.process_time()
import tilewright
times["import"] = time.process_time() - start
import torch
from tilewright.compiler import ASTSource

tilewright.knobs.cache.disabled = True
root, target = Path(sys.argv[1]), sys.argv[2] or None


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def compile_seconds(example, kernel, signature, constants):
    fn = getattr(load(root / "examples" / f"{example}.py"), kernel)
    source = ASTSource(fn, signature, constants)
    start = time.process_time()
    tilewright.compile(source, target)
    return time.process_time() - start


def strides(*names):
    return {f"stride_{name}": "i32" for name in names}


f32, tl = "*fp32", tilewright.language
KERNELS = {
    "vector_add": ("add_kernel", dict(x_ptr=f32, y_ptr=f32, out_ptr=f32, n_elements="i32"), dict(BLOCK=1024)),
    "softmax": ("softmax_kernel", dict(out_ptr=f32, in_ptr=f32, in_row_stride="i32", out_row_stride="i32",
                n_cols="i32"), dict(BLOCK=1024)),
    "layer_norm": ("layer_norm_kernel", dict(x_ptr=f32, out_ptr=f32, weight_ptr=f32, bias_ptr=f32, row_stride="i32",
                   n_cols="i32", eps="fp32"), dict(BLOCK=1024)),
    "matmul": ("matmul_kernel", dict(a_ptr="*bf16", b_ptr="*bf16", c_ptr="*bf16", M="i32", N="i32", K="i32",
               **strides("am", "ak", "bk", "bn", "cm", "cn")),
               dict(BLOCK_M=64, BLOCK_N=64, BLOCK_K=32, GROUP_M=8, ACC_TYPE=tl.float32, PRECISION=None, EVEN_K=True)),
}
compile_seconds("vector_add", *KERNELS["vector_add"])  # loads the compiler
for example, work in KERNELS.items():
    times[f"compile {example}"] = statistics.median(compile_seconds(example, *work) for _ in range(5))

launches = load(Path(sys.argv[3]))
tensors = [torch.zeros(16) for _ in range(6)]
if target is None:
    for name, arguments in (("9", (*tensors, 16, 32)), ("19", (*tensors, *tensors, 1, 2, 3, 4, 5, 6))):
        kernel = getattr(launches, f"empty{name}")
        times[f"launch, {name} arguments"] = statistics.median(launches.each(kernel, arguments) for _ in range(30))
print(json.dumps(times))
"""
_LAUNCHES = """
import time

import tilewright
import tilewright.language as tl


@tilewright.jit
def empty9(a, b, c, d, e, f, m, n, BLOCK: tl.constexpr):
    pass


@tilewright.jit
def empty19(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, BLOCK: tl.constexpr):
    pass


def each(kernel, arguments):
    kernel[(1,)](*arguments, BLOCK=16)
    start = time.process_time()
    for _ in range(2000):
        kernel[(1,)](*arguments, BLOCK=16)
    return (time.process_time() - start) / 2000
"""


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """A folder with the files of a commit, for as long as the block runs."""
    with tempfile.TemporaryDirectory(prefix="tilewright-against-") as folder:
        tree = Path(folder) / "tree"
        tree.mkdir()
        files = subprocess.run(["git", "archive", commit], cwd=_ROOT, capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", str(tree)], input=files, check=True)
        yield tree


def times_of(tree: Path, target: str, folder: Path) -> dict[str, float]:
    """Seconds of each row in a fresh process that imports `tree`; `folder` holds the files of the child."""
    caches = {"TILEWRIGHT_CACHE_DIR": str(folder / "cache"), "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    environment = dict(os.environ, PYTHONPATH=str(tree), **caches)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    launches = folder / "launches.py"
    launches.write_text(_LAUNCHES)
    command = [sys.executable, "-c", _CHILD, str(tree), target, str(launches)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise click.ClickException(f"{tree} cannot do the work:\n{done.stderr}")
    rows: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return rows


@click.command()
@click.argument("commit")
@click.option("--of", "measured", default=None, metavar="COMMIT", help="What is compared; default is this tree.")
@click.option("--rounds", default=7, show_default=True, help="Pairs of processes.")
@click.option("--target", default="", help="Such as cuda:90; default is this CPU, whose kernels are launched too.")
def main(commit: str, measured: str | None, rounds: int, target: str) -> None:
    """Print the times of this tree, of COMMIT, and their ratio."""
    now: list[dict[str, float]] = []
    then: list[dict[str, float]] = []
    ours = checked_out(measured) if measured else nullcontext(_ROOT)
    with (
        ours as tree,
        checked_out(commit) as other,
        tempfile.TemporaryDirectory(prefix="tilewright-against-") as folder,
    ):
        for _ in track(range(rounds), "pairs of processes", transient=True):
            now.append(times_of(tree, target, Path(folder)))
            then.append(times_of(other, target, Path(folder)))
    table = Table(
        "what", f"{measured or 'this tree'}, us", f"{commit}, us", "ratio", title="medians; above 1 is slower"
    )
    for row in now[0]:
        ratio = statistics.median(a[row] / b[row] for a, b in zip(now, then, strict=True))
        medians = (statistics.median(times[row] for times in side) * 1e6 for side in (now, then))
        table.add_row(row, *(f"{median:.2f}" for median in medians), f"{ratio:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
