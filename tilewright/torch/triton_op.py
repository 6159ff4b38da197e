"""`triton_op`: a function that launches kernels as an operator of PyTorch.

The function is its own fake kernel and its own decomposition: compilers see the launches inside and fuse around them,
exports keep the operator whole. `TileOp` is what the user holds:

    op(x) or torch.ops.lib.name(x) in eager, plain tensors, nobody looks on   -> the function at once
    op(x) while Dynamo traces                        -> the twin  lib::name__<hash of its kernels>
    otherwise                                        -> the dispatcher

Caches of compiled graphs know an operator by its name alone, so the twin's name holds what its kernels are: an edited
kernel is another operator to them.
"""

from __future__ import annotations

import functools
import hashlib
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, overload

import torch
from torch._library.custom_ops import OPDEFS
from torch._subclasses import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
from torch.compiler import is_dynamo_compiling

from tilewright.base.callable import by_number, give_number
from tilewright.base.errors import ArgumentError
from tilewright.frontend.hashing import lasting_hash
from tilewright.hl import Kernel
from tilewright.hl.runtime.loaded import GENERATED
from tilewright.hl.runtime.tracer_slot import transform
from tilewright.launch.interface import KernelInterface
from tilewright.launch.jit import JITFunction
from tilewright.launch.native.operators import Unobserved
from tilewright.torch import discovery
from tilewright.torch.arguments import untraced
from tilewright.torch.derived import derive_gradients
from tilewright.torch.discovery import kernels_in
from tilewright.torch.gradients import with_gradients
from tilewright.torch.hl_operators import content_of
from tilewright.torch.mutation import Writes, writes_in_trial
from tilewright.torch.overload import make_quick
from tilewright.torch.registrations import Registrations
from tilewright.torch.schemas import check_results, make_schema
from tilewright.torch.signature import base_of
from tilewright.torch.state import doing

try:  # private: without it operators stay whole where they might be opened, which is correct too
    from torch.export._trace import custom_triton_ops_decomposition_disabled as _stays_whole
except ImportError:

    def _stays_whole() -> bool:
        return True


log = logging.getLogger("tilewright.torch")
_TAGS = (torch.Tag.pt2_compliant_tag,)
_Tensor, _Parameter = torch.Tensor, torch.nn.Parameter
_NUMBERS = frozenset({int, float, bool, str, type(None), torch.dtype, torch.device})
_dispatch_modes: Callable[[], int] = torch._C._len_torch_dispatch_stack
_function_modes: Callable[[], int] = torch._C._len_torch_function_stack
_autocast: Callable[[], bool] = torch._C._is_any_autocast_enabled
_grad_enabled: Callable[[], bool] = torch._C.is_grad_enabled
_set_grad_enabled: Callable[[bool], None] = torch._C._set_grad_enabled
OPERATORS: dict[str, TileOp] = {}


