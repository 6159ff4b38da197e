"""What one run of a kernel's body writes down."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from tilewright.hl import exc
from tilewright.hl.dims import Axis, Dim, Factors, cut_atom, part_of
from tilewright.hl.graph.nodes import (
    Graph,
    HostNumber,
    HostTensor,
    Node,
    Region,
    Value,
    leaves,
    values,
)
from tilewright.hl.rows.dtypes import held
from tilewright.hl.symbols import Atom, Sym, show, substitute
from tilewright.hl.trace.chosen import Chosen
from tilewright.hl.trace.outside import Read
from tilewright.hl.trace.samples import Sampling, sample_of

_LOCAL = threading.local()

Place = tuple[int | None, int | None, int | None, int | None]  # first and last line, first and last column


class Restart(Exception):
    """Something became known that the samples do not have: the trace starts again with it."""


class Fixed(Restart):
    """A number of the host has become a constant."""

    def __init__(self, text: str, value: int) -> None:
        super().__init__(text, value)
        self.text, self.value = text, value


class Trace:
    """The state of a trace.

    Args:
        sampling: primes and data.
        device: the device of the kernel's tensors.
        first: number of the first value.

    Attributes:
        factors: what the primes stand for.
        region: where nodes go; None while host code runs.
        line: line of the user's file that runs.
        graphs: finished top-level loops.
        slots: for each entry of the configuration's `block_sizes`, the axes and bounds that it sizes.
        hosts: host tensors by the identity of their meta tensors.
        constants: results of the calls that the launcher has constants for, by their places.
        guards: (expression of the arguments, what it was): the trace holds only for calls where it is the same.
        actual: what symbols of the host are in the call that binds.
        tunables: choices that the program leaves to the configuration, by name.
        equal: expressions of the host that are known to be equal to another one.
        fixed: numbers of the host that are constants, by their expressions.
        multiples: numbers that block sizes are multiples of, by the size as it is written; see `trace.divided`.
        powers: sizes of which the program asked for the next power of two, by the power; see `trace.rounded`.
        rounds: whether such powers are rows where they are extents.
        static: whether sizes and strides are constants.
        arguments: (tensor, path, strides in the call that binds) of tensors among the arguments, by identity.
        bounds: for each axis the bounds as the user's code has them.
        outside: tensors that the kernel can reach besides its arguments, by identity.
        captured: those of them that the launcher must have, by the names that it gives them.
        chosen: sizes that the program has of the configuration.
        drawn: how many calls drew random numbers with a seed of the launcher.
        repeats: how many loops of unknown length (`while`) are open.
        numbers: floating-point numbers of the launcher, by the values that the trace invented for them.
        written: memory of tensors of the host that is written, by identity.
        writes_anywhere: whether something is stored at addresses that are data.
        file: path of the user's file.
        index_dtype: what the settings say of indices; None for what is needed.
        has_wide: whether offsets of an argument pass 32 bits.
        read: names of the numbers that host code reads from tensors, by the place of the expression.
        reference: whether the kernel is to run as a reference: what only looks at values is then Python's alone.
        stop: where the first `breakpoint()` stands.
        whole: whether calls are written down with their operator and all arguments; see `trace.whole`.
        detaches: whether `detach` is a call like others, and not another name.
        of_sizes: nodes that are a symbol, or compare two values, by the number of their value.
        kept_as_is: samples that may not be changed in place, with their names; see `trace.aliases`.
    """

    def __init__(self, sampling: Sampling, device: Any, first: int = 0) -> None:
        self.sampling, self.device = sampling, device
        self.factors = Factors()
        self.axes: list[Axis] = []
        self.region: Region | None = None
        self.line = 0
        self.quiet = False
        self.graphs: list[Graph] = []
        self.slots: list[Axis] = []
        self.loops: list[Node] = []
        self.hosts: dict[int, HostTensor] = {}
        self.constants: dict[Place | None, Any] = {}
        self.guards: list[tuple[str, Any]] = []
        self.actual: dict[Atom, int | None] = {}
        self.host_symbols: dict[str, Sym] = {}
        self.tunables: dict[str, Any] = {}
        self.equal: dict[str, str] = {}
        self.fixed: dict[str, int] = {}
        self.multiples: dict[str, int] = {}
        self.even: set[str] = set()
        self.powers: dict[str, list[Any]] = {}
        self.rounds = False
        self.static = True
        self.arguments: dict[int, tuple[Any, tuple[Any, ...], tuple[int, ...]]] = {}
        self.bounds: dict[int, tuple[Any, Any]] = {}
        self.chosen = Chosen()
        self.drawn = self.repeats = 0
        self.numbers: dict[float, Any] = {}
        self.written: set[int] = set()
        self.writes_anywhere = False
        self.outside: dict[int, Read] = {}
        self.captured: dict[str, Any] = {}
        self.file = ""
        self.index_dtype: Any = None
        self.has_wide = self.whole = self.detaches = self.reference = False
        self.read: dict[Place, str] = {}
        self.stop: Place | None = None
        self.of_sizes: dict[int, Node] = {}
        self._values: dict[int, Value] = {}
        self._kept: list[Any] = []
        self._stale: set[int] = set()
        self.kept_as_is: dict[int, str] = {}
        self._count = first

    @property
    def on_device(self) -> bool:
        """Whether the body of a loop runs."""
        return self.region is not None and not self.quiet

    @contextmanager
    def silence(self) -> Iterator[None]:
        """PyTorch operations inside are neither recorded nor changed."""
        before, self.quiet = self.quiet, True
        try:
            yield
        finally:
            self.quiet = before

    # --- values ------------------------------------------------------------------------------------

    def fresh(self, tensor: torch.Tensor, dims: tuple[Dim, ...] | None = None) -> Value:
        """A new value for a sample tensor; `dims` are its dimensions where its sizes do not say all of them.

        Raises:
            UnsupportedOperation: its elements are complex.
        """
        if tensor.dtype.is_complex:
            raise exc.UnsupportedOperation(
                f"a tile of {tensor.dtype}: tiles have no complex numbers",
                hint="take the parts apart before the loop: torch.view_as_real(x), with a last dimension of 2",
            )
        value = Value(self._count, self.factors.dims(raw_shape(tensor)) if dims is None else dims, tensor.dtype)
        self._count += 1
        self.bind(tensor, value)
        return value

    def bind(self, tensor: torch.Tensor, value: Value) -> None:
        """From now on `tensor` stands for `value`."""
        self._values[id(tensor)] = value
        self._stale.discard(id(tensor))
        self._kept.append(tensor)

    def change(self, tensor: torch.Tensor, value: Value) -> None:
        """`tensor` was changed in place to `value`: what shares its memory stands for nothing any more.

        Raises:
            ControlFlowTensorMismatch: it is not known which names see that.
        """
        if id(tensor) in self.kept_as_is:
            raise exc.ControlFlowTensorMismatch(
                f"{self.kept_as_is[id(tensor)]} are one tensor in some passes or branches and two in others, and one "
                "is changed in place here",
                hint="make a tensor of its own: b = a.clone(), or a = a + x in place of a += x",
            )
        memory = tensor.untyped_storage().data_ptr()
        for other in self._kept:
            if other is not tensor and id(other) in self._values and other.untyped_storage().data_ptr() == memory:
                del self._values[id(other)]
                self._stale.add(id(other))
        self.bind(tensor, value)

    def value(self, tensor: torch.Tensor) -> Value | None:
        """The value that a sample tensor stands for, if any.

        Raises:
            ChangedThroughView: memory that it shares was changed in place since it was made.
        """
        if id(tensor) in self._stale:
            raise exc.ChangedThroughView(
                "this tensor shares memory with one that was changed in place after it was made",
                hint="write x = x + y for x += y or x.add_(y), or make the view anew after the change",
            )
        return self._values.get(id(tensor))

    def sample(self, value: Value) -> Any:
        """A fresh sample tensor with the dimensions and type of `value`, standing for nothing yet."""
        return sample_of(self, (self.extent_of(dim) for dim in value.dims), value.dtype)

    def extent_of(self, dim: Dim) -> int:
        """The extent of a dimension in samples."""
        extent = dim.static
        for atom in dim.atoms:
            atom = cut_atom(atom)
            extent *= next(prime for prime, known in self.factors.atoms.items() if known == atom)
        return int(extent)

    def snapshot(self) -> tuple[Any, ...]:
        """The state to which a discarded pass over a loop body returns."""
        counts = len(self.axes), len(self.slots), self._count, self.sampling.taken, self.drawn
        return dict(self._values), dict(self.factors.atoms), dict(self.kept_as_is), counts

    def restore(self, snapshot: tuple[Any, ...]) -> None:
        """Forget what was recorded since `snapshot`; samples stay alive, so that identities stay unique."""
        values, atoms, kept, (axes, slots, self._count, self.sampling.taken, self.drawn) = snapshot
        self._values, self.kept_as_is = dict(values), dict(kept)
        self._stale -= values.keys()
        self.factors.reset(atoms)
        del self.axes[axes:], self.slots[slots:]

    def bindings(self) -> dict[int, Value]:
        """What every sample stands for now."""
        return dict(self._values)

    def rebind(self, bindings: dict[int, Value]) -> None:
        """Samples that `bindings` knows stand for what they stood for then."""
        self._values.update(bindings)
        self._stale -= bindings.keys()

    # --- nodes -------------------------------------------------------------------------------------

    def record(
        self, op: str, args: Any, samples: Any, kwargs: dict[str, Any] | None = None, compute: Any = None
    ) -> Any:
        """Append a node; its results are the tensors in `samples`, which is returned."""
        assert self.region is not None
        node = Node(op, tuple(self.lift(arg) for arg in args), {}, self.line, compute=compute)
        node.kwargs = {name: self.lift(arg) for name, arg in (kwargs or {}).items()}
        if self.numbers:
            _check_numbers(node, samples)
        self.region.nodes.append(node)
        for tensor in samples if isinstance(samples, tuple | list) else (samples,):
            if isinstance(tensor, torch.Tensor):
                node.outs.append(
                    self.fresh(
                        tensor,
                        self.chosen.lanes_of(node, self.factors.dims(raw_shape(tensor)), self.axes, self.axis_of),
                    )
                )
        if op in ("sym", "compare", "eq", "ne", "lt", "le", "gt", "ge"):
            self.of_sizes[node.outs[0].id] = node
        return samples

    def lift(self, arg: Any) -> Any:
        """An argument as the graph holds it: values for tensors, constants as they are."""
        if isinstance(arg, list | tuple):
            return [self.lift(item) for item in arg]
        if not isinstance(arg, torch.Tensor):
            known = self.numbers.get(arg.real) if isinstance(arg, float) else None
            return arg if known is None else known.held
        value = self.value(arg)
        if value is not None:
            return value
        if self.is_host(arg):
            name = self.hosts[id(arg)].text if id(arg) in self.hosts else "a tensor of the host"
            raise exc.HostTensorDirectUsage(
                f"{name} is a whole tensor of the host; a loop can only use parts of it",
                hint=f"subscript it, for instance {name}[tile]; its views (view, reshape, T) are made before the loop",
            )
        if arg.dim() == 0:
            with self.silence():
                return self.lift(arg.item())
        raise exc.UnsupportedPythonType(
            "a tensor that was made neither by this kernel's loops nor on its host side",
            hint="make tensors by torch.empty, torch.zeros and the like; those of NumPy's arrays (torch.from_numpy) "
            "are arguments of the kernel",
        )

    def scalar(self, symbol: Sym) -> Any:
        """A symbol as a 0-d tensor."""
        with self.silence():
            stands_for = symbol.sample if abs(symbol.sample) < 1 << 63 else 1  # only its type is read
            made = torch.full((), stands_for, dtype=torch.int64, device="cpu")
        return self.record("sym", (symbol,), made)

    def valid(self, dim: Dim) -> Any:
        """How many lanes of a dimension are valid: a number or a symbol.

        Raises:
            UnsupportedOperation: the number differs from row to row.
        """
        total: Any = dim.static
        for atom in dim.atoms:
            block, by = part_of(atom) or (atom, 1)
            axis = self.axis_of(block)
            atom = cut_atom(atom)
            if axis is not None and axis.kind == "jagged":
                raise exc.UnsupportedOperation(
                    f"how many elements {axis.name} has differs from row to row", hint="divide a sum by the lengths"
                )
            total = (Sym.of(atom) if axis is None else Sym.of(axis.valid) // by) * total
        return total

    def axis_of(self, atom: Atom) -> Axis | None:
        """The axis of an open loop whose block size `atom` is: several loops may share one, each at its time."""
        axes = (axis for loop in reversed(self.loops) for axis in loop.kwargs["axes"])
        return next((axis for axis in axes if axis.size == atom), None)

    def number(self, number: Any) -> Any:
        """A number or symbol as a 0-d tensor with the type that PyTorch gives it."""
        if isinstance(number, Sym):
            return self.scalar(number)
        dtype = torch.bool if isinstance(number, bool) else torch.int64 if isinstance(number, int) else torch.float32
        with self.silence():
            made = torch.full((), number, dtype=dtype, device="cpu")
        return self.record("full", (number,), made)

    # --- tensors of the host ---------------------------------------------------------------------------

    def is_host(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is the host's: an argument, made of them, or found outside."""
        return tensor.is_meta or id(tensor) in self.outside

    def host(self, tensor: torch.Tensor) -> HostTensor | None:
        """What kernels see of a tensor of the host; of one found outside an argument is made at its first use."""
        found = self.hosts.get(id(tensor))
        read = self.outside.get(id(tensor))
        if found is None and read is not None:
            words = re.findall(r"\w+", read.text.replace("cell_contents", ""))
            name = f"outer_{words[-1] if words else ''}_{len(self.hosts)}"
            text = read.text if read.live else name
            if not read.live:
                self.captured[name] = tensor
            layout = tuple(tensor.shape), tuple(tensor.stride())
            found = HostTensor(name, text, *layout, held(tensor.dtype), self.has_wide)
            self.hosts[id(tensor)] = found
        return found

    # --- axes ----------------------------------------------------------------------------------------

    def add_axis(self, name: str, kind: str, begin: Any, end: Any, block: Any, top: bool) -> Axis:
        """A new axis with a prime of its own and, where the configuration sizes it, a slot."""
        axis = Axis(len(self.axes), name, kind, begin, end, block, None, 1, self.sampling.extent(), top)
        if isinstance(block, Sym) and (one := block.atom) is not None and one.kind != "op":
            axis.shared = one
            axis.prime, axis.multiple = one.sample, self.multiples.get(one.written, 1)
        elif type(block) is int and (block == 1 or axis.size.written in self.even):
            axis.prime = block  # a fact of the program: one lane broadcasts, and `squeeze` removes it
        elif kind != "grid":
            axis.multiple = self.multiples.get(axis.size.written, 1)
            axis.prime = self.sampling.axis() * axis.multiple
            self.factors.add(axis.prime, axis.size)
            for _, part in axis.parts:  # behind the block itself: the larger factor is the one that an extent has
                self.factors.add(part.sample, part)
                self.chosen.has_parts = True
            if block is None:
                axis.slot = len(self.slots)
                self.slots.append(axis)
        self.axes.append(axis)
        return axis

    def host_symbol(self, name: str, text: str, actual: int | None = None) -> Any:
        """A number that the launcher knows, as a symbol, or the number itself where it is a constant.

        Args:
            name: the kernel's parameter.
            text: expression of the launcher.
            actual: what it is in the call that binds the kernel.
        """
        first = self.equal.get(text, text)
        if first in self.fixed:
            return self.fixed[first]
        if first in self.host_symbols:  # a check of the host says that they are equal
            return self.host_symbols[first]
        prime = self.sampling.extent()
        atom = Atom("host", name, text, sample=prime)
        self.factors.add(prime, atom)
        self.actual[atom] = actual
        self.host_symbols[first] = Sym.of(atom)
        return self.host_symbols[first]

    def tunable(self, name: str, fragment: Any) -> Sym:
        """A number that the configuration chooses among the values of a fragment."""
        self.tunables[name] = fragment
        prime = self.sampling.extent()
        atom = Atom("tunable", name, name, sample=prime)
        self.factors.add(prime, atom)
        self.chosen.sizes.add(atom)
        return Sym.of(atom)

    def decide(self, value: Any) -> int:
        """The number that a symbol of the host is in the call that binds; other numbers bind anew.

        Raises:
            Fixed: it is one number of the host, which the samples do not have yet.
            SpecializeArgType: the binding call does not determine it.
        """
        found = substitute(value, self.actual.get)
        if isinstance(found, Sym):
            raise exc.SpecializeArgType(
                f"{value!r} is not determined by the arguments", hint="specialize sizes, strides and integer arguments"
            )
        if isinstance(value, Sym) and (atom := value.atom) is not None and atom.kind == "host":
            raise Fixed(atom.text, int(found))
        self.guards.append((show(value), int(found)))
        return int(found)


