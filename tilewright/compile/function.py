"""A kernel as the compiler sees it: a block function with parameters that can be specialised."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tilewright.base.callable import BlockFunction, take_back
from tilewright.compile.introspection import Introspection
from tilewright.compile.specialize import parse_params
from tilewright.frontend.hashing import content_hash
from tilewright.frontend.source import source_of


class KernelFunction(Introspection, BlockFunction):
    """A block function and what its signature says of its parameters.

    Args:
        fn: Python function in the block language.
        noinline: keep calls to it as calls.
        do_not_specialize: parameters (names or indices) not specialised on value.
        do_not_specialize_on_alignment: parameters not specialised on divisibility by 16.

    Attributes:
        params: the parameters.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        noinline: bool | None = None,
        do_not_specialize: Iterable[int | str] | None = None,
        do_not_specialize_on_alignment: Iterable[int | str] | None = None,
    ) -> None:
        super().__init__(fn, noinline=bool(noinline))
        try:
            source_of(self)  # the text is taken now: a later edit of the file must not change the kernel
            self.params = parse_params(self.signature, do_not_specialize, do_not_specialize_on_alignment)
        except BaseException:
            take_back(self.number)
            raise

    @property
    def arg_names(self) -> list[str]:
        """Names of the parameters."""
        return [param.name for param in self.params]

    @property
    def cache_key(self) -> str:
        """Content hash of the source, everything it calls and the constants it uses."""
        return content_hash(self)
