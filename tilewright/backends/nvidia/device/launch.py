"""From a compiled kernel to a Python callable that launches it on a GPU.

A launch packs one block of bytes (record, stream, grid, parameters) and makes one foreign call with it (`stub.py`),
which returns when the driver has queued the kernel. The stream is the one that torch has current for the GPU, else the
default stream. A kernel with `tl.device_assert` is waited for, and a failed assertion raised, unless it is to end the
context (`assertions.py`).
"""

from __future__ import annotations

import functools
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.backends.llvm.calls.tables import MOST_BYTES
from tilewright.backends.llvm.slots import coerce, natural_format
from tilewright.backends.nvidia.arch import WARP
from tilewright.backends.nvidia.device import driver, tensormap
from tilewright.backends.nvidia.device.assertions import Log
from tilewright.backends.nvidia.device.libcuda import FAULTS, cuda
from tilewright.backends.nvidia.device.streams import stream_function, torch_streams
from tilewright.backends.nvidia.device.stub import (
    HEADER,
    HEADER_BYTES,
    MOST_PROGRAMS,
    TENSOR_MAP,
    Record,
    launch_stub,
    parameter_format,
    parameter_offsets,
    stub_address,
)  # fmt: skip
from tilewright.backends.nvidia.device.tensormap import MAP_BYTES
from tilewright.backends.protocol import ALWAYS, Maps, Packing
from tilewright.base.errors import ArgumentError, GridError, OutOfResources, TilewrightError
from tilewright.base.tracebacks import shorten_traceback

Launch = Callable[..., None]
Pack = Callable[..., bytes]

MAX_GRID_YZ = 65535
_GRID = ["i32"] * 3  # parameters that the stub fills
_INVALID_VALUE = 1


class LoadedKernel:
    """A kernel that GPUs load when they are first asked to run it.

    Args:
        image: cubin, or PTX text for the driver's compiler.
        metadata: facts from the stages: `symbol`, `name`, `types`, `shared`, `block_warps`, ...
    """

    def __init__(self, image: bytes, metadata: Mapping[str, Any]) -> None:
        self.image, self.metadata = image, dict(metadata)
        self._functions: dict[int, driver.Function] = {}
        self._logs: dict[int, Log] = {}
        self._lock = threading.Lock()

    def on(self, ordinal: int) -> driver.Function:
        """The kernel in the memory of a GPU.

        Raises:
            OutOfResources: the GPU has less shared memory, or takes fewer threads, than the kernel needs.
            DriverError: the driver refuses the code.
        """
        with self._lock:
            found = self._functions.get(ordinal)
            if found is None:
                found = self._functions[ordinal] = self._load(ordinal)
        return found

    def log(self, ordinal: int) -> Log:
        """Where the kernel writes which of its assertions failed on a GPU, one for all streams."""
        with self._lock:
            found = self._logs.get(ordinal)
            if found is None:
                found = self._logs[ordinal] = Log(ordinal, self.metadata["name"], self.metadata["asserts"])
        return found

    def blocks(self, ordinal: int) -> int:
        """How many blocks of the kernel a GPU runs at a time."""
        facts, many = self.metadata, driver.device(ordinal).attributes["multiprocessors"]
        return many * max(1, self.on(ordinal).blocks_per_multiprocessor(facts["block_warps"] * WARP, facts["shared"]))

    def _load(self, ordinal: int) -> driver.Function:
        facts, limits = self.metadata, driver.device(ordinal).attributes
        if facts["shared"] > limits["shared_limit"]:
            raise OutOfResources(facts["shared"], limits["shared_limit"], "shared memory")
        function = driver.Function(self.image, facts["symbol"], ordinal, facts["name"], facts["shared"])
        threads = facts["block_warps"] * WARP
        if threads > function.max_threads:
            raise OutOfResources(
                threads, function.max_threads, "threads",
                f"each thread of `{facts['name']}` takes {function.registers} registers",
                "Lower num_warps, or set maxnreg.",
            )  # fmt: skip
        return function


