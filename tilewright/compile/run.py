"""`CompiledKernel.run`: a launch by somebody who has bound and keyed the arguments already (Inductor, libraries).

    run(gx, gy, gz, stream, function, packed_metadata, launch_metadata, enter_hook, exit_hook, *arguments)

The arguments are those of every parameter, constants included, as Triton's launchers take them. The function is
generated, so that a launch costs an address per tensor and the native call; what was called once machine code launches
(`launch/runs.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.base.errors import ArgumentError
from tilewright.base.hooks import LazyDict
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


def older_run(kernel: Any) -> Callable[..., None]:
    """The `c_wrapper` of a compiled kernel::

        c_wrapper(gx, gy, gz, num_warps, shared, stream, function, enter, exit, kernel, *arguments)                2.0
        c_wrapper(gx, gy, gz, num_warps, num_ctas, cluster x3, shared, stream, function, enter, exit, kernel, ...) 2.1

    Compile-time constants are left out of the arguments. What is known of the kernel is taken from it.
    """

    def run(gx: int, gy: int, gz: int, *rest: Any) -> None:
        at = next((at for at in (3, 7) if len(rest) > at + 2 and rest[at] is kernel.function), None)
        if at is None:
            raise ArgumentError(f"{kernel.name}: c_wrapper takes kernel.cu_function behind the stream")
        stream, enter, leave, arguments = rest[at - 1], *rest[at + 1 : at + 3], rest[at + 4 :]
        facts = LazyDict({"name": kernel.name, "function": kernel.function, "stream": stream, "grid": (gx, gy, gz)})
        if enter:
            enter(facts)
        try:
            kernel[gx, gy, gz](*arguments, stream=stream or None)
        finally:
            if leave:
                leave(facts)

    return run


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
    try:
        if gx > 0 and gy > 0 and gz > 0:
            try:
                {launch}({", ".join(["gx", "gy", "gz", *slots])})
            except AttributeError:  # an address, or an array of another library than torch
                general[gx, gy, gz]({", ".join(parameters)}, stream=stream or None)
    finally:
        if exit:
            exit(facts)
"""
    scope = {
        "launch": kernel.launcher(Placement(None)) if launch == "launch" else None,
        "launch_on": lambda stream: kernel.launcher(Placement(None, stream)),
        "general": kernel,
    }
    exec(compile(text, "<tilewright run>", "exec"), scope)
    made: Launch = scope["run"]
    return made


def _watched(launch: Launch) -> Launch:
    """`launch(gx, gy, gz, stream, *arguments)` between the two hooks."""

    def run(gx: int, gy: int, gz: int, stream: Any, *rest: Any) -> None:
        _, _, facts, enter, exit, *args = rest
        if enter:
            enter(facts)
        try:
            launch(gx, gy, gz, stream, *args)
        finally:
            if exit:
                exit(facts)

    return run
