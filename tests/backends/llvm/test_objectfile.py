"""Our loader of object files: the code runs as LLVM's loader has it run, and no damaged file ends the process."""

from __future__ import annotations

import ctypes
import gc
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

from tilewright.backends.llvm import codegen, features
from tilewright.backends.llvm.elf import X86_64, read_object
from tilewright.backends.llvm.objectfile import export_offsets, lay_out, load_object, process_symbol, relocate
from tilewright.base.errors import InternalError, UnsupportedError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the loader is for Linux")
ROOT = Path(__file__).resolve().parents[3]
ARM = features.describe("aarch64-unknown-linux-gnu", "neoverse-n1")
INTEL = features.describe("x86_64-unknown-linux-gnu", "x86-64-v3")
on_intel = pytest.mark.skipif(platform.machine() != "x86_64", reason="checks x86-64 code")

# Each case: IR of `i64 @k(ptr in, ptr out)`, both of 64 doubles.
VECTOR_CONSTANTS = """
define i64 @k(ptr %in, ptr %out) {
  %a = load <16 x float>, ptr %in, align 4
  %b = fmul <16 x float> %a, <float 1.5, float 2.5, float -3.0, float 4.25, float 5.0, float 6.0, float 7.0, float 8.0,
    float 9.0, float 10.0, float 11.0, float 12.0, float 13.0, float 14.0, float 15.0, float 16.0>
  %c = shufflevector <16 x float> %b, <16 x float> %a, <16 x i32> <i32 3, i32 17, i32 0, i32 9, i32 30, i32 1, i32 2,
    i32 5, i32 8, i32 31, i32 12, i32 20, i32 4, i32 7, i32 6, i32 11>
  %d = fadd <16 x float> %c, splat (float 3.140625)
  store <16 x float> %d, ptr %out, align 4
  ret i64 17179869187
}"""
_ARMS = 14
JUMP_TABLE = (
    """
define i64 @k(ptr %in, ptr %out) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %join ]
  %s = phi double [ 0.5, %entry ], [ %r, %join ]
  %what = urem i64 %i, 19
  switch i64 %what, label %other [ """
    + " ".join(f"i64 {n}, label %arm{n}" for n in range(_ARMS))
    + " ]\n"
    + "".join(
        f"arm{n}:\n  %p{n} = getelementptr double, ptr %in, i64 {3 * n}\n  %x{n} = load volatile double, ptr %p{n}\n"
        f"  %y{n} = {'fadd' if n % 3 else 'fmul'} double %s, %x{n}\n  br label %join\n"
        for n in range(_ARMS)
    )
    + "other:\n  %y = fneg double %s\n  br label %join\njoin:\n  %r = phi double [ %y, %other ], "
    + ", ".join(f"[ %y{n}, %arm{n} ]" for n in range(_ARMS))
    + """
  %q = getelementptr double, ptr %out, i64 %i
  store double %r, ptr %q
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, 64
  br i1 %more, label %loop, label %done
done:
  ret i64 %i
}"""
)
CALLS = """
declare float @sinf(float)
declare double @pow(double, double)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
define internal i64 @double(i64 %n) noinline { %r = shl i64 %n, 1 ret i64 %r }
define internal i64 @cold(i64 %n) noinline section ".text.cold" {
  %a = call i64 @double(i64 %n)
  %b = add i64 %a, 1
  ret i64 %b
}
define i64 @k(ptr %in, ptr %out) {
  %half = call i64 @double(i64 128)
  %away = getelementptr i8, ptr %out, i64 64
  call void @llvm.memcpy.p0.p0.i64(ptr %away, ptr %in, i64 %half, i1 false)
  %x = load double, ptr %in
  %f = fptrunc double %x to float
  %s = call float @sinf(float %f)
  %p = call double @pow(double %x, double 1.25)
  store float %s, ptr %out
  %q = getelementptr double, ptr %out, i64 1
  store double %p, ptr %q
  %r = call i64 @cold(i64 20)
  ret i64 %r
}"""
GLOBALS = """
@count = internal global i64 5
@space = internal global [512 x i64] zeroinitializer, align 64
@visible = global i64 1000
@table = internal constant [3 x i32] [i32 7, i32 11, i32 13]
@code = internal constant [2 x ptr] [ptr @one, ptr @two]
@pair = internal global { ptr, i64 } { ptr getelementptr (i8, ptr @space, i64 8), i64 3 }
define internal i64 @one(i64 %n) noinline { %r = add i64 %n, 100 ret i64 %r }
define internal i64 @two(i64 %n) noinline { %r = mul i64 %n, 3 ret i64 %r }
define i64 @k(ptr %in, ptr %out) {
  %c = load volatile i64, ptr @count
  %c1 = add i64 %c, 1
  store volatile i64 %c1, ptr @count
  %v = load volatile i64, ptr @visible
  %v1 = add i64 %v, %c1
  store volatile i64 %v1, ptr @visible
  %w = load volatile ptr, ptr @pair
  store i64 %v1, ptr %w
  %i = and i64 %c, 1
  %f.p = getelementptr ptr, ptr @code, i64 %i
  %f = load ptr, ptr %f.p
  %r = call i64 %f(i64 %v1)
  %t.i = urem i64 %c, 3
  %t.p = getelementptr i32, ptr @table, i64 %t.i
  %t = load i32, ptr %t.p
  %t64 = zext i32 %t to i64
  %s.p = getelementptr i64, ptr @space, i64 1
  %s = load volatile i64, ptr %s.p
  %far.p = getelementptr i64, ptr @space, i64 511
  %far = load volatile i64, ptr %far.p
  store i64 %t64, ptr %out
  %o1 = getelementptr i64, ptr %out, i64 1
  store i64 %s, ptr %o1
  %o2 = getelementptr i64, ptr %out, i64 2
  store i64 %far, ptr %o2
  ret i64 %r
}"""
# Some 100 KB of code with a constant at every step, then a call back to the start of it.
LARGE = (
    "define internal double @first(double %x) noinline { %r = fadd double %x, 0x3FF8CCCCCCCCCCCD ret double %r }\n"
    "define i64 @k(ptr %in, ptr %out) {\n  %x0 = load double, ptr %in\n"
    + "".join(
        f"  %m{n} = fmul double %x{n}, {1 + n / 1024}\n  %v{n} = load volatile double, ptr %in\n"
        f"  %x{n + 1} = fsub double %v{n}, %m{n}\n"
        for n in range(5000)
    )
    + "  %z = call double @first(double %x5000)\n  store double %z, ptr %out\n  ret i64 1\n}"
)
CASES = {"vectors": VECTOR_CONSTANTS, "jumps": JUMP_TABLE, "calls": CALLS, "globals": GLOBALS, "large": LARGE}


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


