"""Data types of the block language: names, widths, signs, and their numpy forms.

A `dtype` is what a user sees (`tl.float32`); `PointerType` and `BlockType` are built on it.
numpy has no bfloat16 and no 8-bit floats: there the *working form* is float32 (already
rounded to the type) and the *memory form* is the unsigned integer of the same width;
`base/minifloat.py` converts between the two.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tilewright.base.errors import LanguageValueError
from tilewright.base.naming import package

MAX_TILE_NUMEL = 1 << 20


class Signedness(enum.Enum):
    SIGNED = 0
    UNSIGNED = 1


class Kind(enum.IntEnum):
    """Order of kinds in promotion: a Python number yields to a tensor of its kind or a later one."""

    BOOLEAN = 0
    INTEGRAL = 1
    FLOATING = 2


class _Info(NamedTuple):
    """One row of the table of types."""

    sig: str
    bits: int
    kind: Kind
    signed: bool = True
    mantissa: int = 0
    bias: int = 0
    ir: str = ""
    work: str = ""


# name: signature text, bits, kind, signed, mantissa bits, exponent bias, IR type name, numpy working type
_TABLE: dict[str, _Info] = {
    "void": _Info("void", 0, Kind.INTEGRAL),
    "int1": _Info("u1", 1, Kind.BOOLEAN, False, ir="i1", work="bool"),
    **{f"int{n}": _Info(f"i{n}", n, Kind.INTEGRAL, True, ir=f"i{n}", work=f"int{n}") for n in (8, 16, 32, 64)},
    **{f"uint{n}": _Info(f"u{n}", n, Kind.INTEGRAL, False, ir=f"i{n}", work=f"uint{n}") for n in (8, 16, 32, 64)},
    "fp16": _Info("fp16", 16, Kind.FLOATING, True, 10, 15, "f16", "float16"),
    "bf16": _Info("bf16", 16, Kind.FLOATING, True, 7, 127, "bf16", "float32"),
    "fp32": _Info("fp32", 32, Kind.FLOATING, True, 23, 127, "f32", "float32"),
    "fp64": _Info("fp64", 64, Kind.FLOATING, True, 52, 1023, "f64", "float64"),
    "fp8e4nv": _Info("fp8e4nv", 8, Kind.FLOATING, True, 3, 7, "f8E4M3FN", "float32"),
    "fp8e5": _Info("fp8e5", 8, Kind.FLOATING, True, 2, 15, "f8E5M2", "float32"),
    "fp8e4b15": _Info("fp8e4b15", 8, Kind.FLOATING, True, 3, 15, "f8E4M3B11FNUZ", "float32"),
    "fp8e4b8": _Info("fp8e4b8", 8, Kind.FLOATING, True, 3, 8, "f8E4M3FNUZ", "float32"),
    "fp8e5b16": _Info("fp8e5b16", 8, Kind.FLOATING, True, 2, 16, "f8E5M2FNUZ", "float32"),
}
_PUBLIC = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64"} | {
    n: "float8" + n[3:] for n in _TABLE if n.startswith("fp8")
}


class Type:
    """Base of everything that can be the type of a value in a kernel."""

    name: str

    def __str__(self) -> str:
        return self.name

    @property
    def scalar(self) -> Any:
        return self

    def is_block(self) -> bool:
        return False

    def is_ptr(self) -> bool:
        return False


class dtype(Type):
    """A scalar data type, such as ``tl.float32``.

    Instances are unique per name: compare them with ``==`` or ``is``.

    Args:
        name: short name ("fp32", "int8", "bf16", ...) or public name ("float32").

    Attributes:
        value: the type itself: as an argument it stands for a constant, whose value kernels may ask for.
    """

    SIGNEDNESS = Signedness
    KIND = Kind
    # Names by kind, as programs written for Triton look them up.
    SINT_TYPES: ClassVar[list[str]] = [n for n, t in _TABLE.items() if t.kind is Kind.INTEGRAL and t.bits and t.signed]
    UINT_TYPES: ClassVar[list[str]] = [n for n, t in _TABLE.items() if not t.signed]
    FP_TYPES: ClassVar[list[str]] = [n for n, t in _TABLE.items() if t.kind is Kind.FLOATING]
    STANDARD_FP_TYPES: ClassVar[list[str]] = ["fp16", "bf16", "fp32", "fp64"]
    OTHER_TYPES: ClassVar[list[str]] = ["void"]
    _instances: ClassVar[dict[str, dtype]] = {}

    name: str
    value: dtype
    _info: _Info

    def __new__(cls, name: str) -> dtype:
        short = next((s for s, public in _PUBLIC.items() if public == name), name)
        if short not in _TABLE:
            raise ValueError(f"unknown data type {name!r}; known: {', '.join(_TABLE)}")
        if short not in cls._instances:
            self = super().__new__(cls)
            self.name = short
            self.value = self
            self._info = _TABLE[short]
            cls._instances[short] = self
        return cls._instances[short]

    def __reduce__(self) -> tuple[type[dtype], tuple[str]]:
        return (dtype, (self.name,))

    def __repr__(self) -> str:
        return f"{package()}.language.{_PUBLIC.get(self.name, self.name)}"

    # -- widths -----------------------------------------------------------------------------

    @property
    def primitive_bitwidth(self) -> int:
        return self._info.bits

    @property
    def itemsize(self) -> int:
        return self._info.bits // 8

    @property
    def memory_bytes(self) -> int:
        """Bytes of one element in memory; an int1 takes a whole byte."""
        return max(1, self._info.bits // 8)

    @property
    def fp_mantissa_width(self) -> int:
        return self._info.mantissa

    @property
    def exponent_bias(self) -> int:
        return self._info.bias

    int_bitwidth = primitive_bitwidth

    @property
    def int_signedness(self) -> Signedness:
        return Signedness.SIGNED if self._info.signed else Signedness.UNSIGNED

    # -- kinds --------------------------------------------------------------------------------

    @property
    def kind(self) -> Kind:
        return self._info.kind

    def is_floating(self) -> bool:
        return self._info.kind is Kind.FLOATING

    def is_fp8(self) -> bool:
        return self.name.startswith("fp8")

    def is_standard_floating(self) -> bool:
        return self.is_floating() and not self.is_fp8()

    def is_int(self) -> bool:
        return not self.is_floating() and self.name != "void"

    def is_bool(self) -> bool:
        return self.name == "int1"

    def is_int_signed(self) -> bool:
        return self.is_int() and self._info.signed

    def is_int_unsigned(self) -> bool:
        return self.is_int() and not self._info.signed

    # -- other forms -----------------------------------------------------------------------------

    @property
    def cache_key_part(self) -> str:
        return self.name

    @property
    def signature(self) -> str:
        """Text in a specialisation signature: "fp32", "i32", "u1"."""
        return self._info.sig

    @property
    def ir_name(self) -> str:
        """Name of the element type in tile IR; signless, so int32 and uint32 share "i32"."""
        return self._info.ir

    @cached_property
    def work_dtype(self) -> np.dtype[Any]:
        """numpy type in which the reference computes."""
        return np.dtype(self._info.work)

    @cached_property
    def memory_dtype(self) -> np.dtype[Any]:
        """numpy type of one element in memory."""
        if self.is_bool():
            return np.dtype("int8")
        if self.is_fp8() or self.name == "bf16":
            return np.dtype(f"uint{self._info.bits}")
        return self.work_dtype

    def get_int_max_value(self) -> int:
        return (1 << (self._info.bits - (1 if self._info.signed else 0))) - 1

    def get_int_min_value(self) -> int:
        return -(1 << (self._info.bits - 1)) if self._info.signed else 0

    def with_element_ty(self, element: dtype) -> dtype:
        return element


@dataclass(frozen=True)
class PointerType(Type):
    """Pointer to elements of `element_ty`; `const` forbids stores through it."""

    element_ty: Any
    const: bool = False
    address_space: str = "global"

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"{'const_' if self.const else ''}pointer<{self.element_ty}>"

    __str__ = Type.__str__

    def is_ptr(self) -> bool:
        return True

    @property
    def signature(self) -> str:
        return f"*{'k' if self.const else ''}{self.element_ty.signature}"


@dataclass(frozen=True)
class BlockType(Type):
    """A tile: `element_ty` (a dtype or pointer) with a compile-time `shape`."""

    element_ty: Any
    shape: tuple[int, ...]

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"<{self.element_ty}[{', '.join(map(str, self.shape))}]>"

    def __str__(self) -> str:
        return f"{self.element_ty}[{', '.join(map(str, self.shape))}]"

    @property
    def scalar(self) -> Any:
        return self.element_ty

    def is_block(self) -> bool:
        return True

    @property
    def numel(self) -> int:
        total = 1
        for dim in self.shape:
            total *= dim
        return total

    @property
    def nbytes(self) -> int:
        return self.numel * int(self.element_ty.primitive_bitwidth) // 8

    def get_block_shapes(self) -> tuple[int, ...]:
        return self.shape

    def with_element_ty(self, element: Any) -> BlockType:
        return BlockType(element, self.shape)


def _add_name_predicates() -> None:
    """`dtype.is_fp32()`, `dtype.is_int8()`, ...: one predicate per type of the table."""
    for short in _TABLE:
        if short != "void":
            setattr(dtype, f"is_{short}", lambda self, short=short: self.name == short)


_add_name_predicates()

void = dtype("void")
int1, int8, int16, int32, int64 = (dtype(n) for n in ("int1", "int8", "int16", "int32", "int64"))
uint8, uint16, uint32, uint64 = (dtype(n) for n in ("uint8", "uint16", "uint32", "uint64"))
float16, bfloat16, float32, float64 = (dtype(n) for n in ("fp16", "bf16", "fp32", "fp64"))
float8e4nv, float8e5, float8e4b15, float8e4b8, float8e5b16 = (
    dtype(n) for n in ("fp8e4nv", "fp8e5", "fp8e4b15", "fp8e4b8", "fp8e5b16")
)
ALL_DTYPES = tuple(dtype(n) for n in _TABLE if n != "void")


def signature_types() -> dict[str, str]:
    """Signature type of every scalar type, by each of its names: `"fp32"` of "fp32" and "float32"."""
    named = {name: info.sig for short, info in _TABLE.items() for name in (short, info.sig, _PUBLIC.get(short, short))}
    return {**named, **dict.fromkeys(("i1", "uint1", "B"), "u1")}


def scalar_from_signature(text: str) -> dtype | PointerType:
    """Parse "fp32", "i32", "u1", "*fp16", "*kbf16", "**i8" of a specialisation signature."""
    if text.startswith("*k"):
        return PointerType(scalar_from_signature(text[2:]), const=True)
    if text.startswith("*"):
        return PointerType(scalar_from_signature(text[1:]))
    if text in ("i1", "B", "uint1"):
        return int1
    for short, info in _TABLE.items():
        if text in (info.sig, short, _PUBLIC.get(short)):
            return dtype(short)
    raise LanguageValueError(f"unknown type {text!r} in a signature", hint='write "*fp32", "i32", "u1", ...')


def with_shape_of(like: Type, element: Any) -> Any:
    """`element` as a tile of the shape of `like`, or as a scalar if `like` is one."""
    return BlockType(element, like.shape) if isinstance(like, BlockType) else element
