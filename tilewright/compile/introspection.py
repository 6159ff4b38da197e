"""What tools and libraries look up on a kernel under Triton's names; nothing of Tilewright itself needs it.

torch's compile workers take a kernel apart before they send it back (`fn`, `__globals__`, `used_global_vals` and `repr`
become None), so these can be assigned, and what is then pickled is what another process can use.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from tilewright.compile.specialize import Param
from tilewright.frontend.hashing import content_hash, used_globals
from tilewright.frontend.source import KernelSource, source_of

_OF_THIS_PROCESS = (
    "__wrapped__",
    "signature",
    "_binder",
    "_kernels",
    "_kernel_source",
    "_kernel_hash",
    "hash",
    "_compiling",
)


class Introspection:
    """Members of a kernel by Triton's names."""

    fn: Any
    params: tuple[Param, ...]

    @functools.cached_property
    def __globals__(self) -> dict[str, Any]:
        """The namespace of the function's module."""
        return source_of(self).globals  # type: ignore[arg-type]

    @functools.cached_property
    def used_global_vals(self) -> dict[tuple[str, int], tuple[Any, Mapping[str, Any]]]:
        """Globals that the kernel uses: (name, id of the namespace) -> (value, namespace)."""
        found = used_globals(self)  # type: ignore[arg-type]
        return {(entry.name, id(entry.namespace)): (entry.value, entry.namespace) for entry in found}

    @functools.cached_property
    def hash(self) -> str:
        """Content hash of the source, everything it calls and the constants it uses."""
        return content_hash(self)  # type: ignore[arg-type]

    @property
    def module(self) -> str:
        """Name of the function's module."""
        return str(self.fn.__module__)

    @property
    def _fn_name(self) -> str:
        return f"{self.fn.__module__}.{self.fn.__qualname__}"

    @property
    def raw_src(self) -> list[str]:
        """Lines of the function from its `def` on."""
        return source_of(self).text.splitlines(keepends=True)  # type: ignore[arg-type]

    @property
    def starting_line_number(self) -> int:
        """Line of the `def` in its file."""
        return source_of(self).first_line  # type: ignore[arg-type]

    @property
    def file_name(self) -> str:
        """Path of its file."""
        return source_of(self).file  # type: ignore[arg-type]

    @property
    def constexprs(self) -> list[int]:
        """Indices of the compile-time parameters."""
        return [param.index for param in self.params if param.is_constexpr]

    @property
    def do_not_specialize(self) -> list[str]:
        """Names of the parameters that are not specialised on value."""
        return [param.name for param in self.params if param.do_not_specialize]

    @property
    def do_not_specialize_on_alignment(self) -> list[str]:
        """Names of the parameters that are not specialised on divisibility by 16."""
        return [param.name for param in self.params if param.do_not_specialize_on_alignment]

    def __reduce__(self) -> str | tuple[Any, ...]:
        """A kernel is pickled by name; one that was taken apart, by what is left of it."""
        if self.fn is not None:
            return str(self.fn.__qualname__)
        kept = {name: value for name, value in self.__dict__.items() if name not in _OF_THIS_PROCESS}
        return _restore, (type(self), {**kept, "_text": self.text_without_function()})

    def text_without_function(self) -> str:
        """Source text after the function was taken out: that of when it was decorated, here or in another process."""
        source: KernelSource | None = self.__dict__.get("_kernel_source")
        return str(self.__dict__["_text"]) if source is None else source.text


def _restore(cls: type[Introspection], kept: dict[str, Any]) -> Introspection:
    made = cls.__new__(cls)
    made.__dict__.update(kept, _binder=None, _kernels={})
    return made


def plain_name(name: str, specialization: Any) -> str:
    """The name of a kernel whose author gave no `repr`: that of its function."""
    return name
