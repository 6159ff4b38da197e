"""Tile kernels as operators of PyTorch.

With this package imported, `kernel[grid](...)` is recorded by whoever traces: `torch.compile`, `torch.export`,
`make_fx`, fake tensors. `triton_op` makes a function that launches kernels an operator of its own, with gradients.
"""

from tilewright.base.lazy import torch_needed

with torch_needed(__name__):
    import torch

    from tilewright.analysis import effects
    from tilewright.base.errors import GradientError
    from tilewright.devices import arrays, host_descriptor
    from tilewright.frontend import entry
    from tilewright.hl.emit import module
    from tilewright.hl.passes import fast_math
    from tilewright.hl.trace import host
    from tilewright.hl.tune import driver
    from tilewright.launch import tracer_slot
    from tilewright.passes import pipeline
    from tilewright.torch import hl_calls, hl_gradients, manifest, trace_artifacts
    from tilewright.torch.discovery import kernels_in as get_inner_triton_kernels
    from tilewright.torch.manifest import MissingKernelError, define_operators
    from tilewright.torch.mutation import MutationError
    from tilewright.torch.state import is_wrap_triton_enabled, set_wrap_triton_enabled
    from tilewright.torch.tracing import WATCH, launch_over
    from tilewright.torch.triton_op import TileOp, capture_triton, get_triton_kernels_for_op, triton_op, wrap_triton

# Tracers replace functions of Python's own while they run, so the compiler's front end is loaded before.
assert entry and pipeline and effects and host and module and fast_math and driver
tracer_slot.install(launch_over, WATCH)
hl_calls.install()
hl_gradients.install()
manifest.install()
trace_artifacts.install()
arrays.leave_gradients_to_others()
host_descriptor.is_traced = torch.compiler.is_dynamo_compiling

__all__ = [
    "GradientError",
    "MissingKernelError",
    "MutationError",
    "TileOp",
    "capture_triton",
    "define_operators",
    "get_inner_triton_kernels",
    "get_triton_kernels_for_op",
    "is_wrap_triton_enabled",
    "set_wrap_triton_enabled",
    "triton_op",
    "wrap_triton",
]
