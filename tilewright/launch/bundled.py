"""Kernels that come from a bundle: launched like any other, compiled never."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tilewright.backends.llvm import codegen
from tilewright.base.callable import give_number
from tilewright.base.errors import BundleError, NotCompiledError
from tilewright.base.grids import Grid
from tilewright.base.target import Target
from tilewright.compile.bundle import BundledVariant, Contents, read_bundle
from tilewright.compile.kernel import CompiledKernel
from tilewright.compile.loading import load_code
from tilewright.compile.metadata import Metadata
from tilewright.compile.specialize import Param
from tilewright.compile.variants import signature_texts
from tilewright.devices.arrays import HOST
from tilewright.devices.drivers import driver, target_at
from tilewright.devices.registry import backend_of
from tilewright.launch import inline_cache
from tilewright.launch.bind import Binder, Call, Prepared, launch_nothing
from tilewright.launch.bundled_program import BundledProgram
from tilewright.launch.interface import KernelInterface


class BundledKernel(KernelInterface[Any]):
    """A kernel of a bundle, launched as `kernel[grid](*args, **kwargs)`.

    Args:
        name: of its function.
        params: its parameters.
        variants: what was compiled.
    """

    is_interpreted, launch_metadata = False, None

    def __init__(self, name: str, params: tuple[Param, ...], variants: tuple[BundledVariant, ...]) -> None:
        self.name, self.params, self.number = name, params, give_number(self)
        self._variants = variants
        self._loaded: dict[BundledVariant, CompiledKernel] = {}
        self._binder = Binder(name, params, self._resolve, instead=self._instead)

    def launcher(self, grid: Grid) -> Callable[..., Any]:
        """What launches over `grid`."""
        return functools.partial(self._binder.launch, grid)

    def variants(self) -> list[str]:
        """A line for each variant: its target and the types of its parameters."""
        return [f"{variant.target}: {variant.shown}" for variant in self._variants]

    def warmup(self, *args: Any, grid: Grid | None = None, **kwargs: Any) -> CompiledKernel:
        """The compiled kernel for these arguments."""
        return self._kernel(self._binder.bind(*args, **kwargs))

    def _instead(self) -> Callable[..., Any] | None:
        return self._launch_watched if inline_cache.are_launches_watched() else None

    def _launch_watched(self, grid: Grid, /, *args: Any, **kwargs: Any) -> Any:
        call = self._binder.bind(*args, **kwargs)
        return inline_cache.launch_watched(self, self._binder, call, self._resolve(call), grid)

    def _resolve(self, call: Call) -> Prepared:
        kernel = self._kernel(call)
        if call.is_warmup:
            return Prepared(kernel, launch_nothing, lasting=False)
        inline_cache.use_machine_code(self, self._binder)
        launch = kernel.launcher(call.placement(kernel.target, self.name))
        gpu = call.place.device_for(kernel.target, self.name) if call.place.device is None else None
        return Prepared(kernel, launch, frozenset(kernel.metadata["stored"]), call.place.lasting, gpu)

    def _kernel(self, call: Call) -> CompiledKernel:
        text = call.specialization.text()
        fitting = [variant for variant in self._variants if variant.specialization == text and _fits(variant, call)]
        if not fitting:
            asked = ", ".join(f"{name}: {kind}" for name, kind in signature_texts(call.specialization).items())
            raise NotCompiledError(
                f"{self.name}: the bundle has no variant for {asked} with these constants, alignments and options",
                hint="it has " + "; ".join(self.variants()),
            )
        kernel = self._loaded.get(fitting[0])
        if kernel is None:
            kernel = self._loaded[fitting[0]] = self._load(fitting[0], call)
        return kernel

    def _load(self, variant: BundledVariant, call: Call) -> CompiledKernel:
        metadata = Metadata({**variant.metadata, "target": variant.target})
        asm: dict[str, str | bytes] = {backend_of(variant.target).BINARY: variant.binary}
        made = CompiledKernel(self.name, variant.target, metadata, variant.hash, asm, from_disk=True)
        try:
            load_code(made)
        except (KeyError, TypeError, ValueError) as error:
            raise BundleError(
                f"the bundle's code of {self.name} for {variant.target} does not load: {error}"
            ) from error
        made.specialization = call.specialization
        return made


def _fits(variant: BundledVariant, call: Call) -> bool:
    """Whether a variant is for where the call goes, and has the options that the call asks for."""
    if any(variant.options[name] != value for name, value in call.options.items() if name in variant.options):
        return False
    device = call.place.device
    if device == HOST or (device is None and not driver.active.has_queue):
        return variant.target.backend == "cpu" and not _why_not(variant.target)
    return str(target_at(device)) == str(variant.target)


@functools.cache
def _why_not(target: Target) -> str:
    return backend_of(target).why_not(target)


class Bundle:
    """What a file holds by name: kernels, launched as `bundle["add"][grid](...)`, and programs, which are called.

    Args:
        contents: of the file.
    """

    def __init__(self, contents: Contents) -> None:
        self._kernels: dict[str, Any] = {
            name: BundledKernel(name, params, contents.variants[name]) for name, params in contents.params.items()
        }
        kernels = dict(self._kernels)
        self._kernels |= {name: BundledProgram(program, kernels) for name, program in contents.programs.items()}

    def __getitem__(self, name: str) -> Any:
        if name not in self._kernels:
            raise BundleError(f"the bundle has no kernel {name!r}", hint=f"it has {', '.join(self)}")
        return self._kernels[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kernels)

    def __len__(self) -> int:
        return len(self._kernels)


def load_bundle(path: str | Path) -> Bundle:
    """Load a bundle, which needs neither LLVM nor the compiler. It is machine code: load what you trust.

    Args:
        path: of a file that `tilewright bundle` or `write_bundle` wrote.

    Raises:
        BundleError: it is no bundle, is damaged, or was made by another version or for other targets.
    """
    contents = read_bundle(path)
    codegen.provide_helpers(contents.helpers, contents.triple)
    return Bundle(contents)