def test_codegen_turns_to_llvm_for_what_the_loader_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    image = codegen.compile_object(CALLS, features.host())

    def refuse(*_: object) -> None:
        raise UnsupportedError("new relocation")

    monkeypatch.setattr(codegen, "load_object", refuse)
    library = codegen.load(image, ["k"])
    assert type(library._loaded).__name__ != "MappedObject"
    assert outcome(library) == outcome(load_object(image, ["k"]))


EXTERNAL = """
declare i64 @far(i64)
define i64 @k(ptr %in, ptr %out) {
  %a = call i64 @far(i64 30)
  %b = call i64 @far(i64 %a)
  store ptr @far, ptr %out
  %c = add i64 %b, 1
  ret i64 %c
}"""
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


def maps(address: int) -> list[str]:
    """Protections of the mappings from the one that holds `address` on, as long as they touch."""
    found, end_before = [], None
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, protection, *_ = line.split()
        start, end = (int(part, 16) for part in span.split("-"))
        if start <= address < end or (found and start == end_before):
            found.append(protection)
            end_before = end
    return found


def test_nothing_is_both_writable_and_executable_and_memory_is_given_back() -> None:
    library = load_object(codegen.compile_object(GLOBALS, features.host()), ["k", "visible"])
    address, data = library["k"], library["visible"]
    assert maps(address)[:3] == ["r-xp", "r--p", "rw-p"]
    assert maps(data)[0] == "rw-p"
    size = len(maps(address))
    assert size >= 3
    mapping = library._mapping
    assert sys.getrefcount(mapping) == 3  # the library, this frame, the argument: nothing else holds the memory
    del library, mapping
    gc.collect()
    assert maps(address)[:1] != ["r-xp"]


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
        (
            "@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 1, ptr @k, ptr null"
            " }]\ndefine void @k() { ret void }",
            "section of type",
        ),
    ],
)
def test_what_the_loader_leaves_to_llvm(text: str, complaint: str) -> None:
    for isa in (INTEL, ARM):
        found = codegen.compile_object(text, isa)
        with pytest.raises(UnsupportedError, match=complaint):
            object_file = read_object(found)
            relocate(object_file, lay_out(object_file, 4096), 1 << 32, lambda name: 0)


