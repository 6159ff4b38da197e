"""Tile kernels as operators of PyTorch.

With this package imported, `kernel[grid](...)` is recorded by whoever traces: `torch.compile`, `torch.export`, `make_fx`,
fake tensors. `triton_op` makes a function that launches kernels an operator of its own, with gradients.
"""

import torch

from tilewright.devices import host_descriptor
from tilewright.launch import door
from tilewright.torch.state import is_wrap_triton_enabled, set_wrap_triton_enabled
from tilewright.torch.tracing import tracer

door.install(tracer)
host_descriptor.is_traced = torch.compiler.is_dynamo_compiling

__all__ = ["is_wrap_triton_enabled", "set_wrap_triton_enabled"]
