"""The launcher: what reaches the driver, on which device and stream, and what failures become."""

from __future__ import annotations

import ctypes
import gc
import signal
import struct
import threading
from typing import Any

import pytest

from tests.backends.nvidia.fake_cuda import FakeCuda
from tilewright.backends.nvidia.device import assertions, driver, libcuda, stub
from tilewright.backends.nvidia.device.launch import LoadedKernel, make_launch
from tilewright.base.errors import DeviceAssertionError, DriverError, GridError, OutOfResources


def kernel(*types: str, **facts: Any) -> LoadedKernel:
    usual = {
        "name": "add", "symbol": "add", "types": list(types), "shared": 0, "block_warps": 4, "cluster": 1,
        "asserts": [], "needs_log": False,
    }  # fmt: skip
    return LoadedKernel(b"\x7fELF", {**usual, **facts})


def test_a_launch(fake: FakeCuda) -> None:
    launch = make_launch(kernel("*fp32", "i32", "fp32", shared=70_000, block_warps=8), 1)
    launch(7, 3, 2, 0xDEAD_BEEF_F00D, -5, 1.5)
    assert fake.launches == [
        {
            "grid": (7, 3, 2), "block": (256, 1, 1), "shared": 70_000, "stream": 0, "function": 0x3000 + 0x1001,
            "context": 0x1001, "attributes": [], "parameters": struct.pack("=Qif", 0xDEAD_BEEF_F00D, -5, 1.5),
        }
    ]  # fmt: skip
    assert fake.current == [0] and driver.recent == {1: "add"}


def test_the_context_that_is_there_is_used(fake: FakeCuda) -> None:
    launch = make_launch(kernel(), 0)
    driver.set_current_device(0)
    fake.calls.clear()
    launch(1, 1, 1)
    assert [name for name, _ in fake.calls] == ["cuCtxGetCurrent", "cuLaunchKernelEx"]
    assert fake.launches[0]["parameters"] == b""


@pytest.mark.parametrize(
    ("types", "values", "packed"),
    [
        (("i8", "*i8", "i16", "fp64"), (-1, 64, 7, 0.5), struct.pack("=b7xQh6xd", -1, 64, 7, 0.5)),
        (("u1", "u1", "i32"), (True, 0, 9), struct.pack("=??2xi", True, False, 9)),
        (("fp16", "bf16", "fp32"), (1.5, 1.0, 2), struct.pack("=eHf", 1.5, 0x3F80, 2.0)),
        (("fp32", "fp16"), (1e300, -1e9), struct.pack("=fe2x", float("inf"), float("-inf"))[:6]),
        (("u32", "i32", "i64"), (-1, 2**31, 2**63), struct.pack("=IIQ", 2**32 - 1, 2**31, 2**63)),
        (("u64", "i8"), (-1, 300), struct.pack("=QB", 2**64 - 1, 44)),
        (("i32", "*fp32"), (2.7, 0), struct.pack("=i4xQ", 2, 0)),
    ],
)
def test_parameters_lie_where_ptx_has_them(
    fake: FakeCuda, types: tuple[str, ...], values: tuple[Any, ...], packed: bytes
) -> None:
    make_launch(kernel(*types), 0)(1, 1, 1, *values)
    assert fake.launches[0]["parameters"] == packed


def test_tensor_maps_follow_the_parameters(fake: FakeCuda) -> None:
    recipe = {
        "element": "fp16", "base": [1, None], "shape": [[2, None], [None, 1]], "strides": [[0, None], [None, 1]],
        "box": [8, 64], "swizzle": 128, "nan_padding": False, "round_to_tf32": False,
    }  # fmt: skip
    offsets = [0, 8, 16, 48, 176]  # as the assembler has them: it aligns in the bank of all parameters

    def tell(function: int, number: int, offset: int, size: int) -> None:
        ctypes.c_size_t.from_address(offset).value = offsets[number]

    fake.acts["cuFuncGetParamInfo"] = tell
    fake.acts["cuTensorMapEncodeTiled"] = lambda out, *rest: ctypes.memset(out, 0xCD, 128) and None
    launch = make_launch(kernel("i64", "*fp16", "i32", tensor_maps=[recipe], asserts=["n"], needs_log=True), 1)
    for address in (0x7000, 0x7000, 0x7100):
        launch(1, 1, 1, 72, address, 100)
    first, *_, last = (told["parameters"] for told in fake.launches)
    assert first[:20] == struct.pack("=qQi", 72, 0x7000, 100) and last[8:16] == struct.pack("=Q", 0x7100)
    assert first[48:176] == b"\xcd" * 128 and len(first) == 184  # the log comes last
    described = [args for name, args in fake.calls if name == "cuTensorMapEncodeTiled"]
    assert [args[3] for args in described] == [0x7000, 0x7100]  # equal maps are made once


