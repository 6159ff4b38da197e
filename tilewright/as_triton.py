"""`python -m tilewright.as_triton program.py`: run a program in which `import triton` means Tilewright.

In Python the same is `tilewright.as_triton()`, which stays that function even if somebody imports this module.
"""

import sys

from tilewright import as_triton
from tilewright.base.lazy import lazy_module

program = lazy_module("tilewright.triton_names.program")

if __name__ == "__main__":
    program.run(sys.argv[1:])
else:
    sys.modules[__name__] = as_triton  # type: ignore[assignment]
