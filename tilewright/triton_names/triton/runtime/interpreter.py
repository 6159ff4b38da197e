"""`triton.runtime.interpreter`: kernels that run as Python are ordinary jit functions here."""

from tilewright.base.errors import InterpreterError


class InterpretedFunction:
    """What Triton makes of a kernel in interpreter mode; Tilewright makes a `JITFunction`, so nothing is one of these."""


__all__ = ["InterpretedFunction", "InterpreterError"]
