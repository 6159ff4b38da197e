"""What machine code is told of a call that Python has bound, specialised and launched once.

Each argument becomes the columns that tell calls apart at least as finely as its specialisation does (`tables.py`): a
tuple is a class, a length and its items; a descriptor its attributes; an array of another library what `read` says of
it. Whatever has no column (records, constants that may change in place, subclasses of numbers) stays in Python.
"""

from __future__ import annotations

import ctypes
import functools
import inspect
import struct
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.backends.llvm.calls import tables as t
from tilewright.base.grids import Grid
from tilewright.base.knobs import knobs
from tilewright.compile.specialize import Param, Path, Specialization
from tilewright.devices.arrays import NUMPY_DATA_OFFSET, Array, are_gradients_refused, is_recorded, read
from tilewright.devices.host_descriptor import TensorDescriptor
from tilewright.devices.ranges import element_bytes, reach
from tilewright.devices.registry import gpu as gpus
from tilewright.launch import tracer_slot
from tilewright.launch.bind import Call
from tilewright.launch.fastpath import is_lasting
from tilewright.launch.meeting import Pair
from tilewright.launch.native.machine import Machine
from tilewright.ops.values import constexpr

_FLOATS = {"fp32": t.FLOAT32, "fp64": t.FLOAT64}
_NUMBERED_INTEGERS = ("", "i32", "i64")  # of annotations: the others have ranges of their own


class Refused(Exception):
    """A part of a call that no column describes."""


