"""One operator of `torch.library` per signature of a kernel, named by content.

    axpy(x, y, o, n, a, B=64) with float32 tensors  ->
    tilewright_kernels::axpy_3f0c...(Tensor x, Tensor y, Tensor(a0!) o, SymInt n, float a,
                                     SymInt grid0_x) -> ()

The hash covers the source and everything that it uses, constants, element types, options, configurations and effects.
An autotuned kernel has a grid for each configuration; the choice falls at the launch. No code is generated before the
operator is called on tensors with memory.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tilewright.base.callable import by_number
from tilewright.base.errors import ArgumentError, LanguageValueError
from tilewright.compile.kinds import Kind, leaves, paths
from tilewright.devices.arrays import HOST
from tilewright.devices.drivers import target_at
from tilewright.devices.registry import OPTION_NAMES
from tilewright.frontend.hashing import class_digest, lasting_hash
from tilewright.launch.jit import JITFunction
from tilewright.torch.aliasing import check_devices, check_overlap
from tilewright.torch.arguments import kind_of
from tilewright.torch.launching import aim, as_written, launch_at_once, make_launch
from tilewright.torch.overload import make_direct
from tilewright.torch.packing import pack
from tilewright.torch.signature import NAMESPACE, KernelOperator, Signature, autotuner_of, base_of
from tilewright.tuning.autotune import Autotuner, Config

LIBRARY = torch.library.Library(NAMESPACE, "FRAGMENT")
TAGS = tuple(
    getattr(torch.Tag, name) for name in ("pt2_compliant_tag", "needs_exact_strides") if hasattr(torch.Tag, name)
)
log = logging.getLogger("tilewright.torch")


OPERATORS: dict[str, KernelOperator] = {}
_names: dict[Signature, str] = {}
begun: set[str] = set()
"""Names of the operators that are defined, or are about to be."""


class NoEffectError(LanguageValueError):
    """A kernel writes to none of its arguments (it prints, it asserts): as an operator it does nothing."""


class Overloads:
    """Each operator as a static method: Dynamo follows those of a class that it met without a source."""


on_definition: list[Callable[[KernelOperator], None]] = []


def operator_for(signature: Signature) -> str:
    """Name of the operator of a signature; it is defined when it is asked for first.

    Raises:
        CompilationError: the kernel is wrong.
        NoEffectError: the kernel writes nothing.
        ArgumentError: an argument is neither a tensor nor a number nor a constant.
    """
    try:
        name = _names.get(signature)
    except TypeError as error:  # a numpy array, or another object that cannot be a part of a key
        kernel = base_of(by_number(signature.number)).fn.__name__
        raise ArgumentError(
            f"a launch of kernel `{kernel}` cannot be traced: an argument is no tensor, and no constant ({error})",
            hint="pass torch tensors, numbers, tuples of these or tensor descriptors",
        ) from None
    if name is None:
        name = _names[signature] = define(signature).name
    return name


def described(signature: Signature, *, most_configs: int | None = None) -> KernelOperator:
    """What a signature says, and the effects of the kernel; the operator has no name yet.

    Args:
        signature: of the launches.
        most_configs: look at the effects of so many configurations only.
    """
    kernel = by_number(signature.number)
    base, tuner = base_of(kernel), autotuner_of(kernel)
    configs: tuple[Config | None, ...] = tuple(tuner.configs) if tuner is not None else (None,)
    params = {param.name: param for param in base.params}
    kinds = tuple((params[name], kind_of(token, name)) for name, token in signature.tokens)
    found = tuple(leaf for param, kind in kinds for leaf in leaves(kind, param.name))
    operator = KernelOperator("", kernel, signature, kinds, found, {}, configs=configs)
    _find_effects(operator, configs[:most_configs])
    return operator


def define(signature: Signature) -> KernelOperator:
    """Define the operator of a signature, or find it."""
    operator = described(signature)
    kernel = operator.kernel
    operator.name = f"{operator.base.fn.__name__}_{_digest(operator)}"
    known = OPERATORS.get(operator.name)
    if known is not None and known.kernel is kernel:
        return known
    if known is None:
        begun.add(operator.name)  # torch asks for the name while it is being defined
        LIBRARY.define(operator.schema(), tags=TAGS)
        call, operator.scope = make_launch(operator)
        _register(operator.name, call)
    else:  # the same content under a new object: a module was loaded again
        operator.scope = known.scope
        operator.scope.update(make_launch(operator)[1])
        operator.launched = known.launched
        if operator.launched is not None:
            aim(operator, operator.launched)
    OPERATORS[operator.name] = operator
    setattr(Overloads, operator.name, staticmethod(getattr(getattr(torch.ops, NAMESPACE), operator.name).default))
    for listener in on_definition:
        listener(operator)
    return operator


def _digest(operator: KernelOperator) -> str:
    """Hash of everything that the operator does, the same in every process."""
    signature, base = operator.signature, operator.base
    configs = [str(config) for config in operator.configs]
    parts: list[Any] = [
        configs,
        signature.rank,
        lasting_hash(base),
        _lasting(signature.tokens),
        signature.options,
        _lasting(signature.computed),
    ]
    return hashlib.sha256(repr([*parts, sorted(operator.written)]).encode()).hexdigest()[:16]


def _lasting(token: Any) -> Any:
    """Tokens with functions by content in place of their numbers."""
    if isinstance(token, tuple):
        if token[:2] == ("c", "function"):
            return ("c", "function", lasting_hash(by_number(token[2])))
        if token[:1] == ("named",):
            return ("named", class_digest(by_number(token[1])), *map(_lasting, token[2:]))
        return tuple(_lasting(part) for part in token)
    return token


# --- effects --------------------------------------------------------------------------------------------------------


def _find_effects(operator: KernelOperator, configs: Sequence[Config | None]) -> None:
    """Fill in which arguments the kernel writes, under any of the configurations."""
    base, signature = operator.base, operator.signature
    places = [path for param, kind in operator.kinds for path in paths(kind, (param.index,))]
    reasons, names = [], {param.name for param in base.params}
    for number, config in enumerate(configs):
        if config is not None and config.pre_hook is not None:  # it may change what is compiled, and all may be written
            continue
        types: dict[str, Kind] = {param.name: kind for param, kind in operator.kinds}
        chosen = config.kwargs if config is not None else {}
        constants = {name: value for name, value in chosen.items() if name in names}
        constants |= {name: kind_of(token, name).value for name, token in signature.computed[number]}  # type: ignore[union-attr]
        options = {**dict(signature.options), **(config.all_kwargs() if config is not None else {})}
        compile_options = {name: value for name, value in options.items() if name in OPTION_NAMES}
        effects = base.effects(types, constants, compile_options, target_at(HOST))
        operator.written |= {places.index(path): place for path, place in effects.writes.items()}
        if effects.unsure_write is not None:
            reasons.append(str(effects.unsure_write))
    tuner = autotuner_of(operator.kernel)
    if tuner is not None and tuner.changes_arguments:
        reasons.append("its autotuner has hooks, which may write")
    arrays = [index for index, (_, kind) in enumerate(operator.leaves) if kind.startswith("*")]
    if reasons:
        operator.unsure = reasons[0]
        operator.written = {index: operator.written.get(index) for index in arrays}
        log.warning("kernel `%s`: every tensor counts as written: %s", base.fn.__name__, operator.unsure)
    if not operator.written:
        raise NoEffectError(
            f"kernel `{base.fn.__name__}` writes to none of its arguments: as an operator it does nothing",
            hint="store the result through a pointer parameter with tl.store",
        )


# --- what PyTorch calls -----------------------------------------------------------------------------------------------


def _register(name: str, call: Callable[..., None]) -> None:
    """Define what the operator `name` does; on tensors with memory `call`."""

    def fake(*values: Any) -> None:
        operator = OPERATORS[name]
        names = [leaf for leaf, _ in operator.leaves]
        check_devices(operator.base.fn.__name__, names, values)
        check_overlap(operator.base.fn.__name__, names, values[: len(names)], operator.written)

    def batched(info: Any, in_dims: Any, *values: Any) -> tuple[None, None]:
        """One launch after another; `in_dims` are the dimensions along which the values are batched, or None."""
        operator = OPERATORS[name]
        for index, (leaf, _) in enumerate(operator.leaves):
            if index in operator.written and in_dims[index] is None:
                raise ArgumentError(
                    f"kernel `{operator.base.fn.__name__}` writes `{leaf}`, which vmap does not batch",
                    hint="allocate it inside of the function, with zeros_like of a batched tensor",
                )
        for step in range(info.batch_size):
            getattr(getattr(torch.ops, NAMESPACE), name)(
                *(v if d is None else v.select(d, step) for v, d in zip(values, in_dims, strict=True))
            )
        return None, None

    def at_once(observed: Callable[..., None]) -> Callable[..., None] | None:
        launched = OPERATORS[name].launched = launch_at_once(OPERATORS[name], observed)
        return None if launched is None else launched.call

    def packed(*values: Any) -> Any:
        operator = OPERATORS[name]
        if not isinstance(operator.kernel, JITFunction | Autotuner):
            return NotImplemented  # PyTorch takes no heuristics here
        grid, args, kwargs = as_written(operator, values)
        operator.kernel[grid](*args, **kwargs)
        return None

    LIBRARY.impl(name, call, "CompositeExplicitAutograd")
    make_direct(getattr(getattr(torch.ops, NAMESPACE), name).default, call, at_once)
    LIBRARY.impl(name, torch.library.fallthrough_kernel, "Autograd")
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=LIBRARY)
    torch.library.register_vmap(f"{NAMESPACE}::{name}", batched, lib=LIBRARY)
    pack(f"{NAMESPACE}::{name}", LIBRARY, packed)
