"""What a configuration of hl costs until it is compiled, against Helion + Triton.

`python -m benchmarks.hl_against_helion --helion PYTHON [--rounds 3] [--target cpu] [--only TEXT] [--out FILE]`

PYTHON is an interpreter that imports helion and triton. Twelve kernels (`benchmarks.hl_twelve`) are bound, then the
text of each configuration is generated and compiled: Helion's for sm_90, hl's for the target. Times are processor time,
children included (Triton calls an assembler), of processes that take turns, without caches, after one kernel that
loads everything. Nothing is run.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[1]
_CAPABILITY = 90
TARGETS = {"cpu": 0.3, "cuda:90": 0.6}
Launch = tuple[Any, tuple[Any, ...], dict[str, Any]]  # kernel, its arguments, options and arguments by name


def clock() -> float:
    """Seconds of processor time of this process and of those that it waited for."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in both)


# --- in the child ------------------------------------------------------------------------------------------


def measure(target: str, only: str) -> dict[str, Any]:
    """Milliseconds of binding and of a configuration, for each kernel; of the side that `hl_twelve` imports."""
    from benchmarks import hl_twelve

    side = _helion if os.environ.get("TILEWRIGHT_BENCH_HELION") else _ours
    compile_text = side(target)
    first = next(iter(hl_twelve.WORKS.values()))
    compile_text(first.kernel.bind(first.args()), first.configs[0], first.args())
    found: dict[str, Any] = {}
    for name, work in hl_twelve.WORKS.items():
        if only in name:
            args = work.args()
            work.kernel.reset()
            start = clock()
            bound = work.kernel.bind(args)
            bind, start = clock() - start, clock()
            for config in work.configs:
                compile_text(bound, config, args)
            found[name] = {"bind": 1e3 * bind, "config": 1e3 * (clock() - start) / len(work.configs)}
    return found


def _ours(target: str) -> Callable[[Any, dict[str, Any], tuple[Any, ...]], None]:
    import tilewright
    from tilewright import hl
    from tilewright.compiler import ASTSource

    tilewright.knobs.cache.disabled = True
    wanted = None if target == "cpu" else target

    def compile_text(bound: Any, config: dict[str, Any], args: tuple[Any, ...]) -> None:
        for kernel, values, options in _launches(bound.to_code(hl.Config(**config)), bound.name, args):
            signature, constants, aligned, rest = _types(kernel, values, options)
            source = ASTSource(kernel, signature, constants, aligned)
            tilewright.compile(source, wanted, rest if wanted else {})

    return compile_text


def _launches(text: str, name: str, args: tuple[Any, ...]) -> list[Launch]:
    """What the host function of generated text launches; nothing is run."""
    import tilewright

    module, launches = _module(text), []

    class Recorder:
        def __init__(self, kernel: Any) -> None:
            self.kernel = kernel

        def __getitem__(self, grid: Any) -> Callable[..., None]:
            return lambda *values, **options: launches.append((self.kernel, values, options))

    names = {
        key: Recorder(value) if isinstance(value, tilewright.JITFunction) else value
        for key, value in vars(module).items()
    }
    host = getattr(module, name)
    types.FunctionType(host.__code__, names, name, host.__defaults__)(*args)  # kernels see each other as they are
    return launches


def _helion(target: str) -> Callable[[Any, dict[str, Any], tuple[Any, ...]], None]:
    import helion
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    gpu = GPUTarget("cuda", _CAPABILITY, 32)

    def compile_text(bound: Any, config: dict[str, Any], args: tuple[Any, ...]) -> None:
        module, launches = _module(bound.to_triton_code(helion.Config(**config))), []

        def launcher(kernel: Any, grid: Any, *values: Any, **options: Any) -> None:
            launches.append((kernel, values, options))

        getattr(module, bound.kernel.name)(*args, _launcher=launcher)
        for kernel, values, options in launches:
            signature, constants, aligned, rest = _types(kernel, values, options)
            source = ASTSource(kernel, signature, constants, aligned)
            known = {name: value for name, value in rest.items() if name in ("num_warps", "num_stages")}
            triton.compile(source, target=gpu, options=known)

    return compile_text


def _module(text: str) -> Any:
    """Generated text as a module; its functions find their text in a file."""
    with tempfile.NamedTemporaryFile(
        "w", suffix=".py", delete=False, dir=os.environ["TILEWRIGHT_BENCH_FOLDER"]
    ) as file:
        file.write(text)
    module = types.ModuleType(Path(file.name).stem)
    sys.modules[module.__name__] = module
    exec(compile(text, file.name, "exec"), module.__dict__)
    return module


