"""`triton.experimental`: what Triton calls so and Tilewright does not have.

There is no module `gluon`, so that a library that looks for it before it imports it finds none.
"""

from tilewright.base.errors import PosingError


def __getattr__(name: str) -> object:
    """The reason, for `from triton.experimental import gluon`."""
    if name == "gluon":
        raise PosingError(
            "Tilewright has no Gluon: layouts of tiles are found by the compiler and cannot be written down",
            hint="write the kernel in triton.language",
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
