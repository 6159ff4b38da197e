"""Builds kernels written in the tests and looks at the IR."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from xdsl.dialects.builtin import ModuleOp

from tilewright.base import dtypes
from tilewright.base.callable import BlockFunction
from tilewright.base.dtypes import PointerType, Type
from tilewright.base.errors import CompilationError
from tilewright.base.location import Location
from tilewright.base.options import Options
from tilewright.base.target import Target
from tilewright.frontend.entry import BuiltKernel, ParamSpec, build_module
from tilewright.frontend.source import source_of
from tilewright.ops.text import parse_module, print_module
from tilewright.ops.values import constexpr

TARGET = Target("cpu", "generic")
F32 = PointerType(dtypes.float32)
F16 = PointerType(dtypes.float16)
I32 = PointerType(dtypes.int32)
i32 = dtypes.int32
f32 = dtypes.float32


def jit(fn: Callable[..., Any] | None = None, *, noinline: bool = False) -> Any:
    """A block function, with its source captured."""
    if fn is None:
        return lambda function: jit(function, noinline=noinline)
    made = BlockFunction(fn, noinline=noinline)
    source_of(made)
    return made


def build(fn: BlockFunction, *values: Any, options: Options | None = None) -> BuiltKernel:
    """Compile `fn`; each value is a language type, or a constant for a compile-time parameter."""
    names = list(fn.signature.parameters)
    specs = [_spec(n, v) for n, v in zip(names, values, strict=True)]
    kernel = build_module(fn, specs, options or Options(), TARGET)
    kernel.module.verify()
    return kernel


def _spec(name: str, value: Any) -> ParamSpec:
    if isinstance(value, PointerType):
        return ParamSpec(name, value, {"divisibility": 16})
    return ParamSpec(name, value if isinstance(value, (Type, tuple)) else constexpr(value))


def text(fn: BlockFunction, *values: Any) -> str:
    """IR of `fn` as text that parses to the same text."""
    printed = print_module(build(fn, *values).module, locations=False)
    assert print_module(parse_module(printed), locations=False) == printed
    return printed


def ops(module: ModuleOp) -> Counter[str]:
    """How often each operation occurs, constants aside."""
    found = Counter(op.name for op in module.walk())
    del found["builtin.module"], found["arith.constant"]
    return found


def count(fn: BlockFunction, *values: Any) -> Counter[str]:
    return ops(build(fn, *values).module)


def failure(
    fn: BlockFunction, *values: Any, cls: type[CompilationError] = CompilationError, marked: str, match: str
) -> CompilationError:
    """The error of compiling `fn`, whose caret must underline the text `marked` in a line of the test file.

    Args:
        fn: the kernel.
        values: its parameters.
        cls: class of the error.
        marked: the source text that the caret underlines.
        match: text that must be in the message or the hint.
    """
    with pytest.raises(cls) as caught:
        build(fn, *values)
    error = caught.value
    assert isinstance(error.location, Location)
    assert underlined(error.location) == marked
    assert match in str(error), str(error)
    assert "^" * len(marked) in str(error)
    return error


def underlined(location: Location) -> str:
    """The source text under the caret of a location."""
    return location.source_line()[location.col : location.end_col]


def line_of(fn: BlockFunction, part: str) -> int:
    """Line of the file at which the source of `fn` contains `part`."""
    lines, first = inspect.getsourcelines(fn.fn)
    return next(first + n for n, line in enumerate(lines) if part in line)
