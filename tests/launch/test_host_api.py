"""The rest of Triton's host side: devices, compiling without a launch, stand-ins for tensors, hooks."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.backends.cpu.device.active import CpuDriver, cache_bytes
from tilewright.base.errors import ArgumentError, LaunchError, UnsupportedError
from tilewright.base.hooks import HookChain, LazyDict
from tilewright.devices.allocation import get_allocator
from tilewright.language.extra.cuda.libdevice import rsqrt
from tilewright.ops.text import print_module


def named(specialization):
    return f"fill_{specialization.constants['BLOCK']}_{specialization.signature['n']}"


def describe(grid, metadata, args):
    return {"grid": grid, "bytes": args["out_ptr"].nbytes, "shared": metadata.shared}


@tilewright.jit(repr=named, launch_metadata=describe, version=3)
def fill(out_ptr, value, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, value, mask=offsets < n)


# --- devices ------------------------------------------------------------------------------------------


def test_the_cpu_is_the_active_device():
    driver = tilewright.runtime.driver.active
    assert driver.is_active() and driver.get_current_device() == 0 and driver.get_current_stream(0) == 0
    target = driver.get_current_target()
    assert (target.backend, target.warp_size) == ("cpu", 1) and target.arch
    properties = driver.utils.get_device_properties(0)
    assert properties["multiprocessor_count"] >= 1 and properties["warpSize"] == 1
    assert properties["max_num_regs"] in (16, 32) and properties["max_shared_mem"] == cache_bytes(2)


def test_there_is_one_cpu_device():
    driver = CpuDriver()
    driver.set_current_device(0)
    with pytest.raises(UnsupportedError, match="no CPU device 1"):
        driver.set_current_device(1)


def test_torch_is_told_its_device():
    torch = pytest.importorskip("torch")
    driver = tilewright.runtime.driver.active
    assert driver.get_active_torch_device() == torch.device("cpu")
    driver.get_device_interface().synchronize()


def test_the_driver_can_be_replaced():
    driver, other = tilewright.runtime.driver, CpuDriver()
    driver.set_active(other)
    assert driver.active is other
    driver.reset_active()
    assert driver.active is driver.default


# --- compiling and launching apart --------------------------------------------------------------------


def test_warmup_compiles_and_the_kernel_launches_with_all_arguments():
    out = np.zeros(10, np.int32)
    kernel = fill.warmup(out, 7, 10, BLOCK=16, grid=(1,))
    assert not out.any()
    kernel._init_handles()
    kernel[(1, 1, 1)](out, 7, 10, 16)
    assert out.tolist() == [7] * 10
    assert (kernel.n_regs, kernel.n_spills, kernel.packed_metadata) == (0, 0, (4, 1, 0))
    with pytest.raises(ArgumentError, match=r"fill_16_i32: takes 4 arguments \(out_ptr, value, n, BLOCK\), got 2"):
        kernel[(1,)](out, 7)


def test_a_compiled_kernel_launches_without_its_constants():
    out = np.zeros(10, np.int32)
    kernel = fill.warmup(out, 7, 10, BLOCK=16, grid=(1,))
    for value in (7, 8, 9):  # the second launch may go another way than the first
        kernel[(1, 1, 1)](out, value, 10)
        assert out.tolist() == [value] * 10


def test_metadata_is_read_by_key_and_by_attribute():
    kernel = fill.warmup(np.zeros(10, np.int32), 7, 10, BLOCK=16, grid=(1,), num_stages=2, enable_fp_fusion=False)
    assert kernel.metadata.num_stages == kernel.metadata["num_stages"] == 2
    assert kernel.metadata.shared == 0 and kernel.metadata.hash == kernel.hash and kernel.metadata.name == "fill_16_i32"
    with pytest.raises(AttributeError, match="no 'cluster'"):
        kernel.metadata.cluster


def test_warmup_takes_dtypes_for_tensors():
    torch = pytest.importorskip("torch")
    kernel = fill.warmup(torch.float16, 1.5, 64, BLOCK=16, grid=(1,))
    assert kernel.specialization.signature["out_ptr"] == "*fp16"


def test_mock_tensors_have_a_type_an_address_and_strides():
    mock = tilewright.MockTensor(tl.float32, [2, 3, 4])
    assert mock.data_ptr() == 0 and mock.stride() == (12, 4, 1)
    assert fill.warmup(mock, 1.5, 64, BLOCK=16, grid=(1,)).specialization.signature["out_ptr"] == "*fp32"


@pytest.mark.parametrize("constants", [{"BLOCK": 16}, {(3,): 16}, {3: tl.constexpr(16)}])
def test_a_written_signature_compiles(constants):
    signature = {"out_ptr": "*i32", "value": "i32", "n": "i32", "BLOCK": "constexpr"}
    source = tilewright.compiler.ASTSource(fill, signature, constants, {(0,): [["tt.divisibility", 16]]})
    kernel = tilewright.compile(source, options={"num_warps": 2})
    out = np.zeros(16, np.int32)
    kernel[(1,)](out, 3, 5, 16)
    assert out.tolist() == [3] * 5 + [0] * 11
    assert source.constants == {(3,): 16} and source.name == "fill" and kernel.metadata.num_warps == 2
    assert kernel.specialization.attributes == {(0,): [["tt.divisibility", 16]]}


def test_written_signatures_differ_in_their_hash():
    signature = {"out_ptr": "*i32", "value": "i32", "n": "i32"}
    hashes = {tilewright.compiler.ASTSource(fill, signature, {"BLOCK": block}).hash() for block in (16, 16, 32)}
    assert len(hashes) == 2


def test_a_written_signature_must_be_complete():
    with pytest.raises(ArgumentError, match="`n`"):
        tilewright.compile(tilewright.compiler.ASTSource(fill, {"out_ptr": "*i32", "value": "i32"}, {"BLOCK": 16}))
    with pytest.raises(ArgumentError, match="no parameter 'm'"):
        tilewright.compiler.ASTSource(fill, {}, {"m": 16})
    with pytest.raises(ArgumentError, match="takes an ASTSource or the file of a stage, got JITFunction"):
        tilewright.compile(fill)
    with pytest.raises(ArgumentError, match=r"no file kernel\.ptx"):
        tilewright.compile("kernel.ptx")


def test_a_file_of_tile_ir_compiles_and_runs(tmp_path):
    path, out = tmp_path / "fill.ttir", np.zeros(10, np.int32)
    path.write_text(fill.warmup(out, 7, 10, BLOCK=16, grid=(1,)).asm["ttir"])
    source = tilewright.compiler.IRSource(path)
    assert source.name == "fill_16_i32" and list(source.signature.values()) == ["*i32", "i32", "i32"]
    for made in (source, str(path), source):
        out[:] = 0
        kernel = tilewright.compile(made, options={"num_warps": 8})
        kernel[(1,)](out, 7, 9)
        assert out.tolist() == [7] * 9 + [0] and kernel.metadata.num_warps == 8


def test_a_reduction_of_text_that_prints_is_refused(tmp_path):
    """The front end makes loops of these; what Triton writes has the print inside of the reduction."""
    path = tmp_path / "printing.ttir"
    path.write_text("""