def test_symbols_of_the_process() -> None:
    assert process_symbol("memcpy") and process_symbol("sinf") != process_symbol("cosf")
    with pytest.raises(InternalError):
        process_symbol("no_such_function_anywhere")


# --- relocations, one by one ----------------------------------------------------------------------------------


def linked(image: bytes, base: int, symbols: dict[str, int]) -> tuple[bytearray, dict[str, int], Any, Any]:
    """Contents for `base`, addresses of all named symbols of the object, object, layout."""
    found = read_object(image)
    layout = lay_out(found, 4096)
    contents = relocate(found, layout, base, symbols.__getitem__)
    return contents, {**symbols, **local_symbols(found, layout, base)}, found, layout


def local_symbols(found: Any, layout: Any, base: int) -> dict[str, int]:
    rows = [(found.name(i), row[3], row[4]) for i, row in enumerate(found.symbols) if row[3] in layout.sections]
    return {name: base + layout.sections[section] + value for name, section, value in rows if name}


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) & 1 else value


def arm_branch(word: int, at: int) -> int:
    assert word >> 26 & 0x1F == 5  # b, bl
    return at + 4 * signed(word & 0x3FF_FFFF, 26)


def arm_page(word: int, at: int) -> int:
    assert word >> 24 & 0x9F == 0x90  # adrp
    return (at >> 12) + signed((word >> 5 & 0x7FFFF) << 2 | word >> 29 & 3, 21) << 12


def arm_low12(word: int) -> int:
    """Byte offset of `add` immediate, or of a load or store with unsigned offset."""
    if word >> 24 & 0x7F == 0x11:
        return word >> 10 & 0xFFF
    assert word >> 24 & 0x3B == 0x39
    scale = 4 if word >> 26 & 1 and word >> 23 & 1 and not word >> 30 else word >> 30
    return (word >> 10 & 0xFFF) << scale


@pytest.mark.parametrize("name", CASES)
def test_arm_code_names_the_right_addresses(name: str) -> None:
    """Every pair of page and offset, every branch and every pointer in data, decoded."""
    base = 0x7FFF_1230_0000
    near, far = {"memcpy": base + 0x100_0000, "sinf": base - 0x7FF_0000}, {"pow": 0x1000}
    contents, _, found, layout = linked(codegen.compile_object(CASES[name], ARM), base, near | far)
    seen = set()
    for section, rows in found.relocations.items():
        for offset, info, addend in rows:
            kind, (start, _, _, where, value, _) = info & 0xFFFF_FFFF, found.symbols[info >> 32]
            at = base + layout.sections[section] + offset
            word = struct.unpack_from("<I", contents, at - base)[0]
            called = found.name(info >> 32)
            wanted = (near | far)[called] if where == 0 else base + layout.sections[where] + value + addend
            if kind in (311, 312):
                wanted = base + layout.slots[info >> 32]
                assert struct.unpack_from("<Q", contents, wanted - base)[0] == base + layout.sections[where] + value
            seen.add(kind)
            if kind in (275, 311):
                assert arm_page(word, at) == wanted & ~0xFFF
            elif kind in (277, 278, 284, 285, 286, 299, 312):
                assert arm_low12(word) == wanted & 0xFFF
            elif kind in (282, 283) and called in far:
                stub = arm_branch(word, at)
                load, jump, address = struct.unpack_from("<IIQ", contents, stub - base)
                assert (load, jump, address) == (0x58000050, 0xD61F0200, far[called])
                assert base + layout.segments[0][0] <= stub < base + layout.segments[0][1]
            elif kind in (282, 283):
                assert arm_branch(word, at) == wanted
            elif kind == 261:
                assert at + signed(word, 32) == wanted
            else:
                assert kind == 257 and struct.unpack_from("<Q", contents, at - base)[0] == wanted
    expected = {
        "vectors": {275, 299}, "jumps": {275, 277}, "calls": {283}, "globals": {257, 275, 277, 286, 311, 312},
        "large": {275, 283, 286},
    }  # fmt: skip
    assert seen >= expected[name], seen


