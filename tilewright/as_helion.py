"""`python -m tilewright.as_helion program.py`: run a program in which `import helion` means Tilewright.

In Python the same is `tilewright.as_helion()`, which stays that function even if somebody imports this module.
"""

import sys

from tilewright import as_helion, lazy_module

program = lazy_module("tilewright.triton_names.program")

if __name__ == "__main__":
    program.run(sys.argv[1:], as_helion)
else:
    sys.modules[__name__] = as_helion  # type: ignore[assignment]
