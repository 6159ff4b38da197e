"""A launch in which elements that a mask leaves out of a load, without `other=`, are not 0 by chance, as on a CPU.

The kernel runs as Python; what is left out is no number, or the largest integer. `other=` comes over it afterwards.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from tilewright.backends.reference.address_space import Memory
from tilewright.backends.reference.eager import EagerEmitter
from tilewright.compile.request import complete_options
from tilewright.launch import interpret
from tilewright.launch.jit import JITFunction
from tilewright.tools.learn.catalogue import Case


def poisoned_launch(kernel: JITFunction, case: Case) -> None:
    """Launch a kernel on the arguments of a case, with poison in what masks leave out."""
    x, y, z = [*case.grid, 1, 1][:3]
    programs = [(i, j, k) for k, j, i in itertools.product(range(z), range(y), range(x))]
    _, call = kernel.request(**case.arguments)
    watch = interpret.Watch(_Poisoned(), EagerEmitter, programs)
    interpret.launch(kernel, call, (x, y, z), complete_options({}, interpret.TARGET), watch)


class _Poisoned(Memory):
    def load(self, addresses: Any, dtype: np.dtype[Any], mask: Any) -> Any:
        loaded = super().load(addresses, dtype, mask)
        if mask is None or np.all(mask):
            return loaded
        poison = np.nan if dtype.kind == "f" else np.iinfo(dtype).max if dtype.kind in "iu" else 1
        return np.where(mask, loaded, np.asarray(poison, dtype))
