"""PTX text to a cubin: nvJitLink in this process, else ptxas as a process, else the driver's own compiler.

::

    PTX --nvJitLink or ptxas--> cubin, and from the log: registers, spills, notes
        --neither is there----> None: the PTX itself is given to the driver

nvJitLink assembles a kernel as a part of a program: functions stay calls, and one call makes every wgmma wait for the
one before. Where it notes that, ptxas makes the kernel anew, as a whole program. Kernels whose warps hand registers to
each other are made by ptxas if there is one.

None of these needs a GPU. A tool newer than the driver makes cubins that the driver may refuse, so where a driver is
there, only tools of a major version up to the driver's are taken.
"""

from __future__ import annotations

import ctypes
import functools
import re
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

from tilewright.backends.nvidia import toolkit
from tilewright.backends.nvidia.arch import Arch
from tilewright.base.decision import Answer, No, Yes
from tilewright.base.errors import InternalError, OutOfResources, UnsupportedError, report_with
from tilewright.base.knobs import knobs

_PTX_INPUT = 2  # NVJITLINK_INPUT_PTX


@dataclass(frozen=True, slots=True)
class Cubin:
    """Machine code of a kernel and what the assembler says about it.

    Args:
        image: ELF bytes.
        log: the assembler's words.
        registers: per thread.
        spill_bytes: per thread, written to local memory for want of registers.
        stack_bytes: per thread.
        shared_bytes: per block, declared in the PTX (what a launch adds is not in it).
        notes: advice of the assembler, such as C7510 (wgmma made serial).
        whole: whether the kernel was assembled as a whole program because of what nvJitLink notes, or would; None where
            there is nothing of the kind.
    """

    image: bytes
    log: str = ""
    registers: int = 0
    spill_bytes: int = 0
    stack_bytes: int = 0
    shared_bytes: int = 0
    notes: tuple[str, ...] = ()
    whole: Answer[Path] | None = None


class Assembler(Protocol):
    """A tool that makes cubins."""

    @property
    def path(self) -> Path:
        """Its file."""

    def version(self) -> str:
        """As the tool says, such as "13.0"."""

    @property
    def identity(self) -> str:
        """Name and version, for cache keys and people."""

    @property
    def verbose(self) -> str:
        """The option that makes it tell registers and spills."""

    def run(self, ptx: str, options: list[str]) -> tuple[bytes | None, str]:
        """The image and the log; None and the errors where the PTX is refused."""


def assemble(
    ptx: str, arch: Arch, *, kernel: str, max_registers: int | None = None, driver_major: int | None = None
) -> Cubin | None:
    """Machine code for PTX.

    Args:
        ptx: the text.
        arch: what to assemble for.
        kernel: symbol of the entry, for the log and the errors.
        max_registers: limit per thread, or None.
        driver_major: of the CUDA version that the driver has, or None where there is none.

    Returns:
        The cubin; None where no assembler is found, and the driver has to take the PTX.

    Raises:
        InternalError: the assembler refuses the text, which is kept in a file; the message shows the lines.
    """
    tool = assembler(driver_major)
    if tool is None:
        return None
    options = [f"-arch={arch.cpu}", "-O3", "-lineinfo"]
    text = ptx if max_registers is None else _limited(ptx, kernel, max_registers)
    parts = "setmaxnreg" in ptx and not isinstance(tool, Ptxas)
    if parts and (made := _handing_on(text, options, kernel, whole_program(driver_major))) is not None:
        return made
    image, log = tool.run(text, [*options, tool.verbose])
    if image is None:
        raise _refused(ptx, log, kernel, tool.identity)
    made = _described(image, log, kernel)
    if parts:
        why = "nvJitLink gives all warps as many registers (C7504), and there is no ptxas that takes the kernel"
        return replace(made, whole=No(why, instead="pip install nvidia-cuda-nvcc"))
    heard = serial_notes(made.notes)
    if not heard or isinstance(tool, Ptxas):
        return made
    return _assembled_whole(made, heard, text, options, kernel, whole_program(driver_major))


