"""When a kernel reads or writes memory that is not there, the process dies naming kernel, program, argument and line.

    SIGSEGV, SIGBUS --> tw_on_fault: is the instruction in the code of a kernel? then print which, at which program and
                        line; in any case the action that was there before takes over, as if nothing had been

An x86 has no address to tell for one outside of its address space (whose upper bits are not all alike): Linux gives the
code SI_KERNEL with it, and SIGBUS where the address was made from the frame or stack pointer.

Kernels keep the number of the program that they are at and the place of their arguments in their frames, behind a word
that tells the place (`abi`). The handler looks for it from the stack pointer upwards. Of the arguments that are
pointers it names the one that begins nearest to the address, and the index from there. Machine code gets no extents:
those of the arrays for which a launch was prepared are kept, and told where one of these is the argument that is named.
Lines come from a table made when the kernel was compiled: an instruction that computes and reads at once has the line
of the load. Linux alone: elsewhere processes die as silently as they would.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.backends.cpu.abi import FRAME_MARK
from tilewright.backends.llvm.codegen import Library, load_helper
from tilewright.backends.llvm.features import arch_of, host_triple
from tilewright.backends.protocol import ByteCache
from tilewright.base import system
from tilewright.base.errors import TilewrightError
from tilewright.base.system import FaultLayout

Pointer = tuple[int, int, str]
"""Slot among the arguments, bytes of what it points to, name."""
EXPORTS = ("tw_on_fault", "tw_before", "tw_faults")

_WORDS = 8  # of a row: start and end of the code, name, lines and how many, file, pointers and how many
# Of a pointer: its slot among the arguments, bytes of what it points to, name; an address, and how many elements an
# array had there.
_POINTER_WORDS = 5
_MOST_WORDS = 1 << 20  # of the stack between the fault and the kernel's frame

_MESSAGE = (
    "\\0ATilewright: kernel %s, program %lld, accessed the address %p, which is not there.\\0A\\00",
    "\\0ATilewright: kernel %s, program %lld, accessed an address outside of the address space.\\0A\\00",
    "  at or near line %d of %s\\0A\\00",
    "  that is %s[%lld], counted from the argument that begins nearest to it\\0A\\00",
    "  it had %lld elements when a launch with it was prepared\\0A\\00",
    "hint: a mask may be missing; with TILEWRIGHT_INTERPRET=1 the access is found and its line is named\\0A\\00",
)

_IR = """
@tw_faults = global [2 x i64] zeroinitializer, align 64      ; how many kernels, and where their rows are
@tw_before = global [2 x [{action} x i8]] zeroinitializer, align 64      ; for SIGSEGV and SIGBUS
@tw_message.there = private constant [{length0} x i8] c"{message0}"
@tw_message.outside = private constant [{length1} x i8] c"{message1}"
@tw_message.line = private constant [{length2} x i8] c"{message2}"
@tw_message.argument = private constant [{length3} x i8] c"{message3}"
@tw_message.extent = private constant [{length4} x i8] c"{message4}"
@tw_message.hint = private constant [{length5} x i8] c"{message5}"

declare i32 @dprintf(i32, ptr, ...)
declare i32 @sigaction(i32, ptr, ptr)

; The line of an instruction of a kernel: that of the last entry that is not behind it; 0 for another instruction.
define internal i32 @tw_line(ptr %row, i64 %pc) nounwind {{
entry:
  %start = load i64, ptr %row
  %end.p = getelementptr i64, ptr %row, i64 1
  %end = load i64, ptr %end.p
  %lines.p = getelementptr i64, ptr %row, i64 3
  %lines = load ptr, ptr %lines.p
  %count.p = getelementptr i64, ptr %row, i64 4
  %count = load i64, ptr %count.p
  %above = icmp uge i64 %pc, %start
  %below = icmp ult i64 %pc, %end
  %inside = and i1 %above, %below
  %offset = sub i64 %pc, %start
  br i1 %inside, label %look, label %none
look:
  %i = phi i64 [ 0, %entry ], [ %i.1, %entered ]
  %line = phi i32 [ 0, %entry ], [ %line.1, %entered ]
  %all = icmp uge i64 %i, %count
  br i1 %all, label %found, label %next
next:
  %at = mul i64 %i, 2
  %from.p = getelementptr i32, ptr %lines, i64 %at
  %from = load i32, ptr %from.p
  %from.wide = zext i32 %from to i64
  %behind = icmp ugt i64 %from.wide, %offset
  br i1 %behind, label %found, label %entered
entered:
  %line.p = getelementptr i32, ptr %from.p, i64 1
  %line.1 = load i32, ptr %line.p
  %i.1 = add i64 %i, 1
  br label %look
found:
  ret i32 %line
none:
  ret i32 0
}}

