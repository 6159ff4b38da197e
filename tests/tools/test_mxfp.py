"""Microscaling formats on the host, against the definitions of the OCP's MX 1.0 specification."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from tilewright.base.errors import ArgumentError  # noqa: E402
from tilewright.tools.mxfp import MXFP4Tensor, MXScaleTensor  # noqa: E402


def value_of(code: int) -> float:
    """A four-bit code by the definition: sign, exponent with bias 1, one bit of mantissa."""
    sign, exponent, mantissa = -1 if code & 8 else 1, code >> 1 & 3, code & 1
    return sign * (mantissa / 2 if exponent == 0 else 2.0 ** (exponent - 1) * (1 + mantissa / 2))


def test_every_code_is_its_number_and_every_number_its_code():
    codes = MXFP4Tensor(size=(2, 8))
    codes.data = torch.arange(16, dtype=torch.uint8).reshape(2, 8)
    numbers = codes.to(torch.float32)
    assert numbers.flatten().tolist() == [value_of(code) for code in range(16)]
    assert math.copysign(1, numbers[1, 0].item()) == -1  # a negative zero
    assert torch.equal(MXFP4Tensor(data=numbers).data, codes.data)


def test_floats_are_rounded_to_the_nearest_and_halves_to_even():
    x = torch.linspace(-8, 8, 4097)  # steps of 1/256: every half is among them
    found = MXFP4Tensor(data=x).to(torch.float32)
    for number, rounded in zip(x.tolist(), found.tolist(), strict=True):
        near = sorted(range(8), key=lambda code: (abs(value_of(code) - min(abs(number), 6)), code & 1))[0]
        assert rounded == math.copysign(value_of(near), number)
    assert MXFP4Tensor(data=torch.tensor([math.inf, -math.inf, math.nan])).to(torch.float32).tolist() == [6, -6, 6]


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_packing_puts_the_first_of_two_in_the_low_half(dim):
    codes = MXFP4Tensor(size=(5, 4, 7)).random()
    assert codes.data.max() <= 15
    packed = codes.to_packed_tensor(dim)
    assert packed.shape[dim] == (codes.data.shape[dim] + 1) // 2 and packed.dtype == torch.uint8
    assert packed.select(dim, 0).equal(codes.data.select(dim, 0) | codes.data.select(dim, 1) << 4)
    assert codes.unpack_packed_tensor(packed, dim, codes.data.shape).equal(codes.data)


def test_scales_are_the_powers_of_two_below():
    x = torch.tensor([1.0, 1.99, 2.0, 0.75, 3e-39, 2.0**127, 0.0, -1.0, math.inf, math.nan])
    scales = MXScaleTensor(data=x)
    assert scales.data.tolist() == [127, 127, 128, 126, 0, 254, 255, 255, 255, 255]
    assert scales.to(torch.float32)[:6].tolist() == [1, 1, 2, 0.5, 2.0**-127, 2.0**127]
    assert scales.to(torch.float32)[6:].isnan().all()


def test_random_scales_lie_between():
    drawn = MXScaleTensor(size=1000).random(low=0.25, high=8.0).to(torch.float32)
    assert set(drawn.tolist()) == {0.25, 0.5, 1, 2, 4, 8}
    assert MXScaleTensor(size=(1000,)).random().data.max() < 255


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: MXFP4Tensor(),
        lambda: MXFP4Tensor(data=[1.0]),
        lambda: MXFP4Tensor(size=4).random().to(torch.float16),
        lambda: MXFP4Tensor(size=4).random().to_packed_tensor(1),
        lambda: MXScaleTensor(size=4).random(low=8.0, high=1.0),
    ],
)
def test_what_cannot_be_is_refused(wrong):
    with pytest.raises(ArgumentError):
        wrong()
