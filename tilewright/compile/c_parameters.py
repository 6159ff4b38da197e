"""What code in C and C++ that launches a kernel of a CPU is made of: parameters, slots, the grid, scratch.

    int64_t slots[COUNT + 3] = {0};       a slot of eight bytes for each parameter, then the grid
    slots[0] = (int64_t)n;                integers are widened
    memcpy(&slots[1], &x, sizeof x);      all else lies in the first bytes

`compile/c_interface.py` writes headers of it, `compile/shared_objects.py` the launchers of AOTInductor's packages.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.backends.cpu.device.arena import arena_stride
from tilewright.compile.kernel import CompiledKernel
from tilewright.compile.specialize import DIVISIBLE, Path
from tilewright.devices.registry import cpu

TYPES = {
    "fp32": "float", "fp64": "double", "u1": "uint8_t", "i1": "uint8_t", "i8": "int8_t", "i16": "int16_t",
    "i32": "int32_t", "i64": "int64_t", "u8": "uint8_t", "u16": "uint16_t", "u32": "uint32_t", "u64": "uint64_t",
}  # fmt: skip
"""Type in C of a number, by its type in signatures."""
BITS = {"fp16": "uint16_t", "bf16": "uint16_t"}
"""Type in C of the bits of a number that C has no type for."""

PERMISSION = "    syscall(SYS_arch_prctl, 0x1023, 18); /* tile registers */\n"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A run-time parameter.

    Args:
        name: in C.
        kind: signature type.
        divisible: whether the code takes it to be divisible by 16.
        path: where it is among the arguments.
    """

    name: str
    kind: str
    divisible: bool
    path: Path = ()

    @property
    def is_pointer(self) -> bool:
        """Whether it is an address."""
        return self.kind.startswith("*")

    @property
    def ctype(self) -> str:
        """Its type in C; halves are passed by their bits."""
        if not self.is_pointer:
            return TYPES.get(self.kind) or BITS[self.kind]
        const = "const " if self.kind.startswith("*k") else ""
        return f"{const}{TYPES.get(self.kind.removeprefix('*').removeprefix('k'), 'void')} *"

    def slot(self, index: int) -> str:
        """The statement that fills slot `index`."""
        if self.kind[0] in "iu":
            return f"    slots[{index}] = (int64_t){self.name};\n"
        return f"    memcpy(&slots[{index}], &{self.name}, sizeof {self.name});\n"

    def refused(self, reaction: str) -> str:
        """The statement that refuses what the code was not made for, by the statement `reaction`."""
        value = f"(uintptr_t){self.name}" if self.is_pointer else self.name
        return f"    if ({value} % 16 != 0) {reaction};\n" if self.divisible else ""


def parameters_of(kernel: CompiledKernel) -> list[Parameter]:
    """The run-time parameters of a kernel in the order of its slots; parts of tuples are parameters of their own."""
    assert kernel.specialization is not None
    return [
        Parameter("_".join([name, *map(str, path[1:])]), kind, key == DIVISIBLE, path)
        for name, path, kind, key in kernel.specialization.leaves()
        if kind != "constexpr"
    ]


def grid_slots(count: int, names: tuple[str, str, str]) -> str:
    """The statement that puts the grid behind `count` parameters."""
    return f"    {', '.join(f'slots[{count + at}] = {name}' for at, name in enumerate(names))};\n"


def chunks(kernel: CompiledKernel, names: tuple[str, str, str]) -> str:
    """The statements that say how many programs there are (`total`), and how many of them a thread takes (`chunk`)."""
    x, y, z = names
    given = int(kernel.metadata.get("chunk", 0))
    return (
        f"    const int64_t total = (int64_t){x} * {y} * {z}, given = {given};\n"
        "    const int64_t chunk = given ? given : total / 64 + 1;\n"
    )


def needs_permission(kernel: CompiledKernel) -> bool:
    """Whether a thread asks the system for tile registers before the kernel runs."""
    return bool(cpu.features_of(kernel.target).has("amx-tile"))


def scratch_of(kernel: CompiledKernel) -> int:
    """Bytes that each thread needs beside the stack, as `aligned_alloc` takes them; 0 for none."""
    size = int(kernel.metadata["scratch_bytes"])
    return arena_stride(size) if size else 0
