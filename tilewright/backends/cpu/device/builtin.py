"""Built-in functions for Python around `tw_call`: one per kernel, with the table of calls that it knows.

What is asked of the interpreter is checked before the first one is made: that it is CPython, that an object's `id` is
its address, and that torch's exchange of DLPack tells what `data_ptr()` and `dtype` tell. Where a check fails there are
no such functions, and launches stay in Python.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.backends.cpu.device import fastcall as f
from tilewright.backends.cpu.device.native import native
from tilewright.backends.llvm.codegen import load_helper
from tilewright.backends.llvm.features import host_triple
from tilewright.backends.protocol import ByteCache
from tilewright.base.errors import TilewrightError

_FASTCALL_KEYWORDS = 0x82
_DLTENSOR_FROM_OBJECT = 5  # word of DLPackExchangeAPI (dlpack.h 1.3): after version, previous and two functions more
_MOST_ENTRIES = 64  # of one kernel in its life; entries are not freed while it lives, as a thread may be in one


@dataclass(frozen=True, slots=True)
class Column:
    """What is asked of one argument of a call.

    Args:
        kind: of `fastcall`: SAME, TENSOR, ...
        wanted: the very object, or the class.
        mask: facts of an integer that count.
        key: those that it must have.
    """

    kind: int
    wanted: Any
    mask: int = 0
    key: int = 0


@dataclass(frozen=True, slots=True)
class Target:
    """How a launch is packed.

    Args:
        record: address of the record of the kernel.
        serial_below: grids of fewer programs run on the caller's thread.
        threads: gives the threads of a larger one.
        owner: kept alive.
    """

    record: int
    serial_below: int
    threads: Callable[[], int]
    owner: Any


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


@dataclass(frozen=True)
class _Machine:
    """The machine code, for the whole process.

    Args:
        method: what Python makes functions of.
        exchange: address of torch's function that describes a tensor.
        kept: alive.
    """

    method: _MethodDef
    exchange: int
    kept: Any


class _State(int):
    """The address of a table of words; keeps everything alive that is reached from there."""

    kept: list[Any]


class Builtin:
    """A launch function of one kernel.

    Args:
        miss: called for every call that is not known, with the same arguments.

    Attributes:
        call: the built-in function, `call(grid, *args, **kwargs)`.
    """

    def __init__(self, machine: _Machine, miss: Callable[..., Any]) -> None:
        self._words = (ctypes.c_int64 * f.STATE_WORDS)()
        self._state = _State(ctypes.addressof(self._words))
        self._state.kept = [self._words, miss]
        self._left = _MOST_ENTRIES
        self._words[f.STATE_MISS], self._words[f.STATE_EXCHANGE] = id(miss), machine.exchange
        self._words[f.STATE_TUPLE], self._words[f.STATE_INT] = id(tuple), id(int)
        self._words[f.STATE_LAUNCH] = native().launch_address
        make = ctypes.pythonapi.PyCFunction_NewEx
        make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
        self.call: Callable[..., Any] = make(ctypes.addressof(machine.method), self._state, None)

    @property
    def is_full(self) -> bool:
        """Whether no more calls can be learned."""
        return not self._left

    def forget(self) -> None:
        """Know no call any more."""
        self._words[f.STATE_FIRST] = 0

    def learn(
        self, names: Sequence[str], columns: Sequence[Column], slots: Sequence[int], target: Target,
        before: Callable[[], None] | None, result: Any,
    ) -> None:  # fmt: skip
        """Launch calls of one form at once from now on.

        Args:
            names: keywords of the call, the very strings.
            columns: what is asked of each argument, keywords last.
            slots: the column of each parameter of the code.
            target: what is launched.
            before: called ahead of every launch, or None.
            result: what a launch gives.
        """
        if not self._left:
            return
        self._left -= 1
        rows = [word for c in columns for word in (c.kind, id(c.wanted), c.mask, c.key)]
        tables = [_words([id(name) for name in names]), _words(rows), _words(slots)]
        entry = _words([0] * f.ENTRY_WORDS)
        entry[f.ENTRY_NEXT] = self._words[f.STATE_FIRST]
        entry[f.ENTRY_NARGS], entry[f.ENTRY_NKW] = 1 + len(columns) - len(names), len(names)
        entry[f.ENTRY_NCOLS], entry[f.ENTRY_NSLOTS] = len(columns), len(slots)
        where = (f.ENTRY_NAMES, f.ENTRY_COLUMNS, f.ENTRY_SLOTS)
        for word, table in zip(where, tables, strict=True):
            entry[word] = ctypes.addressof(table)
        entry[f.ENTRY_RECORD], entry[f.ENTRY_SERIAL] = target.record, target.serial_below
        entry[f.ENTRY_THREADS], entry[f.ENTRY_RESULT] = id(target.threads), id(result)
        entry[f.ENTRY_BEFORE] = 0 if before is None else id(before)
        self._state.kept.append((entry, tables, list(names), list(columns), target, before, result))
        self._words[f.STATE_FIRST] = ctypes.addressof(entry)  # one word: who reads it sees a whole entry


def make_builtin(miss: Callable[..., Any], cache: ByteCache | None) -> Builtin | None:
    """A launch function, or None where this interpreter or torch is not as it must be."""
    if "torch" not in sys.modules:  # there is nothing to read yet
        return None
    if not _machines:
        _machines.append(_machine(cache))
    machine = _machines[0]
    return None if machine is None else Builtin(machine, miss)


def fastcall_text(triple: str) -> str:
    """LLVM IR of `tw_call`."""
    return f'target triple = "{triple}"\n{f.fastcall_ir()}'


def tensor_key(tensor: Any) -> int | None:
    """The facts of a torch tensor that `tw_call` compares; None for one that it cannot read."""
    exchange = _exchange()
    described = (ctypes.c_int64 * 8)()
    try:
        if exchange is None or exchange[1](tensor, ctypes.addressof(described)):
            return None
    except Exception:  # torch raises several classes for tensors without plain storage
        return None
    address, element = described[0] + described[5], described[2] >> 32
    if not described[0] or address != tensor.data_ptr() or described[1] & 0xFFFFFFFF != 1:
        return None
    return element | (0 if address & 15 else f.FACT_ALIGNED)


def _words(values: Sequence[int]) -> Any:
    return (ctypes.c_int64 * max(len(values), 1))(*values)


_machines: list[_Machine | None] = []  # the one of this process, once it was tried


def _machine(cache: ByteCache | None) -> _Machine | None:
    exchange = _exchange()
    if sys.implementation.name != "cpython" or exchange is None:
        return None
    if ctypes.cast(id(_MethodDef), ctypes.py_object).value is not _MethodDef:
        return None
    try:
        library = load_helper("fastcall", fastcall_text(host_triple()), ["tw_call"], cache)
    except TilewrightError:  # a system whose loader gives no symbols of the interpreter
        return None
    method = _MethodDef(b"launch", library.address("tw_call"), _FASTCALL_KEYWORDS, None)
    return _Machine(method, exchange[0], library)


@functools.cache
def _exchange() -> tuple[int, Callable[[Any, int], int]] | None:
    """Address of torch's function that describes a tensor, and the same for Python; None where torch has none."""
    torch = sys.modules.get("torch")
    capsule = getattr(getattr(torch, "Tensor", None), "__dlpack_c_exchange_api__", None)
    if torch is None or capsule is None:
        return None
    read = ctypes.pythonapi.PyCapsule_GetPointer
    read.restype, read.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    table = read(capsule, b"dlpack_exchange_api")
    if ctypes.c_uint32.from_address(table).value != 1:  # another major version
        return None
    address = ctypes.c_size_t.from_address(table + 8 * _DLTENSOR_FROM_OBJECT).value
    if not address:
        return None
    call: Any = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_size_t)(address)
    described, probe = (ctypes.c_int64 * 8)(), torch.empty(3, dtype=torch.int16, device="cpu")[1:]
    try:
        if call(probe, ctypes.addressof(described)) or described[0] + described[5] != probe.data_ptr():
            return None
    except Exception:  # torch is in a mode in which tensors have no memory
        return None
    return (address, call) if described[2] >> 32 == 16 << 8 | 1 << 16 else None