# Kinds that our code generator uses seldom: an instruction with an empty field, relocated, against a decoder.
ARM_FIELDS = {
    258: (0, 0x1234_5678 - (1 << 28), lambda word, at: word),
    273: (0x5800_0000, 0xFF00C, lambda word, at: at + 4 * signed(word >> 5 & 0x7FFFF, 19)),
    274: (0x1000_0001, 0xFF003, lambda word, at: at + signed((word >> 5 & 0x7FFFF) << 2 | word >> 29 & 3, 21)),
    278: (0x3940_0000, 0x10FFF, lambda word, at: 0x10000 | arm_low12(word)),
    279: (0x3600_0000, 0x1_0000 - 0x8000, lambda word, at: at + 4 * signed(word >> 5 & 0x3FFF, 14)),
    280: (0x5400_0001, 0x1_0000 + 0xFFFC, lambda word, at: at + 4 * signed(word >> 5 & 0x7FFFF, 19)),
    284: (0x7940_0000, 0x10FFE, lambda word, at: 0x10000 | arm_low12(word)),
    285: (0xB940_0000, 0x10FFC, lambda word, at: 0x10000 | arm_low12(word)),
    286: (0xF940_0000, 0x10FF8, lambda word, at: 0x10000 | arm_low12(word)),
    299: (0x3DC0_0000, 0x10FF0, lambda word, at: 0x10000 | arm_low12(word)),
}


def patched(image: bytes, kind: int, word: int | None = None) -> bytes:
    """The object with its first call turned into another relocation, and perhaps another instruction under it."""
    out, found = bytearray(image), read_object(image)
    (section, rows), *_ = found.relocations.items()
    table = next(s for s in found.sections if s.kind == 4 and s.info == section)
    place = next(n for n, row in enumerate(rows) if found.symbols[row[1] >> 32][3] == 0)
    struct.pack_into("<I", out, table.offset + 24 * place + 8, kind)
    if word is not None:
        struct.pack_into("<I", out, found.sections[section].offset + rows[place][0], word)
    return bytes(out)


ONE_CALL = "declare void @f()\ndefine void @k() { call void @f() ret void }"


@pytest.mark.parametrize("kind", ARM_FIELDS)
def test_arm_fields(kind: int) -> None:
    word, target, decode = ARM_FIELDS[kind]
    image = patched(codegen.compile_object(ONE_CALL, ARM), kind, word)
    contents, _, found, layout = linked(image, 0x10000, {"f": target})
    ((section, ((offset, _, _), *_)), *_) = found.relocations.items()
    at = layout.sections[section] + offset
    got = struct.unpack_from("<I", contents, at)[0]
    assert decode(got, 0x10000 + at) == target
    fields = {258: 0xFFFF_FFFF, 273: 0xFF_FFE0, 274: 0x60FF_FFE0, 279: 0x7_FFE0, 280: 0xFF_FFE0}
    mask = fields.get(kind, 0x3F_FC00)
    assert got & ~mask == word & ~mask  # the rest of the instruction stays


@pytest.mark.parametrize(
    ("kind", "target"),
    [(258, 1 << 32), (273, 1 << 22), (274, 1 << 22), (275, 1 << 36), (279, 1 << 20), (280, 1 << 24), (284, 3), (299, 8)],
)
def test_arm_values_that_do_not_fit(kind: int, target: int) -> None:
    image = patched(codegen.compile_object(ONE_CALL, ARM), kind)
    with pytest.raises(InternalError, match="does not reach"):
        linked(image, 0x10000, {"f": target})


