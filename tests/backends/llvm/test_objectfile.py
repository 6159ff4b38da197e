"""Our loader of object files: the code runs as LLVM's loader has it run, and no damaged file ends the process."""

from __future__ import annotations

import ctypes
import errno
import gc
import mmap
import os
import platform
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.backends.llvm.object_cases import ARM, CALLS, CASES, EXTERNAL, GLOBALS, INTEL, JUMP_TABLE, LARGE
from tilewright.backends.llvm import codegen, codememory, features
from tilewright.backends.llvm.elf import read_object
from tilewright.backends.llvm.objectfile import lay_out, load_object, process_symbol, relocate
from tilewright.base.errors import InternalError, UnsupportedError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the loader is for Linux")
ROOT = Path(__file__).resolve().parents[3]
on_intel = pytest.mark.skipif(platform.machine() != "x86_64", reason="checks x86-64 code")


def entry(library: Any, name: str = "k") -> Callable[..., int]:
    address = library.address(name) if isinstance(library, codegen.Library) else library[name]
    call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(address)
    call.kept = library
    return call


def outcome(library: Any, times: int = 3) -> list[Any]:
    """What `k` returns and writes, called a few times (a case may keep a state)."""
    call, out = entry(library), []
    source = np.random.default_rng(3).uniform(0.5, 2.0, 64)
    for _ in range(times):
        result = np.zeros(64)
        out += [call(source.ctypes.data, result.ctypes.data), result.tobytes()]
    return out


def kinds(image: bytes) -> set[int]:
    return {info & 0xFFFF_FFFF for rows in read_object(image).relocations.values() for _, info, _ in rows}


@pytest.mark.parametrize("optimize", ("none", "light"))
@pytest.mark.parametrize("name", CASES)
def test_code_runs_as_with_the_loader_of_llvm(name: str, optimize: str) -> None:
    image = codegen.compile_object(CASES[name], features.host(), optimize=optimize)
    mine, theirs = load_object(image, ["k"]), codegen.load_with_llvm(image, ["k"])
    got = outcome(mine)
    assert any(got[1])
    assert got == outcome(theirs)


@on_intel
def test_the_cases_hold_every_relocation_that_our_code_has() -> None:
    found = {name: kinds(codegen.compile_object(text, INTEL)) for name, text in CASES.items()}
    assert set().union(*found.values()) >= {1, 2, 4}  # 64, PC32, PLT32
    assert found["globals"] & {9, 41, 42}  # through the address table
    object_file = read_object(codegen.compile_object(JUMP_TABLE, INTEL))
    assert any(index in object_file.loaded[1] for index in object_file.relocations)  # the jump table itself
    assert len(codegen.compile_object(LARGE, INTEL)) > 100_000


def test_codegen_loads_without_llvm_first() -> None:
    library = codegen.load(codegen.compile_object(CALLS, features.host()), ["k"])
    assert type(library._loaded).__name__ == "MappedObject"
    assert any(outcome(library)[1])


def test_llvm_is_not_given_what_came_from_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    image = bytearray(codegen.compile_object(CALLS, features.host()))
    struct.pack_into("<H", image, 18, 40)  # for another machine
    monkeypatch.setattr(codegen, "load_with_llvm", lambda *_: pytest.fail("LLVM was given it"))
    with pytest.raises(UnsupportedError):
        codegen.load(bytes(image), ["k"])


def test_codegen_turns_to_llvm_for_what_the_loader_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    image = codegen.compile_object(CALLS, features.host())

    def refuse(*_: object) -> None:
        raise UnsupportedError("new relocation")

    monkeypatch.setattr(codegen, "load_object", refuse)
    library = codegen.load(image, ["k"])
    assert type(library._loaded).__name__ != "MappedObject"
    assert outcome(library) == outcome(load_object(image, ["k"]))


ADD_SEVEN = {"x86_64": "488d4707c3", "aarch64": "001c0091c0035fd6"}


