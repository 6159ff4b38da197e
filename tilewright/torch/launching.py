"""What an operator does when it is called on tensors that have memory: launch, and count the change.

The text below is written for a kernel by itself; what is no run-time value has a name. An autotuned kernel takes
`general`, with the grid that belongs to the configuration it chooses.

    def call(a0, a1, a2, a3, x, y, ):
        launcher((x, y, ))(a0, (a1, a2, ), a3, k0, num_warps=k1)
        written((a1, ))
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tilewright.base.errors import ArgumentError
from tilewright.compile.kinds import Constant, Described, Kind, arranged, like
from tilewright.devices.host_descriptor import TensorDescriptor
from tilewright.launch.jit import JITFunction
from tilewright.launch.native.operators import Launched
from tilewright.torch.aliasing import increment_version
from tilewright.torch.signature import KernelOperator


def make_launch(operator: KernelOperator) -> tuple[Callable[..., None], dict[str, Any]]:
    """What `operator` calls, and the variables that it reads.

    Args:
        operator: its signature, kernel and effects. For the same name the text is the same, so another object with this
            content takes the place of the kernel when its variables are put in the place of these.
    """
    scope: dict[str, Any] = {"written": increment_version}
    values = "".join(f"a{index}, " for index in range(len(operator.leaves)))
    changed = "".join(f"a{index}, " for index in sorted(operator.written))
    if isinstance(operator.kernel, JITFunction):
        scope["launcher"] = operator.kernel.launcher
        grid = "".join(f"{axis}, " for axis in operator.axes)
        arguments = [f"{name}={text}" if name else text for name, text in _arguments(operator, scope)]
        launch = f"launcher(({grid}))({', '.join(arguments)})"
    else:
        scope["general"] = _general(operator)
        grid, launch = "*grids", f"general({values}*grids)"
    text = f"def call({values}{grid}):\n    {launch}\n    written(({changed}))\n"
    exec(compile(text, "<tilewright operator>", "exec"), scope)
    made: Callable[..., None] = scope["call"]
    return made, scope


def launch_at_once(operator: KernelOperator, observed: Callable[..., None]) -> Launched | None:
    """What `operator` calls, in machine code; None where it cannot be made.

    Args:
        operator: with its signature and kernel.
        observed: called where somebody in PyTorch looks on.
    """
    launched = Launched(observed, len(operator.leaves), operator.signature.rank)
    aim(operator, launched)
    return None if launched.call is None else launched


def aim(operator: KernelOperator, launched: Launched) -> None:
    """Have `launched` launch the kernel of `operator`, if each of its arguments is a value or a constant."""
    if not isinstance(operator.kernel, JITFunction):
        return
    scope: dict[str, Any] = {}
    values = {f"a{index}": index for index in range(len(operator.leaves))}
    arguments = _arguments(operator, scope)
    if all(text in values or text in scope for _, text in arguments):
        places = [(name, values.get(text, -1), scope.get(text)) for name, text in arguments]
        launched.launch(operator.kernel, places)


def _arguments(operator: KernelOperator, scope: dict[str, Any]) -> list[tuple[str, str]]:
    """The arguments of the launch as text, each with its keyword or ""; what they name goes into `scope`."""

    def known(value: Any) -> str:
        name = f"k{len(scope)}"
        scope[name] = value
        return name

    def passed(kind: Kind) -> str:
        if isinstance(kind, Constant):
            return known(kind.value)
        if isinstance(kind, tuple):
            items = "".join(f"{passed(item)}, " for item in kind)
            return f"({items})" if type(kind) is tuple else f"{known(functools.partial(like, kind))}(({items}))"
        if isinstance(kind, Described):
            rank, base = len(kind.block_shape), next(values)
            sizes, strides = ("".join(f"{next(values)}, " for _ in range(n)) for n in (rank, rank - 1))
            rest = ", ".join(map(known, (kind.block_shape, kind.padding, kind.round_f32_to_tf32)))
            return f"{known(TensorDescriptor)}({base}, [{sizes}], [{strides}1], {rest})"
        return next(values)

    values: Iterator[str] = (f"a{index}" for index in range(len(operator.leaves)))
    texts = []
    for number, (param, kind) in enumerate(operator.kinds):
        if param.kind is inspect.Parameter.VAR_POSITIONAL:
            texts.append(("", f"*{passed(kind)}"))
        elif param.index == number and param.kind is not inspect.Parameter.KEYWORD_ONLY:
            texts.append(("", passed(kind)))
        else:
            texts.append((param.name, passed(kind)))
    texts.extend((name, known(value)) for name, value in operator.signature.options)
    return texts


def _general(operator: KernelOperator) -> Callable[..., None]:
    """The launch of an autotuned kernel."""

    def launch(*values: Any) -> None:
        grid, args, kwargs = as_written(operator, values)
        operator.kernel.launcher(grid)(*args, **kwargs)

    return launch


def as_written(operator: KernelOperator, values: tuple[Any, ...]) -> tuple[Any, list[Any], dict[str, Any]]:
    """Grid, arguments and keywords of the launch that a call of the operator stands for; see `KernelOperator`."""
    count, rank = len(operator.leaves), operator.signature.rank
    grids = [tuple(values[start : start + rank]) for start in range(count, len(values), rank)]

    def grid(chosen: Mapping[str, Any]) -> tuple[int, ...]:
        for config, programs in zip(operator.configs, grids, strict=True):
            wanted = {} if config is None else config.kwargs  # options of the launch among them are not told here
            if all(chosen[name] == value for name, value in wanted.items() if name in chosen):
                return programs
        raise ArgumentError(f"kernel `{operator.base.fn.__name__}` was traced without the configuration it chose")

    args, kwargs = arranged(operator.kinds, values[:count])
    return (
        grids[0] if isinstance(operator.kernel, JITFunction) else grid,
        args,
        {**kwargs, **dict(operator.signature.options)},
    )
