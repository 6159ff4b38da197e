"""`triton.experimental.gluon`: refused."""

from tilewright.base.errors import PosingError

raise PosingError(
    "Tilewright has no Gluon: layouts of tiles are found by the compiler and cannot be written down",
    hint="write the kernel in triton.language",
)
