"""What `import triton` finds in a process that one that poses has started, by `PYTHONPATH`: it makes way for another.

Where Tilewright is installed that is the posing package, unless `TILEWRIGHT_AS_TRITON` was taken away. In a Python of
another environment it is the Triton which that has, or none.
"""

import importlib.util
import os
import sys

_here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != _here]
_wanted = os.environ.get("TILEWRIGHT_AS_TRITON", "").strip().lower() in ("1", "true", "yes", "y", "on")
if _wanted and importlib.util.find_spec("tilewright") is not None:
    sys.path.insert(0, os.path.join(os.path.dirname(_here), "path"))
del sys.modules[__name__]
importlib.invalidate_caches()
importlib.import_module(__name__)  # when this file has ended, the import system hands out what `sys.modules` has
