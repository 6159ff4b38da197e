"""`triton._C.libtriton`: refused member by member.

torch opens an MLIR context before it asks for a kernel's IR; `ir.context` and `ir.load_dialects` are that much of it.
"""

from types import SimpleNamespace
from typing import Any

from tilewright.base.errors import PosingError

ir = SimpleNamespace(context=object, load_dialects=lambda context: None)


MEMBERS = frozenset({"amd", "gluon_ir", "interpreter", "linear_layout", "llvm", "nvidia", "passes"})


def __getattr__(name: str) -> Any:
    if name not in MEMBERS:  # pickle asks every module for every name
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise PosingError(
        f"triton._C.libtriton.{name} is Triton's own compiler; Tilewright's is written in Python over LLVM",
        hint="tilewright.compile gives the text of every stage in .asm; kernel.effects says what a kernel writes",
    )
