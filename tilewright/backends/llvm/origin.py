"""For which machine an object file was made, by its first bytes.

Code for another one must not be run, nor be given to LLVM's loader, which trusts what it gets.
"""

from __future__ import annotations

import platform
import sys

_ELF, _MACH_O = b"\x7fELF", b"\xcf\xfa\xed\xfe"
_FORMATS = {"linux": "ELF", "darwin": "Mach-O", "win32": "COFF"}
_SYSTEMS = {"ELF": "Linux", "Mach-O": "macOS", "COFF": "Windows"}
_MACHINES = {
    "ELF": {62: "x86-64", 183: "aarch64"},
    "Mach-O": {0x0100_0007: "x86-64", 0x0100_000C: "aarch64"},
    "COFF": {0x8664: "x86-64", 0xAA64: "aarch64"},
}
_OURS = {"x86_64": "x86-64", "amd64": "x86-64", "aarch64": "aarch64", "arm64": "aarch64"}


def elsewhere(image: bytes) -> str:
    """Where an object runs, if that is not here ("Windows on x86-64"); "" where it is, or where it is no known object.

    Args:
        image: the bytes of the file.
    """
    if image[:4] == _ELF:
        found, machine = "ELF", int.from_bytes(image[18:20], "little")
    elif image[:4] == _MACH_O:
        found, machine = "Mach-O", int.from_bytes(image[4:8], "little")
    else:
        found, machine = "COFF", int.from_bytes(image[:2], "little")
    arch = _MACHINES[found].get(machine)
    here = _FORMATS.get(sys.platform), _OURS.get(platform.machine().lower())
    if arch is None or None in here or here == (found, arch):
        return ""
    return f"{_SYSTEMS[found]} on {arch}"
