"""Which source line each instruction of an object comes from, out of the line program that LLVM writes beside it.

Only rows of one sequence are kept, as (offset in the code, line) where the line changes. Source: DWARF 5, section 6.2.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from tilewright.backends.llvm.elf import ObjectFile, read_object
from tilewright.base.errors import TilewrightError

_COPY, _ADVANCE_PC, _ADVANCE_LINE, _CONST_ADD_PC, _FIXED_ADVANCE_PC = 1, 2, 3, 8, 9
_END_SEQUENCE, _SET_ADDRESS = 1, 2


def lines_of(image: bytes) -> list[int]:
    """Offset in the code, line, offset, line, ..., in ascending order; line 0 where none is known.

    Empty for an object without a line program, and for one whose code lies in several sections.
    """
    try:
        found = read_object(image)
        section = found.named(".debug_line")
        if section is None or len(found.loaded[0]) != 1:
            return []
        return _joined(sorted(_rows(found, section)))
    except (TilewrightError, struct.error, IndexError):
        return []


def _joined(rows: list[tuple[int, int]]) -> list[int]:
    table: list[int] = []
    for offset, line in rows:
        if table and table[-2] == offset:  # the last one of a place counts
            table[-1] = line
        elif not table or table[-1] != line:
            table += [offset, line]
    return table


def _rows(found: ObjectFile, section: int) -> Iterator[tuple[int, int]]:
    """(offset, line) of every row of the first unit."""
    data, starts = found.contents(section), found.addends(section)
    (version,) = struct.unpack_from("<H", data, 4)
    at = 8 if version >= 5 else 6
    (length,) = struct.unpack_from("<I", data, at)
    program, at = at + 4 + length, at + 4
    smallest, at = data[at], at + (2 if version >= 4 else 1)
    base, span, first = struct.unpack_from("<bBB", data, at + 1)
    operands = data[at + 4 : at + 3 + first]
    end = 4 + struct.unpack_from("<I", data)[0]
    pc, line, at = 0, 1, program
    while at < end:
        code, at = data[at], at + 1
        if code >= first:
            pc += (code - first) // span * smallest
            line += base + (code - first) % span
            yield pc, line
        elif code == 0:
            size, at = _unsigned(data, at)
            if data[at] == _SET_ADDRESS:
                pc = starts.get(at + 1, 0)
            elif data[at] == _END_SEQUENCE:
                yield pc, 0
                pc, line = 0, 1
            at += size
        elif code == _COPY:
            yield pc, line
        elif code == _ADVANCE_PC:
            amount, at = _unsigned(data, at)
            pc += amount * smallest
        elif code == _ADVANCE_LINE:
            amount, at = _signed(data, at)
            line += amount
        elif code == _CONST_ADD_PC:
            pc += (255 - first) // span * smallest
        elif code == _FIXED_ADVANCE_PC:
            pc, at = pc + struct.unpack_from("<H", data, at)[0], at + 2
        else:
            for _ in range(operands[code - 1]):
                _, at = _unsigned(data, at)


def _unsigned(data: bytes, at: int) -> tuple[int, int]:
    """A number in LEB128, and where the next thing stands."""
    value = shift = 0
    while True:
        byte, at = data[at], at + 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def _signed(data: bytes, at: int) -> tuple[int, int]:
    start = at
    value, at = _unsigned(data, at)
    bits = 7 * (at - start)
    return value - (1 << bits) if value >> (bits - 1) else value, at
