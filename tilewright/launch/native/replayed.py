"""Functions whose calls are replayed: all that they do is to make tensors, launch kernels and give tensors back.

A call that was recorded once is one entry of a table of machine code, as a launch is (`builtin.py`). Its columns are
those of its arguments, of the memory that it makes, and of each of its launches, as the kernel knows them: so whatever
has a launch take another way has the call take it.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.backends.llvm.calls import tables as t
from tilewright.base.grids import Grid
from tilewright.base.record import Record
from tilewright.compile.grid import grid3
from tilewright.launch import tracer_slot
from tilewright.launch.called import Called, call_by
from tilewright.launch.native import memory
from tilewright.launch.native.builtin import Known
from tilewright.launch.native.columns import Columns, Refused
from tilewright.launch.native.observers import profiled
from tilewright.launch.native.operators import State, told

_MOST_ENTRIES = 64  # of one function

Place = tuple[int, int, Any]
"""Where a column finds an object: source, parent, name."""


class Argument(Record):
    """An argument of a call.

    Args:
        value: what was passed.
        place: its number in the call, keywords behind positional ones; -1 for a default.
        varies: whether another number of its type may stand there.
    """

    value: Any
    place: int
    varies: bool = False


class Launch(Record):
    """A launch of a call.

    Args:
        kernel: what was launched.
        grid: the grid.
        given: arguments, options behind them.
        passed: by number of one of `given` that of the argument of the call that it is, whatever that is.
        known: what the kernel knows of it.
    """

    kernel: Any
    grid: Grid
    given: Sequence[Any]
    passed: Mapping[int, int]
    known: Known


class Recorded(Record):
    """A call, as it was made.

    Args:
        names: its keywords, the very strings.
        arguments: of it.
        constants: tensors that are the same at each call.
        made: tensors that it made, and whether each was filled with zeros.
        launches: in order.
        result: what it gave.
        before: asked ahead of it: False says that this is another call after all.
    """

    names: Sequence[str]
    arguments: Sequence[Argument]
    constants: Sequence[Any]
    made: Sequence[tuple[Any, bool]]
    launches: Sequence[Launch]
    result: Any
    before: Callable[[], Any] | None


def launched(kernel: Any, grid: Grid, args: Sequence[Any], options: Mapping[str, Any]) -> Known | None:
    """Launch a kernel, and say what it knows of the launch; None where machine code did not make it."""
    table = getattr(getattr(kernel, "_binder", None), "builtin", None)
    if table is not None:
        table.mark()
    kernel[grid](*args, **options)
    return None if table is None else table.marked()


class Replayed:
    """A function whose calls are replayed.

    Args:
        observed: called with the same arguments where somebody in PyTorch looks on, or the call is not known.

    Attributes:
        call: both in one built-in function; None where it cannot be made.
    """

    def __init__(self, observed: Callable[..., Any]) -> None:
        self.call: Callable[..., Any] | None = None
        self._entries: list[Any] = []
        code, words = told()
        settings, profiler = (None, 0) if code is None else (memory.settings(), profiled())
        if code is None or settings is None or not profiler or not memory.make_by(code.shared):
            return
        self._code = code
        self._state, self._words = State.of(code, t.REPLAY_WORDS, words, observed)
        self._words[t.REPLAY_PROFILED] = profiler
        self._words[t.REPLAY_FILLS], self._words[t.REPLAY_CONTEXT], self._words[t.REPLAY_REAL] = settings
        self._real: Any = ctypes.CFUNCTYPE(ctypes.c_int8)(settings[2])
        self.call = code.builtin(code.replay, self._state)

    def stand_before(self, called: Called) -> None:
        """Have an object called by way of this, without its `__call__`."""
        if self.call is not None:
            called.ready = self.call
            call_by(type(called), self._code.called)

    def forget(self) -> None:
        """Know no call any more. Entries that a call is in are freed at a later time."""
        if self.call is not None:
            self._words[t.REPLAY_FIRST] = self._words[t.REPLAY_LAST] = 0
            if not self._words[t.REPLAY_BUSY]:
                self._entries.clear()

    @property
    def is_open(self) -> bool:
        """Whether calls can be learned now: nobody looks on, and there is room."""
        if self.call is None:
            return False
        if any(map(_is_stale, self._entries)):
            self.forget()
        c = sys.modules["torch"]._C
        seen = c._len_torch_dispatch_stack() or c._len_torch_function_stack() or c._autograd._profiler_enabled()
        return not seen and not c._get_deterministic_algorithms() and len(self._entries) < _MOST_ENTRIES

    def learn(self, recorded: Recorded) -> bool:
        """Replay calls like this one from now on; says whether that can be."""
        if self.call is None or (tracer_slot.tracer is not None and not self._code.shared[t.SHARED_MODES]):
            return False
        try:
            made = _Table(self._code, recorded)
        except Refused:
            return False
        made.words[t.ENTRY_REAL] = self._real()
        made.words[t.ENTRY_NEXT] = self._words[t.REPLAY_FIRST]
        self._entries.append(made)
        self._words[t.REPLAY_LAST] = 0  # the new one is the first to be compared
        self._words[t.REPLAY_FIRST] = ctypes.addressof(made.words)  # one word: who reads it sees a whole entry
        return True


def _is_stale(table: _Table) -> bool:
    """Whether a kernel has forgotten what an entry goes by."""
    return any(
        ctypes.c_int64.from_address(known.state + 8 * t.STATE_FORGOTTEN).value != known.forgotten
        for known in table.launches
    )


class _Table:
    """The entry of a call. It keeps nothing of the call alive but what is the same each time.

    Args:
        code: the machine code.
        recorded: the call.

    Attributes:
        words: of the entry.
        launches: what the kernels know of those of the call.

    Raises:
        Refused: it cannot be replayed.
    """

    def __init__(self, code: Any, recorded: Recorded) -> None:
        self._code, self._columns = code, Columns(code, {})
        self._kept: list[Any] = [recorded.names, recorded.before, *recorded.constants]
        self._of: dict[int, int] = {}  # column of each tensor by its identity
        self._tensors: list[Any] = []
        self._given: dict[int, int] = {}  # column of the tensor that an argument is, by the number of that
        self._read: set[int] = set()  # columns of tensors of which a launch asks what they are
        self._pairs: list[int] = []
        self.launches = [launch.known for launch in recorded.launches]
        self._no_tangents()
        arguments = recorded.arguments
        self._shared = _shared_storages([*(argument.value for argument in arguments), *recorded.constants])
        for number, argument in enumerate(arguments):
            self._argument(argument, number)
        for tensor, zero in recorded.made:
            self._made(tensor, zero)
        firsts = [self._launch(launch, arguments, recorded.constants) for launch in recorded.launches]
        for number, column in self._given.items():
            self._unread(arguments[number].value, column)
        self.words = self._entry(recorded, firsts)
        self._tensors.clear()

    def _no_tangents(self) -> None:
        """Ask that no forward-mode differentiation is under way."""
        module = sys.modules["torch"].autograd.forward_ad
        whole = self._columns.add(t.ANY, at=(t.CONSTANT, 0, id(module)))
        self._columns.add(t.NUMBER, int, key=-1, at=(t.ATTRIBUTE, whole, "_current_level"))

    def _place(self, argument: Argument) -> Place:
        return self._constant(argument.value) if argument.place < 0 else (t.ARGUMENT, 0, argument.place)

    def _constant(self, value: Any) -> Place:
        """Where something is found that is the same at each call."""
        self._kept.append(value)
        return t.CONSTANT, 0, id(value)

    def _argument(self, argument: Argument, number: int) -> None:
        value, at = argument.value, self._place(argument)
        if isinstance(value, sys.modules["torch"].Tensor):
            row = _words([value.dim(), *value.shape, *value.stride()])
            self._kept.append(row)
            self._given[number] = self._columns.add(t.LAYOUT, type(value), key=ctypes.addressof(row), at=at)
            self._remember(value, self._given[number])
        elif argument.varies:
            self._columns.add(t.CLASS, type(value), at=at)
        else:
            self._columns.exact(value, at)

    def _made(self, tensor: Any, zero: bool) -> None:
        table = memory.table_of(tensor, zero)
        if table is None or type(tensor) is not sys.modules["torch"].Tensor:
            raise Refused
        self._kept.append(table)
        self._remember(tensor, self._columns.add(t.ANY, at=(t.MADE, 0, ctypes.addressof(table[0]))))

    def _remember(self, tensor: Any, column: int) -> None:
        self._of[id(tensor)] = column
        self._tensors.append(tensor)

    def _unread(self, value: Any, column: int) -> None:
        """Ask of a tensor that no launch takes what launches ask: its type and device, and whether autograd records."""
        if column not in self._read:
            key = self._code.tensor_key(value)
            if key is None:
                raise Refused
            self._columns.add(t.TENSOR, type(value), key=key, at=(t.SAME_OBJECT, column, 0))

    def _launch(self, launch: Launch, arguments: Sequence[Argument], constants: Sequence[Any]) -> int:
        """The columns of a launch, as its kernel has them; the number of the first."""
        first = len(self._columns.rows)
        self._kept.append(launch.kernel)
        places: list[Place] = [self._constant(launch.grid)]
        for at, value in enumerate(launch.given):
            number = launch.passed.get(at)
            if number is None:
                places.append(self._passed(value, constants))
            elif number in self._given:
                places.append((t.SAME_OBJECT, self._given[number], 0))
            else:
                places.append(self._place(arguments[number]))
        for row in launch.known.call.columns:
            where = places[row.name] if row.source == t.ARGUMENT else (row.source, row.parent + first, row.name)
            if row.kind == t.TENSOR and where[0] == t.SAME_OBJECT:
                self._read.add(where[1])
            self._columns.add(row.kind, row.wanted, row.mask, row.key, row.size, at=where)
        pairs = launch.known.call.pairs
        for start in range(0, len(pairs), t.PAIR_WORDS):
            one, other, relation = pairs[start : start + t.PAIR_WORDS]
            self._pairs += [one + first, other + first, relation]
        return first

    def _passed(self, value: Any, constants: Sequence[Any]) -> Place:
        """Where an argument of a launch is found: it, or the tensor that it is a view of the beginning of."""
        if not isinstance(value, sys.modules["torch"].Tensor):
            return self._constant(value)
        self._refuse_shared(value)
        if id(value) in self._of:
            return t.SAME_OBJECT, self._of[id(value)], 0
        if any(value is constant for constant in constants):
            return self._constant(value)
        for tensor in self._tensors:
            if tensor.dtype == value.dtype and tensor.data_ptr() == value.data_ptr() and _share(tensor, value):
                return t.SAME_OBJECT, self._of[id(tensor)], 0
        raise Refused

    def _refuse_shared(self, value: Any) -> None:
        """Refuse memory that two of the call's tensors share: which of them this is the next time cannot be told.

        Raises:
            Refused: it is such.
        """
        if isinstance(value, sys.modules["torch"].Tensor) and _storage(value) in self._shared:
            raise Refused

    def _entry(self, recorded: Recorded, firsts: Sequence[int]) -> Any:
        rows = self._columns.rows
        result, results = recorded.result, self._results(recorded)
        tables = {
            t.ENTRY_COLUMNS: _words([word for row in rows for word in row.words()]),
            t.ENTRY_NAMES: _words([id(name) for name in recorded.names]),
            t.ENTRY_PAIRS: _words(self._pairs),
            t.ENTRY_STEPS: _words(
                [word for pair in zip(recorded.launches, firsts, strict=True) for word in _step(*pair)]
            ),
            t.ENTRY_RESULTS: _words(results),
        }
        entry = _words([0] * t.REPLAYED_WORDS)
        for word, table in tables.items():
            entry[word] = ctypes.addressof(table)
        passed = sum(argument.place >= 0 for argument in recorded.arguments)
        entry[t.ENTRY_NARGS], entry[t.ENTRY_NKW] = passed - len(recorded.names), len(recorded.names)
        entry[t.ENTRY_NCOLS], entry[t.ENTRY_NPAIRS] = len(rows), len(self._pairs) // t.PAIR_WORDS
        entry[t.ENTRY_BEFORE] = 0 if recorded.before is None else id(recorded.before)
        entry[t.ENTRY_NSTEPS] = len(firsts)
        entry[t.ENTRY_NRESULTS] = len(results) if type(result) is tuple else -1 if result is None else 0
        entry[t.ENTRY_RESULT] = id(None)
        self._kept += [tables, rows]
        return entry

    def _results(self, recorded: Recorded) -> list[int]:
        """Columns of what the call gave."""
        result = recorded.result
        items = result if type(result) is tuple else () if result is None else (result,)
        if result == ():
            raise Refused
        for item in items:
            self._refuse_shared(item)
        return [self._of[id(item)] if id(item) in self._of else self._view(item, recorded.made) for item in items]

    def _view(self, item: Any, made: Sequence[tuple[Any, bool]]) -> int:
        """The column of a view of memory that the call made."""
        torch = sys.modules["torch"]
        for tensor, _ in made:
            if isinstance(item, torch.Tensor) and tensor.dtype == item.dtype and _share(tensor, item):
                place = {"size": tuple(item.shape), "stride": item.stride(), "storage_offset": item.storage_offset()}
                helper = functools.partial(torch.as_strided, **place)
                return self._columns.add(t.ANY, at=(t.HELPER, self._of[id(tensor)], helper))
        raise Refused


def _shared_storages(values: Sequence[Any]) -> set[int]:
    """The memory that two tensors or more are in."""
    counts = Counter(_storage(value) for value in values if isinstance(value, sys.modules["torch"].Tensor))
    return {storage for storage, count in counts.items() if count > 1}


def _storage(tensor: Any) -> int:
    return int(tensor.untyped_storage()._cdata)


def _step(launch: Launch, first: int) -> list[int]:
    is_traced, known = tracer_slot.tracer is not None, launch.known
    return [
        known.entry, known.state, known.forgotten, first, id(launch.kernel), int(is_traced), *grid3(launch.grid),
    ]  # fmt: skip


def _share(one: Any, other: Any) -> bool:
    """Whether two tensors are of one memory, and none of them is a view of negated numbers."""
    return bool(
        _storage(one) == _storage(other) and not one.is_neg() and not other.is_neg() and type(one) is type(other)
    )


def _words(values: Sequence[int]) -> Any:
    return (ctypes.c_int64 * max(len(values), 1))(*values)
