"""The switch: one object under two names, whoever imports it and however, and nobody else's Triton in the way."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from tests.meta.sources import ROOT


def run(program: str, *command: str, **environment: str) -> str:
    """Standard output of a fresh process that runs a program; an error of it fails the test."""
    arguments = [sys.executable, *(command or ("-c", textwrap.dedent(program)))]
    wanted = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), environment.pop("FIRST", "")]).rstrip(":")}
    wanted.pop("TILEWRIGHT_AS_TRITON", None)
    done = subprocess.run(arguments, env={**wanted, **environment}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


POSE = "import tilewright; tilewright.as_triton()\n"


def test_every_shared_module_is_one_object():
    found = run(
        POSE
        + """if 1:
        import importlib, sys
        from tilewright.triton_names.switch import SHARED
        pairs = [(name, name.replace("triton", "tilewright", 1)) for name in sys.modules
                 if any(name == f"triton.{s}" or name.startswith(f"triton.{s}.") for s in SHARED)]
        assert all(sys.modules[a] is sys.modules[b] for a, b in pairs)
        for name, _ in pairs:  # and by every way of importing
            module = importlib.import_module(name)
            value = importlib.import_module("triton")
            for part in name.split(".")[1:]:
                value = getattr(value, part)
            assert module is sys.modules[name], name
            assert value is module or not isinstance(value, type(sys)), name  # triton.runtime.driver is the object
        import triton.language.extra.cuda.libdevice as a
        from tilewright.language.extra.cuda import libdevice as b
        assert a is b
        print(len(pairs))
    """
    )
    assert int(found) > 15


def test_names_are_those_of_tilewright():
    run(
        POSE
        + """if 1:
        import types
        import triton, tilewright
        import triton.language as tl
        for name in triton.__all__:
            value = getattr(triton, name)
            if hasattr(tilewright, name) and not isinstance(value, types.ModuleType) and name != "__version__":
                assert value is getattr(tilewright, name), name
        assert triton.knobs.runtime is tilewright.knobs.runtime
        assert triton.runtime.driver.active.get_current_target().backend in ("cpu", "cuda")
        import triton.runtime.driver
        from triton.runtime.driver import driver
        assert triton.runtime.driver is driver  # an import of the module does not hide the object
        from triton.compiler.compiler import ASTSource, CompiledKernel, triton_key
        from triton.backends.compiler import GPUTarget
        assert isinstance(driver.active.get_current_target(), GPUTarget)
        assert GPUTarget("cuda", 90, 32).warp_size == 32
        from triton.backends.nvidia.compiler import min_dot_size  # Helion chooses blocks by it
        least = min_dot_size(GPUTarget("cuda", 90, 32))
        assert (least(tl.float16, tl.float16), least(tl.float8e5, tl.float8e4nv)) == ((1, 1, 16), (1, 1, 32))
        assert triton.jit is tilewright.jit and tl is tilewright.language
    """
    )


def test_version_metadata_and_specs():
    run(
        POSE
        + """if 1:
        import importlib.metadata, importlib.util, inspect, pickle
        import triton, tilewright
        assert triton.__version__ == importlib.metadata.version("triton") != tilewright.__version__
        assert [int(part) for part in triton.__version__.split(".")][:2] >= [3, 2]
        assert importlib.util.find_spec("triton").name == "triton"
        for name in ("triton", "triton.compiler.compiler", "triton.language.extra.libdevice", "triton.language"):
            spec = importlib.util.find_spec(name)
            again = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(again)
            if name.startswith("triton.language"):
                assert again is importlib.import_module(name)
        assert triton.language.__spec__.name == "tilewright.language"
        assert "def cdiv" in inspect.getsource(inspect.getmodule(triton.language.cdiv.fn))
        assert pickle.loads(pickle.dumps(triton.language.float32)) == triton.language.float32
        assert pickle.loads(pickle.dumps(triton.Config)) is tilewright.Config
        assert pickle.loads(pickle.dumps(triton.JITFunction)) is tilewright.JITFunction
    """
    )


def test_modules_and_members_that_programs_reach_for():
    run(
        POSE
        + """if 1:
        from triton.compiler.compiler import ASTSource, CompiledKernel, triton_key
        from triton.compiler.errors import CompilationError
        from triton.backends.compiler import GPUTarget
        from triton.backends.nvidia.driver import CudaDriver
        from triton.runtime import _allocation, build, cache, driver, interpreter
        from triton.errors import TritonError
        from triton.tools.mxfp import MXFP4Tensor
        from triton.tools.ragged_tma import create_ragged_descriptor
        from triton.language.core import _unwrap_if_constexpr, view
        from triton.language.standard import _log2
        from triton.language.semantic import TritonSemantic
        import triton.knobs, triton.language.semantic, triton.language.math
        import triton.language.extra.libdevice as plain
        for vendor in ("cpu", "cuda", "hip"):
            exec(f"from triton.language.extra.{vendor} import libdevice as again")
            exec(f"import triton.language.extra.{vendor}.libdevice")
            assert again.tanh is plain.tanh, vendor
        import triton.compiler, triton.backends.compiler, sys
        for module in (triton.compiler.compiler, triton.backends.compiler):
            assert not hasattr(module, "AttrsDescriptor")  # torch would write code for Triton 3.1
        assert triton.compiler.AttrsDescriptor({0}).divisible_by_16 == {0}  # where torch does not look
        assert "torch" not in sys.modules  # mxfp loads it when a tensor is made
    """
    )


def test_functions_of_the_language_that_others_have_written(tmp_path):
    """Marked as Triton marks its own, as torch's helpers are; and plain functions of the language's modules."""
    (tmp_path / "library.py").write_text("""
