"""Members of kernels and functions of `runtime.jit`, in all versions' spellings, as libraries use them."""

from __future__ import annotations

import ast
import inspect
from typing import Any, get_args, get_origin

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.base.knobs import knobs
from tilewright.runtime import _async_compile, interpreter
from tilewright.runtime import jit as runtime_jit
from tilewright.runtime.cache import FileCacheManager, get_cache_manager
from tilewright.runtime.jit import DependenciesFinder, JITFunction, MockTensor, serialize_specialization_data

torch = pytest.importorskip("torch")

SCALE = tl.constexpr(3)
OTHER = tl.constexpr(5)


@tilewright.jit
def helper(x):
    return x * SCALE


@tilewright.jit
def scaled(out, value: int32, bias: tl.float32, src: "const float*" = None, BLOCK: tl.constexpr = 4):  # noqa: F722, F821
    tl.store(out + tl.arange(0, BLOCK), helper(value) + bias)


def plain(out, n, BLOCK: tl.constexpr = 4):
    tl.store(out + tl.arange(0, BLOCK), n)


@tl.constexpr_function
def doubled(n):
    return 2 * n


# --- DependenciesFinder ------------------------------------------------------------------------------------


def found(fn: Any, *, keywords: bool = True) -> Any:
    scope, outer = fn.__globals__, inspect.getclosurevars(fn.fn).nonlocals
    if keywords:
        finder = DependenciesFinder(name=fn._fn_name, globals=scope, nonlocals=outer, src=fn.src)
    else:
        finder = DependenciesFinder(scope, fn.src)
    finder.visit(fn.parse())
    return finder


def test_dependencies_are_hashed_with_what_they_use(monkeypatch: pytest.MonkeyPatch) -> None:
    first = found(scaled)
    assert isinstance(first.ret, str) and first.ret == found(scaled).ret != found(helper).ret
    names = {name for name, _ in first.used_global_vals}
    assert names == {"SCALE", "helper"} == {name for name, _ in scaled.used_global_vals}
    ((value, scope),) = [entry for (name, _), entry in first.used_global_vals.items() if name == "SCALE"]
    assert value.value == 3 and scope is globals()
    assert {name for name, _ in found(helper, keywords=False).used_global_vals} == {"SCALE"}
    for name in ("helper", "scaled"):
        globals()[name].__dict__.pop("_kernel_hash", None)
    monkeypatch.setitem(globals(), "SCALE", OTHER)
    assert found(scaled).ret != first.ret
    for name in ("helper", "scaled"):
        globals()[name].__dict__.pop("_kernel_hash", None)


def test_a_finder_hashes_the_text_that_it_is_given() -> None:
    text = "def body(x):\n    return x + SHIFT\n"

    def digest(shift: int, src: str = text) -> str:
        finder = DependenciesFinder("body", {"SHIFT": tl.constexpr(shift)}, {}, src)
        assert isinstance(finder, ast.NodeVisitor)
        finder.visit(ast.parse(src))
        return str(finder.ret)

    assert len({digest(1), digest(2), digest(1, text.replace("x", "y"))}) == 3 and digest(1) == digest(1)


# --- parameters and the class of kernels --------------------------------------------------------------------


def test_annotations_are_text() -> None:
    assert [p.annotation for p in scaled.params] == ["", "i32", "fp32", "*kfp32", "constexpr"]
    assert [p.annotation_type for p in scaled.params] == ["", "i32", "fp32", "*kfp32", ""]
    assert all(isinstance(p.annotation, str) for p in tilewright.jit(plain).params)


def test_kernels_are_made_with_positions() -> None:
    def rename(facts: Any) -> str:
        return "renamed"

    made = JITFunction(plain, "v2", ["n"], None, True, False, rename, None)
    assert (made.version, made.do_not_specialize, made.debug, made.noinline) == ("v2", ["n"], True, False)
    assert made.repr is rename and made._repr is rename
    out = np.zeros(4, np.int32)
    assert made[(1,)](out, 7).name == "renamed" and out.tolist() == [7] * 4


