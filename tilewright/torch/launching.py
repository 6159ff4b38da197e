"""What an operator does when it is called on tensors that have memory: launch, and count the change.

For a kernel by itself the text below is written around its prepared launch; an autotuned kernel takes the way of
`kernel[grid](...)`, with the grid that belongs to the configuration it chooses.

    def call(a0, a1, a2, x, y, z):
        if <somebody watches launches, or the kernel is interpreted>:  general(a0, a1, a2, x, y, z)
        else:  launch(x, y, z, a0, a1, a2)
        written((a1,))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilewright.base.errors import ArgumentError
from tilewright.base.knobs import knobs
from tilewright.compile.kinds import arranged
from tilewright.launch.jit import JITFunction
from tilewright.torch.memory import increment_version
from tilewright.torch.signature import KernelOperator

_WATCHED = (
    "watched.interpret or watched.launch_enter_hook.calls or watched.launch_exit_hook.calls"
    " or kernel.interpret or kernel.pre_run_hooks"
)


def make_launch(operator: KernelOperator, *, host_only: bool) -> Callable[..., None]:
    """What `operator` calls.

    Args:
        operator: its signature, kernel and effects.
        host_only: every array is in the memory of the CPU.
    """
    general = _general(operator)
    count, written = len(operator.leaves), sorted(operator.written)
    values = "".join(f"a{index}, " for index in range(count))
    changed = "".join(f"a{index}, " for index in written)
    scope: dict[str, Any] = {"general": general, "written": increment_version}
    if isinstance(operator.kernel, JITFunction):
        types = {param.name: kind for param, kind in operator.kinds}
        options = dict(operator.signature.options)
        scope |= {"watched": knobs.runtime, "kernel": operator.kernel}
        scope["launch"] = operator.kernel.prepare(types, {}, options, host_only=host_only)
        text = (
            f"def call({values}x, y, z):\n    if {_WATCHED}:\n        general({values}x, y, z)\n"
            f"    else:\n        launch(x, y, z, {values})\n    written(({changed}))\n"
        )
    else:
        text = f"def call({values}*grids):\n    general({values}*grids)\n    written(({changed}))\n"
    exec(compile(text, "<tilewright operator>", "exec"), scope)
    made: Callable[..., None] = scope["call"]
    return made


def _general(operator: KernelOperator) -> Callable[..., None]:
    """The launch through `kernel[grid](...)`."""
    count = len(operator.leaves)
    options, configs = dict(operator.signature.options), operator.configs

    def launch(*values: Any) -> None:
        grids = [tuple(values[start : start + 3]) for start in range(count, len(values), 3)]

        def grid(chosen: Mapping[str, Any]) -> tuple[int, ...]:
            for config, programs in zip(configs, grids, strict=True):
                if config is None or all(chosen.get(name) == value for name, value in config.kwargs.items()):
                    return programs
            raise ArgumentError(f"kernel `{operator.base.fn.__name__}` was traced without the configuration it chose")

        args, kwargs = arranged(operator.kinds, values[:count])
        operator.kernel.launcher(grid)(*args, **kwargs, **options)

    return launch
