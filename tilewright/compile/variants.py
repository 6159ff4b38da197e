"""Variants of a kernel in words: the types of its arguments, and what in one differs from those that were there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

from tilewright.base.options import Options
from tilewright.base.target import Target
from tilewright.compile.kernel import CompiledKernel
from tilewright.compile.specialize import CONSTEXPR, DIVISIBLE, Path, SlotType, Specialization
from tilewright.ops.tensor_descriptor import tensor_descriptor

VariantKey = tuple[Specialization, Options, Target]


class Variant(NamedTuple):
    """A variant of a kernel.

    Args:
        kernel: compiled.
        reason: one line that says why it was not one of those before it.
    """

    kernel: CompiledKernel
    reason: str

    def __repr__(self) -> str:
        return f"<Variant {self.reason}>"


def reason_of(name: str, known: Iterable[VariantKey], new: VariantKey) -> str:
    """One line on why `new` needs code of its own.

    Args:
        name: of the kernel.
        known: keys of the variants that are there, the latest last.
        new: the key of another one.
    """
    facts = dict(_facts(new))
    every: list[list[str]] = [[*_changes(dict(_facts(key)), facts)] for key in known]
    if not every:
        return f"{name}: first variant, {', '.join(f'{what}: {value}' for what, value in _arguments(new[0]))}"
    nearest = min(every[::-1], key=len)
    return f"{name}: {'; '.join(nearest)}"


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for what in {**old, **new}:
        before, after = old.get(what, "absent"), new.get(what, "absent")
        if before != after:
            yield f"{what} was {before}, is {after}"


def _facts(key: VariantKey) -> Iterator[tuple[str, Any]]:
    """Everything that tells variants apart, by name."""
    specialization, options, target = key
    yield from _arguments(specialization)
    yield from ((f"option {name}", repr(value)) for name, value in asdict(options).items())
    yield "target", str(target)


def _arguments(specialization: Specialization) -> Iterator[tuple[str, str]]:
    for name, path, kind, key in specialization.leaves():
        place = f"{name}{''.join(f'[{index}]' for index in path[1:])}"
        if kind == CONSTEXPR:
            yield place, f"constant {key!r}"
        else:
            yield place, f"{kind}{', divisible by 16' if key == DIVISIBLE else ''}"


def signature_texts(specialization: Specialization) -> dict[str, str]:
    """Type by parameter name: `"*fp32"`, `"(i32, *fp16)"`, `"tensordesc<fp32[16, 64]>"`."""
    constants, named = specialization.constants, enumerate(specialization.signature.items())
    return {name: _shown(kind, (at,), constants) for at, (name, kind) in named}


def _shown(kind: SlotType, path: Path, constants: Mapping[Path, Any]) -> str:
    """A type in words; the sizes of a descriptor's block are constants."""
    if isinstance(kind, str):
        return kind
    if isinstance(kind, tensor_descriptor):
        sizes = ", ".join(str(constants[(*path, 3, at)]) for at in range(len(kind.block_shape)))
        return f"tensordesc<{kind.base.removeprefix('*')}[{sizes}]>"
    return f"({', '.join(_shown(part, (*path, at), constants) for at, part in enumerate(kind))})"
