"""Reads relocatable ELF64 objects, as our code generator writes them for x86-64 and AArch64.

`read_object` gives the sections that belong in memory, the symbols and the relocations. It trusts nothing: whatever
lies outside the file is an `InternalError`; whatever is consistent but not made by our code generator (thread-local
data, constructors, packed relocations) is an `UnsupportedError`. Source: System V ABI, chapters 4 and 5.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from tilewright.base.errors import InternalError, UnsupportedError

X86_64, AARCH64 = 62, 183  # e_machine
UNDEFINED, RESERVED, ABSOLUTE = 0, 0xFF00, 0xFFF1  # st_shndx

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_IDENT = b"\x7fELF\x02\x01\x01"  # 64 bits, little endian, version 1
_RELOCATABLE = 1

_PROGBITS, _SYMTAB, _STRTAB, _RELA, _NOTE, _NOBITS, _X86_UNWIND = 1, 2, 3, 4, 7, 8, 0x7000_0001
_UNKNOWN_TABLES = {9: "REL", 18: "SYMTAB_SHNDX", 19: "RELR", 0x4000_0014: "CREL"}
_W, _ALLOC, _X, _TLS = 1, 2, 4, 0x400  # sh_flags

Rows = list[tuple[int, int, int]]


class Section(NamedTuple):
    """A section header, as the file has it."""

    name: int
    kind: int
    flags: int
    addr: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry_size: int


@dataclass(frozen=True, slots=True)
class ObjectFile:
    """A checked relocatable object.

    Args:
        image: the file.
        machine: `X86_64` or `AARCH64`.
        sections: all section headers.
        loaded: indices of the sections that belong in memory, by segment: text, read-only, data, zeroed data.
        symbols: the symbol table: (name, type and binding, visibility, section, value, size).
        first_global: where the symbols begin that others may use.
        strings: names of the symbols.
        relocations: per loaded section, its relocations: (offset, symbol << 32 | kind, addend).
        used: indices of the symbols that these name.
    """

    image: bytes
    machine: int
    sections: list[Section]
    loaded: tuple[list[int], list[int], list[int], list[int]]
    symbols: list[tuple[int, int, int, int, int, int]]
    first_global: int
    strings: bytes
    relocations: dict[int, Rows]
    used: list[int]

    def name(self, index: int) -> str:
        """Name of a symbol."""
        start = self.symbols[index][0]
        end = self.strings.find(b"\0", start)
        if end < 0:
            raise damaged("a name does not end")
        return self.strings[start:end].decode("utf-8", "backslashreplace")

    def named(self, name: str) -> int | None:
        """Index of the section of this name."""
        strings = _contents(self.image, self.sections[_HEADER.unpack_from(self.image)[-1]])
        wanted = name.encode() + b"\0"
        rows = enumerate(self.sections)
        return next((i for i, row in rows if strings[row.name : row.name + len(wanted)] == wanted), None)

    def addends(self, index: int) -> dict[int, int]:
        """For each place of a section that holds an address, how far that lies from the start of its section."""
        tables = (row for row in self.sections if row.kind == _RELA and row.info == index)
        rows = (row for table in tables for row in _rows(self.image, table, _RELOCATION))
        return {offset: self.symbols[info >> 32][4] + addend for offset, info, addend in rows}

    def contents(self, index: int) -> bytes:
        """Bytes of a section that has some."""
        return _contents(self.image, self.sections[index])


def read_object(image: bytes) -> ObjectFile:
    """Parse an object and check that everything it names lies inside it.

    Raises:
        InternalError: the file is damaged.
        UnsupportedError: the file is of another kind, or has sections or symbol tables that are not known here.
    """
    machine, sections = _sections(image)
    loaded: tuple[list[int], list[int], list[int], list[int]] = ([], [], [], [])
    for index, section in enumerate(sections):
        segment = _segment(section, len(image))
        if segment is not None:
            loaded[segment].append(index)
    tables = [section for section in sections if section.kind == _SYMTAB]
    if len(tables) != 1:
        raise UnsupportedError(f"the object file has {len(tables)} symbol tables")
    table = tables[0]
    if table.link >= len(sections) or sections[table.link].kind != _STRTAB:
        raise damaged("its symbol table has no names")
    symbols = list(_rows(image, table, _SYMBOL))
    relocations = _relocations(image, sections, {index for segment in loaded for index in segment})
    used = sorted({info >> 32 for rows in relocations.values() for _, info, _ in rows})
    if used and used[-1] >= len(symbols):
        raise damaged("a relocation names a symbol that is not there")
    strings = _contents(image, sections[table.link])
    return ObjectFile(image, machine, sections, loaded, symbols, table.info, strings, relocations, used)


def damaged(what: str) -> InternalError:
    """The error for a file that contradicts itself."""
    return InternalError(f"the object file is damaged: {what}")


def _sections(image: bytes) -> tuple[int, list[Section]]:
    """Machine and section headers."""
    if len(image) < _HEADER.size or image[:4] != _IDENT[:4]:
        raise damaged("it has no header")
    ident, kind, machine, _, _, _, start, _, _, _, _, entry, count, _ = _HEADER.unpack_from(image)
    if ident[:7] != _IDENT or kind != _RELOCATABLE or machine not in (X86_64, AARCH64):
        raise UnsupportedError("the object file is not a little-endian 64-bit relocatable one for x86-64 or AArch64")
    if entry != _SECTION.size or not count or start + count * entry > len(image):
        raise damaged("its section headers are not inside the file")
    table = image[start : start + count * entry]
    return machine, [Section._make(row) for row in _SECTION.iter_unpack(table)]


def _segment(section: Section, limit: int) -> int | None:
    """Which of text, read-only, data, zeroed data a section goes to; None for one that is not loaded."""
    flags, kind = section.flags, section.kind
    if not flags & _ALLOC:
        if kind in _UNKNOWN_TABLES:
            raise UnsupportedError(f"the object file has a {_UNKNOWN_TABLES[kind]} section")
        return None
    if kind in (_NOTE, _X86_UNWIND):
        return None  # nothing unwinds through kernels
    if kind not in (_PROGBITS, _NOBITS):
        raise UnsupportedError(f"the object file has a loaded section of type {kind:#x}")
    if flags & _TLS or flags & (_W | _X) == _W | _X:
        raise UnsupportedError("the object file has thread-local data, or code that may be written")
    if section.align & (section.align - 1):
        raise damaged(f"a section is aligned to {section.align} bytes")
    if kind == _NOBITS:
        return 3
    if section.offset + section.size > limit:
        raise damaged("a section ends behind it")
    return 0 if flags & _X else 2 if flags & _W else 1


def _relocations(image: bytes, sections: list[Section], loaded: set[int]) -> dict[int, Rows]:
    """The relocations of loaded sections."""
    found: dict[int, Rows] = {}
    for section in sections:
        if section.kind != _RELA or section.info not in loaded:
            continue
        if section.link >= len(sections) or sections[section.link].kind != _SYMTAB:
            raise damaged("a relocation table has no symbol table")
        if sections[section.info].kind == _NOBITS:
            raise damaged("zeroed data has relocations")
        found.setdefault(section.info, []).extend(_rows(image, section, _RELOCATION))
    return found


def _rows(image: bytes, section: Section, row: struct.Struct) -> Iterable[Any]:
    if section.entry_size != row.size or section.size % row.size:
        raise damaged("a table has rows of another size")
    return row.iter_unpack(_contents(image, section))


def _contents(image: bytes, section: Section) -> bytes:
    end = section.offset + section.size
    if end > len(image):
        raise damaged("a section ends behind it")
    return image[section.offset : end]
