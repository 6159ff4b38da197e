"""Questions about the target that a kernel asks while it is compiled (`tl.target_info`).

The answers are compile-time constants, so that ``if is_cuda():`` keeps one branch only. On the host, outside of a
kernel, they are those of the active driver's target.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.base.builtin import Builtin, active_target, target_on_host
from tilewright.base.target import Target
from tilewright.ops.values import constexpr, unwrap


class TargetQuestion(Builtin):
    """A builtin that may also be called on the host.

    Args:
        ask: answers for a target, which is None where there is none.
    """

    def __init__(self, ask: Callable[..., Any]) -> None:
        self._ask = ask

        def answer(b: Any, *args: Any, **kwargs: Any) -> constexpr:
            return constexpr(ask(b.target, *(unwrap(a) for a in args), **{k: unwrap(v) for k, v in kwargs.items()}))

        answer.__name__, answer.__doc__, answer.__module__ = ask.__name__, ask.__doc__, ask.__module__
        super().__init__(answer)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The plain answer: for the target of the kernel that is interpreted, or of the active driver."""
        target = active_target()
        return self._ask(target_on_host() if target is None else target, *args, **kwargs)


def current_target(target: Target | None) -> Target | None:
    """What the kernel is compiled for: backend, architecture, warp size."""
    return target


def is_cuda(target: Target | None) -> bool:
    """Whether the kernel is compiled for an NVIDIA GPU."""
    return target is not None and target.backend == "cuda"


def is_cpu(target: Target | None) -> bool:
    """Whether the kernel is compiled for a CPU."""
    return target is not None and target.backend == "cpu"


def is_hip(target: Target | None) -> bool:
    """Whether the kernel is compiled for an AMD GPU: never, there is no such back end."""
    return target is not None and target.backend == "hip"


def cuda_capability_geq(target: Target | None, major: int, minor: int = 0) -> bool:
    """Whether the kernel is compiled for an NVIDIA GPU of at least compute capability `major`.`minor`."""
    return target is not None and target.backend == "cuda" and int(target.arch) >= 10 * major + minor
