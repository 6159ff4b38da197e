"""The names of the language: all of Triton's are there, and those that a CPU refuses say why."""

from __future__ import annotations

import inspect
import operator
import subprocess
import sys

import pytest

import tilewright.language as tl
from tilewright.backends.reference.eager import EagerEmitter
from tilewright.base.callable import BlockFunction
from tilewright.base.errors import UnsupportedError
from tilewright.base.options import Options
from tilewright.base.target import Target
from tilewright.ops.builtin import BUILTINS, Builtin
from tilewright.tools import docgen, statepage, surface


def test_no_name_of_the_language_is_missing() -> None:
    assert [path for _, path in statepage.names() if statepage.missing(path)] == []
    assert statepage.missing_members() == []


def test_refusals_and_remarks_are_about_names_that_exist() -> None:
    listed = {path for _, path in statepage.names()}
    refused = set().union(*surface.REFUSED_ON.values())
    assert refused <= listed and set(surface.REMARKS) <= listed


@pytest.mark.parametrize("path", sorted(surface.REFUSED_ON["cpu"]))
def test_what_is_refused_raises_an_error_that_names_it(path: str) -> None:
    emitter = EagerEmitter(Target("cpu", "generic"), Options(), None)  # type: ignore[arg-type]
    function = operator.attrgetter(path)(tl)
    arguments = [None] * sum(p.default is p.empty for p in inspect.signature(function).parameters.values())
    with pytest.raises(
        UnsupportedError, match=path.split(".")[-1].replace("inline_asm_elementwise", "inline assembly")
    ):
        function.fn(emitter, *arguments)


def test_the_pages_in_docs_are_current() -> None:
    assert docgen.main(["--check"]) == 0


def test_every_function_of_the_operations_is_exported() -> None:
    assert [name for name in BUILTINS if name not in tl.__all__] == []
    assert [name for name in tl.__all__ if not hasattr(tl, name)] == []


def test_every_function_of_the_operations_is_in_core() -> None:
    assert [name for name in BUILTINS if getattr(tl.core, name) is not BUILTINS[name]] == []
    assert tl.core.is_builtin(tl.core.view) and not tl.core.is_builtin(tl.sum)


def test_modules_have_the_functions_that_triton_keeps_in_them() -> None:
    assert [n for n in "atomic_poll map_elementwise must_use_result slice".split() if not hasattr(tl.core, n)] == []
    names = "sort topk ravel zeros zeros_like interleave squeeze unsqueeze bitonic_merge sum cdiv softmax".split()
    assert [n for n in names if getattr(tl.standard, n) is not getattr(tl, n)] == []


def test_types_are_listed_by_kind() -> None:
    assert tl.dtype.SINT_TYPES == ["int8", "int16", "int32", "int64"]
    assert set(tl.dtype.UINT_TYPES) == {"int1", "uint8", "uint16", "uint32", "uint64"}
    assert set(tl.dtype.STANDARD_FP_TYPES) < set(tl.dtype.FP_TYPES) and len(tl.dtype.FP_TYPES) == 9
    every = tl.dtype.SINT_TYPES + tl.dtype.UINT_TYPES + tl.dtype.FP_TYPES + tl.dtype.OTHER_TYPES
    assert {tl.dtype(name).name for name in every} == set(every) and len(every) == 19


def test_rules_of_types_have_the_names_that_programs_import() -> None:
    assert tl.semantic.integer_promote_impl(tl.int8, tl.uint32) == tl.uint32
    assert tl.semantic.computation_type_impl(tl.float16, False, tl.float32, True, False) == tl.float16


def test_every_function_has_a_docstring() -> None:
    functions = {name: getattr(tl, name) for name in tl.__all__}
    bare = [n for n, f in functions.items() if isinstance(f, (Builtin, BlockFunction)) and not f.__doc__]
    assert bare == []


def test_builtins_outside_a_kernel_say_where_they_belong() -> None:
    for function in (tl.arange, tl.dot, tl.load):
        try:
            function(0, 4)
        except RuntimeError as error:
            assert "inside a @jit kernel" in str(error)
        else:
            raise AssertionError(f"{function} ran outside a kernel")


def test_loop_markers_do_not_iterate_outside_a_kernel() -> None:
    for marker in (tl.range(4), tl.static_range(4)):
        try:
            iter(marker)
        except RuntimeError as error:
            assert "can only be used in @jit'd functions" in str(error)
        else:
            raise AssertionError(f"{marker} iterated outside a kernel")


def test_importing_the_language_loads_neither_torch_nor_llvm() -> None:
    loaded = "[m for m in sys.modules if m.split('.')[0] in ('torch', 'llvmlite')]"
    code = f"import sys, tilewright.language; print({loaded})"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
