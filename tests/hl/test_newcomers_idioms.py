"""Programs as somebody writes them who comes from PyTorch: classes, containers, statements, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tilewright import hl
from tilewright.hl import exc


def eq(found, expected):
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_method_kernel():
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.randn(8))
            self.eps = 1e-6

        @hl.kernel
        def run(self, x):
            out = torch.empty_like(x)
            for t in hl.tile(x.size(0)):
                v = x[t, :]
                out[t, :] = v * torch.rsqrt((v * v).mean(-1, keepdim=True) + self.eps) * self.w[None, :]
            return out

        def forward(self, x):
            return self.run(x)

    l = Layer()
    x = torch.randn(5, 8)
    with torch.no_grad():
        eq(l(x), F.rms_norm(x, (8,), l.w, 1e-6))


def test_list_of_tensors():
    @hl.kernel
    def k(xs: list[torch.Tensor]):
        out = torch.empty_like(xs[0])
        for t in hl.tile(out.size(0)):
            acc = hl.zeros([t], dtype=torch.float32)
            for i, x in enumerate(xs):
                acc = acc + (i + 1) * x[t]
            out[t] = acc
        return out

    a, b, c = torch.randn(3, 9).unbind(0)
    eq(k([a, b, c]), a + 2 * b + 3 * c)
    eq(k([a]), a)


def test_dict_arg():
    @hl.kernel
    def k(x, p):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            out[t] = sum(v[t] for v in p.values()) + x[t]
        return out

    x = torch.randn(6)
    eq(k(x, {"a": x, "b": x * 2}), 4 * x)


def test_walrus_and_augassign():
    @hl.kernel
    def k(x):
        out = torch.zeros_like(x)
        for t in hl.tile(x.size(0)):
            if (s := x[t].sum()) > 0:
                out[t] += s
            else:
                out[t] -= s
        return out

    x = torch.randn(4)
    eq(k(x), x.sum().abs().expand(4).clone())


def test_early_return():
    @hl.kernel
    def k(x):
        if x.numel() == 0:
            return x.new_zeros(())
        out = x.new_zeros(1)
        for t in hl.tile(x.size(0)):
            hl.atomic_add(out, [0], x[t].sum())
        return out.sum()

    x = torch.randn(10)
    eq(k(x), x.sum())
    eq(k(x[:0]), torch.zeros(()))


def test_inline_tl():
    @hl.kernel
    def k(x):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            v = x[t]
            out[t] = hl.inline_triton("tl.exp({0}) + {1}", args=(v, 1.0), output_like=v)
        return out

    x = torch.randn(5)
    eq(k(x), x.exp() + 1)


def test_print_fstring():
    @hl.kernel
    def k(x):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            out[t] = x[t].clamp(min=0).pow(2)
        print(f"done {x.shape}")
        return out

    x = torch.randn(5)
    eq(k(x), x.relu() ** 2)


def test_comprehension_and_zip():
    @hl.kernel
    def k(a, b, ws):
        out = torch.empty_like(a)
        for t in hl.tile(a.size(0)):
            parts = [w * v[t] for w, v in zip(ws, (a, b), strict=True)]
            out[t] = torch.stack(parts, 0).sum(0)
        return out

    a, b = torch.randn(5), torch.randn(5)
    eq(k(a, b, (2.0, 3.0)), 2 * a + 3 * b)


def test_lambda_local():
    @hl.kernel
    def k(x):
        out = torch.empty_like(x)
        sq = lambda v: v * v
        for t in hl.tile(x.size(0)):
            cube = lambda v: sq(v) * v
            out[t] = cube(x[t])
        return out

    x = torch.randn(5)
    eq(k(x), x**3)


def test_nested_def():
    @hl.kernel
    def k(x, n: hl.constexpr):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):

            def horner(v, *cs):
                acc = torch.zeros_like(v)
                for c in cs:
                    acc = acc * v + c
                return acc

            out[t] = horner(x[t], *range(1, n + 1))
        return out

    x = torch.randn(5)
    eq(k(x, 3), x * x + 2 * x + 3)


def test_bool_mask_assign():
    @hl.kernel
    def k(x):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            v = x[t, :].clone()
            v[v < 0] = 0
            v.mul_(2).add_(1)
            out[t, :] = v
        return out

    x = torch.randn(5, 6)
    eq(k(x), x.relu() * 2 + 1)


def test_dtype_arg():
    @hl.kernel
    def k(x, dtype: torch.dtype = torch.float32):
        out = torch.empty(x.shape, dtype=dtype, device=x.device)
        for t in hl.tile(x.shape):
            out[t] = x[t].to(dtype)
        return out

    x = torch.randn(5, 6)
    eq(k(x, torch.float16), x.half())
    eq(k(x, dtype=torch.int32), x.int())


def test_strided_and_transposed():
    @hl.kernel
    def k(x):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            out[t, :] = x[t, :].flip(-1)
        return out

    x = torch.randn(6, 5).t()
    eq(k(x), x.flip(-1))
    y = torch.randn(8, 8)[::2, ::2]
    eq(k(y), y.flip(-1))


def test_slices_in_loop():
    @hl.kernel
    def k(x):
        n = x.size(1)
        out = torch.empty([x.size(0), n // 2])
        for t in hl.tile(x.size(0)):
            a = x[t, : n // 2]
            b = x[t, n // 2 :]
            out[t, :] = a * F.silu(b)
        return out

    x = torch.randn(6, 8)
    a, b = x.chunk(2, 1)
    eq(k(x), a * F.silu(b))


def test_rotate_half():
    @hl.kernel
    def k(x, cos, sin):
        out = torch.empty_like(x)
        for b, s in hl.tile([x.size(0), x.size(1)]):
            v = x[b, s, :]
            h = v.size(-1) // 2
            r = torch.cat([-v[..., h:], v[..., :h]], dim=-1)
            out[b, s, :] = v * cos[s, :] + r * sin[s, :]
        return out

    x, c, s = torch.randn(2, 5, 8), torch.randn(5, 8), torch.randn(5, 8)
    eq(k(x, c, s), x * c + torch.cat([-x[..., 4:], x[..., :4]], -1) * s)


def test_topk_softmax():
    @hl.kernel
    def k(x, n: hl.constexpr):
        w = torch.empty(x.size(0), n)
        i = torch.empty(x.size(0), n, dtype=torch.int64)
        for t in hl.tile(x.size(0)):
            v, j = torch.topk(x[t, :], n, dim=-1)
            w[t, :] = torch.softmax(v, -1)
            i[t, :] = j
        return w, i

    x = torch.randn(5, 16)
    w, i = k(x, 2)
    v, j = x.topk(2)
    eq(w, v.softmax(-1))
    eq(i, j)


def test_scalar_tensor_args():
    @hl.kernel
    def k(x, s, t0):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            out[t] = x[t] * s[()] if t0.dim() == 0 else x[t]
            out[t] = out[t] + t0[()]
        return out

    x = torch.randn(5)
    eq(k(x, torch.tensor(2.0), torch.tensor(1.0)), x * 2 + 1)


def test_scalar_item():
    @hl.kernel
    def k(x, s):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            out[t] = x[t] * s
        return out

    x = torch.randn(5)
    eq(k(x, torch.tensor(2.0)), x * 2)


def test_unpack_shape_star():
    @hl.kernel
    def k(x):
        *lead, d = x.shape
        flat = x.reshape(-1, d)
        out = torch.empty_like(flat)
        for t in hl.tile(flat.size(0)):
            out[t, :] = F.normalize(flat[t, :], dim=-1)
        return out.view(*lead, d)

    x = torch.randn(2, 3, 4)
    eq(k(x), F.normalize(x, dim=-1))


def test_math_on_args():
    @hl.kernel
    def k(q, kk, scale: float | None = None):
        scale = scale if scale is not None else 1 / math.sqrt(q.size(-1))
        out = torch.empty(q.size(0), kk.size(0))
        for i, j in hl.tile(out.shape):
            out[i, j] = (q[i, :] @ kk[j, :].T) * scale
        return out

    q, kk = torch.randn(5, 8), torch.randn(7, 8)
    eq(k(q, kk), q @ kk.T / 8**0.5)
    eq(k(q, kk, 2.0), q @ kk.T * 2)


def test_generator_expr_max():
    @hl.kernel
    def k(x, y):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            a, b = x[t], y[t]
            out[t] = max((a.sum(), b.sum())) if any(n > 3 for n in x.shape) else min(a.sum(), b.sum())
        return out

    x, y = torch.randn(4), torch.randn(4)
    eq(k(x, y), torch.maximum(x.sum(), y.sum()).expand(4).clone())


def test_assert_in_loop():
    @hl.kernel
    def k(x):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            assert x.dtype is torch.float32, "float32 only"
            v = x[t]
            assert v.shape[0] == t.block_size
            out[t] = v + 1
        return out

    x = torch.randn(4)
    eq(k(x), x + 1)
    with pytest.raises(AssertionError, match="float32 only"):
        k(x.double())


def test_fp16_bf16_accumulate():
    @hl.kernel
    def k(x, w):
        out = x.new_empty(x.size(0), w.size(1))
        for i, j in hl.tile(out.shape):
            acc = torch.zeros([i, j], dtype=torch.float32)
            for kk in hl.tile(x.size(1)):
                acc += x[i, kk].float() @ w[kk, j].float()
            out[i, j] = acc
        return out

    x, w = torch.randn(9, 33).bfloat16(), torch.randn(33, 5).bfloat16()
    torch.testing.assert_close(k(x, w), x @ w, atol=1e-1, rtol=2e-2)


def test_python_sum_of_values():
    @hl.kernel
    def k(x):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            v = x[t, :]
            acc = 0
            for j in range(v.size(1)):
                acc += v[:, j] ** j
            out[t, :] = acc[:, None].expand_as(v)
        return out

    x = torch.rand(5, 3)
    eq(k(x), sum(x[:, j] ** j for j in range(3))[:, None].expand(5, 3).clone())


def test_inplace_arg_none_return():
    @hl.kernel
    def k(x, out):
        for t in hl.tile(x.size(0)):
            out[t] = x[t].abs_()

    x = torch.randn(4)
    o = torch.empty(4)
    y = x.clone()
    assert k(x, o) is None
    eq(o, y.abs())
    eq(x, y)


def test_constants_of_the_loop():
    @hl.kernel
    def k(x):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            scale = torch.tensor([2.0, 3.0, 4.0])
            out[t, :] = x[t, :] * scale + torch.tensor([[1], [2]])[1] - torch.tensor(0.5)
        return out

    x = torch.randn(5, 3)
    eq(k(x), x * torch.tensor([2.0, 3.0, 4.0]) + 1.5)


def test_attention_of_torch_on_tiles():
    @hl.kernel
    def k(q, keys, v, mask):
        out = torch.empty_like(q)
        for b, t in hl.tile([q.size(0), q.size(1)]):
            out[b, t, :] = F.scaled_dot_product_attention(q[b, t, :], keys[b, :, :], v[b, :, :], mask[b, t, :])
        return out

    q, keys, v = torch.randn(2, 5, 8), torch.randn(2, 7, 8), torch.randn(2, 7, 8)
    mask = torch.rand(2, 5, 7) > 0.4
    mask[0, 0] = False  # a row that sees nothing is zero
    expected = F.scaled_dot_product_attention(q, keys, v, mask)
    eq(k(q, keys, v, mask), expected)
    with pytest.raises(exc.ConstantNeeded, match="scale="):
        hl.kernel(k.fn, static_shapes=False)(q, keys, v, mask)

    @hl.kernel(static_shapes=False)
    def specialized(q, keys, v, mask):
        out = torch.empty_like(q)
        hl.specialize(q.size(-1))
        for b, t in hl.tile([q.size(0), q.size(1)]):
            out[b, t, :] = F.scaled_dot_product_attention(q[b, t, :], keys[b, :, :], v[b, :, :], mask[b, t, :])
        return out

    eq(specialized(q, keys, v, mask), expected)


def test_one_hot_and_embedding():
    @hl.kernel
    def k(i, w):
        hot, rows = torch.empty([i.size(0), w.size(0)]), torch.empty([i.size(0), w.size(1)])
        for t in hl.tile(i.size(0)):
            hot[t, :] = F.one_hot(i[t], w.size(0)).float()
            rows[t, :] = F.embedding(i[t], w)
        return hot, rows

    i, w = torch.tensor([0, 4, 1, 1]), torch.randn(5, 3)
    hot, rows = k(i, w)
    eq(hot, F.one_hot(i, 5).float())
    eq(rows, w[i])


# --- what is refused, with the place and what to write ------------------------------------------------------------


def rounds(x, n):
    for _ in range(n):
        for t in hl.tile(x.size(0)):
            x[t] = x[t] * 0.5


def counted(x, n):
    while n > 0:
        for t in hl.tile(x.size(0)):
            x[t] = x[t] * 0.5
        n -= 1


def under_with(x, n):
    with torch.no_grad():
        for t in hl.tile(x.size(0)):
            x[t] = x[t] * 0.5


def under_try(x, n):
    try:
        for t in hl.tile(x.size(0)):
            x[t] = x[t] * 0.5
    finally:
        n = 1


def under_match(x, n):
    match n:
        case 2:
            for t in hl.tile(x.size(0)):
                x[t] = x[t] * 0.5


def view_in_loop(x, n):
    for t in hl.tile(x.numel()):
        x.view(-1)[t] = x[t] * 0.5


def raises_by_a_value(x, n):
    for i in hl.grid(x.size(0)):
        if x[i] > 0:
            raise ValueError("positive")
        x[i] = 0


def maths(x, n):
    for t in hl.tile(x.size(0)):
        x[t] = math.exp(x[t])


def item(x, n):
    for t in hl.tile(x.size(0)):
        x[t] = x[t].sum().item()


def given_to_numpy(x, n):
    for t in hl.tile(x.size(0)):
        x[t] = np.exp(x[t])


def left_as_a_list(x, n):
    for t in hl.tile(x.size(0)):
        x[t] = sum(x[t].tolist())


def summed_by_numpy(x, n):
    for t in hl.tile(x.size(0)):
        x[t] = np.sum(x[t])


def made_by_numpy(x, n):
    out = torch.from_numpy(np.zeros(4, np.float32))
    for t in hl.tile(x.size(0)):
        out[t] = x[t]


def divided_by_nothing(x, n):
    for t in hl.tile(x.size(0)):
        x[t] = t.index % 0


def halves(x, n):
    for t in hl.tile(x.size(0) / 2):
        x[t] = 0


def classes(x, n):
    for t in hl.tile(x.size(0)):
        x[t] = F.one_hot(x[t].long())[:, 0]


def many_constants(x, n):
    for t in hl.tile(x.size(0)):
        x[t] = torch.tensor(list(range(40)))[0]


@pytest.mark.parametrize(
    ("program", "kind", "said"),
    [
        (rounds, exc.NestedGridLoop, "call the kernel once per round"),
        (counted, exc.NestedGridLoop, "inside `while`.*\n.*once per round"),
        (under_with, exc.NestedGridLoop, "inside `with`.*\n.*around the call"),
        (under_try, exc.NestedGridLoop, "inside `try`.*\n.*around the call"),
        (under_match, exc.NestedGridLoop, "inside `match`.*\n.*`if` and `elif`"),
        (view_in_loop, exc.HostTensorDirectUsage, "its views .* are made before the loop"),
        (raises_by_a_value, exc.NotAllowedOnDevice, "`raise` where a value of a tile decides"),
        (maths, exc.TorchOpTracingError, "torch.exp"),
        (item, exc.UnsupportedOperation, "without item"),
        (given_to_numpy, exc.NotAllowedOnDevice, "torch.exp\\(x\\) for np.exp\\(x\\)"),
        (left_as_a_list, exc.NotAllowedOnDevice, "x.sum\\(\\) for sum"),
        (summed_by_numpy, exc.TorchOpTracingError, "torch.sum\\(x, dim=1\\) for np.sum"),
        (made_by_numpy, exc.UnsupportedPythonType, "torch.from_numpy\\) are arguments"),
        (divided_by_nothing, exc.TorchOpTracingError, "integers are divided by 0"),
        (halves, exc.IncorrectTileUsage, "`//`"),
        (classes, exc.ConstantNeeded, "num_classes"),
        (many_constants, exc.UnsupportedOperation, "before the loop"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_refused_says_where_and_what_to_write(program, kind, said):
    with pytest.raises(kind, match=said) as caught:
        hl.kernel(program)(torch.ones(4), 2)
    assert f"in {program.__name__}" in str(caught.value)


def test_errors_of_the_users_own_are_theirs():
    def checked(v, least):
        if v.dtype != torch.float32:
            raise TypeError("float32, please")
        return v

    @hl.kernel
    def k(x, name):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            if name != "copy":
                raise ValueError(f"unknown {name!r}")
            out[t] = checked(x[t], 1)
        return out

    eq(k(torch.ones(3), "copy"), torch.ones(3))
    with pytest.raises(ValueError, match="unknown 'foo'"):
        k(torch.ones(3), "foo")
    with pytest.raises(TypeError, match="float32, please"):
        k(torch.ones(3, dtype=torch.float64), "copy")
