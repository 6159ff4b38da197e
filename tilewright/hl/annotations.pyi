# See tilewright/language/annotations.pyi.
from typing import Any

MYPY = False

def _any_value(cls: type) -> Any: ...

if MYPY:
    constexpr: Any
else:
    @_any_value
    class constexpr: ...