; Say which argument begins nearest to an address, if the kernel of the row has one that is a pointer.
define internal void @tw_argument(ptr %row, ptr %args, i64 %address) nounwind {{
entry:
  %pointers.p = getelementptr i64, ptr %row, i64 6
  %pointers = load ptr, ptr %pointers.p
  %count.p = getelementptr i64, ptr %row, i64 7
  %count = load i64, ptr %count.p
  br label %look
look:
  %i = phi i64 [ 0, %entry ], [ %i.1, %next ]
  %best = phi ptr [ null, %entry ], [ %best.1, %next ]
  %away = phi i64 [ 0, %entry ], [ %away.1, %next ]
  %least = phi i64 [ -1, %entry ], [ %least.1, %next ]
  %all = icmp uge i64 %i, %count
  br i1 %all, label %found, label %next
next:
  %at = mul i64 %i, {pointer_words}
  %pointer = getelementptr i64, ptr %pointers, i64 %at
  %slot = load i64, ptr %pointer
  %base.p = getelementptr i64, ptr %args, i64 %slot
  %base = load i64, ptr %base.p
  %distance = sub i64 %address, %base
  %size = call i64 @llvm.abs.i64(i64 %distance, i1 false)
  %given = icmp ne i64 %base, 0
  %nearer = icmp ult i64 %size, %least
  %better = and i1 %given, %nearer
  %best.1 = select i1 %better, ptr %pointer, ptr %best
  %away.1 = select i1 %better, i64 %distance, i64 %away
  %least.1 = select i1 %better, i64 %size, i64 %least
  %i.1 = add i64 %i, 1
  br label %look
found:
  %none = icmp eq ptr %best, null
  br i1 %none, label %done, label %say
say:
  %bytes.p = getelementptr i64, ptr %best, i64 1
  %bytes = load i64, ptr %bytes.p
  %name.p = getelementptr i64, ptr %best, i64 2
  %name = load ptr, ptr %name.p
  %index = sdiv i64 %away, %bytes
  %said = call i32 (i32, ptr, ...) @dprintf(i32 2, ptr @tw_message.argument, ptr %name, i64 %index)
  %base.known.p = getelementptr i64, ptr %best, i64 3
  %base.known = load volatile i64, ptr %base.known.p
  %extent.p = getelementptr i64, ptr %best, i64 4
  %extent = load volatile i64, ptr %extent.p
  %own.slot = load i64, ptr %best
  %own.base.p = getelementptr i64, ptr %args, i64 %own.slot
  %own.base = load i64, ptr %own.base.p
  %looked.at = icmp eq i64 %own.base, %base.known
  br i1 %looked.at, label %long, label %done
long:
  %said.long = call i32 (i32, ptr, ...) @dprintf(i32 2, ptr @tw_message.extent, i64 %extent)
  br label %done
done:
  ret void
}}

declare i64 @llvm.abs.i64(i64, i1)

