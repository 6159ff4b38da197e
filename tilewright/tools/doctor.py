"""``tilewright doctor``: what this machine offers, what is installed and how the knobs stand.

Everything a bug report needs, gathered without compiling a kernel.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from pathlib import Path

from rich.box import SIMPLE
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from tilewright.backends.cpu.device.openmp import find_openmp
from tilewright.backends.llvm.features import host
from tilewright.backends.nvidia import cubin
from tilewright.backends.nvidia.arch import CAPABILITIES, arch_of
from tilewright.backends.nvidia.device import driver, libcuda
from tilewright.base import system
from tilewright.base.disk_cache import DiskCache
from tilewright.base.errors import TilewrightError
from tilewright.base.knobs import knobs
from tilewright.base.version import __version__
from tilewright.triton_names.switch import describe

_NOTABLE = (
    "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512bf16", "avx512fp16", "avx512vnni", "avxvnni",
    "amx-tile", "amx-bf16", "amx-int8", "neon", "fullfp16", "dotprod", "bf16", "i8mm", "sve",
)  # fmt: skip
_PACKAGES = ("numpy", "xdsl", "llvmlite", "torch", "nvidia-nvjitlink", "click", "rich")


def version(package: str) -> str:
    """Installed version of a package, or ``"not installed"``; does not import it."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def cpu_name() -> str:
    """The CPU as its maker calls it, or as LLVM does where the system does not say."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return host().cpu


def facts() -> dict[str, str]:
    """Machine and installation as name -> text, in the order in which they are shown."""
    cpu = host()
    openmp = find_openmp()
    entries, size = DiskCache(knobs.cache.dir, knobs.cache.size).size()
    notable = " ".join(name for name in _NOTABLE if cpu.has(name))
    return {
        "CPU": f"{cpu_name()} (LLVM: {cpu.cpu}), vectors of {cpu.vector_bytes} bytes",
        "features": notable,
        "threads": f"{system.this().processors()} in the affinity mask, {os.cpu_count()} in the machine",
        "OpenMP runtime": openmp.path if openmp else "none: kernels run on a pool of their own",
        **_gpu_facts(),
        "disk cache": f"{knobs.cache.dir}: {entries} entries, {decimal(size)} of at most {decimal(knobs.cache.size)}",
        "system": f"{platform.platform()}, {platform.libc_ver()[0]} {platform.libc_ver()[1]}",
        "Tilewright": __version__,
        "Python": f"{platform.python_version()} ({sys.executable})",
        "triton": describe(),
        "packages": ", ".join(f"{name} {version(name)}" for name in _PACKAGES),
    }


def _gpu_facts() -> dict[str, str]:
    """The NVIDIA driver and its GPUs, and what makes machine code for them."""
    missing, version = libcuda.problem(), driver.driver_version()
    rows = {"CUDA driver": f"CUDA {version[0]}.{version[1]}" if version else str(missing and missing.message)}
    for ordinal in range(driver.device_count()):
        gpu = driver.device(ordinal)
        known = gpu.capability in CAPABILITIES
        rows[f"GPU {ordinal}"] = (
            f"{gpu.name}, compute capability {gpu.capability / 10:.1f}{'' if known else ' (not supported)'}, "
            f"{gpu.attributes['multiprocessors']} multiprocessors, {decimal(gpu.memory_bytes)}"
        )
    try:
        tool = cubin.assembler(driver.driver_major())
        rows["PTX assembler"] = f"{type(tool).__name__} {tool.version()} ({tool.path})" if tool else "the driver's"
    except TilewrightError as error:
        rows["PTX assembler"] = str(error)
    rows["GPU targets"] = ", ".join(
        f"cuda:{capability} (PTX {arch_of(capability).ptx / 10:.1f})" for capability in CAPABILITIES
    )
    return rows


def report() -> str:
    """The facts, and the knobs that the environment sets, as text for an issue: Markdown, the home folder as `~`."""
    rows = facts()
    for name, variable, value, _ in knobs.describe():
        if variable in os.environ:
            rows[f"{variable} ({name})"] = str(value)
    home = str(Path.home())
    lines = [f"{name}: {text.replace(home, '~') if len(home) > 1 else text}" for name, text in rows.items()]
    return "\n".join(["```", *lines, "```"])


def doctor(console: Console) -> None:
    """Print the facts and every knob with its environment variable, value and meaning."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in facts().items():
        table.add_row(name, text)
    console.print(table)
    settings = Table(box=SIMPLE, header_style="bold", pad_edge=False)
    for column in ("knob", "environment", "value", "meaning"):
        settings.add_column(column, overflow="fold", no_wrap=column == "environment")  # to be copied
    for name, variable, value, meaning in knobs.describe():
        settings.add_row(name, variable, "" if value is None else str(value), meaning)
    console.print(settings)