def test_calls_reach_the_whole_address_space() -> None:
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
    far = libc.mmap(0x1234_5670_0000, 65536, 3, 0x22, -1, 0)
    code = bytes.fromhex(ADD_SEVEN[platform.machine()])
    ctypes.memmove(far, code, len(code))
    libc.mprotect(ctypes.c_void_p(far), 65536, 5)
    try:
        library = load_object(codegen.compile_object(EXTERNAL, features.host()), ["k"], {"far": far})
        assert abs(library["k"] - far) > 1 << 32  # else this shows nothing
        result = np.zeros(1, np.uint64)
        assert entry(library)(0, result.ctypes.data) == 45
        assert result[0] == far
    finally:
        libc.munmap(ctypes.c_void_p(far), ctypes.c_size_t(65536))


def mappings() -> list[tuple[int, int, str]]:
    """Start, end and protection of each mapping of this process."""
    rows = (line.split()[:2] for line in Path("/proc/self/maps").read_text().splitlines())
    return [(*(int(part, 16) for part in span.split("-")), protection) for span, protection in rows]  # type: ignore[misc]


def protection(address: int) -> str:
    return next(found for start, end, found in mappings() if start <= address < end)


def test_nothing_is_both_writable_and_executable_and_memory_is_given_back() -> None:
    image = codegen.compile_object(GLOBALS, features.host())
    library = load_object(image, ["k", "visible"])
    address, data, (code, _) = library["k"], library["visible"], library.code
    arena = library._piece._arena
    zones = [arena.address(zone, (code - arena.base) // mmap.PAGESIZE) for zone in range(3)]
    assert zones[0] == code and [protection(zone) for zone in zones] == ["r-xp", "r--p", "rw-p"]
    assert protection(address) == "r-xp" and protection(data) == "rw-p"
    mine = [found for start, _, found in mappings() if arena.base <= start < arena.base + len(arena.memory)]
    assert mine and not [found for found in mine if "w" in found and "x" in found]
    first = outcome(library)
    del library
    gc.collect()
    assert {protection(zone) for zone in zones} == {"rw-p"} and not any(ctypes.string_at(address, 64))
    again = load_object(image, ["k", "visible"])  # where the other was, and nothing of its state is left
    assert again["k"] == address and outcome(again) == first


def test_many_objects_take_few_mappings() -> None:
    image = codegen.compile_object(JUMP_TABLE, features.host())
    kept = [load_object(image, ["k"])]
    before = len(mappings())
    kept += [load_object(image, ["k"]) for _ in range(1500)]  # more than one arena has pages for
    assert len(mappings()) - before < 12
    assert len({library["k"] for library in kept}) == len(kept)
    del kept[::2]
    gc.collect()
    more = [load_object(image, ["k"]) for _ in range(700)]
    assert outcome(more[-1]) == outcome(kept[-1])
    assert len({library["k"] for library in (*kept, *more)}) == len(kept) + len(more)


def test_a_full_table_of_mappings_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        ctypes.set_errno(errno.ENOMEM)
        return -1

    image = codegen.compile_object(GLOBALS, features.host())
    monkeypatch.setattr(codememory, "_mprotect", lambda: full)
    with pytest.raises(InternalError, match="as many memory mappings as the system allows") as error:
        load_object(image, ["k"])
    assert "vm.max_map_count" in str(error.value)


def test_errors_are_typed() -> None:
    image = codegen.compile_object(CALLS, features.host())
    with pytest.raises(InternalError, match="does not define absent"):
        load_object(image, ["absent"])
    with pytest.raises(InternalError, match="does not define sinf"):
        load_object(image, ["sinf"])
    with pytest.raises(InternalError, match="needs no_such_function_anywhere"):
        load_object(
            codegen.compile_object(EXTERNAL.replace("far", "no_such_function_anywhere"), features.host()), ["k"]
        )
    for foreign in (b"", b"\x7fELF", b"\xcf\xfa\xed\xfe" + bytes(100)):
        with pytest.raises(InternalError, match="no header"):
            load_object(foreign, ["k"])
    other = codegen.compile_object(CALLS, ARM if platform.machine() == "x86_64" else INTEL)
    with pytest.raises(UnsupportedError, match="for machine"):
        load_object(other, ["k"])
    with pytest.raises(UnsupportedError, match="relocatable"):
        load_object(Path("/proc/self/exe").read_bytes(), ["k"])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("@t = thread_local global i64 3\ndefine ptr @k() { ret ptr @t }", "thread-local"),
        (
            "@f = ifunc i64 (), ptr @pick\ndefine internal ptr @pick() { ret ptr null }\n"
            "define i64 @k() { %r = call i64 @f() ret i64 %r }",
            "chosen at run time",
        ),
        ("@c = common global i64 0\ndefine ptr @k() { ret ptr @c }", "no loaded section"),
        ("@g = global [300000000 x i8] zeroinitializer\ndefine ptr @k() { ret ptr @g }", "bytes of memory"),
        ("@g = constant i8 1, align 8192\ndefine ptr @k() { ret ptr @g }", "aligned to 8192"),
    ],
)
def test_what_the_loader_leaves_to_llvm(text: str, complaint: str) -> None:
    for isa in (INTEL, ARM):
        found = codegen.compile_object(text, isa)
        with pytest.raises(UnsupportedError, match=complaint):
            object_file = read_object(found)
            relocate(object_file, lay_out(object_file, 4096), [1 << 32] * 3, lambda name: 0)


