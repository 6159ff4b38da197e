"""The arrays of a launch that is prepared, for whoever has to say something of them when it fails."""

from __future__ import annotations

from tilewright.compile.kernel import CompiledKernel
from tilewright.compile.slots import at_path
from tilewright.devices.arrays import Array
from tilewright.devices.ranges import range_of
from tilewright.launch.bind import Call


def note_extents(kernel: CompiledKernel, call: Call) -> None:
    """Tell the code of a kernel how long the arrays of a call are, if it wants to know.

    Args:
        kernel: loaded.
        call: with arrays read.
    """
    note = getattr(kernel.module, "note_extents", None)
    if note is None:
        return
    found = {}
    rows = zip(call.specialization.runtime_types, call.specialization.runtime_paths, strict=True)
    for slot, (kind, path) in enumerate(rows):
        argument = at_path(call.arguments, path)
        if isinstance(argument, Array) and argument.address:
            found[slot] = argument.address, range_of(argument, kind)[1]
    note(found)
