"""The machine code of launches in this process: loaded once, with what it must know of the interpreter and of torch.

What is asked of the interpreter is checked before the first use: that it is CPython with its lock, that an object's
`id` is its address, and where an object has its class. torch tensors are read through torch's stable C functions for
compiled models (`aoti_torch_get_data_ptr`, ...), else through its C exchange of DLPack; what they tell is compared with
`data_ptr()` first. Where a check fails launches, or those of tensors, stay in Python.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.backends.llvm.calls import tables as t
from tilewright.backends.llvm.calls.calling import CALLS, EXPORTS, READY_OFFSET, TYPE_OFFSET, calls_text
from tilewright.backends.llvm.codegen import load_helper
from tilewright.backends.llvm.features import host_triple
from tilewright.backends.protocol import ByteCache
from tilewright.base.errors import CodeLoadError, UnsupportedError
from tilewright.base.record import Record
from tilewright.compile.grid import grid3
from tilewright.devices.arrays import NUMPY_DATA_OFFSET, is_recorded
from tilewright.launch.native import watching
from tilewright.launch.native.libtorch import torch_library
from tilewright.launch.subscript import Subscript, subscript_by

_FASTCALL, _FASTCALL_KEYWORDS = 0x80, 0x82
_DLTENSOR_FROM_OBJECT = 5  # word of DLPackExchangeAPI (dlpack.h 1.3): after version, previous and two functions more
_SHIM = ("data_ptr", "dtype", "device_type", "device_index")  # aoti_torch_get_...: words from SHARED_DATA on
_SHIM_WORDS = range(t.SHARED_DATA, t.SHARED_DATA + len(_SHIM))
_REQUIRES_GRAD = "_ZNK3c1010TensorImpl13requires_gradEv"  # bool c10::TensorImpl::requires_grad() const


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


class Machine(Record):
    """The loaded code.

    Args:
        method: what Python makes launch functions of.
        run: what it makes `CompiledKernel.run` of.
        operator: what it makes operators of (`operators.py`).
        launched: what it makes operators of one kernel of.
        replay: what it makes functions of whose calls are replayed.
        called: address of what calls an object that has `ready` in its first slot.
        apart: says of arrays that no two overlap, `apart(*arrays)`; may not know.
        shared: the words of the process.
        kept: alive.
    """

    method: _MethodDef
    run: _MethodDef
    operator: _MethodDef
    launched: _MethodDef
    replay: _MethodDef
    called: int
    apart: Callable[..., bool]
    shared: Any
    kept: Any

    def function(self, state: int, *, is_run: bool = False) -> Callable[..., Any]:
        """A built-in function whose `self` is `state`, a subclass of int that is the address of its table.

        Args:
            state: of the function.
            is_run: take the arguments of `CompiledKernel.run`.
        """
        return self.builtin(self.run if is_run else self.method, state)

    @staticmethod
    def builtin(method: _MethodDef, state: int) -> Callable[..., Any]:
        """A built-in function; its `self` is a number."""
        make = ctypes.pythonapi.PyCFunction_NewEx
        make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
        made: Callable[..., Any] = make(ctypes.addressof(method), state, None)
        return made

    def tensor_key(self, tensor: Any) -> int | None:
        """The facts of a torch tensor that `tw_call` compares; None for one that it cannot read."""
        return _facts(self.shared, tensor) if _knows_torch(self.shared) else None

    @property
    def reads_torch(self) -> bool:
        """Whether tensors of torch are read, and what they record."""
        return _knows_torch(self.shared) and self.sees_gradients

    @property
    def sees_gradients(self) -> bool:
        """Whether the facts of a tensor say that autograd records what is done with it."""
        return bool(self.shared[t.SHARED_REQUIRES])


_machines: list[Machine | None] = []  # the one of this process, once it was tried


def machine(cache: ByteCache | None = None) -> Machine | None:
    """The code, or None where this interpreter is not as it must be.

    Args:
        cache: where to look for its object, and where to keep it.
    """
    if not _machines:
        _machines.append(_load(cache))
    return _machines[0]


def _load(cache: ByteCache | None) -> Machine | None:
    if not _is_as_expected():
        return None
    try:
        library = load_helper(CALLS, calls_text(host_triple()), EXPORTS, cache)
    except (CodeLoadError, UnsupportedError):  # a system that gives no symbols of the interpreter, or runs no new code
        return None
    method = _MethodDef(b"launch", library.address("tw_call"), _FASTCALL_KEYWORDS, None)
    run = _MethodDef(b"run", library.address("tw_run"), _FASTCALL, None)
    operator = _MethodDef(b"operator", library.address("tw_operator"), _FASTCALL_KEYWORDS, None)
    launched = _MethodDef(b"launched", library.address("tw_launched"), _FASTCALL_KEYWORDS, None)
    replay = _MethodDef(b"replay", library.address("tw_replay"), _FASTCALL_KEYWORDS, None)
    shared = (ctypes.c_int64 * t.SHARED_WORDS)()
    objects = {
        t.SHARED_TUPLE: tuple, t.SHARED_INT: int, t.SHARED_TEXT: str, t.SHARED_TRUE: True, t.SHARED_FALSE: False,
        t.SHARED_GRID3: grid3,
    }  # fmt: skip
    for word, thing in objects.items():
        shared[word] = id(thing)
    if NUMPY_DATA_OFFSET >= 0:
        shared[t.SHARED_NDARRAY], shared[t.SHARED_NDARRAY_DATA] = id(np.ndarray), NUMPY_DATA_OFFSET
    subscript_by(library.address("tw_subscript"))
    apart = _MethodDef(b"apart", library.address("tw_apart"), _FASTCALL, None)
    over = _MethodDef(b"launch_over", library.address("tw_over"), _FASTCALL_KEYWORDS, None)
    words = ctypes.addressof(shared)
    tell_apart, kept = Machine.builtin(apart, words), [library, over, apart]
    found = Machine(method, run, operator, launched, replay, library.address("tw_called"), tell_apart, shared, kept)
    watching.attend(shared, found.builtin(over, words), _knows_torch)
    return found


def _is_as_expected() -> bool:
    """Whether the interpreter has a lock, and objects lie as the code takes them to."""
    if sys.implementation.name != "cpython" or not getattr(sys, "_is_gil_enabled", lambda: True)():
        return False
    if ctypes.cast(id(Machine), ctypes.py_object).value is not Machine:
        return False
    things = ((), 1, "", 1.5, Machine, grid3)
    typed = [ctypes.c_size_t.from_address(id(thing) + TYPE_OFFSET).value == id(type(thing)) for thing in things]
    probe, wanted = Subscript(), object()
    probe.ready = wanted
    return all(typed) and ctypes.c_size_t.from_address(id(probe) + READY_OFFSET).value == id(wanted)


# --- tensors of torch ---------------------------------------------------------------------------------


def _knows_torch(shared: Any) -> bool:
    """Whether tensors can be read; torch may have been imported since the code was loaded."""
    if not shared[t.SHARED_DATA] and not shared[t.SHARED_EXCHANGE] and sys.modules.get("torch") is not None:
        shim, exchange = _shim(), _exchange()
        if shim is not None:
            offset, layout, addresses = shim
            shared[t.SHARED_CDATA] = offset
            for place, address in zip((*_SHIM_WORDS, t.SHARED_ELEMENT), addresses, strict=True):
                shared[place] = address
            shared[t.SHARED_LAYOUT] = layout
            shared[t.SHARED_REQUIRES], shared[t.SHARED_RECORDS] = _gradients()
            shared[t.SHARED_KEYS], shared[t.SHARED_NEGATED] = _negated()
        elif exchange is not None:
            shared[t.SHARED_EXCHANGE] = exchange
        if (shim or exchange) and not _agrees(shared):
            shared[t.SHARED_DATA] = shared[t.SHARED_EXCHANGE] = shared[t.SHARED_REQUIRES] = 0
        else:
            torch = sys.modules["torch"]
            shared[t.SHARED_TENSOR], shared[t.SHARED_PARAMETER] = id(torch.Tensor), id(torch.nn.Parameter)
    return bool(shared[t.SHARED_DATA] or shared[t.SHARED_EXCHANGE])


@functools.cache
def _gradients() -> tuple[int, int]:
    """Addresses of torch's functions that say whether a tensor requires a gradient, and whether autograd records."""
    torch = sys.modules["torch"]
    try:
        requires, records = (getattr(torch_library(), n) for n in (_REQUIRES_GRAD, "aoti_torch_grad_mode_is_enabled"))
    except AttributeError:  # a compiler that names C++ functions otherwise
        return 0, 0
    requires.restype = records.restype = ctypes.c_bool
    probes = [torch.empty(3), torch.nn.Parameter(torch.empty(1)), torch.empty(4, requires_grad=True)]
    if any(requires(ctypes.c_void_p(probe._cdata)) is not probe.requires_grad for probe in probes):
        return 0, 0
    address, mode = (ctypes.cast(function, ctypes.c_void_p).value or 0 for function in (requires, records))
    return (address, mode) if records() is torch.is_grad_enabled() else (0, 0)


