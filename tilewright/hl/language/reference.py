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
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from types import MappingProxyType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from tilewright.hl import exc
from tilewright.hl.constexpr import in_kernels, plain
from tilewright.hl.language.reference_tiles import LOCAL, RefBlock, RefIndex, RefTile, running
from tilewright.hl.rows.dtypes import held
from tilewright.hl.trace.rounded import RoundedUp, in_references
from tilewright.hl.trace.tiles import Dividing


class Reference:
    """A run as a reference.

    Args:
        blocks: line of a loop -> block sizes of its ranges; None where a tile is a whole range, empty if all are.
        registered: sizes that `register_block_size` returns, in order; its largest where there are none.
        tunables: what `register_tunable` returns, by name; the default of its fragment where there is none.
        rounds: whether the next power of two of a row's size is the row as an extent.

    Attributes:
        chosen: the registered sizes.
        cut: (all lanes of a block or of its parts, those that a tile has) of tiles that are cut.
        has_loops: whether loops over tiles run; else host code runs alone.
    """

    has_loops = True

    def __init__(
        self,
        blocks: dict[int, list[int | None]],
        registered: Sequence[int] = (),
        tunables: Mapping[str, Any] = MappingProxyType({}),
        rounds: bool = False,
    ) -> None:
        self.blocks, self.registered, self.tunables = blocks, iter(registered), tunables
        self.chosen, self.rounds = frozenset(registered), rounds
        self.cut: set[tuple[int, int]] = set()

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


in_kernels(lambda: running() is not None, lambda value: value)
in_references(lambda: (reference := running()) is not None and reference.rounds)


def _lanes(extent: Any) -> int:
    """An extent as a number; of a row that is rounded up its elements."""
    return int(extent.row if isinstance(extent, RoundedUp) else extent)


@contextmanager
def referring(reference: Reference) -> Iterator[None]:
    """Functions of the language are those of this file inside."""
    before, LOCAL.reference = running(), reference
    try:
        with _Subscripts() if reference.has_loops else nullcontext():
            yield
    finally:
        LOCAL.reference = before


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
    several_sizes = list(block_size) if isinstance(block_size, list | tuple) else [block_size] * len(ends)
    given = [None if isinstance(size, Dividing) else size for size in several_sizes]
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
    size = reference.block_size(min_or_max if max_or_none is None else max_or_none)
    return RefBlock(size, size) if reference.has_loops else size


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
        if func.__name__ in _MADE and args and isinstance(args[0], list | tuple):
            with_tile = builtins.any(isinstance(extent, RefTile | RefBlock) for extent in args[0])
            args = (list(map(_lanes, args[0])), *args[1:]) if with_tile else args
        if func in _VIEWS and len(args) > 1:
            args = _with_lanes(args, func is torch.Tensor.unflatten)
        if func.__name__ not in _UNLIKE and (tensors := _uneven(args)) is not None:
            made = func(*tensors, **(kwargs or {}))
            return args[0] if made is tensors[0] else made  # changed in place
        return func(*args, **(kwargs or {}))


_UNLIKE = frozenset(
    ("__getitem__", "__setitem__", "matmul", "__matmul__", "__rmatmul__", "mm", "bmm", "addmm", "baddbmm")
)
"""Functions whose operands have dimensions that do not line up from the last one on."""
_MADE = frozenset(("zeros", "ones", "full", "empty"))
_VIEWS = (torch.Tensor.view, torch.Tensor.reshape, torch.reshape, torch.Tensor.unflatten)


