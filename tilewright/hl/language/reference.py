"""The language as plain Python: what its functions do while a kernel runs as a reference.

Tiles are real parts of ranges, the last one cut, so there are no invalid lanes and PyTorch itself computes every
statement. This is the definition of what a kernel means; it is as slow as it looks.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import itertools
import math
import operator
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from types import MappingProxyType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from tilewright.hl import exc
from tilewright.hl.constexpr import in_kernels, plain

_LOCAL = threading.local()


class RefIndex(int):
    """An index of a loop, or one made of it: one beyond a tensor reads 0 and writes nothing, a negative one too."""


def _made_of(operation: Callable[[int, int], int], swapped: bool) -> Callable[[RefIndex, Any], Any]:
    def method(self: RefIndex, other: Any) -> Any:
        if not isinstance(other, int):
            return NotImplemented
        pair = (int(other), int(self)) if swapped else (int(self), int(other))
        return RefIndex(operation(*pair))

    return method


for _name in ("add", "sub", "mul", "floordiv", "mod", "and_", "or_", "xor", "lshift", "rshift"):
    setattr(RefIndex, f"__{_name.rstrip('_')}__", _made_of(getattr(operator, _name), False))
    setattr(RefIndex, f"__r{_name.rstrip('_')}__", _made_of(getattr(operator, _name), True))


class RefBlock(int):
    """A block size, or a multiple of one.

    Args:
        size: all lanes.
        valid: those that the tile has: fewer in one that is cut.
    """

    valid: int

    def __new__(cls, size: int, valid: int) -> RefBlock:
        self = int.__new__(cls, size)
        self.valid = valid
        return self

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, RefBlock):
            return RefBlock(int(self) * int(other), self.valid * other.valid)
        return RefBlock(int(self) * other, self.valid * other) if type(other) is int else NotImplemented

    __rmul__ = __mul__

    def __add__(self, other: Any) -> Any:
        return NotImplemented if isinstance(other, RefIndex) else int.__add__(self, other)

    def __sub__(self, other: Any) -> Any:
        return NotImplemented if isinstance(other, RefIndex) else int.__sub__(self, other)


class RefTile(int):
    """A part of a range: an `int` that is its length, as functions that take sizes want.

    Args:
        begin: first index.
        end: index behind the last.
        block: size of the tiles of the range.
        range: first index and end of the range.
        offset: added to the indices.
    """

    begin: int
    end: int
    block_size: RefBlock
    range: tuple[int, int]
    offset: int

    def __new__(cls, begin: int, end: int, block: int, range: tuple[int, int], offset: int = 0) -> RefTile:
        self = int.__new__(cls, end - begin)
        self.begin, self.end, self.block_size, self.range = (
            RefIndex(begin + offset),
            RefIndex(end + offset),
            RefBlock(block, end - begin),
            range,
        )
        self.offset = offset
        return self

    @property
    def index(self) -> Any:
        """The indices."""
        return torch.arange(self.begin, self.end, dtype=torch.int32)

    @property
    def first(self) -> int:
        """The first index, without what was added."""
        return self.begin - self.offset

    @property
    def id(self) -> int:
        """Number of the tile in its range."""
        return (self.first - self.range[0]) // self.block_size

    @property
    def count(self) -> int:
        """How many tiles the range has."""
        return -(-(self.range[1] - self.range[0]) // self.block_size)

    def __add__(self, other: Any) -> Any:
        moved = self.offset + int(other)
        return RefTile(self.first, self.end - self.offset, self.block_size, self.range, moved)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self + -int(other)


class Reference:
    """A run as a reference.

    Args:
        blocks: line of a loop -> block sizes of its ranges; None where a tile is a whole range, empty if all are.
        registered: sizes that `register_block_size` returns, in order; its largest where there are none.
        tunables: what `register_tunable` returns, by name; the default of its fragment where there is none.

    Attributes:
        chosen: the registered sizes.
        has_loops: whether loops over tiles run; else host code runs alone.
    """

    has_loops = True

    def __init__(
        self,
        blocks: dict[int, list[int | None]],
        registered: Sequence[int] = (),
        tunables: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.blocks, self.registered, self.tunables = blocks, iter(registered), tunables
        self.chosen = frozenset(registered)

    def sizes(self, line: int, count: int) -> list[int | None]:
        """The block sizes of a loop whose call stands at a line."""
        before = [known for known in self.blocks if known <= line]
        return list(self.blocks[max(before)]) if before else [None] * count

    def block_size(self, largest: Any) -> Any:
        """What the next `register_block_size` returns."""
        found = next(self.registered, None)
        return int(largest) if found is None else found

    def tunable(self, name: str, fragment: Any) -> Any:
        """What `register_tunable` returns."""
        return self.tunables.get(name, fragment.default())


class HostOnly(Reference):
    """A run of host code alone: no tile of any loop runs, so results have their shapes and nothing else.

    Args:
        configured: the reference whose choices the host code sees; called if it asks for one.
    """

    has_loops = False

    def __init__(self, configured: Callable[[], Reference]) -> None:
        super().__init__({})
        self._configured = functools.cache(configured)

    def block_size(self, largest: Any) -> Any:
        """What the next `register_block_size` returns."""
        return self._configured().block_size(largest)

    def tunable(self, name: str, fragment: Any) -> Any:
        """What `register_tunable` returns."""
        return self._configured().tunable(name, fragment)


def running() -> Reference | None:
    """The reference run of this thread."""
    return getattr(_LOCAL, "reference", None)


in_kernels(lambda: running() is not None, lambda value: value)


@contextmanager
def referring(reference: Reference) -> Iterator[None]:
    """Functions of the language are those of this file inside."""
    before, _LOCAL.reference = running(), reference
    try:
        with _Subscripts() if reference.has_loops else nullcontext():
            yield
    finally:
        _LOCAL.reference = before


def _refuse_call(
    name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], error: TypeError
) -> None:
    """Raise where a function of the language does not take such arguments."""
    signature = inspect.signature(function)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as reason:
        taken = ", ".join(signature.parameters)
        raise exc.InvalidAPIUsage(f"hl.{name}: {reason}", hint=f"it is hl.{name}({taken})") from error


def either(name: str, traced: Callable[..., Any], reference: Callable[..., Any] | None) -> Callable[..., Any]:
    """A function of the language that is its reference while one runs."""

    @functools.wraps(traced)
    def function(*args: Any, **kwargs: Any) -> Any:
        if running() is None:
            try:
                return traced(*args, **kwargs)
            except TypeError as error:
                _refuse_call(name, traced, args, kwargs, error)
                raise
        if reference is None:
            raise exc.BackendUnsupported(f"hl.{name} has no reference", hint="run the kernel compiled")
        return reference(*args, **kwargs)

    return function


# --- loops -------------------------------------------------------------------------------------------------


def _tile(begin_or_end: Any, end_or_none: Any = None, /, block_size: Any = None) -> list[Any]:
    reference = running()
    assert reference is not None
    if not reference.has_loops:
        return []
    begins, ends, several = _ranges(begin_or_end, end_or_none)
    given = list(block_size) if isinstance(block_size, list | tuple) else [block_size] * len(ends)
    chosen = reference.sizes(sys._getframe(2).f_lineno, len(ends))
    sizes = [int(own) if own is not None else size for own, size in zip(given, chosen, strict=True)]
    parts = [list(tiles_of(begin, end, size)) for begin, end, size in zip(begins, ends, sizes, strict=True)]
    return list(itertools.product(*parts)) if several else parts[0]


def tiles_of(begin: int, end: int, size: int | None) -> Iterator[RefTile]:
    """The tiles of a range, of which the last may be cut; one where there is no size."""
    block = size if size is not None else max(1, end - begin)
    for first in range(begin, end, block):
        yield RefTile(first, min(first + block, end), block, (begin, end))


def _ranges(begin: Any, end: Any) -> tuple[list[int], list[int], bool]:
    if end is None:
        begin, end = [0] * len(begin) if isinstance(begin, list | tuple) else 0, begin
    several = isinstance(end, list | tuple)
    begins, ends = (list(item) if several else [item] for item in (begin, end))
    return [int(item) for item in begins], [int(item) for item in ends], several


def _grid(begin_or_end: Any, end_or_none: Any = None, /, step: Any = None) -> list[Any]:
    reference = running()
    assert reference is not None
    if not reference.has_loops:
        return []
    begins, ends, several = _ranges(begin_or_end, end_or_none)
    steps = list(step) if isinstance(step, list | tuple) else [step or 1] * len(ends)
    parts = [list(map(RefIndex, range(*part))) for part in zip(begins, ends, steps, strict=True)]
    return list(itertools.product(*parts)) if several else parts[0]


def _register_block_size(min_or_max: Any, max_or_none: Any = None) -> Any:
    reference = running()
    assert reference is not None
    return reference.block_size(min_or_max if max_or_none is None else max_or_none)


def _register_tunable(name: str, fragment: Any) -> Any:
    reference = running()
    assert reference is not None
    return reference.tunable(name, fragment)


# --- memory --------------------------------------------------------------------------------------------------


class _Subscripts(TorchFunctionMode):  # type: ignore[misc]
    """Subscripts with tiles, and products whose accumulator is wider than their operands."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.__getitem__ and _is_ours(args[1]):
            return _load(*args)
        if func is torch.Tensor.__setitem__ and _is_ours(args[1]):
            return _store(*args)
        if func in (torch.addmm, torch.baddbmm, torch.Tensor.addmm, torch.Tensor.baddbmm) and not kwargs:
            acc, left, right = args
            return _dot(left, right, acc)
        if func in _VIEWS and len(args) > 1:
            args = _with_lanes(args)
        reference = running()
        chosen = reference.chosen if reference is not None and "item__" not in func.__name__ else frozenset()
        if chosen and (tensors := _uneven(args, chosen)) is not None:
            made = func(*tensors, **(kwargs or {}))
            return args[0] if made is tensors[0] else made  # changed in place
        return func(*args, **(kwargs or {}))


