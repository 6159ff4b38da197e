"""`python -m tests.fuzz.emitted DIR`: the LLVM IR of random kernels and of the examples, written and not run.

A change that should keep what is emitted is checked by this command before and after it, and `diff -r` of the two
folders. `DIR/<target>/<kernel>.ll` holds the text, or the error that the kernel ended with.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any
from unittest import mock

from xdsl.dialects.builtin import ModuleOp

from tests.fuzz.case import load
from tests.fuzz.check import tile_ir
from tests.fuzz.generator import Profile, generate
from tilewright.backends.cpu.emit.lower import lower_module
from tilewright.backends.llvm.features import describe
from tilewright.backends.nvidia.arch import target_of
from tilewright.backends.nvidia.emit.lower import emit_kernel
from tilewright.backends.nvidia.options import CudaOptions
from tilewright.backends.nvidia.pipeline import lay_out_module
from tilewright.base.options import Options
from tilewright.compile.build import compile_request
from tilewright.compile.parameters import parameter_specs
from tilewright.compile.request import Request
from tilewright.frontend.entry import build_module
from tilewright.launch import jit
from tilewright.passes.pipeline import passes_for, run_passes
from tilewright.tools import examples

Kernel = tuple[str, Options, Callable[[], ModuleOp]]  # name, options, tile IR made anew
_TRIPLE = "x86_64-unknown-linux-gnu"
_CPUS = {"generic": "x86-64", "avx2": "x86-64-v3", "avx512": "x86-64-v4", "amx": "sapphirerapids"}
_CAPABILITIES = {"cuda80": 80, "cuda90": 90}
_DIRECTORY = re.compile(r'(?<=directory: ")[^"]*')  # of sources, in debug information
_PROFILES = (Profile(), Profile(), Profile(), Profile(any_shape=True), Profile(statements=4, products=True))


def _shared(options: Options) -> dict[str, Any]:
    return {f.name: getattr(options, f.name) for f in fields(Options)}


def emitted(module: ModuleOp, options: Options, target: str) -> str:
    """LLVM IR of a module, which is consumed; for a target by its name here."""
    isa = describe(_TRIPLE, _CPUS[target]) if target in _CPUS else None
    run_passes(module, passes_for(options.enable_fp_fusion and (isa is None or isa.has_fma)))
    if isa is not None:
        return lower_module(module, isa, options).llvm
    gpu, for_gpu = target_of(_CAPABILITIES[target]), CudaOptions(**_shared(options))
    return emit_kernel(lay_out_module(module, for_gpu, gpu), for_gpu, gpu).llvm


def random_kernels(first: int, count: int, folder: Path) -> Iterator[Kernel]:
    """Kernels of the generator; their sources go to `folder`."""
    for seed in range(first, first + count):
        path = folder / f"case_{seed}.py"
        path.write_text(generate(seed, _PROFILES[seed % len(_PROFILES)]).source())
        case = load(path)
        yield path.stem, Options(**case.options), lambda case=case: tile_ir(case)  # type: ignore[misc]


def example_kernels() -> Iterator[Kernel]:
    """Every variant of a kernel that the examples compile when they run on the CPU."""
    for path in sorted(examples.folder().glob("*.py")):
        seen: list[Request] = []

        def compile_and_note(request: Request, *rest: Any, seen: list[Request] = seen) -> Any:
            seen.append(request)
            return compile_request(request, *rest)

        with mock.patch.object(jit, "compile_request", compile_and_note):
            examples.load(path.stem).main()
        for number, request in enumerate(seen):
            yield f"{path.stem}_{number}", request.options, lambda request=request: _built(request)  # type: ignore[misc]


def _built(request: Request) -> ModuleOp:
    specs = parameter_specs(request.specialization)
    return build_module(request.source.fn, specs, request.options, request.target).module  # type: ignore[attr-defined]


def write(kernels: Iterator[Kernel], targets: list[str], folder: Path) -> int:
    """Emit all kernels for all targets; gives the number of files."""
    count = 0
    for name, options, make in kernels:
        for target in targets:
            try:
                text = emitted(make(), options, target)
            except Exception as error:
                text = f"{type(error).__name__}: {error}\n"
            file = folder / target / f"{name}.ll"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(_DIRECTORY.sub("", text))
            count += 1
    return count


def main() -> int:
    """Write the files; the exit status is 0."""
    every = [*_CPUS, *_CAPABILITIES]
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.emitted", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the files go")
    parser.add_argument("--cases", type=int, default=300, help="number of random kernels (default 300)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first kernel; the others follow")
    parser.add_argument("--no-examples", action="store_true", help="leave the examples out, which must run")
    parser.add_argument("--targets", default="generic,avx2,avx512,amx,cuda90", help=f"of {', '.join(every)}")
    options = parser.parse_args()
    targets = options.targets.split(",")
    if not set(targets).issubset(every):
        parser.error(f"targets are {', '.join(every)}")
    with tempfile.TemporaryDirectory(prefix="tilewright-fuzz-") as folder:
        count = write(random_kernels(options.seed, options.cases, Path(folder)), targets, options.folder)
        if not options.no_examples:
            count += write(example_kernels(), targets, options.folder)
    print(f"{count} files in {options.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
