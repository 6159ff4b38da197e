"""The knobs of NVIDIA's tools under Triton's names: a view of `knobs.cuda`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.base.errors import KnobError
from tilewright.base.refusal import OneValue


@dataclass(frozen=True)
class NvidiaTool:
    """A program of CUDA's toolkit.

    Args:
        path: of it.
    """

    path: str

    @property
    def version(self) -> str:
        """What it says of itself, as "13.0".

        Raises:
            KnobError: it does not run, or says nothing of the kind.
        """
        import subprocess  # not needed to import the package

        try:
            said = subprocess.run([self.path, "--version"], capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError) as error:
            raise KnobError(f"{self.path} does not run: {error}", hint="it comes with CUDA's toolkit") from None
        found = re.search(r"release (\d+\.\d+)", said)
        if found is None:
            raise KnobError(f"{self.path} --version names no release")
        return found[1]


class NvidiaKnobs:
    """What Triton calls `knobs.nvidia`.

    Args:
        cuda: the knobs that hold the values.
    """

    dump_nvptx = OneValue(False, "TILEWRIGHT_DUMP_DIR writes the PTX of each kernel")
    disable_ptxas_opt = OneValue(False, "code is always optimised")
    ptxas_options = OneValue(None, "code is assembled by nvJitLink or the driver where there is no ptxas")
    mock_ptx_version = OneValue(None, "the version of PTX is the newest that LLVM writes for the architecture")
    dump_ptxas_log = OneValue(False, "`CompiledKernel.metadata.notes` has what the assembler said")

    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda

    @property
    def libdevice_path(self) -> str | None:
        """The libdevice to link; None leaves the search to Tilewright."""
        return None if self._cuda.libdevice is None else str(self._cuda.libdevice)

    @libdevice_path.setter
    def libdevice_path(self, path: str | Path | None) -> None:
        self._cuda.libdevice = path

    @property
    def libcuda_path(self) -> str | None:
        """The driver library to load; None leaves the search to Tilewright."""
        return None if self._cuda.libcuda is None else str(self._cuda.libcuda)

    @libcuda_path.setter
    def libcuda_path(self, path: str | Path | None) -> None:
        self._cuda.libcuda = path

    @property
    def ptxas(self) -> NvidiaTool:
        """The assembler that is used where one is used."""
        return _tool("ptxas", self._cuda.ptxas)

    @ptxas.setter
    def ptxas(self, tool: NvidiaTool | str | Path | None) -> None:
        self._cuda.ptxas = tool.path if isinstance(tool, NvidiaTool) else tool

    ptxas_blackwell = ptxas  # one assembler serves all architectures

    @property
    def cuobjdump(self) -> NvidiaTool:
        """The program of that name on the PATH."""
        return _tool("cuobjdump")

    @property
    def nvdisasm(self) -> NvidiaTool:
        """The program of that name on the PATH."""
        return _tool("nvdisasm")


def _tool(name: str, chosen: Path | None = None) -> NvidiaTool:
    """The chosen one, or the one on the PATH; where there is none it has no version."""
    import shutil  # not needed to import the package

    return NvidiaTool(str(chosen or shutil.which(name) or name))