def serial_notes(notes: Iterable[str]) -> list[str]:
    """Of an assembler's notes those about lost speed of wgmma: products made serial, registers not handed on."""
    return [note for note in notes if re.search(r"\(C75\d\d\)", note)]


def _assembled_whole(
    made: Cubin, heard: list[str], ptx: str, options: list[str], kernel: str, tool: Ptxas | None
) -> Cubin:
    """What ptxas makes of a kernel that nvJitLink made with such notes, if it has none; else that, with the reason."""
    number = ", ".join(sorted(set(re.findall(r"C75\d\d", " ".join(heard)))))
    if tool is None:
        why = f"nvJitLink makes products wait for each other ({number}), and there is no ptxas"
        return replace(made, whole=No(why, instead="pip install nvidia-cuda-nvcc"))
    image, log = tool.run(ptx, [*options, tool.verbose])
    other = None if image is None else _described(image, log, kernel)
    if other is None or serial_notes(other.notes):
        said = "refuses the kernel" if other is None else "does so too"
        return replace(made, whole=No(f"nvJitLink makes products wait for each other ({number}), and ptxas {said}"))
    what = f"by ptxas: nvJitLink, which links, makes products wait for each other ({number})"
    return replace(other, whole=Yes(tool.path, what))


def _handing_on(ptx: str, options: list[str], kernel: str, tool: Ptxas | None) -> Cubin | None:
    """What ptxas makes of a kernel whose warps hand registers to each other; None if it is not there, or refuses."""
    image, log = tool.run(ptx, [*options, tool.verbose]) if tool is not None else (None, "")
    if tool is None or image is None:
        return None
    what = "by ptxas: nvJitLink, which links, gives all warps as many registers (C7504)"
    return replace(_described(image, log, kernel), whole=Yes(tool.path, what))


def _limited(ptx: str, kernel: str, registers: int) -> str:
    """PTX whose entry says how many registers a thread gets: `-maxrregcount` is not heeded beside `.reqntid`."""
    start = ptx.find(f".entry {kernel}(")
    body = ptx.find("\n{", start)
    if start < 0 or ".maxnreg" in ptx[start:body]:
        return ptx
    return f"{ptx[:body]}\n.maxnreg {registers}{ptx[body:]}"


def assembler(driver_major: int | None = None) -> Assembler | None:
    """The tool that is used: as the knobs say, else nvJitLink, else ptxas; None for the driver's compiler.

    Args:
        driver_major: of the CUDA version that the driver has, or None where there is none.

    Raises:
        UnsupportedError: the knobs name a tool that is not there.
    """
    wanted, path = knobs.cuda.assembler, knobs.cuda.ptxas
    if path is not None or wanted == "ptxas":
        found = path or toolkit.program("ptxas")
        if found is None or not Path(found).is_file():
            raise UnsupportedError(
                f"ptxas is not at {found}" if path else "ptxas is not found",
                hint="install nvidia-cuda-nvcc, or let TILEWRIGHT_PTXAS_PATH name the program",
            )
        return Ptxas(Path(found))
    if wanted not in ("auto", "nvjitlink", "driver"):
        raise UnsupportedError(
            f"there is no assembler {wanted!r}", hint="TILEWRIGHT_ASSEMBLER is auto, nvjitlink, ptxas or driver"
        )
    return None if wanted == "driver" else _found(driver_major, wanted == "nvjitlink")


def whole_program(driver_major: int | None = None) -> Ptxas | None:
    """The ptxas that makes kernels anew which nvJitLink makes slow; None where there is none, or a too new one.

    Args:
        driver_major: as for `assembler`.
    """
    program = toolkit.program("ptxas") if knobs.cuda.assembler == "auto" else None
    tool = Ptxas(program) if program else None
    return tool if tool and (driver_major is None or tool.major <= driver_major) else None