def _types(kernel: Any, values: tuple[Any, ...], options: dict[str, Any]) -> tuple[dict[str, str], Any, Any, Any]:
    """(signature, constants, what 16 divides, options of the compile) of a launch."""
    names = [param.name for param in kernel.params]
    given = {**dict(zip(names, values)), **{key: value for key, value in options.items() if key in names}}
    signature: dict[str, str] = {}
    constants, aligned = {}, {}
    for at, param in enumerate(kernel.params):
        value = given[param.name]
        if param.is_constexpr or value is None:
            signature[param.name], constants[(at,)] = "constexpr", value
            continue
        signature[param.name] = _type(value)
        if not isinstance(value, float) and (not isinstance(value, int) or value % 16 == 0):
            aligned[(at,)] = [["tt.divisibility", 16]]
    return signature, constants, aligned, {key: value for key, value in options.items() if key not in names}


def _type(value: Any) -> str:
    if isinstance(value, bool | int | float):
        return {bool: "u1", int: "i32", float: "fp32"}[type(value)]
    short = {"float": "fp", "bfloat": "bf", "int": "i", "uint": "u"}
    word = str(value.dtype).removeprefix("torch.")
    letters = word.rstrip("0123456789")
    return f"*{short[letters]}{word[len(letters) :]}"


# --- in the parent -----------------------------------------------------------------------------------------


def child(python: str, target: str, only: str, helion: bool) -> dict[str, Any]:
    """`measure` in a fresh process without caches."""
    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as folder:
        environment = dict(os.environ, PYTHONPATH=str(_ROOT), TILEWRIGHT_BENCH_FOLDER=folder)
        environment |= {"TRITON_CACHE_DIR": f"{folder}/triton", "TRITON_ALWAYS_COMPILE": "1", "HELION_SKIP_CACHE": "1"}
        environment |= {"TILEWRIGHT_CACHE_DIR": f"{folder}/tilewright", "TILEWRIGHT_DEFAULT_BACKEND": "cpu"}
        environment |= {"TILEWRIGHT_BENCH_HELION": "1"} if helion else {}
        program = (
            "import json, sys; from benchmarks import hl_against_helion as h;"
            "print(json.dumps(h.measure(sys.argv[1], sys.argv[2])))"
        )
        done = subprocess.run(
            [python, "-c", program, target, only], env=environment, cwd=folder, capture_output=True, text=True
        )
    if done.returncode:
        raise SystemExit(f"{python} cannot do the work:\n{done.stderr[-4000:]}")
    rows: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return rows


def versions(python: str) -> dict[str, str]:
    """Versions of what the other side is made of."""
    program = (
        "import json; from importlib.metadata import version as v;"
        "print(json.dumps({name: v(name) for name in ('helion', 'triton', 'torch')}))"
    )
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def main() -> None:
    """Print a line a kernel and the geometric means; write JSON where asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--helion", required=True, metavar="PYTHON")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--target", action="append", choices=tuple(TARGETS))
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    targets = given.target or list(TARGETS)
    sides: dict[str, list[dict[str, Any]]] = {name: [] for name in ("helion", *targets)}
    for _ in range(given.rounds):
        sides["helion"].append(child(given.helion, "", given.only, True))
        for target in targets:
            sides[target].append(child(sys.executable, target, given.only, False))
    rows = {
        name: {
            side: {what: statistics.median(run[name][what] for run in runs) for what in ("bind", "config")}
            for side, runs in sides.items()
        }
        for name in sides["helion"][0]
    }
    print(f"{'milliseconds of CPU time a configuration':<42} {'':>8}" + "".join(f"{side:>10}" for side in sides))
    for name, row in rows.items():
        print(f"{name:<42} {'config':>8}" + "".join(f"{row[side]['config']:>10.0f}" for side in sides))
        print(f"{'':<42} {'bind':>8}" + "".join(f"{row[side]['bind']:>10.0f}" for side in sides))
    means = {
        target: math.exp(
            statistics.mean(math.log(row[target]["config"] / row["helion"]["config"]) for row in rows.values())
        )
        for target in targets
    }
    for target, mean in means.items():
        print(f"{target}: {mean:.2f} of Helion + Triton (target {TARGETS[target]})")
    if given.out:
        made = {"machine": platform.processor() or platform.machine(), "load": os.getloadavg()[0]}
        made |= {"rounds": given.rounds, "versions": versions(given.helion), "rows": rows, "means": means}
        given.out.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
