"""Run by Python when it starts, for `tilewright_triton.pth`: puts the posing package where `import triton` finds it.

It goes behind everything else, so an installed Triton stays what it is, unless the environment says to pose: then it
goes in front, also in processes that never import Tilewright. Nothing is imported here; Python starts no slower.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder


def find() -> None:
    """Add the folder of the posing package to `sys.path`, where Tilewright is installed."""
    spec = PathFinder.find_spec("tilewright")
    for package in (spec and spec.submodule_search_locations) or ():
        folder = os.path.join(package, "triton_names", "path")
        wanted = os.environ.get("TILEWRIGHT_AS_TRITON", "").strip().lower() in ("1", "true", "yes", "y", "on")
        sys.path.insert(0 if wanted else len(sys.path), folder)


find()
