"""What users register with an operator of `triton_op`: gradients, kernels of a device, fake kernels, rules.

`Registrations` is a `CustomOpDef` of PyTorch, so `torch.library` takes an operator itself wherever it takes one of its
own, by its name too. Whatever is registered holds for the operator and for its twins (`triton_op.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._library.custom_ops import OPDEFS, CustomOpDef

from tilewright.base.errors import ArgumentError


@contextlib.contextmanager
def _by_name_alone(name: str) -> Iterator[None]:
    """A block in which `torch.library` does not send what it is told of an operator back to its definition."""
    found = OPDEFS.pop(name, None)
    try:
        yield
    finally:
        if found is not None:
            OPDEFS[name] = found


class Registrations(CustomOpDef):  # type: ignore[misc]  # torch is not checked
    """The half of an operator that PyTorch's functions of registration see.

    Args:
        namespace, name: of the operator, "namespace::name".
        fn: what it does where nothing else is registered.
        schema: text of its schema.

    Attributes:
        overload: the operator itself, `torch.ops.namespace.name.default`.
    """

    overload: Any
    _twins: list[str]

    def __init__(self, namespace: str, name: str, fn: Callable[..., Any], schema: str) -> None:
        # Not the method of the class above: that defines an operator, whose launches would be hidden.
        self._namespace, self._name, self._schema, self._tags = namespace, name, schema, ()
        self._init_fn = fn
        self._backend_fns: dict[str, Callable[..., Any]] = {}
        self._disabled_kernel: set[str] = set()
        self._abstract_fn: Callable[..., Any] | None = None
        self._backward_fn: Callable[..., Any] | None = None
        self._setup_context_fn: Callable[..., Any] | None = None
        self._used_triton_kernels: list[Any] = []
        self._lib = torch.library.Library(namespace, "FRAGMENT")
        self._registrations: list[Callable[[str], None]] = []

    @property
    def _opoverload(self) -> Any:
        return self.overload

    def register_autograd(
        self, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None
    ) -> None:
        """Give the operator a backward, as `torch.library.register_autograd` has it.

        Args:
            backward: `backward(ctx, *grads)` gives a gradient for each input.
            setup_context: `setup_context(ctx, inputs, output)` saves what it needs.

        Raises:
            ArgumentError: the operator changes arguments.
        """
        if self.overload._schema.is_mutable:
            raise ArgumentError(
                f"operator {self._qualname} changes arguments, so it has no backward",
                hint="give the backward to an operator that returns new tensors",
            )
        self._backward_fn, self._setup_context_fn = backward, setup_context

    def register_vmap(self, func: Callable[..., Any] | None = None) -> Any:
        """Give the operator a rule for `torch.vmap`, as `torch.library.register_vmap` has it; the default is a loop.

        Args:
            func: the rule; without it this is a decorator.
        """
        if func is None:
            return self.register_vmap
        self._register(lambda name: torch.library.register_vmap(name, func, lib=self._lib))
        return func

    def register_kernel(
        self, device_types: str | Sequence[str] | None, fn: Callable[..., Any] | None = None, /
    ) -> Callable[..., Any]:
        """Have tensors of kinds of devices served by another function.

        Args:
            device_types: "cpu", "cuda", ...; several, or None for all.
            fn: takes and returns what the operator does; without it this is a decorator.
        """
        if fn is None:
            return lambda given: self.register_kernel(device_types, given)
        every = [device_types] if isinstance(device_types, str) or device_types is None else list(device_types)
        for device in every:
            if device is None:
                self._init_fn = fn
            elif device in self._backend_fns:
                self._backend_fns[device] = fn
            else:
                self._backend_fns[device] = fn
                self._register(self._kernel_of(device))
        self._replace()
        return fn

    def _kernel_of(self, device: str) -> Callable[[str], None]:
        def serve(*args: Any, **kwargs: Any) -> Any:
            usual = device in self._disabled_kernel
            return (self._init_fn if usual else self._backend_fns[device])(*args, **kwargs)

        return lambda name: torch.library.register_kernel(name, device, serve, lib=self._lib)

    def register_fake(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        """Have fake tensors served by another function; by default the operator's own runs and launches nothing.

        Args:
            fn: returns empty tensors as the operator returns full ones.
        """
        self._abstract_fn = fn
        return fn

    def register_torch_dispatch(self, torch_dispatch_class: Any, fn: Callable[..., Any] | None = None, /) -> Any:
        """Say what a mode or a subclass of tensors does with the operator, as `torch.library.register_torch_dispatch`.

        Args:
            torch_dispatch_class: the mode or subclass.
            fn: the rule; without it this is a decorator.
        """
        if fn is None:
            return lambda given: self.register_torch_dispatch(torch_dispatch_class, given)
        self._register(
            lambda name: torch.library.register_torch_dispatch(name, torch_dispatch_class, fn, lib=self._lib)
        )
        return fn

    def register_autocast(self, device_type: str, cast_inputs: torch.dtype) -> None:
        """Have autocast convert inputs, as `torch.library.register_autocast` has it.

        Args:
            device_type: "cpu", "cuda", ...
            cast_inputs: what floats other than float64 become.
        """
        self._register(lambda name: torch.library.register_autocast(name, device_type, cast_inputs, lib=self._lib))

    def register_effect(self, effect: Any) -> None:
        """Say that the operator has an effect besides its results, which compilers keep in order.

        Args:
            effect: of `torch._library.effects.EffectType`, or None for no effect.
        """
        self._register(lambda name: self._lib._register_effectful_op(name, effect))

    def _register(self, register: Callable[[str], None]) -> None:
        with _by_name_alone(self._qualname):
            register(self._qualname)
        self._registrations.append(register)
        for twin in self._twins:
            register(f"{self._namespace}::{twin}")

    def _replace(self) -> None:
        """Note that the operator's own function is not what every tensor is served by."""
        raise NotImplementedError