class Columns:
    """The table of a call in the making.

    Args:
        machine: reads tensors.
        types: signature type of each run-time part by path.

    Attributes:
        rows: the columns.
        of: the column of each run-time part by path.
        nowhere: columns of addresses of arrays that have none.
    """

    def __init__(self, machine: Machine, types: Mapping[Path, str]) -> None:
        self._machine, self.types = machine, types
        self.rows: list[t.Column] = []
        self.of: dict[Path, int] = {}
        self.nowhere: set[int] = set()
        self._at: tuple[int, int, Any] = (t.ARGUMENT, 0, 0)

    def add(self, kind: int, wanted: Any = None, mask: int = 0, key: int = 0, size: int = 0, *, at: Any = None) -> int:
        """Ask for something of the object at `at`, by default the one that is being described; its number."""
        source, parent, name = self._at if at is None else at
        self.rows.append(t.Column(source, parent, name, kind, wanted, mask, key, size))
        if len(self.rows) > t.MOST_COLUMNS:
            raise Refused
        return len(self.rows) - 1

    def describe(self, value: Any, param: Param, path: Path, at: tuple[int, int, Any], exact: bool = False) -> None:
        """Columns of `value`, which is found at `at` and bound to `param` at `path`.

        Raises:
            Refused: there are none.
        """
        self._at = at
        if isinstance(value, (np.number, np.bool_)):  # the number that it holds, as `read` has it
            self._at = (t.METHOD, self.add(t.CLASS, type(value)), "item")
            value = value.item()
        if param.is_constexpr:
            self._constant(value)
        elif isinstance(value, TensorDescriptor):
            self._descriptor(value, param, path)
        elif isinstance(value, tuple):
            parent = self.add(t.TUPLE, type(value), key=len(value))
            for index, item in enumerate(value):
                self.describe(item, param, (*path, index), (t.ITEM, parent, index), exact)
        else:
            if exact:
                self._at = (t.SAME_OBJECT, self._constant(value), 0)
            self._runtime(value, param, path)

    def slots(self, specialization: Specialization) -> list[tuple[int, bool]]:
        """The column of each run-time parameter, and whether its value is an address."""
        rows = [self.of[path] for path in specialization.runtime_paths]
        kinds = (t.TENSOR, t.ADDRESS, t.WORD)
        return [(row, row in self.nowhere or self.rows[row].kind in kinds) for row in rows]

    def exact(self, value: Any, at: tuple[int, int, Any]) -> int:
        """Columns that ask for the value of what is found at `at`; the number of the first.

        Raises:
            Refused: it has none that lasts.
        """
        self._at = at
        return self._constant(value)

    # --- constants ------------------------------------------------------------------------------------

    def _constant(self, value: Any) -> int:
        """Asks for a constant, by value where it has one."""
        if type(value) is int and -(1 << 63) <= value < 1 << 63:
            return self.add(t.NUMBER, int, key=value)
        if type(value) is float:
            return self.add(t.REAL, float, key=struct.unpack("=q", struct.pack("=d", value))[0])
        if type(value) is str:
            return self.add(t.TEXT, value)
        if isinstance(value, tuple) and not hasattr(value, "__dict__"):  # named ones and torch.Size too
            parent = self.add(t.TUPLE, type(value), key=len(value))
            for index, item in enumerate(value):
                self._at = (t.ITEM, parent, index)
                self._constant(item)
            return parent
        if type(value) is constexpr:
            whole = self.add(t.CLASS, constexpr)
            self._at = (t.ATTRIBUTE, whole, "value")
            self._constant(value.value)
            return whole
        if not is_lasting(value) or type(value) is int:
            raise Refused
        return self.add(t.SAME, value)

    # --- numbers and arrays ---------------------------------------------------------------------------

    def _runtime(self, value: Any, param: Param, path: Path) -> None:
        kind = self.types.get(path)
        if value is None:
            self._constant(None)
        elif type(value) is bool:
            if param.fixed_type not in ("", "u1"):
                raise Refused
            self.of[path] = self.add(t.BOOLEAN, bool)
        elif type(value) is int:
            self.of[path] = self._integer(value, param)
        elif type(value) is float:
            if kind is None or not kind.startswith(("fp", "bf")):
                raise Refused
            self.of[path] = self.add(_FLOATS.get(kind, t.CLASS), float)
        elif kind is not None and kind.startswith("*"):
            self.of[path] = self._array(value, param, element_bytes(kind))
        elif kind is None and is_lasting(value):  # a function, or an enumeration
            self._constant(value)
        else:
            raise Refused

    def _integer(self, value: int, param: Param, more: int = 0) -> int:
        """The facts of an integer that code is specialised on; as many are told apart as in `fastpath`, or more."""
        if param.fixed_type.startswith("*"):
            return self.add(t.ADDRESS, int, key=_alignment(value), size=element_bytes(param.fixed_type))
        if not -(1 << 63) <= value < 1 << 63 or param.fixed_type not in _NUMBERED_INTEGERS:
            raise Refused
        mask = t.FACT_WIDE | more | (t.FACT_DIVISIBLE | t.FACT_ONE if param.specialize else 0)
        facts = (value << 4) & t.FACTS_OF_STEPS
        facts |= 0 if value & 15 else t.FACT_DIVISIBLE
        facts |= t.FACT_ONE if value == 1 else 0
        facts |= t.FACT_NOT_POSITIVE if value < 1 else 0
        facts |= 0 if -(1 << 31) <= value < 1 << 31 else t.FACT_WIDE
        return self.add(t.INTEGER, int, mask, facts & mask)

    def _array(self, value: Any, param: Param, size: int) -> int:
        """An array: a tensor of torch, an array of numpy, what has `data_ptr()`, or what `read` makes something of.

        Args:
            value: the array.
            param: that it is bound to.
            size: bytes of an element.
        """
        cls, torch = type(value), sys.modules.get("torch")
        usual = cls is getattr(torch, "Tensor", None) or cls is getattr(getattr(torch, "nn", None), "Parameter", None)
        if usual or (tracer_slot.watch is None and _adds_names_only(cls)):
            if value.numel() == 0 and value.is_cpu and value.data_ptr() == 0:
                return self._nowhere(value)
            key = self._machine.tensor_key(value)
            if key is None:
                raise Refused
            found = self.add(t.TENSOR, cls, key=key, size=size)
            self._gradients(value, found, self._machine.sees_gradients)
            return found
        if tracer_slot.watch is not None and isinstance(value, getattr(torch, "Tensor", ())):
            raise Refused  # the tracer sees what is done with a subclass
        whole = self.add(t.CLASS, cls)
        if cls is np.ndarray and NUMPY_DATA_OFFSET >= 0:
            self.add(t.SAME, value.dtype, at=(t.ATTRIBUTE, whole, "dtype"))
            flags = self.add(t.ANY, at=(t.ATTRIBUTE, whole, "flags"))
            self.add(t.SAME, value.flags.writeable, at=(t.ATTRIBUTE, flags, "writeable"))
            address = ctypes.c_size_t.from_address(id(value) + NUMPY_DATA_OFFSET).value
            return self.add(t.WORD, None, NUMPY_DATA_OFFSET, _alignment(address), size, at=(t.SAME_OBJECT, whole, 0))
        if getattr(value, "is_cpu", False) is True and hasattr(value, "data_ptr") and not hasattr(value, "fake_mode"):
            self.add(t.SAME, True, at=(t.ATTRIBUTE, whole, "is_cpu"))
            self.add(t.SAME, value.dtype, at=(t.ATTRIBUTE, whole, "dtype"))
            self._gradients(value, whole, not hasattr(value, "requires_grad"))
            extent = self.add(t.TUPLE, tuple, key=2, at=(t.HELPER, whole, functools.partial(reach, size=size)))
            found = self.add(t.ADDRESS, int, key=_alignment(value.data_ptr()), at=(t.METHOD, whole, "data_ptr"))
            self._reach(extent, 0)
            return found
        helper = _reader_of(param.name, size)
        element, device, writable, address, *_ = helper(value)
        read_as = self.add(t.TUPLE, tuple, key=7, at=(t.HELPER, whole, helper))
        self.add(t.TEXT, element, at=(t.ITEM, read_as, 0))
        self.add(t.NUMBER, int, key=device, at=(t.ITEM, read_as, 1))
        self.add(t.SAME, writable, at=(t.ITEM, read_as, 2))
        found = self.add(t.ADDRESS, int, key=_alignment(address), at=(t.ITEM, read_as, 3))
        self._reach(read_as, 4)
        return found

    def _nowhere(self, value: Any) -> int:
        """A tensor on the CPU that has no elements, and so no address: a placeholder, mostly."""
        whole = self.add(t.CLASS, type(value))
        self.add(t.SAME, value.dtype, at=(t.ATTRIBUTE, whole, "dtype"))
        self.add(t.SAME, True, at=(t.ATTRIBUTE, whole, "is_cpu"))
        self._gradients(value, whole, known=False)
        self.add(t.NUMBER, int, key=0, at=(t.METHOD, whole, "numel"))
        found = self.add(t.NUMBER, int, key=0, at=(t.METHOD, whole, "data_ptr"))
        self.nowhere.add(found)
        return found

    def _reach(self, parent: int, first: int) -> None:
        """How far an array goes, behind the column of its address: two items of a tuple."""
        for item in (first, first + 1):
            self.add(t.INTEGER, int, at=(t.ITEM, parent, item))

    def _gradients(self, value: Any, whole: int, known: bool) -> None:
        """Asks whether autograd records `value`, unless that is known; what launches refuse then is never learned."""
        recorded = is_recorded(value)
        if recorded and (are_gradients_refused() or knobs.torch.gradients == "error"):
            raise Refused
        if not known:
            self.add(t.SAME, recorded, at=(t.HELPER, whole, is_recorded))

    def _descriptor(self, value: TensorDescriptor, param: Param, path: Path) -> None:
        """The attributes of a descriptor; of strides also what a tensor map asks of them (`specialize._has_map`)."""
        whole = self.add(t.CLASS, type(value))
        self._at = (t.ATTRIBUTE, whole, "base")
        base: Path = (*path, 0)
        self.of[base] = self._array(value.base, replace(param, fixed_type=""), element_bytes(self.types[base]))
        sizes, steps = replace(param, fixed_type="i32"), replace(param, fixed_type="i64")
        for part, name in enumerate(("shape", "strides", "block_shape"), 1):
            items = getattr(value, name)
            is_list = type(items) is list
            if not is_list and not isinstance(items, tuple):
                raise Refused
            parent = self.add(
                t.LIST if is_list else t.TUPLE, type(items), key=len(items), at=(t.ATTRIBUTE, whole, name)
            )
            for index, item in enumerate(items):
                self._at = (t.LIST_ITEM if is_list else t.ITEM, parent, index)
                if type(item) is not int or (part == 2 and item >= 1 << 31):
                    raise Refused
                more = t.FACT_NOT_POSITIVE | (t.FACTS_OF_STEPS if part == 2 else 0)
                if part == 3 or (part == 2 and index == len(items) - 1):
                    self._constant(item)
                else:
                    self.of[(*path, part, index)] = self._integer(item, sizes if part == 1 else steps, more)
        self._at = (t.ATTRIBUTE, whole, "padding")
        self._constant(value.padding)
        self._at = (t.ATTRIBUTE, whole, "round_f32_to_tf32")
        self._constant(value.round_f32_to_tf32)


