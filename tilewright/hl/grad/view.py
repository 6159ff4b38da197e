"""What a user sees of a gradient: the derived kernels as text, and who adds up what, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright import lazy_module
from tilewright.hl.runtime.kernel import Kernel

if TYPE_CHECKING:
    from tilewright.hl.grad import calls
    from tilewright.hl.grad.loops import Backward
    from tilewright.hl.grad.owners import Owner
else:
    calls = lazy_module("tilewright.hl.grad.calls")


@dataclass(frozen=True)
class Plan:
    """How the gradient of one top-level loop is computed.

    Args:
        line: of the loop in the user's file.
        owners: for each tensor who adds up its gradient: `tensor`, `form` ("store", "add", "partial", "joined",
            "sorted" or "atomic"), `why` and the `line` of its first load.
        saved: names of the tensors that are saved between the forward pass and the backward one.
    """

    line: int
    owners: tuple[Owner, ...]
    saved: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"line {self.line}: saves {', '.join(self.saved) or 'nothing'}"]
        lines += [f"  line {one.line}: {one.tensor}: {one.form}, as {one.why}" for one in self.owners]
        return "\n".join(lines)


class Gradient:
    """The gradient of a kernel.

    Args:
        kernel: a kernel.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def kernels(self, args: Sequence[object]) -> list[Kernel]:
        """The derived kernels, one for each top-level loop through which a gradient flows.

        Args:
            args: arguments of a call. Where some of the tensors require gradients, the others get none; else all
                floating-point ones do.

        Raises:
            NotDifferentiable: the kernel has no gradient that hl can derive.
        """
        return [one.kernel for _, one in self._backward(args) if one.kernel is not None]

    def to_hl(self, args: Sequence[object]) -> str:
        """The derived kernels as a module of hl that can be read, run and changed; `args` as of `kernels`.

        Before a backward pass that reads more than arguments and results stands the forward pass that keeps it.
        """
        found = [one.derived for _, one in self._backward(args) if one.derived.text]
        texts = [text for one in found for text in (one.forward_text, one.text) if text]
        heads = sorted({text.split("@hl.kernel")[0] for text in texts}, key=len)
        bodies = ["@hl.kernel" + text.split("@hl.kernel", 1)[1] for text in texts]
        return heads[-1] + "\n\n".join(bodies) if texts else ""

    def plan(self, args: Sequence[object]) -> list[Plan]:
        """How the gradient of each top-level loop is computed; `args` as of `kernels`."""
        return [Plan(line, one.derived.owners, tuple(one.saved)) for line, one in self._backward(args)]

    def _backward(self, args: Sequence[object]) -> list[tuple[int, Backward]]:
        return calls.backward_of(self.kernel, self.kernel.normalize_args(*args))
