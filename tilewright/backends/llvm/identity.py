"""Names this machine and this LLVM without loading LLVM, and remembers what LLVM said about them.

Loading LLVM takes longer than everything else that a warm start does, and only to learn again which CPU this is. The
operating system tells cheaply whether it is the same CPU as last time; LLVM's answer is then read from a cache. On a
system that does not tell there is no identity, and LLVM is asked each time.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import re
from pathlib import Path
from typing import NamedTuple

from tilewright.backends.protocol import ByteCache
from tilewright.base import system
from tilewright.base.errors import UnsupportedError

# What LLVM derives names and features from; the clock rate and the number of the CPU change from one look to the next.
_FIELDS = re.compile(
    rb"^(?:vendor_id|cpu family|model|model name|stepping|flags|Features"
    rb"|CPU (?:implementer|architecture|variant|part|revision))\s*:.*$",
    re.MULTILINE,
)
_CPUINFO = "/proc/cpuinfo"
_CPUINFO_BYTES = 16384  # more than one CPU's paragraph; reading all of them is slow on large machines


class HostRecord(NamedTuple):
    """LLVM's answer: triple, CPU name and feature string of the machine that a process runs on."""

    triple: str
    cpu: str
    flags: str


@functools.cache
def llvmlite_version() -> str:
    """Version of llvmlite, read from its files; they also tell the version of LLVM.

    Raises:
        UnsupportedError: llvmlite is not installed.
    """
    found = importlib.util.find_spec("llvmlite")
    if found is None or found.origin is None:
        raise UnsupportedError("llvmlite is not installed", hint="pip install llvmlite")
    try:
        text = Path(found.origin).with_name("_version.py").read_text(encoding="utf-8")
    except OSError:
        text = ""
    match = re.search(r"^version_version = '([^']+)'$", text, re.MULTILINE)
    if match:
        return match.group(1)
    from importlib import metadata  # slow to import, and needed only where llvmlite was built in another way

    return metadata.version("llvmlite")


@functools.cache
def host_identity() -> str | None:
    """Digest of what LLVM's answer depends on: CPU, operating system, llvmlite. None where the system does not tell."""
    try:
        with open(_CPUINFO, "rb") as file:
            first = file.read(_CPUINFO_BYTES).split(b"\n\n")[0]
    except OSError:
        return None
    lines = _FIELDS.findall(first)
    if not any(line.startswith((b"flags", b"Features")) for line in lines):
        return None
    told = system.this().identity()
    if told is None:
        return None
    try:
        version = llvmlite_version()
    except UnsupportedError:  # code that comes in a bundle runs without it
        version = ""
    digest = hashlib.sha256("\0".join((*told, version)).encode())
    for line in lines:
        digest.update(b"\0" + line)
    return digest.hexdigest()


def recall_host(cache: ByteCache) -> HostRecord | None:
    """LLVM's answer on an earlier run on this machine, if `cache` has it."""
    key = _key()
    payload = None if key is None else cache.get_bytes(key)
    if payload is None:
        return None
    try:
        values = json.loads(payload)
    except ValueError:
        return None
    if not isinstance(values, list) or len(values) != 3 or not all(isinstance(value, str) for value in values):
        return None
    record = HostRecord(*values)
    return record if record.triple and record.cpu else None


def remember_host(cache: ByteCache, record: HostRecord) -> None:
    """Keep LLVM's answer for later runs."""
    key = _key()
    if key is not None:
        cache.put_bytes(key, json.dumps(record).encode())


def _key() -> str | None:
    identity = host_identity()
    return None if identity is None else hashlib.sha256(f"host 1 {identity}".encode()).hexdigest()
