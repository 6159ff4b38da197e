"""The generated part of a launch: one Python function per kernel and combination of argument classes.

`make_variant` writes the text below, with the readers of the argument classes filled in, and compiles it:

    def add(grid, /, x=MISSING, n=MISSING, BLOCK=64, *extra, **options):
        if x.__class__ is T0 and n.__class__ is T1 and BLOCK.__class__ is T2 and not extra:
            try:    v0 = x.data_ptr();  run, kernel = table[(<key of every argument>, <options>)]
            except Exception: pass          # unknown key, or an argument that the slow path explains
            else:   gx, gy, gz = <the grid>;  run(gx, gy, gz, v0, n);  return kernel
        return slow(grid, (x, n, BLOCK), extra, options)
"""

from __future__ import annotations

import enum
import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tilewright.base.callable import BlockFunction
from tilewright.base.dtypes import Type
from tilewright.base.errors import ArgumentError
from tilewright.compile.grid import grid3
from tilewright.compile.specialize import Param, integer_range, is_ranged
from tilewright.devices.arrays import are_gradients_refused, is_recorded, numpy_address
from tilewright.launch.meeting import apart_test, pattern

Launch = Callable[..., None]


class Missing:
    """Class of the default that marks an argument as not given."""

    def __repr__(self) -> str:
        return "<missing>"


MISSING = Missing()


class _Reader(NamedTuple):
    """How an argument of a known class is read; `{a}` is the parameter, `{v}` its address.

    Args:
        key: expression of what the code is specialised on, or "".
        value: expression of the slot's value, or "" for compile-time constants.
        setup: statement run first, or "".
    """

    key: str
    value: str
    setup: str = ""


# The keys may tell more calls apart than a specialisation does (never fewer): an alias costs one slow call.
# None is the key of what must not be remembered, so that it always misses.
_WIDTH = (
    "0 if -0x80000000 <= {a} < 0x80000000 else 1 if -1 << 63 <= {a} < 1 << 63 else 2 if 0 < {a} < 1 << 64 else None"
)
_INT = (
    "(2 if {a} == 1 else not {a} & 15) if -0x80000000 <= {a} < 0x80000000"
    f" else ({_WIDTH}, not {{a}} & 15) if -1 << 63 <= {{a}} < 1 << 64 else None"
)
_PLACE = "not {v} & 15 if {a}.is_cpu else ({a}.get_device(), not {v} & 15) if {a}.is_cuda else None"
_GRADIENT = "{a}.requires_grad and _tw_gradient({a})"
_TENSOR = _Reader(
    f"{{a}}.dtype, ({_PLACE}) if {{v}} or not {{a}}.numel() else None, {_GRADIENT}", "{v}", "{v} = {a}.data_ptr()"
)
_NUMPY = _Reader("{a}.dtype, not {v} & 15, {a}.flags.writeable", "{v}", "{v} = _tw_address({a})")
_LASTING = (bool, int, str)
_LASTING_KINDS = (Type, BlockFunction, enum.Enum, type)


def is_lasting(value: Any) -> bool:
    """Whether a compile-time constant surely is the same as long as it is the same object."""
    return value is None or type(value) in (*_LASTING, float) or isinstance(value, _LASTING_KINDS)


def _reader(param: Param, cls: type) -> _Reader | None:
    """The reader for arguments of class `cls`, or None when they take the slow path."""
    fixed = param.fixed_type
    if param.is_constexpr:
        if cls is float or cls is type(None):
            return _Reader("{a}.hex()" if cls is float else "", "")
        # Other objects may change in place: the slow path looks at their content.
        return _Reader("{a}", "") if cls in _LASTING or issubclass(cls, _LASTING_KINDS) else None
    if cls is type(None):
        return _Reader("", "")
    if cls is int:
        if fixed.startswith("*"):
            return None
        return _Reader(integer_key(param), "{a}")
    if cls is bool or cls is float:
        return None if fixed else _Reader("", "{a}")
    if fixed and not fixed.startswith("*"):
        return None
    torch = sys.modules.get("torch")
    if (
        torch is not None and hasattr(torch, "Tensor") and cls in (torch.Tensor, torch.nn.Parameter)
    ):  # else it is half imported
        return _TENSOR
    return _NUMPY if cls is np.ndarray else None


