"""Text of the block language and instructions of the machine inside a kernel."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import torch

from tilewright import syntax
from tilewright.hl import exc
from tilewright.hl.symbols import Sym
from tilewright.hl.trace.samples import sample_of
from tilewright.hl.trace.state import Trace, device_trace, raw_shape


def inline_asm_elementwise(
    asm: str, constraints: str, args: Sequence[Any], dtype: torch.dtype, is_pure: bool = True, pack: int = 1
) -> Any:
    """Instructions of the machine, applied element by element; see `tl.inline_asm_elementwise`.

    Args:
        asm: the instructions.
        constraints: registers of results and operands.
        args: tiles and numbers that broadcast together.
        dtype: type of the result, or a sequence of types.
        is_pure: whether it has no effect besides its results.
        pack: how many elements one application takes.
    """
    trace = device_trace("hl.inline_asm_elementwise")
    types = list(dtype) if isinstance(dtype, list | tuple) else [dtype]
    tensors = [trace.scalar(arg) if isinstance(arg, Sym) else arg for arg in args]
    tensors = [arg if isinstance(arg, torch.Tensor) else trace.number(arg) for arg in tensors]
    tensors = list(torch.broadcast_tensors(*tensors)) if tensors else []
    shape = raw_shape(tensors[0]) if tensors else ()
    with trace.silence():
        samples = tuple(sample_of(trace, shape, one) for one in types)
    trace.record("assembly", (asm, constraints, tensors, types, bool(is_pure), pack), samples)
    return samples if isinstance(dtype, list | tuple) else samples[0]


def inline_triton(triton_source: str, args: Sequence[Any] | Mapping[str, Any], output_like: Any) -> Any:
    """Lines of the block language inside a kernel.

    Args:
        triton_source: lines in which `{0}` or `{name}` stands for an argument; the last one is the result.
        args: tiles, sizes and numbers, by position or by name.
        output_like: a tile with the type and shape of the result, a tuple of them, or None for no result.
    """
    trace = device_trace("hl.inline_triton")
    names = list(args) if isinstance(args, Mapping) else []
    given = list(args.values()) if isinstance(args, Mapping) else list(args)
    text = textwrap.dedent(triton_source).strip("\n")
    if not text:
        raise exc.InvalidAPIUsage("the inline text is empty")
    return _called(trace, text, names, given, output_like, [])


def triton_kernel(source_or_fn: Any, args: Sequence[Any] | Mapping[str, Any], output_like: Any) -> Any:
    """A call of a function of the block language.

    Args:
        source_or_fn: a function with `@tilewright.jit`, its name among the globals of the caller, or the text of one.
        args: tiles, sizes and numbers, by position or by name.
        output_like: a tile with the type and shape of the result, a tuple of them, or None for no result.
    """
    trace = device_trace("hl.triton_kernel")
    function = source_or_fn
    if isinstance(function, str) and function.isidentifier():
        frame = inspect.currentframe()
        caller = frame.f_back.f_globals if frame is not None and frame.f_back is not None else {}
        if function not in caller:
            raise exc.UndefinedVariable(f"no global is named {function}", hint="give the function itself")
        function = caller[function]
    if isinstance(function, str):
        name, definitions = _definition(textwrap.dedent(function))
    else:
        name, definitions = _definitions(function)
    names = list(args) if isinstance(args, Mapping) else []
    given = list(args.values()) if isinstance(args, Mapping) else list(args)
    slots = [f"{one}={{{one}}}" for one in names] or [f"{{{at}}}" for at in range(len(given))]
    return _called(trace, f"{name}({', '.join(slots)})", names, given, output_like, definitions)


def _called(trace: Trace, text: str, names: list[str], given: list[Any], like: Any, definitions: list[str]) -> Any:
    outputs = [] if like is None else list(like) if isinstance(like, list | tuple) else [like]
    if any(not isinstance(output, torch.Tensor) for output in outputs):
        raise exc.InvalidAPIUsage("output_like is no tile", hint="give a tile of the type and shape of the result")
    operands = [trace.scalar(arg) if isinstance(arg, Sym) else arg for arg in given]
    with trace.silence():
        samples = tuple(sample_of(trace, raw_shape(output), output.dtype) for output in outputs)
    trace.record("call", (text, names, operands, definitions), samples)
    return None if like is None else samples if isinstance(like, list | tuple) else samples[0]


# --- the text of functions -------------------------------------------------------------------------


def _definition(text: str) -> tuple[str, list[str]]:
    """(name of the last function in a text, the text)."""
    functions = [node for node in syntax.parse(text).body if isinstance(node, ast.FunctionDef)]
    if not functions:
        raise exc.InvalidAPIUsage(
            "the text defines no function", hint="write `def name(...):`, or use hl.inline_triton"
        )
    for function in functions:
        function.decorator_list = [syntax.parse("tilewright.jit", mode="eval").body]
    return functions[-1].name, ["\n\n\n".join(ast.unparse(function) for function in functions)]


def _definitions(function: Any) -> tuple[str, list[str]]:
    """(name of a jit function, the text of everything that it needs, in order)."""
    made: dict[str, str] = {}
    _collect(function, made)
    return _plain(function).__name__, list(made.values())


def _plain(function: Any) -> Callable[..., Any]:
    found = getattr(function, "fn", None)
    if not inspect.isfunction(found):
        raise exc.InvalidAPIUsage(f"{function!r} is no function of the block language", hint="decorate it with @jit")
    return found


def _collect(function: Any, made: dict[str, str]) -> None:
    plain = _plain(function)
    if plain.__name__ in made:
        return
    text = _definition(textwrap.dedent(inspect.getsource(plain)))[1][0]
    for name in plain.__code__.co_names:
        value = plain.__globals__.get(name)
        if name in made or value is None or name in ("tl", "tilewright", "torch"):
            continue
        if inspect.isfunction(getattr(value, "fn", None)):
            _collect(value, made)
        elif isinstance(value, ModuleType):
            made[name] = f"import {value.__name__} as {name}"
        else:
            number = getattr(value, "value", value)
            if isinstance(number, bool | int | float | str):
                made[name] = f"{name} = tl.constexpr({number!r})"
    made[plain.__name__] = text
