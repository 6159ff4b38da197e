"""Settings of devices and tools that Tilewright does not have, as programs of Triton ask for them.

They say how a back end for AMD's GPUs, or Proton's library, would do its work. Programs read and set them on their way
to asking whether there is such a device, so each has Triton's usual value, keeps what it is given, and changes nothing.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any, Self

AMD: dict[str, Any] = {
    "use_buffer_ops": True,
    "use_buffer_atomics": True,
    "buffer_ops_analyze_small_tensor_range": False,
    "dump_amdgcn": False,
    "libhip_path": None,
    "use_block_pingpong": None,
    "use_in_thread_transpose": None,
    "use_async_copy": None,
    "scalarize_packed_fops": False,
    "global_prefetch": 0,
    "local_prefetch": 0,
}
PROTON: dict[str, Any] = {
    "cupti_lib_dir": None,
    "cupti_path": None,
    "cupti_lib_blackwell_dir": None,
    "disable": False,
    "enable_nvtx": True,
    "profile_buffer_size": None,
    "profile_buffer_pool_size": None,
}


class ForeignKnobs:
    """A group of such settings.

    Args:
        usual: the value of each by name.
    """

    def __init__(self, usual: dict[str, Any]) -> None:
        vars(self).update(usual, _usual=dict(usual))

    @property
    def knobs(self) -> dict[str, Any]:
        """Value by name."""
        return {name: getattr(self, name) for name in vars(self)["_usual"]}

    def copy(self) -> Self:
        """The values as they are now, apart from these."""
        return copy.deepcopy(self)

    def reset(self) -> Self:
        """The usual values."""
        vars(self).update(vars(self)["_usual"])
        return self

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """A block after which all have the values that they had before."""
        before = self.knobs
        try:
            yield
        finally:
            vars(self).update(before)
