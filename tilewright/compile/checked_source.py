"""A kernel with checks, as a source of its own: the stages of the kernel, with `passes/checks.py` behind the first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tilewright.base.callable import BlockFunction
from tilewright.base.checks import HINTS, Checks
from tilewright.compile.lazy_compiler import checks, text
from tilewright.compile.request import Request
from tilewright.compile.sources import FunctionSource, nest_stage
from tilewright.passes.stages import Stage

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp


class CheckedSource(FunctionSource):
    """A kernel whose accesses are checked. Launches give it more than its arguments (`launch/checked.py`).

    Args:
        fn: the kernel.
        wanted: names of checks.
        shared: arguments may share memory.
    """

    def __init__(self, fn: BlockFunction, wanted: Checks, shared: bool) -> None:
        super().__init__(fn)
        self.wanted, self.shared, self.keeps_promises = wanted, shared, HINTS in wanted

    def content(self) -> str:
        """As of the kernel, and what is checked."""
        return f"{super().content()}:checked {','.join(self.wanted)}{' shared' * self.shared}"

    def stages(self, request: Request, later: Mapping[str, Stage]) -> dict[str, Stage]:
        """Those of the kernel; the first one adds the checks, and `metadata["checked"]` says what they are."""
        plain = super().stages(request, later)["ttir"]

        def run(source: FunctionSource, metadata: dict[str, Any]) -> ModuleOp:
            module: ModuleOp = plain.run(source, metadata)
            checked, types = checks.add_checks(module, self.wanted, shared=self.shared)
            metadata["types"] = [*metadata["types"], *types]
            metadata["checked"] = checked.record()
            return module

        first = Stage(run, text.print_module, lambda contents: text.parse_module(contents.decode()))
        return {"ttir": first, "nest": nest_stage(), **later}

    def __reduce__(self) -> tuple[Any, ...]:
        return CheckedSource, (self.fn, self.wanted, self.shared)
