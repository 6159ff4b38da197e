"""What the machine code of a launch is told: tables of 8-byte words, by index.

::

    state -> entry -> entry -> ...     an entry is one remembered call
    entry: shape of the call, columns, slots, what is launched
    column: where an object is found from the call, what is asked of it, and so which value it has
    slot: which column's value lies where in the block of the launch

A column looks at an argument, or at a part of what an earlier column has found: an item, an attribute, what a method
or a helper gives. So tuples, descriptors and arrays of any library are rows of the same table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tilewright.base.record import Record

STATE_MISS, STATE_FIRST, STATE_LAST, STATE_HOOKS, STATE_SHARED, STATE_BUSY, STATE_FORGOTTEN, STATE_WORDS = range(8)
"""Of one function: what it calls for an unknown call, entries, the last one that fitted, hooks ahead of each launch,
how many launches are in an entry, how often it has forgotten all."""

SHARED_TUPLE, SHARED_INT, SHARED_TEXT, SHARED_TRUE, SHARED_FALSE, SHARED_GRID3, SHARED_EXCHANGE, SHARED_CDATA = range(8)
SHARED_DATA, SHARED_DTYPE, SHARED_DEVICE, SHARED_INDEX, SHARED_REQUIRES, SHARED_RECORDS = range(8, 14)
"""Of the process: objects of Python, and functions of torch that read a tensor."""
SHARED_TRACED, SHARED_DOING, SHARED_DOING_NAME, SHARED_USUAL, SHARED_JUDGE = range(14, 19)
SHARED_MODES, SHARED_INCLUDED, SHARED_TRANSFORM, SHARED_VERSION, SHARED_COUNTER, SHARED_LAYOUT = range(19, 25)
"""Of the tracer in the slot (`launch/tracer_slot.py`): its functions and its thread-local object; functions of torch
that tell how many dispatch modes are on, and whether a key is, that of transforms; where a tensor has its version
counter, and that its number."""
SHARED_ELEMENT, SHARED_TENSOR, SHARED_PARAMETER, SHARED_NDARRAY, SHARED_NDARRAY_DATA = range(25, 30)
"""Of arrays that may overlap: where a tensor of torch has its rank, and behind it shape and strides (INLINE_AXES of
each, or the address of both); torch's function that tells the bytes of an element; classes; where an array of numpy has
its address, and behind it rank, shape and strides."""
INLINE_AXES = 5
SHARED_KEYS, SHARED_NEGATED = range(30, 32)
"""Where a tensor of torch has the bits of its dispatch keys, and the one of views whose memory holds the negated
numbers; 0 and 0 where that is not known."""
SHARED_EMPTY, SHARED_ZERO, SHARED_DELETE, SHARED_WRAP, SHARED_WORDS = range(32, 37)
"""Functions of torch that make memory, fill it with zeros, drop a handle, and make an object of Python of a handle."""

ENTRY_NEXT, ENTRY_NARGS, ENTRY_NKW, ENTRY_NAMES, ENTRY_NCOLS, ENTRY_COLUMNS, ENTRY_NSLOTS, ENTRY_SLOTS = range(8)
ENTRY_BEFORE, ENTRY_META, ENTRY_META_NAMES, ENTRY_RESULT, ENTRY_CALL, ENTRY_RUN, ENTRY_RECORD = range(8, 15)
ENTRY_SERIAL, ENTRY_FIXED, ENTRY_TELLER, ENTRY_ON_GPU, ENTRY_CLUSTER, ENTRY_EXPLAIN, ENTRY_WATCH = range(15, 22)
ENTRY_LEAVE, ENTRY_STREAMS, ENTRY_GPU, ENTRY_MARK, ENTRY_MARKED = range(22, 27)
ENTRY_NWRITTEN, ENTRY_WRITTEN, ENTRY_SCRATCH, ENTRY_SPARE, ENTRY_BORROW = range(27, 32)
ENTRY_NPAIRS, ENTRY_PAIRS, ENTRY_MAPS, ENTRY_DESCRIBE, ENTRY_WORDS = range(32, 37)
"""BEFORE is called first, and may answer False: another call after all. CALL, where there is one, is a Python function
that launches; else RUN is called with a block that begins with RECORD and the answer of STREAMS for GPU, or of TELLER
(threads, or the stream), or FIXED for grids of fewer than SERIAL programs; the word at MARK becomes MARKED. EXPLAIN
raises the error of a code that is not zero. META is a dictionary of arguments by name and META_NAMES which are filled
in, for grids that are functions and for WATCH, which is called with them and the grid ahead of a launch; what it gives
LEAVE, if there is one, is called with behind it. WRITTEN are the columns of tensors that the kernel writes. SCRATCH is
what a thread needs, taken from the block that SPARE tells of, or else from BORROW, a Python function. MAPS are the
tensor maps of the last launch, which DESCRIBE, a Python function that takes the address of the values, makes anew."""

MAPS_KNOWN, MAPS_NKEYS, MAPS_KEYS, MAPS_NIMAGE, MAPS_IMAGE, MAPS_OFFSET, MAPS_RECORD, MAPS_MOVE = range(8)
MAPS_WORDS = 8
"""Whether there are any; how many values they are made of, and for each its column, the value, and which word of the
maps begins one of which it is the address (-1 for none); how many words they have, where these lie, where they go in
the block; the RECORD of the kernel that takes them; MOVE, a function that changes the address of a map. Read and
written with the lock of the interpreter held."""
MAP_COLUMN, MAP_VALUE, MAP_PLACE, MAP_WORDS = range(4)

COLUMN_SOURCE, COLUMN_PARENT, COLUMN_NAME, COLUMN_KIND, COLUMN_WANTED, COLUMN_MASK, COLUMN_KEY = range(7)
COLUMN_SIZE, COLUMN_WORDS = 7, 8

ARGUMENT, ITEM, LIST_ITEM, ATTRIBUTE, METHOD, HELPER, SAME_OBJECT, CONSTANT, MADE = range(9)
"""Where a column finds its object: argument number NAME; item NAME of the tuple or list of column PARENT; the
attribute, or what the method without arguments gives; what the function NAME gives; the object of PARENT itself; the
object NAME; a tensor of torch that is made as the table NAME says."""

MADE_RANK, MADE_SIZES, MADE_STRIDES, MADE_TYPE, MADE_DEVICE, MADE_INDEX, MADE_ZERO, MADE_WORDS = range(8)
"""A tensor to be made: tables of sizes and strides; numbers of torch; whether it is filled with zeros."""

ANY, SAME, CLASS, TUPLE, LIST, TENSOR, INTEGER, FLOAT32, FLOAT64, BOOLEAN, ADDRESS, WORD, NUMBER, REAL, TEXT = range(15)
LAYOUT = 15
"""What is asked of it: nothing; to be WANTED; to be of class WANTED, with KEY items; to have these facts, KEY, of those
in MASK; to be equal to KEY (a number, the bits of a float) or WANTED (text). WORD is the address at MASK in it.
LAYOUT: a tensor of class WANTED whose rank, sizes and strides are those in the table at KEY. SIZE is that of an element
of what an address leads to; 0 where the next two columns say how far it goes down and up."""

FACT_DIVISIBLE, FACT_ONE, FACT_WIDE, FACT_NOT_POSITIVE = 1, 2, 4, 8
FACTS_OF_STEPS = 16 | 32 | 64
"""Facts of integers: divisible by 16, is 1, outside of 32 bits, below 1; divisible by 2, 4, 8 (for strides). Facts of
addresses: bit 32, divisible by 16; of tensors also the element type (bits 0 to 31) and the device (bits 33 up)."""
FACT_ALIGNED = 1 << 32
SHIFT_KIND, SHIFT_INDEX = 33, 41
FACT_GRADIENT = 1 << 62
"""Of a tensor: it requires a gradient, and autograd is recording."""

ENTRY_NSTEPS, ENTRY_STEPS, ENTRY_NRESULTS, ENTRY_RESULTS, ENTRY_REAL, REPLAYED_WORDS = range(
    ENTRY_WORDS, ENTRY_WORDS + 6
)
"""Of a call that is replayed, behind the words of an entry, of which it has those of columns, pairs, BEFORE and RESULT:
its launches; the columns of what it gives, as a tuple, of the one thing that it gives where the number is 0, RESULT
where it is -1; torch's number of the type that floats are made of."""
STEP_ENTRY, STEP_STATE, STEP_FORGOTTEN, STEP_FIRST, STEP_KERNEL, STEP_TRACED, STEP_GRID = range(7)
STEP_WORDS = STEP_GRID + 3
"""A launch of such a call: the entry of its kernel that says how, the state that has the entry, as long as it has
forgotten so often; the first of the columns of the launch; the kernel; whether a tracer is told; three words of
programs."""

