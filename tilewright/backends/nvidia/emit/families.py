"""All families of emitters: importing this file registers every one of them."""

from __future__ import annotations

from tilewright.backends.nvidia.emit import (
    atomic,
    bulk,
    control,
    convert,
    debug,
    dot,
    elementwise,
    gather,
    inline,
    library,
    memory,
    program,
    reduce,
    roles,
    scan,
    shape,
    shared,
    warp_group,
)

LOADED = (
    control,
    memory,
    program,
    convert,
    shared,
    bulk,
    roles,
    reduce,
    scan,
    shape,
    gather,
    atomic,
    debug,
    elementwise,
    inline,
    library,
    dot,
    warp_group,
)
