"""The one list of back ends.

A back end is a folder of `backends/` and a line here. Its options and the form of its targets are known at once; the
rest of it, which is most of Tilewright, loads at the first compile or launch for it (`base/lazy.py`).
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from tilewright.backends.cpu import options as cpu_options
from tilewright.backends.null import options as null_options
from tilewright.backends.nvidia import options as nvidia_options
from tilewright.backends.protocol import Backend
from tilewright.base.cache_layers import SmallObjects
from tilewright.base.errors import ArgumentError, UnknownOptionError, UnsupportedError
from tilewright.base.foreign_options import FOREIGN, tell_of
from tilewright.base.lazy import lazy_module
from tilewright.base.options import Options
from tilewright.base.target import Target

if TYPE_CHECKING:
    from tilewright.backends.cpu import backend as cpu
    from tilewright.backends.nvidia import backend as nvidia
    from tilewright.backends.nvidia.device import driver as gpu
else:
    cpu = lazy_module("tilewright.backends.cpu.backend", lambda module: module.set_cache(SmallObjects()))
    nvidia = lazy_module("tilewright.backends.nvidia.backend", lambda module: module.set_cache(SmallObjects()))
    gpu = lazy_module("tilewright.backends.nvidia.device.driver")
_cpu_device = lazy_module("tilewright.backends.cpu.device.active")
_gpu_device = lazy_module("tilewright.backends.nvidia.device.active")
null = lazy_module("tilewright.backends.null.backend")


__all__ = [
    "BACKENDS", "OPTION_NAMES", "USUAL", "Entry", "backend_of", "cpu", "gpu", "nvidia", "options_for", "parse_target",
]  # fmt: skip


class Entry(NamedTuple):
    """A back end before it is loaded.

    Args:
        options: its compile options.
        parse_arch: what follows the colon of "cuda:90" as a target; None if it is no architecture.
        backend: the module `backend.py`, loaded on first use.
        example: a target, for messages.
        device: the module `device/active.py`, whose `Driver` stands for its devices; None if it has none.
    """

    options: type[Options]
    parse_arch: Callable[[str], Target | None]
    backend: Backend
    example: str
    device: Any = None


BACKENDS: dict[str, Entry] = {
    "cpu": Entry(cpu_options.CpuOptions, cpu_options.parse_arch, cast(Backend, cpu), "cpu:x86-64-v3", _cpu_device),
    "cuda": Entry(nvidia_options.CudaOptions, nvidia_options.parse_arch, cast(Backend, nvidia), "cuda:90", _gpu_device),
    "null": Entry(null_options.NullOptions, null_options.parse_arch, null, "null:any"),
}
USUAL: dict[str, Any] = {f.name: f.default for entry in BACKENDS.values() for f in fields(entry.options)}
"""Every compile option that some back end has, with a usual value."""
OPTION_NAMES = frozenset(USUAL)


def backend_of(target: Target) -> Backend:
    """The back end of a target.

    Raises:
        UnsupportedError: there is none.
    """
    return _entry(target.backend, str(target)).backend


def options_for(target: Target, given: Mapping[str, Any]) -> Options:
    """The options of a target's back end; those that only concern other back ends are checked and left out, those of
    other compilers' back ends told of once.

    Args:
        target: what is compiled for.
        given: options by name.

    Raises:
        UnknownOptionError: no back end has such an option.
        ArgumentError: a value that an option cannot have.
    """
    tell_of(given)
    for name in given:
        if name not in OPTION_NAMES and name not in FOREIGN:
            import difflib  # not needed to import the package

            close = difflib.get_close_matches(name, OPTION_NAMES, 1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise UnknownOptionError(
                f"there is no compile option {name}", hint=f"{hint}options are {', '.join(sorted(OPTION_NAMES))}"
            )
    wanted = _entry(target.backend, str(target)).options
    made = {}
    for kind in {entry.options for entry in BACKENDS.values()}:  # a value that no target can have is wrong for all
        mine = {f.name: str(f.type) for f in fields(kind)}
        chosen = {name: value for name, value in given.items() if name in mine}
        made[kind] = kind(**{name: _of_kind(name, value, _plain(mine[name])) for name, value in chosen.items()})
    return made[wanted]


_PLAIN: dict[str, type] = {"bool": bool, "int": int, "str": str, "None": type(None)}


@functools.cache
def _plain(annotation: str) -> tuple[type, ...]:
    """The classes that an option's annotation names if they are plain: truth values, integers, texts, and None."""
    names = [name.strip() for name in annotation.split("|")]
    return tuple(map(_PLAIN.__getitem__, names)) if set(names) <= _PLAIN.keys() else ()


def _of_kind(name: str, value: Any, wanted: tuple[type, ...]) -> Any:
    """The value of an option as one of the classes that it has: 0 and 1 are truth values, numpy's integers integers.

    Raises:
        ArgumentError: it is none of these.
    """
    if not wanted or (isinstance(value, wanted) and not (isinstance(value, bool) and bool not in wanted)):
        return value
    if hasattr(value, "__index__") and not isinstance(value, bool):
        number = operator.index(value)
        if bool in wanted and number in (0, 1):
            return bool(number)
        if int in wanted:
            return number
    shown = " or ".join("None" if kind is type(None) else kind.__name__ for kind in wanted)
    raise ArgumentError(f"option {name} is {shown}, got {value!r}")


def parse_target(given: Target | str) -> Target:
    """A target by its text: `"cuda:90"`, `"cuda:sm_90a"`, or `"cpu:znver5"` and other names of LLVM.

    Raises:
        UnsupportedError: the text is no target.
    """
    if isinstance(given, Target):
        return given
    name, _, arch = given.partition(":") if isinstance(given, str) else ("", "", "")
    found = BACKENDS[name].parse_arch(arch) if name in BACKENDS else None
    if found is None:
        examples = [f'"{entry.example}"' for entry in BACKENDS.values()]
        raise UnsupportedError(f"{given!r} is no target", hint=f"write {', '.join(examples[:-1])} or {examples[-1]}")
    return found


def _entry(name: str, target: str) -> Entry:
    if name not in BACKENDS:
        raise UnsupportedError(f"no back end for target {target}", hint=f"available: {', '.join(BACKENDS)}")
    return BACKENDS[name]
