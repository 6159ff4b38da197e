"""A launch function in machine code: the table of calls that it knows, and how calls are added."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.backends.llvm.calls import tables as t
from tilewright.backends.protocol import Maps, Packing
from tilewright.base.cache_layers import SmallObjects
from tilewright.base.record import Record
from tilewright.launch.native.machine import Machine, machine

_MOST_ENTRIES = 256  # of one kernel; with one more it starts anew
_HOOKS, _ENTRIES = 3, 4  # places in what a state keeps
_MAP_WORDS, _MAP_ALIGNMENT = 16, 64  # of a tensor map: the alignment, in bytes, is what the driver asks for


class _State(int):
    """The address of a table of words; keeps everything alive that is reached from there."""

    kept: list[Any]


class Known(Record):
    """A call that a launch function knows, and launches without Python.

    Args:
        entry, state: addresses of its entry, and of the table of the function.
        forgotten: how often the function had forgotten all.
        call: what is known.
        kept: alive.
    """

    entry: int
    state: int
    forgotten: int
    call: t.KnownCall
    kept: Any


class Builtin:
    """A launch function of one kernel.

    Args:
        code: the machine code.
        miss: called for every call that is not known, with the same arguments.
        is_run: take the arguments of `CompiledKernel.run`.

    Attributes:
        call: the built-in function, `call(grid, *args, **kwargs)`.
        machine: the code.
    """

    def __init__(self, code: Machine, miss: Callable[..., Any], *, is_run: bool = False) -> None:
        self._words = (ctypes.c_int64 * t.STATE_WORDS)()
        self._state = _State(ctypes.addressof(self._words))
        self._state.kept = [self._words, code, miss, None, []]
        self._words[t.STATE_MISS] = id(miss)
        self._words[t.STATE_SHARED] = ctypes.addressof(code.shared)
        self.machine = code
        self.call = code.function(self._state, is_run=is_run)

    @property
    def _entries(self) -> list[Any]:
        entries: list[Any] = self._state.kept[_ENTRIES]
        return entries

    @property
    def is_full(self) -> bool:
        """Whether no more calls can be learned."""
        return len(self._entries) >= _MOST_ENTRIES

    def forget(self) -> None:
        """Know no call any more. While a launch is under way its entry must last, so all are freed at a later time."""
        self._words[t.STATE_FIRST] = self._words[t.STATE_LAST] = 0
        self._words[t.STATE_FORGOTTEN] += 1
        if not self._words[t.STATE_BUSY]:
            self._entries.clear()

    def mark(self) -> None:
        """Have `marked` tell of launches from now on."""
        self._words[t.STATE_LAST] = 0

    def marked(self) -> Known | None:
        """The call that the last launch since `mark` was known to be; None where Python made it."""
        last = self._words[t.STATE_LAST]
        found = next((entry for entry in self._entries if ctypes.addressof(entry[0]) == last), None)
        if found is None or found[0][t.ENTRY_CALL] or found[0][t.ENTRY_WATCH] or self._words[t.STATE_HOOKS]:
            return None
        words = ctypes.addressof(self._words)
        return Known(ctypes.addressof(found[0]), words, self._words[t.STATE_FORGOTTEN], found[2], (self, found))

    def hook(self, function: Callable[..., Any] | None) -> None:
        """Call `function(*args, **kwargs)` ahead of every launch, or nothing."""
        self._state.kept[_HOOKS] = function
        self._words[t.STATE_HOOKS] = 0 if function is None else id(function)

    def learn(
        self,
        known: t.KnownCall,
        launch: Callable[..., None],
        result: Any,
        *,
        before: Callable[[], Any] | None = None,
        watch: Callable[[dict[str, Any], Any], Any] | None = None,
        leave: Callable[[Any], Any] | None = None,
        written: Sequence[int] = (),
    ) -> None:
        """Launch calls of one form at once from now on.

        Args:
            known: the call.
            launch: `launch(gx, gy, gz, *values)`; its `packing`, if it has one, is what machine code does instead.
            result: what a launch gives.
            before: called ahead of every launch; False says that this is another call after all.
            watch: called ahead of every launch with the arguments by name and the grid.
            leave: called behind it with what that gave.
            written: columns of the tensors that the launch changes.
        """
        packing: Packing | None = getattr(launch, "packing", None)
        if packing is not None and not _holds(known, packing):
            packing = None
        if self.is_full:
            self.forget()
        if self.is_full:
            return
        columns = _words([word for column in known.columns for word in column.words()])
        names = _words([id(name) for name in known.names])
        slots = _slots(known, packing)
        meta_names = [None if name is None else name for name in known.meta_names]
        entry = _words([0] * t.ENTRY_WORDS)
        entry[t.ENTRY_NEXT] = self._words[t.STATE_FIRST]
        entry[t.ENTRY_NARGS], entry[t.ENTRY_NKW] = 1 + known.arguments - len(known.names), len(known.names)
        entry[t.ENTRY_NCOLS], entry[t.ENTRY_NSLOTS] = len(known.columns), len(known.slots)
        name_words = _words([0 if name is None else id(name) for name in meta_names])
        entry[t.ENTRY_NWRITTEN], entry[t.ENTRY_NPAIRS] = len(written), len(known.pairs) // t.PAIR_WORDS
        tables = {
            t.ENTRY_COLUMNS: columns, t.ENTRY_NAMES: names, t.ENTRY_SLOTS: slots, t.ENTRY_META_NAMES: name_words,
            t.ENTRY_WRITTEN: _words(written), t.ENTRY_PAIRS: _words(known.pairs),
        }  # fmt: skip
        for word, table in tables.items():
            entry[word] = ctypes.addressof(table)
        meta = {} if known.meta is None else known.meta
        function = None if packing is not None else launch
        for word, thing in {t.ENTRY_META: meta, t.ENTRY_RESULT: result}.items():
            entry[word] = id(thing)
        maybe = {t.ENTRY_BEFORE: before, t.ENTRY_CALL: function, t.ENTRY_WATCH: watch, t.ENTRY_LEAVE: leave}
        for word, called in maybe.items():
            entry[word] = 0 if called is None else id(called)
        kept: list[Any] = list(maybe.values())
        if packing is not None:
            _pack(entry, packing)
            if packing.maps is not None:
                kept.append(_LastMaps(entry, known, packing.record, packing.maps))
        self._entries.append((entry, tables, known, meta, launch, packing, result, kept))
        self._words[t.STATE_FIRST] = ctypes.addressof(entry)  # one word: who reads it sees a whole entry


def _pack(entry: Any, packing: Packing) -> None:
    entry[t.ENTRY_RUN], entry[t.ENTRY_RECORD] = packing.run, packing.record
    entry[t.ENTRY_SERIAL], entry[t.ENTRY_FIXED] = packing.serial_below, packing.fixed
    entry[t.ENTRY_TELLER] = id(packing.teller)
    entry[t.ENTRY_ON_GPU], entry[t.ENTRY_CLUSTER] = int(packing.cluster > 0), packing.cluster
    entry[t.ENTRY_EXPLAIN] = id(packing.explain)
    entry[t.ENTRY_STREAMS], entry[t.ENTRY_GPU] = packing.streams
    entry[t.ENTRY_MARK], entry[t.ENTRY_MARKED] = packing.mark
    if packing.scratch is not None:
        entry[t.ENTRY_SPARE], entry[t.ENTRY_SCRATCH], borrow = packing.scratch
        entry[t.ENTRY_BORROW] = id(borrow)


class _LastMaps:
    """The tensor maps of the last launch, for the entry of a call.

    Args:
        entry: of the call.
        known: the call.
        record: first word of the block of the kernel that takes these maps.
        maps: of the packing.
    """

    def __init__(self, entry: Any, known: t.KnownCall, record: int, maps: Maps) -> None:
        self._record, self._encode = record, maps.encode
        keys = [(number, -1) for number in maps.parameters]
        keys += [(number, place * _MAP_WORDS) for place, number in enumerate(maps.bases)]
        self._rows = [(number, known.slots[number][0], place) for number, place in keys]
        self._keys = _words([0] * (t.MAP_WORDS * len(keys)))
        self._table, self._lock = _words([0] * t.MAPS_WORDS), threading.Lock()
        self._image: Any = None
        self._table[t.MAPS_NKEYS], self._table[t.MAPS_KEYS] = len(keys), ctypes.addressof(self._keys)
        self._table[t.MAPS_OFFSET], self._table[t.MAPS_MOVE] = maps.offset, maps.move
        self._describer = self._describe  # a method is a new object at each mention
        entry[t.ENTRY_MAPS], entry[t.ENTRY_DESCRIBE] = ctypes.addressof(self._table), id(self._describer)

    def _describe(self, values: int) -> None:
        """Make the maps for the values at an address; whoever looks meanwhile finds none."""
        numbers = {number: ctypes.c_int64.from_address(values + 8 * column).value for number, column, _ in self._rows}
        record, made = self._encode(numbers)
        with self._lock:
            self._table[t.MAPS_KNOWN] = 0
            self._image = ctypes.create_string_buffer(len(made) + _MAP_ALIGNMENT)
            start = ctypes.addressof(self._image) + -ctypes.addressof(self._image) % _MAP_ALIGNMENT
            ctypes.memmove(start, made, len(made))
            self._table[t.MAPS_IMAGE], self._table[t.MAPS_NIMAGE] = start, len(made) // 8
            self._table[t.MAPS_RECORD] = record
            for index, (number, column, place) in enumerate(self._rows):
                row = (column, numbers[number], place if record == self._record else -1)
                self._keys[t.MAP_WORDS * index : t.MAP_WORDS * (index + 1)] = row
            self._table[t.MAPS_KNOWN] = 1


def _holds(known: t.KnownCall, packing: Packing) -> bool:
    """Whether the block of a launch has room for the slots."""
    return all(offset + size + 24 <= t.MOST_BYTES for offset, size in packing.slots) and len(packing.slots) == len(
        known.slots
    )


def _slots(known: t.KnownCall, packing: Packing | None) -> Any:
    rows: list[int] = []
    for index, (column, is_number) in enumerate(known.slots):
        offset, size = (0, 8 if is_number else 0) if packing is None else packing.slots[index]
        rows += [column, offset, size]
    return _words(rows)


def _words(values: Sequence[int]) -> Any:
    return (ctypes.c_int64 * max(len(values), 1))(*values)


def make_builtin(miss: Callable[..., Any], *, is_run: bool = False) -> Builtin | None:
    """A launch function that calls `miss` for what it does not know; None where there can be none."""
    found = machine(SmallObjects())
    return None if found is None else Builtin(found, miss, is_run=is_run)
