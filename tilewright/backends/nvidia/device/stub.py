"""Native code of the launcher: one call from Python per launch, whatever the kernel.

::

    tw_launch(block):                       block:  record, stream, grid x y z, parameters of the kernel
        if the context is another: push     record: addresses of driver functions, context, CUfunction, CUlaunchConfig
        the last parameter, if the record has it: its place = its value
        if blocks run one program after the other: its place = grid, grid = min(x * y * z, blocks at a time), 1, 1;
            x * y * z is more than they can count: -> 1
        cuLaunchKernelEx(config with grid and stream, function, parameters as one buffer)
        if pushed: pop
        -> the driver's code, 0 for success

The function touches no Python object, so ctypes lets other threads run meanwhile. Nothing in it is shared by launches.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.backends.llvm.codegen import load_helper
from tilewright.backends.llvm.features import host_triple
from tilewright.backends.llvm.slots import natural_format
from tilewright.backends.nvidia.arch import WARP
from tilewright.backends.nvidia.device.libcuda import Cuda
from tilewright.backends.nvidia.device.tensormap import MAP_BYTES
from tilewright.backends.protocol import ByteCache

TENSOR_MAP = "tensor map"  # type of a parameter that is 128 bytes
HEADER = "=QQIII4x"  # record, stream, grid; parameters follow at a multiple of 8
HEADER_BYTES = struct.calcsize(HEADER)
MOST_PROGRAMS = (1 << 31) - 1  # of blocks that run one after the other, which count them in 32 bits
# Words of the record: cuLaunchKernelEx, cuCtxGetCurrent, cuCtxPushCurrent, cuCtxPopCurrent, context, function, bytes of
# the parameters, then CUlaunchConfig (cuda.h): grid 0, block 12, shared bytes 24, stream 32, attributes 40, count 48;
# then the offset among the parameters and the value of one that is the same in every launch (value 0: there is none),
# the offset of the grid among them, and how many blocks run at a time (0: programs are blocks).
_RECORD = struct.Struct("=7Q 12x III I 4x 8x Q I 4x QQ QQ")
# CUlaunchAttributeID
_COOPERATIVE, _CLUSTER, _PROGRAMMATIC_STREAM = 2, 4, 6
_ATTRIBUTE_BYTES = 72

_TEXT = """
target triple = "{triple}"

