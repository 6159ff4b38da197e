"""`CompiledKernel.run`: a launch by somebody who has bound and keyed the arguments already (Inductor, libraries).

    run(gx, gy, gz, stream, function, packed_metadata, launch_metadata, enter_hook, exit_hook, *arguments)

The arguments are those of every parameter, constants included, as Triton's launchers take them. The function is
generated, so that a launch costs an address per tensor and the native call; what was called once machine code launches
(`launch/runs.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.base.target import Placement

Launch = Callable[..., None]


class Unsaved(dict[Any, Any]):
    """A memo of what only this process can use: a copy that is pickled is empty."""

    def __reduce__(self) -> tuple[type[Unsaved], tuple[()]]:
        return Unsaved, ()


def make_run(kernel: Any) -> Launch:
    """The `run` of a compiled kernel.

    Args:
        kernel: a `CompiledKernel` whose specialisation is known.
    """
    in_python = _in_python(kernel)
    return in_python if _native_run is None else _native_run(kernel, in_python)


def make_call(kernel: Any, in_python: Callable[..., Launch]) -> Callable[..., Any]:
    """What `kernel[grid]` calls: `call(grid, *arguments, stream=None)`.

    Args:
        kernel: a `CompiledKernel` whose specialisation is known.
        in_python: the same in Python; gives the launch function that it found.
    """
    return in_python if _native_call is None else _native_call(kernel, in_python)


_native_run: Callable[[Any, Launch], Launch] | None = None
_native_call: Callable[[Any, Callable[..., Launch]], Launch] | None = None


def install(run: Callable[[Any, Launch], Launch], call: Callable[[Any, Callable[..., Launch]], Launch]) -> None:
    """Have `run(kernel, run)` and `call(kernel, call)` make quicker functions of those in Python."""
    global _native_run, _native_call
    _native_run, _native_call = run, call


def _in_python(kernel: Any) -> Launch:
    specialization = kernel.specialization
    kinds = dict(zip(specialization.runtime_paths, specialization.runtime_types, strict=True))
    parameters = [f"a{index}" for index in range(len(specialization.names))]
    if any(len(path) > 1 for path in kinds):  # tuples and descriptors are taken apart by the general way
        return _watched(lambda gx, gy, gz, stream, *args: kernel[gx, gy, gz](*args, stream=stream or None))
    slots = [f"a{path[0]}{'.data_ptr()' if kind.startswith('*') else ''}" for path, kind in kinds.items()]
    launch = "launch" if kernel.target.backend == "cpu" else "launch_on(stream)"
    text = f"""
def run(gx, gy, gz, stream, function, packed, facts, enter, exit, {", ".join(parameters)}):
    if enter:
        enter(facts)
    if gx > 0 and gy > 0 and gz > 0:
        try:
            {launch}({", ".join(["gx", "gy", "gz", *slots])})
        except AttributeError:  # an address, or an array of another library than torch
            general[gx, gy, gz]({", ".join(parameters)}, stream=stream or None)
    if exit:
        exit(facts)
"""
    scope = {
        "launch": kernel.launcher(Placement(None)) if launch == "launch" else None,
        "launch_on": lambda stream: kernel.launcher(Placement(None, stream)),
        "general": kernel,
    }
    exec(text, scope)
    made: Launch = scope["run"]
    return made


def _watched(launch: Launch) -> Launch:
    """`launch(gx, gy, gz, stream, *arguments)` between the two hooks."""

    def run(gx: int, gy: int, gz: int, stream: Any, *rest: Any) -> None:
        _, _, facts, enter, exit, *args = rest
        if enter:
            enter(facts)
        launch(gx, gy, gz, stream, *args)
        if exit:
            exit(facts)

    return run
