"""The kernels of `common_kernels` compute what PyTorch computes."""

from __future__ import annotations

import pytest

import tilewright
from tests.examples import common_kernels as kernels

torch = pytest.importorskip("torch")
F = torch.nn.functional
cdiv = tilewright.cdiv


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def close(got, want, tolerance):
    scale = max(1.0, want.double().abs().max().item())
    assert (got.double() - want.double()).abs().max().item() <= tolerance * scale


@pytest.mark.parametrize(("dtype", "mode", "offset"), [("float32", 0, 0.0), ("bfloat16", 0, 0.0), ("float16", 1, 1.0)])
def test_rms_norm(dtype, mode, offset):
    x, w = torch.randn(33, 200).to(getattr(torch, dtype)), torch.rand(200).to(getattr(torch, dtype))
    y, rstd = torch.empty_like(x), torch.empty(33)
    kernels.rms_norm[(33,)](y, y.stride(0), x, x.stride(0), w, rstd, 200, 1e-6, offset, mode=mode, BLOCK=256)
    exact = x.double() * (x.double().pow(2).mean(1, keepdim=True) + 1e-6).rsqrt() * (offset + w.double())
    close(y, exact, {"float32": 1e-6, "bfloat16": 1e-2, "float16": 1e-3}[dtype])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy(smoothing):
    x = torch.randn(17, 1000)
    y = torch.randint(0, 1000, (17,))
    y[5] = -100
    exact = x.double().requires_grad_()
    losses = F.cross_entropy(exact, y, reduction="none", label_smoothing=smoothing, ignore_index=-100)
    losses.sum().backward()
    loss = torch.zeros(17)
    kernels.cross_entropy[(17,)](x, x.stride(0), y, loss, 1000, -100, smoothing, HAS_SMOOTHING=smoothing > 0, BLOCK=256)
    close(loss, losses.detach(), 1e-6)
    close(x, exact.grad, 1e-6)


def test_rotary_and_back():
    q = torch.randn(2 * 7, 8, 64)
    angles = torch.rand(7, 32) * 6
    cos, sin = angles.cos(), angles.sin()
    before = q.clone()
    kernels.rotary[(14,)](q, q.stride(0), cos, sin, 32, 7, N_HEADS=8, HEAD_DIM=64)
    a, b = before[..., :32], before[..., 32:]
    c, s = (t.repeat(2, 1)[:, None, :] for t in (cos, sin))
    close(q, torch.cat([a * c - b * s, b * c + a * s], -1), 1e-6)
    kernels.rotary[(14,)](q, q.stride(0), cos, sin, 32, 7, N_HEADS=8, HEAD_DIM=64, BACKWARD=True)
    close(q, before, 1e-6)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 1e-2)])
def test_swiglu(dtype, tolerance):
    a, b = torch.randn(9, 300).to(dtype), torch.randn(9, 300).to(dtype)
    c = torch.empty_like(a)
    kernels.swiglu[(9,)](a, b, c, c.stride(0), n_cols=300, BLOCK=512)
    close(c, F.silu(a.double()) * b.double(), tolerance)


@pytest.mark.parametrize("with_state", [False, True])
def test_chunked_linear_attention(with_state):
    H, T, K, V = 2, 50, 32, 64
    q, k, v = torch.randn(H, T, K), torch.randn(H, T, K), torch.randn(H, T, V)
    state = torch.randn(H, K, V) if with_state else None
    o = torch.empty_like(v)
    kernels.linear_attention[lambda meta: (cdiv(V, meta["BV"]), H)](q, k, v, state, o, K**-0.5, T, K=K, V=V, BT=16)
    scores = (q.double() @ k.double().transpose(1, 2)).tril()
    exact = scores @ v.double() + (q.double() @ state.double() if with_state else 0)
    close(o, exact * K**-0.5, 1e-5)


@pytest.mark.parametrize("split_k", [1, 2])
def test_int4_weights(split_k):
    M, N, K, group = 20, 64, 128, 32
    a = torch.randn(M, K)
    weights, zeros = torch.randint(0, 16, (K, N)), torch.randint(0, 16, (K // group, N))
    scales = torch.rand(K // group, N)
    shifts = 4 * torch.arange(8)
    packed = (weights.view(K // 8, 8, N) << shifts[None, :, None]).sum(1).to(torch.int32)
    packed_zeros = (zeros.view(K // group, N // 8, 8) << shifts).sum(2).to(torch.int32)
    c = torch.zeros(M, N)
    kernels.int4_matmul[(cdiv(M, 16) * cdiv(N, 32), split_k)](
        a, packed, scales, packed_zeros, c, M, N, K, packed.stride(0), group,
        BLOCK_M=16, BLOCK_N=32, BLOCK_K=32, SPLIT_K=split_k,
    )  # fmt: skip
    rows = torch.arange(K) // group
    close(c, a.double() @ ((weights - zeros[rows]).double() * scales[rows].double()), 1e-5)


def test_scan_of_a_recurrence():
    decay, x = torch.rand(64, 16), torch.randn(64, 16)
    out = torch.empty_like(x)
    kernels.state_scan[(1,)](decay, x, out, T=64, D=16)
    state, rows = torch.zeros(16, dtype=torch.float64), []
    for t in range(64):
        state = state * decay[t].double() + x[t].double()
        rows.append(state)
    close(out, torch.stack(rows), 1e-5)


def test_attention_over_pages():
    lengths = torch.tensor([1, 16, 37], dtype=torch.int32)
    k_cache, v_cache, q = torch.randn(12, 16, 64), torch.randn(12, 16, 64), torch.randn(3, 64)
    tables = torch.randperm(12)[:9].view(3, 3).to(torch.int32)
    out = torch.empty_like(q)
    kernels.paged_decode[(3,)](out, q, k_cache, v_cache, tables, lengths, 0.125, 3, HEAD_DIM=64, PAGE=16)
    for seq, length in enumerate(lengths.tolist()):
        k, v = (cache[tables[seq].long()].reshape(-1, 64)[:length].double() for cache in (k_cache, v_cache))
        close(out[seq], torch.softmax(q[seq].double() @ k.T * 0.125, 0) @ v, 1e-6)


def test_bisection():
    values, edges = torch.rand(1000), torch.rand(77).sort().values
    out = torch.empty(1000, dtype=torch.int32)
    kernels.bucket_of[(cdiv(1000, 128),)](values, edges, out, 1000, 77, BLOCK=128)
    assert torch.equal(out.long(), torch.bucketize(values, edges))


@pytest.mark.parametrize("stride", [1, 2])
def test_convolution(stride):
    x, w = torch.randn(1, 20, 17, 15), torch.randn(24, 20, 3, 3)
    exact = F.conv2d(x.double(), w.double(), stride=stride)
    y = torch.empty(exact.shape)
    OH, OW = y.shape[2:]
    kernels.convolution[(cdiv(OH * OW, 32), cdiv(24, 16), 1)](
        x, w, y, 20, 17, 15, 24, OH, OW, stride, stride, KH=3, KW=3, BLOCK_P=32, BLOCK_CI=16, BLOCK_CO=16
    )
    close(y, exact, 1e-5)
