"""`triton.runtime.interpreter`: kernels that run as Python are ordinary jit functions here."""

from tilewright.base.errors import InterpreterError


class InterpretedFunction:
    """What Triton makes of a kernel in interpreter mode; in Tilewright it is a `JITFunction`, and nothing is this."""


__all__ = ["InterpretedFunction", "InterpreterError"]
