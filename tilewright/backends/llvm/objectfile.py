"""Loads objects of our code generator (position independent, small code model) without LLVM.

A warm start maps a few kilobytes of cached code; loading LLVM for that would cost more than everything else. The three
segments of an object lie in the zones of `codememory`, written and relocated before any of it may run:

::

    [ text sections | stubs ] R-X    [ read-only sections | address table ] R--    [ data | zeroed data ] RW-

`lay_out` gives each section a place, `relocate` computes the bytes for given addresses, `load_object` puts them there.
An `UnsupportedError` means that LLVM's own loader may do better. Source: the AMD64 supplement of the System V ABI
(relocations, 4.4) and the ELF ABI for Arm 64 (5.7).
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tilewright.backends.llvm.codememory import PROTECTIONS, Piece, reserve
from tilewright.backends.llvm.elf import (
    AARCH64,
    ABSOLUTE,
    RESERVED,
    UNDEFINED,
    X86_64,
    ObjectFile,
    Rows,
    damaged,
    read_object,
)
from tilewright.base.errors import CodeLoadError, InternalError, UnsupportedError

MAX_BYTES = 128 << 20  # of a loaded object: branches of both machines reach across it
STUB_BYTES = 16
_SLOT_BYTES = 8
_MACHINES = {"x86_64": X86_64, "amd64": X86_64, "aarch64": AARCH64, "arm64": AARCH64}

# R_X86_64_*
_X_64, _X_PC32, _X_PLT32, _X_32, _X_32S, _X_PC64 = 1, 2, 4, 10, 11, 24
_X_GOT = frozenset((9, 41, 42, 43))  # GOTPCREL, GOTPCRELX, REX_GOTPCRELX, CODE_4_GOTPCRELX

# R_AARCH64_*
_A_DATA = {257: ("<Q", False), 258: ("<I", False), 260: ("<q", True), 261: ("<i", True)}  # ABS64, ABS32, PREL64, PREL32
_A_CALLS = (282, 283)  # JUMP26, CALL26
# LD_PREL_LO19, TSTBR14, CONDBR19 and the calls hold a distance in instructions: bits, lowest bit of the field.
_A_WORDS = {273: (19, 5), 279: (14, 5), 280: (19, 5), 282: (26, 0), 283: (26, 0)}
# ADR_PREL_LO21, ADR_PREL_PG_HI21, its form without check, ADR_GOT_PAGE: low bits that the field leaves out.
_A_ADR = {274: 0, 275: 12, 276: 12, 311: 12}
# ADD_ABS_LO12_NC, LDST8, 16, 32, 64, 128, LD64_GOT_LO12_NC: logarithm of the field's unit.
_A_LOW12 = {277: 0, 278: 0, 284: 1, 285: 2, 286: 3, 299: 4, 312: 3}
_A_GOT = frozenset((311, 312))

Resolve = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class Layout:
    """Where an object goes, in bytes from its start, one segment behind the other.

    Args:
        sections: offset of each loaded section.
        stubs: offset of the far branch to each symbol that the object lacks.
        slots: offset of the address of each symbol that is reached through one.
        segments: start and end of code, constants and data.
        filled: bytes that have contents; what follows is zero.
        size: bytes of all segments.
    """

    sections: dict[int, int]
    stubs: dict[int, int]
    slots: dict[int, int]
    segments: tuple[tuple[int, int], ...]
    filled: int
    size: int

    def address(self, bases: Sequence[int], offset: int) -> int:
        """Address of what has an offset, where `bases` are for each segment its address less its offset."""
        segment = next((n for n, (start, end) in enumerate(self.segments) if start <= offset < end), -1)
        return bases[segment] + offset


class MappedObject:
    """A loaded object: code that may run as long as this lives, and the addresses of its exports by name.

    Attributes:
        code: where instructions start and end.
    """

    def __init__(self, piece: Piece, addresses: Mapping[str, int], code: tuple[int, int]) -> None:
        self._piece = piece  # given back when the last reference goes
        self.code = code
        self._addresses = addresses

    def __getitem__(self, name: str) -> int:
        return self._addresses[name]


def load_object(image: bytes, exports: Sequence[str], symbols: Mapping[str, int] | None = None) -> MappedObject:
    """Load an object for the machine that this process runs on (Linux).

    Args:
        image: the bytes of the file.
        exports: symbols whose addresses are wanted.
        symbols: addresses of external symbols; the others are looked up in the process.

    Raises:
        InternalError: the file is damaged, lacks an export, or needs a symbol that the process lacks.
        UnsupportedError: the object is for another machine or uses something that this loader does not know.
    """
    found = read_object(image)
    machine = os.uname().machine
    if _MACHINES.get(machine.lower()) != found.machine or ctypes.sizeof(ctypes.c_void_p) != 8:
        raise UnsupportedError(f"the object is for machine {found.machine}, and this one is {machine}")
    layout = lay_out(found, mmap.PAGESIZE)
    offsets = export_offsets(found, layout, exports)
    given = symbols or {}
    piece = reserve([end - start for start, end in layout.segments])
    bases = [address - start for address, (start, _) in zip(piece.addresses, layout.segments, strict=True)]
    contents = relocate(found, layout, bases, lambda name: given.get(name) or process_symbol(name))
    piece.write([contents[start:end] for start, end in layout.segments])
    code = piece.addresses[0], piece.addresses[0] + layout.segments[0][1]
    if found.machine == AARCH64:
        _clear_instruction_cache(*code)
    piece.protect()
    return MappedObject(piece, {name: layout.address(bases, at) for name, at in offsets.items()}, code)


# --- placing ---------------------------------------------------------------------------------------------


def lay_out(found: ObjectFile, page: int) -> Layout:
    """Give every loaded section, stub and address slot a place.

    Args:
        found: the object.
        page: bytes of a page of memory; protection changes at multiples of it.

    Raises:
        UnsupportedError: the object is larger than `MAX_BYTES`, or wants more alignment than a page has.
    """
    got = _X_GOT if found.machine == X86_64 else _A_GOT
    through = {info >> 32 for rows in found.relocations.values() for _, info, _ in rows if info & 0xFFFF_FFFF in got}
    missing = [index for index in found.used if found.symbols[index][3] == UNDEFINED]
    sections: dict[int, int] = {}

    def append(indices: list[int], at: int) -> int:
        for index in indices:
            section = found.sections[index]
            if section.align > page:
                raise UnsupportedError(f"the object file has a section aligned to {section.align} bytes")
            sections[index] = at = _round_up(at, section.align or 1)
            at += section.size
        return at

    text, constant, data, zero = found.loaded
    stubs_at = _round_up(append(text, 0), STUB_BYTES)
    text_end = _round_up(stubs_at + STUB_BYTES * len(missing), page)
    slots_at = _round_up(append(constant, text_end), _SLOT_BYTES)
    constant_end = _round_up(slots_at + _SLOT_BYTES * len(through), page)
    filled = append(data, constant_end)
    size = max(_round_up(append(zero, filled), page), page)
    if size > MAX_BYTES:
        raise UnsupportedError(f"the object file takes {size} bytes of memory, more than {MAX_BYTES}")
    stubs = {index: stubs_at + STUB_BYTES * i for i, index in enumerate(missing)}
    slots = {index: slots_at + _SLOT_BYTES * i for i, index in enumerate(sorted(through))}
    segments = ((0, text_end), (text_end, constant_end), (constant_end, size))
    assert len(segments) == len(PROTECTIONS)
    return Layout(sections, stubs, slots, segments, filled, size)


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def export_offsets(found: ObjectFile, layout: Layout, names: Iterable[str]) -> dict[str, int]:
    """Offsets of symbols that others may use.

    Raises:
        InternalError: the object does not define one of `names`.
    """
    defined = [row for row in found.symbols[found.first_global :] if row[3] in layout.sections]
    offsets: dict[str, int] = {}
    for name in names:
        wanted = name.encode() + b"\0"
        row = next((row for row in defined if found.strings.startswith(wanted, row[0])), None)
        if row is None:
            raise InternalError(f"the object file does not define {name}")
        _, _, _, section, value, _ = row
        if value >= found.sections[section].size:
            raise damaged(f"symbol {name} lies outside its section")
        offsets[name] = layout.sections[section] + value
    return offsets


# --- relocating --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Target:
    """What relocations are computed from: the bytes to patch and, by symbol index, addresses in memory."""

    contents: bytearray
    addresses: dict[int, int]
    stubs: dict[int, int]
    slots: dict[int, int]


def relocate(found: ObjectFile, layout: Layout, bases: Sequence[int], resolve: Resolve) -> bytearray:
    """The contents of the segments, up to the zeroed part of the last.

    Args:
        found: the object.
        layout: from `lay_out`.
        bases: for each segment its address, aligned to a page, less its offset.
        resolve: gives the address of an external symbol, or raises.

    Raises:
        InternalError: a relocation lies outside its section or does not reach.
        UnsupportedError: a relocation or symbol is of a kind that is not known here.
    """
    contents = bytearray(layout.filled)
    for index in (*found.loaded[0], *found.loaded[1], *found.loaded[2]):
        section, at = found.contents(index), layout.sections[index]
        contents[at : at + len(section)] = section
    addresses = {index: _address(found, layout, bases, index, resolve) for index in found.used}
    for index, at in layout.slots.items():
        struct.pack_into("<Q", contents, at, addresses[index])
    intel = found.machine == X86_64
    for index, at in layout.stubs.items():
        contents[at : at + STUB_BYTES] = (_x86_stub if intel else _arm_stub)(addresses[index])
    stubs = {index: bases[0] + at for index, at in layout.stubs.items()}
    slots = {index: bases[1] + at for index, at in layout.slots.items()}
    target = _Target(contents, addresses, stubs, slots)
    patch = _patch_x86 if intel else _patch_arm
    for index, rows in found.relocations.items():
        start = layout.sections[index]
        try:
            patch(target, start, layout.address(bases, start) - start, found.sections[index].size, rows)
        except struct.error as error:
            raise InternalError(f"a relocation of the object file does not reach: {error}") from error
    return contents


def _address(found: ObjectFile, layout: Layout, bases: Sequence[int], index: int, resolve: Resolve) -> int:
    """Address of a symbol that a relocation names."""
    _, info, _, section, value, _ = found.symbols[index]
    if info & 15 in (6, 10):
        raise UnsupportedError(f"symbol {found.name(index)} is thread-local or chosen at run time")
    place = layout.sections.get(section)
    if place is not None:
        if value > found.sections[section].size:
            raise damaged(f"symbol {found.name(index)} lies outside its section")
        return layout.address(bases, place) + value
    if section == UNDEFINED:
        name = found.name(index)
        if not name:
            raise damaged("a relocation names no symbol")
        return resolve(name)
    if section == ABSOLUTE:
        return value
    if len(found.sections) <= section < RESERVED:
        raise damaged(f"symbol {found.name(index)} is in no section")
    raise UnsupportedError(f"symbol {found.name(index)} is in no loaded section")


def _x86_stub(address: int) -> bytes:
    """`jmp *0(%rip)`, the address, two traps."""
    return b"\xff\x25\0\0\0\0" + struct.pack("<Q", address) + b"\xcc\xcc"


def _arm_stub(address: int) -> bytes:
    """`ldr x16, .+8; br x16`, the address. Calls may change x16."""
    return struct.pack("<IIQ", 0x5800_0050, 0xD61F_0200, address)


def _patch_x86(target: _Target, start: int, base: int, size: int, rows: Rows) -> None:
    """Apply the relocations of the section at `start`, of address `base + start`; `struct.error` for a value that does
    not fit."""
    contents, addresses, stubs = target.contents, target.addresses, target.stubs
    last = size - 4
    pack_signed = struct.Struct("<i").pack_into
    for offset, info, addend in rows:
        kind, index = info & 0xFFFF_FFFF, info >> 32
        if offset > last:
            raise damaged("a relocation lies outside its section")
        at = start + offset
        if kind == _X_PC32:
            pack_signed(contents, at, addresses[index] + addend - base - at)
        elif kind == _X_PLT32:
            value = addresses[index] + addend - base - at
            if index in stubs and not -0x8000_0000 <= value <= 0x7FFF_FFFF:
                value = stubs[index] + addend - base - at
            pack_signed(contents, at, value)
        elif kind in _X_GOT:
            pack_signed(contents, at, target.slots[index] + addend - base - at)
        elif kind in (_X_64, _X_PC64):
            if offset > size - 8:
                raise damaged("a relocation lies outside its section")
            value = addresses[index] + addend - (base + at if kind == _X_PC64 else 0)
            struct.pack_into("<Q", contents, at, value & 0xFFFF_FFFF_FFFF_FFFF)
        elif kind in (_X_32, _X_32S):
            struct.pack_into("<I" if kind == _X_32 else "<i", contents, at, addresses[index] + addend)
        else:
            raise UnsupportedError(f"the object file has an x86-64 relocation of kind {kind}")


def _patch_arm(target: _Target, start: int, base: int, size: int, rows: Rows) -> None:
    """As `_patch_x86`."""
    contents = target.contents
    for offset, info, addend in rows:
        kind, index = info & 0xFFFF_FFFF, info >> 32
        data = _A_DATA.get(kind)
        if offset + (4 if data is None else struct.calcsize(data[0])) > size:
            raise damaged("a relocation lies outside its section")
        at = start + offset
        here = base + at
        value = (target.slots[index] if kind in _A_GOT else target.addresses[index]) + addend
        if data is not None:
            struct.pack_into(data[0], contents, at, value - here if data[1] else value)
            continue
        if at & 3:
            raise damaged("an instruction is not aligned")
        word: int = struct.unpack_from("<I", contents, at)[0]
        if kind in _A_WORDS:
            if kind in _A_CALLS and index in target.stubs and not -(1 << 27) <= value - here < 1 << 27:
                value = target.stubs[index] + addend
            bits, low = _A_WORDS[kind]
            word = _insert(word, low, bits, _signed(value - here, bits, 2))
        elif kind in _A_ADR:
            shift = _A_ADR[kind]
            field = _signed((value >> shift) - (here >> shift), 21, 0)
            word = _insert(_insert(word, 29, 2, field), 5, 19, field >> 2)
        elif kind in _A_LOW12:
            word = _insert(word, 10, 12, _signed(value & 0xFFF, 13, _A_LOW12[kind]))
        else:
            raise UnsupportedError(f"the object file has an AArch64 relocation of kind {kind}")
        struct.pack_into("<I", contents, at, word)


def _insert(word: int, low: int, bits: int, value: int) -> int:
    """`word` with `value` in its field of `bits` bits from bit `low`."""
    mask = (1 << bits) - 1
    return word & ~(mask << low) | (value & mask) << low


def _signed(value: int, bits: int, shift: int) -> int:
    """`value` in units of `1 << shift`, which must fit a signed field."""
    if value & ((1 << shift) - 1) or not -(1 << bits - 1) <= value >> shift < 1 << bits - 1:
        raise struct.error(f"{value} does not fit a field of {bits} bits")
    return value >> shift


# --- memory and the process --------------------------------------------------------------------------------


def process_symbol(name: str) -> int:
    """Address of a symbol that this process, or the C library's mathematics, exports.

    Raises:
        InternalError: neither has it.
    """
    lookup = _dlsym()
    address = lookup(None, name.encode())  # a null handle means every library that is loaded for all
    if not address:
        mathematics = _mathematics()
        address = lookup(mathematics, name.encode()) if mathematics else None
    if not address:
        raise CodeLoadError(f"compiled code needs {name}, which this process does not have")
    return address


@functools.cache
def _dlsym() -> Callable[[int | None, bytes], int | None]:
    function = ctypes.CDLL(None).dlsym
    function.restype, function.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_char_p)
    return function


@functools.cache
def _mathematics() -> int | None:
    """Handle of the mathematics library, for a Python that is linked with its own copy of it."""
    try:
        return ctypes.CDLL("libm.so.6")._handle
    except OSError:
        return None


def _clear_instruction_cache(start: int, end: int) -> None:
    """Make new code visible to instruction fetch, which AArch64 does not do by itself."""
    try:
        clear = ctypes.CDLL("libgcc_s.so.1").__clear_cache
    except (OSError, AttributeError) as error:
        raise UnsupportedError("the compiler's support library, which flushes caches, is not there") from error
    clear.restype, clear.argtypes = None, (ctypes.c_void_p, ctypes.c_void_p)
    clear(start, end)
