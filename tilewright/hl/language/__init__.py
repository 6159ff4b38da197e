"""What kernels call as `hl.name(...)`: loops over tiles, and functions on tiles that PyTorch does not have."""

from __future__ import annotations

from types import FunctionType

from tilewright.hl.annotations import constexpr
from tilewright.hl.constexpr import ConstExpr
from tilewright.hl.language.atomics import (
    atomic_add,
    atomic_and,
    atomic_cas,
    atomic_max,
    atomic_min,
    atomic_or,
    atomic_xchg,
    atomic_xor,
)
from tilewright.hl.language.creation import arange, full, zeros
from tilewright.hl.language.debug import breakpoint, device_print
from tilewright.hl.language.inline import inline_asm_elementwise, inline_triton, triton_kernel
from tilewright.hl.language.loops import grid, jagged_tile, static_range, tile
from tilewright.hl.language.memory import load, store
from tilewright.hl.language.packed import FUNCTIONS as _ANYWHERE
from tilewright.hl.language.packed import (
    float4_e2m1fn_x2_to_float32,
    load_bfloat16_x16_to_float16,
    load_float4_e2m1fn_x16_to_float16,
)
from tilewright.hl.language.products import dot, dot_scaled
from tilewright.hl.language.random import rand, rand4x, randint
from tilewright.hl.language.reduce import associative_scan, cumprod, cumsum, reduce
from tilewright.hl.language.reference import FUNCTIONS as _PLAIN
from tilewright.hl.language.reference import either
from tilewright.hl.language.reference_functions import FUNCTIONS as _ON_VALUES
from tilewright.hl.language.remote import AsyncCopyDescriptor, make_async_remote_copy, remote_barrier
from tilewright.hl.language.stack import StackTensor, stacktensor_like
from tilewright.hl.language.tiles import tile_begin, tile_block_size, tile_count, tile_end, tile_id, tile_index
from tilewright.hl.language.tunables import (
    barrier,
    pdl_launch_dependents,
    pdl_wait,
    register_block_size,
    register_tunable,
    specialize,
)
from tilewright.hl.language.views import join, split, subscript
from tilewright.hl.trace.tiles import Tile

__all__ = [
    "AsyncCopyDescriptor",
    "ConstExpr",
    "StackTensor",
    "Tile",
    "arange",
    "associative_scan",
    "atomic_add",
    "atomic_and",
    "atomic_cas",
    "atomic_max",
    "atomic_min",
    "atomic_or",
    "atomic_xchg",
    "atomic_xor",
    "barrier",
    "breakpoint",
    "constexpr",
    "cumprod",
    "cumsum",
    "device_print",
    "dot",
    "dot_scaled",
    "float4_e2m1fn_x2_to_float32",
    "full",
    "grid",
    "inline_asm_elementwise",
    "inline_triton",
    "jagged_tile",
    "join",
    "load",
    "load_bfloat16_x16_to_float16",
    "load_float4_e2m1fn_x16_to_float16",
    "make_async_remote_copy",
    "pdl_launch_dependents",
    "pdl_wait",
    "rand",
    "rand4x",
    "randint",
    "reduce",
    "register_block_size",
    "register_tunable",
    "remote_barrier",
    "specialize",
    "split",
    "stacktensor_like",
    "static_range",
    "store",
    "subscript",
    "tile",
    "tile_begin",
    "tile_block_size",
    "tile_count",
    "tile_end",
    "tile_id",
    "tile_index",
    "triton_kernel",
    "zeros",
]

for _name, _function in list(globals().items()):
    if _name in __all__ and isinstance(_function, FunctionType):
        globals()[_name] = either(
            _name, _function, (_PLAIN | _ON_VALUES | _ANYWHERE).get(_name)
        )  # a kernel may run as plain Python

_GONE = {
    "signal": "hl.atomic_xchg(flags, [place], 1, sem='release')",
    "wait": "`while hl.atomic_add(flags, [place], 0, sem='acquire') == 0: pass`",
}


def __getattr__(name: str) -> object:
    """Say what to write for a name that Helion had once."""
    instead = f": write {_GONE[name]}" if name in _GONE else ""
    raise AttributeError(f"tilewright.hl has no {name!r}{instead}", name=name)
