"""Compiled kernels in torch's structured trace (`TORCH_TRACE`), where tlparse shows them beside torch's own stages.

A kernel is one artifact of facts and one of each text that explains it; nothing is rendered unless a trace is written.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from tilewright.compile import listening
from tilewright.compile.kernel import CompiledKernel

_TEXTS = ("source", "ttir", "llir", "ptx")


def install() -> None:
    """Have every compilation from now on written to the trace, if there is one."""
    listening.compiled.add(_trace)


def _trace(source: Any, kernel: CompiledKernel) -> None:
    if not any(map(_writes, torch._logging._internal.trace_log.handlers)):
        return
    _artifact(kernel, "facts", "json", lambda: _facts(kernel))
    for stage in () if kernel.from_disk else _TEXTS:  # texts of what is on disk would have to be compiled anew
        if stage in kernel.asm:
            _artifact(kernel, stage, "string", functools.partial(_text, kernel, stage))


def _writes(handler: Any) -> bool:
    """Whether a trace is written: torch's handler stands there without one too, but has a folder only then."""
    return getattr(handler, "root_dir", None) is not None


def _artifact(kernel: CompiledKernel, what: str, encoding: str, payload: Any) -> None:
    name = f"tilewright_{kernel.name}_{kernel.hash[:8]}_{what}"
    torch._logging.trace_structured(
        "artifact",
        metadata_fn=lambda: {"name": name, "encoding": encoding},
        payload_fn=payload,
        expect_trace_id=False,  # a kernel may be launched outside of whatever torch compiles
    )


def _facts(kernel: CompiledKernel) -> dict[str, Any]:
    return {
        "kernel": kernel.name,
        "target": str(kernel.target),
        "hash": kernel.hash,
        "from_disk": kernel.from_disk,
        "seconds": kernel.total_seconds,
        "stages": dict(kernel.seconds),
        "decisions": kernel.metadata.get("decisions", []),
    }


def _text(kernel: CompiledKernel, stage: str) -> str:
    return str(kernel.asm[stage])
