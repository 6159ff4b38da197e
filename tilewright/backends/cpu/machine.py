"""Whether this machine can run code for a target, found out without LLVM where the system tells."""

from __future__ import annotations

import functools
import platform
import re
import sys
from pathlib import Path

from tilewright.backends.cpu.device.permission import request_permission
from tilewright.backends.llvm.features import FEATURES, arch_of, describe, host
from tilewright.base import system
from tilewright.base.target import Target

_CPUINFO = Path("/proc/cpuinfo")
_ARCHES = {"amd64": "x86_64"}  # as Windows says it
_SYSTEMS = {"linux": "Linux", "darwin": "macOS", "macos": "macOS", "windows": "Windows", "win32": "Windows"}
# Names that Linux has for features whose LLVM names differ by more than a dot, a dash or an underscore.
_LINUX = {"64bit": "lm", "sahf": "lahflm", "sse3": "pni", "lzcnt": "abm", "crc32": "sse42", "bmi": "bmi1"}


def why_not(target: Target) -> str:
    """Why code for a CPU does not run here; "" if it does.

    Args:
        target: of the code; its triple is filled in.
    """
    wanted = describe(target.triple, str(target.arch), target.features)
    place = system_of(wanted.triple), wanted.arch
    if place != (system_of(sys.platform), arch_of(_ARCHES.get(platform.machine().lower(), platform.machine()))):
        return f"this machine is no {place[0]} on {place[1].replace('_', '-')}"
    missing = sorted(wanted.available & FEATURES - features(wanted.arch))
    if missing:
        return f"this machine has no {', '.join(missing)}"
    if wanted.has("amx-tile") and not request_permission():
        return "the system does not let this process use tile registers"
    return ""


def system_of(triple: str) -> str:
    """The operating system that a triple or Python names, by its usual name; "" if it is none that is known."""
    return next((name for part, name in _SYSTEMS.items() if part in triple), "")


@functools.cache
def features(arch: str) -> frozenset[str]:
    """Features of this machine, by LLVM's names; none if it is of another architecture.

    Args:
        arch: that is asked about, "x86_64" for instance.
    """
    known = system.this().arm_features() if arch == "aarch64" else None
    if known is not None:
        return known & FEATURES
    flags = _flags() if arch == "x86_64" else None
    if flags is None:
        return host().available if host().arch == arch else frozenset()
    return frozenset(name for name in FEATURES if _LINUX.get(name, re.sub("[.-]", "", name)) in flags)


def _flags() -> frozenset[str] | None:
    """What Linux calls the features of an x86 processor, without punctuation."""
    try:
        found = re.search(r"^flags\s*:(.*)$", _CPUINFO.read_text(encoding="ascii", errors="replace"), re.MULTILINE)
    except OSError:
        return None
    return frozenset(found.group(1).replace("_", "").split()) if found else None
