"""A gated delta rule, chunk by chunk: the state of a linear attention that forgets, and corrects what it stores.

For every step of a sequence: the state S [keys, values] decays by a factor, what it answers to the key is compared with
the value, and the difference is written. The state of each chunk's start is kept for the passes that need it.
"""

import torch
from check import compare

from tilewright import hl

CHUNK = 16


@hl.kernel(config=hl.Config(block_sizes=[16]))
def delta_rule(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, beta: torch.Tensor, decay: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    heads, steps, keys = q.size()
    values = v.size(2)
    out = torch.empty_like(v)
    states = torch.empty([heads, steps // CHUNK, keys, values], dtype=torch.float32, device=q.device)
    for one, tile_v in hl.tile([heads, values], block_size=[1, None]):
        head = one.begin
        state = hl.zeros([keys, tile_v], dtype=torch.float32)
        for chunk in hl.grid(steps // CHUNK):
            states[head, chunk, :, tile_v] = state
            for inner in hl.grid(CHUNK):
                step = chunk * CHUNK + inner
                key = k[head, step, :]
                state = state * decay[head, step]
                answer = (state * key[:, None]).sum(0)
                write = (v[head, step, tile_v] - answer) * beta[head, step]
                state = state + key[:, None] * write[None, :]
                out[head, step, tile_v] = (state * q[head, step, :][:, None]).sum(0)
    return out, states


def reference(q, k, v, beta, decay):
    """The same, step by step on whole tensors."""
    heads, steps, keys = q.shape
    state, outs, states = torch.zeros(heads, keys, v.size(2)), [], []
    for step in range(steps):
        if step % CHUNK == 0:
            states.append(state)
        state = state * decay[:, step, None, None]
        answer = torch.einsum("hkv,hk->hv", state, k[:, step])
        write = (v[:, step] - answer) * beta[:, step, None]
        state = state + torch.einsum("hk,hv->hkv", k[:, step], write)
        outs.append(torch.einsum("hkv,hk->hv", state, q[:, step]))
    return torch.stack(outs, 1), torch.stack(states, 1)


def main() -> None:
    torch.manual_seed(0)
    q, k = torch.randn(3, 64, 32), torch.nn.functional.normalize(torch.randn(3, 64, 32), dim=-1)
    v, beta, decay = torch.randn(3, 64, 24), torch.rand(3, 64), 0.9 + 0.1 * torch.rand(3, 64)
    compare("gated delta rule", delta_rule, reference, q, k, v, beta, decay, tolerance=1e-4)


if __name__ == "__main__":
    main()