@functools.cache
def _shim() -> tuple[int, int, list[int]] | None:
    """Where a tensor object has its tensor, and that its rank, and the addresses of torch's functions; None where there
    are none."""
    torch = sys.modules["torch"]
    try:
        library = torch_library()
        functions = [getattr(library, f"aoti_torch_get_{name}") for name in _SHIM]
        functions.append(library.aoti_torch_dtype_element_size)
    except (StopIteration, OSError, AttributeError):
        return None
    probes = [torch.empty(3), torch.nn.Parameter(torch.empty(1)), torch.empty(4)[1:]]
    found = [ctypes.cast(function, ctypes.c_void_p).value or 0 for function in functions]
    layout = _layout()
    for offset in range(object.__basicsize__, object.__basicsize__ + 32, 8):
        if all(ctypes.c_size_t.from_address(id(probe) + offset).value == probe._cdata for probe in probes):
            return None if layout is None else (offset, layout, found)
    return None


def _layout() -> int | None:
    """Where a tensor has its rank, and behind it shape and strides; None where they are not as `overlap.py` says."""
    torch = sys.modules["torch"]
    probes = [torch.empty(tuple(range(2, 2 + rank))).transpose(0, -1) if rank else torch.empty(()) for rank in range(8)]
    probes.append(torch.empty(1).expand(7, 3))
    for place in range(8, 160, 8):  # of an object of some 200 bytes
        if all(_laid_out(probe._cdata + place, probe.dim()) == (*probe.shape, *probe.stride()) for probe in probes):
            return place
    return None