def raw_shape(tensor: torch.Tensor) -> tuple[int, ...]:
    """The plain sizes of a tensor, past any mode."""
    with torch._C.DisableTorchFunction():
        return tuple(tensor.shape)


def _check_numbers(node: Node, samples: Any) -> None:
    """Refuse numbers of the launcher where the code depends on them, or more than float32 is needed.

    Raises:
        ConstantNeeded: they must be constants.
    """
    if any(isinstance(leaf, HostNumber) for leaf in leaves(node.kwargs)):
        raise exc.ConstantNeeded(f"the code of {node.op} depends on a number of the host")
    if not any(isinstance(leaf, HostNumber) for leaf in leaves(node.args)):
        return
    made = samples if isinstance(samples, tuple | list) else (samples,)
    types = {node.compute, *(one.dtype for one in made if isinstance(one, torch.Tensor))}
    types |= {value.dtype for value in values(node.args)}
    if torch.float64 in types:
        raise exc.ConstantNeeded(
            "a number of the host takes part in float64, and numbers that kernels get are float32",
            hint="make it a constant with hl.constexpr or hl.specialize, or pass it as a tensor",
        )


def memory_of(tensor: torch.Tensor) -> int:
    """The identity of the memory that a tensor and its views share."""
    with torch._C.DisableTorchFunction():
        return int(tensor.untyped_storage()._cdata)