import triton
import triton.language as tl

def next_power(n, *, _semantic=None):
    assert _semantic is not None and isinstance(n, tl.constexpr)
    return tl.constexpr(triton.next_power_of_2(n.value))

next_power.__triton_builtin__ = True

@triton.jit
def fill(x, N: tl.constexpr):
    size: tl.constexpr = next_power(N)
    bits: tl.constexpr = tl.standard._log2(size)
    i = tl.arange(0, size)
    kind: tl.constexpr = tl.core.get_int_dtype(32, True)
    tl.store(x + i, tl.full((size,), bits, kind), i < N)
""")
    run(POSE + """if 1:
        import numpy
        from library import fill
        x = numpy.zeros(12, numpy.int32)
        fill[(1,)](x, 11)
        assert x.tolist() == [4] * 11 + [0], x
        assert [(p.name, p.num, p.is_constexpr, p.do_not_specialize) for p in fill.params] == [
            ("x", 0, False, False), ("N", 1, True, False)]
    """, FIRST=str(tmp_path))  # fmt: skip


def test_a_kernel_of_a_worker_without_the_switch_is_told():
    run(POSE + """if 1:
        import pickle
        from triton.compiler.compiler import CompiledKernel
        real = CompiledKernel.__new__(CompiledKernel)  # as Triton's class of this name arrives from another process
        real.__dict__.update(src=None, hash="a1", name="kernel", asm={})
        try:
            pickle.loads(pickle.dumps(real))
        except ImportError as error:
            assert "real Triton" in str(error) and "TILEWRIGHT_AS_TRITON=1" in str(error), error
        else:
            raise AssertionError
    """)  # fmt: skip


def test_what_cannot_be_is_refused_with_a_reason():
    run(
        POSE
        + """if 1:
        for package, name, word in (("experimental", "gluon", "Gluon"), ("_C.libtriton", "nvidia", "LLVM")):
            try:
                exec(f"from triton.{package} import {name}")
            except ImportError as error:
                assert word in str(error), (name, error)
            else:
                raise AssertionError(name)
        from triton.runtime import build
        for name in ("compile_module_from_src", "_build"):
            try:
                getattr(build, name)("name", "text")
            except NotImplementedError as error:
                assert "no C compiler" in str(error), error
            else:
                raise AssertionError(name)
        import importlib.util
        assert importlib.util.find_spec("triton.experimental.gluon") is None  # libraries ask before they import it
    """
    )


FILL = """
import triton
import triton.language as tl

@triton.jit
def fill(x, B: tl.constexpr):
    tl.store(x + tl.arange(0, B), 1.0)