def _negated() -> tuple[int, int]:
    """Where a tensor has a word that tells views of negated numbers, and the bit of it; (0, 0) where none is found."""
    torch = sys.modules["torch"]
    probes = [torch.empty(3), torch.nn.Parameter(torch.empty(1)), torch.empty(4)[1:], torch.empty(2, dtype=torch.int64)]
    pairs = [(probe, torch._neg_view(probe)) for probe in probes]
    for place in range(8, 200, 8):  # of an object of some 200 bytes
        words = [[ctypes.c_int64.from_address(one._cdata + place).value for one in pair] for pair in pairs]
        bits = {other & ~one for one, other in words}
        bit = bits.pop()
        if not bits and bit and not bit & (bit - 1) and not any(one & bit for one, _ in words):
            return place, bit
    return 0, 0


def _laid_out(fields: int, rank: int) -> tuple[int, ...]:
    """Shape and strides, as they lie behind a rank; nothing where another number stands."""
    if ctypes.c_size_t.from_address(fields).value != rank:
        return (-1,)
    words, near = [fields + 8, fields + 8 * (1 + t.INLINE_AXES)], rank <= t.INLINE_AXES
    if not near:
        start = ctypes.c_size_t.from_address(fields + 8).value
        words = [start, start + 8 * rank]
    return tuple(number for start in words for number in (ctypes.c_int64 * rank).from_address(start))


@functools.cache
def _exchange() -> int | None:
    """Address of torch's function that describes a tensor for DLPack; None where torch has none."""
    capsule = getattr(sys.modules["torch"].Tensor, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return None
    read = ctypes.pythonapi.PyCapsule_GetPointer
    read.restype, read.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    table = read(capsule, b"dlpack_exchange_api")
    if ctypes.c_uint32.from_address(table).value != 1:  # another major version
        return None
    return ctypes.c_size_t.from_address(table + 8 * _DLTENSOR_FROM_OBJECT).value or None


def _agrees(shared: Any) -> bool:
    """Whether what is read of tensors is what they say of themselves."""
    torch = sys.modules["torch"]
    try:
        probes = [torch.empty(4, dtype=kind, device="cpu")[1:] for kind in (torch.int16, torch.float32, torch.bfloat16)]
        found = [_facts(shared, probe) for probe in probes]
    except Exception:  # torch is in a mode in which tensors have no memory
        return False
    return None not in found and len(set(found)) == len(found)


def _facts(shared: Any, tensor: Any) -> int | None:
    """The facts that `@tensor` computes (`matching.py`); None for a tensor without plain memory."""
    described = (ctypes.c_int64 * 8)()
    start = ctypes.addressof(described)
    if shared[t.SHARED_DATA]:
        handle = ctypes.c_void_p(id(tensor) + shared[t.SHARED_CDATA])
        for word in range(len(_SHIM)):
            read: Any = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(shared[t.SHARED_DATA + word])
            if read(handle, start + 8 * word):
                return None
        address, element, kind, index = described[0], described[1], described[2], described[3]
        index = 0 if kind == 0 else index  # the CPU has no number
    else:
        exchange: Any = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_size_t)(shared[t.SHARED_EXCHANGE])
        try:
            if exchange(tensor, start):
                return None
        except Exception:  # torch raises several classes for tensors without plain storage
            return None
        address = described[0] + described[5] if described[0] else 0
        kind, index, element = described[1] & 0xFFFFFFFF, described[1] >> 32, described[2] >> 32
    if not address or address != tensor.data_ptr():
        return None
    more = 0 if address & 15 else t.FACT_ALIGNED
    if shared[t.SHARED_REQUIRES] and is_recorded(tensor):
        more |= t.FACT_GRADIENT
    return int((element & 0xFFFFFFFF) | more | kind << t.SHIFT_KIND | index << t.SHIFT_INDEX)
