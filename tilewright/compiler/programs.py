"""Host functions of bundles: what a call does, as data, and in C."""

from tilewright.compile.c_program import write_program
from tilewright.compile.programs import At, Given, Memory, Program, Result, Step, Variant

__all__ = ["At", "Given", "Memory", "Program", "Result", "Step", "Variant", "write_program"]
