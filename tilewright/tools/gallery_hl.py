"""The page docs/hl_errors.md: its header and the mistakes in order."""

from __future__ import annotations

from tilewright.tools import gallery_hl_gradients, gallery_hl_loops, gallery_hl_values
from tilewright.tools.error_page import Page

_HEADER = """\
import torch
from tilewright import hl

x, y = torch.randn(20), torch.randn(20, 6)
"""
_INTRODUCTION = """\
# What errors of hl look like

Written by `make docs`: every kernel below is run, and what it raises is shown under it. Each starts with these lines:

```python
{header}```

Every error of `hl` is in `hl.exc` under the name that users of Helion know, and is a `tilewright.TilewrightError`. It
points to the line of the kernel, names axes instead of sizes, and says what to write instead.
"""

CASES = (*gallery_hl_values.CASES, *gallery_hl_loops.CASES, *gallery_hl_gradients.CASES)

PAGE = Page("hl_errors.md", _HEADER, _INTRODUCTION, CASES)