@pytest.mark.parametrize(
    ("kind", "layout", "expected"),
    [
        (1, "<Q", lambda target, at: target - 4),
        (2, "<i", lambda target, at: target - 4 - at),
        (10, "<I", lambda target, at: target - 4),
        (11, "<i", lambda target, at: target - 4),
        (24, "<q", lambda target, at: target - 4 - at),
    ],
)
def test_x86_fields(kind: int, layout: str, expected: Callable[[int, int], int]) -> None:
    text = ONE_CALL.replace("ret void }", "ret void }\ndefine void @more() { call void @k() ret void }")
    base, target = 0x20000, 0x7FFF_0000
    contents, _, found, place = linked(patched(codegen.compile_object(text, INTEL), kind), base, {"f": target})
    ((section, ((offset, _, _), *_)), *_) = found.relocations.items()
    at = place.sections[section] + offset
    assert struct.unpack_from(layout, contents, at)[0] == expected(target, base + at)


@pytest.mark.parametrize(("kind", "target"), [(2, 1 << 40), (10, 1 << 33), (10, 0), (11, 1 << 31)])
def test_x86_values_that_do_not_fit(kind: int, target: int) -> None:
    with pytest.raises(InternalError, match="does not reach"):
        linked(patched(codegen.compile_object(ONE_CALL, INTEL), kind), 0x20000, {"f": target})


def test_x86_far_calls_go_through_a_stub() -> None:
    base, far = 0x20000, 0x7000_0000_0000
    contents, _, found, layout = linked(codegen.compile_object(EXTERNAL, INTEL), base, {"far": far})
    (stub,) = layout.stubs.values()
    assert contents[stub : stub + 14] == b"\xff\x25\0\0\0\0" + struct.pack("<Q", far)
    calls = 0
    for section, rows in found.relocations.items():
        for offset, info, _ in rows:
            if info & 0xFFFF_FFFF == 4:
                at = layout.sections[section] + offset
                assert at + 4 + struct.unpack_from("<i", contents, at)[0] == stub
                calls += 1
    assert calls == 2


@pytest.mark.parametrize("isa", (INTEL, ARM), ids=("x86-64", "arm"))
@pytest.mark.parametrize("kind", (0x77, 500, 0xFFFF_FFFF))
def test_unknown_relocations(isa: features.CpuFeatures, kind: int) -> None:
    with pytest.raises(UnsupportedError, match=f"relocation of kind {kind}"):
        linked(patched(codegen.compile_object(ONE_CALL, isa), kind), 0x10000, {"f": 0x20000})


def test_export_offsets_are_those_of_the_symbol_table() -> None:
    contents, addresses, found, layout = linked(codegen.compile_object(GLOBALS, INTEL), 0x20000, {})
    assert found.machine == X86_64 and len(contents) == layout.filled < layout.size
    offsets = export_offsets(found, layout, ["k", "visible"])
    assert {name: 0x20000 + at for name, at in offsets.items()} == {name: addresses[name] for name in offsets}
    with pytest.raises(InternalError):
        export_offsets(found, layout, ["one"])  # internal


# --- damage -----------------------------------------------------------------------------------------------------

FUZZ = """
import random, sys
from pathlib import Path
from tilewright.backends.llvm.elf import read_object
from tilewright.backends.llvm.objectfile import lay_out, load_object, relocate
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
                load_object(bytes(damaged), ["k"])
            else:
                other = read_object(bytes(damaged))
                relocate(other, lay_out(other, 4096), 1 << 32, lambda name: 1 << 33)
            loaded += 1
        except (InternalError, UnsupportedError):
            refused += 1
print(loaded, refused)
"""


def test_damaged_files_raise_and_never_crash(tmp_path: Path) -> None:
    paths = []
    for name in ("calls", "globals", "jumps"):
        for kind, isa in (("native", features.host()), ("foreign", ARM if features.host().is_x86 else INTEL)):
            paths.append(tmp_path / f"{name}.{kind}.o")
            paths[-1].write_bytes(codegen.compile_object(CASES[name], isa))
    done = subprocess.run(
        [sys.executable, "-c", FUZZ, "1500", *map(str, paths)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    loaded, refused = map(int, done.stdout.split())
    assert loaded + refused == 1500 * len(paths)
    assert loaded > 500 and refused > 3000  # both ways are walked


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
from tilewright.runtime.disk_cache import DiskCache

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