def hands_registers_on(driver_major: int | None = None) -> bool:
    """Whether kernels can be assembled whose warps hand registers on (`setmaxnreg`): nvJitLink gives all as many.

    Args:
        driver_major: as for `assembler`.
    """
    return isinstance(assembler(driver_major), Ptxas) or whole_program(driver_major) is not None


def identity(driver_major: int | None = None) -> str:
    """What makes machine code, for cache keys.

    Args:
        driver_major: as for `assembler`.
    """
    tool = assembler(driver_major)
    if not isinstance(tool, NvJitLink):
        return tool.identity if tool else "the driver"
    program = toolkit.program("ptxas") if knobs.cuda.assembler == "auto" else None
    return f"{tool.identity}, {Ptxas(program).identity if program else 'no ptxas'}"


@functools.cache
def _found(driver_major: int | None, only_nvjitlink: bool) -> Assembler | None:
    for major, path in toolkit.libraries("nvJitLink"):
        if driver_major is None or major <= driver_major:
            return NvJitLink(path, major)
    if only_nvjitlink:
        raise UnsupportedError(
            "nvJitLink is not found"
            + ("" if driver_major is None else f" in a version that the driver (CUDA {driver_major}) knows"),
            hint=f"pip install nvidia-nvjitlink{'' if driver_major in (None, 13) else f'-cu{driver_major}'}",
        )
    return whole_program(driver_major)


