"""Whether LLVM knows a CPU and its features, asked before LLVM meets them: it ends the process where it does not.

Names of our own table are trusted. For any other a process of its own asks LLVM, and compiles an empty function: some
CPUs that LLVM lists, such as those of 32 bits, are none for the triple.
"""

from __future__ import annotations

import difflib
import functools
import re
import subprocess
import sys

from tilewright.backends.llvm.features import CpuFeatures, is_listed
from tilewright.base.errors import DeviceError

_CHANGE = re.compile(r"[+-][A-Za-z0-9][A-Za-z0-9._-]*")

_ASK = """
import sys
import llvmlite.binding as llvm
llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
triple, cpu, flags = sys.argv[1:]
target = llvm.Target.from_triple(triple)
target.create_target_machine(cpu="help")
sys.stderr.flush()
print("compiling", flush=True)
module = llvm.parse_assembly('target triple = "' + triple + '" define i64 @f(i64 %x) { ret i64 %x }')
target.create_target_machine(cpu=cpu, features=flags).emit_object(module)
print("compiled", flush=True)
"""


def check_names(isa: CpuFeatures) -> None:
    """Refuse what LLVM would end the process for.

    Args:
        isa: a target as `describe` gives it.

    Raises:
        DeviceError: LLVM does not know the CPU or a feature, or cannot compile for them.
    """
    changes = [change for change in isa.flags.split(",") if change]
    for change in changes:
        if not _CHANGE.fullmatch(change):
            raise DeviceError(
                f"{change!r} is no change of a CPU's features",
                hint='write them as "+avx2,-avx512f": + or - and a name of LLVM\'s, separated by commas',
            )
    if is_listed(isa) and all(is_listed(isa, change[1:]) for change in changes):
        return
    _ask(isa.triple, isa.cpu, isa.flags)


@functools.lru_cache(maxsize=64)
def _ask(triple: str, cpu: str, flags: str) -> None:
    command = [sys.executable, "-c", _ASK, triple, cpu, flags]
    asked = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if "compiled" in asked.stdout and "not a recognized" not in asked.stderr:
        return
    cpus, features = names_in(asked.stderr)
    if not cpus:
        raise DeviceError(f"LLVM does not know the target triple {triple!r}", hint="for example x86_64-linux-gnu")
    arch = triple.partition("-")[0]
    if cpu not in cpus:
        raise DeviceError(f"LLVM knows no CPU {cpu!r} of {arch}", hint=_near(cpu, cpus, "x86-64-v3"))
    for change in flags.split(","):
        if change and change[1:] not in features:
            hint = _near(change[1:], features, "avx2")
            raise DeviceError(f"LLVM knows no feature {change[1:]!r} of {arch}", hint=hint)
    said = asked.stderr.strip().rpartition("\n")[2]
    raise DeviceError(f"LLVM cannot compile for the CPU {cpu!r} of {arch} with the features {flags!r}: {said}")


def names_in(listing: str) -> tuple[set[str], set[str]]:
    """CPUs and features of LLVM's help text, which it prints to the standard error stream."""
    first, _, second = listing.partition("Available features")
    cpus, features = (set(re.findall(r"^ +(\S+) +- ", part, re.MULTILINE)) for part in (first, second))
    return cpus, features


def _near(name: str, names: set[str], example: str) -> str:
    close = difflib.get_close_matches(name, sorted(names), 3, 0.5)
    return f"near names are {', '.join(close)}" if close else f"a name such as {example}"
