"""The two modes under which PyTorch runs a kernel's body; all that depends on private corners of PyTorch is here.

The function mode sees what the user's code calls, with the user's own objects: it answers questions about sizes with
symbols, takes over subscripts of host tensors, and turns symbols into sizes or recorded scalars. The dispatch mode sees
the aten operations below and writes them down, or runs the recipe that a table has for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tilewright.hl import exc
from tilewright.hl.graph.nodes import leaves
from tilewright.hl.rows import table
from tilewright.hl.rows.files import RECIPES, ROWS
from tilewright.hl.rows.gather import span
from tilewright.hl.symbols import Sym
from tilewright.hl.trace import host_parts, shape_arguments
from tilewright.hl.trace.arguments import strides_of
from tilewright.hl.trace.carried import tensors
from tilewright.hl.trace.divided import check_parts, chunk, divide_for_view, split
from tilewright.hl.trace.extents import extent as extent_of
from tilewright.hl.trace.host_results import result_of
from tilewright.hl.trace.indexing import load, store
from tilewright.hl.trace.merges import check_reshape
from tilewright.hl.trace.numbers import check_held, number, recognized, wanted
from tilewright.hl.trace.parts import assign_part, part
from tilewright.hl.trace.rounded import RoundedUp
from tilewright.hl.trace.state import Trace, memory_of, place_of, raw_shape
from tilewright.hl.trace.tiles import Tile
from tilewright.hl.trace.whole import COMPOSITES, as_fill, record_whole

Handler = Callable[..., Any]
_VIEWS = frozenset(("view", "reshape", "unflatten"))
_RESHAPES = frozenset(("view", "_unsafe_view", "_reshape_alias", "flatten", "unflatten", "view_as"))
_ALIASES = frozenset(("detach", "alias", "lift_fresh", "contiguous", "clone", "lift"))


class FunctionMode(TorchFunctionMode):  # type: ignore[misc]
    """What user code calls; see the module."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self.trace = trace

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        trace, kwargs = self.trace, kwargs or {}
        if trace.quiet:
            return function(*args, **kwargs)
        name = getattr(function, "__name__", "")
        if name == "__get__":
            return self._attribute(function, args)
        handler = _ANSWERS.get(name)
        if handler is not None and isinstance(args[0], torch.Tensor):
            answer = handler(trace, *args, **kwargs)
            if answer is not NotImplemented:
                return answer
        if name in shape_arguments.QUESTIONS:
            return function(*args, **kwargs)
        if trace.region is None:
            return self._host(function, name, args, kwargs)
        return self._device(function, name, args, kwargs)

    def _attribute(self, function: Any, args: tuple[Any, ...]) -> Any:
        name = getattr(function.__self__, "__name__", "")
        if name == "shape":
            return _size(self.trace, args[0])
        if name == "device":
            return self.trace.device
        return function(*args)

    def _host(self, function: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        makes = name in shape_arguments.DEVICED
        if name in shape_arguments.CUTS:
            host_parts.bounds_are_constants(self.trace, [args, kwargs])
        change = self._extent if makes else sample_of
        args, kwargs = _map(change, args), {key: _map(change, value) for key, value in kwargs.items()}
        if makes:
            kwargs["device"] = "meta"
        elif name in ("to", "cuda", "cpu"):
            args = tuple(arg for arg in args if not isinstance(arg, torch.device | str))
            kwargs.pop("device", None)
            if name != "to" or (len(args) == 1 and not kwargs):
                return args[0]
        return function(*args, **kwargs)

    def _device(self, function: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = args if name in shape_arguments.SIZES else ()
        if name == "arange" and any(isinstance(arg, Sym | Tile | RoundedUp) for arg in args):
            bounds = [Sym.of(arg.axis.size) if isinstance(arg, Tile) else arg for arg in args]
            if "step" in kwargs:
                bounds = [*([0] if len(bounds) == 1 else []), *bounds, kwargs["step"]]
            with self.trace.chosen.naming(args):
                return span(*bounds, dtype=kwargs.get("dtype") or torch.int64)
        makes = name in shape_arguments.FACTORIES or name.startswith("new_")
        if name in _VIEWS:
            divide_for_view(self.trace, args[0], *_viewed(name, args, kwargs))
        named = makes or name in shape_arguments.EXTENTS
        change = self._value_of if name not in shape_arguments.SIZES else self._extent if named else sample_of
        args, kwargs = _map(change, args), {key: _map(change, value) for key, value in kwargs.items()}
        if "device" in kwargs or makes:
            kwargs["device"] = "cpu"
        with self.trace.chosen.naming(given):
            return function(*args, **kwargs)

    def _extent(self, arg: Any) -> Any:
        return extent_of(self.trace, arg)

    def _value_of(self, arg: Any) -> Any:
        if isinstance(arg, Sym):
            return self.trace.scalar(arg)
        if isinstance(arg, torch.Tensor) and self.trace.is_host(arg):
            if arg.dim() == 0:
                return load(self.trace, arg, ())
            self.trace.lift(arg)  # raises: only parts of host tensors can be used
        if isinstance(arg, Tile):
            raise exc.IncorrectTileUsage(
                f"{arg!r} is used as a number",
                hint="write tile.index for its indices, tile.begin for the first, tile.block_size for its size",
            )
        return arg


def _viewed(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], int]:
    """(the extents that a view names, how many elements of the sample are theirs)."""
    tensor, *rest = args
    elements = tensor.numel()
    if name == "unflatten":
        rest += kwargs.values()
        elements = raw_shape(tensor)[rest.pop(0)] if rest and type(rest[0]) is int else elements
    extents = leaves([*rest, *(kwargs.get(key, ()) for key in ("shape", "size"))])
    sizes = [Sym.of(extent.axis.size) if isinstance(extent, Tile) else extent for extent in extents]
    return [size for size in sizes if isinstance(size, int)], elements


def sample_of(arg: Any) -> Any:
    """A symbol or a tile as a plain extent of samples."""
    if isinstance(arg, Sym):
        return arg.sample
    if isinstance(arg, Tile):
        return arg.axis.prime
    if isinstance(arg, slice):
        return slice(sample_of(arg.start), sample_of(arg.stop), sample_of(arg.step))
    return arg


def _map(change: Callable[[Any], Any], tree: Any) -> Any:
    if type(tree) in (list, tuple):
        return type(tree)(_map(change, item) for item in tree)
    return change(tree)


# --- questions and subscripts ------------------------------------------------------------------------


def _size(trace: Trace, tensor: torch.Tensor, dim: int | None = None) -> Any:
    shape = raw_shape(tensor)
    if dim is not None:
        return _extent(trace, tensor, dim)
    return torch.Size([_extent(trace, tensor, at) for at in range(len(shape))])


def _extent(trace: Trace, tensor: torch.Tensor, dim: int) -> Any:
    """The extent of a dimension.

    Raises:
        RankMismatch: there is no such dimension.
    """
    rank = len(raw_shape(tensor))
    if not -rank <= dim < rank:
        raise exc.RankMismatch(
            f"dimension {dim} of a tensor that has {rank}", hint="they are counted from 0, or from -1"
        )
    size = trace.factors.size(raw_shape(tensor)[dim])
    value = trace.value(tensor) if trace.chosen and trace.region is not None else None
    if isinstance(size, Sym) and value is not None and value.dims[dim].cut == value.dims[dim]:
        size = Sym(size.terms, size.constant)
        size.of_tile = True
    return size


def _stride(trace: Trace, tensor: torch.Tensor, dim: int | None = None) -> Any:
    host = trace.hosts.get(id(tensor))
    found = host.stride if host is not None else _host_strides(trace, tensor)
    return found if dim is None or found is NotImplemented else found[dim]


def _host_strides(trace: Trace, tensor: torch.Tensor) -> Any:
    """The strides of a tensor that no loop has seen yet.

    Raises:
        HostValueNotAvailable: it is a part of an argument whose strides are no constants.
    """
    sizes = _size(trace, tensor)
    if not tensor.is_meta or (trace.static and not any(isinstance(extent, Sym) for extent in sizes)):
        return NotImplemented
    if id(tensor) in trace.arguments:
        return strides_of(trace, tensor, "", "")
    if memory_of(tensor) not in {memory_of(argument) for argument, *_ in trace.arguments.values()}:
        with torch._C.DisableTorchFunction():
            return tuple(map(trace.factors.size, tensor.stride()))  # made by the host: products of sizes
    raise exc.HostValueNotAvailable(
        "a stride of a view of an argument is needed on the host, and strides are no constants",
        hint="ask the argument itself, or inside of a loop, or leave static_shapes=True",
    )


def _length(trace: Trace, tensor: torch.Tensor) -> Any:
    return _size(trace, tensor, 0)


def _count(trace: Trace, tensor: torch.Tensor) -> Any:
    total: Any = 1
    for extent in raw_shape(tensor):
        total = trace.factors.size(extent) * total
    return total


def _getitem(trace: Trace, tensor: torch.Tensor, index: Any) -> Any:
    if trace.region is None:
        return NotImplemented
    if not trace.is_host(tensor):
        return part(trace, tensor, index)
    return load(trace, tensor, index)


def _setitem(trace: Trace, tensor: torch.Tensor, index: Any, value: Any) -> Any:
    if trace.region is None:
        return NotImplemented
    if not trace.is_host(tensor):
        trace.lift(tensor)  # raises: it is of nobody here
        return assign_part(trace, tensor, index, value)
    return store(trace, tensor, index, value)


def _item(trace: Trace, tensor: torch.Tensor) -> Any:
    """A number that the host reads from a tensor: known when the kernel is launched."""
    if trace.region is not None or not tensor.is_meta or tensor.dtype == torch.bool or tensor.dtype.is_complex:
        return NotImplemented
    name = _read_number(trace)
    return number(trace, name, None, name) if tensor.dtype.is_floating_point else trace.host_symbol(name, name)


def _read_number(trace: Trace) -> str:
    """A name for a number that host code reads, in the expression of its text that runs now.

    Raises:
        HostValueNotAvailable: the expression is not the kernel's own, or runs more than once.
    """
    place = place_of(trace)
    if place is not None and place not in trace.read:
        name = trace.read[place] = f"number_{len(trace.read)}"
        return name
    raise exc.HostValueNotAvailable(
        "a number is read from a tensor in a loop or a function of the host",
        hint="read it in a statement of the kernel itself, once, or give it as an argument",
    )


def _product(name: str) -> Handler:
    """Products whose types PyTorch's CPU code refuses: a float32 accumulator with 16-bit operands, `out_dtype`."""

    def answer(trace: Trace, *args: Any, **kwargs: Any) -> Any:
        mixed = len({arg.dtype for arg in args if isinstance(arg, torch.Tensor)}) > 1
        if trace.region is None or not (mixed or kwargs.get("out_dtype")):
            return NotImplemented
        return RECIPES[name](*args, **kwargs)

    return answer


def _embedding(trace: Trace, *args: Any, **kwargs: Any) -> Any:
    """Rows of a table of the host, which is the second argument of `F.embedding`, the first of `torch.embedding`."""
    given = [arg for arg in (*args, *kwargs.values()) if isinstance(arg, torch.Tensor)]
    if trace.region is None or len(given) != 2 or not any(map(trace.is_host, given)):
        return NotImplemented
    table, at = given if trace.is_host(given[0]) and given[0].is_floating_point() else given[::-1]
    return load(trace, table, (at, slice(None)))


def _one_hot(trace: Trace, tensor: Any, num_classes: Any = -1) -> Any:
    """A comparison with the numbers of the classes."""
    if trace.region is None:
        return NotImplemented
    if isinstance(num_classes, int) and num_classes < 0:
        raise exc.ConstantNeeded(
            "how many classes there are depends on values of a tile", hint="give the number: F.one_hot(x, num_classes)"
        )
    return (tensor[..., None] == torch.arange(num_classes)).to(torch.int64)


def _attention(trace: Trace, query: Any, *args: Any, **kwargs: Any) -> Any:
    """PyTorch's C++ code makes a number of the width, for the scale that it has unless one is given."""
    if trace.region is not None and kwargs.get("scale") is None and isinstance(_extent(trace, query, -1), Sym):
        raise exc.ConstantNeeded(
            "the scale of attention is one over the root of a size that is no constant",
            hint="give `scale=`, or make the width a constant ahead of the loop: hl.specialize(q.size(-1))",
        )
    return NotImplemented


def _truth(trace: Trace, tensor: torch.Tensor) -> Any:
    """Python asks whether a value is true, in code that is not the kernel's own text.

    Raises:
        NotAllowedOnDevice: the value is known when the kernel runs.
    """
    if trace.region is None or trace.value(tensor) is None:
        return NotImplemented
    known = wanted(trace, tensor)
    if known is not None:
        return known
    raise exc.NotAllowedOnDevice(
        "the truth of a value of the device is asked for in a function that Python runs while the kernel is compiled",
        hint="write `if`, `and`, `or` and `not` in the kernel itself, or torch.where, &, | and ~ in the function",
    )


def _values(trace: Trace, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """What wants the elements of a tile in Python, such as a function of NumPy.

    Raises:
        NotAllowedOnDevice: a loop over tiles is traced: there are none.
    """
    if trace.region is None:
        return NotImplemented
    raise exc.NotAllowedOnDevice(
        "NumPy, or Python, is given a tile, which has no elements while the kernel is traced",
        hint="write PyTorch's function: torch.exp(x) for np.exp(x), x.sum() for sum(x.tolist()); arrays of NumPy are "
        "made tensors, torch.from_numpy(a), ahead of the call",
    )


_ANSWERS: dict[str, Handler] = {
    **dict.fromkeys(("__array__", "numpy", "tolist", "__dlpack__", "data_ptr"), _values),
    "__bool__": _truth,
    **{name: _product(name) for name in ("mm", "bmm", "addmm", "baddbmm")},
    "size": _size,
    "stride": _stride,
    "__len__": _length,
    "numel": _count,
    "nelement": _count,
    "item": _item,
    "embedding": _embedding,
    "one_hot": _one_hot,
    "scaled_dot_product_attention": _attention,
    "split": split,
    "chunk": chunk,
    "__getitem__": _getitem,
    "__setitem__": _setitem,
}


# --- aten ------------------------------------------------------------------------------------------------


class DispatchMode(TorchDispatchMode):  # type: ignore[misc]
    """The aten operations of a body; see the module."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self.trace = trace

    def dispatch(
        self,
        function: torch._ops.OpOverload,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Record `function(*args)`, or run what stands for it."""
        trace, kwargs = self.trace, kwargs or {}
        if trace.quiet:
            return function(*args, **kwargs)
        name = function._schema.name.removeprefix("aten::")
        if trace.region is None:
            return _host_operation(trace, function, name, args, kwargs)
        if trace.detaches and name == "detach":
            return record_whole(trace, function, name, args, kwargs, function(*args))
        if name in _ALIASES and trace.value(args[0]) is not None:
            return self._alias(function, args, kwargs)
        if name.endswith("_") and not name.endswith("__"):
            return self._in_place(function, name[:-1], args, kwargs)
        if trace.numbers:
            args, kwargs = tuple(recognized(trace, list(args))), {k: recognized(trace, v) for k, v in kwargs.items()}
        if name == "_local_scalar_dense" and (known := wanted(trace, args[0])) is not None:
            return known
        made = _of_nothing(trace, function, args, kwargs)
        if made is not NotImplemented:
            return made
        if trace.whole and name in COMPOSITES:
            return record_whole(trace, function, name, args, kwargs, _sampled(function, args, kwargs))
        recipe = RECIPES.get(name)
        if recipe is not None:
            with trace.silence():
                _check(name, function, args, kwargs)
            with self:
                made = recipe(*args, **kwargs)
            if made is not NotImplemented:
                return made
        row = ROWS.get(name)
        if row is None:
            return self._decomposed(function, name, args, kwargs)
        held, named = row.arguments(args, kwargs)
        if trace.numbers:
            check_held(name, [args, kwargs], [held, named])
        out = _sampled(function, args, kwargs)
        if name in _RESHAPES:
            check_reshape(trace, raw_shape(args[0]), raw_shape(out))
            if trace.chosen.has_parts:
                check_parts(trace, trace.lift(args[0]), raw_shape(out))
        if trace.whole:
            return record_whole(trace, *as_fill(trace, function, name, args, kwargs), out)
        return trace.record(name, held, out, named, row.compute_type(args, out))

    def _alias(self, function: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        value = self.trace.value(args[0])
        assert value is not None
        out = function(*args, **kwargs)
        self.trace.bind(out, value)
        return out

    def _in_place(
        self, function: torch._ops.OpOverload, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        target = args[0]
        if self.trace.is_host(target):
            self.trace.lift(target)  # raises: a host tensor is changed through subscripts
        packet = getattr(torch.ops.aten, name)
        pure = getattr(packet, function._overloadname, None) or RECIPES[name]
        if pure is torch.ops.aten.pow.Scalar:  # its first argument is the number, that of `pow_` the tensor
            pure = packet
        with self:
            out = pure(*args, **kwargs)
            if out.dtype != target.dtype:
                out = out.to(target.dtype)
        if raw_shape(out) != raw_shape(target):
            raise exc.ShapeMismatch(
                f"{name}_ would change the shape of the tensor it works on",
                hint="let what adds up begin with the shape of the result: hl.zeros([tile_m, tile_n]), not 0",
            )
        value = self.trace.value(out)
        assert value is not None
        self.trace.change(target, value)
        return target

    def _decomposed(
        self, function: torch._ops.OpOverload, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if function._can_decompose():
            if self.trace.numbers:
                check_held(name, [args, kwargs], ())
            with self:
                out = function.decompose(*args, **kwargs)
            if out is not NotImplemented:
                return out
        raise table.unknown(name)


def _of_nothing(trace: Trace, function: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of an operation that has no elements, or is made of tiles that have none: constants."""
    given = [tensor for _, tensor in tensors([args, kwargs]) if tensor.dim()]
    if all(tensor.numel() for tensor in given):
        return NotImplemented
    with trace.silence():
        made = function(*args, **kwargs)
    outs = made if isinstance(made, tuple | list) else [made]
    if any(out.numel() for out in outs) and any(tensor.numel() for tensor in given):
        return NotImplemented
    for out in outs:
        with trace.silence():
            value = out.flatten()[0].item() if out.numel() else 0
        trace.record("full", (value,), out)
    return made


_CHECKS_ITSELF = frozenset(("mm", "bmm", "addmm", "baddbmm", "split_with_sizes", "binary_cross_entropy"))
"""Recipes with errors of their own, as padded extents have other samples; and one that looks at values."""


def _check(name: str, function: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Have PyTorch itself refuse what it refuses of an operation that a recipe stands for."""
    if name in _CHECKS_ITSELF or torch.Tag.nondeterministic_seeded in function.tags:  # it would draw from the generator
        return
    _sampled(function, args, kwargs)


def _sampled(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The sample of a result; the sample of an integer divisor may be 0, which says nothing of the kernel."""
    try:
        return function(*args, **kwargs)
    except RuntimeError as error:
        if "ZeroDivisionError" not in str(error):
            raise
        number, divisor = args
        if not isinstance(divisor, torch.Tensor):
            raise exc.TorchOpTracingError(
                "integers are divided by 0, which is an error in PyTorch too",
                hint="a tensor without elements has sizes of 0: return ahead of the loop, `if x.numel() == 0`",
            ) from None
        return function(number, torch.ones_like(divisor), **kwargs)


# Set after the class is made: a `__torch_dispatch__` in its body is wrapped so that the first operation imports
# torch._dynamo, which takes seconds.
DispatchMode.__torch_dispatch__ = DispatchMode.dispatch


_LIKE = frozenset(("empty_like", "full_like", "ones_like", "rand_like", "randint_like", "randn_like", "zeros_like"))


def _host_operation(
    trace: Trace, function: torch._ops.OpOverload, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    for at, argument in enumerate(function._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            changed = args[at] if at < len(args) else kwargs.get(argument.name)
            for _, tensor in tensors(changed):
                trace.written.add(memory_of(tensor))
    host_parts.settle(trace, function, name, args, kwargs)
    if name in _LIKE and args[0].is_meta:
        # torch's meta function for these imports sympy; its kernel in C++ has the same strides, dense for a view
        key = torch._C.DispatchKey.CompositeExplicitAutograd
        return torch.ops.aten.empty_like.default._op_dk(key, args[0], dtype=kwargs.get("dtype"))
    found = result_of(function, name, args, kwargs)
    return function(*args, **kwargs) if found is NotImplemented else found
