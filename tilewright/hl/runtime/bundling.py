"""`kernel.bundle(folder, sets)`: calls of a kernel, compiled, for processes without the compiler, PyTorch or Python."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

import tilewright
from tilewright.compiler.programs import Program, Variant, write_program
from tilewright.hl import exc
from tilewright.hl.constexpr import plain
from tilewright.hl.runtime.bound import BoundKernel
from tilewright.hl.runtime.loaded import Loaded
from tilewright.hl.runtime.recording import Recording
from tilewright.hl.tune import spec


def write(
    name: str, calls: Sequence[tuple[BoundKernel, Mapping[str, Any]]], folder: Path, target: str | None
) -> list[Path]:
    """Write the files of a kernel; returns them.

    Args:
        name: of the kernel.
        calls: bindings, and arguments by name.
        folder: where.
        target: what to compile for; None for where the arguments are.

    Raises:
        UnsupportedOperation: something of the host code needs PyTorch.
    """
    kernels: dict[str, Any] = {}
    variants: list[Variant] = []
    for at, (bound, arguments) in enumerate(calls):
        found, made = _recorded(bound, arguments, f"{name}_{at}", target)
        variants.append(found)
        kernels |= made
    program = Program(name, tuple(variants))
    if not kernels:
        raise exc.InvalidAPIUsage(
            f"a bundle of {name} for no arguments that it launches anything for", hint="give some"
        )
    folder.mkdir(parents=True, exist_ok=True)
    bundle = folder / f"{name}.twb"
    tilewright.write_bundle(bundle, kernels.values(), [program])
    return [bundle, *write_program(program, kernels, folder)]


def _recorded(
    bound: BoundKernel, arguments: Mapping[str, Any], prefix: str, target: str | None
) -> tuple[Variant, dict[str, Any]]:
    """A call as data, and its kernels."""
    if target is not None and target.startswith("cuda"):
        bound = _for_gpu(bound)
    args = [plain(value) for value in arguments.values()]
    config = bound.config or bound.known_config() or bound.default_config()
    loaded = Loaded(bound.name, bound.module(config, prefix=prefix), bound.scope, bound.source.file)
    if bound.traced.captured:
        raise exc.UnsupportedOperation(
            f"a bundle of {bound.name}, which reads tensors that are no arguments", hint="pass them as arguments"
        )
    recording = Recording(arguments, target)
    with torch.no_grad(), recording:
        returned = loaded.run_with(recording.launched, args)
    return recording.variant(returned), recording.kernels


def _for_gpu(bound: BoundKernel) -> BoundKernel:
    """A binding with the choices of a GPU, where its arguments are on a CPU."""
    if bound.config_spec.facts.machine.kind == "cuda":
        return bound
    twin = object.__new__(BoundKernel)
    twin.__dict__.update(bound.__dict__)
    twin.traced = dataclasses.replace(bound.traced, device=torch.device("cuda"), kept={})
    twin.config_spec, twin.config, twin.configs = spec.ConfigSpec(twin.traced), None, []
    return twin
