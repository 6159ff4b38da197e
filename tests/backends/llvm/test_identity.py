"""Which machine this is, without LLVM: the same answer as LLVM's, and another key for another machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tilewright.backends.llvm import features, identity
from tilewright.backends.llvm.identity import HostRecord

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the system's description of the CPU is Linux's")

INTEL = """processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 143
model name\t: Some CPU
stepping\t: 8
cpu MHz\t\t: 2000.000
flags\t\t: fpu sse2 avx512f amx_tile
bogomips\t: 4000.00

processor\t: 1
flags\t\t: other
"""
ARM = "processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n\n"


class Memory:
    """A cache in memory that counts its reads."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.reads = 0

    def get_bytes(self, key: str) -> bytes | None:
        self.reads += 1
        return self.kept.get(key)

    def put_bytes(self, key: str, payload: bytes) -> None:
        self.kept[key] = payload


@pytest.fixture
def identity_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The identity of a machine that describes its CPU with a text."""

    def compute(text: str) -> str | None:
        path = tmp_path / "cpuinfo"
        path.write_text(text)
        monkeypatch.setattr(identity, "_CPUINFO", str(path))
        return identity.host_identity.__wrapped__()

    return compute


@pytest.fixture
def fresh_host(monkeypatch: pytest.MonkeyPatch):
    """`features.host` as in a new process, and the number of times that it asked LLVM."""
    asked = []
    detect = features._detect
    monkeypatch.setattr(features, "_detect", lambda: asked.append(1) or detect())
    monkeypatch.setattr(features, "_host_caches", [])
    return features.host.__wrapped__, asked


def test_version_is_that_of_the_package() -> None:
    import llvmlite

    assert identity.llvmlite_version() == llvmlite.__version__


def test_identity_depends_on_the_kind_of_cpu_only(identity_of) -> None:
    mine = identity_of(INTEL)
    assert mine and mine == identity_of(INTEL.replace("2000.000", "3100.5").replace("4000.00", "1.0"))
    assert mine == identity_of(INTEL.replace("other", "another"))  # of the second CPU
    for old, new in (("amx_tile", ""), ("Some", "Other"), ("143", "207"), (": 8", ": 9")):
        assert mine != identity_of(INTEL.replace(old, new)), old
    assert identity_of(ARM) not in (None, mine, identity_of(ARM.replace("0xd0c", "0xd40")))


def test_a_system_that_does_not_tell_has_no_identity(identity_of, monkeypatch: pytest.MonkeyPatch) -> None:
    assert identity_of("processor : 0\nmachine : unknown\n") is None
    monkeypatch.setattr(identity, "_CPUINFO", "/nonexistent")
    assert identity.host_identity.__wrapped__() is None
    monkeypatch.setattr(identity, "host_identity", lambda: None)
    cache = Memory()
    identity.remember_host(cache, HostRecord("a-b-c", "cpu", "+x"))
    assert not cache.kept and identity.recall_host(cache) is None


def test_the_cached_answer_is_that_of_llvm(fresh_host) -> None:
    host, asked = fresh_host
    cache = Memory()
    features.set_host_cache(cache)
    first = host()
    assert asked == [1] and len(cache.kept) == 1
    second = host()
    assert asked == [1] and cache.reads == 2
    assert first == second == features.host()
    features.set_host_cache(None)
    assert host() == first and asked == [1, 1]


@pytest.mark.parametrize(
    "damage", [b"", b"\xff\xfe", b"{}", b"[1, 2, 3]", b'["a", "b"]', json.dumps(["", "", ""]).encode()]
)
def test_a_damaged_record_is_asked_anew(fresh_host, damage: bytes) -> None:
    host, asked = fresh_host
    cache = Memory()
    features.set_host_cache(cache)
    host()
    (key,) = cache.kept
    good, cache.kept[key] = cache.kept[key], damage
    assert host() == features.host() and asked == [1, 1]
    assert cache.kept[key] == good