_READ = ("data_ptr", "dtype", "device", "is_cpu", "is_cuda", "requires_grad", "untyped_storage")


def _adds_names_only(cls: Any) -> bool:
    """Whether a class is a subclass of torch's tensors that leaves alone what a launch reads, and who is told of it."""
    base = getattr(sys.modules.get("torch"), "Tensor", None)
    if base is None or not isinstance(cls, type) or not issubclass(cls, base) or hasattr(cls, "fake_mode"):
        return False
    mine: Any = cls
    told, usual = (getattr(kind.__torch_function__, "__func__", kind.__torch_function__) for kind in (mine, base))
    disabled = sys.modules["torch"]._C._disabled_torch_function_impl
    if told not in (usual, disabled) or mine.__torch_dispatch__ is not base.__torch_dispatch__:
        return False
    return all(getattr(cls, name, None) is getattr(base, name, None) for name in _READ)


def columns_of(
    machine: Machine, call: Call, args: Sequence[Any], kwargs: Mapping[str, Any], exact: Collection[str] = (),
    gpu: int | None = None, pairs: Sequence[Pair] = (),
) -> t.KnownCall | None:  # fmt: skip
    """A call as machine code remembers it; None for one that must stay in Python.

    Args:
        machine: the code that will be told.
        call: the call, bound.
        args, kwargs: as they were passed.
        exact: parameters whose numbers must be the same.
        gpu: the GPU that must be the one in use; None if that does not matter.
        pairs: addresses that must be to each other what they are.
    """
    table = Columns(machine, _types(call.specialization))
    try:
        if gpu is not None:
            table.add(t.NUMBER, int, key=gpu, at=(t.HELPER, table.add(t.ANY, at=(t.ARGUMENT, 0, 0)), _gpu_in_use))
        return _known(table, call, args, kwargs, exact, pairs)
    except Exception:  # Refused, or what the attributes of some object raise; the launch itself has been made
        return None


