"""Running a compiled CPU kernel over its grid: threads, scratch and the native launch function.

`make_launch` turns the address of a kernel into a Python callable; `team` is the process's choice of
threads (torch's OpenMP, another OpenMP, our own pool, or none).
"""

from tilewright.backends.cpu.device.launcher import KernelCode, coerce_slot, describe_threads, make_launch, slot_format
from tilewright.backends.cpu.device.team import Team, team
from tilewright.backends.protocol import ByteCache

__all__ = ["ByteCache", "KernelCode", "Team", "coerce_slot", "describe_threads", "make_launch", "slot_format", "team"]
