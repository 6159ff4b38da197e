"""Layer normalisation, forward and backward, as a differentiable function of PyTorch.

The gradient of the weight is a sum over all rows. Every row's program adds its part to one of GROUP partial
sums, which a spin lock guards (``atomic_cas`` takes it, ``atomic_xchg`` gives it back); a second kernel adds
up the partial sums. With x̂ = (x - mean) · rstd and g = w · dy, per row: dx = (g - mean(g) - x̂ · mean(g · x̂)) · rstd.
"""

import torch

import tilewright as triton
import tilewright.language as tl


@triton.jit
def forward_kernel(x_ptr, y_ptr, w_ptr, b_ptr, mean_ptr, rstd_ptr, stride, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x_ptr += row * stride
    y_ptr += row * stride
    # rows may be longer than a block: the statistics take one pass each
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / N
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        centred = tl.where(cols < N, x - mean, 0.0)
        squares += centred * centred
    rstd = 1 / tl.sqrt(tl.sum(squares, axis=0) / N + eps)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < N
        x = tl.load(x_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        y = (x - mean) * rstd * tl.load(w_ptr + cols, mask=mask) + tl.load(b_ptr + cols, mask=mask)
        tl.store(y_ptr + cols, y, mask=mask)


@triton.jit
def backward_rows_kernel(
    dx_ptr, dy_ptr, dw_ptr, db_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, lock_ptr, stride, N,
    GROUP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * stride + cols, mask=mask, other=0).to(tl.float32)
    dy = tl.load(dy_ptr + row * stride + cols, mask=mask, other=0).to(tl.float32)
    w = tl.load(w_ptr + cols, mask=mask, other=0).to(tl.float32)
    mean = tl.load(mean_ptr + row)
    rstd = tl.load(rstd_ptr + row)

    normal = tl.where(mask, (x - mean) * rstd, 0.0)
    g = tl.where(mask, w * dy, 0.0)
    along = tl.sum(normal * g, axis=0) / N
    offset = tl.sum(g, axis=0) / N
    tl.store(dx_ptr + row * stride + cols, (g - (normal * along + offset)) * rstd, mask=mask)

    # this row's share of dw and db goes to one of GROUP partial sums
    group = row % GROUP
    lock = lock_ptr + group
    taken_before = lock_ptr + GROUP + group  # whether the partial sum holds anything yet
    dw_ptrs = dw_ptr + group * N + cols
    db_ptrs = db_ptr + group * N + cols
    dw = dy * normal
    db = dy
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    if tl.load(taken_before) == 0:
        tl.atomic_xchg(taken_before, 1)
    else:
        dw += tl.load(dw_ptrs, mask=mask)
        db += tl.load(db_ptrs, mask=mask)
    tl.store(dw_ptrs, dw, mask=mask)
    tl.store(db_ptrs, db, mask=mask)
    tl.debug_barrier()  # every lane has stored before the lock is given back
    tl.atomic_xchg(lock, 0)


@triton.jit
def backward_columns_kernel(dw_ptr, db_ptr, out_w_ptr, out_b_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    cols = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    dw = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    db = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, M, BLOCK_M):
        rows = start + tl.arange(0, BLOCK_M)
        mask = (rows[:, None] < M) & (cols[None, :] < N)
        offsets = rows[:, None] * N + cols[None, :]
        dw += tl.load(dw_ptr + offsets, mask=mask, other=0.0)
        db += tl.load(db_ptr + offsets, mask=mask, other=0.0)
    tl.store(out_w_ptr + cols, tl.sum(dw, axis=0), mask=cols < N)
    tl.store(out_b_ptr + cols, tl.sum(db, axis=0), mask=cols < N)


class LayerNorm(torch.autograd.Function):
    """``layer_norm(x, weight, bias, eps)`` of matrices, with a gradient."""

    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        M, N = x.shape
        y = torch.empty_like(x)
        mean = torch.empty(M, dtype=torch.float32, device=x.device)
        rstd = torch.empty_like(mean)
        BLOCK = min(1024, triton.next_power_of_2(N))
        forward_kernel[(M,)](x, y, weight, bias, mean, rstd, x.stride(0), N, eps, BLOCK=BLOCK)
        ctx.save_for_backward(x, weight, mean, rstd)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, weight, mean, rstd = ctx.saved_tensors
        dy = dy.contiguous()
        M, N = x.shape
        GROUP = 64 if N > 8192 else 96 if N > 4096 else 128 if N > 1024 else 256
        locks = torch.zeros(2 * GROUP, dtype=torch.int32, device=x.device)
        # a partial sum that no row adds to must count as zero
        partial_w = torch.zeros((GROUP, N), dtype=torch.float32, device=x.device)
        partial_b = torch.zeros_like(partial_w)
        dx, dw, db = torch.empty_like(dy), torch.empty_like(weight), torch.empty_like(weight)
        backward_rows_kernel[(M,)](
            dx, dy, partial_w, partial_b, x, weight, mean, rstd, locks, x.stride(0), N,
            GROUP=GROUP, BLOCK=triton.next_power_of_2(N),
        )  # fmt: skip
        backward_columns_kernel[lambda meta: (triton.cdiv(N, meta["BLOCK_N"]),)](
            partial_w, partial_b, dw, db, min(GROUP, M), N, BLOCK_M=32, BLOCK_N=128
        )
        return dx, dw, db, None


layer_norm = LayerNorm.apply


def main() -> None:
    torch.manual_seed(0)
    eps = 1e-5
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float16, 5e-3)):
        for M, N in ((301, 1000), (64, 2048)):
            x = (3 * torch.randn(M, N) + 1).to(dtype).requires_grad_()
            weight = torch.rand(N).to(dtype).requires_grad_()
            bias = torch.rand(N).to(dtype).requires_grad_()
            dy = torch.randn(M, N).to(dtype)
            y = layer_norm(x, weight, bias, eps)
            y.backward(dy)
            ours = (y, x.grad, weight.grad, bias.grad)
            exact = [tensor.detach().double().requires_grad_() for tensor in (x, weight, bias)]
            expected = torch.nn.functional.layer_norm(exact[0], (N,), exact[1], exact[2], eps)
            expected.backward(dy.double())
            errors = []
            for got, want in zip(ours, (expected, *(tensor.grad for tensor in exact)), strict=True):
                errors.append(((got.double() - want).abs().max() / want.abs().max()).item())
            shown = "  ".join(
                f"{name} {error:.1e}" for name, error in zip(("y", "dx", "dw", "db"), errors, strict=True)
            )
            print(f"layer norm  {M:>3} x {N:<4}  {dtype!s:<13}  max error of the largest: {shown}")
            assert max(errors) <= tolerance, "layer norm or its gradient differs from the float64 reference"


if __name__ == "__main__":
    main()
