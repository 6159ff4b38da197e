"""What a back end is to the rest of the house.

A back end is a folder with two modules, and a line in `devices/registry.py`:

    options.py   its options and the form of its targets; loaded with `import tilewright`
    backend.py   a `Backend`; loaded at the first compile or launch for it
    device/active.py   where there are devices: `Driver`, what `runtime.driver.active` is while they are in use
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tilewright.base.target import Placement, Target
from tilewright.passes.stages import Stage

if TYPE_CHECKING:
    from tilewright.backends.lowering import Lowering

Launch = Callable[..., None]


ALWAYS = (1 << 63) - 1
"""More programs than any grid has: for `Packing.serial_below`."""


class Maps(NamedTuple):
    """The tensor maps of a launch, which are kept for the next one.

    Args:
        offset: of the first one in the block; the others follow it.
        parameters: numbers of those that are sizes and strides: where one has changed maps are made anew.
        bases: number of the parameter with the address of each map.
        move: address of a function, `int f(void *map, void *address)`, that changes the address of a map.
        encode: gives the maps, made of parameters by their numbers, and the first word of the block: that of another
            kernel where the numbers suit no maps of this one's.
    """

    offset: int
    parameters: tuple[int, ...]
    bases: tuple[int, ...]
    move: int
    encode: Callable[[Mapping[int, int]], tuple[int, bytes]]


class Packing(NamedTuple):
    """How machine code makes a launch without Python: the attribute `packing` of the launch functions that have one.

    The block is `record`, a second word (threads, or the stream), then on a CPU a word for scratch, the slots, and the
    grid in three words; on a GPU the grid in three 32-bit words and, 32 bytes from the start, the parameters.

    Args:
        run: address of the function that takes the block; on a GPU it gives the driver's code.
        record: the first word.
        slots: (offset, bytes) of each run-time parameter in the block.
        serial_below, fixed: grids of fewer programs have `fixed` as their second word.
        teller: gives the second word of others.
        streams: (address, number) of a C function, `int f(int number, void **out)`, that is asked instead of `teller`:
            of the stream of a GPU, or of a number of threads.
        mark: (address, value) of a word that is written ahead of each launch; address 0 for none.
        scratch: (address of three words, bytes, borrow) of what each thread needs; None if nothing. The words are the
            address and the bytes of a block, and whether a launch has it; `borrow(bytes)` gives the address of another,
            which lasts as long as that object.
        maps: the tensor maps; None if there are none.
        cluster: blocks of a cluster of a GPU; 0 for a CPU.
        explain: called with the code and the grid where the driver refuses; raises.
        owner: kept alive.
    """

    run: int
    record: int
    slots: tuple[tuple[int, int], ...]
    serial_below: int
    fixed: int
    teller: Callable[[], int] | None
    cluster: int = 0
    explain: Callable[[int, int, int, int], Any] | None = None
    owner: Any = None
    streams: tuple[int, int] = (0, 0)
    mark: tuple[int, int] = (0, 0)
    scratch: tuple[int, int, Callable[[int], int]] | None = None
    maps: Maps | None = None


class ByteCache(Protocol):
    """A store of small objects; the disk cache is one."""

    def get_bytes(self, key: str) -> bytes | None:
        """The bytes kept under `key`, or None."""

    def put_bytes(self, key: str, payload: bytes) -> None:
        """Keep `payload` under `key`."""


class Backend(Protocol):
    """The module `backend.py` of a back end.

    Attributes:
        BINARY: extension of the last stage, whose bytes are kept on disk and loaded.
        EXTENSIONS: those of all stages after tile IR, in order.
    """

    BINARY: str
    EXTENSIONS: tuple[str, ...]

    def set_cache(self, cache: ByteCache | None) -> None:
        """Where what the back end learns of this machine may be kept."""

    def target(self, ordinal: int | None = None) -> Target:
        """The target of this machine, or of its device number `ordinal`."""

    def versions(self) -> str:
        """Versions of what makes code; part of every key."""

    def fuses(self, target: Target) -> bool:
        """Whether the target's hardware multiplies and adds in one rounding."""

    def stages(self, options: Any, target: Target) -> Mapping[str, Stage]:
        """The stages after tile IR, in order; `options` are the back end's own."""

    def load_compiler(self) -> None:
        """Load everything that `stages` would load when they run."""

    def load(self, binary: bytes, metadata: Mapping[str, Any]) -> Any:
        """Code in memory, from what the last stage made."""

    def launcher(
        self, module: Any, metadata: Mapping[str, Any], place: Placement, otherwise: Callable[[], Launch] | None = None
    ) -> Launch:
        """`launch(gx, gy, gz, *runtime_values)` for loaded code; `otherwise` gives what launches values that it does
        not take, where the fact `takes_all` says that there are such."""

    def helpers(self, triple: str) -> Mapping[str, str]:
        """LLVM IR, by name, of the code of our own that launches need on a host with this triple."""

    def why_not(self, target: Target) -> str:
        """Why code for `target` does not run on this machine; "" if it does."""

    def lowering(self, name: str) -> Lowering | None:
        """How code is made for operation `name`."""

    def texts(self, asm: Mapping[str, str | bytes]) -> Mapping[str, Callable[[], str]]:
        """Further texts by extension, made of the stages' artifacts when they are asked for."""