@pytest.mark.parametrize(
    ("grid", "blocks"), [((7, 3, 2), 42), ((1, 1, 1), 1), ((100, 70_000, 3), 264), ((2**31 - 1, 1, 1), 264)]
)
def test_blocks_that_run_one_program_after_the_other(fake: FakeCuda, grid: tuple[int, ...], blocks: int) -> None:
    """As many as run at a time; the kernel is told the grid."""
    fake.acts["cuOccupancyMaxActiveBlocksPerMultiprocessor"] = lambda out, function, threads, shared: (
        setattr(ctypes.c_int.from_address(out), "value", 2) if (threads, shared) == (384, 70_000) else None
    )
    facts = {"persistent": True, "shared": 70_000, "block_warps": 12}
    launch = make_launch(kernel("*fp32", "u1", **facts), 0)
    launch(*grid, 0xDEAD_BEEF, True)
    (told,) = fake.launches
    assert told["grid"] == (blocks, 1, 1)
    assert told["parameters"] == struct.pack("=Q?3xIII", 0xDEAD_BEEF, True, *grid)
    make_launch(kernel("*fp32", "u1", **{**facts, "persistent": False}), 0)(2, 3, 4, 0xDEAD_BEEF, True)
    assert fake.launches[-1]["grid"] == (2, 3, 4) and fake.launches[-1]["parameters"] == struct.pack(
        "=Q?", 0xDEAD_BEEF, 1
    )


def test_more_programs_than_blocks_can_count(fake: FakeCuda) -> None:
    launch = make_launch(kernel(persistent=True), 0)
    with pytest.raises(GridError, match=r"2147483647 programs"):
        launch(2**31 - 1, 65535, 2)
    assert not fake.launches


def test_the_log_follows_the_grid(fake: FakeCuda) -> None:
    launch = make_launch(kernel("i32", persistent=True, asserts=["n"], needs_log=True), 1)
    launch(5, 6, 7, -1)
    parameters = fake.launches[0]["parameters"]
    assert parameters[:16] == struct.pack("=iIII", -1, 5, 6, 7) and struct.unpack("=Q", parameters[16:])[0] != 0


def test_attributes(fake: FakeCuda) -> None:
    make_launch(kernel(cluster=2), 0, cooperative=True, programmatic=True)(5, 1, 1)
    (told,) = fake.launches
    assert told["grid"] == (10, 1, 1)
    assert told["attributes"] == [(4, (2, 1, 1)), (2, (1, 0, 0)), (6, (1, 0, 0))]


