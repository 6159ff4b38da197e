"""Relocations of both machines, one by one: what the patched bytes name, decoded, without running them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from tests.backends.llvm.object_cases import ARM, CASES, EXTERNAL, GLOBALS, INTEL
from tilewright.backends.llvm import codegen, features
from tilewright.backends.llvm.elf import X86_64, read_object
from tilewright.backends.llvm.objectfile import export_offsets, lay_out, relocate
from tilewright.base.errors import InternalError, UnsupportedError


def linked(image: bytes, base: int, symbols: dict[str, int]) -> tuple[bytearray, dict[str, int], Any, Any]:
    """Contents for `base`, addresses of all named symbols of the object, object, layout."""
    found = read_object(image)
    layout = lay_out(found, 4096)
    contents = relocate(found, layout, [base] * 3, symbols.__getitem__)
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
        "large": {275, 286},
    }  # fmt: skip
    assert seen >= expected[name], seen


# Kinds that our code generator uses seldom: an instruction with an empty field, relocated, against a decoder.
ARM_FIELDS = {
    258: (0, 0x1234_5678 - (1 << 28), lambda word, at: word),
    273: (0x5800_0000, 0xFF00C, lambda word, at: at + 4 * signed(word >> 5 & 0x7FFFF, 19)),
    274: (0x1000_0001, 0xFF003, lambda word, at: at + signed((word >> 5 & 0x7FFFF) << 2 | word >> 29 & 3, 21)),
    278: (0x3940_0000, 0x10FFF, lambda word, at: 0x10000 | arm_low12(word)),
    279: (0x3600_0000, 0x1_0000 - 0x7FFC, lambda word, at: at + 4 * signed(word >> 5 & 0x3FFF, 14)),
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
    [
        (258, 1 << 32),
        (273, 1 << 22),
        (274, 1 << 22),
        (275, 1 << 36),
        (279, 1 << 20),
        (280, 1 << 24),
        (284, 3),
        (299, 8),
    ],
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


@pytest.mark.parametrize(("kind", "target"), [(2, 1 << 40), (10, 1 << 33), (10, 0), (11, (1 << 31) + 4)])
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