def columns_of_run(machine: Machine, specialization: Specialization, args: Sequence[Any]) -> t.KnownCall | None:
    """A call of `CompiledKernel.run` as machine code remembers it; what is passed for constants does not count.

    Args:
        machine: the code that will be told.
        specialization: of the kernel.
        args: an argument for every parameter.
    """
    table = Columns(machine, _types(specialization))
    try:
        for path in table.types:
            (index,) = path
            param = Param(index, specialization.names[index], is_constexpr=False, specialize=False)
            table.describe(args[index], param, path, (t.ARGUMENT, 0, index + 1))
    except Exception:  # as in `columns_of`; ValueError for a part of a tuple
        return None
    return t.KnownCall((), len(args), table.rows, table.slots(specialization), None, ())


def _known(
    table: Columns, call: Call, args: Sequence[Any], kwargs: Mapping[str, Any], exact: Collection[str],
    pairs: Sequence[Pair],
) -> t.KnownCall:  # fmt: skip
    params = {param.name: param for param in call.params}
    positional = [param for param in call.params if param.kind is not inspect.Parameter.KEYWORD_ONLY]
    given: set[str] = set()
    names: list[str | None] = []
    for index, value in enumerate(args):
        param = positional[min(index, len(positional) - 1)]
        path: Path = (param.index,)
        if param.kind is inspect.Parameter.VAR_POSITIONAL:
            raise Refused  # the arguments of a callable grid would be a new tuple
        table.describe(value, param, path, (t.ARGUMENT, 0, index + 1), param.name in exact)
        given.add(param.name)
        names.append(param.name)
    for index, (name, value) in enumerate(kwargs.items(), len(args) + 1):
        found = params.get(name)
        at = (t.ARGUMENT, 0, index)
        option = Param(-1, name, is_constexpr=True)
        table.describe(value, found or option, (-1 if found is None else found.index,), at, name in exact)
        given.add(name)
        names.append(None if found is None else name)
    for param, value in zip(call.params, call.values, strict=True):  # defaults are the same at every such call
        if param.name not in given and (not is_lasting(value) or any(path[0] == param.index for path in table.types)):
            raise Refused
    meta = {name: None if name in given else value for name, value in call.by_name().items()}
    slots = table.slots(call.specialization)
    rows = [(slots[one][0], slots[other][0], relation) for one, other, relation in pairs]
    words = [word for row in rows if table.nowhere.isdisjoint(row[:2]) for word in row]
    return t.KnownCall(tuple(kwargs), len(args) + len(kwargs), table.rows, slots, meta, names, words)


def _types(specialization: Specialization) -> dict[Path, str]:
    return dict(zip(specialization.runtime_paths, specialization.runtime_types, strict=True))


def _gpu_in_use(grid: Grid) -> int:
    return gpus.current_gpu()


def _alignment(address: int) -> int:
    return 0 if address & 15 else t.FACT_ALIGNED


def _reader_of(name: str, size: int) -> Callable[[Any], tuple[str, int, bool, int, int, int, Any]]:
    """A function that reads an array of any library: element type, device, may it be written, address, bytes that it
    goes down and up from there, owner."""

    def described(value: Any) -> tuple[str, int, bool, int, int, int, Any]:
        array = read(value, name)
        if not isinstance(array, Array) or array.device is None:
            raise Refused
        return array.dtype, array.device, array.writable, array.address, *reach(array.owner, size), array

    return described
