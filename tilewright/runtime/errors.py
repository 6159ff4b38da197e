"""`triton.runtime.errors`."""

from tilewright.base.errors import AutotunerError, InterpreterError, OutOfResources
from tilewright.base.errors import TilewrightError as TritonError


class PTXASError(TritonError):
    """NVIDIA's assembler refused PTX: of Triton's autotuner; Tilewright raises errors of its own kinds."""


__all__ = ["AutotunerError", "InterpreterError", "OutOfResources", "PTXASError", "TritonError"]
