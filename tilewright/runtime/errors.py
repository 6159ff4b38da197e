"""Errors of launches under the name of `triton.runtime.errors`; their home is `tilewright.base.errors`."""

from __future__ import annotations

from tilewright.base.errors import AutotunerError, InterpreterError, OutOfResources, TilewrightError

TritonError = TilewrightError

__all__ = ["AutotunerError", "InterpreterError", "OutOfResources", "TritonError"]