def test_the_class_takes_a_type() -> None:
    kind = JITFunction[Any]
    assert get_origin(kind) is JITFunction and get_args(kind) == (Any,)
    assert isinstance(scaled, JITFunction)


def test_kernels_print_with_a_colon() -> None:
    assert repr(scaled) == f"JITFunction({__name__}:scaled)"


def test_interpreted_kernels_are_told() -> None:
    made = interpreter.InterpretedFunction(plain)
    assert isinstance(made, interpreter.InterpretedFunction) and not isinstance(scaled, interpreter.InterpretedFunction)
    out = np.zeros(4, np.int32)
    made[(1,)](out, 7)
    assert out.tolist() == [7] * 4 and made.arg_names == ["out", "n", "BLOCK"]
    with knobs.runtime.scope():
        knobs.runtime.interpret = True
        assert isinstance(tilewright.jit(plain), interpreter.InterpretedFunction)
    assert not isinstance(3, interpreter.InterpretedFunction)


# --- caches and binders of older programs ------------------------------------------------------------------


def test_compiled_variants_are_found_by_device_and_key() -> None:
    fn = tilewright.jit(plain)
    out = np.zeros(4, np.int32)
    kernel = fn[(1,)](out, 7)
    (device,) = fn.cache
    assert list(fn.cache[device].values()) == [kernel] and list(fn.cache[0].values()) == [kernel]
    assert fn.device_caches[0][0] == fn.cache[0] and not fn.cache[1]
    fn.device_caches.clear()
    assert not fn.cache[0] and fn[(1,)](out, 7) is not kernel
    fn.cache.clear()
    assert not fn.variants() and not fn.cache[0]


def test_binders_of_older_programs() -> None:
    fn, out = tilewright.jit(plain), torch.zeros(4, dtype=torch.int32)
    fn.create_binder(None)
    bound, specialization, options = fn.binder(out, 7, num_warps=2)
    assert bound["n"] == 7 and specialization[1] == ("i32", "") and options == {"num_warps": 2}
    assert fn._make_constants((8,)) == {2: 8}


@pytest.mark.parametrize(
    ("value", "key", "kind"),
    [
        (True, "i1", "i1"), (5, "i32", "i32"), (1 << 40, "i64", "i64"), (1 << 63, "u64", "u64"), (1.5, "fp32", "fp32"),
        (None, None, "*i8"), (torch.zeros(1), torch.float32, "*fp32"),
        (torch.zeros(1, dtype=torch.float8_e5m2), torch.float8_e5m2, "*fp8e5"),
    ],
)  # fmt: skip
def test_keys_and_types_of_arguments(value: Any, key: Any, kind: str) -> None:
    assert JITFunction._key_of(value) == key and JITFunction._type_of(JITFunction._key_of(value)) == kind
    if kind == "*fp32":
        assert JITFunction._type_of(key, is_const=True) == "*kfp32"


def test_keys_of_what_is_no_argument() -> None:
    with pytest.raises(TypeError, match="complex"):
        JITFunction._key_of(1j)


@pytest.mark.parametrize(
    ("value", "key"), [(16, "D"), (1, "1"), (7, "N"), (1.0, "N"), (MockTensor(torch.float32), "D"), (None, "N")]
)
def test_keys_of_values(value: Any, key: str) -> None:
    assert runtime_jit.compute_spec_key(value, True) == runtime_jit.compute_spec_key(value) == key
    if key == "D":
        assert runtime_jit.compute_spec_key(value, False) == "N"


def test_the_mode_of_asynchronous_compilation_is_seen() -> None:
    from concurrent.futures import ThreadPoolExecutor

    assert _async_compile.active_mode.get() is None
    with ThreadPoolExecutor(1) as executor, tilewright.AsyncCompileMode(executor) as mode:
        assert _async_compile.active_mode.get() is mode