class Variant:
    """The fast path for one combination of argument classes.

    Args:
        text: source of `_tw_launch` and `_tw_key`.
        scope: the names that it uses.
        slots: indices of the parameters whose values the generated call passes on.

    Attributes:
        launch: the generated function.
    """

    def __init__(self, text: str, scope: dict[str, Any], slots: Sequence[int]) -> None:
        self._slots = list(slots)
        self._table: dict[tuple[Any, ...], tuple[Launch, Any]] = scope.setdefault("_tw_table", {})
        exec(compile(text, "<tilewright launch>", "exec"), scope)
        self.launch: Callable[..., Any] = scope["_tw_launch"]
        self._key: Callable[..., tuple[Any, ...]] = scope["_tw_key"]

    def forget(self) -> None:
        """Drop everything that was remembered; the next launch of each kind takes the slow path."""
        self._table.clear()

    def knows(self, values: tuple[Any, ...], options: dict[str, Any]) -> bool:
        """Whether a call with these arguments and keywords was remembered."""
        try:
            return self._key(*values, _tw_options=options) in self._table
        except Exception:  # an argument that cannot be read or hashed; the slow path says why
            return False

    def remember(
        self, values: tuple[Any, ...], options: dict[str, Any], run: Launch, kernel: Any, runtime: Sequence[int]
    ) -> None:
        """Let later calls that look like this one launch at once.

        Args:
            values: arguments of the call.
            options: keywords of the call.
            run: takes the grid and the run-time values.
            kernel: what the launch returns to the user.
            runtime: indices of the parameters whose values `run` takes.
        """
        key = self._key(*values, _tw_options=options)  # None is the part of what must not be remembered
        try:
            hash(key)
        except TypeError:  # a dictionary among the options
            return
        if not any(part is None for part in key):
            taken = run if self._slots == list(runtime) else selected(run, self._slots, runtime)
            self._table[key] = (taken, kernel)


def selected(run: Launch, offered: Sequence[int], wanted: Sequence[int]) -> Launch:
    """`run` behind a function that also takes the values which became constants, and drops them.

    Args:
        run: takes the grid and the values `wanted`.
        offered, wanted: numbers of values, in their order.
    """
    offered_names = "".join(f", v{index}" for index in offered)
    wanted_names = "".join(f", v{index}" for index in wanted)
    made: Launch = eval(f"lambda x, y, z{offered_names}: run(x, y, z{wanted_names})", {"run": run})
    return made


# --- text ---------------------------------------------------------------------------------------------


def make_variant(
    name: str,
    params: Sequence[Param],
    classes: Sequence[type],
    slow: Callable[..., Any],
    before_launch: Callable[[], None] | None,
) -> Variant | None:
    """The fast path for arguments of these classes, or None when some class has none.

    Args:
        name: of the kernel.
        params: of the kernel.
        classes: class of the argument of each.
        slow: called as `slow(grid, values, extra, options)` for every call that is not remembered.
        before_launch: called ahead of every launch, or None.
    """
    readers = [_reader(param, cls) for param, cls in zip(params, classes, strict=True)]
    known = [reader for reader in readers if reader is not None]
    if len(known) < len(readers):
        return None
    scope = _scope(params) | {
        "_tw_slow": slow,
        "_tw_grid3": grid3,
        "_tw_address": numpy_address,
        "_tw_gradient": _gradient_key,
        "_tw_pattern": pattern,
        "_tw_apart": apart_test(),
        "_tw_before": before_launch,
        **{f"_tw_T{index}": cls for index, cls in enumerate(classes)},
    }
    text = _variant_text(params, known, before_launch is not None)
    variant = Variant(text, scope, [index for index, reader in enumerate(known) if reader.value])
    variant.launch.__name__ = variant.launch.__qualname__ = name
    return variant


def _gradient_key(tensor: Any) -> bool | None:
    """Whether autograd records `tensor`; None where launches refuse that."""
    recorded = is_recorded(tensor)
    return None if recorded and are_gradients_refused() else recorded


def integer_key(param: Param) -> str:
    """Expression of what code is specialised on in an integer argument `{a}` of `param`; None where it is refused."""
    key = _INT if param.specialize else _WIDTH
    if not is_ranged(param.fixed_type):
        return key
    low, high = integer_range(param.fixed_type)
    return f"({key}) if {low} <= {{a}} <= {high} else None"