_VIEWS = (torch.Tensor.view, torch.Tensor.reshape, torch.reshape)


def _with_lanes(args: Sequence[Any]) -> Sequence[Any]:
    """The arguments of a view whose extents are block sizes: of those the lanes that the tensor has."""
    tensor, *rest = args
    extents = list(rest[0]) if isinstance(rest[0], list | tuple) else rest
    if not builtins.any(isinstance(extent, RefBlock) and extent.valid != extent for extent in extents):
        return args
    choices = [(int(extent), *([extent.valid] if isinstance(extent, RefBlock) else [])) for extent in extents]
    known = [one for one in itertools.product(*choices) if -1 in one or math.prod(one) == tensor.numel()]
    return (tensor, known[0]) if known else args


def _uneven(args: Sequence[Any], chosen: frozenset[int]) -> list[Any] | None:
    """Arguments of which one has all lanes of a registered size where another has those of a cut tile: cut likewise."""
    shapes = [tuple(arg.shape)[::-1] for arg in args if isinstance(arg, torch.Tensor)]
    fewest: dict[int, int] = {}
    for at in range(max(map(len, shapes), default=0)):
        extents = {shape[at] for shape in shapes if at < len(shape)} - {1}
        if len(extents) == 2 and max(extents) in chosen:
            fewest[at] = min(extents)
    if not fewest:
        return None

    def cut(arg: Any) -> Any:
        for at, extent in fewest.items() if isinstance(arg, torch.Tensor) else ():
            if at < arg.dim() and arg.size(-1 - at) > extent:
                arg = arg.narrow(-1 - at, 0, extent)
        return arg

    return list(map(cut, args))


