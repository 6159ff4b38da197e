"""Gradients of kernels of `tilewright.hl` where PyTorch sees an operator: the backward pass is an operator of its own.

    softmax_9b1d...(Tensor p0) -> Tensor
    softmax_9b1d..._backward_0(Tensor p0, Tensor made0, Tensor grad0) -> Tensor

The number says which values want gradients, one bit each. It takes the values of the call, what the call has made, and
the gradients of that. The host code of the kernel runs again in it, and loops do where it needs what is neither.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch._subclasses import FakeTensorMode
from torch.compiler import is_exporting
from torch.fx.experimental.proxy_tensor import make_fx

from tilewright.hl import exc
from tilewright.hl.grad import again
from tilewright.hl.runtime.gradient_slot import no_tangents, wants
from tilewright.hl.runtime.tracer_slot import transform
from tilewright.torch import hl_operators
from tilewright.torch.gradients import below_autograd
from tilewright.torch.hl_operators import OPERATORS, HlOperator, aside, batched, form_of, refuse_dynamic
from tilewright.torch.operators import LIBRARY, TAGS, begun
from tilewright.torch.overload import DirectOverload, make_direct
from tilewright.torch.packing import pack
from tilewright.torch.signature import NAMESPACE

_below: Any = torch._C._after_autograd_keyset
_transforms: Callable[[], Any] = torch._C._functorch.get_interpreter_stack
_FUNCTIONALIZE = torch._C._functorch.TransformType.Functionalize
_MIDDLE = "_backward_"
_derived: set[Any] = set()


class WatchedOverload(DirectOverload):
    """An overload that transforms of `torch.func` see as a function with a derivative.

    Attributes:
        transformed: is called with its arguments where a transform is active.
    """

    __module__ = DirectOverload.__module__
    transformed: Callable[..., Any]

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if transform() is not None and not kwargs:
            return self.transformed(*args)
        return DirectOverload.__call__(self, *args, **kwargs)


class Call(torch.autograd.Function):  # type: ignore[misc]  # torch is not checked
    """The call of an operator, for autograd and the transforms of `torch.func`."""

    @staticmethod
    def forward(name: str, *values: Any) -> Any:
        """Call the operator."""
        return OPERATORS[name].overload(*values)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Keep the values and what the call has made."""
        name, *values = inputs
        made = _several(output)
        ctx.name, ctx.count = name, len(values)
        ctx.numbers = [None if isinstance(value, torch.Tensor) else value for value in values]
        ctx.save_for_backward(*(value for value in values if isinstance(value, torch.Tensor)), *made)
        ctx.mark_non_differentiable(*(one for one in made if not one.is_floating_point()))

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Call the operator of the backward pass."""
        saved = list(ctx.saved_tensors)
        values = [saved.pop(0) if number is None else number for number in ctx.numbers]
        wanted = tuple(at for at in range(ctx.count) if ctx.needs_input_grad[at + 1])
        ups = [grad if made.is_floating_point() else made for made, grad in zip(saved, grads, strict=True)]
        found = _several(_backward(ctx.name, wanted)(*values, *saved, *ups))
        by = dict(zip(wanted, found, strict=True))
        return None, *(by.get(at) for at in range(ctx.count))

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        """Refuse."""
        raise no_tangents(f"the operator {ctx.name}")

    @staticmethod
    def vmap(info: Any, in_dims: Any, name: str, *values: Any) -> Any:
        """One call after another."""
        return batched(OPERATORS[name].overload, OPERATORS[name].count, info, in_dims[1:], values)


class Twice(torch.autograd.Function):  # type: ignore[misc]  # torch is not checked
    """The call of an operator of a backward pass, whose own gradient is not derived."""

    @staticmethod
    def forward(name: str, *values: Any) -> Any:
        """Call the operator."""
        return _overload(name)(*values)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Keep nothing."""
        ctx.name = inputs[0]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Refuse."""
        raise exc.DoubleBackward(
            f"the gradient of {ctx.name}, which is itself a gradient, is not derived",
            hint="call loss.backward() without create_graph=True, or compute this part in PyTorch",
        )

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        """Refuse."""
        raise no_tangents(f"the operator {ctx.name}")

    @staticmethod
    def vmap(info: Any, in_dims: Any, name: str, *values: Any) -> Any:
        """One call after another."""
        return batched(_overload(name), _wanted(name)[1].bit_count(), info, in_dims[1:], values)


# --- the forward operator ---------------------------------------------------------------------------------------------


def watch(name: str, call: Callable[..., Any]) -> None:
    """See to the gradients of an operator.

    Args:
        name: of the operator, which was just defined.
        call: what it does below autograd.
    """
    overload = _overload(name)

    def called(*values: Any) -> Any:
        if not is_exporting():  # a program whose gradients may never be asked for
            _derive(OPERATORS[name], values)
        return Call.apply(name, *values)

    def transformed(*values: Any) -> Any:
        operator = OPERATORS[name]
        if {level.key() for level in _transforms() or ()} <= {_FUNCTIONALIZE}:  # which knows no functions
            return overload._op(*values)
        if _has_gradient(operator, values):
            return called(*values)
        plain = operator.kernel.backward is None or operator.written  # else a level below may want a gradient
        return overload._op(*values) if plain else Call.apply(name, *values)

    def watched(keys: Any, *values: Any) -> Any:
        if _has_gradient(OPERATORS[name], values):
            return called(*values)
        with below_autograd():
            return overload.redispatch(keys & _below, *values)

    def direct(*values: Any) -> Any:
        return overload._op(*values) if _are_wanted(values) else call(*values)

    LIBRARY.impl(name, watched, "Autograd", with_keyset=True)
    _make_watched(overload, direct, transformed)


def _make_watched(overload: Any, direct: Callable[..., Any], transformed: Callable[..., Any]) -> None:
    make_direct(overload, direct)
    overload.__class__ = WatchedOverload
    overload.transformed = transformed


def _has_gradient(operator: HlOperator, values: Sequence[Any]) -> bool:
    """Whether a call is one that autograd watches."""
    if operator.kernel.backward is None or (operator.written and is_exporting()):
        return False
    return _are_wanted(values)


def _are_wanted(values: Sequence[Any]) -> bool:
    return torch.is_grad_enabled() and any(map(wants, values))


def _derive(operator: HlOperator, values: Sequence[Any]) -> None:
    """Derive the backward pass of a call, so that errors are the call's.

    Raises:
        NotDifferentiable: there is none, or not for an operator.
    """
    wanted = tuple(map(wants, values))
    key = operator.name, wanted, *map(_key, values)
    if key in _derived:
        return
    forms = [form_of(value) for value in values]

    def derive() -> None:
        with FakeTensorMode() as mode:
            made = [form() for form in forms]
        for at, value in enumerate(made):
            if wanted[at]:
                value.requires_grad_()
        args = operator.arguments(*made)
        _refuse(operator, args)
        again.check(operator.kernel, args, mode)

    aside(derive)
    _derived.add(key)


def _key(value: Any) -> Any:
    """What of a value a derivation depends on."""
    if isinstance(value, torch.Tensor):
        return value.dtype, value.device, str(value.shape), str(value.stride())
    return str(value)


def _refuse(operator: HlOperator, args: tuple[Any, ...]) -> None:
    """Refuse what a loop can give a gradient, and an operator cannot."""
    kernel = operator.kernel
    reason = ""
    if operator.written:
        reason, hint = f"writes {operator.names[operator.written[0]]}", "write a fresh tensor, and return it"
    if operator.is_random:
        reason, hint = "draws random numbers", "draw with hl.rand(shape, seed)"
    if any(wants(read.value) for read in kernel.found(args).outside):
        reason, hint = "reads a tensor from outside that requires a gradient", "pass it as an argument"
    if reason:
        raise exc.NotDifferentiable(
            f"kernel `{kernel.name}` {reason}: as an operator of PyTorch it has no gradient",
            kernel.source.location(kernel.source.tree),
            hint=hint,
        )


# --- the operator of the backward pass --------------------------------------------------------------------------------


def _overload(name: str) -> Any:
    return getattr(getattr(torch.ops, NAMESPACE), name).default


def _backward(name: str, wanted: Sequence[int]) -> Any:
    """The operator of the backward pass of `name` for the values with these numbers."""
    own = f"{name}{_MIDDLE}{sum(1 << at for at in wanted):x}"
    if own not in begun:
        define(own)
    return _overload(own)


def _wanted(own: str) -> tuple[str, int]:
    """(name of the forward operator, the bits of what wants gradients)."""
    name, _, bits = own.rpartition(_MIDDLE)
    return name, int(bits, 16)


def define(own: str) -> bool:
    """Define the operator of a backward pass by its name.

    Returns:
        False where `own` is not such a name.
    """
    try:
        name, bits = _wanted(own)
        _overload(name)
    except (ValueError, AttributeError):
        return False
    operator = OPERATORS[name]
    places = [at for at in range(len(operator.leaves)) if bits >> at & 1]
    begun.add(own)
    fields = [f"{kind} p{at}" for at, (_, kind) in enumerate(operator.leaves)]
    fields += [f"Tensor made{at}" for at in range(operator.count)]
    fields += [f"Tensor grad{at}" for at in range(operator.count)]
    results = ", ".join(["Tensor"] * len(places))
    LIBRARY.define(f"{own}({', '.join(fields)}) -> {results if len(places) == 1 else f'({results})'}", tags=TAGS)
    _register(own, name, places)
    return True


def _register(own: str, name: str, places: list[int]) -> None:
    """Define what the operator of a backward pass does."""

    def call(*values: Any, traced: bool = False) -> Any:
        operator = OPERATORS[name]
        count = len(operator.leaves)
        given = [v.detach() if isinstance(v, torch.Tensor) else v for v in values[:count]]
        leaves = [given[at].requires_grad_() for at in places]
        made, ups = values[count : count + operator.count], values[count + operator.count :]
        found = again.gradients(operator.kernel, operator.arguments(*given), made, leaves, ups, traced=traced)
        return _tuple([_fresh(leaf, grad) for leaf, grad in zip(leaves, found, strict=True)])

    def fake(*values: Any) -> Any:
        return _tuple([torch.empty_like(values[at]) for at in places])

    def watched(keys: Any, *values: Any) -> Any:
        if _are_wanted(values):
            return Twice.apply(own, *values)
        return _overload(own).redispatch(keys & _below, *values)  # not below autograd, which `call` uses

    LIBRARY.impl(own, call, "CompositeExplicitAutograd")
    LIBRARY.impl(own, watched, "Autograd", with_keyset=True)
    overload = _overload(own)
    _make_watched(overload, overload._op, lambda *values: Twice.apply(own, *values))
    torch.library.register_fake(f"{NAMESPACE}::{own}", fake, lib=LIBRARY)
    batch = lambda info, in_dims, *values: batched(_overload(own), len(places), info, in_dims, values)  # noqa: E731
    torch.library.register_vmap(f"{NAMESPACE}::{own}", batch, lib=LIBRARY)
    pack(f"{NAMESPACE}::{own}", LIBRARY, lambda *values: _packed(OPERATORS[name], partial(call, traced=True), values))


def _packed(operator: HlOperator, call: Callable[..., Any], values: tuple[Any, ...]) -> Any:
    """What a package holds of a backward pass: what runs for these sizes, operators of derived kernels among it."""
    names = [*operator.names, *("results" for _ in values[len(operator.names) :])]
    refuse_dynamic(
        f"the gradient of `{operator.kernel.name}`",
        zip(names, values, strict=True),
        "gradients are derived for one set of sizes: export with that size fixed",
    )
    forms = [form_of(value) for value in values]

    def traced() -> Any:
        with FakeTensorMode():
            graph: Callable[..., Any] = make_fx(call)(*(form() for form in forms))
        return graph

    return aside(traced)(*values)


def _fresh(leaf: Any, grad: Any) -> Any:
    """A gradient in memory of its own, as the fake operator has it."""
    made = torch.empty_like(leaf, requires_grad=False)
    return made.zero_() if grad is None else made.copy_(grad)


def _several(found: Any) -> tuple[Any, ...]:
    return () if found is None else found if isinstance(found, tuple) else (found,)


def _tuple(found: list[Any]) -> Any:
    return found[0] if len(found) == 1 else tuple(found)


def install() -> None:
    """See to the gradients of operators that are defined from now on."""
    hl_operators.on_registration.append(watch)
