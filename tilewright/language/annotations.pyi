# Every name is any value, as an annotation and as something to call. No one spelling says that to both checkers:
# mypy, for which MYPY is true, takes a variable of type Any for that in an annotation, others refuse variables there;
# those take a class for what its decorator returns, which mypy does not look at.
from typing import Any

MYPY = False

def _any_value(cls: type) -> Any: ...

if MYPY:
    bfloat16: Any
    const: Any
    constexpr: Any
    float8e4b8: Any
    float8e4b15: Any
    float8e4nv: Any
    float8e5: Any
    float8e5b16: Any
    float16: Any
    float32: Any
    float64: Any
    int1: Any
    int8: Any
    int16: Any
    int32: Any
    int64: Any
    tensor: Any
    tuple: Any
    uint8: Any
    uint16: Any
    uint32: Any
    uint64: Any
else:
    @_any_value
    class bfloat16: ...

    @_any_value
    class const: ...

    @_any_value
    class constexpr: ...

    @_any_value
    class float8e4b8: ...

    @_any_value
    class float8e4b15: ...

    @_any_value
    class float8e4nv: ...

    @_any_value
    class float8e5: ...

    @_any_value
    class float8e5b16: ...

    @_any_value
    class float16: ...

    @_any_value
    class float32: ...

    @_any_value
    class float64: ...

    @_any_value
    class int1: ...

    @_any_value
    class int8: ...

    @_any_value
    class int16: ...

    @_any_value
    class int32: ...

    @_any_value
    class int64: ...

    @_any_value
    class tensor: ...

    @_any_value
    class tuple: ...

    @_any_value
    class uint8: ...

    @_any_value
    class uint16: ...

    @_any_value
    class uint32: ...

    @_any_value
    class uint64: ...