def make_launch(
    kernel: LoadedKernel, ordinal: int, *, stream: int | None = None, cooperative: bool = False,
    programmatic: bool = False, otherwise: Callable[[], Launch] | None = None,
) -> Launch:  # fmt: skip
    """A function that queues the kernel on a GPU.

    Args:
        kernel: the code.
        ordinal: the GPU.
        stream: handle of the stream of every launch; by default the one that is current at each launch.
        cooperative: all blocks of the grid must be resident at once (grid-wide barriers).
        programmatic: programmatic dependent launch: the kernel may start before its predecessor has ended.
        otherwise: gives what launches values that suit no tensor maps of pointers.

    Returns:
        `launch(gx, gy, gz, *values)`: the grid (positive integers), then an address or number per run-time parameter.
    """
    facts = kernel.metadata
    maps, takes_all = facts.get("tensor_maps", ()), facts.get("takes_all", True)
    otherwise = otherwise or functools.partial(_refuse, facts["name"])
    sizes = _GRID if facts.get("persistent") else []
    types = [*facts["types"], *[TENSOR_MAP] * len(maps), *sizes, *(["*u8"] if facts["needs_log"] else [])]
    function = kernel.on(ordinal)
    offsets = function.parameter_offsets(len(types)) if maps else None
    (form, size), places = parameter_format(types, offsets), parameter_offsets(types, offsets)
    log, given = kernel.log(ordinal) if facts["needs_log"] else None, len(facts["types"])
    record = Record(
        cuda(), driver.context(ordinal), function.handle, size, facts["block_warps"], facts["shared"], facts["cluster"],
        cooperative, programmatic, (places[-1][0], log.address) if log else (0, 0),
        (places[given + len(maps)][0], kernel.blocks(ordinal)) if sizes else (0, 0),
    )  # fmt: skip

    def hidden(values: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if not takes_all and not tensormap.suits(maps, values):
            return None
        made = (tensormap.encode(recipe, values, ordinal) for recipe in maps)
        return *made, *(0 for _ in sizes), *([log.address] if log else [])

    reader = driver.stream_reader() if stream is None else lambda _: stream
    explain = _Explain(facts["name"], ordinal, bool(sizes))
    launch = _launch_function(
        _packers(types, form), record, ordinal, reader, facts["cluster"], hidden if maps or sizes or log else None,
        explain, otherwise,
    )  # fmt: skip
    launch.kept = (kernel, function, record, log)  # type: ignore[attr-defined]
    if log and not log.traps:
        return _checked(launch, log, ordinal, reader, facts["name"])
    fits = HEADER_BYTES + size <= MOST_BYTES or not (log or maps or sizes)
    if fits and not {"fp16", "bf16"}.intersection(types):  # those scalars are rounded in Python
        assert [offset for offset, _ in places[given : given + len(maps)]] == [
            places[given][0] + MAP_BYTES * index for index in range(len(maps))
        ]  # 128 bytes at multiples of 64
        made_of = _described(maps, places[given][0], ordinal, record.address, otherwise, takes_all) if maps else None
        launch.packing = _packing(places[:given], record, launch, reader, stream, facts["cluster"], explain, made_of)  # type: ignore[attr-defined]
    return launch


def _refuse(name: str) -> Launch:
    raise ArgumentError(
        f"kernel `{name}`: the copy engine takes no tensor of these sizes, strides or alignment",
        hint="compile with tensor_maps=False",
    )


def _described(
    recipes: Sequence[tensormap.Recipe], offset: int, ordinal: int, record: int,
    otherwise: Callable[[], Launch], takes_all: bool,
) -> Maps:  # fmt: skip
    """The tensor maps of a kernel, which follow each other from an offset on among its parameters, with the record of
    the kernel that takes them: the other one where the values of a launch suit no map."""
    pairs = [pair for recipe in recipes for pair in (*recipe["shape"], *recipe["strides"])]

    def encode(values: Mapping[int, int]) -> tuple[int, bytes]:
        try:
            if not takes_all and not tensormap.suits(recipes, values):
                packing: Packing = otherwise().packing  # type: ignore[attr-defined]
                return (packing.record, b"") if packing.maps is None else packing.maps.encode(values)
            return record, b"".join(tensormap.encode(recipe, values, ordinal) for recipe in recipes)
        except Exception as error:
            shorten_traceback(error)
            raise

    natural = {slot for recipe in recipes for slot in recipe.get("natural", ())}
    sizes = tuple(sorted({slot for slot, _ in pairs if slot is not None} | natural))
    bases, move = tuple(recipe["base"][0] for recipe in recipes), cuda().address("cuTensorMapReplaceAddress")
    return Maps(HEADER_BYTES + offset, sizes, bases, move, encode)


def _packing(
    places: Sequence[tuple[int, int]], record: Record, launch: Launch, reader: Callable[[int], int],
    stream: int | None, cluster: int, explain: _Explain, maps: Maps | None,
) -> Packing:  # fmt: skip
    """How machine code launches; the stream is asked for at each launch unless it is given."""
    ordinal, own = explain.ordinal, stream is None and reader is torch_streams()
    slots = tuple((HEADER_BYTES + offset, size) for offset, size in places)
    return Packing(
        stub_address(), record.address, slots, 0 if stream is None else ALWAYS, stream or 0,
        functools.partial(reader, ordinal), cluster, explain.raised, launch,
        (stream_function(ordinal) if own else 0, ordinal), driver.recent.mark(ordinal, explain.kernel),
        maps=maps,
    )  # fmt: skip


def _launch_function(
    packers: tuple[Pack, Pack], record: Record, ordinal: int, reader: Callable[[int], int], cluster: int,
    hidden: Callable[[tuple[Any, ...]], tuple[Any, ...] | None] | None, explain: _Explain,
    otherwise: Callable[[], Launch],
) -> Launch:  # fmt: skip
    pack, convert = packers
    run, address = launch_stub(), record.address
    recent, name = driver.recent, explain.kernel

    def launch(gx: int, gy: int, gz: int, *values: Any) -> None:
        stream = reader(ordinal)
        try:
            block = pack(address, stream, gx, gy, gz, *values)
        except (OverflowError, struct.error):  # a float too large for f32, a negative unsigned
            block = convert(address, stream, gx, gy, gz, *values)
        code = run(block)
        if code:
            raise explain(code, gx, gy, gz)
        recent[ordinal] = name

    if hidden is None:
        return launch if cluster == 1 else lambda gx, gy, gz, *values: launch(gx * cluster, gy, gz, *values)

    def launch_with_hidden(gx: int, gy: int, gz: int, *values: Any) -> None:
        more = hidden(values)
        if more is None:
            otherwise()(gx, gy, gz, *values)
        else:
            launch(gx * cluster, gy, gz, *values, *more)

    return launch_with_hidden


def _packers(types: list[str], form: str) -> tuple[Pack, Pack]:
    """Two forms of `pack(record, stream, gx, gy, gz, *values)`: a quick one, which raises for what does not fit, and
    one that converts as a C cast would."""
    plain = struct.Struct(HEADER + form).pack

    def converting(record: int, stream: int, gx: int, gy: int, gz: int, *values: Any) -> bytes:
        slots = [
            value if kind == TENSOR_MAP else coerce(value, kind, natural_format(kind))
            for value, kind in zip(values, types, strict=True)
        ]
        return plain(record, stream, gx, gy, gz, *slots)

    return (converting if "bf16" in types else plain), converting


class _Explain:
    """Makes the error of a launch that the driver refused, or at which it reported the fault of an earlier one.

    Args:
        kernel: name of the kernel.
        ordinal: the GPU.
        persistent: blocks run one program after the other.
    """

    def __init__(self, kernel: str, ordinal: int, persistent: bool = False) -> None:
        self.kernel, self.ordinal, self.persistent = kernel, ordinal, persistent

    def raised(self, code: int, gx: int, gy: int, gz: int) -> None:
        """Raise that error."""
        try:
            raise self(code, gx, gy, gz)
        except Exception as error:
            shorten_traceback(error)
            raise

    def __call__(self, code: int, gx: int, gy: int, gz: int) -> TilewrightError:
        if code == _INVALID_VALUE and self.persistent and gx * gy * gz > MOST_PROGRAMS:
            return GridError(
                f"kernel `{self.kernel}`: blocks count no more than {MOST_PROGRAMS} programs, got {(gx, gy, gz)}",
                hint="persistent_programs=False makes each program a block",
            )
        if code == _INVALID_VALUE and max(gy, gz) > MAX_GRID_YZ:
            return GridError(
                f"kernel `{self.kernel}`: a GPU takes at most {MAX_GRID_YZ} programs along y and z, got {(gx, gy, gz)}",
                hint="put the largest number of programs first: x may be up to 2**31 - 1",
            )
        before = driver.recent.get(self.ordinal)
        earlier = f" (kernel `{before}` was launched before it)" if code in FAULTS and before else ""
        return cuda().error(code, f"launching kernel `{self.kernel}` with grid {(gx, gy, gz)}{earlier}")


def _checked(launch: Launch, log: Log, ordinal: int, reader: Callable[[int], int], name: str) -> Launch:
    """`launch`, then a wait, and an error if a device assertion failed. Nothing is waited for in a graph capture."""

    def launch_and_check(*args: Any) -> None:
        try:
            launch(*args)
            stream = reader(ordinal)
            with driver.current(ordinal):
                if driver.is_capturing(stream):
                    return
                driver.wait_for_stream(stream, f"running kernel `{name}`")
            failed = log.failed()
            if failed is not None:
                raise failed
        except Exception as error:
            shorten_traceback(error)
            raise

    return launch_and_check
