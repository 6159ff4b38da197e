"""How a tile product runs on a CPU: instruction family, micro-kernel shape, packed layouts, buffer sizes.

`plan_dot` is a pure function of the target's features, so that a cross-compiler decides as the host would. A plan is
frozen and hashable; emitters take nothing else. A *word* is what one lane of an accumulator consumes per step: `unit`
consecutive K elements of the operand type (1 for FMA, 2 for bf16 and int16 pairs, 4 for int8 quads; 8 bytes for Arm's
products of 2x2 blocks).

Packed A is row-major: row m holds its K words. Packed B is a sequence of column panels, each `[word of K][column]`,
so that one step of a micro-kernel reads one contiguous row of words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tilewright.backends.cpu import tuning
from tilewright.backends.llvm.casts import storage
from tilewright.backends.llvm.features import CpuFeatures
from tilewright.backends.llvm.minifloat import FORMATS
from tilewright.backends.llvm.types import T
from tilewright.base.errors import DTypeError, ShapeError

Family = Literal["fma", "imul", "dpbf16", "dot4", "pmadd", "mmla", "amx-bf16", "amx-int8", "amx-split"]

_MINIFLOATS = tuple(name for name in FORMATS if name.startswith("f8"))
_FLOATS = ("f64", "f32", "f16", "bf16", *_MINIFLOATS)
ELEM: dict[str, T] = {name: storage(name) for name in (*_FLOATS, "i8", "i16", "i32", "i64")}
_LINE = 64
# Bytes of a word of K where they are not 4.
_WORD_BYTES = {"mmla": 8}
_PRECISIONS = ("ieee", "tf32", "tf32x3", "bf16x3", "bf16x6")
# f32 operands that may be multiplied as the sums of two bf16 each.
_SPLIT_PRECISIONS = ("tf32", "bf16x3")


@dataclass(frozen=True, slots=True)
class DotPlan:
    """One tile product `acc[m, n] (+)= a[m, k] * b[k, n]` on one target.

    Args:
        family: which instructions multiply.
        m, n, k: tile shape; `k` is what the operands of one dot have, run-time K may be anything.
        a_dtype, b_dtype: element types in memory, by their names in tile IR.
        operand: element type of packed operands.
        acc: element type of the accumulator (`f32`, `f64`, `i32`, `i64`); narrower results are rounded by the caller.
        unit: K elements in a word.
        k_block: K elements to a multiple of which packed operands are zero-padded.
        planes: planes of each packed operand: 3 where it is split (first part, rest, finite first part), else 1.
        lanes: accumulator lanes of one vector (columns of one tile register on AMX).
        mr, nv: rows and vectors of the micro-kernel.
        tf32: whether f32 operands are rounded to tf32 before they are split.
        native: lanes of the widest vector.
    """

    family: Family
    m: int
    n: int
    k: int
    a_dtype: str
    b_dtype: str
    operand: str
    acc: str
    unit: int
    k_block: int
    planes: int
    lanes: int
    mr: int
    nv: int
    tf32: bool = False
    native: int = 16

    # -- shapes ----------------------------------------------------------------------------------

    @property
    def is_amx(self) -> bool:
        """Whether the kernel needs a tile configuration (see `amx.configure`)."""
        return self.family.startswith("amx")

    @property
    def word_bytes(self) -> int:
        return self.unit * ELEM[self.operand].bytes

    @property
    def panel_columns(self) -> int:
        """Columns of a full panel."""
        return self.nv * self.lanes

    @property
    def panels(self) -> int:
        """Number of full panels."""
        return self.n // self.panel_columns

    @property
    def tail_vectors(self) -> int:
        """Vectors of the narrower last panel; 0 if there is none."""
        return -(-(self.n % self.panel_columns) // self.lanes)

    @property
    def tail_columns(self) -> int:
        """Columns of the last vector of the last panel that exist; 0 when all do."""
        return self.n % self.lanes

    @property
    def all_panels(self) -> int:
        """Number of panels, the narrower one included."""
        return self.panels + (self.tail_vectors > 0)

    # -- buffers ---------------------------------------------------------------------------------

    @property
    def align(self) -> int:
        """Alignment in bytes of packed operands and of the accumulator."""
        return _LINE

    @property
    def acc_rows(self) -> int:
        """Rows that the accumulator buffer must have; those past `m` hold zeros or sums of zeros."""
        return -(-self.m // 16) * 16 if self.is_amx else self.m

    @property
    def acc_columns(self) -> int:
        """Columns that each accumulator row must have room for."""
        return -(-self.n // 16) * 16 if self.is_amx else self.n

    @property
    def acc_bytes(self) -> int:
        """Size of a dense accumulator."""
        return self.acc_rows * self.acc_columns * ELEM[self.acc].bytes

    @property
    def a_rows(self) -> int:
        """Rows of packed A."""
        return self.acc_rows

    def padded_k(self, k: int) -> int:
        """`k` elements rounded up to whole blocks."""
        return -(-k // self.k_block) * self.k_block

    def steps(self, k: int) -> int:
        """Words of K that a dot over `k` elements runs."""
        return self.padded_k(k) // self.unit

    def a_row_bytes(self, k: int) -> int:
        """A good row stride for packed A of `k` elements: whole lines, not a multiple of 2 KB (L1 sets)."""
        size = -(-self.padded_k(k) * ELEM[self.operand].bytes // _LINE) * _LINE
        return size + _LINE if size % 2048 == 0 else size

    def a_plane_bytes(self, k: int) -> int:
        """Bytes of one plane of packed A."""
        return self.a_rows * self.a_row_bytes(k)

    def a_bytes(self, k: int) -> int:
        """Bytes of packed A of `k` elements, all planes."""
        return self.planes * self.a_plane_bytes(k)

    def b_panel_bytes(self, k: int) -> int:
        """Stride between panels of packed B of `k` elements (the last panel may use less of it)."""
        return self.steps(k) * self.panel_columns * self.word_bytes

    def b_plane_bytes(self, k: int) -> int:
        """Bytes of one plane of packed B."""
        return self.all_panels * self.b_panel_bytes(k)

    def b_bytes(self, k: int) -> int:
        """Bytes of packed B of `k` elements, all planes."""
        return self.planes * self.b_plane_bytes(k)

    # -- operands read where they are --------------------------------------------------------------

    @property
    def a_in_place(self) -> bool:
        """Whether A may be row-major memory with unit K stride instead of packed, for K a multiple of `k_block`."""
        return self.a_dtype == self.operand and self.planes == 1 and self.m == self.a_rows

    @property
    def b_in_place(self) -> bool:
        """Whether B may be row-major memory with unit N stride instead of packed."""
        return self.family in ("fma", "imul") and self.b_dtype == self.operand and self.unit == self.planes == 1

    @property
    def thin(self) -> bool:
        """Whether there are so few rows that B is better read where it lies than packed."""
        return self.m <= tuning.THIN_ROWS and self.family == "fma" and self.acc == "f32"

    @property
    def lanes_of_k(self) -> int:
        """Lanes of a vector that runs along K; a power of two that divides the K block."""
        return min(self.native, self.k & -self.k)

    @property
    def name(self) -> str:
        """Text that identifies the plan in the names of emitted functions."""
        types = f"{self.a_dtype}.{self.b_dtype}.{self.operand}.{self.acc}"
        family = self.family.replace("-", "") + ("tf32" if self.tf32 else "")
        return f"{family}.{types}.{self.m}x{self.n}.{self.mr}x{self.nv}x{self.lanes}"


def plan_dot(
    isa: CpuFeatures,
    m: int,
    n: int,
    k: int,
    a_dtype: str,
    b_dtype: str,
    acc_dtype: str,
    precision: str = "ieee",
) -> DotPlan:
    """Choose how to multiply.

    Args:
        isa: the target.
        m, n, k: tile shape, positive.
        a_dtype, b_dtype: element types of the operands, by their names in tile IR. Integers are signed.
        acc_dtype: element type of the result; `f16` and `bf16` accumulate in f32, `i8` and `i16` in i32.
        precision: Triton's `input_precision`; only f32 operands heed it. Everything but `tf32` and `bf16x3` is exact
            f32 multiplication; those two permit splitting into bf16 pairs, done where that is faster (AMX). On Zen 5
            three bf16 products take longer than one f32 FMA (165 against 247 GF/s), so nothing is split there.

    Products of f16 are exact in every precision and family, and are summed in f32
    (docs/decisions/numerics.md#split-operands). bf16 instructions take subnormal numbers as zero, so split f32 operands
    below 2**-116 lose bits.

    Raises:
        DTypeError: operands of these types have no product here.
        ShapeError: an extent is not positive.
    """
    if min(m, n, k) <= 0:
        raise ShapeError(f"a dot needs positive extents, not {m}x{n}x{k}")
    if precision not in _PRECISIONS:
        raise DTypeError(f"unknown input precision {precision!r}", hint=f"one of {', '.join(_PRECISIONS)}")
    for name in (a_dtype, b_dtype, acc_dtype):
        if name not in ELEM:
            raise DTypeError(f"a dot has no operands of type {name}", hint=f"one of {', '.join(ELEM)}")
    if len({name in _FLOATS for name in (a_dtype, b_dtype, acc_dtype)}) > 1:
        raise DTypeError(f"a dot cannot mix integers and floats: {a_dtype}, {b_dtype} -> {acc_dtype}")
    family, operand, acc = _choose_family(isa, a_dtype, b_dtype, acc_dtype, precision)
    if m <= tuning.THIN_ROWS and acc == "f32":
        family, operand = "fma", "f32"
    if m == 1 and family == "mmla" and has_dot4(isa):  # half of each block would be thrown away
        family = "dot4"
    unit = _WORD_BYTES.get(family, 4) // ELEM[operand].bytes if family not in ("fma", "imul") else 1
    if family.startswith("amx"):
        planes = 3 if family == "amx-split" else 1
        nv = 1 if n <= 16 else 2
        mr = 16 if m <= 16 else 32
        tf32 = planes > 1 and precision == "tf32" and "f32" in (a_dtype, b_dtype)
        return DotPlan(family, m, n, k, a_dtype, b_dtype, operand, acc, unit, 16 * unit, planes, 16, mr, nv, tf32)
    native = isa.vector_bytes // ELEM[acc].bytes
    if family == "dot4" and isa.is_x86 and not isa.has("avx512vnni"):
        native = min(native, 8)
    lanes = _lanes(native, n, ELEM[acc].bytes)
    mr, nv = _micro_shape(isa.vector_registers, m, -(-n // lanes))
    return DotPlan(family, m, n, k, a_dtype, b_dtype, operand, acc, unit, unit, 1, lanes, mr, nv, native=native)


def describe(plan: DotPlan) -> str:
    """A plan for people."""
    if plan.thin:
        return f"fma on {plan.operand}, sums in {plan.acc}, operands read and converted where they lie"
    pieces = f"{plan.mr} x {plan.nv * plan.lanes} pieces"
    twice = ", each operand split in two halves" if plan.planes > 1 else ""
    return f"{plan.family} on {plan.operand}, sums in {plan.acc}, {pieces}{twice}"


def _choose_family(isa: CpuFeatures, a: str, b: str, acc: str, precision: str) -> tuple[Family, str, str]:
    """Family, operand type and accumulator type."""
    both = {a, b}
    if acc not in _FLOATS:
        return _choose_integer(isa, both, acc)
    if "f64" in (a, b, acc):
        return "fma", "f64", "f64"
    if both <= {"bf16", *_MINIFLOATS}:  # bf16 holds every 8-bit float exactly
        if isa.has("amx-bf16", "amx-tile"):
            return "amx-bf16", "bf16", "f32"
        if isa.arch == "aarch64" and isa.has("bf16"):
            return "mmla", "bf16", "f32"
        if has_fast_bf16(isa):
            return "dpbf16", "bf16", "f32"
    can_split = isa.has("amx-bf16", "amx-tile", "avx512bf16") and isa.has_zmm
    if can_split and ("f32" not in both or precision in _SPLIT_PRECISIONS):
        return "amx-split", "bf16", "f32"
    return "fma", "f32", "f32"


def _choose_integer(isa: CpuFeatures, both: set[str], acc: str) -> tuple[Family, str, str]:
    """Family, operand type and accumulator type of an integer product (exact modulo 2**width)."""
    if acc == "i64" or "i64" in both:
        return "imul", "i64", "i64"
    if both == {"i8"}:
        if isa.has("amx-int8", "amx-tile"):
            return "amx-int8", "i8", "i32"
        if isa.arch == "aarch64" and isa.has("i8mm"):
            return "mmla", "i8", "i32"
        if has_dot4(isa):
            return "dot4", "i8", "i32"
    if both <= {"i8", "i16"} and isa.is_x86:
        return "pmadd", "i16", "i32"
    return "imul", "i32", "i32"


def has_fast_bf16(isa: CpuFeatures) -> bool:
    """Whether two products of bf16 are summed into an f32 lane by one instruction that beats two multiply-adds."""
    return isa.has("avx512bf16") and isa.has_zmm and isa.cpu.startswith(tuning.FAST_BF16_CPUS)


def has_dot4(isa: CpuFeatures) -> bool:
    """Whether four int8 products are summed into an i32 lane by one instruction."""
    if isa.is_x86:
        return (isa.has("avx512vnni") and isa.has_zmm) or isa.has("avxvnni") or isa.has("avxvnniint8")
    return isa.arch == "aarch64" and isa.has("dotprod")


def _lanes(native: int, n: int, acc_bytes: int) -> int:
    """Lanes of a vector: native, or the power of two that holds a narrow tile (at least 128 bits)."""
    lanes = 16 // acc_bytes
    while lanes < min(native, n):
        lanes *= 2
    return lanes


def _micro_shape(registers: int, m: int, vectors: int) -> tuple[int, int]:
    """Rows and vectors of the micro-kernel.

    Any shape with 8 or more accumulators that fit beside `nv + 1` operand registers reaches the FMA limit from L1;
    8x2 divides power-of-two tiles and reads the least of B per product.
    """
    room, enough, mr = tuning.MICRO_KERNELS[registers >= 32]
    if vectors == 1:
        mr *= 2
    mr = -(-m // -(-m // mr))  # rows of the blocks differ by few
    shapes = [nv for nv in (1, 2, 3, 4, 6, 8) if nv <= vectors and mr * nv <= room]
    # First enough accumulators to hide the latency, then no narrow tail panel, then the narrowest panel.
    return mr, max(shapes, key=lambda nv: (min(mr * nv, enough), vectors % nv == 0, -nv))


def thin_vectors(plan: DotPlan, isa: CpuFeatures) -> int:
    """Vectors of columns (columns, where B runs along K) that a product of few rows takes at once; a power of two."""
    sums = tuning.THIN_SUMS[isa.vector_registers >= 32] // plan.m
    return min(tuning.THIN_VECTORS, 1 << sums.bit_length() - 1)


# Families whose micro-kernels take any number of rows.
BY_ROWS = ("fma", "imul", "pmadd", "dpbf16", "mmla")


def writes_parts(plan: DotPlan, isa: CpuFeatures) -> bool:
    """Whether the product of a part of a tile leaves the rest of the accumulator alone."""
    return isa.has_masks and plan.family in BY_ROWS and not plan.thin


def few_rows(plan: DotPlan) -> int:
    """Rows of the micro-kernel for what is left of a block of rows of which some are not wanted; 0 if none pays.

    A quarter of the block's, but enough accumulators to hide the latency of multiply-adds. Among many blocks one more
    is not worth another kernel to compile.
    """
    few = max(plan.mr // 4, -(-tuning.FEW_ACCUMULATORS // plan.nv))
    return few if 2 * few <= plan.mr and plan.m <= tuning.FEW_BLOCKS * plan.mr and not plan.is_amx else 0
