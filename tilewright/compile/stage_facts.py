"""What the text of a stage says of its kernel by itself, where no file of facts lies beside it.

::

    .visible .entry k(.param .u64 k_0, .param .u32 k_1) .reqntid 128 { ... }   ->  k takes an address and a u32, 4 warps

Parameters of 64 bits count as addresses, which numbers may be passed for too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

_WARP = 32
_ENTRY = re.compile(r"\.visible\s+\.entry\s+([\w$]+)\s*\(([^)]*)\)([^{;]*)\{")
_PARAM = re.compile(r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+[\w$]+(\[\d+\])?")
_THREADS = re.compile(r"\.(?:reqntid|maxntid)\s+(\d+)")
_KERNEL = re.compile(r"^define ptx_kernel void @([\w$.]+)\(([^)]*)\)([^{]*)\{", re.MULTILINE)
_FUNCTION = re.compile(r"^\s*tt\.func public @.*\{$", re.MULTILINE)
_WARPS = re.compile(r"warp=((?: ?\([\d, ]*\))*);")
_OF_PTX = {
    **{f"{kind}64": "*u8" for kind in "ub"}, "s64": "i64", "f64": "fp64", "f32": "fp32", "f16": "fp16",
    **{f"{kind}{bits}": f"{'i' if kind == 's' else 'u'}{bits}" for kind in "usb" for bits in (8, 16, 32)},
}  # fmt: skip
_OF_LLVM = {
    "i64": "*u8", "ptr": "*u8", "i32": "i32", "i16": "i16", "i8": "i8", "i1": "u1", "half": "fp16", "bfloat": "bf16",
    "float": "fp32", "double": "fp64",
}  # fmt: skip


class NotEnough(Exception):
    """The text does not say what its kernel takes; the message says why."""


def facts_of(ext: str, text: str) -> dict[str, Any]:
    """Facts about a kernel as the stages before a text would have found them.

    Args:
        ext: of the stage.
        text: of the stage.

    Raises:
        NotEnough: it does not say all.
    """
    reader = _READERS.get(ext)
    if reader is None:
        raise NotEnough(f"a .{ext} does not name the types of its parameters")
    return reader(text)


def head_of_tiles(text: str) -> str:
    """Tile IR of a module that has the function of tile IR with layouts, and nothing in it."""
    heads = _FUNCTION.findall(text)
    if len(heads) != 1:
        raise NotEnough(f"it has {len(heads)} public functions")
    return f"module {{\n{heads[0]}\n tt.return\n}}\n}}"


def warps_of_tiles(text: str) -> int | None:
    """Warps of a program, by the layouts of tile IR; None where it has none."""
    found = _WARPS.search(text)
    return None if found is None else 1 << found[1].count("(")


def _of_ptx(text: str) -> dict[str, Any]:
    name, taken, after = _only(_ENTRY.findall(text))
    if ".extern .shared" in text:
        raise NotEnough("how much shared memory it has is said by the launch")
    threads, params = _THREADS.search(after), _PARAM.findall(taken)
    kinds = [_OF_PTX.get(kind) if not size else None for kind, size in params]
    return _facts(name, kinds, None if threads is None else int(threads[1]))


def _of_llvm(text: str) -> dict[str, Any]:
    name, taken, after = _only(_KERNEL.findall(text))
    if "external addrspace(3)" in text:
        raise NotEnough("how much shared memory it has is said by the launch")
    threads = re.search(r'"nvvm\.(?:reqntid|maxntid)"="(\d+)', after)
    kinds = [None if "byval" in row else _OF_LLVM.get(row.split()[0]) for row in taken.split(",") if row.strip()]
    return _facts(name, kinds, None if threads is None else int(threads[1]))


def _only(found: Sequence[tuple[str, str, str]]) -> tuple[str, str, str]:
    if len(found) != 1:
        raise NotEnough(f"it has {len(found)} kernels")
    return found[0]


def _facts(name: str, types: list[str | None], threads: int | None) -> dict[str, Any]:
    """What a launch has to know of a kernel of which only this is known: it may store anywhere."""
    if threads is None or threads % _WARP:
        raise NotEnough("how many warps it has is not in it (.reqntid)")
    if None in types:
        raise NotEnough(f"its parameter {types.index(None)} is no number and no address")
    return {
        "name": name, "symbol": name, "types": types, "params": [f"arg{index}" for index in range(len(types))],
        "block_warps": threads // _WARP, "shared": 0, "cluster": 1, "asserts": [], "needs_log": False,
        "tensor_maps": [], **ANYWHERE,
    }  # fmt: skip


ANYWHERE: dict[str, Any] = {"stored": [], "stores_anywhere": True}
_READERS: dict[str, Callable[[str], dict[str, Any]]] = {"ptx": _of_ptx, "llir": _of_llvm}