define void @tw_on_fault(i32 %number, ptr %info, ptr %context) nounwind {{
entry:
  {registers}
  %pc.p = getelementptr i8, ptr %registers, i64 {pc}
  %pc = load i64, ptr %pc.p
  %count = load volatile i64, ptr @tw_faults
  %rows.p = getelementptr i64, ptr @tw_faults, i64 1
  %rows = load volatile ptr, ptr %rows.p
  br label %look

look:
  %i = phi i64 [ 0, %entry ], [ %i.1, %next ]
  %all = icmp uge i64 %i, %count
  br i1 %all, label %done, label %row
row:
  %at = mul i64 %i, {words}
  %start.p = getelementptr i64, ptr %rows, i64 %at
  %start = load i64, ptr %start.p
  %end.p = getelementptr i64, ptr %start.p, i64 1
  %end = load i64, ptr %end.p
  %above = icmp uge i64 %pc, %start
  %below = icmp ult i64 %pc, %end
  %inside = and i1 %above, %below
  br i1 %inside, label %found, label %next
next:
  %i.1 = add i64 %i, 1
  br label %look

found:                      ; without a line of its own it is that of the nearest call that the kernel waits for
  %own = call i32 @tw_line(ptr %start.p, i64 %pc)
  %sp.p = getelementptr i8, ptr %registers, i64 {sp}
  %sp = load i64, ptr %sp.p
  %sp.8 = and i64 %sp, -8
  %stack = inttoptr i64 %sp.8 to ptr
  br label %scan
scan:
  %w = phi i64 [ 0, %found ], [ %w.1, %scan.next ]
  %line = phi i32 [ %own, %found ], [ %line.1, %scan.next ]
  %word.p = getelementptr i64, ptr %stack, i64 %w
  %word = load volatile i64, ptr %word.p
  %w.1 = add i64 %w, 1
  %marked = icmp eq i64 %word, {mark}
  br i1 %marked, label %say, label %scan.next
scan.next:
  %call = sub i64 %word, 1
  %caller = call i32 @tw_line(ptr %start.p, i64 %call)
  %known = icmp ne i32 %line, 0
  %line.1 = select i1 %known, i32 %line, i32 %caller
  %far = icmp uge i64 %w.1, {most}
  br i1 %far, label %done, label %scan
say:
  %program.p = getelementptr i64, ptr %stack, i64 %w.1
  %program = load volatile i64, ptr %program.p
  %address.p = getelementptr i8, ptr %info, i64 {address}
  %address = load ptr, ptr %address.p
  %name.p = getelementptr i64, ptr %start.p, i64 2
  %name = load ptr, ptr %name.p
  %code.p = getelementptr i8, ptr %info, i64 {code}
  %code = load i32, ptr %code.p
  %unknown = icmp eq i32 %code, {si_kernel}
  %what = select i1 %unknown, ptr @tw_message.outside, ptr @tw_message.there
  %said.0 = call i32 (i32, ptr, ...) @dprintf(i32 2, ptr %what, ptr %name, i64 %program, ptr %address)
  br i1 %unknown, label %line.known, label %argument
argument:
  %args.at = add i64 %w.1, 1
  %args.p = getelementptr i64, ptr %stack, i64 %args.at
  %args = load volatile ptr, ptr %args.p
  %number.of = ptrtoint ptr %address to i64
  call void @tw_argument(ptr %start.p, ptr %args, i64 %number.of)
  br label %line.known
line.known:
  %placed = icmp ne i32 %line, 0
  br i1 %placed, label %place, label %hint
place:
  %file.p = getelementptr i64, ptr %start.p, i64 5
  %file = load ptr, ptr %file.p
  %said.1 = call i32 (i32, ptr, ...) @dprintf(i32 2, ptr @tw_message.line, i32 %line, ptr %file)
  br label %hint
hint:
  %said.2 = call i32 (i32, ptr, ...) @dprintf(i32 2, ptr @tw_message.hint)
  br label %done

done:                                     ; the instruction runs again, and what was to happen happens
  %bus = icmp eq i32 %number, {sigbus}
  %which = zext i1 %bus to i64
  %before = getelementptr [{action} x i8], ptr @tw_before, i64 %which
  %restored = call i32 @sigaction(i32 %number, ptr %before, ptr null)
  ret void
}}
"""


def faults_text(triple: str) -> str | None:
    """Text of the handler for the target `triple` on this system, or None where there is none."""
    layout = system.this().fault_layout(arch_of(triple))
    if layout is None:
        return None
    messages = {f"message{i}": text for i, text in enumerate(_MESSAGE)}
    lengths = {f"length{i}": len(text) - 2 * text.count("\\") for i, text in enumerate(_MESSAGE)}
    registers = "%registers = getelementptr i8, ptr %context, i64 0"
    if layout.context is not None:
        registers = f"%to = getelementptr i8, ptr %context, i64 {layout.context}\n  %registers = load ptr, ptr %to"
    text = _IR.format(
        sp=layout.stack_pointer, pc=layout.program_counter, registers=registers, address=layout.address,
        mark=FRAME_MARK, most=_MOST_WORDS, action=layout.action, words=_WORDS, pointer_words=_POINTER_WORDS,
        code=layout.code, si_kernel=layout.unknown, sigbus=layout.bus, **messages, **lengths,
    )  # fmt: skip
    return f'target triple = "{triple}"\n{text}'


class Faults:
    """The kernels that the handler knows.

    Args:
        library: the handler, loaded.
    """

    def __init__(self, library: Library) -> None:
        self._library = library
        self._words = (ctypes.c_int64 * 2).from_address(library.address("tw_faults"))
        self._tables = [(ctypes.c_int64 * (64 * _WORDS))()]  # the last one counts; a handler may be reading another
        self._free: list[int] = []
        self._kept: dict[int, tuple[Any, ...]] = {}
        self._rows: weakref.WeakKeyDictionary[Library, int] = weakref.WeakKeyDictionary()
        self._lock = threading.RLock()  # the collector may drop a kernel while another is added
        self._words[1] = ctypes.addressof(self._tables[0])

    def install(self, layout: FaultLayout) -> None:
        """Take SIGSEGV and SIGBUS; the actions that were there before are kept for `tw_on_fault`.

        Args:
            layout: of what the system takes.
        """
        action = ctypes.create_string_buffer(layout.action)
        ctypes.c_uint64.from_buffer(action).value = self._library.address("tw_on_fault")
        ctypes.c_int.from_buffer(action, layout.flags).value = layout.wanted
        sigaction = ctypes.CDLL(None).sigaction
        sigaction.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
        before = self._library.address("tw_before")
        sigaction(layout.segment, ctypes.addressof(action), before)
        sigaction(layout.bus, ctypes.addressof(action), before + layout.action)

    def add(
        self, code: Library, name: str, lines: Sequence[int] = (), file: str = "", pointers: Sequence[Pointer] = ()
    ) -> None:
        """Know a kernel as long as its code lives.

        Args:
            code: it.
            name: of it.
            lines: as `linetable.lines_of` has them.
            file: whose lines those are.
            pointers: arguments that are pointers.
        """
        extent = code.extent
        if extent is None:  # loaded by LLVM, which does not say where
            return
        with self._lock:
            row = self._free.pop() if self._free else self._words[0]
            words_of = (name, file, *(pointer[2] for pointer in pointers))
            texts = [ctypes.create_string_buffer(text.encode("utf-8", "replace")) for text in words_of]
            title, source, *names = map(ctypes.addressof, texts)
            entries = (ctypes.c_int32 * len(lines))(*lines)
            told = [
                word for (slot, size, _), at in zip(pointers, names, strict=True) for word in (slot, size, at, 0, 0)
            ]
            held = (ctypes.c_int64 * len(told))(*told)
            self._kept[row] = (*texts, entries, held)
            places = ctypes.addressof(entries), len(lines) // 2, source, ctypes.addressof(held), len(pointers)
            words = (*extent, title, *places)
            table, at = self._table(row), _WORDS * row
            table[at + 1 : at + _WORDS] = list(words[1:])
            table[at] = words[0]
            self._words[0] = max(self._words[0], row + 1)
            self._rows[code] = row
        weakref.finalize(code, self._remove, row).atexit = False

    def note_extents(self, code: Library, ranges: Mapping[int, tuple[int, int]]) -> None:
        """Know how long arrays are.

        Args:
            code: of a kernel that was added.
            ranges: address, and address behind the last element, by slot among the arguments.
        """
        row = self._rows.get(code)
        if row is None:
            return
        held = self._kept[row][-1]
        for at in range(0, len(held), _POINTER_WORDS):
            base, end = ranges.get(held[at], (0, 0))
            held[at + 3 : at + 5] = [0, 0]  # not the extent of one array with the address of another
            held[at + 4] = (end - base) // held[at + 1]
            held[at + 3] = base

    def _table(self, row: int) -> ctypes.Array[ctypes.c_int64]:
        """The table, with room for a row."""
        table = self._tables[-1]
        if _WORDS * row < len(table):
            return table
        larger = (ctypes.c_int64 * (2 * len(table)))(*table)
        self._tables.append(larger)
        self._words[1] = ctypes.addressof(larger)
        return larger

    def _remove(self, row: int) -> None:
        with self._lock:
            table = self._tables[-1]
            table[_WORDS * row : _WORDS * row + 2] = [0, 0]
            self._free.append(row)


_lock = system.this().hold_at_forks(threading.Lock())
_faults: list[Faults | None] = []


def note_kernel(code: Library, metadata: Mapping[str, Any], cache: ByteCache | None) -> None:
    """Let the handler know a kernel; the first one installs it.

    Args:
        code: the loaded kernel.
        metadata: its name, the lines of its code in their file, and its pointers.
        cache: where to look for the handler's object, and where to keep it.
    """
    with _lock:
        if not _faults:
            _faults.append(_load(cache))
    if _faults[0] is not None:
        pointers = [(slot, size, name) for slot, size, name in metadata.get("pointers") or ()]
        lines, file = metadata.get("lines") or (), str(metadata.get("file") or "")
        _faults[0].add(code, str(metadata["name"]), lines, file, pointers)


def note_extents(code: Library, ranges: Mapping[int, tuple[int, int]]) -> None:
    """Let the handler know how long the arrays of a launch are; arguments as for `Faults.note_extents`."""
    if _faults and _faults[0] is not None:
        _faults[0].note_extents(code, ranges)


def _load(cache: ByteCache | None) -> Faults | None:
    triple = host_triple()
    text, layout = faults_text(triple), system.this().fault_layout(arch_of(triple))
    if text is None or layout is None:
        return None
    try:
        made = Faults(load_helper("faults", text, EXPORTS, cache))
    except TilewrightError:  # a C library without dprintf
        return None
    made.install(layout)
    return made
