"""One operator of `torch.library` per form of a call of a kernel of `tilewright.hl`, named by content.

    softmax(x, out) -> tilewright_kernels::softmax_9b1d...(Tensor x, Tensor(a1!) out) -> ()

The operator is the whole kernel: its host code, its launches and the choice of its configuration, which falls when it
is called. The fake kernel runs the host code without its loops, so sizes may be symbolic whatever the kernel was
compiled for. What it writes is what a trace for sizes like those at hand shows; a call that turns out to write more
raises an error.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch._subclasses import FakeTensorMode

from tilewright.base.errors import ArgumentError
from tilewright.hl import BoundKernel, Kernel, exc
from tilewright.hl.runtime.keys import hint_for_nested
from tilewright.torch.aliasing import check_devices, check_overlap
from tilewright.torch.hl_arguments import Token, digest_of, is_fixed, is_told, lasting, leaves, maker, told
from tilewright.torch.operators import LIBRARY, TAGS, begun
from tilewright.torch.packing import pack
from tilewright.torch.signature import NAMESPACE

_R = TypeVar("_R")
Leaf = tuple[tuple[Any, ...], str]
"""Path and type of a run-time value."""
_UNBACKED = 64  # an integer of which nothing is known


@dataclass(slots=True)
class HlOperator:
    """An operator that calls a kernel.

    Args:
        kernel: what is called.
        tokens: of its arguments, by position.
        written: numbers of the run-time values whose memory it writes.
        result: token of what it returns.
        count: how many tensors it makes.
        is_random: whether it draws from PyTorch's generator.
        name: in the namespace.
        checked: bindings that are known to write nothing else.
    """

    kernel: Kernel
    tokens: tuple[Token, ...]
    written: tuple[int, ...]
    result: Token
    count: int
    is_random: bool
    name: str = ""
    checked: WeakSet[BoundKernel] = field(default_factory=WeakSet)
    arguments: Callable[..., tuple[Any, ...]] = field(init=False)

    def __post_init__(self) -> None:
        self.arguments = maker(self.tokens)
        self.name = f"{self.kernel.name}_{self._digest()}"

    @property
    def leaves(self) -> list[Leaf]:
        """The run-time values."""
        return _leaves(self.kernel, self.tokens)

    @property
    def names(self) -> list[str]:
        """Names of the run-time values."""
        return ["_".join(map(str, path)) for path, _ in self.leaves]

    @property
    def overload(self) -> Any:
        """What PyTorch calls."""
        return getattr(getattr(torch.ops, NAMESPACE), self.name).default

    def _digest(self) -> str:
        parts = lasting(self.tokens), self.written, lasting(self.result), self.count, self.is_random
        return hashlib.sha256(repr((content_of(self.kernel), parts)).encode()).hexdigest()[:16]

    def schema(self) -> str:
        """As `torch.library` wants it."""
        fields = [
            f"{kind}{f'(a{at}!)' if at in self.written else ''} p{at}" for at, (_, kind) in enumerate(self.leaves)
        ]
        results = ", ".join(["Tensor"] * self.count)
        return f"{self.name}({', '.join(fields)}) -> {results if self.count == 1 else f'({results})'}"


OPERATORS: dict[str, HlOperator] = {}
_known: WeakKeyDictionary[BoundKernel, dict[tuple[Token, ...], HlOperator]] = WeakKeyDictionary()
on_definition: list[Callable[[HlOperator], None]] = []
on_registration: list[Callable[[str, Callable[..., Any]], None]] = []
"""Called once for each name, with what the operator does: who sees to gradients."""


def content_of(kernel: Kernel) -> str:
    """Hash of everything that says what a kernel computes, the same in every process."""
    settings = kernel.settings.fast_math, kernel.settings.dot_precision
    return hashlib.sha256(repr((digest_of(kernel.fn), settings)).encode()).hexdigest()


def aside(function: Callable[[], _R]) -> _R:
    """The result of `function`, called where no mode, transform or tracer is: they are all of a thread."""
    with FakeTensorMode():  # torch 2.11 with CUDA, but no GPU, keeps what the first mode sets up in a thread's memory
        pass
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def _size(value: Any) -> Any:
    """The number that stands for a symbolic one in this trace."""
    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        node = value.node
        return node.hint if node.has_hint() else _UNBACKED
    return value


def form_of(value: Any) -> Callable[[], Any]:
    """Makes a tensor without data that is to a kernel what `value` is; numbers stay what they are."""
    if not isinstance(value, torch.Tensor):
        number = _size(value)
        return lambda: number
    if value.is_nested:  # its sizes are no numbers
        raise exc.UnsupportedPythonType("an argument is a nested tensor", hint=hint_for_nested(value))
    sizes, strides = (tuple(map(_size, numbers)) for numbers in (value.shape, value.stride()))
    dtype, device = value.dtype, value.device
    return lambda: torch.empty_strided(sizes, strides, dtype=dtype, device=device)


def operator_for(kernel: Kernel, tokens: tuple[Token, ...], values: Sequence[Any]) -> HlOperator:
    """The operator of a call; it is defined when it is asked for first.

    Args:
        kernel: what is called.
        tokens: of its arguments.
        values: their run-time values, as a tracer has them.

    Raises:
        ArgumentError: what the kernel does cannot be an operator.
    """
    forms = [form_of(value) for value in values]

    def find() -> HlOperator:
        with FakeTensorMode() as mode:
            made = tuple(form() for form in forms)
        args = maker(tokens)(*made)
        bound = kernel.bind(args)
        known = _known.setdefault(bound, {})
        if tokens not in known or is_fixed(known[tokens].result):
            with mode:
                result = bound.run_host(args)
            fresh: list[Any] = []
            token = told(result, made, fresh, kernel.name)
            known[tokens] = define(_described(bound, kernel, tokens, token, len(fresh)))
        return known[tokens]

    return aside(find)


def _described(bound: BoundKernel, kernel: Kernel, tokens: tuple[Token, ...], result: Token, count: int) -> HlOperator:
    effects = bound.effects
    if effects.outside:
        names = ", ".join(_variable(kernel, text) for text in effects.outside)
        raise ArgumentError(
            f"kernel `{kernel.name}` writes {names}, which is no argument: an operator cannot",
            hint="pass the tensor as an argument",
        )
    written = _written(_leaves(kernel, tokens), bound)
    operator = HlOperator(kernel, tokens, written, result, count, effects.is_random)
    operator.checked.add(bound)
    return operator


def _variable(kernel: Kernel, text: str) -> str:
    """What kernels read outside of themselves as their source has it."""
    text = re.sub(r"_cells\[(\d+)\]\.cell_contents", lambda found: kernel.fn.__code__.co_freevars[int(found[1])], text)
    return re.sub(r"_globals\['(\w+)'\]", r"\1", text)


def _leaves(kernel: Kernel, tokens: tuple[Token, ...]) -> list[Leaf]:
    """The run-time values of a call."""
    pairs = zip(kernel.signature.parameters, tokens, strict=True)
    return [leaf for name, token in pairs for leaf in leaves(token, (name,))]


def _written(found: list[Leaf], bound: BoundKernel) -> tuple[int, ...]:
    """Numbers of the run-time values that a binding writes."""
    effects, tensors = bound.effects, [(at, path) for at, (path, kind) in enumerate(found) if kind == "Tensor"]
    return tuple(at for at, path in tensors if effects.anywhere or path in effects.written)


def define(operator: HlOperator) -> HlOperator:
    """Define an operator, or find it."""
    known = OPERATORS.get(operator.name)
    OPERATORS[operator.name] = operator  # the same content under a new object: a module was loaded again
    if known is None:
        begun.add(operator.name)  # torch asks for the name while it is being defined
        tags = (*TAGS, torch.Tag.nondeterministic_seeded) if operator.is_random else TAGS
        LIBRARY.define(operator.schema(), tags=tags)
        _register(operator.name)
    for listener in on_definition:
        listener(operator)
    return operator


# --- what PyTorch calls ---------------------------------------------------------------------------------------------


def _register(name: str) -> None:
    """Define what the operator `name` does."""

    def call(*values: Any) -> Any:
        operator = OPERATORS[name]
        args = operator.arguments(*values)
        bound = operator.kernel.found(args)
        if bound not in operator.checked:
            _check(operator, bound)
        return _made(operator, bound(*args), values)

    def fake(*values: Any) -> Any:
        operator = OPERATORS[name]
        check_devices(operator.kernel.name, operator.names, values)
        check_overlap(operator.kernel.name, operator.names, values, operator.written)
        forms = [form_of(value) for value in values]

        def bound() -> BoundKernel:
            with FakeTensorMode():
                made = [form() for form in forms]
            return operator.kernel.bind(operator.arguments(*made))

        result = operator.kernel.run_host(operator.arguments(*values), lambda: aside(bound))
        return _made(operator, result, values)

    def batch(info: Any, in_dims: Any, *values: Any) -> Any:
        operator = OPERATORS[name]
        for at, (path, _) in enumerate(operator.leaves):
            if at in operator.written and in_dims[at] is None:
                raise ArgumentError(
                    f"kernel `{operator.kernel.name}` writes `{path[0]}`, which vmap does not batch",
                    hint="allocate it inside of the function, with zeros_like of a batched tensor",
                )
        return batched(operator.overload, operator.count, info, in_dims, values)

    LIBRARY.impl(name, call, "CompositeExplicitAutograd")
    for listener in on_registration:
        listener(name, call)
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=LIBRARY)
    torch.library.register_vmap(f"{NAMESPACE}::{name}", batch, lib=LIBRARY)
    pack(f"{NAMESPACE}::{name}", LIBRARY, lambda *values: _packed(OPERATORS[name], values))


def batched(call: Callable[..., Any], count: int, info: Any, in_dims: Sequence[Any], values: Sequence[Any]) -> Any:
    """One call after another, as rules of vmap have it.

    Args:
        call: an operator.
        count: how many tensors it makes.
        info: has the size of the batch.
        in_dims: the dimensions along which the values are batched, or None.
        values: the values.
    """
    pairs = list(zip(values, in_dims, strict=True))
    found = [call(*(v if d is None else v.select(d, step) for v, d in pairs)) for step in range(info.batch_size)]
    if count == 0:
        return None, None
    if count == 1:
        return torch.stack(found), 0
    return tuple(map(torch.stack, zip(*found, strict=True))), (0,) * count


def _packed(operator: HlOperator, values: tuple[Any, ...]) -> Any:
    """What a package holds: the host code of the configuration that is known, for one size or for all."""
    if operator.kernel.settings.static_shapes:
        refuse_dynamic(
            f"kernel `{operator.kernel.name}`",
            zip(operator.names, values, strict=True),
            "write @hl.kernel(static_shapes=False), or export with that size fixed",
        )
    forms = [form_of(value) for value in values]

    def compiled() -> Callable[..., Any]:
        with FakeTensorMode():
            args = operator.arguments(*(form() for form in forms))
        bound = operator.kernel.bind(args)
        return bound.compile_config(bound.config or bound.known_config())

    return _made(operator, aside(compiled)(*operator.arguments(*values)), values)


def refuse_dynamic(subject: str, named: Iterable[tuple[str, Any]], hint: str) -> None:
    """Refuse symbolic sizes for code that is made for one size.

    Args:
        subject: whose code it is.
        named: names of tensors and numbers with their values.
        hint: what to write instead.

    Raises:
        ArgumentError: there is one.
    """
    for name, value in named:
        numbers = (*value.shape, *value.stride()) if isinstance(value, torch.Tensor) else (value,)
        if any(isinstance(number, torch.SymInt) and not number.node.is_constant() for number in numbers):
            raise ArgumentError(
                f"{subject} is packed with `{name}` of a dynamic size; its code is for one size", hint=hint
            )


def _made(operator: HlOperator, result: Any, values: tuple[Any, ...]) -> Any:
    """The tensors that a call made, as the schema has them."""
    made: list[Any] = []
    if not is_told(operator.result, result, values, made):
        raise ArgumentError(
            f"kernel `{operator.kernel.name}` returns other things for these sizes than for those it was traced with",
            hint="return the same whatever the sizes are; views and numbers are those of the sizes that were traced",
        )
    return None if not made else made[0] if len(made) == 1 else tuple(made)


def _check(operator: HlOperator, bound: BoundKernel) -> None:
    """Hold what a binding writes against what the operator declares.

    Raises:
        ArgumentError: it writes more.
    """
    more = sorted(set(_written(operator.leaves, bound)) - set(operator.written))
    if more or bound.effects.outside:
        names = [operator.names[at] for at in more]
        names += [_variable(operator.kernel, text) for text in bound.effects.outside]
        raise ArgumentError(
            f"kernel `{operator.kernel.name}` writes {', '.join(names)} for these arguments, but did not for those it "
            "was traced with",
            hint="write the same tensors whatever the sizes are",
        )
    operator.checked.add(bound)