module {
  tt.func public @printing(%out: !tt.ptr<i32>) {
    %x = tt.make_range {end = 8 : i32, start = 0 : i32} : tensor<8xi32>
    %sum = "tt.reduce"(%x) <{axis = 0 : i32}> ({
    ^bb0(%a: i32, %b: i32):
      %c = arith.addi %a, %b : i32
      tt.print " partial: " {hex = false, isSigned = array<i32: 1>} : %c : i32
      tt.reduce.return %c : i32
    }) : (tensor<8xi32>) -> i32
    tt.store %out, %sum : !tt.ptr<i32>
    tt.return
  }
}
""")
    with pytest.raises(UnsupportedError, match="tt.reduce with a function that prints or asserts"):
        tilewright.compile(path)


# --- stand-ins, allocators ----------------------------------------------------------------------------


def test_reinterpret_shows_the_bits_as_another_type():
    torch = pytest.importorskip("torch")
    base = torch.zeros(4, dtype=torch.int32)
    wrapped = tilewright.reinterpret(base, tl.float32)
    fill[(1,)](wrapped, 1.0, 4, BLOCK=4)
    assert base.tolist() == [0x3F800000] * 4
    assert wrapped.shape == base.shape and wrapped.stride() == (1,) and wrapped.element_size() == 4
    copy = wrapped.clone()
    copy.base.zero_()
    wrapped.copy_(copy)
    assert not base.any() and tilewright.reinterpret(wrapped, torch.int32) is base
    assert isinstance(wrapped.new_empty([2]), tilewright.TensorWrapper)


def test_only_tensors_are_reinterpreted():
    with pytest.raises(TypeError, match="Cannot reinterpret a float"):
        tilewright.reinterpret(1.0, tl.float16)


def test_the_allocator_is_kept_in_the_context():
    import contextvars

    with pytest.raises(LaunchError, match=r"no allocator was set.*\n.*set_allocator"):
        contextvars.Context().run(lambda: get_allocator()(16, 16, None))

    def allocate(size, alignment, stream):
        return np.empty(size, np.int8)

    def inside():
        tilewright.set_allocator(allocate)
        return get_allocator()

    assert contextvars.copy_context().run(inside) is allocate
    assert get_allocator() is not allocate


# --- hooks --------------------------------------------------------------------------------------------


@pytest.fixture
def hooks():
    runtime = tilewright.knobs.runtime
    yield runtime
    runtime.launch_enter_hook.calls.clear()
    runtime.launch_exit_hook.calls.clear()
    runtime.jit_cache_hook = runtime.jit_post_compile_hook = None


def test_launch_hooks_surround_a_launch(hooks):
    events, out = [], np.zeros(10, np.int32)
    hooks.launch_enter_hook.add(lambda facts: events.append((out[0].item(), facts.get())))
    hooks.launch_exit_hook.add(lambda facts: events.append((out[0].item(), facts.get())))
    kernel = fill[lambda meta: (1,)](out, 7, 10, BLOCK=16)
    assert isinstance(kernel, tilewright.CompiledKernel)
    assert [seen for seen, _ in events] == [0, 7]
    facts = events[0][1]
    assert facts["name"] == "fill_16_i32" and facts["grid"] == (1,) and facts["bytes"] == 40 and facts["shared"] == 0


def test_pre_run_hooks_see_the_arguments():
    kernel, seen = tilewright.jit(fill.fn), []
    kernel.add_pre_run_hook(lambda *args, **kwargs: seen.append((args[1:], kwargs)))
    kernel[(1,)](np.zeros(4, np.int32), 7, 4, BLOCK=4)
    assert seen == [((7, 4), {"BLOCK": 4})]


def test_compile_hooks_are_told_what_is_compiled(hooks):
    seen = []
    hooks.jit_cache_hook = lambda **facts: seen.append(("before", facts))
    hooks.jit_post_compile_hook = lambda **facts: seen.append(("after", facts))
    kernel = tilewright.jit(fill.fn)
    kernel[(1,)](np.zeros(4, np.int32), 7, 4, BLOCK=4)
    kernel[(1,)](np.zeros(4, np.int32), 7, 4, BLOCK=4)
    assert [when for when, _ in seen] == ["before", "after"]
    facts = seen[0][1]
    assert facts["fn"].jit_function is kernel and facts["fn"].name == "fill" and "n: i32" in facts["repr"]
    assert facts["compile"]["signature"]["out_ptr"] == "*i32" and facts["compile"]["num_warps"] == 4
    assert facts["is_manual_warmup"] is facts["compile"]["is_warmup"] is False and facts["compile"]["device"] == 0


def test_chains_call_in_order_or_backwards():
    seen, chain, back = [], HookChain(), HookChain(reverse=True)
    first, second = (lambda: seen.append(1)), (lambda: seen.append(2))
    for hooks in (chain, back):
        hooks.add(first)
        hooks.add(second)
        hooks.add(first)
        hooks()
    assert seen == [1, 2, 2, 1]
    chain.remove(first)
    chain.remove(first)
    assert chain.calls == [second] and chain and not HookChain()


def test_lazy_facts_are_computed_once_and_when_asked():
    calls = []
    facts = LazyDict({"a": 1})
    facts.add(lambda x: calls.append(x) or {"b": x}, (2,))
    assert not calls
    assert facts.get() == facts.get() == {"a": 1, "b": 2} and calls == [2]


def test_jit_functions_show_their_source():
    assert fill.src.startswith("def fill(out_ptr") and fill.arg_names == ["out_ptr", "value", "n", "BLOCK"]
    assert isinstance(fill, tilewright.KernelInterface) and fill.version == 3


def test_the_texts_of_a_kernel_from_the_disk_cache_are_made_when_asked_for():
    arguments = (np.zeros(8, np.int32), 7, 8)
    first = tilewright.jit(fill.fn).warmup(*arguments, BLOCK=8)
    again = tilewright.jit(fill.fn).warmup(*arguments, BLOCK=8)
    assert again.from_disk and list(again.asm) == list(first.asm) == ["ttir", "nest", "loops", "llir", "obj"]
    assert again.asm["ttir"] == first.asm["ttir"] and again.asm["llir"] == first.asm["llir"]
    assert pickle.loads(pickle.dumps(again.asm)) == again.asm  # they are all there by now
    with pytest.raises(KeyError):
        again.asm["ptx"]


def test_what_nobody_asks_for_is_not_printed(monkeypatch):
    printed = []
    monkeypatch.setattr(
        "tilewright.ops.text.print_module", lambda module: printed.append(module) or print_module(module)
    )
    monkeypatch.setattr(tilewright.knobs.cache, "disabled", True)
    made = tilewright.jit(fill.fn).warmup(np.zeros(8, np.int32), 7, 8, BLOCK=8)
    assert not printed and "ttir" in made.asm and "ptx" not in made.asm
    assert "tt.store" in made.asm["ttir"] and "tt.store" in made.asm["ttir"] and len(printed) == 1


@pytest.mark.parametrize(
    "line",
    [
        "from tilewright.language.extra import libdevice",
        "from tilewright.language.extra.libdevice import tanh",
        "from tilewright.language.extra.cuda import libdevice",
        "from tilewright.language.extra.cuda.libdevice import rsqrt, tanh",
        "from tilewright.language.math import rsqrt",
        "from tilewright.runtime import driver, Autotuner, Heuristics, JITFunction",
        "from tilewright.tuning.autotune import Autotuner, Config, Heuristics",
        "from tilewright.runtime.errors import OutOfResources",
        "from tilewright.launch.jit import JITFunction, KernelInterface",
        "from tilewright.compiler import ASTSource, CompiledKernel, CompilationError",
        "from tilewright.testing import do_bench, perf_report",
        "from tilewright.tools.tensor_descriptor import TensorDescriptor",
        "from tilewright.language import core, constexpr, dtype, pointer_type, tensor",
        "import tilewright.language.core as core",
    ],
)
def test_the_import_lines_of_triton_programs_work(line):
    exec(line, {})


@tilewright.jit
def vendor_functions(x_ptr, out_ptr):
    x = tl.load(x_ptr + tl.arange(0, 8))
    tl.store(out_ptr + tl.arange(0, 8), rsqrt(x) + tl.extra.cuda.libdevice.tanh(x))


def test_functions_of_the_vendor_library_run_by_their_cuda_name():
    x, out = np.arange(1, 9, dtype=np.float32), np.zeros(8, np.float32)
    vendor_functions[(1,)](x, out)
    np.testing.assert_allclose(out, 1 / np.sqrt(x) + np.tanh(x), rtol=1e-6)
