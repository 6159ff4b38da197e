"""Calls of kernels on tensors that want gradients, as programs make them."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import forward_ad

from tests.hl.gradients.compare import check, leaves
from tests.hl.gradients.examples import kernel
from tilewright import hl

WIDE = {"dtype": torch.float64}


def random(*shape, **kind):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), **kind)


@hl.kernel
def scaled(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for rows, columns in hl.tile(x.shape):
        out[rows, columns] = torch.sigmoid(x[rows, columns]) * w[columns]
    return out


def scaled_reference(x, w):
    return torch.sigmoid(x) * w


@pytest.mark.parametrize("shape", [(1, 1), (5, 1), (1, 7), (33, 65), (0, 4)])
def test_odd_sizes(shape):
    check(scaled, scaled_reference, random(*shape, **WIDE), random(shape[1], **WIDE))


def test_gradcheck():
    args = random(5, 3, **WIDE).requires_grad_(), random(3, **WIDE).requires_grad_()
    assert torch.autograd.gradcheck(scaled, args)


@pytest.mark.parametrize(
    "x",
    [random(9, 6, **WIDE).t(), random(6, 18, **WIDE)[:, ::2], random(6, 1, **WIDE).expand(6, 9)],
    ids=["transposed", "strided", "expanded"],
)
def test_views_as_arguments(x):
    check(scaled, scaled_reference, x, random(9, **WIDE))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_types(dtype):
    check(scaled, scaled_reference, random(33, 20).to(dtype), random(20).to(dtype))


def test_only_what_is_wanted_is_derived():
    x, w = random(6, 4).requires_grad_(), random(4)
    scaled(x, w).sum().backward()
    assert w.grad is None
    torch.testing.assert_close(x.grad, torch.autograd.grad(scaled_reference(x, w).sum(), x)[0])


def test_calls_without_gradients_are_what_they_were():
    x, w = random(6, 4), random(4)
    assert not scaled(x, w).requires_grad
    with torch.no_grad():
        assert not scaled(x.requires_grad_(), w).requires_grad
    with torch.inference_mode():
        assert not scaled(x, w).requires_grad
    assert scaled(x, w).requires_grad
    assert not scaled(x.detach(), w).requires_grad


def test_a_kernel_can_be_kept_out_of_autograd():
    kernel = hl.kernel(scaled.fn, backward=None)
    assert not kernel(*leaves((random(6, 4), random(4)))).requires_grad
    assert copy.deepcopy(kernel).backward is None


def test_expanded_gradients_and_several_calls():
    x, w = leaves((random(6, 4), random(4)))
    (scaled(x, w).sum() + 2 * scaled(scaled(x, w), w).mean()).backward()
    y, v = (leaf.detach().requires_grad_() for leaf in (x, w))
    reference = scaled_reference
    (reference(y, v).sum() + 2 * reference(reference(y, v), v).mean()).backward()
    torch.testing.assert_close([x.grad, w.grad], [y.grad, v.grad])


def test_backward_twice_through_a_kept_graph():
    x, w = leaves((random(6, 4), random(4)))
    out = scaled(x, w).sum()
    first = torch.autograd.grad(out, (x, w), retain_graph=True)
    torch.testing.assert_close(first, torch.autograd.grad(out, (x, w)))


def test_saved_tensors_that_change_are_an_error():
    x, w = leaves((random(6, 4), random(4)))
    out = scaled(x * 1.0, w)
    with torch.no_grad():
        w.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_checkpoints():
    x, w = leaves((random(6, 4), random(4)))
    out = torch.utils.checkpoint.checkpoint(scaled, x, w, use_reentrant=False)
    torch.testing.assert_close(
        torch.autograd.grad(out.sum(), (x, w)), torch.autograd.grad(scaled_reference(x, w).sum(), (x, w))
    )


OUTER = random(4, **WIDE).requires_grad_()


@hl.kernel
def with_outer(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        out[rows, :] = x[rows, :] * OUTER[:]
    return out


def test_tensors_from_outside():
    x = random(6, 4, **WIDE)
    found = torch.autograd.grad(with_outer(x).sum(), OUTER)
    torch.testing.assert_close(found, torch.autograd.grad((x * OUTER).sum(), OUTER))


@hl.kernel
def of_a_list(tensors: list[torch.Tensor], scale: float) -> torch.Tensor:
    out = torch.empty_like(tensors[0])
    for rows in hl.tile(out.size(0)):
        total = tensors[0][rows] * scale
        for tensor in tensors[1:]:
            total = total + torch.exp(tensor[rows])
        out[rows] = total
    return out


def test_containers_and_numbers():
    tensors = [random(9, **WIDE).requires_grad_() for _ in range(3)]
    for scale in (2.0, 3.0):
        found = torch.autograd.grad(of_a_list(tensors, scale).sum(), tensors)
        want = torch.autograd.grad((tensors[0] * scale + sum(map(torch.exp, tensors[1:]))).sum(), tensors)
        torch.testing.assert_close(found, want)


@hl.kernel
def several(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    m = x.size(0)
    means = torch.empty([m], dtype=x.dtype)
    out, places = torch.empty_like(x), torch.empty([m], dtype=torch.int64)
    for rows in hl.tile(m):
        means[rows] = x[rows, :].mean(-1)
    shifted = means * 2.0
    for rows in hl.tile(m):
        values = x[rows, :] - shifted[rows][:, None]
        out[rows, :] = values * values
        places[rows] = values.argmax(-1)
    return out.transpose(0, 1), places


def test_several_loops_with_host_code_between_and_views_behind():
    check(lambda x: several(x)[0], lambda x: ((x - 2 * x.mean(-1, keepdim=True)) ** 2).t(), random(7, 9, **WIDE))
    assert not several(random(7, 9).requires_grad_())[1].requires_grad


@hl.kernel
def with_branch(x: torch.Tensor, limits: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for row in hl.grid(x.size(0)):
        values = x[row, :]
        if limits[row] > 2:
            made = torch.exp(values)
        else:
            made = values * values
        out[row, :] = made
    return out


def test_branches():
    limits = torch.tensor([1, 3, 2, 5])
    check(
        lambda x: with_branch(x, limits),
        lambda x: torch.where(limits[:, None] > 2, x.exp(), x * x),
        random(4, 9, **WIDE),
    )


@hl.kernel
def detached(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        values = x[rows, :]
        out[rows, :] = values * values.sum(-1, keepdim=True).detach()
    return out


def test_detach():
    check(detached, lambda x: x * x.sum(-1, keepdim=True).detach(), random(5, 6, **WIDE))


@hl.kernel
def masked(x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    for rows in hl.tile(x.size(0)):
        mask = keep[rows]
        hl.store(out, [rows], torch.exp(hl.load(x, [rows], extra_mask=mask)), extra_mask=mask)
    return out


def test_masks_of_loads_and_stores():
    keep = torch.arange(37) % 3 > 0
    check(lambda x: masked(x, keep), lambda x: torch.where(keep, x.exp(), 0.0), random(37, **WIDE))


@hl.kernel(static_shapes=False)
def of_any_size(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        out[rows, :] = torch.softmax(x[rows, :], -1)
    return out


def test_symbolic_sizes():
    for shape in ((5, 7), (9, 30)):
        check(of_any_size, lambda x: x.softmax(-1), random(*shape, **WIDE))


# --- refused ---------------------------------------------------------------------------------------------


@hl.kernel
def in_place(x: torch.Tensor) -> torch.Tensor:
    for rows in hl.tile(x.size(0)):
        x[rows] = x[rows] * 2
    return x


@hl.kernel
def into(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    for rows in hl.tile(x.size(0)):
        out[rows] = x[rows] * 2
    return out


@hl.kernel
def stored_twice(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        out[rows] = x[rows]
        out[rows] = x[rows] * 2
    return out


@hl.kernel
def own_sums(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0)], dtype=x.dtype)
    for rows in hl.tile(x.size(0)):
        values = x[rows, :]
        first, second = hl.reduce(lambda a, b, c, d: (a + c * b, b + d), (values, values * 2), dim=1)
        out[rows] = first + second
    return out


@hl.kernel
def counted(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        values, at = x[rows], hl.zeros([], dtype=torch.int32)
        while at < 3:
            values = values * values
            at = at + 1
        out[rows] = values
    return out


@hl.kernel
def largest_of_all(x: torch.Tensor) -> torch.Tensor:
    out = torch.full([1], float("-inf"), dtype=x.dtype)
    for rows in hl.tile(x.size(0)):
        hl.atomic_max(out, [0], x[rows].amax(0))
    return out


@hl.kernel
def noisy(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        out[rows] = F.dropout(x[rows], 0.5)
    return out


@pytest.mark.parametrize(
    ("kernel", "args", "message"),
    [
        (in_place, (random(9),), "in_place writes x, which wants a gradient"),
        (into, (random(9), random(9)), "writes out, which wants a gradient"),
        (stored_twice, (random(9),), "out is stored twice"),
        (own_sums, (random(5, 6),), "hl.reduce with a function that mixes several tiles"),
        (counted, (random(9),), "while"),
        (largest_of_all, (random(9),), "hl.atomic_max has no gradient"),
        (noisy, (random(9),), "random functions of torch"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_refusals(kernel, args, message):
    with pytest.raises(hl.exc.NotDifferentiable, match=message) as caught:
        kernel(*leaves(args))
    assert caught.value.location is not None
    assert caught.value.location.file == __file__
    assert caught.value.hint


def test_deterministic_algorithms():
    @hl.kernel
    def gathered(table: torch.Tensor, at: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        out = torch.zeros([at.size(0)], dtype=table.dtype)
        for part in hl.grid(1):
            for rows in hl.tile(0, counts[part]):
                out[rows] = table[at[rows]]
        return out

    args = random(5).requires_grad_(), torch.tensor([0, 1, 1, 4]), torch.tensor([4])
    torch.use_deterministic_algorithms(True)
    try:
        with pytest.raises(hl.exc.NotDifferentiable, match="summed atomically"):
            gathered(*args)
        assert scaled(random(3, 4).requires_grad_(), random(4)).requires_grad
        torch.use_deterministic_algorithms(True, warn_only=True)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            gathered(*args).sum().backward()
        assert "summed atomically" in str(found[0].message)
    finally:
        torch.use_deterministic_algorithms(False)
    torch.testing.assert_close(args[0].grad, torch.tensor([1.0, 2.0, 0.0, 0.0, 1.0]))


def test_two_runs_are_equal_bit_by_bit():
    args = random(257, 65).requires_grad_(), random(65).requires_grad_()
    runs = [torch.autograd.grad(scaled(*args).sum(), args) for _ in range(2)]
    assert all(torch.equal(one, other) for one, other in zip(*runs, strict=True))


def test_the_text_of_a_gradient_runs_by_itself(tmp_path):
    args = leaves((random(33, 20), random(20)))
    text = hl.grad(scaled).to_hl(args)
    path = tmp_path / "derived.py"
    path.write_text(text)
    scope: dict[str, object] = {}
    exec(compile(text, str(path), "exec"), scope)
    up = random(33, 20)
    assert "grad_out" in text
    made = scope["scaled_backward"](args[0].detach(), args[1].detach(), up)
    torch.testing.assert_close(list(made), list(torch.autograd.grad(scaled_reference(*args), args, up)))


def test_the_plan_says_who_adds_up():
    (plan,) = hl.grad(scaled).plan((random(33, 20), random(20)))
    assert [(owner.tensor, owner.form) for owner in plan.owners] == [("x", "store"), ("w", "partial")]
    assert "w: partial, as programs along rows sum parts of their own" in str(plan)


@hl.kernel
def shifted(x, scale, times: hl.constexpr):
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        out[rows, :] = torch.exp(x[rows, :] * scale) * times + FACTOR
    return out


FACTOR = 2.0


def test_calls_that_follow_a_call_with_gradients(monkeypatch):
    """What the last call ran is found sooner, and by calls like it alone."""

    def agree(x, scale, times, factor=2.0):
        x = x.detach().requires_grad_()
        out = shifted(x, scale, times)
        torch.testing.assert_close(out.detach(), torch.exp(x.detach() * scale) * times + factor)
        (found,) = torch.autograd.grad(out.sum(), x)
        torch.testing.assert_close(found, torch.exp(x.detach() * scale) * times * scale)

    x, wide = torch.randn(5, 7), torch.randn(6, 7)
    for _ in range(2):
        agree(x, 0.5, 2)
    assert shifted.watched is not None
    agree(x, 0.25, 2)
    agree(x, 0.5, 3)
    agree(wide, 0.5, 3)
    agree(x.double(), 0.5, 3)
    agree(x.t().contiguous().t(), 0.5, 3)
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    agree(x, 0.5, 2, 3.0)
    watched = x.clone().requires_grad_()
    with torch.no_grad():
        assert not shifted(watched, 0.5, 2).requires_grad
    assert not shifted(x, 0.5, 2).requires_grad
    shifted.bind((x, 0.5, 2)).set_config(hl.Config(block_sizes=[2]))
    agree(x, 0.5, 2, 3.0)
    shifted.reset()
    assert shifted.watched is None
    agree(x, 0.5, 2, 3.0)


def test_functions_as_arguments_have_gradients_of_their_own():
    x, y = torch.randn(5, 7), torch.randn(7, 3)
    made = kernel("matmul.matmul", wide=True)

    def times(factor):
        return lambda acc: acc * factor

    for function in (torch.relu, torch.tanh, times(2.0), times(3.0), lambda acc: acc + 1, torch.relu):
        check(made, lambda x, y, function: function(x @ y), x.double(), y.double(), function)


def test_tangents_of_forward_mode_are_refused_and_not_lost():
    x, scale = random(3, 4), random(4)
    scaled(x, scale)
    with forward_ad.dual_level():
        scaled(x, scale)
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        for args in ((dual, scale), (x.clone().requires_grad_(), forward_ad.make_dual(scale, scale))):
            with pytest.raises(hl.exc.NotDifferentiable, match="forward mode") as caught:
                scaled(*args)
            assert caught.value.location is not None and caught.value.hint
        assert hl.kernel(scaled.fn, backward=None)(dual, scale).shape == x.shape