def test_a_manager_makes_paths(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knobs.cache, "dir", tmp_path)
    manager = get_cache_manager("00aa")
    assert isinstance(manager, FileCacheManager)
    assert manager.put(b"x", "a.bin") == str(manager._make_path("a.bin"))


def test_knobs_of_builds_have_one_value() -> None:
    assert knobs.build.impl is None and knobs.build.cc is None and knobs.build.backend_dirs == set()
    knobs.build.impl = None
    with pytest.raises(NotImplementedError, match="no C compiler"):
        knobs.build.impl = print
    assert knobs.build.knobs == {} and knobs.build.copy().cudart_path is None


# --- specialisations as data ---------------------------------------------------------------------------------


def test_a_specialisation_as_text_is_what_preload_takes() -> None:
    fn = tilewright.jit(scaled.fn)
    signature = {"out": "*i32", "value": "i32", "bias": "fp32", "src": "constexpr", "BLOCK": "constexpr"}
    constants, attrs = {(3,): None, (4,): 8}, {(0,): [["tt.divisibility", 16]]}
    options = tilewright.compiler.make_backend(tilewright.runtime.driver.active.get_current_target()).parse_options({})
    target = tilewright.runtime.driver.active.get_current_target()
    text = serialize_specialization_data(fn._fn_name, signature, constants, attrs, options, "a key", target)
    kernel = fn.preload(text)
    assert kernel is not None and kernel.specialization.constants == {(3,): None, (4,): 8}
    out = np.zeros(8, np.int32)
    assert fn[(1,)](out, 2, 1.0, None, 8).hash == kernel.hash and out.tolist() == [7] * 8


def test_attributes_as_older_programs_write_them() -> None:
    attrs = tilewright.compiler.AttrsDescriptor(divisible_by_16={0}, equal_to_1={1})
    assert (attrs.divisible_by_16, attrs.equal_to_1) == ({0}, {1}) and attrs.hash()
    signature = {"out": "*i32", "n": "i32", "BLOCK": "constexpr"}
    source = tilewright.compiler.ASTSource(tilewright.jit(plain), signature, {"BLOCK": 4}, attrs)
    kernel = tilewright.compile(source)
    assert kernel.specialization.attributes == {(0,): [["tt.divisibility", 16]]}
    assert kernel.specialization.constants == {(1,): 1, (2,): 4}
    assert source.parse_options() == {}


def test_functions_of_constants_have_text_and_key() -> None:
    assert doubled.src.startswith("def doubled(n):") and isinstance(doubled.cache_key, str)
    assert doubled.cache_key != tl.constexpr_function(lambda n: 3 * n).cache_key
    assert doubled.__name__ == "doubled" and doubled.fn(3) == 6


def test_types_of_constants() -> None:
    assert tl.constexpr_type((1, 2)) == tl.constexpr_type((1, 2)) != tl.constexpr_type((1, 3))
    assert hash(tl.constexpr_type((1, 2))) == hash(tl.constexpr_type((1, 2)))
    assert repr(tl.constexpr_type((1, 2))) == "constexpr_type[(1, 2)]" and tl.constexpr_type(4).mangle() == "c4"
    assert tl.constexpr(4).type == tl.constexpr_type(4)
    assert tl.constexpr((1, tl.constexpr(2))).type == tl.constexpr_type((1, tl.constexpr(2)))


def test_names_of_types() -> None:
    types = runtime_jit.type_canonicalisation_dict
    assert [types[f"float8_{kind}"] for kind in ("e4m3fn", "e5m2")] == ["fp8e4nv", "fp8e5"]
    assert [types[name] for name in ("float8e4nv", "float8e5", "float64", "uint8")] == [
        "fp8e4nv", "fp8e5", "fp64", "u8"
    ]  # fmt: skip