def generate_bind(name: str, params: Sequence[Param]) -> Callable[..., Any]:
    """`bind(*args, **kwargs)` -> (values by parameter, extra positional arguments, other keywords).

    Raises:
        ArgumentError: a parameter is called as names of the generated code are.
    """
    taken = next((param.name for param in params if param.name.startswith("_tw_")), None)
    if taken is not None:
        raise ArgumentError(
            f"{name}: no parameter can be called `{taken}`: such names are the launcher's",
            hint=f"write {taken[4:] or 'x'}",
        )
    scope = _scope(params)
    text = f"def _tw_bind({_parameters(params)}):\n    return {_values(params)}, _tw_extra, _tw_options\n"
    exec(compile(text, "<tilewright bind>", "exec"), scope)
    bind: Callable[..., Any] = scope["_tw_bind"]
    bind.__name__ = bind.__qualname__ = name
    return bind


def _scope(params: Sequence[Param]) -> dict[str, Any]:
    # Builtins by names of ours: a kernel may well have a parameter called `len`.
    scope: dict[str, Any] = {f"_tw_{known.__name__}": known for known in (tuple, len, int, callable, Exception)}
    scope["_tw_missing"] = MISSING
    scope.update({f"_tw_D{param.index}": param.default for param in params if param.has_default})
    if any(param.kind is inspect.Parameter.VAR_POSITIONAL for param in params):
        scope["_tw_extra"] = ()  # the kernel's own *args takes what is left over
    return scope


def _parameters(params: Sequence[Param]) -> str:
    """The parameter list: every parameter has a default, so that a missing argument reaches our own error."""
    positional: list[str] = []
    keyword_only: list[str] = []
    variadic = "*_tw_extra"
    for param in params:
        if param.kind is inspect.Parameter.VAR_POSITIONAL:
            variadic = f"*{param.name}"
            continue
        text = f"{param.name}={f'_tw_D{param.index}' if param.has_default else '_tw_missing'}"
        (keyword_only if param.kind is inspect.Parameter.KEYWORD_ONLY else positional).append(text)
    return ", ".join([*positional, variadic, *keyword_only, "**_tw_options"])


def _values(params: Sequence[Param]) -> str:
    return f"({', '.join(param.name for param in params)}{',' if len(params) == 1 else ''})"


def _variant_text(params: Sequence[Param], readers: Sequence[_Reader], checked: bool) -> str:
    names = [{"a": param.name, "v": f"_tw_v{param.index}"} for param in params]
    setup = [r.setup.format(**n) for r, n in zip(readers, names, strict=True) if r.setup]
    parts = [r.key.format(**n) for r, n in zip(readers, names, strict=True) if r.key]
    arrays = ", ".join(n["a"] for r, n in zip(readers, names, strict=True) if r.setup)
    if "," in arrays:
        parts.append(f"_tw_apart({arrays}) or _tw_pattern({arrays})")
    parts.append("_tw_tuple(_tw_options.items()) if _tw_options else 0")
    key = f"({', '.join(parts)},)"
    slots = "".join(f", {r.value.format(**n)}" for r, n in zip(readers, names, strict=True) if r.value)
    guard = " and ".join([f"{p.name}.__class__ is _tw_T{p.index}" for p in params] + ["not _tw_extra"])
    meta = ", ".join(f"{p.name!r}: {p.name}" for p in params)
    setup_try = "".join(f"            {line}\n" for line in setup)
    setup_key = "".join(f"    {line}\n" for line in setup)
    return (
        f"def _tw_launch(_tw_grid, /, {_parameters(params)}):\n"
        f"    if {guard}:\n"
        f"        try:\n{setup_try}"
        f"            _tw_run, _tw_kernel = _tw_table[{key}]\n"
        f"        except _tw_Exception:\n"
        f"            pass\n"
        f"        else:\n"
        f"            _tw_x = _tw_grid[0] if _tw_grid.__class__ is _tw_tuple and _tw_len(_tw_grid) == 1 else None\n"
        f"            if _tw_x.__class__ is _tw_int and 0 <= _tw_x < 0x80000000:\n"
        f"                _tw_y = _tw_z = 1\n"
        f"            else:\n"
        f"                if _tw_callable(_tw_grid):\n"
        f"                    _tw_grid = _tw_grid({{{meta}}})\n"
        f"                _tw_x, _tw_y, _tw_z = _tw_grid3(_tw_grid)\n"
        f"{'            _tw_before()' if checked else ''}\n"
        f"            if _tw_x and _tw_y and _tw_z:\n"
        f"                _tw_run(_tw_x, _tw_y, _tw_z{slots})\n"
        f"            return _tw_kernel\n"
        f"    return _tw_slow(_tw_grid, {_values(params)}, _tw_extra, _tw_options)\n"
        f"def _tw_key({', '.join(p.name for p in params)}{', ' if params else ''}*, _tw_options):\n"
        f"{setup_key}    return {key}\n"
    )
