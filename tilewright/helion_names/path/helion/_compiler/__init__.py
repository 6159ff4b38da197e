"""Helion's own compiler, which Tilewright has not."""

from tilewright import errors

raise errors.PosingError(
    "helion._compiler is the compiler of Helion itself, which is not there where Tilewright poses as it",
    hint="ask the binding: kernel.bind(args) has config_spec, to_code() and traced",
)