# --- nvJitLink --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NvJitLink:
    """NVIDIA's linker as a library; its functions are `nvJitLinkCreate` and so on (nvJitLink.h).

    Args:
        path: of the library.
        major: its version.
    """

    path: Path
    major: int
    verbose: ClassVar = "-verbose"

    @property
    def identity(self) -> str:
        """Name, size and time of the library."""
        return f"nvJitLink {toolkit.identity(self.path)}"

    @functools.cached_property
    def _library(self) -> Any:
        library = ctypes.CDLL(str(self.path))
        library.nvJitLinkAddData.argtypes = [
            ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p
        ]  # fmt: skip
        return library

    def version(self) -> str:
        """As the library itself says, such as "13.5"."""
        major, minor = ctypes.c_uint(), ctypes.c_uint()
        self._library.nvJitLinkVersion(ctypes.byref(major), ctypes.byref(minor))
        return f"{major.value}.{minor.value}"

    def run(self, ptx: str, options: list[str]) -> tuple[bytes | None, str]:
        """As `Assembler.run`."""
        library, handle = self._library, ctypes.c_void_p()
        texts = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        if library.nvJitLinkCreate(ctypes.byref(handle), len(options), texts):
            return None, f"nvJitLink refuses the options {' '.join(options)}"
        try:
            text = ptx.encode() + b"\0"
            failed = library.nvJitLinkAddData(handle, _PTX_INPUT, text, len(text), b"kernel.ptx")
            failed = failed or library.nvJitLinkComplete(handle)
            if failed:
                return None, self._text(handle, "ErrorLog")
            return self._bytes(handle, "LinkedCubin"), self._text(handle, "InfoLog")
        finally:
            library.nvJitLinkDestroy(ctypes.byref(handle))

    def _bytes(self, handle: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        getattr(self._library, f"nvJitLinkGet{what}Size")(handle, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value + 1)
        getattr(self._library, f"nvJitLinkGet{what}")(handle, buffer)
        return buffer.raw[: size.value]

    def _text(self, handle: ctypes.c_void_p, what: str) -> str:
        return self._bytes(handle, what).rstrip(b"\0").decode(errors="replace")


# --- ptxas ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ptxas:
    """The assembler as a program.

    Args:
        path: of the program.
    """

    path: Path
    verbose: ClassVar = "-v"

    @property
    def identity(self) -> str:
        """Name, size and time of the program."""
        return f"ptxas {toolkit.identity(self.path)}"

    def version(self) -> str:
        """As the program itself says, such as "13.0"."""
        done = subprocess.run([self.path, "--version"], capture_output=True, text=True, check=False)
        found = re.search(r"release (\d+\.\d+)", done.stdout)
        return found[1] if found else "0"

    @functools.cached_property
    def major(self) -> int:
        """Its major version."""
        return int(self.version().partition(".")[0])

    def run(self, ptx: str, options: list[str]) -> tuple[bytes | None, str]:
        """As `Assembler.run`."""
        with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
            source, made = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
            source.write_text(ptx, encoding="utf-8")
            command = [str(self.path), *options, str(source), "-o", str(made)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            log = done.stdout + done.stderr
            return (None if done.returncode else made.read_bytes()), log


# --- what the tools say -----------------------------------------------------------------------------------


def _described(image: bytes, log: str, kernel: str) -> Cubin:
    """The facts about `kernel` in a log: the lines of `ptxas -v`, and the linker's. Where nvJitLink has the code from
    its cache there are the linker's alone; they say the stack of a thread, which holds nothing but spills."""
    heads = rf"(?:Compiling entry function|Function properties for) '{re.escape(kernel)}'"
    section = (re.split(heads, log, maxsplit=1)[1:] or [log])[0].partition("Compiling entry function")[0]

    def number(pattern: str) -> int:
        found = re.search(pattern, section)
        return int(found[1]) if found else 0

    return Cubin(
        image,
        log,
        registers=number(r"[Uu]sed (\d+) registers"),
        spill_bytes=number(r"(\d+) bytes spill stores" if "spill stores" in section else r"(\d+) stack"),
        stack_bytes=number(r"(\d+) (?:bytes stack frame|stack)"),
        shared_bytes=number(r"(\d+) bytes smem"),
        notes=tuple(line.strip() for line in log.splitlines() if re.search(r"\(C\d+\)|warning", line)),
    )


def _refused(ptx: str, log: str, kernel: str, tool: str) -> InternalError | OutOfResources | UnsupportedError:
    if needed := re.findall(r"'([^']+)' requires PTX ISA \.version (\d+\.\d+)", log):
        what, least = max(needed, key=lambda row: tuple(map(int, row[1].split("."))))
        return UnsupportedError(
            f"ptx_version: {kernel} needs PTX {least} ({what})",
            hint=f"write ptx_version={least.replace('.', '')}, or leave it out",
        )
    if found := re.search(r"PTX \.version (\S+) does not support \.target (\S+)", log):
        return UnsupportedError(
            f"ptx_version: there is no {found[2]} in PTX {found[1]}", hint="write a newer one, or leave it out"
        )
    if found := re.search(r"Unsupported \.version (\S+); current version is '?(\d+\.\d+)", log):
        return UnsupportedError(
            f"ptx_version: {tool} takes PTX up to {found[2]}, not {found[1]}", hint="leave ptx_version out"
        )
    if few := re.search(r"Insufficient registers \((\d+)\).*?register target of (\d+)", log, re.DOTALL):
        hint = "A larger `maxnreg`, or none, or smaller blocks help."
        return OutOfResources(int(few[2]), int(few[1]), "registers", f"`maxnreg` of {kernel} is the limit.", hint)
    lines = ptx.splitlines()
    told = []
    for row in log.splitlines():
        found = re.search(r"line (\d+); (?:error|fatal) +: (.*)", row)
        if found and int(found[1]) <= len(lines):
            told.append(f"line {found[1]}: {found[2]}\n    {lines[int(found[1]) - 1].strip()}")
    shown = "\n".join(told[:5]) or log.strip()
    return InternalError(
        f"{tool.partition(' ')[0]} refuses the PTX of {kernel}:\n{shown}", hint=report_with(ptx, ".ptx")
    )


def disassemble(image: bytes) -> str | None:
    """A cubin as SASS, by nvdisasm; None where that is not found or refuses."""
    tool = toolkit.program("nvdisasm")
    if tool is None:
        return None
    with tempfile.NamedTemporaryFile(suffix=".cubin", prefix="tilewright-") as file:
        file.write(image)
        file.flush()
        done = subprocess.run([tool, "-c", file.name], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None
