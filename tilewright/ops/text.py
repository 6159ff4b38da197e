"""Text of tile IR with all operations known: what tools, the cache and tests use.

Importing this file loads every family of operations, so that the registry is complete.
"""

from __future__ import annotations

import functools

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute

from tilewright.ir import text
from tilewright.ir.text import print_module, print_op
from tilewright.ir.types import TilePointerType
from tilewright.ops import families
from tilewright.ops.spec import REGISTRY

ATTRIBUTES: tuple[type[Attribute], ...] = (TilePointerType, *families.ATTRIBUTES)


@functools.cache
def context() -> Context:
    """The parsing context of tile IR."""
    return text.make_context([spec.op for spec in REGISTRY.values()], ATTRIBUTES)


def parse_module(source: str, name: str = "<ttir>") -> ModuleOp:
    """The module that `source` spells.

    Args:
        source: MLIR assembly, as printed by :func:`print_module` or by Triton.
        name: shown in errors, usually the file's path.

    Raises:
        ParseError: with line, column and caret.
    """
    return text.parse_module(context(), source, name)


__all__ = ["context", "parse_module", "print_module", "print_op"]
