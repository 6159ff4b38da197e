"""Arguments of a launch by name, as functions of the user read them: grids, heuristics, hooks."""

from __future__ import annotations

from typing import Any

from tilewright.base.errors import UnknownOptionError


class NamedArguments(dict[str, Any]):
    """A dictionary that says which names it has when it is asked for another."""

    def __missing__(self, name: Any) -> Any:
        raise UnknownOptionError(
            f"the launch has no argument {name!r}", hint=f"a grid or heuristic can ask for {', '.join(self) or 'none'}"
        )
