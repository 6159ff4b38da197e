"""A program of a bundle in C: a header with a function for each variant, which launches its kernels in order.

    NAME.h:   int NAME_0(const float *x, ..., float *result_0, void *workspace);

The caller has the memory: results, and a workspace of `NAME_0_WORKSPACE` bytes, divisible by 64, for what is neither
argument nor result. On CPUs; kernels of GPUs have launch functions of their own (`c_interface.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from tilewright.base.errors import UnsupportedError
from tilewright.base.version import __version__
from tilewright.compile.c_interface import RESERVED, guarded, write_c
from tilewright.compile.c_parameters import TYPES, Parameter
from tilewright.compile.kernel import CompiledKernel
from tilewright.compile.programs import At, Given, Memory, Number, Program, Step, Variant
from tilewright.devices.arrays import ELEMENT_TYPES

_ALIGNED = 64


def write_program(program: Program, kernels: Mapping[str, CompiledKernel], folder: Path) -> list[Path]:
    """Write the files for C of a program: headers, and object files of the kernels; returns them.

    Args:
        program: what calls do.
        kernels: the kernels of its steps, by name; for those of a GPU there are only their own files.
        folder: where.

    Raises:
        UnsupportedError: something of it is not done from C.
    """
    made: list[Path] = []
    on_cpu = all(kernel.target.backend == "cpu" for kernel in kernels.values())
    for name, kernel in kernels.items():
        made += write_c(kernel, folder)
        if on_cpu:
            made.append(folder / f"{name}.obj")
            made[-1].write_bytes(kernel.binary)
    if not on_cpu:
        return made
    header = folder / f"{program.name}.h"
    header.write_text(_header(program, kernels), encoding="utf-8")
    return [header, *made]


def _header(program: Program, kernels: Mapping[str, CompiledKernel]) -> str:
    name = program.name
    if not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise UnsupportedError(f"{name} is no name in C", hint="rename the kernel")
    includes = "".join(f'#include "{symbol}.h"\n' for symbol in kernels)
    bodies = "\n".join(_function(f"{name}_{at}", one, kernels) for at, one in enumerate(program.variants))
    head = (
        f"/* {name}, compiled by Tilewright {__version__}. Functions return 0, or what a launch of a kernel has. */\n"
    )
    return guarded(f"{name}_PROGRAM", f"{head}\n{includes}\n{bodies}")


def _function(symbol: str, variant: Variant, kernels: Mapping[str, CompiledKernel]) -> str:
    returned = {result.at.memory: at for at, result in enumerate(variant.results)}
    names, offsets, size = _names(variant, returned), dict[int, int](), 0
    for at, memory in enumerate(variant.memories):
        if at >= len(variant.arguments) and at not in returned and isinstance(memory, Memory):
            offsets[at] = size
            size += -(-memory.elements * _bits(memory) // 8 // _ALIGNED) * _ALIGNED
    stored = {place.memory for step in variant.steps for place in _stored(step, kernels[step.kernel])}
    parameters = [
        f"{_pointer(memory, const=at not in stored)}{names[at]}"
        for at, memory in enumerate(variant.memories)
        if isinstance(memory, Memory) and at not in offsets
    ]
    own = "".join(f"    void *const {names[at]} = (char *)workspace + {offset};\n" for at, offset in offsets.items())
    fills = "".join(_fill(names[at], memory) for at, memory in enumerate(variant.memories))
    launches = "".join(_launch(step, names, kernels[step.kernel]) for step in variant.steps)
    return (
        f"/*{_note(variant, returned)} */\n"
        f"#define {symbol.upper()}_WORKSPACE {size}\n"
        f"static inline int {symbol}({', '.join([*parameters, 'void *workspace'])}) {{\n"
        f"    int code = 0;\n    (void)workspace;\n{own}{fills}{launches}    return code;\n}}\n"
    )


def _names(variant: Variant, returned: Mapping[int, int]) -> list[str]:
    """A name in C for each memory; none for what is no memory."""
    taken, names = set(RESERVED.split()) | {"workspace", "code", "place"}, []
    for at, memory in enumerate(variant.memories):
        name = (
            memory.name if at < len(variant.arguments) else f"result_{returned[at]}" if at in returned else f"own_{at}"
        )
        while name in taken:
            name += "_"
        taken.add(name)
        names.append(name)
    return names


def _kind(dtype: str) -> str:
    return ELEMENT_TYPES[dtype]


def _bits(memory: Memory) -> int:
    kind = _kind(memory.dtype)
    return max(8, int("".join(filter(str.isdigit, kind.split("e")[0].replace("bf", "")))))


def _pointer(memory: Memory, const: bool) -> str:
    return Parameter("", f"*{'k' if const else ''}{_kind(memory.dtype)}", False).ctype


def _note(variant: Variant, returned: Mapping[int, int]) -> str:
    lines = []
    for at, memory in enumerate(variant.memories):
        if isinstance(memory, Given):
            lines.append(f"{memory.name} = {memory.value!r}")
        elif at < len(variant.arguments) or at in returned:
            name = memory.name if at < len(variant.arguments) else f"result_{returned[at]}"
            lines.append(f"{name}: {memory.dtype} {list(memory.shape)}, strides {list(memory.strides)}")
    return "\n *".join(f" {line.replace('*/', '* /')}" for line in lines)


def _fill(name: str, memory: Memory | Given) -> str:
    """The statement that gives a buffer its first elements."""
    if isinstance(memory, Given) or memory.fill is None:
        return ""
    if not memory.fill:
        return f"    memset({name}, 0, {memory.elements * _bits(memory) // 8});\n"
    kind = _kind(memory.dtype)
    if kind not in TYPES:
        raise UnsupportedError(
            f"a tensor of {memory.dtype} filled with {memory.fill} from C", hint="fill it in the kernel"
        )
    ctype = TYPES[kind]
    return (
        f"    for (int64_t place = 0; place < {memory.elements}; ++place) "
        f"(({ctype} *){name})[place] = ({ctype}){_number(memory.fill)};\n"
    )


def _launch(step: Step, names: Sequence[str], kernel: CompiledKernel) -> str:
    assert kernel.specialization is not None
    passed = [
        _value(argument, names)
        for argument, kind in zip(step.arguments, kernel.specialization.types, strict=True)
        if kind != "constexpr"
    ]
    grid = ", ".join(map(str, step.grid))
    return f"    if (!code) code = {kernel.metadata['symbol']}_launch({', '.join([grid, *passed])});\n"


def _value(argument: At | Number, names: Sequence[str]) -> str:
    if not isinstance(argument, At):
        return _number(argument)
    return f"(void *)((char *){names[argument.memory]} + {argument.offset})"


def _number(value: Number) -> str:
    if isinstance(value, float):
        special = {"inf": "(1.0 / 0.0)", "-inf": "(-1.0 / 0.0)", "nan": "(0.0 / 0.0)"}
        return special.get(repr(value), repr(value))
    return str(int(value))


def _stored(step: Step, kernel: CompiledKernel) -> list[At]:
    """The places that a launch stores to."""
    assert kernel.specialization is not None
    run_time = [
        argument
        for argument, kind in zip(step.arguments, kernel.specialization.types, strict=True)
        if kind != "constexpr"
    ]
    found = [run_time[at] for at in kernel.metadata["stored"]]
    return [place for place in found if isinstance(place, At)]