define i32 @tw_launch(ptr %block) nounwind {{
  %current = alloca ptr
  %config = alloca [7 x i64], align 8
  %extra = alloca [5 x ptr], align 8
  %unread = alloca [2 x i64], align 8
  %record = load ptr, ptr %block
{copies}
  %stream.from = getelementptr i8, ptr %block, i64 8
  %stream.to = getelementptr i8, ptr %config, i64 32
  %stream = load i64, ptr %stream.from
  store i64 %stream, ptr %stream.to
  %arguments = getelementptr i8, ptr %block, i64 {header}
  %size = getelementptr i8, ptr %record, i64 48
  %offset.at = getelementptr i8, ptr %record, i64 112
  %value.at = getelementptr i8, ptr %record, i64 120
  %offset = load i64, ptr %offset.at
  %value = load i64, ptr %value.at
  %place = getelementptr i8, ptr %arguments, i64 %offset
  %absent = icmp eq i64 %value, 0
  %target = select i1 %absent, ptr %current, ptr %place
  store i64 %value, ptr %target, align 1
  %grid.at = getelementptr i8, ptr %record, i64 128
  %most.at = getelementptr i8, ptr %record, i64 136
  %grid.offset = load i64, ptr %grid.at
  %most = load i64, ptr %most.at
  %blocks = icmp eq i64 %most, 0
  %grid.place = getelementptr i8, ptr %arguments, i64 %grid.offset
  %sizes = select i1 %blocks, ptr %unread, ptr %grid.place
{grid}
  %few = icmp ule i64 %all, {programs}
  %fits = or i1 %blocks, %few
  br i1 %fits, label %counted, label %uncountable

uncountable:
  ret i32 1

counted:
{extras}
  %bytes = load i64, ptr %size
  %none = icmp eq i64 %bytes, 0
  %passed = select i1 %none, ptr null, ptr %extra
  %launch = load ptr, ptr %record
  %get.at = getelementptr i8, ptr %record, i64 8
  %push.at = getelementptr i8, ptr %record, i64 16
  %pop.at = getelementptr i8, ptr %record, i64 24
  %context.at = getelementptr i8, ptr %record, i64 32
  %function.at = getelementptr i8, ptr %record, i64 40
  %get = load ptr, ptr %get.at
  %push = load ptr, ptr %push.at
  %pop = load ptr, ptr %pop.at
  %context = load ptr, ptr %context.at
  %function = load ptr, ptr %function.at
  store ptr null, ptr %current
  %asked = call i32 %get(ptr %current)
  %found = load ptr, ptr %current
  %same = icmp eq ptr %found, %context
  br i1 %same, label %straight, label %other

straight:
  %code = call i32 %launch(ptr %config, ptr %function, ptr null, ptr %passed)
  ret i32 %code

other:
  %pushed = call i32 %push(ptr %context)
  %refused = icmp ne i32 %pushed, 0
  br i1 %refused, label %failed, label %inside

failed:
  ret i32 %pushed

inside:
  %code.inside = call i32 %launch(ptr %config, ptr %function, ptr null, ptr %passed)
  %popped = call i32 %pop(ptr %current)
  ret i32 %code.inside
}}
"""


def stub_ir(triple: str) -> str:
    """The text of `tw_launch`."""
    copies = []
    for word in range(7):  # not memcpy, which would have to be linked
        copies += [
            f"  %from{word} = getelementptr i8, ptr %record, i64 {56 + 8 * word}",
            f"  %to{word} = getelementptr i8, ptr %config, i64 {8 * word}",
            f"  %word{word} = load i64, ptr %from{word}",
            f"  store i64 %word{word}, ptr %to{word}",
        ]
    # CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE, CU_LAUNCH_PARAM_END
    values = ["ptr inttoptr (i64 1 to ptr)", "ptr %arguments", "ptr inttoptr (i64 2 to ptr)", "ptr %size", "ptr null"]
    extras = []
    for slot, value in enumerate(values):
        extras += [
            f"  %extra{slot} = getelementptr i8, ptr %extra, i64 {8 * slot}",
            f"  store {value}, ptr %extra{slot}",
        ]
    parts = {name: "\n".join(lines) for name, lines in (("copies", copies), ("extras", extras), ("grid", _grid()))}
    return _TEXT.format(triple=triple, header=HEADER_BYTES, programs=MOST_PROGRAMS, **parts)


def _grid() -> list[str]:
    """Sizes of the grid to the parameters, and to the configuration those, or as many blocks as run at a time."""
    lines = []
    for axis, name in enumerate("xyz"):
        lines += [
            f"  %{name}.from = getelementptr i8, ptr %block, i64 {16 + 4 * axis}",
            f"  %{name}.told = getelementptr i8, ptr %sizes, i64 {4 * axis}",
            f"  %{name} = load i32, ptr %{name}.from",
            f"  store i32 %{name}, ptr %{name}.told, align 1",
            f"  %{name}.wide = zext i32 %{name} to i64",
        ]
    lines += [
        "  %xy = mul i64 %x.wide, %y.wide",
        "  %all = mul i64 %xy, %z.wide",
        "  %fewer = icmp ult i64 %all, %most",
        "  %some = select i1 %fewer, i64 %all, i64 %most",
        "  %row = trunc i64 %some to i32",
    ]
    for axis, (name, other) in enumerate({"x": "%row", "y": "1", "z": "1"}.items()):
        lines += [
            f"  %{name}.blocks = select i1 %blocks, i32 %{name}, i32 {other}",
            f"  %{name}.to = getelementptr i8, ptr %config, i64 {4 * axis}",
            f"  store i32 %{name}.blocks, ptr %{name}.to",
        ]
    return lines


_caches: list[ByteCache] = []


def set_cache(cache: ByteCache | None) -> None:
    """Where the object of the stub is kept, so that a warm start needs no LLVM."""
    _caches[:] = [] if cache is None else [cache]


@functools.cache
def launch_stub() -> Callable[[bytes], int]:
    """`tw_launch`, loaded on the first call."""
    library = load_helper("cuda launcher", stub_ir(host_triple()), ["tw_launch"], _caches[0] if _caches else None)
    function: Any = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)(library.address("tw_launch"))
    function.library = library  # keeps the code alive
    stub: Callable[[bytes], int] = function
    return stub


def stub_address() -> int:
    """Address of `tw_launch`."""
    return ctypes.cast(launch_stub(), ctypes.c_void_p).value or 0  # type: ignore[arg-type]


class Record:
    """What the stub reads for every launch of one kernel on one GPU.

    Args:
        api: the driver.
        context: of the GPU.
        function: CUfunction.
        parameter_bytes: size of the parameters.
        warps: of a block.
        shared_bytes: dynamic shared memory of a block.
        cluster: blocks of a cluster.
        cooperative: all blocks must be resident at once.
        programmatic: the kernel may start before the one ahead of it in the stream has ended.
        constant: (offset among the parameters, value) of one of 8 bytes that callers of the stub leave out.
        grid: (offset among the parameters, blocks that run at a time) where blocks run one program after the other:
            callers leave out the three sizes of the grid.
    """

    def __init__(
        self, api: Cuda, context: int, function: int, parameter_bytes: int, warps: int, shared_bytes: int,
        cluster: int = 1, cooperative: bool = False, programmatic: bool = False, constant: tuple[int, int] = (0, 0),
        grid: tuple[int, int] = (0, 0),
    ) -> None:  # fmt: skip
        rows = []
        if cluster > 1:
            rows.append((_CLUSTER, (cluster, 1, 1)))
        if cooperative:
            rows.append((_COOPERATIVE, (1, 0, 0)))
        if programmatic:
            rows.append((_PROGRAMMATIC_STREAM, (1, 0, 0)))
        packed = b"".join(struct.pack("=I4xIII", kind, *value).ljust(_ATTRIBUTE_BYTES, b"\0") for kind, value in rows)
        self._attributes = ctypes.create_string_buffer(packed, len(packed) or 1)
        names = ("cuLaunchKernelEx", "cuCtxGetCurrent", "cuCtxPushCurrent", "cuCtxPopCurrent")
        image = _RECORD.pack(
            *map(api.address, names), context, function, parameter_bytes, warps * WARP, 1, 1, shared_bytes,
            ctypes.addressof(self._attributes) if rows else 0, len(rows), *constant, *grid,
        )  # fmt: skip
        self._memory = ctypes.create_string_buffer(image, len(image))
        self.address = ctypes.addressof(self._memory)


def parameter_format(types: Sequence[str], offsets: Sequence[int] | None = None) -> tuple[str, int]:
    """`struct` format of a kernel's parameters, and its size.

    Args:
        types: signature types in order, or `TENSOR_MAP`.
        offsets: of each parameter; if not given each is aligned to its size, as the PTX ABI has it.
    """
    text, size = "", 0
    for kind, (offset, bytes_) in zip(types, parameter_offsets(types, offsets), strict=True):
        padding = offset - size
        text += f"{padding}x{_form(kind)}" if padding else _form(kind)
        size = offset + bytes_
    return text, size


def parameter_offsets(types: Sequence[str], offsets: Sequence[int] | None = None) -> list[tuple[int, int]]:
    """(offset, bytes) of each parameter of a kernel; arguments as for `parameter_format`."""
    found, size = [], 0
    for number, kind in enumerate(types):
        bytes_ = struct.calcsize(f"={_form(kind)}")
        offset = size + -size % bytes_ if offsets is None else offsets[number]
        found.append((offset, bytes_))
        size = offset + bytes_
    return found


def _form(kind: str) -> str:
    return f"{MAP_BYTES}s" if kind == TENSOR_MAP else natural_format(kind)
