"""Numbers of the host that a kernel is compiled with."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilewright import lazy_module
from tilewright.hl import exc
from tilewright.hl.symbols import Sym
from tilewright.hl.trace.state import Trace, current, place_of, running_trace
from tilewright.hl.tune.fragments import Fragment

if TYPE_CHECKING:
    from tilewright.hl.tune import keys
else:
    keys = lazy_module("tilewright.hl.tune.keys")


def _host(name: str) -> Trace:
    trace = running_trace(f"hl.{name}")
    if trace.region is not None:
        raise exc.SpecializeOnDevice(f"hl.{name} inside a loop over tiles", hint="call it before the loop")
    return trace


def _constant(function: Callable[..., Any]) -> Callable[..., Any]:
    """Calls are replaced by their results in the generated launcher."""
    function.host_constant = True  # type: ignore[attr-defined]
    return function


@_constant
def specialize(value: Any) -> Any:
    """Make a size a constant of the compiled kernel; another size is compiled anew.

    Args:
        value: a size, a stride, an integer argument, or a tuple of them.

    Returns:
        The number, or a tuple of numbers.
    """
    trace = _host("specialize")
    made = _specialized(trace, value)
    trace.constants[place_of(trace)] = made
    return made


def _specialized(trace: Trace, value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_specialized(trace, item) for item in value)
    if isinstance(value, Sym):
        return trace.decide(value)
    if not isinstance(value, int):
        raise exc.SpecializeArgType(
            f"hl.specialize of {value!r} of type {type(value).__name__}", hint="give it sizes, strides or integers"
        )
    return value


@_constant
def register_block_size(min_or_max: Any, max_or_none: Any = None) -> Any:
    """A block size that the configuration chooses: for `block_size=` of several loops, and for shapes.

    Args:
        min_or_max: the largest size that makes sense, or the smallest where another follows.
        max_or_none: the largest.
    """
    trace = _host("register_block_size")
    low, high = (1, min_or_max) if max_or_none is None else (min_or_max, max_or_none)
    axis = trace.add_axis(f"block_{len(trace.slots)}", "block", low, high, None, False)
    trace.chosen.sizes.add(axis.size)
    trace.constants[place_of(trace)] = Sym.of(axis.size)
    return Sym.of(axis.size)


@_constant
def register_tunable(name: str, fragment: Fragment) -> Any:
    """A number of the program that the configuration chooses, as the key `name`.

    Args:
        name: the key.
        fragment: its values, integers (`IntegerFragment(0, 3, 0)`, `EnumFragment([3, 5])`, ... of `hl.autotuner`), or
            whether something is done (`BooleanFragment()`).
    """
    trace = _host("register_tunable")
    if not isinstance(name, str) or not isinstance(fragment, Fragment):
        raise exc.RegisterTunableArgTypes(
            f"hl.register_tunable({name!r}, {fragment!r})", hint="give it a name and a fragment of hl.autotuner"
        )
    if name in keys.KEYS or name in keys.ALIASES:
        raise exc.TunableNameConflict(f"every configuration has a key {name!r}", hint="take another name")
    if type(fragment.default()) not in (int, bool):
        hint = "choices of a program are integers, or True and False"
        raise exc.TunableTypeNotSupported(f"the values of {name} are like {fragment.default()!r}", hint=hint)
    made: Any = trace.tunable(name, fragment)
    if type(fragment.default()) is bool:
        made = made != 0
    trace.constants[place_of(trace)] = made
    return made


def barrier() -> None:
    """Between two top-level loops: the second sees what the first stored. As each loop is a launch, it always does."""
    trace = current()
    if trace is not None and trace.region is not None:
        raise exc.BarrierOnlyAllowedAtTopLevel("hl.barrier inside a loop over tiles", hint="put it between two loops")


barrier.host_nothing = True  # type: ignore[attr-defined]


def pdl_wait() -> None:
    """Of the host: wait for what runs before. Launches run in order here, so there is nothing to do."""
    _outside_loops("pdl_wait")


def pdl_launch_dependents() -> None:
    """Of the host: let what follows begin. Launches run in order here, so there is nothing to do."""
    _outside_loops("pdl_launch_dependents")


def _outside_loops(name: str) -> None:
    trace = current()
    if trace is not None and trace.region is not None:
        raise exc.HostAPIOnDevice(f"hl.{name} inside a loop over tiles", hint="put it before or after the loops")


for _nothing in (pdl_wait, pdl_launch_dependents):
    _nothing.host_nothing = True  # type: ignore[attr-defined]
