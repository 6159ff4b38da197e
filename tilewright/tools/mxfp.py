"""`triton.tools.mxfp`: tensors of the microscaling formats of the Open Compute Project (MX 1.0), on the host.

`MXFP4Tensor` holds four-bit floats (E2M1: a sign, two bits of exponent, one of mantissa), a code a byte until they are
packed; `MXScaleTensor` the eight-bit powers of two (E8M0) that blocks of them are multiplied by.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Self

from tilewright.base.errors import ArgumentError
from tilewright.base.lazy import lazy_module

torch = lazy_module("torch")  # loaded when a tensor is made, not by an import of `triton`
Tensor = Any

_MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # of the codes 0 to 7; bit 3 is the sign
_BIAS, _NAN_SCALE = 127, 255


class _Codes:
    """Codes of small floats.

    Args:
        data: a float tensor to convert.
        size: shape of a tensor that `random` will fill, where no data are given.
        device: of that tensor; torch's default if none is named.

    Attributes:
        data: the codes, a uint8 each.

    Raises:
        ArgumentError: neither data nor a size, or data that are no tensor.
    """

    data: Tensor

    def __init__(self, data: Tensor = None, size: int | Sequence[int] | None = None, device: Any = None) -> None:
        self.device = device
        if data is not None:
            if not isinstance(data, torch.Tensor):
                raise ArgumentError(f"{type(self).__name__}: data is a torch tensor, got {type(data).__name__}")
            self.device, self.size = data.device, tuple(data.shape)
            self.data = self._from_float(data)
        elif size is not None:
            self.size = (size,) if isinstance(size, int) else tuple(size)
        else:
            raise ArgumentError(f"{type(self).__name__}: give data or a size")

    def _from_float(self, values: Tensor) -> Tensor:
        raise NotImplementedError

    def _draw(self, low: int, high: int) -> Tensor:
        """Random codes from `low` to `high`, both included."""
        return torch.randint(low, high + 1, self.size, dtype=torch.uint8, device=self.device)

    def _only_float32(self, dtype: Any) -> None:
        if dtype != torch.float32:
            raise ArgumentError(f"{type(self).__name__}.to gives torch.float32, not {dtype}", hint="convert its result")


class MXFP4Tensor(_Codes):
    """Four-bit floats, E2M1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives; see `_Codes` for the parameters.

    Floats are rounded to the nearest, halves to an even mantissa, and are 6 at most; infinities and NaN become 6, as
    the format has neither.
    """

    def random(self) -> Self:
        """Fill with codes drawn evenly; returns itself."""
        self.data = self._draw(0, 15)
        return self

    def to(self, dtype: Any) -> Tensor:
        """The numbers, as float32.

        Raises:
            ArgumentError: another `dtype`.
        """
        self._only_float32(dtype)
        magnitudes = torch.tensor(_MAGNITUDES, device=self.data.device)[(self.data & 7).long()]
        return torch.where(self.data >= 8, -magnitudes, magnitudes)

    def _from_float(self, values: Tensor) -> Tensor:
        magnitudes = values.abs().nan_to_num(nan=_MAGNITUDES[-1], posinf=_MAGNITUDES[-1]).to(torch.float32)
        ends = itertools.pairwise(_MAGNITUDES)
        middles = torch.tensor([(low + high) / 2 for low, high in ends], device=values.device)
        below, above = (torch.bucketize(magnitudes, middles, right=right) for right in (False, True))
        code = torch.where(
            below % 2 == 0, below, above
        )  # they differ in the middle of two numbers: one has bit 0 unset
        return (code + 8 * torch.signbit(values)).to(torch.uint8)

    def to_packed_tensor(self, dim: int) -> Tensor:
        """Two codes a byte, the first in the low half.

        Args:
            dim: which dimension becomes half as long; one of odd length is filled up with a zero.

        Raises:
            ArgumentError: no such dimension.
        """
        if not 0 <= dim < self.data.ndim:
            raise ArgumentError(f"MXFP4Tensor: dimension {dim} of a tensor of {self.data.ndim}")
        codes = self.data.movedim(dim, -1)
        codes = torch.nn.functional.pad(codes, (0, codes.shape[-1] % 2))
        return (codes[..., 0::2] | codes[..., 1::2] << 4).movedim(-1, dim).contiguous()

    def unpack_packed_tensor(self, packed_tensor: Tensor, dim: int, original_shape: Sequence[int]) -> Tensor:
        """The codes of a packed tensor, one a byte.

        Args:
            packed_tensor: of `to_packed_tensor`.
            dim: along which it is packed.
            original_shape: shape of the codes.
        """
        pairs = torch.stack((packed_tensor & 15, packed_tensor >> 4), dim + 1).flatten(dim, dim + 1)
        return pairs.narrow(dim, 0, original_shape[dim])


class MXScaleTensor(_Codes):
    """Powers of two from 2**-127 to 2**127, E8M0; see `_Codes` for the parameters.

    Floats become the power of two that is not above them; zero, negative numbers, infinities and NaN become NaN.
    """

    def random(self, low: float | None = None, high: float | None = None) -> Self:
        """Fill with powers of two drawn evenly, none of them NaN; returns itself.

        Args:
            low, high: between these; by default all that there are.

        Raises:
            ArgumentError: `low` is above `high`.
        """
        least, most = (
            default if end is None else min(254, max(0, int(torch.log2(torch.tensor(end))) + _BIAS))
            for end, default in ((low, 0), (high, 254))
        )
        if least > most:
            raise ArgumentError(f"MXScaleTensor: low is {low}, above high, {high}")
        self.data = self._draw(least, most)
        return self

    def to(self, dtype: Any) -> Tensor:
        """The powers of two, as float32.

        Raises:
            ArgumentError: another `dtype`.
        """
        self._only_float32(dtype)
        powers = torch.ldexp(torch.ones_like(self.data, dtype=dtype), self.data.int() - _BIAS)
        return powers.masked_fill(self.data == _NAN_SCALE, float("nan"))

    def _from_float(self, values: Tensor) -> Tensor:
        mantissa, exponent = torch.frexp(values.to(torch.float32))  # a mantissa from 0.5 to 1
        code = (exponent - 1 + _BIAS).clamp(0, 254)
        return code.masked_fill(~((mantissa > 0) & torch.isfinite(values)), _NAN_SCALE).to(torch.uint8)


__all__ = ["MXFP4Tensor", "MXScaleTensor"]