@pytest.mark.parametrize(
    ("kind", "new", "complaint"), [(1, 14, "type 0xe"), (4, 9, "REL section"), (2, 11, "0 symbol tables")]
)
def test_sections_that_the_loader_does_not_know(kind: int, new: int, complaint: str) -> None:
    """Constructors (type 14) must not be passed over, nor relocations in another form."""
    image = bytearray(codegen.compile_object(GLOBALS, INTEL))
    start, count = struct.unpack_from("<Q", image, 40)[0], len(read_object(bytes(image)).sections)
    at = next(n for n in range(start, start + 64 * count, 64) if struct.unpack_from("<I", image, n + 4)[0] == kind)
    struct.pack_into("<I", image, at + 4, new)
    with pytest.raises(UnsupportedError, match=complaint):
        read_object(bytes(image))


def test_symbols_of_the_process() -> None:
    assert process_symbol("memcpy") and process_symbol("sinf") != process_symbol("cosf")
    with pytest.raises(InternalError):
        process_symbol("no_such_function_anywhere")


# --- damage -----------------------------------------------------------------------------------------------------

FUZZ = """
import random, sys
from pathlib import Path
from tilewright.backends.llvm.codegen import load
from tilewright.backends.llvm.elf import read_object
from tilewright.backends.llvm.objectfile import lay_out, relocate
from tilewright.base.errors import InternalError, UnsupportedError

VALUES = (0, 1, 3, 7, 0x7f, 0xff, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 1 << 62, (1 << 63) - 1, (1 << 64) - 1)
loaded = refused = 0
for path in sys.argv[2:]:
    image = Path(path).read_bytes()
    found = read_object(image)
    start = min((s.offset for s in found.sections if s.kind in (2, 4)), default=0)
    native = path.endswith("native.o")
    for seed in range(int(sys.argv[1])):
        rng, damaged = random.Random(seed), bytearray(image)
        if seed % 8 == 0:
            del damaged[rng.randrange(len(image)) :]
        for _ in range(rng.choice((0, 1, 2, 5)) if seed % 8 == 0 else rng.choice((1, 1, 2, 5))):
            low, high = rng.choice(((0, 64), (start, len(image)), (len(image) - 64 * len(found.sections), len(image))))
            at = rng.randrange(low, high)
            if at + 8 >= len(damaged):
                continue
            if rng.random() < 0.5:
                damaged[at] = rng.randrange(256)
            else:
                width = rng.choice((2, 4, 8))
                value = rng.choice((*VALUES, len(image), rng.randrange(len(image)))) & (1 << 8 * width) - 1
                damaged[at & -width : (at & -width) + width] = value.to_bytes(width, "little")
        try:
            if native:
                load(bytes(damaged), ["k"])  # as an entry of the disk cache with a right checksum
            else:
                other = read_object(bytes(damaged))
                relocate(other, lay_out(other, 4096), [1 << 32] * 3, lambda name: 1 << 33)
            loaded += 1
        except (InternalError, UnsupportedError):
            refused += 1
print(loaded, refused)
"""


