"""`TensorDescriptor` under the name by which kernels' callers import it.

The class itself is `tilewright.devices.host_descriptor`; this module only keeps
``from tilewright.tools.tensor_descriptor import TensorDescriptor`` working.
"""

from __future__ import annotations

from tilewright.devices.host_descriptor import TensorDescriptor

__all__ = ["TensorDescriptor"]