def place_of(trace: Trace) -> Place | None:
    """The place of the expression of the kernel's own text that runs now; None in functions that it calls."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != trace.file:
        frame = frame.f_back
    if frame is None or frame.f_code.co_name != "<module>":  # no statement of the kernel
        return None
    line, end_line, column, end_column = list(frame.f_code.co_positions())[frame.f_lasti // 2]
    place = line, end_line, column, end_column
    return None if None in place else place


def current() -> Trace | None:
    """The trace that runs in this thread."""
    return getattr(_LOCAL, "trace", None)


def running_trace(what: str) -> Trace:
    """The running trace, for a function that may only be called inside a kernel.

    Raises:
        NotInsideKernel: nothing is traced.
    """
    trace = current()
    if trace is None:
        raise exc.NotInsideKernel(
            f"{what} means something only inside a function with @hl.kernel",
            hint="decorate the function with @hl.kernel; with @tilewright.jit it has the functions of "
            "tilewright.language",
        )
    return trace


def device_trace(what: str) -> Trace:
    """The running trace, for a function that may only be called inside a loop.

    Raises:
        NotInsideKernel: nothing is traced.
        DeviceAPIOnHost: host code runs.
    """
    trace = running_trace(what)
    if trace.region is None:
        raise exc.DeviceAPIOnHost(f"{what} works on tiles and must stand inside a loop over tiles")
    return trace


@contextmanager
def tracing(trace: Trace) -> Iterator[None]:
    """`trace` is the running one inside."""
    before = current()
    _LOCAL.trace = trace
    try:
        yield
    finally:
        _LOCAL.trace = before
