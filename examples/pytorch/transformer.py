"""A small transformer that trains with the operators of `operators.py`, in eager and compiled, and is exported.

python examples/pytorch/transformer.py
"""

import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parent))
from operators import cross_entropy, rms_norm


class Block(nn.Module):
    """Attention and a feed-forward layer, each behind RMSNorm.

    Args:
        width: of the model.
        heads: of the attention.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ParameterList([torch.ones(width), torch.ones(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(rms_norm(x, self.norms[0])).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(rms_norm(x, self.norms[1]))))


class Model(nn.Module):
    """Predicts the next of `symbols` from those before it."""

    def __init__(self, symbols: int = 50, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.embedding, self.block = nn.Embedding(symbols, width), Block(width, heads)
        self.norm, self.head = nn.Parameter(torch.ones(width)), nn.Linear(width, symbols, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(rms_norm(self.block(self.embedding(tokens)), self.norm))


def train(steps: int = 4, device: str = "cpu", **compile_options) -> list[float]:
    """Losses of a few steps on a text that repeats itself.

    Args:
        steps: of the optimiser.
        device: where the model is.
        compile_options: of `torch.compile`; eager if there are none.
    """
    torch.manual_seed(0)
    model = Model().to(device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    text = ((torch.arange(4 * 33).view(4, 33) * 7) % 50).to(device)

    def loss_of(tokens: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
        return cross_entropy(model(tokens).flatten(0, 1), following.flatten())

    step = torch.compile(loss_of, fullgraph=True, **compile_options) if compile_options else loss_of
    losses = []
    for _ in range(steps):
        loss = step(text[:, :-1], text[:, 1:])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


def exported() -> torch.export.ExportedProgram:
    """The block for any length, as a program in which each operator is one node."""
    torch.manual_seed(0)
    length = torch.export.Dim("length", min=2, max=1024)
    return torch.export.export(Block(32, 4).eval(), (torch.randn(2, 16, 32),), dynamic_shapes=({1: length},))


if __name__ == "__main__":
    print("eager    ", train())
    print("compiled ", train(backend="inductor"))
    print([str(node.target) for node in exported().graph.nodes if "examples" in str(node.target)])