def _plainly(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose own subscripts are PyTorch's, as they are where a subscript of the kernel calls it."""

    @functools.wraps(function)
    def made(*args: Any, **kwargs: Any) -> Any:
        with torch._C.DisableTorchFunction():
            return function(*args, **kwargs)

    return made


def _is_ours(index: Any) -> bool:
    entries = index if isinstance(index, tuple | list) else (index,)
    return any(
        isinstance(entry, RefTile | RefIndex) or (isinstance(entry, torch.Tensor) and entry.dtype != torch.bool)
        for entry in entries
    )


def _places(tensor: Any, index: Any, reading: bool = False) -> tuple[list[Any], Any, list[int]]:
    """(an index tensor per dimension, where they are inside the tensor, the shape of the tile)."""
    entries = list(index) if isinstance(index, tuple | list) else [index]
    used = sum(entry is not None and entry is not Ellipsis for entry in entries)
    dots = next((at for at, entry in enumerate(entries) if entry is Ellipsis), len(entries))
    entries = [*entries[:dots], *[slice(None)] * (tensor.dim() - used), *entries[dots + 1 :]]
    common = builtins.any(isinstance(entry, torch.Tensor) and entry.dim() > 1 for entry in entries)
    shape: list[int] = []
    placed: list[tuple[Any, int]] = []  # an index tensor and its first dimension
    first: int | None = None
    for entry in entries:
        if entry is None:
            shape.append(1)
            continue
        extent = tensor.size(len(placed))
        found = _positions(entry, extent, reading)
        if common and isinstance(entry, torch.Tensor) and entry.dim():
            if first is None:
                whole = [item.shape for item in entries if isinstance(item, torch.Tensor) and item.dim()]
                first, size = len(shape), torch.broadcast_tensors(*(torch.empty(item) for item in whole))[0].shape
                shape += size
                rank = len(size)
            placed.append((found, first + rank - found.dim()))
        else:
            placed.append((found, len(shape)))
            shape += found.shape
    indices = [found[(..., *[None] * (len(shape) - at - found.dim()))] for found, at in placed]
    inside = torch.ones((), dtype=torch.bool)
    for found, extent in zip(indices, tensor.shape, strict=True):
        inside = inside & (found >= 0) & (found < extent)
    clipped = [found.clamp(0, max(extent - 1, 0)) for found, extent in zip(indices, tensor.shape, strict=True)]
    return clipped, inside, shape


def _positions(entry: Any, extent: int, reading: bool) -> Any:
    if isinstance(entry, slice):
        return torch.arange(extent)[entry]
    if reading and extent == 1 and not (isinstance(entry, RefTile) and entry.offset):  # read whatever the index
        shape = entry.shape if isinstance(entry, torch.Tensor) else (int(entry),) if isinstance(entry, RefTile) else ()
        return torch.zeros(shape, dtype=torch.int64)
    if isinstance(entry, RefTile):
        return entry.index.long()
    if isinstance(entry, RefIndex):
        return torch.tensor(int(entry))
    if isinstance(entry, torch.Tensor):
        return entry.long()
    return torch.tensor(entry + extent if entry < 0 else entry)


def _load(tensor: Any, index: Any, extra_mask: Any = None, eviction_policy: Any = None) -> Any:
    indices, inside, shape = _places(tensor, index, reading=True)
    found = tensor[tuple(indices)].expand(shape) if indices else tensor.expand(shape)
    inside = inside if extra_mask is None else inside & extra_mask
    return torch.where(inside, found, torch.zeros((), dtype=found.dtype)).expand(shape)


def _store(tensor: Any, index: Any, value: Any, extra_mask: Any = None) -> None:
    indices, inside, shape = _places(tensor, index)
    inside = (inside if extra_mask is None else inside & extra_mask).expand(shape)
    given = value if isinstance(value, torch.Tensor) else torch.tensor(value)
    where = tuple(found.expand(shape)[inside] for found in indices)
    tensor.index_put_(where, given.to(tensor.dtype).expand(shape)[inside])


# --- atomics ---------------------------------------------------------------------------------------------------

_UPDATES: dict[str, Callable[..., Any]] = {
    "atomic_add": lambda old, value: old + value,
    "atomic_and": lambda old, value: old & value,
    "atomic_max": torch.maximum,
    "atomic_min": torch.minimum,
    "atomic_or": lambda old, value: old | value,
    "atomic_xchg": lambda old, value: value,
    "atomic_xor": lambda old, value: old ^ value,
    "atomic_cas": lambda old, expected, value: torch.where(old == expected, value, old),
}


def _atomic(name: str) -> Callable[..., Any]:
    update = _UPDATES[name]

    def function(target: Any, index: Any, *values: Any, sem: str = "relaxed") -> Any:
        indices, inside, shape = _places(target, index)
        given = [torch.as_tensor(value).to(target.dtype).expand(shape) for value in values[: 2 if "cas" in name else 1]]
        inside, before = inside.expand(shape), torch.zeros(shape, dtype=target.dtype)
        places = [found.expand(shape) for found in indices]
        for at in itertools.product(*map(range, shape)):
            if inside[at]:
                where = tuple(int(found[at]) for found in places)
                before[at] = target[where]
                target[where] = update(target[where], *(value[at] for value in given))
        return before

    return function


# --- the rest ----------------------------------------------------------------------------------------------------


def _dot(mat1: Any, mat2: Any, acc: Any = None, out_dtype: Any = None) -> Any:
    default = torch.float32 if mat1.dtype.is_floating_point and mat1.dtype.itemsize < 8 else mat1.dtype
    default = torch.int32 if mat1.dtype == torch.int8 else default
    made = mat1.to(default) @ mat2.to(default)
    dtype = out_dtype or (acc.dtype if acc is not None else default)
    return (made if acc is None else made + acc.to(default)).to(dtype)


def _full(shape: Any, value: Any, dtype: Any = torch.float32, device: torch.device | str | None = None) -> Any:
    extents = [int(extent) for extent in (shape if isinstance(shape, list | tuple) else [shape])]
    return (
        value.to(dtype).expand(extents) if isinstance(value, torch.Tensor) else torch.full(extents, value, dtype=dtype)
    )


def _arange(*bounds: Any, step: Any = None, dtype: Any = None, device: torch.device | str | None = None) -> Any:
    if step is not None:
        bounds = (0, *bounds, step) if len(bounds) == 1 else (*bounds, step)
    return torch.arange(*map(int, bounds), dtype=dtype or torch.int32)


def _nothing(*args: Any) -> None:
    pass


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: _plainly(_atomic(name)) for name in _UPDATES},
    "arange": _arange,
    "barrier": _nothing,
    "breakpoint": builtins.breakpoint,
    "cumprod": lambda tensor, dim, reverse=False: _running(torch.cumprod, tensor, dim, reverse),
    "cumsum": lambda tensor, dim, reverse=False: _running(torch.cumsum, tensor, dim, reverse),
    "device_print": print,
    "dot": _dot,
    "full": _full,
    "grid": _grid,
    "load": _plainly(_load),
    "pdl_launch_dependents": _nothing,
    "pdl_wait": _nothing,
    "register_block_size": _register_block_size,
    "register_tunable": _register_tunable,
    "specialize": lambda value: value,
    "static_range": lambda begin, end=None, step=1: range(0, begin, step) if end is None else range(begin, end, step),
    "store": _plainly(_store),
    "tile": _tile,
    "tile_begin": lambda tile: tile.begin,
    "tile_block_size": lambda tile: tile.block_size,
    "tile_count": lambda tile: tile.count,
    "tile_end": lambda tile: tile.end,
    "tile_id": lambda tile: tile.id,
    "tile_index": lambda tile: tile.index,
    "zeros": lambda shape, dtype=torch.float32, device=None: _full(shape, 0, dtype),
}


def _running(function: Callable[..., Any], tensor: Any, dim: int, reverse: bool) -> Any:
    return function(tensor.flip(dim), dim).flip(dim) if reverse else function(tensor, dim)


def run(function: Callable[..., Any], args: Sequence[Any], reference: Reference, gradients: bool = False) -> Any:
    """Call the plain function of a kernel; with `gradients` PyTorch records what it does."""
    with referring(reference), torch.set_grad_enabled(gradients):
        return function(*map(plain, args))