# `make stress` damages 102,000, as one who can write to the cache might, right checksums and all.
EACH = 17_000 if os.environ.get("TILEWRIGHT_STRESS") else 2500


def test_damaged_files_raise_and_never_crash(tmp_path: Path) -> None:
    paths = []
    for name in ("calls", "globals", "jumps"):
        for kind, isa in (("native", features.host()), ("foreign", ARM if features.host().is_x86 else INTEL)):
            paths.append(tmp_path / f"{name}.{kind}.o")
            paths[-1].write_bytes(codegen.compile_object(CASES[name], isa))
    done = subprocess.run(
        [sys.executable, "-c", FUZZ, str(EACH), *map(str, paths)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    loaded, refused = map(int, done.stdout.split())
    assert loaded + refused == EACH * len(paths)
    assert loaded > EACH / 5 and refused > EACH  # both ways are walked


def test_truncated_anywhere() -> None:
    image = codegen.compile_object(GLOBALS, features.host())
    for size in range(0, len(image), 41):
        with pytest.raises(InternalError):
            load_object(image[:size], ["k"])


# --- without LLVM -----------------------------------------------------------------------------------------------

WARM = """
import ctypes, sys
from pathlib import Path
from tilewright.backends.llvm import codegen, features
from tilewright.base.disk_cache import DiskCache

cache = DiskCache(Path(sys.argv[1]), 1 << 20)
features.set_host_cache(cache)
key = codegen.versions() + features.host().key
image = Path(sys.argv[2]).read_bytes()
library = codegen.load(image, ["k"])
numbers = (ctypes.c_double * 64)(*[0.5] * 64)
value = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(library.address("k"))(numbers, numbers)
print(value, "llvmlite" in sys.modules, features.describe().key)
"""


def test_a_warm_start_does_not_load_llvm(tmp_path: Path) -> None:
    path = tmp_path / "calls.o"
    path.write_bytes(codegen.compile_object(CALLS, features.host()))
    lines = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", WARM, str(tmp_path / "cache"), str(path)], cwd=ROOT, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr[-2000:]
        lines.append(done.stdout.strip())
    cold, warm = lines
    assert re.match(r"41 True \S", cold) and warm == cold.replace("True", "False")
    assert warm.endswith(features.host().key)


KERNEL = """
import sys
import numpy as np
import tilewright
import tilewright.language as tl

@tilewright.jit
def scale(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.exp(tl.load(x + i, mask=i < n)), mask=i < n)

x = np.arange(100, dtype=np.float32) / 16
kernel = scale[(4,)](x, 100, BLOCK=32)
print("llvmlite" in sys.modules, x.tobytes().hex())
"""


def test_a_kernel_starts_warm_without_llvm(tmp_path: Path) -> None:
    """The kernel, its launcher and the description of the CPU all come from the disk cache."""
    path = tmp_path / "kernel.py"
    path.write_text(KERNEL)
    environment = os.environ | {"TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    lines = []
    for _ in range(2):
        done = subprocess.run([sys.executable, str(path)], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
        lines.append(done.stdout.split())
    assert lines[0][0] == "True" and lines[1][0] == "False"
    assert lines[0][1] == lines[1][1]
