"""The LLVM module of a kernel: functions for NVPTX, the array of shared memory, line tables that cost nothing."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.backends.llvm.module import Module
from tilewright.backends.llvm.types import VOID, T
from tilewright.backends.nvidia.emit.function import NvFunction


class NvModule(Module):
    """Functions, globals and metadata of one kernel."""

    def kernel(self, name: str, params: Sequence[T | tuple[T, str]], attributes: str) -> NvFunction:
        """Start the kernel `name`.

        Args:
            name: symbol.
            params: types, each optionally with LLVM attributes.
            attributes: of the function, such as `"nvvm.reqntid"="128"`.
        """
        function = self._functions[name] = NvFunction(self, name, VOID, params, "ptx_kernel", f"nounwind {attributes}")
        return function

    def internal(self, name: str, ret: T, params: Sequence[T], attributes: str = "nounwind") -> NvFunction:
        """Start an internal function, such as a helper that many places call."""
        function = self._functions[name] = NvFunction(self, name, ret, params, "internal", attributes)
        return function


__all__ = ["NvModule"]
