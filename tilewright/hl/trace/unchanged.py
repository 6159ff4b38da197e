"""What a loop over tiles finds and leaves as it is: variables of the host, lists and dictionaries that it has not made.

The loop is run to be compiled, and not once for each tile: what it assigned to them would be right for none.
"""

from __future__ import annotations

import ast
from typing import Any

from tilewright.hl import exc
from tilewright.hl.trace.statements import Interpreter

_CONTAINERS = (list, dict, set)
_PLAIN = (ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Delete)


class Outside:
    """What there is when a loop begins.

    Args:
        interpreter: whose names they are.
        loop: over tiles, at the top level.
    """

    def __init__(self, interpreter: Interpreter, loop: ast.For) -> None:
        self._interpreter, self._loop = interpreter, loop
        self._variables = interpreter.variables
        names = {part.id for part in ast.walk(loop) if isinstance(part, ast.Name)}
        found = {name: interpreter.scope[name] for name in sorted(names & interpreter.scope.keys())}
        self._containers = {name: value for name, value in found.items() if type(value) in _CONTAINERS}
        self._copies = {name: value.copy() for name, value in self._containers.items()}

    def check(self) -> None:
        """Drop the variables that the loop has made.

        Raises:
            CannotModifyHostVariableOnDevice: it has changed what was there.
        """
        self._check_variables()
        for name, was in self._copies.items():
            found = self._containers[name]
            if _parts(found) != _parts(was):
                found.clear()  # what the trace has put there means nothing
                found.extend(was) if isinstance(was, list) else found.update(was)
                raise self._error(
                    name,
                    f"{name}, a {type(was).__name__} from outside of the loop, is changed in it; the loop runs to be "
                    "compiled, and not once for each tile",
                    "store what a tile has made into a tensor, out[tile] = ...; or make the container in the loop",
                )

    def _check_variables(self) -> None:
        interpreter = self._interpreter
        for name, value in interpreter.variables.items():
            if name not in self._variables:
                interpreter.device_names.add(name)
                del interpreter.scope[name]
            elif self._variables[name] is not value:
                raise self._error(
                    name,
                    f"{name} is a variable of the host and is assigned in a loop over tiles",
                    "use another name in the loop, or store into a tensor: hl.atomic_add(total, [0], value) adds up",
                )

    def _error(self, name: str, message: str, hint: str) -> exc.CannotModifyHostVariableOnDevice:
        place = self._interpreter.source.location(self._changing(name))
        return exc.CannotModifyHostVariableOnDevice(message, place, hint=hint)

    def _changing(self, name: str) -> ast.stmt:
        """The statement that changes what has a name: one that assigns it, or else the first that names it."""
        plain = [node for node in ast.walk(self._loop) if isinstance(node, _PLAIN)]
        named = [
            (node, part) for node in plain for part in ast.walk(node) if isinstance(part, ast.Name) and part.id == name
        ]
        stored = [node for node, part in named if isinstance(part.ctx, ast.Store)]
        return next(iter([*stored, *(node for node, _ in named)]), self._loop)


def _parts(container: Any) -> list[int]:
    """Which objects are in it."""
    items = [*container, *container.values()] if isinstance(container, dict) else list(container)
    return [id(item) for item in items]