def test_types_of_parameters_in_c() -> None:
    driver = tilewright.runtime.driver.active
    kinds = ("*fp32", "i32", "i64", "u1", "fp16", "fp32", "tensordesc<fp16[4, 4]>")
    named = [driver.map_python_to_cpp_type(kind) for kind in kinds]
    assert named[1:4] == ["int32_t", "int64_t", "uint8_t"] and named[4:6] == ["double", "double"]
    assert named[0].endswith(("void*", "CUdeviceptr"))
    with pytest.raises(ValueError, match="i7"):
        driver.map_python_to_cpp_type("i7")


# --- constants that may change ----------------------------------------------------------------------------


@tilewright.jit
def by_table(out, TABLE: tl.constexpr, NAMED: tl.constexpr = None):
    total: tl.constexpr = TABLE[0] + len(TABLE)
    if NAMED is not None:
        tl.store(out, total + NAMED["k"])
    else:
        tl.store(out, total)


def test_lists_and_dictionaries_are_constants_by_content() -> None:
    out, table = np.zeros(1, np.int32), [5, 6]
    for _ in range(3):
        by_table[(1,)](out, table)
        assert out[0] == 7
    table[0] = 8
    by_table[(1,)](out, table)
    assert out[0] == 10
    named = {"k": 100}
    first = by_table[(1,)](out, table, named)
    assert out[0] == 110 and by_table[(1,)](out, [8, 6], {"k": 100}) is first
    named["k"] = 200
    by_table[(1,)](out, table, named)
    assert out[0] == 210


# --- tensors seen otherwise --------------------------------------------------------------------------------


@tilewright.jit
def sum_bytes(x, out, BLOCK: tl.constexpr):
    tl.store(out, tl.sum(tl.load(x + tl.arange(0, BLOCK)).to(tl.int32)))


@pytest.mark.parametrize("interpret", [False, True])
def test_reinterpret_takes_other_widths(interpret: bool) -> None:
    fn = tilewright.jit(sum_bytes.fn, interpret=interpret)
    x, out = torch.tensor([0x01020304, 5], dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    fn[(1,)](tilewright.reinterpret(x, tl.uint8), out, BLOCK=8)
    assert out.item() == 15
    wide = tilewright.reinterpret(torch.tensor([1, 0, 2, 0], dtype=torch.int32), tl.int64)
    fn[(1,)](wide, out, BLOCK=2)
    assert out.item() == 3
    with pytest.raises(TypeError, match="Cannot reinterpret a float"):
        tilewright.reinterpret(1.0, tl.float16)


# --- hooks --------------------------------------------------------------------------------------------------


@tilewright.jit(debug=True)
def never(out):
    tl.device_assert(tl.load(out) == 1, "it is not one")


def test_the_exit_hook_comes_after_a_kernel_that_fails() -> None:
    told: list[str] = []
    with knobs.runtime.scope():
        knobs.runtime.launch_enter_hook.add(lambda facts: told.append("enter"))
        knobs.runtime.launch_exit_hook.add(lambda facts: told.append("exit"))
        out = np.zeros(1, np.int32)
        for _ in range(4):  # later ones go another way than the first
            with pytest.raises(tilewright.TilewrightError, match="it is not one"):
                never[(1,)](out)
        assert told == ["enter", "exit"] * 4
        kernel, runtime = never.warmup(out, grid=(1,)), knobs.runtime
        for _ in range(3):
            with pytest.raises(tilewright.TilewrightError, match="it is not one"):
                hooks = runtime.launch_enter_hook, runtime.launch_exit_hook
                kernel.run(1, 1, 1, 0, kernel.function, kernel.packed_metadata, None, *hooks, torch.zeros(1).int())
        assert told == ["enter", "exit"] * 7
        knobs.runtime.launch_exit_hook.add(lambda facts: 1 / 0)
        for _ in range(4):
            with pytest.raises(ZeroDivisionError):
                never[(1,)](out)
