"""Evaluates what torch would write for every public name of the language, and for values of its types.

    python -m tilewright.as_triton -m tests.triton_names.written FOLDER

torch copies the source of a kernel into generated code and writes definitions of the globals that the kernel reads:
imports by `__module__` and `__name__`, annotations, `repr` of data types.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import triton
import triton.language as tl
from torch._inductor.codegen.wrapper import (
    PythonWrapperCodegen,
    user_defined_triton_kernel_transitive_closure_source_code,
)

MODULES = (
    "triton", "triton.language", "triton.language.core", "triton.language.standard", "triton.language.math",
    "triton.language.random", "triton.language.semantic", "triton.language.target_info",
    "triton.language.extra.libdevice", "triton.language.extra.cuda", "triton.language.extra.cuda.libdevice",
    "triton.language.extra.hip.libdevice", "triton.runtime", "triton.runtime.jit", "triton.runtime.autotuner",
    "triton.compiler.compiler", "triton.compiler.errors", "triton.testing", "triton.tools.tensor_descriptor",
)  # fmt: skip
HEADER = "import triton\nimport triton.language as tl\nimport torch\n"


def public(module: str) -> dict[str, Any]:
    """Values by name, modules and settings left out."""
    found = importlib.import_module(module)
    names = getattr(found, "__all__", None) or [name for name in vars(found) if not name.startswith("_")]
    values = {name: getattr(found, name) for name in names}
    return {
        name: value
        for name, value in values.items()
        if not isinstance(value, ModuleType) and not type(value).__module__.startswith("tilewright.base.knobs")
    }


def imported(folder: Path, module: str, values: dict[str, Any]) -> None:
    """Have torch write the globals of a kernel that reads all of these by names of its own, and compare."""
    wanted = {f"own_{name}": value for name, value in values.items() if _is_written(value)}
    lines = [f"from {module} import {name[4:]} as {name}" for name in wanted]
    body = "\n".join(f"    {name}" for name in wanted)
    source = f"{HEADER}{chr(10).join(lines)}\n@triton.jit\ndef kernel(x):\n{body}\n"
    file = folder / f"by_{module.replace('.', '_')}.py"
    file.write_text(source)
    kernel = importlib.import_module(file.stem).kernel
    text = user_defined_triton_kernel_transitive_closure_source_code(kernel)
    space: dict[str, Any] = {}
    (folder / f"{file.stem}_written.py").write_text(f"{HEADER}@triton.jit\n{text}")
    exec(compile(f"{HEADER}@triton.jit\n{text}", str(folder / f"{file.stem}_written.py"), "exec"), space)
    for name, value in wanted.items():
        assert name in space or _is_spliced(value), f"torch writes nothing for {module}.{name[4:]}"
        if not _is_spliced(value):
            assert space[name] is value or space[name] == value, (module, name, space[name], value)


def _is_spliced(value: Any) -> bool:
    """Whether torch copies its source, under its own name."""
    return isinstance(value, (triton.JITFunction, triton.runtime.jit.ConstexprFunction))


def _is_written(value: Any) -> bool:
    """Whether it belongs to Triton, and is a thing that kernels read."""
    if isinstance(value, (tl.dtype, tl.constexpr)):
        return True
    name = getattr(value, "__name__", "")  # of what is refused it is a path
    return "triton" in (getattr(value, "__module__", None) or "") and name.isidentifier()


def evaluated(module: str, values: dict[str, Any]) -> None:
    """What else torch writes: annotations of globals, data types as arguments, constants of data types."""
    space: dict[str, Any] = {}
    exec(HEADER, space)
    generator = PythonWrapperCodegen.__new__(PythonWrapperCodegen)
    for name, value in values.items():
        assert "tilewright" not in str(getattr(value, "__module__", "")), (module, name, value.__module__)
        assert "tilewright" not in str(getattr(value, "__qualname__", "")), (module, name)
        assert "tilewright" not in repr(value), (module, name, repr(value))
        if isinstance(value, type) and value.__module__.startswith("triton"):
            assert eval(f"{value.__module__}.{value.__name__}", space) is value, (module, name)
        if isinstance(value, tl.dtype):
            assert eval(generator.val_to_arg_str(value), space) is value, (module, name)
            assert eval(generator.val_to_arg_str((value, 3)), space) == (value, 3), (module, name)
            assert eval(f"tl.constexpr({tl.constexpr(value).value!r})", space).value is value


WIDTH: tl.constexpr = tl.constexpr(16)
KIND: tl.constexpr = tl.constexpr(tl.float32)
OTHER = tl.constexpr(tl.int32)
from triton.language import float16 as HALF  # noqa: E402
from triton.language import load, store  # noqa: E402
from triton.language.extra.libdevice import tanh  # noqa: E402


@triton.jit
def uses(x, out, T: tl.constexpr):
    i = tl.arange(0, WIDTH)
    v = tanh(load(x + i).to(KIND)).to(HALF).to(T)
    store(out + i, (v + i.to(OTHER)).to(KIND))


def compiled() -> None:
    """A kernel that reads such globals and is given a data type, in compiled code."""
    x = torch.randn(16)

    def run(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        uses[(1,)](x, out, tl.float32)
        return out + 1

    wanted = run(x)
    torch.testing.assert_close(wanted, x.tanh().half().float() + torch.arange(16) + 1)
    torch._inductor.config.cpu_backend = "triton"
    torch.testing.assert_close(torch.compile(run, fullgraph=True)(x), wanted)


def main(folder: Path) -> None:
    """All of it."""
    sys.path.insert(0, str(folder))
    count = 0
    for module in MODULES:
        values = public(module)
        evaluated(module, values)
        imported(folder, module, values)
        count += len(values)
    torch._inductor.config.compile_threads = 1
    compiled()
    print(count, "names")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