def _with_lanes(args: Sequence[Any], of_one: bool) -> Sequence[Any]:
    """The arguments of a view whose extents are block sizes: of those the lanes that the tensor has.

    Args:
        args: the tensor, and the extents.
        of_one: whether they are those of one dimension, which stands before them.
    """
    (tensor, *dim), rest = args[: 1 + of_one], args[1 + of_one :]
    elements = tensor.size(*dim) if of_one else tensor.numel()
    extents = list(rest[0]) if isinstance(rest[0], list | tuple) else rest
    if builtins.any(isinstance(extent, RoundedUp) for extent in extents):
        extents = [extent.row if isinstance(extent, RoundedUp) else extent for extent in extents]
        args = (tensor, *dim, extents)
    if not builtins.any(isinstance(extent, RefBlock) for extent in extents):
        return args
    choices = [(*_cut_lanes(extent), int(extent)) for extent in extents]
    products = ((one, math.prod(extent for extent in one if extent != -1)) for one in itertools.product(*choices))
    known = [one for one, made in products if made == elements or (-1 in one and made and elements % made == 0)]
    if not known:
        return args
    reference = running()
    for extent, lanes in zip(extents, known[0], strict=True):
        if reference is not None and isinstance(extent, RefBlock) and extent != lanes:
            reference.cut.add((int(extent), lanes))
    return (tensor, *dim, known[0])


def _cut_lanes(extent: Any) -> list[int]:
    """How many of a block's lanes, or of a part's, a tile may have."""
    reference = running()
    if not isinstance(extent, RefBlock) or reference is None:
        return []
    wholes = [(whole, valid) for whole, valid in reference.cut if whole % extent == 0]
    return [extent.valid, *(valid // (whole // extent) for whole, valid in sorted(wholes))]


def _is_cut(whole: int, valid: int) -> bool:
    """Whether of two extents one is all lanes of a size, the other those of a tile that is cut."""
    reference = running()
    return reference is not None and valid < whole and (whole in reference.chosen or (whole, valid) in reference.cut)


def _uneven(args: Sequence[Any]) -> list[Any] | None:
    """Arguments of which one has all lanes of a size where another has those of a cut tile: cut likewise."""
    shapes = [tuple(arg.shape)[::-1] for arg in args if isinstance(arg, torch.Tensor)]
    fewest: dict[int, int] = {}
    for at in range(max(map(len, shapes), default=0)):
        extents = {shape[at] for shape in shapes if at < len(shape)} - {1}
        if len(extents) == 2 and _is_cut(max(extents), min(extents)):
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
        isinstance(entry, RefTile | RefIndex)
        or (isinstance(entry, torch.Tensor) and entry.dtype != torch.bool)
        or (isinstance(entry, slice) and _is_moving(entry))
        for entry in entries
    )


def _is_moving(entry: slice) -> bool:
    """Whether a slice begins where a loop's index says so: what is beyond the tensor has lanes all the same."""
    return isinstance(entry.start, RefIndex) and entry.stop is not None


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
        moving = _is_moving(entry)
        return torch.arange(entry.start, entry.stop, entry.step or 1) if moving else torch.arange(extent)[entry]
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
    tensor = tensor if held(tensor.dtype) == tensor.dtype else tensor.view(held(tensor.dtype))
    if not tensor.numel():  # there is no element to stand for those outside
        return torch.zeros(shape, dtype=tensor.dtype)
    found = tensor[tuple(indices)].expand(shape) if indices else tensor.expand(shape)
    inside = inside if extra_mask is None else inside & extra_mask
    return torch.where(inside, found, torch.zeros((), dtype=found.dtype)).expand(shape)


def _store(tensor: Any, index: Any, value: Any, extra_mask: Any = None) -> None:
    indices, inside, shape = _places(tensor, index)
    inside = (inside if extra_mask is None else inside & extra_mask).expand(shape)
    given = value if isinstance(value, torch.Tensor) else torch.tensor(value)
    cut = _uneven([torch.empty(shape, device="meta"), given])
    if cut is not None:  # of the value, or of the places
        shape, given = list(cut[0].shape), cut[1]
        here = tuple(slice(0, extent) for extent in shape)
        inside, indices = inside[here], [found.expand(inside.shape)[here] for found in indices]
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
    extents = [_lanes(extent) for extent in (shape if isinstance(shape, list | tuple) else [shape])]
    return (
        value.to(dtype).expand(extents) if isinstance(value, torch.Tensor) else torch.full(extents, value, dtype=dtype)
    )


def _arange(*bounds: Any, step: Any = None, dtype: Any = None, device: torch.device | str | None = None) -> Any:
    if step is not None:
        bounds = (0, *bounds, step) if len(bounds) == 1 else (*bounds, step)
    return torch.arange(*map(_lanes, bounds), dtype=dtype or torch.int32)


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
