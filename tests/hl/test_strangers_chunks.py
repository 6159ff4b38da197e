"""Chunks, heads and losses: programs as Helion's users write them, against PyTorch."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from tests.hl.strangers import agree
from tilewright import hl


def test_a_gated_product_of_any_shape():

    def k(gate, up):
        assert gate.shape == up.shape, f"{gate.shape} and {up.shape}"
        out = torch.empty_like(gate, dtype=torch.promote_types(gate.dtype, up.dtype))
        flat_gate, flat_up, flat_out = gate.view(-1), up.view(-1), out.view(-1)
        for t in hl.tile(gate.numel()):
            g = flat_gate[t].to(torch.float32)
            inner = 0.7978845608028654 * (g + 0.044715 * g * g * g)
            flat_out[t] = (0.5 * g * (1.0 + torch.tanh(inner))).to(flat_up.dtype) * flat_up[t]
        return out

    agree(k, lambda g, u: F.gelu(g, approximate="tanh") * u, (torch.randn(3, 5, 33), torch.randn(3, 5, 33)))


def test_a_divergence_with_a_reduction_by_name():

    def k(log_p, q, of_logs: bool = False, reduction: str = "batchmean", eps: float = 1e-10):
        n, m = log_p.shape
        if reduction == "none":
            loss = torch.zeros_like(log_p)
        else:
            loss = torch.zeros((n,), dtype=torch.float32, device=log_p.device)
        width, height = hl.register_block_size(m), hl.register_block_size(n)
        for rows in hl.tile(n, block_size=height):
            total = hl.zeros([rows, width], dtype=torch.float32)
            for columns in hl.tile(m, block_size=width):
                part = hl.zeros([height, width], dtype=torch.float32)
                lp, target = log_p[rows, columns], q[rows, columns]
                if of_logs:
                    part += torch.exp(target) * (target - lp)
                else:
                    part += target * (torch.log(torch.clamp(target, min=eps)) - lp)
                if reduction == "none":
                    loss[rows, columns] = part
                else:
                    total += part
            if reduction != "none":
                loss[rows] = total.sum(dim=-1)
        if reduction == "batchmean":
            return torch.sum(loss) / n
        return loss if reduction == "none" else torch.sum(loss, dim=0)

    def e(log_p, q, of_logs, reduction):
        return F.kl_div(log_p, q, log_target=of_logs, reduction=reduction)

    log_p, q = torch.randn(2, 19, 77).log_softmax(-1)
    sets = [
        (log_p, q if logs else q.exp(), logs, how) for logs in (False, True) for how in ("none", "sum", "batchmean")
    ]
    agree(k, e, *sets, n=1)


def test_the_gradient_of_a_divergence_by_hand():

    def k(grad, log_p, q, reduction: hl.constexpr, eps: hl.constexpr, both: hl.constexpr):
        n, m = log_p.shape
        grad_p = torch.empty_like(log_p)
        grad_q = torch.empty_like(q) if both else None
        seed = grad.expand(q.shape) if reduction != "none" else grad
        least = math.log(eps)
        for rows in hl.tile(n):
            for columns in hl.tile(m):
                g, target = seed[rows, columns], q[rows, columns]
                if reduction == "batchmean":
                    count = n
                else:
                    count = 1.0
                grad_p[rows, columns] = -g * target / count
                if both:
                    lp = log_p[rows, columns]
                    log_q = torch.where(target < eps, least - lp, torch.log(target) - lp + 1)
                    grad_q[rows, columns] = g * log_q / count
        return grad_p, grad_q

    def e(grad, log_p, q, reduction, eps, both):
        log_p, q = log_p.clone().requires_grad_(), q.clone().requires_grad_()
        found = torch.autograd.grad(F.kl_div(log_p, q, reduction=reduction), (log_p, q), grad)
        return found[0], found[1] if both else None

    log_p, q = torch.randn(2, 19, 77).log_softmax(-1)
    agree(
        k,
        e,
        (torch.tensor(0.7), log_p, q.exp(), "batchmean", 1e-10, True),
        (torch.randn(19, 77), log_p, q.exp(), "none", 1e-10, True),
        n=1,
    )


def test_scores_of_chunks_with_gates_of_each_channel():

    def k(q, keys, gates, scale: float):
        n, c = q.size(0), hl.specialize(q.size(1))
        scores = torch.zeros([n, c, c], dtype=torch.float32, device=q.device)
        for chunk in hl.tile(n, block_size=1):
            all_keys, all_gates = keys[chunk, :, :].float(), gates[chunk, :, :].float()
            places = hl.arange(c)
            for rows in hl.tile(c, block_size=16):
                first = rows.begin
                anchor = gates[chunk, first, :].float()
                mine = q[chunk, rows, :].float() * torch.exp2(gates[chunk, rows, :].float() - anchor[:, None, :])
                near = (places < first + 16)[None, :]
                exponent = torch.where(near[:, :, None], anchor[:, None, :] - all_gates, torch.zeros_like(all_gates))
                theirs = all_keys * torch.exp2(exponent)
                found = hl.dot(mine, theirs.transpose(-2, -1)) * scale
                causal = rows.index[:, None] >= places[None, :]
                scores[chunk, rows, :] = found * causal[None, :, :].to(found.dtype)
        return scores

    def e(q, keys, gates, scale):
        decay = torch.exp2(gates[:, :, None] - gates[:, None])
        return (torch.einsum("ntd,nsd,ntsd->nts", q, keys, decay) * scale).tril()

    gates = (-torch.rand(3, 32, 20)).cumsum(1)
    agree(k, e, (torch.randn(3, 32, 20), torch.randn(3, 32, 20), gates, 0.25), atol=1e-2, rtol=1e-2)


def test_running_sums_of_chunks_by_a_product_of_ones():

    def k(x, last, dtype: torch.dtype):
        n, c, d = x.size(0), hl.specialize(x.size(1)), x.size(2)
        out = torch.empty([n, c, d], dtype=dtype, device=x.device)
        for chunk, channels in hl.tile([n, d]):
            values = x[chunk, :, channels].float()
            places = hl.arange(c)
            above = (places[:, None] <= places[None, :]).to(torch.float32)
            rest = last[chunk, channels]
            total = hl.dot(
                above[None, :, :].broadcast_to(chunk, c, c),
                values,
                acc=rest[:, None, :].broadcast_to(chunk, c, rest.size(-1)),
            )
            out[chunk, :, channels] = total.to(dtype)
        return out

    def e(x, last, dtype):
        return (x.flip(1).cumsum(1).flip(1) + last[:, None]).to(dtype)

    agree(k, e, (torch.randn(5, 16, 24), torch.randn(5, 24), torch.float32), atol=1e-2, rtol=1e-2)


def test_states_from_chunk_to_chunk_by_the_number_of_a_tile():

    def k(keys, values, gates):
        heads, n, c, d = keys.shape
        c, dv = hl.specialize(c), values.size(3)
        states = torch.empty([heads, n, d, dv], dtype=keys.dtype, device=keys.device)
        for head, channels, out in hl.tile([heads, d, dv], block_size=[1, None, None]):
            at = head.id
            state = hl.zeros([channels, out], dtype=torch.float32)
            for i in hl.grid(n):
                states[at, n - 1 - i, channels, out] = state.to(states.dtype)
                gate, end = gates[at, i, :, channels], gates[at, i, c - 1, channels]
                rows = keys[at, i, :, channels].float() * torch.exp2(end[None, :] - gate)
                state = hl.dot(rows.transpose(-2, -1), values[at, i, :, out], acc=state * torch.exp2(end)[:, None])
        return states

    def e(keys, values, gates):
        state, found = torch.zeros(keys.size(0), keys.size(3), values.size(3)), []
        for i in range(keys.size(1)):
            found.append(state)
            end = gates[:, i, -1:]
            rows = keys[:, i] * torch.exp2(end - gates[:, i])
            state = state * torch.exp2(end).transpose(1, 2) + rows.transpose(1, 2) @ values[:, i]
        return torch.stack(found[::-1], 1)

    gates = (-torch.rand(2, 3, 16, 20)).cumsum(2)
    agree(k, e, (torch.randn(2, 3, 16, 20), torch.randn(2, 3, 16, 12), gates), atol=1e-2, rtol=1e-2)


def test_heads_flattened_with_a_tile_and_taken_apart_again():

    def k(q, keys, values, scale: float):
        heads = hl.specialize(q.size(2))
        out = torch.empty_like(q)
        for batch, rows in hl.tile([q.size(0), q.size(1)]):
            mine = q[batch, rows, :, :].permute(0, 2, 1, 3).flatten(0, 1)
            theirs = keys[batch, :, :, :].permute(0, 2, 1, 3).flatten(0, 1)
            weights = torch.bmm(mine, theirs.transpose(-2, -1)) * scale
            found = torch.bmm(weights.to(values.dtype), values[batch, :, :, :].permute(0, 2, 1, 3).flatten(0, 1))
            out[batch, rows, :, :] = found.unflatten(0, [batch, heads]).permute(0, 2, 1, 3).to(out.dtype)
        return out

    def e(q, keys, values, scale):
        return torch.einsum("bmhd,bnhd,bnhe->bmhe", q * scale, keys, values)

    sets = (torch.randn(4, 24, 2, 16), torch.randn(4, 8, 2, 16), torch.randn(4, 8, 2, 16), 0.5)
    agree(k, e, sets, atol=1e-2, rtol=1e-2, fix={"block_sizes": [1, 8]})


def test_tiles_that_span_three_open_sizes():
    @hl.kernel(static_shapes=False)
    def product(x, y):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            out[t, :, :, :] = x[t, :, :, :] * y[t, :, :, :]
        return out

    for sizes in ((4, 2, 3, 5), (9, 2, 3, 5), (4, 7, 3, 5), (4, 2, 3, 6)):
        x, y = torch.randn(2, *sizes)
        torch.testing.assert_close(product(x, y), x * y)


def test_polynomials_in_a_loop_of_single_orders():

    def k(x, w):
        n, m = x.shape
        orders, _ = w.shape
        hl.specialize(orders)
        out = torch.zeros((n, m), device=x.device, dtype=x.dtype)
        for rows, columns in hl.tile([n, m]):
            values = x[rows, columns]
            before, last = hl.full((rows, columns), 1.0, x.dtype), values
            total = w[0, columns][None, :] * before + w[1, columns][None, :] * last
            for order in hl.tile(2, orders, block_size=1):
                before, last = last, 2.0 * values * last - before
                total = total + w[order, columns] * last
            out[rows, columns] = total
        return out

    def e(x, w):
        before, last = torch.ones_like(x), x
        total = w[0] + w[1] * x
        for order in range(2, w.size(0)):
            before, last = last, 2 * x * last - before
            total = total + w[order] * last
        return total

    agree(k, e, (torch.randn(23, 14), torch.randn(5, 14)))


def test_norms_of_rows_of_different_lengths_in_three_passes():

    def k(values, offsets, eps: float = 1e-6):
        total, m = values.shape
        out = torch.empty_like(values)
        flat, flat_out = values.view(-1), out.view(-1)
        for b in hl.tile(offsets.size(0) - 1):
            begins = offsets[b]
            lengths = offsets[b.index + 1] - begins
            longest = lengths.amax()
            mean, squares = hl.zeros([b], dtype=values.dtype), hl.zeros([b], dtype=values.dtype)
            count = lengths.to(values.dtype) * m
            for t in hl.tile(0, longest):
                for c in hl.tile(m):
                    at = (begins[:, None] + t.index[None, :])[:, :, None] * m + c.index[None, None, :]
                    here = (t.index[None, :] < lengths[:, None])[:, :, None]
                    mean = mean + hl.load(flat, [at], extra_mask=here).sum(dim=1).sum(dim=1)
            mean = mean / count
            for t in hl.tile(0, longest):
                for c in hl.tile(m):
                    at = (begins[:, None] + t.index[None, :])[:, :, None] * m + c.index[None, None, :]
                    here = (t.index[None, :] < lengths[:, None])[:, :, None]
                    apart = torch.where(here, hl.load(flat, [at], extra_mask=here) - mean[:, None, None], 0.0)
                    squares = squares + (apart * apart).sum(dim=1).sum(dim=1)
            scale = torch.rsqrt(squares / count + eps)
            for t in hl.tile(0, longest):
                for c in hl.tile(m):
                    at = (begins[:, None] + t.index[None, :])[:, :, None] * m + c.index[None, None, :]
                    here = (t.index[None, :] < lengths[:, None])[:, :, None]
                    apart = hl.load(flat, [at], extra_mask=here) - mean[:, None, None]
                    hl.store(flat_out, [at], apart * scale[:, None, None], extra_mask=here)
        return out.reshape(total, m)

    def e(values, offsets):
        rows = values.tensor_split(offsets[1:-1])
        return torch.cat([F.layer_norm(row, row.shape, eps=1e-6) for row in rows])

    offsets = torch.tensor([0, 3, 30, 31, 45])
    agree(k, e, (torch.randn(45, 12), offsets), n=1)


def test_tunables_in_the_extents_of_what_the_host_makes():

    def k(x):
        width = hl.register_tunable("width", hl.autotuner.IntegerFragment(2, 8, 4))
        extra = hl.register_tunable("extra", hl.autotuner.IntegerFragment(1, 4, 2))
        zeros = torch.zeros([x.size(0), 2 * width + extra], dtype=x.dtype, device=x.device)
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            out[t] = torch.sum(zeros[t, :] + x[t, None], dim=-1) / (2 * width + extra)
        return out

    agree(k, lambda x: x, (torch.randn(50),))


def test_chosen_configuration_with_block_sizes_by_loops():
    @hl.kernel(config=hl.Config(block_sizes=[[4096], [1]], num_warps=16, num_stages=5, indexing="pointer"))
    def long_sum(x):
        m, n = x.size()
        out = torch.empty([m], dtype=x.dtype, device=x.device)
        block = hl.register_block_size(n)
        for rows in hl.tile(m):
            acc = hl.zeros([rows, block], dtype=x.dtype)
            for columns in hl.tile(n, block_size=block):
                acc += x[rows, columns]
            out[rows] = acc.sum(-1)
        return out

    x = torch.randn(4, 10000)
    torch.testing.assert_close(long_sum(x), x.sum(-1), atol=1e-2, rtol=1e-3)
