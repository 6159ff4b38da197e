"""Floating-point arguments: one binding for all values, and constants where the code depends on them."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from tilewright import hl

close = torch.testing.assert_close
SMALL = hl.Config(block_sizes=[8])


@hl.kernel(config=SMALL)
def combined(x, scale, shift, n):
    half = scale / 2
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        value = x[tile] * scale + 0.5
        if shift > 0:
            value = torch.where(value > half, value - shift, n * shift - scale)
        out[tile] = torch.clamp(value, -scale, abs(scale) * 3) + hl.full([tile], -half)
    return out


def expected(x, scale, shift, n):
    value = x * scale + 0.5
    if shift > 0:
        value = torch.where(value > scale / 2, value - shift, n * shift - scale)
    return torch.clamp(value, -scale, abs(scale) * 3) - scale / 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_one_binding_for_all_values(dtype):
    x = torch.randn(20).to(dtype)
    bound = combined.bind((x, 1.5, 0.25, 3))
    assert bound.traced.why_constant == ""
    for scale, shift, n in ((1.5, 0.25, 3), (0.1, 7.0, 4), (2.0, 0.3, -1)):
        assert combined.bind((x, scale, shift, n)) is bound
        close(combined(x, scale, shift, n), expected(x, scale, shift, n))
    other = combined.bind((x, 1.5, -1.0, 3))  # the host decides otherwise
    assert other is not bound
    close(combined(x, 1.5, -1.0, 3), expected(x, 1.5, -1.0, 3))


def test_types_are_those_of_eager():
    @hl.kernel(config=SMALL)
    def kernel(x, scale):
        out = torch.empty_like(x, dtype=torch.float32)
        for tile in hl.tile(x.size(0)):
            out[tile] = x[tile] * scale + (x[tile] > scale)
        return out

    for dtype in (torch.int32, torch.int8, torch.bool, torch.float16):
        x = torch.tensor([0, 1, 2, 3]).to(dtype)
        for scale in (0.3, 1.7):
            close(kernel(x, scale), (x * scale + (x > scale)).float())
        assert kernel.bind((x, 0.1)) is kernel.bind((x, 0.2))


def test_values_beyond_numbers():
    x = torch.tensor([1.0, -1.0, 0.0])

    @hl.kernel(config=SMALL)
    def kernel(x, limit):
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            out[tile] = torch.minimum(x[tile], x[tile] * 0 + limit)
        return out

    for limit in (0.5, float("inf"), float("-inf"), -0.0):
        close(kernel(x, limit), torch.minimum(x, torch.tensor(limit)))
    assert kernel(x, float("nan")).isnan().all()
    assert kernel.bind((x, 0.5)) is kernel.bind((x, float("inf")))


def test_reductions_in_chunks_and_flattened_ranges():
    @hl.kernel(config=hl.Config(block_sizes=[2], reduction_loops=[16]))
    def rms_norm(x, eps):
        out = torch.empty_like(x)
        for rows in hl.tile(x.size(0)):
            out[rows, :] = x[rows, :] * torch.rsqrt((x[rows, :] ** 2).mean(-1, keepdim=True) + eps)
        return out

    @hl.kernel(config=hl.Config(block_sizes=[8, 8], flatten_loops=[True]))
    def scaled(x, factor):
        out = torch.empty_like(x)
        for tile in hl.tile([x.size(0), x.size(1)]):
            out[tile] = x[tile] * factor
        return out

    x = torch.randn(5, 70)
    for eps in (1e-5, 0.5):
        close(rms_norm(x, eps), torch.nn.functional.rms_norm(x, [70], eps=eps))
        close(scaled(x, eps), x * eps)
    assert "range(0, 70, 16)" in rms_norm.bind((x, 0.1)).to_code()


def test_state_and_conversions():
    @hl.kernel(config=hl.Config(block_sizes=[4, 4]))
    def kernel(x, factor):
        out = torch.empty([x.size(0)])
        for rows in hl.tile(x.size(0)):
            total, current = hl.zeros([rows]), factor
            for columns in hl.tile(x.size(1)):
                total = total + x[rows, columns].sum(1) * current
                current = current * float(factor)
            out[rows] = total
        return out

    x = torch.randn(6, 8)
    for factor in (0.5, 3.0):
        close(kernel(x, factor), x[:, :4].sum(1) * factor + x[:, 4:].sum(1) * factor**2)
    assert kernel.bind((x, 0.5)) is kernel.bind((x, 3.0))


@dataclasses.dataclass
class Options:
    scales: list[float]


def test_in_containers():
    @hl.kernel(config=SMALL)
    def kernel(x, options, more):
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            out[tile] = x[tile] * options.scales[1] + more["shift"][0]
        return out

    x = torch.randn(9)
    for scale, shift in ((2.0, 3.0), (0.5, -1.0)):
        close(kernel(x, Options([0.0, scale]), {"shift": (shift,)}), x * scale + shift)
    assert kernel.bind((x, Options([0.0, 1.0]), {"shift": (1.0,)})) is kernel.bind(
        (x, Options([1.0, 2.0]), {"shift": (5.0,)})
    )


def _library(x, factor):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * math.sqrt(factor)
    return out


def _doubles(x, factor):
    out = torch.empty_like(x, dtype=torch.float64)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile].to(torch.float64) * factor
    return out


def _scaled_sum(x, factor):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = torch.add(x[tile], x[tile], alpha=factor)
    return out


@pytest.mark.parametrize(
    ("function", "meaning", "why"),
    [
        (_library, lambda x, factor: x * math.sqrt(factor), "invented"),
        (_doubles, lambda x, factor: x.double() * factor, "float64"),
        (_scaled_sum, lambda x, factor: torch.add(x, x, alpha=factor), "the code of add"),
    ],
)
def test_constants_where_the_code_depends_on_them(function, meaning, why):
    kernel = hl.kernel(function, config=SMALL)
    x = torch.randn(20)
    for factor in (0.1, 2.5):
        close(kernel(x, factor), meaning(x, factor))
        bound = kernel.bind((x, factor))
        assert bound.traced.why_constant.startswith("floating-point arguments are constants: ")
        assert why in bound.traced.why_constant
        assert f"# {bound.traced.why_constant}" in bound.to_code()
    assert kernel.bind((x, 0.1)) is not kernel.bind((x, 2.5))


def test_mistakes_stay_what_they_are():
    @hl.kernel
    def kernel(x, factor):
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            out[tile] = missing * factor  # noqa: F821
        return out

    with pytest.raises(hl.exc.UndefinedVariable, match="missing"):
        kernel(torch.ones(3), 1.0)


@pytest.mark.parametrize("static", [True, False])
def test_numbers_made_of_sizes(static):
    @hl.kernel(config=SMALL, static_shapes=static)
    def kernel(x):
        scale = 1 / x.size(0)
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            out[tile] = x[tile] * scale + x.size(0) * 0.5 - x.size(0) / 2
        return out

    for n in (20, 33):
        x = torch.randn(n)
        close(kernel(x), x / n)
    assert (kernel.bind((torch.ones(7),)) is kernel.bind((torch.ones(9),))) == (not static)


def test_functions_made_of_others_see_numbers():
    """Recipes decide by the value, and compute with it."""

    @hl.kernel(config=SMALL)
    def kernel(x, order, slope):
        out, norms = torch.empty_like(x), x.new_empty([x.size(0)])
        for rows in hl.tile(x.size(0)):
            out[rows, :] = torch.nn.functional.elu(torch.nn.functional.leaky_relu(x[rows, :], slope), slope)
            norms[rows] = torch.linalg.vector_norm(x[rows, :], order, -1)
        return out, norms

    x = torch.randn(9, 20)
    for order in (1.0, 2.0, 3.0, float("inf")):
        for slope in (0.1, 0.3):
            out, norms = kernel(x, order, slope)
            close(norms, torch.linalg.vector_norm(x, order, -1))
            close(out, torch.nn.functional.elu(torch.nn.functional.leaky_relu(x, slope), slope))


def test_sizes_made_of_numbers_bind_anew():
    @hl.kernel(config=SMALL)
    def kernel(x, factor):
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            out[tile] = x[tile] + torch.arange(0.0, factor, 0.25).sum(0)
        return out

    x = torch.randn(9)
    for factor in (0.1, 2.5):
        close(kernel(x, factor), x + torch.arange(0.0, factor, 0.25).sum())


def test_float64_needs_constants():
    @hl.kernel(config=SMALL, static_shapes=False)
    def kernel(x):
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            out[tile] = x[tile] / (x.size(0) * 0.5)
        return out

    with pytest.raises(hl.exc.ConstantNeeded, match=r"(?s)x\[tile\] / .*float64.*hl\.specialize"):
        kernel(torch.ones(5, dtype=torch.float64))


def test_floats_that_the_host_reads_from_tensors():
    @hl.kernel(config=SMALL)
    def kernel(x, t):
        scale = float(t.abs().max())
        shift = max(t[0].item() * 0.5, 1.0)
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            out[tile] = x[tile] * scale - abs(shift)
        return out, scale

    x = torch.randn(11)
    first = kernel.bind((x, torch.ones(2)))
    for t in (torch.tensor([3.0, -5.0]), torch.tensor([0.5, 0.25])):
        out, scale = kernel(x, t)
        assert scale == t.abs().max().item() and kernel.bind((x, t)) is first
        close(out, x * scale - max(t[0].item() * 0.5, 1.0))


def test_code_cannot_depend_on_a_float_that_the_host_reads():
    @hl.kernel(config=SMALL)
    def kernel(x, t):
        scale = t.item()
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            if scale > 1.0:
                out[tile] = x[tile] * scale
        return out

    with pytest.raises(hl.exc.HostValueNotAvailable, match=r"the value of number_0 > 1.0, which the host reads"):
        kernel(torch.ones(5), torch.tensor(2.0))


@hl.kernel
def before_sizes(x: torch.Tensor) -> torch.Tensor:
    half = 0.5 * x.size(0)
    more = 1.5
    more += x.size(0)
    out = torch.empty([11, x.size(0)])
    for t in hl.tile(x.size(0), block_size=8):
        out[0, t] = 1.0 + t.begin
        out[1, t] = 1.0 - t.begin
        out[2, t] = 1.5 * x.size(0) + t.id
        out[3, t] = 3.0 / (t.begin + 1)
        out[4, t] = 2.5 // (t.begin + 1)
        out[5, t] = 2.5 % (t.begin + 1)
        out[6, t] = 2.0**t.id
        out[7, t] = half - t.begin
        out[8, t] = t.begin**2 + x.size(0) ** -0.5
        more_here = 0.25
        more_here += t.begin
        out[9, t] = more + more_here
        out[10, t] = divmod(2.5, t.begin + 1)[1] + pow(2.0, t.id) + max(1.5, t.begin) - sum([0.5, t.begin])
    return out


@hl.kernel(static_shapes=False)
def compared_with_sizes(x: torch.Tensor) -> torch.Tensor:
    small, large = 20.5 < x.size(0), x.size(0) >= 20.5
    share = 0.45 * x.size(0)
    out = torch.zeros([8, x.size(0)])
    for t in hl.tile(x.size(0), block_size=8):
        out[0, t] = 1.0 if small else 2.0
        out[1, t] = 1.0 if large else 2.0
        out[2, t] = 1.0 if t.begin > 2.5 else 2.0
        out[3, t] = 1.0 if 0.5 < t.begin <= 8.5 else 2.0
        out[4, t] = 1.0 if 8.0 == t.begin else 2.0
        out[5, t] = 1.0 if t.begin != 8.5 else 2.0
        out[6, t] = 1.0 if share < t.begin else 2.0
        if 15.5 < t.begin < float("inf"):
            out[7, t] = 1.0
        else:
            out[7, t] = 2.0
    return out


def test_a_number_before_a_size_or_index():
    """Python would take the integer that stands for it while the kernel is traced."""
    for count in (20, 33):
        begin = torch.arange(count) // 8 * 8
        one = begin + 1.0
        want = [one, 1 - begin, 1.5 * count + begin // 8, 3 / one, 2.5 // one, 2.5 % one, 2.0 ** (begin // 8)]
        want += [0.5 * count - begin, begin**2 + count**-0.5, 1.75 + count + begin]
        want += [2.5 % one + 2.0 ** (begin // 8) + begin.clamp_min(1.5) - begin - 0.5]
        torch.testing.assert_close(before_sizes(torch.zeros(count)), torch.stack([row.float() for row in want]))


def test_a_number_compared_with_a_size_or_index():
    """These were true or false in silence, by the integers that stand for sizes while the kernel is traced."""
    for count in (20, 33):
        begin = torch.arange(count) // 8 * 8
        host = torch.full([count], count > 20.5)
        truths = [host, host, begin > 2, (begin > 0) & (begin <= 8), begin == 8, begin > -1]
        truths += [begin > 0.45 * count, begin > 15]
        want = torch.stack([torch.where(truth, 1.0, 2.0) for truth in truths])
        torch.testing.assert_close(compared_with_sizes(torch.zeros(count)), want)