"""


def test_a_library_that_wants_a_gpu_that_is_not_there_is_told(tmp_path):
    (tmp_path / "library.py").write_text(FILL)
    run(POSE + """if 1:
        import types
        from library import fill
        from triton.backends.nvidia.driver import CudaDriver
        from triton.runtime import driver
        if CudaDriver.is_active():
            raise SystemExit
        def told(question):
            try:
                found = question()
            except tilewright.errors.DriverError as error:
                assert "the same kernel runs on the CPU" in str(error), error
            else:
                raise AssertionError(found)
        assert driver.active.get_current_target().backend == "cpu"  # a library that asks may go on
        place = types.SimpleNamespace(type="cuda", index=0)
        there = types.SimpleNamespace(dtype="float32", device=place, shape=(8,), data_ptr=lambda: 4096)
        told(lambda: fill[(1,)](there, B=8))
        driver.set_active(CudaDriver())  # as one does that knows no other
        told(lambda: driver.active.get_current_target())
        told(lambda: driver.active.utils.get_device_properties(0))
        driver.reset_active()
        assert driver.active.get_current_target().backend == "cpu"
    """, FIRST=str(tmp_path))  # fmt: skip


def test_a_real_triton_that_is_imported_already_is_refused(tmp_path):
    (tmp_path / "triton.py").write_text("__version__ = '3.5.0'\n")
    run("""
        import triton
        import tilewright
        try:
            tilewright.as_triton()
        except tilewright.errors.PosingError as error:
            assert "imported already" in str(error) and "triton.py" in str(error)
        else:
            raise AssertionError
    """, FIRST=str(tmp_path))  # fmt: skip


def test_one_that_is_only_installed_is_shadowed_here_and_nowhere_else(tmp_path):
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton" / "__init__.py").write_text("__version__ = '3.5.0'\n")
    found = run("""
        import subprocess, sys, os
        import tilewright
        tilewright.as_triton()
        import triton
        print(triton.__version__)
        clean = {k: v for k, v in os.environ.items() if k != "TILEWRIGHT_AS_TRITON"}
        other = [sys.executable, "-c", "import tilewright, triton; print(triton.__version__)"]
        print(subprocess.run(other, env=clean, capture_output=True, text=True).stdout)
    """, FIRST=str(tmp_path))  # fmt: skip
    posed, other = found.split()
    assert posed != other == "3.5.0"


def test_the_variable_poses_in_worker_processes():
    assert run("import tilewright, triton; print(triton.__tilewright__)", TILEWRIGHT_AS_TRITON="1") == "True\n"
    run(POSE + """if 1:
        import multiprocessing
        context = multiprocessing.get_context("spawn")
        with context.Pool(1) as pool:
            import triton.language as tl
            assert pool.apply(str, (tl.int8,)) == "int8"
    """)  # fmt: skip


@pytest.mark.parametrize("as_module", [False, True], ids=["file", "module"])
def test_programs(tmp_path, as_module):
    (tmp_path / "helper.py").write_text("NUMBER = 42\n")
    (tmp_path / "program.py").write_text(
        "import sys, triton, helper\nprint(__name__, sys.argv[1:], triton.__tilewright__, helper.NUMBER)\n"
    )
    command = ["-m", "program"] if as_module else [str(tmp_path / "program.py")]
    found = run("", "-m", "tilewright.as_triton", *command, "a", "-b", FIRST=str(tmp_path) if as_module else "")
    assert found == "__main__ ['a', '-b'] True 42\n"


def test_the_function_survives_an_import_of_the_module():
    run("import tilewright, tilewright.as_triton; from tilewright import as_triton as f; assert callable(f); f()")


def test_a_late_call_says_so():
    run("""
        import sys, types, warnings
        sys.modules["torch._dynamo"] = types.ModuleType("torch._dynamo")
        import tilewright
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            tilewright.as_triton()
        assert "torch._dynamo is imported already" in str(seen[0].message)
    """)


def test_doctor_says_which_triton_a_process_has():
    say = "from tilewright.triton_names.switch import describe; print(describe())"
    assert "poses as triton 3" in run(POSE + say)
    assert "poses as triton" not in run(say)


def test_a_torch_that_was_not_tested_is_told_once(tmp_path):
    (tmp_path / "torch-9.9.0.dist-info").mkdir()
    (tmp_path / "torch-9.9.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 9.9.0\n")
    run("""
        import warnings
        import tilewright
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            tilewright.as_triton()
            tilewright.as_triton()
        assert len(seen) == 1 and "torch 9.9.0 has not been tested" in str(seen[0].message), seen
        from tilewright.triton_names.switch import TESTED_TORCH, describe, unknown_torch
        assert "9.9.0" in describe()
        import importlib.metadata
        for version in TESTED_TORCH:
            importlib.metadata.version = lambda name, version=version: f"{version}.1+cpu"
            assert unknown_torch() == ""
    """, FIRST=str(tmp_path))  # fmt: skip


NAMES = """
import dataclasses
import tilewright
import tilewright.language as tl
from tilewright.language.extra import libdevice
from tilewright.tools.tensor_descriptor import TensorDescriptor