class TileOp(Registrations):
    """An operator that launches kernels; call it like the function.

    Args:
        name: "library::name".
        fn: the function: it allocates, launches, and returns tensors, and can be traced.
        mutates_args: names of the arguments that it changes.
        schema: "(Tensor x, float eps) -> Tensor"; made of the annotations by default.

    Attributes:
        number: tells it from every other operator of this process.
        known: the kernels that it launches, by number; `kernels()` fills it.
    """

    def __init__(
        self, name: str, fn: Callable[..., Any], mutates_args: str | Iterable[str], schema: str | None
    ) -> None:
        functools.update_wrapper(self, fn)
        self.name, self.fn = name, fn
        self.number = give_number(self)
        self.mutates_args = mutates_args if isinstance(mutates_args, str) else tuple(mutates_args)
        self.schema = make_schema(name, fn, self.mutates_args, schema)
        super().__init__(*_split(name), fn, self.schema)
        self.known: dict[str, KernelInterface[Any]] = {}
        self._searched = False
        self._twins: list[str] = []
        self._checked = False  # whether it has run
        parsed = torch._C.parse_schema(f"{name}{self.schema}")
        self._floats = [(at, a.name) for at, a in enumerate(parsed.arguments) if "float" in str(a.type)]
        self._replaced = False  # whether some device has another function
        self._direct = False  # whether it has run, and is the same for all devices
        floats = [at for at, _ in self._floats]
        self._unobserved = Unobserved(fn, self._observed, floats)
        self._call: Callable[..., Any] = self._unobserved.call or self._observed
        self.overload: Any = None
        self._autograd: Callable[..., Any]
        self._reported: set[str] = set()
        watch = writes_in_trial(parsed, name, fn, self)
        if watch is not None:
            self._report_unwritten(watch)

    def define(self, before: TileOp | None) -> None:
        """Make it known to PyTorch.

        Args:
            before: the operator of this name, whose place it takes. Objects of PyTorch that users hold point to a
                definition, so one that fits is kept.
        """
        if before is not None and before.schema == self.schema and not before._registrations:
            self._lib, self.overload, self._twins = before._lib, before.overload, before._twins
            self._autograd = with_gradients(self.overload, self)
        else:
            if before is not None:
                before.retire()
            self._autograd = self._define(self.name)
            self.overload = getattr(getattr(torch.ops, self._namespace), self._name).default
        OPDEFS[self.name] = self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if is_dynamo_compiling():
            if torch.compiler.is_exporting():
                return getattr(getattr(torch.ops, self._namespace), self._name).default(*args, **kwargs)
            return getattr(getattr(torch.ops, self._namespace), _twin_of(self.number)).default(*args, **kwargs)
        return self._call(*args, **kwargs)

    def _observed(self, *args: Any, **kwargs: Any) -> Any:
        """A call in eager mode, as far as machine code did not make it."""
        if _function_modes() or _autocast():
            return self.overload(*args, **kwargs)
        return self._unless_observed(self.overload, args, kwargs)

    def _unless_observed(self, otherwise: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function; or `otherwise`, where autograd, a mode, a transform or a subclass would see more.

        This is what a call of `torch.ops.lib.name` costs, so it is written out.
        """
        if not self._direct or _dispatch_modes() or transform() is not None:
            return otherwise(*args, **kwargs)
        gradients = _grad_enabled()
        for value in (*args, *kwargs.values()) if kwargs else args:
            cls = value.__class__
            if cls is _Tensor or cls is _Parameter:
                if gradients and value.requires_grad:
                    return otherwise(*args, **kwargs)
            elif cls not in _NUMBERS and isinstance(value, (_Tensor, list, tuple, dict)):
                return otherwise(*args, **kwargs)
        for at, name in self._floats:  # the dispatcher makes floats of integers
            if (args[at] if at < len(args) else kwargs.get(name)).__class__ is int:
                return otherwise(*args, **kwargs)
        if gradients:  # of its tensors none wants one, and others that it reads get none through an operator
            _set_grad_enabled(False)
        try:
            return self.fn(*args, **kwargs)
        finally:
            if gradients:
                _set_grad_enabled(True)

    # --- what it is made of ---------------------------------------------------------------------------------------

    def kernels(self) -> list[Any]:
        """The kernels that it launches, as far as they were found in its source or were launched."""
        if not self._searched:
            self._searched = True
            self.known.update({_number_of(kernel): kernel for kernel in kernels_in(self.fn)})
        return list(self.known.values())

    def launched(self, kernel: JITFunction) -> None:
        """Note that `kernel` is launched inside; report it once if it was not found before."""
        self.kernels()
        if kernel.number in self.known:
            return
        if kernel.fn.__globals__.get("__name__") == GENERATED:  # a kernel of `tilewright.hl` launches it
            return
        self.known[kernel.number] = kernel
        log.warning(
            "operator %s launches kernel `%s`, which was not found in its source: graphs compiled before an edit of "
            "the kernel are found again in caches, and fail\nhint: call it by a global or local name",
            self.name,
            kernel.fn.__name__,
        )

    def content(self) -> str:
        """Hash of its kernels."""
        digests = sorted(map(_content_of, self.kernels()))
        return hashlib.sha256("".join(digests).encode()).hexdigest()[:12]

    def twin(self) -> str:
        """Short name of the operator that Dynamo calls."""
        name = f"{self._name}__{self.content()}"
        if name in self._twins:
            OPERATORS[f"{self._namespace}::{name}"] = self
        else:
            self._twins.append(name)
            self._define(f"{self._namespace}::{name}")
            for register in self._registrations:
                register(f"{self._namespace}::{name}")
        return name

    def retire(self) -> None:
        """Take the operator out of PyTorch, because another takes its place."""
        self._lib._destroy()

    # --- registrations ----------------------------------------------------------------------------------------------

    def _define(self, qualified: str) -> Callable[..., Any]:
        """Define an operator that does what the operator of this name does by then; its autograd implementation."""

        def current() -> TileOp:
            return OPERATORS.get(qualified, self)

        short = _split(qualified)[1]
        self._lib.define(f"{short}{self.schema}", tags=_TAGS)
        self._lib.impl(short, lambda *args, **kwargs: current()._run(*args, **kwargs), "CompositeExplicitAutograd")
        torch.library.register_fake(qualified, lambda *args, **kwargs: current()._fake(*args, **kwargs), lib=self._lib)
        torch.library.register_torch_dispatch(
            qualified, FunctionalTensorMode, lambda *args: current()._decompose(*args), lib=self._lib
        )

        packet = getattr(getattr(torch.ops, self._namespace), short)
        mine = with_gradients(packet.default, self)

        def autograd(keys: Any, *args: Any, **kwargs: Any) -> Any:
            op = current()
            return (mine if op is self else op._autograd)(keys, *args, **kwargs)

        def unless_observed(otherwise: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return OPERATORS.get(qualified, self)._unless_observed(otherwise, args, kwargs)

        self._lib.impl(short, autograd, "Autograd", with_keyset=True)
        make_quick(packet, unless_observed)
        return mine

    def _replace(self) -> None:
        self._replaced = True
        self._allow(at_once=False)

    # --- what the dispatcher calls ----------------------------------------------------------------------------------

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        if self._init_fn is not self.fn:  # another serves all devices
            return self._init_fn(*args, **kwargs)
        with torch.no_grad(), doing(not self._checked, self):
            return self.fn(*args, **kwargs) if self._checked else self._run_checked(*args, **kwargs)

    def _fake(self, *args: Any, **kwargs: Any) -> Any:
        if self._abstract_fn is not None:
            return self._abstract_fn(*args, **kwargs)
        with doing(True, self):
            return self.fn(*args, **kwargs) if self._checked else self._run_checked(*args, **kwargs)

    def _run_checked(self, *args: Any, **kwargs: Any) -> Any:
        """The first run: what it writes is held against `mutates_args`."""
        with Writes(self.overload._schema, self.name, args, kwargs) as watch:
            found = self.fn(*args, **kwargs)
        check_results(self.overload._schema, self.name, found)
        self._checked = True
        self._allow(at_once=not self._replaced)
        self._report_unwritten(watch)
        return found

    def _allow(self, *, at_once: bool) -> None:
        self._direct = at_once
        self._unobserved.allow(at_once)

    def _report_unwritten(self, watch: Writes) -> None:
        """Say once of each argument declared to change that it was not written."""
        for argument in set(watch.unwritten()) - self._reported if self.mutates_args != "unknown" else ():
            self._reported.add(argument)
            log.warning("operator %s declares to change `%s`, but did not write it", self.name, argument)

    def _decompose(self, mode: Any, op: Any, types: Sequence[type], args: Any, kwargs: Any) -> Any:
        if self._replaced or _stays_whole():
            return mode.__torch_dispatch__(op, types, args, kwargs)
        known = (torch.Tensor, torch.nn.Parameter, FunctionalTensor)
        if any(not issubclass(kind, FakeTensor) and kind not in known for kind in types):
            return NotImplemented
        with mode, doing(True, self):
            return self.fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<TileOp {self.name}>"


def _number_of(kernel: Any) -> str:
    return kernel.number if isinstance(kernel, Kernel) else base_of(kernel).number


def _content_of(kernel: Any) -> str:
    return content_of(kernel) if isinstance(kernel, Kernel) else lasting_hash(base_of(kernel))


def _split(name: str) -> tuple[str, str]:
    library, separator, short = name.partition("::")
    if not (separator and library.isidentifier() and short.isidentifier()):
        raise ArgumentError(f"{name!r} names no operator", hint='write "library::name"')
    return library, short


@untraced
def _twin_of(number: str) -> str:
    op: TileOp = by_number(number)
    return op.twin()


@overload
def triton_op(
    name: str,
    fn: None = None,
    /,
    *,
    mutates_args: str | Iterable[str],
    schema: str | None = None,
    autograd: bool = False,
) -> Callable[[Callable[..., Any]], TileOp]: ...
@overload
def triton_op(
    name: str,
    fn: Callable[..., Any],
    /,
    *,
    mutates_args: str | Iterable[str],
    schema: str | None = None,
    autograd: bool = False,
) -> TileOp: ...
def triton_op(
    name: str,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    mutates_args: str | Iterable[str],
    schema: str | None = None,
    autograd: bool = False,
) -> Any:
    """Make a function that launches kernels an operator of PyTorch; use it as a decorator, or call it with `fn`.

    Args:
        name: "library::name"; it is `torch.ops.library.name` afterwards.
        fn: a function of tensors and numbers, annotated with their types, that can be traced: `make_fx` follows it.
        mutates_args: names of the arguments that it changes in place, or "unknown" for all.
        schema: text of the operator's schema, "(Tensor x) -> Tensor"; by default of the annotations.
        autograd: derive the backward from the kernels that it launches and the operators of PyTorch around them.

    Raises:
        ArgumentError: the name is none, or it is taken; or `autograd` for an operator that changes arguments.
    """
    if fn is None:
        return functools.partial(_make, name, mutates_args=mutates_args, schema=schema, autograd=autograd)
    return _make(name, fn, mutates_args=mutates_args, schema=schema, autograd=autograd)


def _make(
    name: str, fn: Callable[..., Any], *, mutates_args: str | Iterable[str], schema: str | None, autograd: bool
) -> TileOp:
    before = OPERATORS.get(name)
    if before is None:
        library, short = _split(name)
        if hasattr(getattr(torch.ops, library), short):
            raise ArgumentError(f"there is an operator {name} already", hint="give this one another name")
    elif (before.fn.__module__, before.fn.__qualname__) != (fn.__module__, fn.__qualname__):
        raise ArgumentError(
            f"there is an operator {name} already, made of {before.fn.__module__}.{before.fn.__qualname__}",
            hint="give this one another name",
        )
    if autograd and mutates_args:
        raise ArgumentError(
            f"operator {name} changes arguments, so it has no backward",
            hint="return a new tensor: a backward sees what was passed",
        )
    op = TileOp(name, fn, mutates_args, schema)
    op.define(before)  # where there is one, a cell of a notebook, or a module, was run anew
    OPERATORS[name] = op
    if autograd:
        derive_gradients(op)
    return op


def wrap_triton(kernel: Any, /) -> Any:
    """Check that `kernel` can be launched inside of a `triton_op`; launches are recorded with or without this.

    Args:
        kernel: a kernel, an autotuned one, or one with heuristics.

    Returns:
        The kernel.

    Raises:
        RuntimeError: something else was given.
    """
    if isinstance(kernel, KernelInterface):
        return kernel
    raise KernelExpectedError(
        f"wrap_triton takes a kernel made by tilewright.jit, autotune or heuristics, got {type(kernel).__name__}",
        hint="pass the kernel itself, without a grid",
    )


class KernelExpectedError(ArgumentError, RuntimeError):
    """Something else was given where a kernel is needed."""


capture_triton = wrap_triton


def get_triton_kernels_for_op(name: str) -> list[Any]:
    """The kernels that the operator `name` launches; none if `triton_op` made no such operator.

    Args:
        name: "library::name", or the name of its twin.
    """
    op = _by_name(name)
    return [] if op is None else op.kernels()


def _by_name(name: str) -> TileOp | None:
    return OPERATORS.get(name) or OPERATORS.get(name.rpartition("__")[0])


discovery.operator_body = _by_name
