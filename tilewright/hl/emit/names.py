"""Names of generated code: the user's where there are some, unique and no word of Python or of the language."""

from __future__ import annotations

import keyword
import re

_TAKEN = frozenset(
    """
    tl tilewright torch libdevice pid min max float int range len print abs sum bool tuple list dict
    """.split()  # noqa: SIM905
)


class Names:
    """The names of one kernel."""

    def __init__(self, taken: frozenset[str] = frozenset()) -> None:
        self._used = set(_TAKEN | taken)

    def new(self, wish: str) -> str:
        """A free name like `wish`."""
        base = re.sub(r"\W", "_", wish).strip("_") or "value"
        if keyword.iskeyword(base) or base[0].isdigit():
            base = f"{base}_" if keyword.iskeyword(base) else f"v{base}"
        name, count = base, 0
        while name in self._used:
            count += 1
            name = f"{base}_{count}"
        self._used.add(name)
        return name
