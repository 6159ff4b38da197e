"""The smallest back end: front end and passes run, every operation is taken, launches do nothing.

    ttir --null--> the same text, as bytes

It shows what a back end must give (`backends/protocol.py`), and measures what a launch costs without a kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilewright.backends.lowering import Lowering
from tilewright.backends.protocol import ByteCache
from tilewright.base.options import Options
from tilewright.base.target import Placement, Target
from tilewright.ops.text import print_module
from tilewright.passes.stages import Stage

BINARY = "null"
EXTENSIONS = (BINARY,)


def set_cache(cache: ByteCache | None) -> None:
    """Nothing is kept."""


def target(ordinal: int | None = None) -> Target:
    """The one target."""
    return Target("null", "any")


def versions() -> str:
    """Nothing makes code."""
    return ""


def fuses(target: Target) -> bool:
    """As most targets do."""
    return True


def stages(options: Options, target: Target) -> Mapping[str, Stage]:
    """One stage: the text of tile IR."""

    def keep(module: Any, metadata: dict[str, Any]) -> bytes:
        metadata.update(asserts=[])
        return print_module(module).encode()

    return {BINARY: Stage(keep, parse=lambda text: text)}


def load_compiler() -> None:
    """It is loaded."""


def load(binary: bytes, metadata: Mapping[str, Any]) -> bytes:
    """The text."""
    return binary


def launcher(
    module: Any, metadata: Mapping[str, Any], place: Placement, otherwise: object = None
) -> Callable[..., None]:
    """A function that takes a grid and arguments and does nothing."""

    def launch(gx: int, gy: int, gz: int, *values: Any) -> None:
        pass

    return launch


def helpers(triple: str) -> Mapping[str, str]:
    """None."""
    return {}


def why_not(target: Target) -> str:
    """Nothing is run anywhere."""
    return ""


def lowering(name: str) -> Lowering:
    """Every operation is taken as it is."""
    return Lowering("own code")


def texts(asm: Mapping[str, str | bytes]) -> Mapping[str, Callable[[], str]]:
    """None beside the stages."""
    return {}
