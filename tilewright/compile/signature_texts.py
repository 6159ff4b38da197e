"""Types of a kernel's arguments, as people read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.compile.specialize import Path, SlotType, Specialization
from tilewright.ops.tensor_descriptor import tensor_descriptor


def signature_texts(specialization: Specialization) -> dict[str, str]:
    """Type by parameter name: `"*fp32"`, `"(i32, *fp16)"`, `"tensordesc<fp32[16, 64]>"`."""
    named = enumerate(specialization.signature.items())
    return {name: _shown(kind, (at,), specialization.constants) for at, (name, kind) in named}


def _shown(kind: SlotType, path: Path, constants: Mapping[Path, Any]) -> str:
    """A type in words; the sizes of a descriptor's block are constants."""
    if isinstance(kind, str):
        return kind
    if isinstance(kind, tensor_descriptor):
        sizes = ", ".join(str(constants[(*path, 3, at)]) for at in range(len(kind.block_shape)))
        return f"tensordesc<{kind.base.removeprefix('*')}[{sizes}]>"
    return f"({', '.join(_shown(part, (*path, at), constants) for at, part in enumerate(kind))})"