KIND: tl.constexpr = tl.constexpr(tl.float16)
POINTER = tl.pointer_type(tl.float32)

@dataclasses.dataclass
class Two:
    a: tl.constexpr
    b: tl.tensor

@tl.constexpr_function
def half(n):
    return n // 2

@tilewright.jit
def inner(v, K: tl.constexpr):
    return libdevice.tanh(v.to(tl.float32)).to(K) + tl.softmax(v).to(K)

@tilewright.jit
def kernel(x, F: tl.constexpr = tl.maximum, K: tl.constexpr = tl.float32, G: tl.constexpr = tl.sum):
    i = tl.arange(0, half(32))
    pair = Two(K, tl.load(x + i))
    p = x.to(tl.int64).to(POINTER)
    tl.store(p + i, inner(F(pair.b, 1.0).to(KIND), pair.a) + G(pair.b))
"""


def test_hashes_of_kernels_and_places_in_the_disk_cache_are_those_without_posing(tmp_path):
    (tmp_path / "kernels.py").write_text(NAMES)
    look = """if 1:
        import numpy
        from kernels import kernel
        from tilewright.frontend.hashing import lasting_hash
        x = numpy.ones(16, numpy.float32)
        made = kernel[(1,)](x)
        print(kernel.cache_key, lasting_hash(kernel), made.hash, x[0])
    """
    environment = {"FIRST": str(tmp_path), "TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache")}
    assert run(POSE + look, **environment) == run("import tilewright\n" + look, **environment)


def test_names_of_things_are_tritons_where_it_poses_and_nowhere_else():
    look = """if 1:
        import pickle
        from {name}.language.extra import libdevice
        things = [{name}.Config, {name}.cdiv, {name}.JITFunction, tl.constexpr, tl.block_type, tl.load, tl.softmax,
                  tl.exp, tl.core.get_int_dtype, libdevice.atan2, tl.tensor, {name}.CompilationError]
        print(*[f"{{thing.__module__}}.{{thing.__name__}}" for thing in things])
        print(repr(tl.float32), repr(tl.load), repr(tl.softmax), repr(tl.pointer_type(tl.int8)))
        for value in (*things[:5], tl.float16, tl.constexpr(3), {name}.Config({{"A": 1}}), tl.pointer_type(tl.float32)):
            again = pickle.loads(pickle.dumps(value))
            assert type(again) is type(value) and repr(again) == repr(value), value
        assert pickle.loads(pickle.dumps({name}.CompilationError)) is {name}.CompilationError
    """
    posing = run(POSE + "import triton, triton.language as tl\n" + look.format(name="triton"))
    plain = run("import tilewright, tilewright.language as tl\n" + look.format(name="tilewright"))
    assert "tilewright" not in posing and "triton.language.core.constexpr triton.language.core.block_type" in posing
    assert "triton" not in plain.replace("tilewright", "") and "tilewright.ops.values.constexpr" in plain
    assert "tilewright.base.dtypes.BlockType" in plain and plain.splitlines()[1].startswith(
        "tilewright.language.float32"
    )


def test_kernels_run_and_mistakes_are_told_as_without_posing(tmp_path):
    (tmp_path / "library.py").write_text("""
import triton
import triton.language as tl

@triton.jit
def changes(x):
    v = tl.load(x)
    for k in range(3):
        v = v.to(tl.float64)
    tl.store(x, v)

@triton.jit
def plain(x):
    tl.store(x, triton.Config({}))
""")
    said = run(POSE + """if 1:
        import numpy, triton
        import library
        for kernel in (library.changes, library.plain):
            try:
                kernel[(1,)](numpy.zeros(1, numpy.float32))
            except triton.CompilationError as error:
                print(error)
            else:
                raise AssertionError(kernel)
    """, FIRST=str(tmp_path))  # fmt: skip
    assert ".to(tl.float32)" in said and "tilewright" not in said