def test_streams(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    class Torch:
        class _C:
            @staticmethod
            def _cuda_getCurrentRawStream(ordinal: int) -> int:
                return 0x5000 + ordinal

    monkeypatch.setitem(driver.sys.modules, "torch", Torch)
    make_launch(kernel(), 1)(1, 1, 1)
    make_launch(kernel(), 1, stream=0x77)(1, 1, 1)
    monkeypatch.setitem(driver.sys.modules, "torch", object())  # torch without GPUs
    make_launch(kernel(), 1)(1, 1, 1)
    assert [told["stream"] for told in fake.launches] == [0x5001, 0x77, 0]


def test_a_kernel_is_loaded_once_for_each_gpu(fake: FakeCuda) -> None:
    loaded = kernel()
    for ordinal in (0, 1, 0, 1):
        make_launch(loaded, ordinal)(1, 1, 1)
    assert fake.names().count("cuModuleLoadDataEx") == 2
    assert [told["context"] for told in fake.launches] == [0x1000, 0x1001] * 2


def test_launches_of_several_threads_share_nothing(fake: FakeCuda) -> None:
    launch = make_launch(kernel("i64", "i64"), 0)

    def work(number: int) -> None:
        for turn in range(200):
            launch(1 + number, 1, 1, number, turn)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seen = sorted((told["grid"][0] - 1, *struct.unpack("=qq", told["parameters"])) for told in fake.launches)
    assert seen == sorted((number, number, turn) for number in range(4) for turn in range(200))


# --- failures ---------------------------------------------------------------------------------------------


def test_a_fault_of_an_earlier_kernel(fake: FakeCuda) -> None:
    make_launch(kernel(name="first"), 0)(1, 1, 1)
    fake.fails["cuLaunchKernelEx"] = 700
    with pytest.raises(DriverError) as raised:
        make_launch(kernel(name="second"), 0)(4, 1, 1)
    text = str(raised.value)
    assert "launching kernel `second` with grid (4, 1, 1)" in text and "kernel `first` was launched before it" in text
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in text and "CPU tensors" in text and raised.value.code == 700
    assert driver.recent == {0: "first"} and fake.current == [0]


def test_a_context_that_is_refused(fake: FakeCuda) -> None:
    launch = make_launch(kernel(), 1)
    fake.fails["cuCtxPushCurrent"] = 201
    with pytest.raises(DriverError, match="201"):
        launch(1, 1, 1)
    assert not fake.launches


def test_a_grid_that_no_gpu_takes(fake: FakeCuda) -> None:
    launch = make_launch(kernel(), 0)
    fake.fails["cuLaunchKernelEx"] = 1
    with pytest.raises(GridError, match="65535 programs along y and z") as raised:
        launch(1, 70_000, 1)
    assert "x may be up to" in str(raised.value)
    with pytest.raises(DriverError, match="invalid argument"):
        launch(1, 65_535, 1)


def test_more_shared_memory_than_the_gpu_has(fake: FakeCuda) -> None:
    with pytest.raises(OutOfResources, match="shared memory, Required: 232449, Hardware limit: 232448"):
        make_launch(kernel(shared=232_449), 0)


def test_more_registers_than_a_block_may_have(fake: FakeCuda) -> None:
    fake.facts |= {0: 512, 4: 128}
    with pytest.raises(OutOfResources, match="threads, Required: 1024, Hardware limit: 512") as raised:
        make_launch(kernel(block_warps=32), 0)
    assert "128 registers" in str(raised.value) and "num_warps" in str(raised.value)


def test_a_failed_assertion(fake: FakeCuda) -> None:
    launch = make_launch(kernel("i32", asserts=["n is even", "n is small"], needs_log=True), 1)

    def check(parameters: bytes) -> None:
        number, log = struct.unpack("=i4xQ", parameters)
        if number > 100:
            ctypes.c_int.from_address(log).value = 2

    fake.kernel = check
    launch(1, 1, 1, 2)
    with pytest.raises(DeviceAssertionError, match="device-side assert in add: n is small"):
        launch(1, 1, 1, 102)
    launch(1, 1, 1, 4)  # the log is clean again
    asked = fake.names().count("cuStreamQuery")
    assert asked == 3 and fake.current == [0]
    fake.captures = True
    launch(1, 1, 1, 102)
    assert fake.names().count("cuStreamQuery") == asked  # forbidden while a graph is captured


def test_a_failed_assertion_that_traps(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """Nobody waits; what the driver says afterwards is explained, and said at the end of the process."""
    monkeypatch.setattr(assertions, "_trapping", [])
    monkeypatch.setattr(libcuda, "reasons", [])
    monkeypatch.setattr("tilewright.knobs.cuda.assertions", "trap")
    launch = make_launch(kernel("i32", asserts=["n is even", "n is small"], needs_log=True), 1)
    other = make_launch(kernel(name="other"), 1)

    def check(parameters: bytes) -> None:
        if parameters:
            number, address = struct.unpack("=i4xQ", parameters)
            log = (ctypes.c_int * 16).from_address(address)
            assert log[4] == 1
            if number > 100:
                log[:4] = [2, 5, 6, 7]
                fake.fails |= {"cuLaunchKernelEx": 719, "cuCtxSynchronize": 719}

    fake.kernel = check
    launch(1, 1, 1, 2)
    packing = launch.packing  # type: ignore[attr-defined]
    assert packing.slots == ((stub.HEADER_BYTES, 4),)  # machine code writes the number, the stub where the log is
    block = struct.pack(f"{stub.HEADER}i12x", packing.record, 0, 4, 5, 6, 8)
    assert stub.launch_stub()(block) == 0
    assert fake.launches[-1]["grid"] == (4, 5, 6)
    assert fake.launches[-1]["parameters"] == struct.pack("=i", 8) + fake.launches[-2]["parameters"][4:]
    launch(1, 1, 1, 102)
    assert "cuStreamQuery" not in fake.names()
    wanted = r"device-side assert in add: n is small \(program \(5, 6, 7\)\)"
    for failing in (lambda: launch(1, 1, 1, 2), lambda: other(1, 1, 1), lambda: driver.synchronize(1)):
        with pytest.raises(DeviceAssertionError, match=wanted) as raised:
            failing()
        assert "TILEWRIGHT_ASSERTIONS=wait" in str(raised.value)
    fake.fails["cuLaunchKernelEx"] = 1
    with pytest.raises(DriverError, match="invalid argument"):  # no fault of running code
        other(1, 1, 1)
    assertions._tell()
    assert "DeviceAssertionError: device-side assert in add: n is small" in capsys.readouterr().err


def test_the_first_launch_may_be_in_a_graph(fake: FakeCuda) -> None:
    """Loading code, and taking and giving memory, would end the capture: by the launch, and by the collector."""
    fake.captures = True
    checked = kernel("i32", asserts=["n is even"], needs_log=True)
    logs = []
    for stream in (5, 6):  # the log belongs to the code, not to the stream
        make_launch(checked, 1, stream=stream)(1, 1, 1, 2)
        logs.append(struct.unpack("=i4xQ", fake.launches[-1]["parameters"])[1])
    assert logs[0] == logs[1]
    del checked
    gc.collect()
    assert fake.names().count("cuModuleUnload") == 1
    assert not fake.memory and fake.mode == 0 and fake.current == [0]


def test_ctrl_c_ends_the_wait_for_a_launch(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU is never done: between two questions the signal comes, and its handler raises."""
    launch = make_launch(kernel("i32", asserts=["n is even"], needs_log=True), 1)
    launch(1, 1, 1, 2)
    fake.acts["cuStreamQuery"] = lambda stream: 600
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 5:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(driver.time, "sleep", nap)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        for wait in (lambda: launch(1, 1, 1, 2), lambda: driver.synchronize(1), lambda: driver.wait_for_stream(0)):
            naps.clear()
            with pytest.raises(KeyboardInterrupt):
                wait()
            assert len(naps) == 5 and 0 < max(naps) <= 1e-3 and fake.current == [0]
    finally:
        signal.signal(signal.SIGINT, before)
    del fake.acts["cuStreamQuery"]
    launch(1, 1, 1, 4)


def test_the_wait_of_another_thread_is_the_driver_s(fake: FakeCuda) -> None:
    worker = threading.Thread(target=driver.wait_for_stream, args=(7,))
    worker.start()
    worker.join()
    assert [name for name in fake.names() if name.startswith("cuStream")] == ["cuStreamSynchronize"]


def test_what_the_wait_finds_is_raised(fake: FakeCuda) -> None:
    launch = make_launch(kernel("i32", asserts=["n is even"], needs_log=True), 1)
    answers = [600, 600, 700]
    fake.acts["cuStreamQuery"] = lambda stream: answers.pop(0)
    with pytest.raises(DriverError, match="running kernel `add`: an illegal memory access"):
        launch(1, 1, 1, 2)


def test_the_stub_is_kept_for_the_next_process(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.backends.llvm.codegen._provided", {})  # bundles that were loaded bring it along

    class Cache(dict[str, bytes]):
        get_bytes = dict.get
        put_bytes = dict.__setitem__

    cache = Cache()
    stub.set_cache(cache)
    try:
        stub.launch_stub.cache_clear()
        make_launch(kernel(), 0)(1, 1, 1)
        (key,) = cache
        cache[key] = b"damaged"
        stub.launch_stub.cache_clear()
        make_launch(kernel(), 0)(2, 1, 1)
    finally:
        stub.set_cache(None)
    assert [told["grid"][0] for told in fake.launches] == [1, 2] and cache[key] != b"damaged"
