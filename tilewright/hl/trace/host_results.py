"""What operations of the host give: tensors without memory, like those that they take.

torch's own meta functions of most operations are written in Python and import torch._dynamo and sympy when the first is
called, which takes longer than all else in a first call of a kernel. Here the operation itself runs on stand-ins with
memory, and says of what type its results are, and of which shape:

    x / 2, torch.maximum(x, y)    stand-ins have one element for each dim; the shape is what the operands broadcast to
    x.mean(0), a @ b              sizes are small primes, one for each size there is, and stand for it in the result
    torch.cat((x, y), 1)          the sizes along the dim are added
    torch.arange(n), torch.eye(n) the host itself makes them; what is drawn has the shape asked for

Results lie in row-major order: those of products always, others where all operands do. All else is left to torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

_REDUCTIONS = frozenset(
    ("all", "amax", "amin", "any", "argmax", "argmin", "linalg_vector_norm", "logsumexp", "max", "mean")
)
_REDUCTIONS |= {"min", "norm", "prod", "std", "sum", "var", "cumprod", "cumsum", "_log_softmax", "_softmax"}
_REDUCTIONS |= {"flip", "roll", "sort", "tril", "triu"}  # sizes that stay
_PRODUCTS = frozenset(("addmm", "addmv", "baddbmm", "bmm", "dot", "mm", "mv"))
_JOINS = frozenset(("cat", "stack"))
_COUNTED = frozenset(("arange", "eye", "linspace", "logspace"))
_DRAWN = frozenset(("rand", "randint", "randn"))
_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19)


def result_of(function: torch._ops.OpOverload, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What an operation gives of tensors without memory; NotImplemented where torch has to be asked.

    Args:
        function: the operation.
        name: its name without overload.
        args, kwargs: its arguments.
    """
    if name in _COUNTED and "out" not in kwargs:
        return function(*args, **{**kwargs, "device": "cpu"}).to("meta")
    if name in _DRAWN and "out" not in kwargs:
        return _drawn(function, name, args, kwargs)
    shapes = _rule(function, name)
    operands = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    if shapes is None or not operands or "memory_format" in kwargs:
        return NotImplemented
    if name not in _PRODUCTS and not all(map(_is_known, operands)):
        return NotImplemented
    try:
        return shapes(function, operands, args, kwargs)
    except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError):  # torch says it in its own words
        return NotImplemented


def _drawn(function: torch._ops.OpOverload, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> torch.Tensor:
    """Random numbers, none of which is drawn."""
    given = dict(zip((argument.name for argument in function._schema.arguments), args, strict=False)) | kwargs
    default = torch.int64 if name == "randint" else torch.get_default_dtype()
    return torch.empty(given["size"], dtype=given.get("dtype") or default, device="meta")


def _rule(function: torch._ops.OpOverload, name: str) -> Callable[..., Any] | None:
    """How the shapes of results follow; None where they do not, or are not new."""
    schema = function._schema
    if torch.Tag.nondeterministic_seeded in function.tags or any(a.alias_info is not None for a in schema.arguments):
        return None
    if name in _JOINS:
        return _joined
    if name in _REDUCTIONS or name in _PRODUCTS:
        return _by_sizes
    elementwise = torch.Tag.pointwise in function.tags or name == "floor_divide"  # which lacks the tag
    return _broadcast if elementwise and len(schema.returns) == 1 else None


def _is_known(operand: torch.Tensor) -> bool:
    """Whether an operand is a number, or lies in row-major order without memory."""
    if not operand.is_meta:
        return not operand.shape
    return operand.layout is torch.strided and _row_major(operand.shape) == operand.stride()


def _row_major(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(max(size, 1) for size in shape[dim + 1 :]) for dim in range(len(shape)))


def _broadcast(function: Callable[..., Any], operands: list[torch.Tensor], args: Any, kwargs: Any) -> Any:
    """Of elements: the operands' shape."""
    found = _run(function, args, kwargs, lambda operand: [1] * operand.dim())
    shape = [*_broadcast_sizes([operand.shape for operand in operands])]
    return _like(found, shape) if found.dim() == len(shape) else NotImplemented


def _broadcast_sizes(shapes: Sequence[Sequence[int]]) -> Iterator[int]:
    """As `torch.broadcast_shapes`, which imports sympy."""
    rank = max(map(len, shapes))
    for sizes in zip(*([1] * (rank - len(shape)) + list(shape) for shape in shapes), strict=True):
        own = {size for size in sizes if size != 1} or {1}
        (size,) = own  # more than one is an error
        yield size


def _by_sizes(function: Callable[..., Any], operands: list[torch.Tensor], args: Any, kwargs: Any) -> Any:
    """Reductions and products: every size of a result is one of an operand, or 1."""
    sizes = sorted({size for operand in operands for size in operand.shape} - {1})
    if len(sizes) > len(_PRIMES) or sizes[:1] == [0]:
        return NotImplemented
    small = {1: 1, **dict(zip(sizes, _PRIMES, strict=False))}
    large = {value: size for size, value in small.items()}
    found = _run(function, args, kwargs, lambda operand: [small[size] for size in operand.shape])
    results = [found] if isinstance(found, torch.Tensor) else list(found)
    if any(result.stride() != _row_major(result.shape) for result in results):
        return NotImplemented
    made = [_like(result, [large[size] for size in result.shape]) for result in results]
    return made[0] if isinstance(found, torch.Tensor) else tuple(made)


def _joined(function: Callable[..., Any], operands: list[torch.Tensor], args: Any, kwargs: Any) -> Any:
    """Tensors one after the other along a dim, or along a new one."""
    first, dim = operands[0], kwargs.get("dim", args[1] if len(args) > 1 else 0)
    found = _run(function, args, kwargs, lambda operand: [1] * operand.dim())
    shape, dim = list(first.shape), dim % found.dim()
    new = found.dim() > first.dim()
    if new:
        shape.insert(dim, len(operands))
    else:
        shape[dim] = sum(operand.shape[dim] for operand in operands)
    apart = [[size for n, size in enumerate(operand.shape) if new or n != dim] for operand in operands]
    return _like(found, shape) if all(sizes == apart[0] for sizes in apart) else NotImplemented


def _run(function: Callable[..., Any], args: Any, kwargs: Any, shape_of: Callable[[torch.Tensor], list[int]]) -> Any:
    """The operation on stand-ins with memory."""

    def stand_in(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or not leaf.is_meta:
            return leaf
        return torch.ones(shape_of(leaf), dtype=leaf.dtype)

    args, kwargs = pytree.tree_map(stand_in, (args, kwargs))
    return function(*args, **kwargs)


def _like(found: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    return torch.empty(tuple(shape), dtype=found.dtype, device="meta")
