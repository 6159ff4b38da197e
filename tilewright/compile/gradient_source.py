"""The gradient kernel of a kernel, as a source of its own: the kernel's front end, `gradients/`, and the passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.base.callable import BlockFunction
from tilewright.base.dtypes import scalar_from_signature
from tilewright.compile.lazy_compiler import derive, entry, text, united
from tilewright.compile.parameters import parameter_specs
from tilewright.compile.request import Request
from tilewright.compile.sources import FunctionSource, nest_stage, simplify
from tilewright.compile.specialize import ALIGNMENT, CONSTEXPR, DIVISIBLE, Specialization
from tilewright.passes.stages import Stage

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp


class GradientSource(FunctionSource):
    """A gradient kernel. Its parameters are the kernel's, and behind them those of `launch/gradient.py`.

    Args:
        fn: the kernel.
        count: how many parameters it has.
        wrt: names of those that get gradients.
        counts: the kernel that counts iterations instead.
    """

    def __init__(self, fn: BlockFunction, count: int, wrt: Sequence[str], counts: bool = False) -> None:
        super().__init__(fn)
        self.count, self.wrt, self.counts = count, tuple(wrt), counts

    def name_for(self, specialization: Specialization) -> str:
        """That of the kernel, and what this is."""
        return f"{super().name_for(self._of_kernel(specialization))}_{'iterations' if self.counts else 'gradient'}"

    def content(self) -> str:
        """As of the kernel, and with respect to what."""
        return f"{super().content()}:gradient {','.join(self.wrt)}{' counts' * self.counts}"

    def stages(self, request: Request, later: Mapping[str, Stage]) -> dict[str, Stage]:
        """Front end, gradient and simplification, and the back end's stages."""

        def run(source: GradientSource, metadata: dict[str, Any]) -> ModuleOp:
            made = source.derived(request)
            metadata["params"] = list(request.specialization.names)
            united.note_shared_memory(made.module, request.specialization)
            return simplify(made.module, metadata, request)

        first = Stage(run, text.print_module, lambda contents: text.parse_module(contents.decode()))
        return {"ttir": first, "nest": nest_stage(), **later}

    def before_passes(self, request: Request) -> str:
        """Tile IR of the gradient."""
        return text.print_module(self.derived(request).module)

    def derived(self, request: Request) -> derive.Derived:
        """The gradient kernel before the passes.

        Raises:
            NotDifferentiableError: the kernel has none.
        """
        specialization, name = request.specialization, self.name_for(request.specialization)
        specs = parameter_specs(self._of_kernel(specialization))
        built = entry.build_module(self.fn, specs, request.options, request.target, name)
        rows = [row for row in specialization.leaves() if row[1][0] >= self.count and row[2] != CONSTEXPR]
        more = [
            entry.RuntimeParam(
                name, scalar_from_signature(kind), {"divisibility": ALIGNMENT} if key == DIVISIBLE else {}
            )
            for name, _, kind, key in rows
        ]
        return derive.derive(built, self.wrt, more, request.options, request.target, name, counts=self.counts)

    def _of_kernel(self, specialization: Specialization) -> Specialization:
        n = self.count
        return Specialization(specialization.names[:n], specialization.types[:n], specialization.keys[:n])

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (super().__reduce__(), self.count, self.wrt, self.counts)


def _made(kernel: tuple[Any, ...], count: int, wrt: Sequence[str], counts: bool) -> GradientSource:
    rebuild, arguments = kernel
    return GradientSource(rebuild(*arguments).fn, count, wrt, counts)