SPARE_ADDRESS, SPARE_BYTES, SPARE_TAKEN = range(3)

PAIR_ONE, PAIR_OTHER, PAIR_RELATION, PAIR_WORDS = range(4)
PAIR_APART, PAIR_EQUAL, PAIR_MEETING = range(3)
"""Two columns of addresses, and what they must be: of no common byte, equal and not 0, or of ranges that overlap."""

SLOT_COLUMN, SLOT_OFFSET, SLOT_SIZE, SLOT_WORDS = range(4)
"""Size 0, for CALL: the object itself; else its value, of so many bytes."""

RUN_STREAM, RUN_ENTER, RUN_ARGUMENTS = 3, 7, 9
"""Of `CompiledKernel.run`: places of the stream, of the hooks ahead of and behind the launch, of the first argument."""

MOST_COLUMNS, MOST_BYTES = 96, 1024

OPERATOR_KINDS = ("Tensor", "Parameter", "int", "float", "bool", "str", "NoneType", "dtype", "device")
OPERATOR_OBSERVED, OPERATOR_FUNCTION, OPERATOR_SHARED, OPERATOR_READY, OPERATOR_FLOATS = range(5)
OPERATOR_SET_RECORDS, OPERATOR_MODES, OPERATOR_FUNCTIONS, OPERATOR_INCLUDED, OPERATOR_EXCLUDED = range(5, 10)
OPERATOR_TRANSFORM, OPERATOR_AUTOCAST, OPERATOR_CLASSES = range(10, 13)
OPERATOR_WORDS = OPERATOR_CLASSES + len(OPERATOR_KINDS)
"""Of an operator: what it calls where somebody looks on, and where nobody does, and whether it may do that at all; bits
of the arguments that are floats. Functions of torch: whether to
record gradients, how many dispatch modes and function modes are on, whether the key of a TRANSFORM is INCLUDED and
those of AUTOCAST are EXCLUDED. Classes of its arguments, of KINDS, those of tensors first."""

