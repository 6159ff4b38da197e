"""An LLVM function for NVPTX: thread indices, barriers, shuffles, shared memory and inline PTX.

Values are scalars (one element of one thread). Shared memory is one array, `@shared`, addressed by `ptr
addrspace(3)`; offsets are in bytes. Predicated and cached global accesses are inline PTX, as only that gives control
of them; everything else is LLVM's, which then forwards and vectorises addresses.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.backends.llvm.instructions import Operand
from tilewright.backends.llvm.module import Function
from tilewright.backends.llvm.types import I1, I8, I32, I64, PTR, VOID, T, V, const
from tilewright.backends.nvidia.arch import WARP

SHARED_PTR = T("ptr addrspace(3)")
_FULL_MASK = -1


class NvFunction(Function):
    """Body of a kernel (or of an internal function of its module)."""

    # -- threads ---------------------------------------------------------------------------------------

    def special_register(self, name: str) -> V:
        """`tid.x`, `ctaid.y`, `nctaid.z`, `laneid`, ... as i32."""
        return self.call(f"llvm.nvvm.read.ptx.sreg.{name}", I32, ())

    waiting: tuple[int, int] | None = None
    """Number of the hardware barrier at which the threads of a role wait, and how many they are; None: of the block."""

    def barrier(self) -> None:
        """All threads of the block, or role, wait for each other; shared memory written before is seen after."""
        if self.waiting is None:
            self.call("llvm.nvvm.barrier.cta.sync.aligned.all", VOID, (const(I32, 0),))
        else:
            number, threads = (const(I32, value) for value in self.waiting)
            self.call("llvm.nvvm.barrier.cta.sync.aligned.count", VOID, (number, threads))

    def warp_barrier(self) -> None:
        """The lanes of a warp wait for each other."""
        self.call("llvm.nvvm.bar.warp.sync", VOID, (const(I32, _FULL_MASK),))

    # -- words -----------------------------------------------------------------------------------------

    def to_words(self, value: V) -> list[V]:
        """A scalar or vector of up to 8 to 128 bits as i32 words, low first; fewer than 32 bits are zero-extended."""
        t = value.type
        bits = t.bits * max(t.lanes, 1)
        if t.elem == "ptr":
            value, bits = self.cast("ptrtoint", value, I64), 64
        if bits < 32:
            narrow = self.cast("bitcast", value, T(f"i{bits}")) if value.type.text != f"i{bits}" else value
            return [self.cast("zext", narrow, I32)]
        if bits == 32:
            return [self.cast("bitcast", value, I32)]
        whole = self.cast("bitcast", value, I32.vec(bits // 32))
        return [self.extract(whole, i) for i in range(bits // 32)]

    def from_words(self, words: Sequence[V], t: T) -> V:
        """The inverse of `to_words`."""
        bits = t.bits * max(t.lanes, 1)
        if t.elem == "ptr":
            return self.cast("inttoptr", self.from_words(words, I64), PTR)
        if bits < 32:
            narrow = self.cast("trunc", words[0], T(f"i{bits}"))
            return self.cast("bitcast", narrow, t)
        if bits == 32:
            return self.cast("bitcast", words[0], t)
        return self.cast("bitcast", self.vector(words), t)

    def vector(self, elements: Sequence[V]) -> V:
        """Scalars of one type as a vector."""
        whole = V(elements[0].type.vec(len(elements)), "poison")
        for i, element in enumerate(elements):
            whole = self.insert(whole, element, i)
        return whole

    def elements(self, vector: V) -> list[V]:
        """The lanes of a vector as scalars; a scalar gives itself."""
        return [self.extract(vector, i) for i in range(vector.type.lanes)] if vector.type.lanes else [vector]

    def packed(self, values: Sequence[V]) -> list[V]:
        """Scalars of one type, those of 8 and 16 bits as vectors of up to 32 bits."""
        bits = values[0].type.bits if values else 32
        per = 32 // bits if bits in (8, 16) else 1
        groups = [values[i : i + per] for i in range(0, len(values), per)]
        return [self.vector(group) if len(group) > 1 else group[0] for group in groups]

    def unpacked(self, vectors: Sequence[V]) -> list[V]:
        """The inverse of `packed`."""
        return [element for vector in vectors for element in self.elements(vector)]

    # -- shuffles --------------------------------------------------------------------------------------

    def shuffle_xor(self, value: V, mask: int) -> V:
        """The value of lane ``lane ^ mask``."""
        return self._shuffled(value, "bfly", const(I32, mask))

    def shuffle_index(self, value: V, lane: Operand) -> V:
        """The value of another lane (i32)."""
        return self._shuffled(value, "idx", lane if isinstance(lane, V) else const(I32, lane))

    def _shuffled(self, value: V, kind: str, where: V) -> V:
        words = [
            self.call(f"llvm.nvvm.shfl.sync.{kind}.i32", I32, (const(I32, _FULL_MASK), w, where, const(I32, WARP - 1)))
            for w in self.to_words(value)
        ]
        return self.from_words(words, value.type)

    # -- shared memory -----------------------------------------------------------------------------------

    def shared(self, offset: Operand = 0) -> V:
        """Address of a byte of the block's shared memory; `offset` is an i32."""
        self.module.external("shared", "[0 x i8]", 1024, space=3)  # a launch gives its size
        return self.shared_at(V(SHARED_PTR, "@shared"), offset)

    def shared_at(self, base: V, offset: Operand) -> V:
        """`base + offset` bytes in shared memory."""
        offset = offset if isinstance(offset, V) else const(I32, offset)
        if offset.const == 0:
            return base
        return self.emit(SHARED_PTR, f"getelementptr i8, {base.typed}, {offset.typed}")

    def shared_load(self, t: T, ptr: V, align: int = 0) -> V:
        """A scalar or vector from shared memory; the default alignment is its size."""
        if t.elem == "i1":
            return self.cast("trunc", self.shared_load(t.with_elem("i8"), ptr, align), I1)
        return self.emit(t, f"load {t.text}, {ptr.typed}, align {align or t.bytes}")

    def shared_store(self, value: V, ptr: V, align: int = 0) -> None:
        """A scalar or vector to shared memory."""
        if value.type.elem == "i1":
            value = self.cast("zext", value, I8)
        self.effect(f"store {value.typed}, {ptr.typed}, align {align or value.type.bytes}")

    # -- inline PTX --------------------------------------------------------------------------------------

    def ptx(
        self, text: str, constraints: str, args: Sequence[V], results: Sequence[T] = (), *, effect: bool = True
    ) -> list[V]:
        """Inline PTX.

        Args:
            text: with `$0`, `$1`, ... for results, then arguments; `$$` for a dollar sign. No double quotes.
            constraints: LLVM's, results first: `"=r,=f,r,l,b"` (b i1, h 16, r 32, l 64 bits, f float, d double).
            args: operands.
            results: types of the results.
            effect: it must neither move nor disappear.

        Returns:
            The results.
        """
        ret = VOID if not results else results[0] if len(results) == 1 else self.module.struct(results)
        keyword = "sideeffect " if effect else ""
        call = f'call {ret.text} asm {keyword}"{text}", "{constraints}"({", ".join(a.typed for a in args)})'
        if not results:
            self.effect(call)
            return []
        made = self.emit(ret, call)
        return [made] if len(results) == 1 else [self.extract_value(made, i, t) for i, t in enumerate(results)]


__all__ = ["SHARED_PTR", "NvFunction"]