LAUNCHED_LEAVES, LAUNCHED_RANK, LAUNCHED_COUNT, LAUNCHED_POSITIONAL, LAUNCHED_NAMES = range(12, 17)
LAUNCHED_PLACES, LAUNCHED_PROFILED, LAUNCHED_NONE, LAUNCHED_WORDS = range(17, 21)
"""Of the operator of one kernel, which is its FUNCTION, behind the words above up to AUTOCAST: how many arguments and
axes of a grid it takes; how many arguments the launch has behind its grid, how many are positional with that, the names
of the others. PLACES: for each argument its number among those of the operator and 0, or -1 and a constant. PROFILED is
torch's function that tells whether a profiler is on; NONE is None."""
REPLAY_FIRST, REPLAY_LAST, REPLAY_BUSY, REPLAY_PROFILED, REPLAY_FILLS, REPLAY_CONTEXT, REPLAY_REAL = range(12, 19)
REPLAY_WORDS = 19
"""Of a function whose calls are replayed, behind the same words: entries, the last one that fitted, how many calls are
in one; functions of torch that tell whether a profiler is on, whether new memory is filled (asked of CONTEXT), and the
number of the type that floats are made of."""


class Column(Record):
    """A row of the table of columns; see the words above.

    Args:
        source, parent, name: where the object is found; `name` is an index, or a string, or a helper.
        kind, wanted, mask, key: what is asked of it.
        size: bytes of an element of an array.
    """

    source: int
    parent: int
    name: Any
    kind: int
    wanted: Any = None
    mask: int = 0
    key: int = 0
    size: int = 0

    def words(self) -> list[int]:
        """The row."""
        name = self.name if isinstance(self.name, int) else id(self.name)
        wanted = 0 if self.wanted is None and self.kind != SAME else id(self.wanted)
        return [self.source, self.parent, name, self.kind, wanted, self.mask, _signed(self.key), self.size]


class KnownCall(Record):
    """A call, as it is remembered.

    Args:
        names: keywords of the call, the very strings.
        arguments: how many the call has, keywords included.
        columns: of the call.
        slots: (column, is it a number or address) of each run-time parameter of the code.
        meta: all arguments by name, in order; None where they are not wanted by name.
        meta_names: parameter of each argument as written, None for an option.
        pairs: words of the pairs of columns of addresses, and what they are to each other.
    """

    names: Sequence[str]
    arguments: int
    columns: Sequence[Column]
    slots: Sequence[tuple[int, bool]]
    meta: dict[str, Any] | None
    meta_names: Sequence[str | None]
    pairs: Sequence[int] = ()

    def tensors(self, slots: Iterable[int] | None) -> list[int]:
        """The columns of the tensors that are passed in these slots; None is for all tensors."""
        asked = range(len(self.columns)) if slots is None else [self.slots[slot][0] for slot in slots]
        return [index for index in asked if self.columns[index].kind == TENSOR]


def _signed(word: int) -> int:
    return word - (1 << 64) if word >= 1 << 63 else word
